"""What a corpus says of itself: one JSON file with the size and hash of every other, and a checksum of its own."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from routelaw.corpus.arrays import FileRecord
from routelaw.errors import InputError
from routelaw.files import read_json
from routelaw.specs.files import from_mapping

MANIFEST = "manifest.json"
FORMAT = "routelaw corpus 1"
UNFINISHED = ".part"
TRAIN, VALIDATION = "train", "validation"
LARGEST_VOCABULARY = 10_000_000
"""The largest in use have a quarter of a million tokens."""


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
    if not file.exists():
        raise InputError(f"{path}: not a corpus (no {MANIFEST} in it); make one with `routelaw corpus build`.")
    content = read_json(file)
    if not isinstance(content, dict) or content.pop("sha256", None) != _digest(content):
        raise InputError(
            f"{file}: the manifest is damaged (it does not match its own checksum); build the corpus again."
        )
    if (made_as := content.pop("format", None)) != FORMAT:
        raise InputError(f"{file}: made by another version ({made_as!r}, not {FORMAT!r}); build the corpus again.")
    stored_id = content.pop("id", None)
    manifest = from_mapping(Manifest, content, str(file))
    _check(manifest, stored_id, file)
    return manifest


def _check(manifest: Manifest, stored_id: object, file: Path) -> None:
    """What types cannot say. A manifest is a file like any other: its checksum shows damage, and no intention."""
    counts = [n for s in manifest.splits.values() for n in (s.documents, s.tokens, s.bytes)]
    counts += [n for record in manifest.files for n in (record.bytes, record.count)]
    wrong = {
        "its id": stored_id != manifest.id,
        "the vocabulary": not 1 <= manifest.vocabulary <= LARGEST_VOCABULARY,
        "the end of text": not 0 <= manifest.end_of_text < manifest.vocabulary,
        "the splits": set(manifest.splits) != {TRAIN, VALIDATION},
        "a count": min(counts, default=0) < 0,
        "the name of a file": not all(_is_file_name(record.file) for record in manifest.files),
    }
    for what, is_wrong in wrong.items():
        if is_wrong:
            raise InputError(
                f"{file}: the manifest is damaged ({what} cannot be what it says); build the corpus again."
            )


def _is_file_name(name: str) -> bool:
    """Whether it names a file of the corpus's own folder, and can be printed."""
    return Path(name).name == name and name not in ("", "..") and name.isprintable()


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
