"""A corpus as training evaluates it: a bounded number of tokens, the same every time, in windows side by side.

Quick enough to do often. `train --evaluate-on` and `routelaw eval` measure a corpus here, and so agree.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch

from routelaw.corpus.batches import validation_windows
from routelaw.corpus.manifest import MANIFEST
from routelaw.corpus.shards import Corpus
from routelaw.evaluation.likelihood import Likelihood, likelihood
from routelaw.evaluation.texts import BATCH_TOKENS, TextHash, evaluated_split, held_out
from routelaw.model.transformer import Transformer


def is_corpus(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def evaluate_corpus(
    model: Transformer, corpus: Corpus, tokenizer_sha256: str, tokens: int, device: torch.device | str
) -> Likelihood:
    """At most `tokens` tokens (at least one window) of what the corpus holds out, or of all where nothing is."""
    length = model.spec.model.sequence_length
    split = held_out(corpus, tokenizer_sha256).name
    return likelihood(
        model, validation_windows(corpus, length, max(1, BATCH_TOKENS // length), tokens=tokens, split=split), device
    )


def corpus_bits_per_byte(corpus: Corpus, nats_per_token: float) -> float:
    """With as many bytes to a token as the evaluated split has on average."""
    split = evaluated_split(corpus)
    return nats_per_token * len(split.tokens) / split.bytes / math.log(2)


def hash_corpus(corpus: Corpus) -> str:
    """The hash of what is evaluated of a corpus, as `hash_text` gives it."""
    found, split = TextHash(), evaluated_split(corpus)
    found.add_split(corpus, split, split.documents)
    return str(found)
