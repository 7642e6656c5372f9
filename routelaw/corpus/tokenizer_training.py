"""A SentencePiece tokenizer from a text of any length: byte-pair encoding of a bounded, seeded sample of it.

The ids are: 0 unknown (never met, for bytes stand in), 1 <|endoftext|>, 256 bytes, then pieces in the order in which
they were merged, that is roughly from frequent to rare, then single characters. Settings and sample are fixed, so the
same text gives the same model.
"""

from __future__ import annotations

import heapq
import io
import random
import re
from collections.abc import Iterable, Iterator

from routelaw.corpus.fragments import Fragment, decode
from routelaw.corpus.tokenizer import END_OF_TEXT, sentencepiece
from routelaw.errors import InputError

SAMPLE_BYTES = 32 << 20
PASSAGE_BYTES = 4 << 10
LONGEST_WORD = 256
_CUT_WORD = re.compile(rf"[^ \n]{{{LONGEST_WORD}}}")
_RESERVED = re.compile("[\n\t\0\u2581\u2585]+")
"""Lines end at newlines, of which no piece is made; lines with the others, which it uses itself, the trainer drops."""


def train_tokenizer(
    fragments: Iterable[Fragment], vocabulary: int, *, errors: str = "strict", sample_bytes: int = SAMPLE_BYTES
) -> bytes:
    """The model, as SentencePiece stores it."""
    sample = sample_passages(fragments, sample_bytes, errors)
    model = io.BytesIO()
    trainer = sentencepiece().SentencePieceTrainer
    try:
        trainer.train(
            sentence_iterator=_lines(sample),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocabulary,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            allow_whitespace_only_pieces=True,
            max_sentence_length=1 << 24,
            unk_id=0,
            eos_id=1,
            eos_piece=END_OF_TEXT,
            bos_id=-1,
            pad_id=-1,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise InputError(_explain(str(error), vocabulary)) from None
    return model.getvalue()


def sample_passages(fragments: Iterable[Fragment], budget: int, errors: str = "strict") -> list[bytes]:
    """Passages of a few kilobytes, each as likely as any other to be kept, no more than `budget` bytes together.

    Every passage draws a number; those with the smallest stay. All text is decoded, so bad bytes are found before the
    long work of training and encoding.
    """
    draw = random.Random(0)
    kept: list[tuple[float, int, bytes]] = []
    total = 0
    for number, passage in enumerate(_passages(fragments, errors)):
        heapq.heappush(kept, (-draw.random(), number, passage))
        total += len(passage)
        while total > budget and len(kept) > 1:
            total -= len(heapq.heappop(kept)[2])
    return [passage for _, _, passage in sorted(kept, key=lambda item: item[1])]


def _passages(fragments: Iterable[Fragment], errors: str) -> Iterator[bytes]:
    """Text in pieces of `PASSAGE_BYTES` and the rest of the line; short documents go together."""
    pending = bytearray()
    for fragment in fragments:
        text = decode(fragment, errors)
        data = fragment.data if errors == "strict" else text.encode()
        start = 0
        while len(data) - start >= PASSAGE_BYTES and (end := data.find(b"\n", start + PASSAGE_BYTES)) >= 0:
            yield data[start:end]
            start = end + 1
        pending += data[start:] + b"\n"
        if len(pending) >= PASSAGE_BYTES:
            yield bytes(pending)
            pending.clear()
    if pending:
        yield bytes(pending)


def _lines(sample: list[bytes]) -> Iterator[str]:
    for passage in sample:
        # The trainer counts places within a word in 16 bits, and gains nothing from words of such length.
        text = _CUT_WORD.sub(r"\g<0>\n", passage.decode("utf-8", "replace"))
        yield from filter(None, _RESERVED.split(text))


def _explain(message: str, vocabulary: int) -> str:
    if match := re.search(r"too high .*<= (\d+)", message):
        return (
            f"a vocabulary of {vocabulary:,} is larger than this text allows: pass --vocabulary {match[1]} or less, "
            "or give more text."
        )
    if match := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"a vocabulary of {vocabulary:,} is below the characters of this text: "
            f"pass --vocabulary {match[1]} or more."
        )
    if "sentences_.empty()" in message:
        return "there is no text to train a tokenizer on."
    return f"SentencePiece could not train a tokenizer ({message})."
