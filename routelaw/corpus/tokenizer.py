"""Text to token ids and back, by a SentencePiece model.

Tokenizers trained here keep the text as it is: no normalisation, no space put before it, every space, tab and newline
kept, bytes for what has no piece, so that decode(encode(text)) == text for any text. A model from elsewhere keeps its
own habits.

SentencePiece pays for merging every word anew. No piece of a tokenizer trained here reaches across the border of two
units (a newline, or spaces followed by letters or by other signs), so a text's tokens are those of its units, and a
unit seen before is looked up. Whether this holds is read off the vocabulary; where it does not, SentencePiece does all.

Training is byte-pair encoding of a bounded, seeded sample of a text of any length. The ids are: 0 unknown (never met,
for bytes stand in), 1 <|endoftext|>, 256 bytes, then pieces in the order in which they were merged, that is roughly
from frequent to rare, then single characters. Settings and sample are fixed, so the same text gives the same model.
"""

from __future__ import annotations

import hashlib
import heapq
import io
import random
import re
from array import array
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from routelaw.corpus.fragments import Fragment, decode
from routelaw.errors import InputError
from routelaw.files import read_bytes

END_OF_TEXT = "<|endoftext|>"
SPACE_SIGN = "\u2581"
"""SentencePiece writes a space so. Met in a text it would come back as a space, hence it goes in as three bytes."""
UNIT = re.compile(r" *[^\W\d_]+| *(?:[^\w \n]|[\d_])+|\n| +")
CACHED_UNITS = 1 << 17
CACHED_LENGTH = 32
PROBES = (
    "a b",
    " a\nb ",
    "  a  b\n\n c",
    "\ta\r\n\u00e9 e\u0301 \ufb01 \u2460\u3000\uff21 \u00a0x",
    "x\U0010fffd \U0010fffd\n",
)
"""Texts that normalisation, or a space put before them, would change."""


class Tokenizer:
    """A SentencePiece model whose end-of-sentence piece ends a document."""

    def __init__(self, model: bytes, name: str = "tokenizer") -> None:
        self.model = model
        self._pieces = _load(model, name)
        self.vocabulary: int = self._pieces.vocab_size()
        self.end_of_text: int = self._pieces.eos_id()
        if self.end_of_text < 0:
            raise InputError(f"{name}: the tokenizer has no end-of-sentence piece to end documents with; give another.")
        self.dtype = np.dtype(token_type(self.vocabulary))
        self._code = {2: "H", 4: "I"}[self.dtype.itemsize]
        self._units = _Units(self)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.model).hexdigest()

    def encode(self, text: str) -> np.ndarray:
        """Ids of a text, without an end-of-text."""
        return np.frombuffer(self.encode_packed(text), self.dtype)

    def encode_packed(self, text: str) -> bytes:
        """The same, as the bytes of a shard."""
        if not self.by_units:
            return self.encode_plain(text)
        if SPACE_SIGN in text:
            return self._space_sign.join(map(self.encode_packed, text.split(SPACE_SIGN)))
        return b"".join(map(self._units.__getitem__, UNIT.findall(text)))

    def encode_plain(self, text: str) -> bytes:
        """The same by SentencePiece alone: the reference, and the way for models from elsewhere."""
        if SPACE_SIGN in text and self.keeps_text:
            return self._space_sign.join(map(self.encode_plain, text.split(SPACE_SIGN)))
        return array(self._code, self._pieces.encode(text)).tobytes()

    @cached_property
    def _space_sign(self) -> bytes:
        return array(
            self._code, [self._pieces.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE_SIGN.encode()]
        ).tobytes()

    def decode(self, ids: Iterable[int] | np.ndarray) -> str:
        """The text; an end-of-text is nothing."""
        return self._pieces.decode([int(i) for i in ids])

    def piece(self, token: int) -> str:
        return self._pieces.id_to_piece(int(token))

    @cached_property
    def keeps_text(self) -> bool:
        """Whether any text comes back as it was."""
        bytes_known = all(self._pieces.is_byte(self._pieces.piece_to_id(f"<0x{byte:02X}>")) for byte in range(256))
        return bytes_known and all(self._pieces.decode(self._pieces.encode(probe)) == probe for probe in PROBES)

    @cached_property
    def by_units(self) -> bool:
        """Whether a text may be encoded unit by unit: it is kept as it is and no piece lies across a border of units.

        Where the border runs follows from the two characters around it, so a piece without one inside never meets one.
        """
        pieces = self._pieces
        ids = [
            i for i in range(self.vocabulary) if not (pieces.is_byte(i) or pieces.is_control(i) or pieces.is_unknown(i))
        ]
        whole = (pieces.id_to_piece(i).replace(SPACE_SIGN, " ") for i in ids)
        starts_bare = all(
            pieces.encode(f"a{p}") == pieces.encode("a") + pieces.encode(p) for p in (" b", "\n", "\nb", ".")
        )
        return self.keeps_text and starts_bare and all(UNIT.fullmatch(piece) for piece in whole)


class _Units(dict[str, bytes]):
    """Packed ids of the units met lately. It is emptied when full: memory stays bounded, and it follows the text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, unit: str) -> bytes:
        ids = self._tokenizer.encode_plain(unit)
        if len(unit) <= CACHED_LENGTH:
            if len(self) >= CACHED_UNITS:
                self.clear()
            self[unit] = ids
        return ids


def token_type(vocabulary: int) -> str:
    """Two bytes a token where they suffice."""
    return "<u2" if vocabulary <= 1 << 16 else "<u4"


def read_tokenizer(path: Path) -> Tokenizer:
    return Tokenizer(read_bytes(path), str(path))


def sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise InputError("tokenizing needs SentencePiece: pip install 'routelaw[train]'.") from None
    return sentencepiece


def _load(model: bytes, name: str) -> Any:
    processor = sentencepiece().SentencePieceProcessor
    try:
        # An empty model is accepted by SentencePiece and fails later, in C++.
        if not model:
            raise RuntimeError
        loaded = processor(model_proto=model)
        # A piece that is not UTF-8 is accepted too, and fails where it is first asked for.
        loaded.id_to_piece(list(range(loaded.vocab_size())))
    except (RuntimeError, UnicodeDecodeError):  # the second also where SentencePiece's own message quotes such a piece
        raise InputError(f"{name}: this is not a SentencePiece model, or a damaged one.") from None
    return loaded


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
