"""How evenly hash routing spreads a corpus over its experts (the paper's figure on hash balancing, appendix B).

Each token type goes to one expert, so a frequent token cannot be shared out, and the more experts there are the less
even any hash becomes. Greedy assignment is told the frequencies of the training text and judged on the held-out text,
as it would be in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from routelaw.corpus.shards import Corpus
from routelaw.errors import InputError
from routelaw.routers.hashing import SCHEMES, greedy_table, modulo_table, random_table

CAPACITY = 2.0


@dataclass(frozen=True)
class Balance:
    scheme: str
    experts: int
    load: np.ndarray
    """Tokens of each expert as a multiple of an even share, most first."""

    @property
    def overflow(self) -> float:
        """Share of tokens beyond the capacity factor C = 2, which training would drop."""
        return float(np.maximum(self.load - CAPACITY, 0.0).sum() / self.load.sum())


def balances(corpus: Corpus, experts: Sequence[int]) -> list[Balance]:
    """Every scheme at every number of experts, on the token frequencies of the held-out split."""
    if not corpus.validation.documents:
        raise InputError(
            f"{corpus.path}: nothing is held out to judge the balance by; build with a larger --validation."
        )
    seen_V = torch.from_numpy(np.array(corpus.train.frequencies_V, dtype=np.int64))
    held_out_V = np.asarray(corpus.validation.frequencies_V, dtype=float)
    ids_V = torch.arange(len(seen_V))
    made = []
    for count in experts:
        tables = {
            "modulo": modulo_table(ids_V, count, 1),
            "random": random_table(ids_V, count, 1),
            "greedy": greedy_table(seen_V, count, 1),
        }
        for scheme in SCHEMES:
            tokens_E = np.bincount(tables[scheme][:, 0].numpy(), weights=held_out_V, minlength=count)
            made.append(Balance(scheme, count, np.sort(tokens_E / tokens_E.mean())[::-1]))
    return made
