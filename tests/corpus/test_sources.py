import ast
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_text import compress, write_documents
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from routelaw.corpus import compressed, fragments, sources
from routelaw.corpus.sources import Reading, find_files, read_documents
from routelaw.errors import InputError

FORMATS = ["txt", "txt.gz", "txt.xz", "txt.zst", "jsonl", "jsonl.gz", "jsonl.xz", "jsonl.zst", "parquet"]


def read(*names: str | Path, reading: Reading | None = None) -> list[str]:
    """Documents put together again from their fragments."""
    texts, begun = [], b""
    for fragment in read_documents(find_files(names), reading or Reading(), lambda count: None):
        begun += fragment.data
        if fragment.ends:
            texts.append(begun.decode())
            begun = b""
    assert not begun
    return texts


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_documents(suffix: str, documents: list[str], tmp_path: Path) -> None:
    assert read(write_documents(documents, tmp_path / f"a.{suffix}")) == documents


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "BLOCK_BYTES", 7)
    monkeypatch.setattr(fragments, "FRAGMENT_BYTES", 11)


parts = st.sampled_from([*"ab \n\r|<>é日", "<|endoftext|>", "\n\n"])
text = st.lists(parts, max_size=40).map("".join)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(text.filter(lambda t: "\n<|endoftext|>" not in f"\n{t}"), max_size=6))
def test_documents_survive_any_cut(tiny_blocks: None, tmp_path: Path, texts: list[str]) -> None:
    assert read(write_documents(texts, tmp_path / "a.txt")) == texts
    assert read(write_documents(texts, tmp_path / "a.jsonl")) == texts
    whole = "".join(texts)
    (tmp_path / "b.txt").write_bytes(whole.encode())
    assert read(tmp_path / "b.txt", reading=Reading(documents="file")) == [whole]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text)
def test_fragments_depend_on_the_text_alone(tmp_path: Path, text: str) -> None:
    def cuts(block: int) -> list[bytes]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compressed, "BLOCK_BYTES", block)
            patch.setattr(fragments, "FRAGMENT_BYTES", 11)
            files = find_files([tmp_path / "a.txt"])
            return [f.data for f in read_documents(files, Reading(documents="file"), lambda count: None) if f.data]

    (tmp_path / "a.txt").write_bytes(text.encode())
    assert cuts(3) == cuts(8) == cuts(1000)
    assert all(piece.decode() is not None and len(piece) <= 11 for piece in cuts(5))


def test_the_last_separator_and_newline_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for content in (
        "one\n<|endoftext|>\ntwo",
        "one\n<|endoftext|>\ntwo\n",
        "\ufeffone\r\n<|endoftext|>\r\ntwo\r\n<|endoftext|>\r\n",
    ):
        path.write_bytes(content.encode())
        assert read(path) == ["one", "two"]
    path.write_text("an <|endoftext|> inside\n <|endoftext|>\n")
    assert read(path) == ["an <|endoftext|> inside\n <|endoftext|>"]


def test_lines_and_files(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\ntwo\n\nthree")
    assert read(path, reading=Reading(documents="line")) == ["one", "two", "", "three"]
    assert read(path, reading=Reading(documents="file")) == ["one\r\ntwo\n\nthree"]


def test_directories_patterns_and_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b/2.txt", "b/1.txt", "b/deep/0.jsonl", "b/readme.md", "a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(json.dumps({"text": name}) if name.endswith("jsonl") else name)
    monkeypatch.chdir(tmp_path)
    assert read("b", "a.txt", "b/1.txt") == ["b/1.txt", "b/2.txt", "b/deep/0.jsonl", "a.txt"]
    assert read("**/*.txt") == ["a.txt", "b/1.txt", "b/2.txt"]


def test_python_is_a_source() -> None:
    texts = read("python")
    assert len(texts) > 300
    assert any("def dumps(" in t for t in texts)
    ast.parse(max(texts, key=len))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.md", b"x", "unknown suffix"),
        ("a.parquet.gz", b"x", "unknown suffix"),
        ("a.txt.gz", b"plain", "damaged or cut short"),
        ("a.txt.xz", b"plain", "damaged or cut short"),
        ("a.txt.zst", b"plain", "damaged or cut short"),
        ("a.txt.gz", compress(b"hello" * 99, "gz")[:-9], "damaged or cut short"),
        ("a.txt.xz", compress(b"hello" * 99, "xz")[:-9], "damaged or cut short"),
        ("a.txt.zst", compress(b"hello" * 99, "zst")[:-3], "damaged or cut short"),
        ("a.parquet", b"PAR1 nothing", "cannot be read as Parquet"),
        ("a.jsonl", b'{"text": "x"}\n\n{"text": \n', r"a\.jsonl:3: this line is not JSON"),
        ("a.jsonl", b'{"text": "x"}\n["x"]\n', r"a\.jsonl:2: a record is a JSON object"),
        ("a.jsonl", b'{"txt": "x"}\n', r"a\.jsonl:1: the record has no key 'text' \(did you mean 'txt'\?\)"),
        ("a.jsonl", b'{"text": 5}\n', r"a\.jsonl:1: 'text' holds 5, not text"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', "half a surrogate pair"),
        ("a.jsonl", b'{"text": "x"}\n{"text": "\xff"}\n', r"a\.jsonl:2: byte 24 of the file is not valid UTF-8"),
    ],
)
def test_each_error_is_one_sentence(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read(tmp_path / name)


def test_parquet_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"Text": ["x"], "n": [1], "none": pa.array([None], pa.string())}), path)
    assert read(path, reading=Reading(key="Text")) == ["x"]
    with pytest.raises(InputError, match="no column 'text' \\(did you mean 'Text'"):
        read(path)
    with pytest.raises(InputError, match="row 1 has no none"):
        read(path, reading=Reading(key="none"))


def test_missing_sources(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        find_files([tmp_path / "nowhere.txt"])
    with pytest.raises(InputError, match=r"no \.txt, \.jsonl or \.parquet"):
        find_files([tmp_path])
    with pytest.raises(InputError, match="no source"):
        find_files([])
    with pytest.raises(InputError, match="--documents is separator, line or file"):
        Reading(documents="page")
    with pytest.raises(InputError, match="--errors is"):
        Reading(errors="ignore")


def test_fragment_places_are_byte_offsets(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("é\n<|endoftext|>\nlater\n<|endoftext|>\n")
    found = list(read_documents(find_files([path]), Reading(), lambda count: None))
    assert [path.read_bytes()[f.place[1] :][: len(f.data)] for f in found] == [f.data for f in found]
    assert sources.PYTHON == "python"
