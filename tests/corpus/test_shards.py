import json
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from routelaw.corpus import Corpus, open_corpus
from routelaw.corpus.manifest import check_split, check_tokens
from routelaw.errors import InputError

KINDS = [
    "manifest.json",
    "tokenizer.model",
    "train-00001.tokens",
    "train.index",
    "train.frequencies",
    "validation.index",
]


@pytest.fixture
def copy(corpus: Corpus, tmp_path: Path) -> Path:
    return Path(shutil.copytree(corpus.path, tmp_path / "copy"))


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.999])
def test_a_flipped_bit_is_found_and_named(kind: str, where: float, copy: Path) -> None:
    path = copy / kind
    flip(path, int(where * path.stat().st_size))
    with pytest.raises(InputError, match=kind):
        open_corpus(copy, verify=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", [0.0, 0.5, 0.99])
def test_a_cut_file_is_found_at_once(kind: str, left: float, copy: Path) -> None:
    content = (copy / kind).read_bytes()
    (copy / kind).write_bytes(content[: int(left * len(content))])
    with pytest.raises(InputError, match=kind):
        open_corpus(copy)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_named(kind: str, copy: Path) -> None:
    (copy / kind).unlink()
    with pytest.raises(InputError, match=kind):
        open_corpus(copy)


@pytest.mark.parametrize("at", range(0, 64, 7))
def test_a_damaged_header_is_found_at_once(at: int, copy: Path) -> None:
    flip(copy / "train-00000.tokens", at)
    with pytest.raises(InputError, match="header is damaged"):
        open_corpus(copy)


def test_swapped_shards_are_found(copy: Path) -> None:
    first, second = copy / "train-00000.tokens", copy / "train-00001.tokens"
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    open_corpus(copy)
    with pytest.raises(InputError, match="content is damaged"):
        open_corpus(copy, verify=True)


def test_documents_in_any_other_order_are_found(corpus: Corpus, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the slices in which an index is looked at."""
    for size in (1, 2, 7, 1 << 20):
        monkeypatch.setattr("routelaw.corpus.manifest.SLICE", size)
        open_corpus(copy, verify=True)
        record, split = corpus.manifest.splits["train"], corpus.train
        for row, column in ((3, 0), (3, 1), (0, 0), (6, 0)):
            index = np.array(split.index_D2)
            index[row, column] = index[row + 1, column] + np.uint64(1 - column)
            index[row, column] += np.uint64(column)
            with pytest.raises(InputError, match="out of order"):
                check_split("x", record, record.tokens, index.reshape(-1), split.frequencies_V, corpus.vocabulary)
        index = np.array(split.index_D2)
        index[4, 0] -= np.uint64(1)
        with pytest.raises(InputError, match="does not end with an end-of-text"):
            check_tokens("x", split.tokens.shards, index, split.frequencies_V, corpus.end_of_text)


def test_opening_without_verification_needs_no_sentencepiece(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    open_corpus(copy)
    with pytest.raises(InputError, match="needs SentencePiece"):
        open_corpus(copy, verify=True)


def test_not_a_corpus(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a corpus"):
        open_corpus(tmp_path)
    with pytest.raises(InputError, match="not a corpus"):
        open_corpus(tmp_path / "nowhere")


def test_another_version_is_named(copy: Path) -> None:
    from routelaw.corpus.manifest import _digest

    content = json.loads((copy / "manifest.json").read_text())
    del content["sha256"]
    content["format"] = "routelaw corpus 99"
    (copy / "manifest.json").write_text(json.dumps({**content, "sha256": _digest(content)}))
    with pytest.raises(InputError, match="another version"):
        open_corpus(copy)


def test_the_id_names_content_alone(corpus: Corpus, copy: Path) -> None:
    assert open_corpus(copy).id == corpus.id
    assert len(corpus.id) == 64


def test_reading_across_shards_and_around(corpus: Corpus) -> None:
    tokens = corpus.train.tokens
    whole = tokens.read(0, len(tokens))
    assert np.array_equal(tokens.read(990, 2020), whole[990:3010])
    assert np.array_equal(tokens.read(len(tokens) - 3, 8), np.concatenate([whole[-3:], whole[:5]]))
    assert tokens.read(5, 0).size == 0


def test_a_corpus_travels_by_path(corpus: Corpus) -> None:
    sent = pickle.dumps(corpus)
    assert len(sent) < 1000
    assert pickle.loads(sent).id == corpus.id  # noqa: S301


def test_names_of_splits_and_documents(corpus: Corpus) -> None:
    with pytest.raises(InputError, match="train and validation, not 'test'"):
        corpus.split("test")
    with pytest.raises(InputError, match="has documents 0 to"):
        corpus.train.document(10_000)
