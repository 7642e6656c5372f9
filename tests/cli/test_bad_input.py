"""Wrong input: exit code 2, one sentence on stderr that says what and where, nothing on stdout, nothing written."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

READERS = {
    "fit": ("fit", "--router", "s-base"),
    "compare": ("compare",),
    "epc": ("epc",),
    "plan": ("plan", "--total-params", "1B"),
}
BAD_FILES = {
    "empty.csv": (b"", "the file is empty"),
    "blank.csv": (b" \n\n", "the file is empty"),
    "header.csv": (b"run_id,router,experts,active_params,loss_validation\n", "a header and no rows"),
    "picture.csv": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "this is a PNG image"),
    "object.csv": (b'{"run_id": {"a": 1}}\n', "line 1 is not a flat JSON object"),
    "page.csv": (b"<!doctype html><html></html>\n", "this is HTML"),
    "noise.csv": (np.random.default_rng(0).bytes(4096), "is not UTF-8 text"),
    "prose.csv": (b"Once upon a time there was no table.\nThe end.\n", "this is not a table"),
}


def changed(column: str, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(losses: pd.DataFrame) -> pd.DataFrame:
        cells = losses[column].astype(object)
        cells.iloc[3] = value
        return losses.assign(**{column: cells})

    return change


BAD_TABLES = {
    "no column experts": (lambda t: t.drop(columns="experts"), "column experts missing"),
    "no losses": (lambda t: t.drop(columns="loss_validation"), "column loss_validation (or any other loss_…) missing"),
    "NaN loss": (changed("loss_validation", "nan"), "column loss_validation, data row 4"),
    "negative loss": (changed("loss_validation", -2.5), "data row 4 (run s-base-1.5e+07-32) holds -2.5"),
    "zero loss": (changed("loss_validation", 0.0), "must be a positive, finite number"),
    "infinite loss": (changed("loss_validation", "inf"), "holds inf"),
    "loss in words": (changed("loss_validation", "two"), "holds 'two', which is not a number"),
    "no experts": (changed("experts", 0), "holds 0: experts must be at least 1"),
    "half an expert": (changed("experts", 2.5), "holds '2.5', which is not a whole number"),
    "experts in words": (changed("experts", "many"), "holds 'many'"),
    "no parameters": (changed("active_params", 0), "active_params must be a number from 1"),
    "one size": (lambda t: t[t["active_params"] == 60_000_000], "one model size only (60M)"),
}
TOO_LITTLE = {
    "few points": (lambda t: t[t["experts"].isin([1, 2]) & (t["active_params"] < 1e8)], "it needs at least 7"),
    "dense alone": (lambda t: t[t["router"] == "dense"], "dense"),
}


def folder(path: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in path.rglob("*")}


@pytest.fixture
def refused(command, tmp_path: Path) -> Callable[..., str]:
    """Call the command, check that it refuses as it should, and return its sentence."""

    def call(*args: object) -> str:
        before = folder(tmp_path)
        code, out, err = command(*args)
        assert (code, out) == (2, "")
        check_sentence(err)
        assert folder(tmp_path) == before
        return err

    return call


def check_sentence(err: str) -> None:
    assert err.startswith("error: ")
    assert err.endswith((".\n", "?).\n"))
    assert err.count("\n") == 1


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", BAD_FILES)
def test_not_a_table(refused, tmp_path, reader, name) -> None:
    content, memory_error = BAD_FILES[name]
    (tmp_path / name).write_bytes(content)
    said = refused(READERS[reader][0], tmp_path / name, *READERS[reader][1:])
    assert memory_error in said
    assert name in said


@pytest.mark.parametrize("reader", READERS)
def test_no_file(refused, tmp_path, reader) -> None:
    word, *options = READERS[reader]
    assert "this is a directory" in refused(word, tmp_path, *options)
    assert "nowhere.csv: there is no such file" in refused(word, tmp_path / "nowhere.csv", *options)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", BAD_TABLES)
def test_wrong_cells(refused, losses, tmp_path, reader, what) -> None:
    change, memory_error = BAD_TABLES[what]
    change(losses).to_csv(tmp_path / "mine.csv", index=False)
    said = refused(READERS[reader][0], tmp_path / "mine.csv", *READERS[reader][1:])
    assert memory_error in said
    assert "mine.csv: " in said


@pytest.mark.parametrize("reader", ["fit", "epc", "plan"])
@pytest.mark.parametrize("what", TOO_LITTLE)
def test_too_little_to_fit(refused, losses, tmp_path, reader, what) -> None:
    change, memory_error = TOO_LITTLE[what]
    change(losses).to_csv(tmp_path / "mine.csv", index=False)
    said = refused(READERS[reader][0], tmp_path / "mine.csv", *READERS[reader][1:])
    assert memory_error in said
    assert "mine.csv: " in said


WRONG_OPTIONS = {
    "fit TABLE": "choose a router with --router (s-base, hash)",
    "fit TABLE --router s-bass": "(did you mean 's-base'?); the table has dense, s-base, hash",
    "fit TABLE --router s-base --law saturatd": "(did you mean 'saturated'?); the laws are dense,",
    "fit TABLE --router s-base --target loss_valdation": "(did you mean 'loss_validation'?)",
    "fit TABLE --router s-base --size 61M": "(did you mean '60M'?); there are 15M, 60M, 250M, 1B",
    "fit TABLE --router s-base --variant shared": "no run of s-base has variant 'shared'",
    "fit TABLE --router s-base --k 3": "no run of s-base has K = 3 and R = 0.5; there is K = 1 with R = 0.5",
    "fit TABLE --router s-base --error hubber": "--error takes squared, huber, not 'hubber' (did you mean 'huber'?)",
    "fit TABLE --router s-base --method lbfgs": "(did you mean 'lbfgsb'?)",
    "fit TABLE --router s-base --method lbfgsb --error huber": "minimises the squared error",
    "fit TABLE --router s-base --interval sizebootstrap": "(did you mean 'size-bootstrap'?)",
    "fit TABLE --router s-base --weights weight": "no column 'weight' to take weights from",
    "fit TABLE --router s-base --weights router": "a weight is a number of at least 0",
    "fit TABLE --router s-base --at-params big": "--at-params must be a positive number",
    "fit TABLE --router s-base --at-params 1e999": "--at-params must be a positive number",
    "fit TABLE --router s-base --law compute": "needs the column flops_per_token, which no run of s-base has",
    "fit TABLE --router s-base --law experts": "choose one with --size (15M, 60M, 250M, 1B)",
    "fit TABLE --router s-base --law dense": "law dense knows nothing of E",
    "fit TABLE --router dense --law kaplan2020": "the table has no column step",
    "fit --router s-base": "run `routelaw data fetch` once",
    "fit TABLE --router s-base --plugin nowhere.py": "plugin nowhere.py is not a Python file",
    "advise TABLE --target loss_valdation": "(did you mean 'loss_validation'?)",
    "advise TABLE --variant rope": "no routed run has variant 'rope'; the variants are '' (the defaults)",
    "advise TABLE --gain 0": "a percentage between 0 and 100, not 0",
    "advise TABLE --gain nan": "a percentage between 0 and 100, not nan",
    "advise TABLE --gain -1": "a percentage between 0 and 100, not -1",
    "advise": "run `routelaw data fetch` once",
    "compare TABLE --law saturatd": "(did you mean 'saturated'?)",
    "compare TABLE --router s-bass": "(did you mean 's-base'?)",
    "compare TABLE --target loss_c4": "the losses are loss_validation",
    "compare TABLE --law bilinear --under bilinaer": "(did you mean 'bilinear'?)",
    "compare TABLE --law bilinear --under compute": "law compute is not a law in (N, E)",
    "compare TABLE --law bilinear --under dense": "law dense cannot be compared",
    "compare TABLE --law kaplan2020": "law kaplan2020 cannot be compared",
    "compare TABLE --law compute": "no law can be fitted: law compute needs the column",
    "compare TABLE --size 37OM": "(did you mean '370M'?)",
    "compare TABLE --size 370M --params 1B": "either --size or --params",
    "epc TABLE --law compute": "law compute is not a law in (N, E)",
    "epc TABLE --fit clark2022/hash": "either a run table or --fit",
    "epc --fit clark2022/s-bass": "(did you mean 'clark2022/s-base'?)",
    "epc --router hsh": "no published fit of router 'hsh' (did you mean 'hash'?)",
    "epc --target loss_c4": "--target loss_c4 needs a run table",
    "epc --target all": "--target all needs a run table",
    "epc --law bilinear": "--law bilinear needs a run table",
    "epc --size 37OM": "(did you mean '370M'?)",
    "epc --params -5": "--params must be a positive number",
    "epc --effective big": "--effective must be a positive number",
    "epc --loss 0": "--loss must be a positive number of nats",
    "epc --loss nan": "--loss must be a positive number of nats",
    "plan TABLE": "a plan needs a limit",
    "plan --total-params lots": "--total-params must be a positive number",
    "plan --total-params 1k": "no model of this ladder fits the budget",
    "plan --target-loss 0.5": "no model within the limits is predicted to reach a loss of 0.5",
    "plan --target-loss nan": "must be positive, finite numbers",
    "plan --total-params 1B --ladder fin": "(did you mean 'fine'?)",
    "plan --total-params 1B --experts 1.5": "--experts takes positive whole numbers",
    "plan --total-params 1B --k 0": "--k takes positive whole numbers",
    "plan --total-params 1B --routing-frequency 2": "positive numbers of at most 1",
    "plan TABLE --total-params 1B --law kaplan2020": "law kaplan2020 cannot rank models",
    "plan TABLE --total-params 1B --law experts": "law experts cannot rank models",
    "count --size 37OM": "did you mean '370M'",
    "count --size 370M --router s-bass": "did you mean 's-base'",
}


@pytest.mark.parametrize("words", WRONG_OPTIONS)
def test_wrong_options(refused, table, words) -> None:
    assert WRONG_OPTIONS[words] in refused(*(table if w == "TABLE" else w for w in words.split()))


def test_a_plugin_that_fails(refused, table, tmp_path) -> None:
    for code, memory_error in (("LAW = ", "SyntaxError"), ("import nowhere_to_be_found", "ModuleNotFoundError")):
        (tmp_path / "law.py").write_text(code)
        said = refused("fit", table, "--router", "s-base", "--plugin", tmp_path / "law.py")
        assert "law.py fails when it is loaded" in said
        assert memory_error in said


def test_output_that_exists_or_cannot_be_written(refused, tmp_path) -> None:
    """The place is looked at before anything is fetched."""
    (tmp_path / "mine.gz").write_text("something else")
    assert "mine.gz: the file exists" in refused("data", "fetch", "--json", "--out", tmp_path / "mine.gz")
    assert "cannot be written" in refused("data", "fetch", "--json", "--out", tmp_path / "mine.gz" / "within.gz")


@pytest.mark.parametrize(
    "words",
    ["nonsense", "fit --nonsense", "fit --level 2", "fit --level nan", "fit --seed -1", "fit --draws 3",
     "fit --at-experts 0", "epc --experts 0.5", "epc --experts inf", "plan --top 0", "plan --total-params",
     "compare --experts none", "count"],
)  # fmt: skip
def test_usage_errors_are_code_2_too(command, words) -> None:
    code, out, err = command(*words.split())
    assert (code, out) == (2, "")
    assert "Error: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("reader", READERS)
def test_as_a_program(tmp_path, reader) -> None:
    """The same through the interpreter: no traceback, no warning, the exit code of the process."""
    (tmp_path / "empty.csv").touch()
    word, *options = READERS[reader]
    call = [sys.executable, "-m", "routelaw", word, "empty.csv", *options]
    done = subprocess.run(call, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "error: empty.csv: the file is empty.\n")
    assert [p.name for p in tmp_path.iterdir()] == ["empty.csv"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk without room")
def test_a_full_disk_behind_the_output() -> None:
    call = [sys.executable, "-m", "routelaw", "plan", "--total-params", "1B"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: the output: No space left on device.\n")
