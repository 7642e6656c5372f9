"""LAMBADA: the last word of a passage, from all that stands before it (Paperno et al. 2016).

The target is the last run of characters without white space, with the white space before it. Its loss is −log p of
all of its tokens, summed, and averaged over passages; it is right when every one of its tokens is the most likely one
given those before (which is to say: greedy decoding writes exactly this word). Where the tokenizer joins the end of the
context and the target into one token, that token belongs to the target. A passage begins after an end-of-text; one
longer than the model's sequence loses its beginning.

Shapes: B passages, S sequence, T tokens, W tokens of target words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from routelaw.corpus.tokenizer import Tokenizer
from routelaw.errors import InputError
from routelaw.evaluation.likelihood import forward
from routelaw.evaluation.load import ExpertLoad
from routelaw.model.transformer import Transformer

PASSAGES_AT_ONCE = 16


@dataclass(frozen=True)
class LastWords:
    passages: int
    right: int
    nats: float
    """−log p of all target words."""
    tokens: int
    """Tokens of all target words."""
    load: dict[int, list[float]]
    """Share of the tokens of the passages each expert took, by block."""

    @property
    def nats_per_word(self) -> float:
        return self.nats / self.passages

    @property
    def nats_per_token(self) -> float:
        return self.nats / self.tokens

    @property
    def accuracy(self) -> float:
        return self.right / self.passages


@dataclass(frozen=True)
class Passage:
    ids: np.ndarray
    """End-of-text, context and target, at most S + 1 of them."""
    target: int
    """How many of the last ones are the target."""


def split_passage(text: str, tokenizer: Tokenizer, sequence_length: int) -> Passage:
    text = text.rstrip()
    word = text.rsplit(maxsplit=1)[-1] if text else ""
    before = text.removesuffix(word)
    if not before:
        raise InputError(f"a passage needs a last word and something before it, not {text[:40]!r}.")
    whole, context = (tokenizer.encode(part).astype(np.int64) for part in (text, before.rstrip()))
    shared = min(len(whole) - 1, len(context))
    same = whole[:shared] == context[:shared]
    begin = shared if same.all() else int(np.argmin(same))
    target = len(whole) - begin
    if target > sequence_length:
        raise InputError(f"the last word {word[:40]!r} has {target} tokens, and a sequence only {sequence_length}.")
    ids = np.concatenate([[tokenizer.end_of_text], whole])
    return Passage(ids[-(sequence_length + 1) :], target)


@torch.no_grad()
def last_words(model: Transformer, tokenizer: Tokenizer, texts: Iterable[str], device: torch.device | str) -> LastWords:
    length = model.spec.model.sequence_length
    passages = (split_passage(text, tokenizer, length) for text in texts)
    load = ExpertLoad(model.spec.router.experts)
    count = right = tokens = 0
    nats = 0.0
    for rows_BS, wanted_BS, real_BS in _batches(passages, tokenizer.end_of_text):
        rows, wanted = torch.from_numpy(rows_BS).to(device), torch.from_numpy(wanted_BS).to(device)
        output = forward(model, rows[:, :-1])
        load.add(output.layers, torch.from_numpy(real_BS).to(device).flatten())
        hidden_WD, target_W = output.hidden_TD[wanted.flatten()], rows[:, 1:][wanted]
        nats += float(model.token_nll(hidden_WD, target_W).double().sum())
        hit = torch.zeros_like(wanted)
        hit[wanted] = (hidden_WD @ model.embedding.T).argmax(1) == target_W
        right += int((hit | ~wanted).all(1).sum())
        count, tokens = count + len(rows_BS), tokens + int(wanted_BS.sum())
    if not count:
        raise InputError("there are no passages.")
    return LastWords(count, right, nats, tokens, load.shares)


def _batches(passages: Iterator[Passage], fill: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Passages filled up at the end to the longest of their batch, (B, S+1); (B, S) successors that are target, and
    inputs that are no filling."""
    while batch := list(islice(passages, PASSAGES_AT_ONCE)):
        longest = max(len(p.ids) for p in batch)
        rows = np.full((len(batch), longest), fill, np.int64)
        wanted, real = (np.zeros((len(batch), longest - 1), bool) for _ in range(2))
        for row, passage in enumerate(batch):
            end = len(passage.ids)
            rows[row, :end] = passage.ids
            real[row, : end - 1] = True
            wanted[row, end - 1 - passage.target : end - 1] = True
        yield rows, wanted, real
