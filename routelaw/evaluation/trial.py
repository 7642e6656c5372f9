"""One model on one text: the likelihood of all of it, or, of a text named lambada, of the last words.

One name is one metric. `loss_lambada` is the loss of the last words, `loss_lambada_text` that of the whole text, and
training, which evaluates whole texts, takes no text by the first name (`check_whole_texts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from routelaw.corpus.sources import Reading
from routelaw.corpus.tokenizer import Tokenizer
from routelaw.errors import InputError
from routelaw.evaluation.lambada import last_words
from routelaw.evaluation.likelihood import masked_likelihood
from routelaw.evaluation.texts import TokenStream, batched, read_passages, strided_windows
from routelaw.model.transformer import Transformer

LAMBADA, WHOLE = "lambada", "_text"


def is_last_word(name: str) -> bool:
    """Whether a text of this name is measured by the last word of its passages: lambada, lambada_test and the like."""
    return name.lower().startswith(LAMBADA) and not name.lower().endswith(WHOLE)


def check_whole_texts(names: Iterable[str]) -> None:
    """Refuse names that mean the last word where the whole text is measured."""
    for name in names:
        if is_last_word(name):
            raise InputError(
                f"loss_{name} is the loss of the last words, and training evaluates whole texts: call this one "
                f"{name}{WHOLE}, and measure the last words with `routelaw eval`."
            )


@dataclass(frozen=True)
class Trial:
    name: str
    path: Path
    tokens: int
    """Tokens whose loss counts."""
    figures: dict[str, float]
    load: dict[int, list[float]]
    """Share of the tokens each expert took, by block."""

    @property
    def nats_per_token(self) -> float:
        return self.figures["nats_per_token"]

    @property
    def bits_per_byte(self) -> float | None:
        """Comparable between tokenizers; None where the last words alone are measured."""
        return self.figures.get("bits_per_byte")

    @property
    def perplexity(self) -> float | None:
        """e to the nats per token; None where the last words alone are measured."""
        return self.figures.get("perplexity")

    @property
    def accuracy(self) -> float | None:
        """Share of the passages whose last word was predicted; None where whole texts are measured."""
        return self.figures.get("accuracy")

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "path": str(self.path),
            "tokens": self.tokens,
            **self.figures,
            "load": self.load,
        }


def run_trial(
    model: Transformer,
    tokenizer: Tokenizer,
    name: str,
    path: Path,
    device: torch.device | str,
    *,
    stride: int | None = None,
    limit: int | None = None,
    documents: str | None = None,
    key: str = "text",
    errors: str = "strict",
) -> Trial:
    """`limit` bounds the documents or passages. Windows move on by half a sequence unless told otherwise."""
    if is_last_word(name):
        texts = read_passages(path, Reading(documents=documents or "line", key=key, errors=errors), limit)
        words = last_words(model, tokenizer, texts, device)
        figures = {
            "passages": words.passages,
            "accuracy": words.accuracy,
            "nats_per_word": words.nats_per_word,
            "nats_per_token": words.nats_per_token,
        }
        return Trial(name, path, words.tokens, figures, words.load)
    length = model.spec.model.sequence_length
    stride = max(length // 2, 1) if stride is None else stride
    reading = Reading(documents=documents or "separator", key=key, errors=errors)
    stream = TokenStream(path, tokenizer, reading, limit)
    windows = strided_windows(stream, length, stride, tokenizer.end_of_text)
    measured = masked_likelihood(model, batched(windows, length), device)
    figures = {
        "documents": stream.documents,
        "bytes": stream.bytes,
        "stride": stride,
        "nats_per_token": measured.nats_per_token,
        "bits_per_byte": measured.bits_per_byte(stream.bytes),
        "perplexity": measured.perplexity,
    }
    return Trial(name, path, measured.tokens, figures, measured.load)
