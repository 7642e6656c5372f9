import gzip
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routelaw.errors import InputError
from routelaw.runs import files
from routelaw.runs.cells import numbers
from routelaw.runs.files import read_runs, write_runs
from routelaw.runs.table import RunTable

GOOD = "run_id,router,experts,active_params,loss_validation\na,dense,1,1e6,3.5\nb,hash,8,1e6,3.25\n"
FORMATS = ["runs.csv", "runs.csv.gz", "runs.csv.xz", "runs.csv.zst", "runs.parquet"]
QUICK = ("runs.csv", "runs.parquet")

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
names = words.map(lambda word: f"x{word}")
losses_given = st.floats(1e-6, 1e4)
counted = st.integers(1, 2**62)


@st.composite
def run_tables(draw: st.DrawFn) -> RunTable:
    run_ids = draw(st.lists(words.filter(str.strip), min_size=1, max_size=5, unique=True))
    runs = []
    for run_id in run_ids:
        router = draw(st.sampled_from(["dense", "s-base", "rl-r"]))
        experts = 1 if router == "dense" else draw(st.integers(1, 2**40))
        active = draw(st.floats(experts, 1e18))
        run = {
            "run_id": run_id,
            "router": router,
            "variant": draw(words),
            "size": draw(names),
            "experts": experts,
            "k": draw(st.integers(1, min(8, experts))),
            "routing_frequency": draw(st.floats(0, 1, exclude_min=True)),
            "seed": draw(st.integers(0, 2**62)),
            "tokens_planned": draw(st.none() | counted),
            "active_params": active,
            "total_params": draw(st.floats(active, 1e20) | st.just(float("nan"))),
        }
        for step in draw(st.lists(st.integers(0, 2**62), min_size=1, max_size=3, unique=True)):
            losses = {"loss_validation": draw(losses_given), "loss_c4": draw(losses_given)}
            extras = {"note": draw(names), "scale": draw(st.floats(allow_nan=False)), "rank": draw(counted)}
            runs.append(run | {"step": step, "tokens": draw(counted)} | losses | extras)
    frame = pd.DataFrame(runs)
    frame["tokens_planned"] = pd.Series([run["tokens_planned"] for run in runs], dtype="Int64")
    return RunTable.from_frame(frame, "drawn")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name not in ("runs.csv", "runs.parquet"))) for name in FORMATS],
)
@settings(max_examples=40, deadline=None)
@given(table=run_tables())
def test_round_trip_is_exact(name: str, table: RunTable) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        write_runs(table, path)
        back = read_runs(path)
    pd.testing.assert_frame_equal(back.frame, table.frame, check_exact=True)


@pytest.mark.parametrize("name", FORMATS)
def test_the_release_survives_a_round_trip(released: RunTable, tmp_path: Path, name: str) -> None:
    write_runs(released, tmp_path / name)
    pd.testing.assert_frame_equal(read_runs(tmp_path / name).frame, released.frame, check_exact=True)


@pytest.mark.parametrize("name", ["plain.txt", "runs.csv", "no-extension", "wrong.parquet"])
def test_content_decides_not_the_name(tmp_path: Path, name: str) -> None:
    for content in (GOOD.encode(), gzip.compress(GOOD.encode()), b"\xef\xbb\xbf" + GOOD.encode()):
        (tmp_path / name).write_bytes(content)
        assert list(read_runs(tmp_path / name).frame["loss_validation"]) == [3.5, 3.25]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_and_line_ends(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(GOOD.replace(",", delimiter).replace("\n", "\r\n").encode())
    assert list(read_runs(path).frame["experts"]) == [1, 8]


def test_extra_columns_get_the_type_they_have(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    extra = ["code,flag,width,gap,rate", "007,True,512,,1e-3", "012,False,640,3,0.5"]
    path.write_text("\n".join(f"{a},{b}" for a, b in zip(GOOD.split(), extra, strict=True)))
    frame = read_runs(path).frame
    assert list(frame["code"]) == ["007", "012"]
    assert list(frame["flag"]) == [True, False]
    assert list(frame["width"]) == [512, 640]
    assert frame["gap"].isna().tolist() == [True, False]
    assert list(frame["rate"]) == [0.001, 0.5]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the file is empty"),
        (b"\n \n", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (GOOD.splitlines()[0].encode(), "the table is empty"),
        (b"just some words\nand more\n", "not a table; its first line has no columns"),
        (b"a,b\n1,2\n", "columns run_id, router, experts, active_params, loss_validation"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG image, not a table"),
        (b"\x00\x01\x02,\x03", "binary data, not a table"),
        (b'{"run_id": ["a"],\n "loss": [1]}', "JSON that is not one run a line"),
        (b'{"run_id": "a"}\n{"run_id": "b"}\n', "columns router, experts, active_params, loss_validation"),
        (b"<!DOCTYPE html><html></html>", "HTML or XML"),
        (GOOD.encode("utf-16"), "UTF-16 text"),
        (GOOD.replace("hash", "h\xe4sh").encode("latin-1"), "line 3 is not UTF-8"),
        (GOOD.replace("b,hash", "b,x,hash").encode(), "line 3 has 6 fields where the header has 5"),
        (GOOD.replace("b,hash", '"b,hash').encode(), "line 3 is not CSV"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-12], "damaged or cut short"),
        (b"PAR1 and nothing more", "the Parquet file is damaged"),
        (GOOD.replace("experts", "router").encode(), "column router appears twice"),
        (GOOD.replace("3.25", "-3.25").encode(), r"data row 2 \(run b\) holds -3.25"),
    ],
)
def test_not_a_table(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=sentence) as caught:
        read_runs(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_runs(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="a directory"):
        read_runs(tmp_path)


@pytest.fixture
def table(tmp_path: Path) -> RunTable:
    path = tmp_path / "good.csv"
    path.write_text(GOOD)
    return read_runs(path)


def test_an_existing_file_needs_force(table: RunTable, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("precious")
    with pytest.raises(InputError, match=r"exists.*--force"):
        write_runs(table, path)
    assert path.read_text() == "precious"
    write_runs(table, path, force=True)
    assert len(read_runs(path).frame) == 2


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("good.csv/out.csv", "cannot be written"),
        ("absent/out.csv", "cannot be written"),
        ("out.xlsx", "write run tables as"),
        ("out.csv.bz2", "write run tables as"),
        ("", "a directory|write run tables as"),
    ],
)
def test_unwritable(table: RunTable, tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        write_runs(table, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["good.csv"]


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace"])
def test_a_failed_write_leaves_the_old_file(
    table: RunTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "out.csv"
    path.write_text("precious")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(failing, full_disk)
    with pytest.raises(InputError, match="No space left"):
        write_runs(table, path, force=True)
    assert path.read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["good.csv", "out.csv"]


def test_a_flipped_bit_in_a_parquet_file_of_ours_is_noticed(released: RunTable, tmp_path: Path) -> None:
    """In the data, that is: every page has a checksum. A flip that is not noticed must not matter."""
    path = tmp_path / "runs.parquet"
    write_runs(released, path)
    content, rng, refused = path.read_bytes(), np.random.default_rng(0), 0
    for place in rng.integers(4, len(content) * 9 // 10, 60):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << rng.integers(8)]) + content[place + 1 :])
        try:
            pd.testing.assert_frame_equal(read_runs(path).frame, released.frame)
        except InputError:
            refused += 1
    assert refused > 50


def test_what_is_read_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_ROWS", 3)
    monkeypatch.setattr(files, "LINES_AT_ONCE", 2)
    path = tmp_path / "runs.csv"
    rows = [f"r{i},hash,8,1e6,{2 + i / 10}\n" for i in range(7)]
    path.write_text(GOOD.splitlines()[0] + "\n" + "".join(rows[:3]))
    assert len(read_runs(path).frame) == 3
    path.write_text(GOOD.splitlines()[0] + "\n" + "".join(rows))
    with pytest.raises(InputError, match="4 or more rows"):
        read_runs(path)
    monkeypatch.setattr(files, "MOST_COLUMNS", 4)
    with pytest.raises(InputError, match="5 columns; 4 is the most"):
        read_runs(path)


def test_text_that_a_dictionary_makes_long_is_refused_before_it_is_written_out(tmp_path: Path) -> None:
    """A terabyte in a few kilobytes."""
    rows = 200_000
    cells = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 5_000_000]))
    ones = pa.array(np.ones(rows))
    columns = {"run_id": cells, "router": cells, "experts": ones, "active_params": ones, "loss_validation": ones}
    pq.write_table(pa.table(columns), tmp_path / "runs.parquet")
    with pytest.raises(InputError, match="the text of column run_id has 1,000,000,000,000 bytes"):
        read_runs(tmp_path / "runs.parquet")


@given(st.lists(st.floats(allow_nan=False).map(repr) | st.sampled_from([" 1 ", "+2.5", ".5", "5.", "", "NA", "1E5"])))
def test_text_is_parsed_at_once_as_it_is_cell_by_cell(cells: list[str]) -> None:
    frame = pd.DataFrame({"x": pd.Series(cells, dtype="str")})
    slowly = numbers(frame.astype(object), "x", "t")
    np.testing.assert_array_equal(numbers(frame, "x", "t").to_numpy(), slowly.to_numpy())


def test_thousands_of_digits_in_a_column_of_nobodys_are_text(tmp_path: Path) -> None:
    digits = "9" * 5000
    rows = zip(GOOD.split(), ("note", digits, 7), strict=True)
    (tmp_path / "runs.csv").write_text("".join(f"{row},{end}\n" for row, end in rows))
    assert read_runs(tmp_path / "runs.csv").frame["note"].tolist() == [digits, "7"]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([b"abcd"] * 2, pa.binary(4)),
        ([b"abcd"] * 2, pa.binary_view()),
        ([2**31 - 1] * 2, pa.date32()),
        ([0] * 2, pa.timestamp("us", tz="Nowhere/Land")),
    ],
)
def test_a_column_of_parquet_that_cannot_be_kept_is_named(tmp_path: Path, cells: list, kind: pa.DataType) -> None:
    (tmp_path / "runs.csv").write_text(GOOD)
    array = pa.array(cells, pa.int32()).cast(kind) if kind == pa.date32() else pa.array(cells, kind)
    table = pa.Table.from_pandas(read_runs(tmp_path / "runs.csv").frame).append_column("extra", array)
    pq.write_table(table, tmp_path / "runs.parquet")
    with pytest.raises(InputError, match=r"column extra holds .* leave it out"):
        read_runs(tmp_path / "runs.parquet")
