import ast
import glob
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_text import compress, write_documents
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from routelaw.corpus import fragments, source_formats, sources
from routelaw.corpus.sources import Reading, find_files, match_files, read_documents
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
    monkeypatch.setattr(source_formats, "BLOCK_BYTES", 7)
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
            patch.setattr(source_formats, "BLOCK_BYTES", block)
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


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2]),
        pa.array([1.5, 2.5]),
        pa.array([0, 1], pa.timestamp("ms")),
        pa.array([0, 1], pa.date32()),
        pa.array([1, 2], pa.decimal128(5, 2)),
        pa.array([b"a", b"b"], pa.binary()),
        pa.array([["a"], ["b"]]),
        pa.array([1, 2]).dictionary_encode(),
        pa.array([{"text": "a"}]),
    ],
    ids=lambda values: str(values.type)[:20],
)
def test_only_text_is_text(values: pa.Array, tmp_path: Path) -> None:
    """Arrow would write numbers and dates out; in .jsonl they are refused."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": values}), path)
    with pytest.raises(InputError, match=r"a\.parquet: the column 'text' holds .*, not text"):
        read(path)


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "é日"], pa.large_string()),
        pa.array(["a", "é日"]).dictionary_encode(),
        pa.array(["a", "é日"], pa.large_string()).dictionary_encode(),
    ],
    ids=["large", "dictionary", "large dictionary"],
)
def test_every_kind_of_text_is_text(values: pa.Array, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"other": [{"text": 1}, None], "text": values}), path)
    assert read(path) == ["a", "é日"]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"]), path)
    with pytest.raises(InputError, match="several columns 'text'"):
        read(path)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_pages_are_found_where_arrow_finds_them(version: str, codec: str, dictionary: bool, tmp_path: Path) -> None:
    path, texts = tmp_path / "a.parquet", [f"{n} " * (n % 900) for n in range(3000)]
    layout = {"data_page_version": version, "compression": codec, "use_dictionary": dictionary}
    pq.write_table(
        pa.table({"text": texts}), path, row_group_size=1000, data_page_size=5000, write_batch_size=90, **layout
    )
    with pq.ParquetFile(path) as file, path.open("rb") as raw:
        for group in range(3):
            chunk = file.metadata.row_group(group).column(0)
            start = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
            sizes = list(source_formats._pages(raw, start, chunk.total_compressed_size))
            assert max(sizes) < sum(sizes) <= chunk.total_uncompressed_size
            assert len(sizes) >= 2
    assert read(path) == texts


def test_pages_that_are_not_there_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["some text"] * 50}), path)
    content = bytearray(path.read_bytes())
    for filler in (b"\xff", b"\x00", b"\x1c", b"\x55"):
        content[4:24] = filler * 20
        path.write_bytes(content)
        with pytest.raises(InputError, match="cannot be read as Parquet"):
            read(path)


CELLS = """
import re, sys
from pathlib import Path
from routelaw.corpus.sources import Reading, find_files, read_documents
size = sum(len(f.data) for f in read_documents(find_files(sys.argv[1:]), Reading(), lambda count: None))
print(size, int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10)
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the peak of a process by itself is told by /proc")
def test_equal_cells_are_not_held_together(tmp_path: Path) -> None:
    """A dictionary of one cell of 64 MB, and twelve rows that refer to it, in a file of some kilobytes."""
    path, cell = tmp_path / "a.parquet", "a b " * (16 << 20)
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 12, pa.int32()), pa.array([cell]))
    pq.write_table(pa.table({"text": rows}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 1 << 16
    done = subprocess.run([sys.executable, "-c", CELLS, path], capture_output=True, text=True, check=True)
    size, peak_mb = map(int, done.stdout.split())
    assert size == 12 * len(cell)
    assert peak_mb < 1000


def test_what_is_held_whole_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_formats, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(source_formats, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(sources, "LONGEST_RECORD", 1 << 19)
    for name, size, longest in (("a.jsonl.gz", 1 << 19, 0), ("a.txt.gz", 1 << 20, 1), ("a.parquet", 1 << 20, 1)):
        reading = Reading(documents="line")
        for text in ("x" * (size - 60), "x" * (size + (1 << 18) + 1)):
            path = tmp_path / name
            if name == "a.txt.gz":
                path.write_bytes(compress(b"short\n" + text.encode(), "gz"))
            else:
                write_documents(["short", text], path)
            if len(text) < size:
                assert read(path, reading=reading) == ["short", text]
            else:
                with pytest.raises(InputError, match=f"{name}: (line|row) 2 is longer than {longest} MB"):
                    read(path, reading=reading)
    (tmp_path / "b.txt").write_bytes(b"y" * (3 << 20))
    for documents in ("separator", "file"):
        assert read(tmp_path / "b.txt", reading=Reading(documents=documents)) == ["y" * (3 << 20)]


def test_a_page_beyond_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    for dictionary in (True, False):
        pq.write_table(pa.table({"text": ["x" * 1000] * 9}), path, use_dictionary=dictionary)
        monkeypatch.setattr(source_formats, "LARGEST_PAGE", 1 << 20)
        assert len(read(path)) == 9
        monkeypatch.setattr(source_formats, "LARGEST_PAGE", 900)
        with pytest.raises(InputError, match=r"a\.parquet: a page of 'text' is .* too large"):
            read(path)


def test_links_that_lead_in_circles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "texts"
    (folder / "deep" / "er").mkdir(parents=True)
    for name in ("0.txt", "deep/1.txt", "deep/er/2.txt"):
        (folder / name).write_text(name)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "3.txt").write_text("3.txt")
    (folder / "z").symlink_to(elsewhere)
    for name in ("a", "b", "deep/c", "deep/er/d"):
        (folder / name).symlink_to(folder)
    monkeypatch.chdir(folder)
    found = ["0.txt", "deep/1.txt", "deep/er/2.txt", "3.txt"]
    for pattern in ("**/*.txt", f"{folder}/**/*.txt", "../texts/**/**/*.txt", "**/**"):
        assert read(pattern) == found, pattern
    assert sorted(read("**/deep/**/*.txt")) == sorted(found)
    assert read("deep/er/**/2*") == ["deep/er/2.txt"]
    assert read(folder) == found[:3]


def test_patterns_find_what_glob_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/b/c/x.txt", "a/b/y.txt", "a/x.txt", "[odd]/b/x.txt", ".hidden/x.txt", "a/.hidden/y.txt", "x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    patterns = ["**/*.txt", "**/b/**/*.txt", "a/**", "**", "*/b/*.txt", "a/**/x.txt", "a/**/**/x.txt", "[[]odd]/**/*"]
    for pattern in [*patterns, *(f"{tmp_path}/{p}" for p in patterns), ".hidden/**/*", "a**/x.txt", "./**/x.txt"]:
        wanted = {Path(p) for p in glob.glob(pattern, recursive=True) if Path(p).is_file()}  # noqa: PTH207
        assert {Path(p) for p in match_files(pattern) if Path(p).is_file()} == wanted, pattern
        assert wanted


def test_missing_sources(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        find_files([tmp_path / "nowhere.txt"])
    with pytest.raises(InputError, match=r"no \.txt, \.jsonl or \.parquet"):
        find_files([tmp_path])
    with pytest.raises(InputError, match="no source"):
        find_files([])
    with pytest.raises(InputError, match="a source has no name"):
        find_files([""])
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
