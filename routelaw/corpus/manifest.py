"""What a corpus says of itself: one JSON file with the size and hash of every other, and a checksum of its own."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from routelaw.corpus.arrays import FileRecord
from routelaw.errors import InputError

MANIFEST = "manifest.json"
FORMAT = "routelaw corpus 1"
UNFINISHED = ".part"


@dataclass(frozen=True)
class SplitRecord:
    """What the manifest says of a split."""

    documents: int
    tokens: int
    bytes: int
    """UTF-8 bytes of text, without the ends of documents: for bits per byte."""
    shards: tuple[FileRecord, ...]
    index: FileRecord
    """For each document the tokens and the bytes up to its end, two numbers."""
    frequencies: FileRecord
    """How often each token of the vocabulary occurs."""


@dataclass(frozen=True)
class Manifest:
    """What a corpus is, as stored. Neither dates nor places: the same text gives the same manifest."""

    vocabulary: int
    end_of_text: int
    tokenizer: FileRecord
    splits: dict[str, SplitRecord]
    validation_share: float
    documents_from: str
    """How documents were told apart in .txt files."""

    @property
    def id(self) -> str:
        """Content hash: over the hashes of tokenizer and shards alone; how the text was stored plays no part."""
        parts = [f"tokenizer {self.tokenizer.sha256}"]
        parts += [f"{name} {shard.sha256}" for name, split in self.splits.items() for shard in split.shards]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @property
    def files(self) -> list[FileRecord]:
        return [self.tokenizer, *(f for s in self.splits.values() for f in (*s.shards, s.index, s.frequencies))]


def write_manifest(manifest: Manifest) -> bytes:
    content = {"format": FORMAT, "id": manifest.id, **asdict(manifest)}
    return json.dumps({**content, "sha256": _digest(content)}, indent=1).encode() + b"\n"


def read_manifest(path: Path) -> Manifest:
    file = path / MANIFEST
    if path.name.endswith(UNFINISHED):
        raise InputError(f"{path}: an unfinished build, left by a process that was killed; delete it and build again.")
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(
            f"{path}: not a corpus (no {MANIFEST}: {error.strerror}); make one with `routelaw corpus build`."
        ) from None
    except ValueError:
        raise InputError(f"{file}: the manifest is damaged (not JSON); build the corpus again.") from None
    if not isinstance(content, dict) or content.pop("sha256", None) != _digest(content):
        raise InputError(
            f"{file}: the manifest is damaged (it does not match its own checksum); build the corpus again."
        )
    if content["format"] != FORMAT:
        raise InputError(
            f"{file}: made by another version ({content['format']!r}, not {FORMAT!r}); build the corpus again."
        )
    return Manifest(
        vocabulary=content["vocabulary"],
        end_of_text=content["end_of_text"],
        tokenizer=FileRecord(**content["tokenizer"]),
        splits={name: _split_record(record) for name, record in content["splits"].items()},
        validation_share=content["validation_share"],
        documents_from=content["documents_from"],
    )


def _split_record(record: dict[str, Any]) -> SplitRecord:
    return SplitRecord(
        documents=record["documents"],
        tokens=record["tokens"],
        bytes=record["bytes"],
        shards=tuple(FileRecord(**shard) for shard in record["shards"]),
        index=FileRecord(**record["index"]),
        frequencies=FileRecord(**record["frequencies"]),
    )


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
