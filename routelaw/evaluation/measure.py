"""One model on one text: the likelihood of all of it, or, of a text named lambada, of the last words.

One name is one metric. `loss_lambada` is the loss of the last words, `loss_lambada_text` that of the whole text, and
training, which evaluates whole texts, takes no text by the first name (`check_whole_texts`).

The last words are those of LAMBADA (Paperno et al. 2016): the last word of a passage, from all that stands before it.
The target is the last run of characters without white space, with the white space before it. Its loss is −log p of all
of its tokens: averaged over tokens it is `loss_lambada` of a run table, as every loss there is in nats per token, and
averaged over passages it is `nats_per_word`. It is right when every one of its tokens is the most likely one given
those before (which is to say: greedy decoding writes exactly this word). Where the tokenizer joins the end of the
context and the target into one token, that token belongs to the target. A passage begins after an end-of-text; one
longer than the model's sequence loses its beginning.

Shapes: B passages, S sequence, T tokens, W tokens of target words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from routelaw.corpus.shards import open_corpus
from routelaw.corpus.sources import Reading
from routelaw.corpus.tokenizer import Tokenizer
from routelaw.errors import InputError
from routelaw.evaluation.corpora import corpus_bits_per_byte, evaluate_corpus, hash_corpus, is_corpus
from routelaw.evaluation.likelihood import ExpertLoad, forward, masked_likelihood
from routelaw.evaluation.texts import TextHash, TokenStream, batched, hash_text, read_passages, strided_windows
from routelaw.model.transformer import Transformer
from routelaw.runs.text_results import LAST_WORD, TEXT, WINDOWS, Measurement

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
    measurement: Measurement
    """What was measured: what results that are compared have in common."""
    options: dict[str, Any]
    """How the text was read."""

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
            "metric": self.measurement.metric,
            "text": self.measurement.text,
            "options": {"stride": self.measurement.stride, **self.options},
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
    reading = reading_of(name, documents, key, errors)
    options = {"limit": limit, **asdict(reading)}
    if is_last_word(name):
        text = TextHash()
        words = last_words(model, tokenizer, read_passages(path, reading, limit, text), device)
        figures = {
            "passages": words.passages,
            "accuracy": words.accuracy,
            "nats_per_word": words.nats_per_word,
            "nats_per_token": words.nats_per_token,
        }
        measured = measurement_of(name, str(text), None, 0)
        return Trial(name, path, words.tokens, figures, words.load, measured, options)
    length = model.spec.model.sequence_length
    step = usual_stride(length) if stride is None else stride
    stream = TokenStream(path, tokenizer, reading, limit)
    windows = strided_windows(stream, length, step, tokenizer.end_of_text)
    found = masked_likelihood(model, batched(windows, length), device)
    figures = {
        "documents": stream.documents,
        "bytes": stream.bytes,
        "stride": step,
        "nats_per_token": found.nats_per_token,
        "bits_per_byte": found.bits_per_byte(stream.bytes),
        "perplexity": found.perplexity,
    }
    measured = measurement_of(name, str(stream.hash), stride, length)
    return Trial(name, path, found.tokens, figures, found.load, measured, options)


def run_corpus_trial(
    model: Transformer, tokenizer: Tokenizer, name: str, path: Path, device: torch.device | str, tokens: int
) -> Trial:
    """A corpus as training evaluates it, on at most so many tokens."""
    corpus = open_corpus(path, verify=True)  # a flipped bit would be another loss, and nobody would know
    found = evaluate_corpus(model, corpus, tokenizer.sha256, tokens, device)
    figures = {
        "nats_per_token": found.nats_per_token,
        "bits_per_byte": corpus_bits_per_byte(corpus, found.nats_per_token),
        "perplexity": found.perplexity,
    }
    measured = Measurement(WINDOWS, hash_corpus(corpus), None)
    return Trial(name, path, found.tokens, figures, found.load, measured, {"evaluate_tokens": tokens})


def as_in_training(name: str, path: Path, stride: int | None, limit: int | None) -> bool:
    """Whether this is a corpus that is measured as training does: unless its windows or documents are chosen."""
    return stride is None and limit is None and not is_last_word(name) and is_corpus(path)


def usual_stride(sequence_length: int) -> int:
    return max(sequence_length // 2, 1)


def reading_of(name: str, documents: str | None, key: str, errors: str) -> Reading:
    """How the text of this name is read unless told otherwise: passages are lines."""
    return Reading(documents or ("line" if is_last_word(name) else "separator"), key, errors)


def hash_named_text(name: str, path: Path, limit: int | None, documents: str | None, key: str, errors: str) -> str:
    """The hash of a text as it is read under this name (`hash_text`)."""
    return hash_text(path, reading_of(name, documents, key, errors), limit)


def measurement_of(
    name: str, text: str, stride: int | None, sequence_length: int, *, trained_windows: bool = False
) -> Measurement:
    """What a name and options measure on a text of this hash, with a model of this sequence length."""
    if trained_windows:
        return Measurement(WINDOWS, text, None)
    if is_last_word(name):
        return Measurement(LAST_WORD, text, None)
    return Measurement(TEXT, text, None if stride == usual_stride(sequence_length) else stride)
