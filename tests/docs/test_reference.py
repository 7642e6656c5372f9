"""docs/reference is what docs/generate.py makes of the code, and says what there is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import typer.main
from tiny_runs import make_spec

import routelaw
from routelaw.cli.main import app
from routelaw.routers.router import all_routers
from routelaw.specs.run import ExecutionSpec, ModelSpec, RouterSpec, TrainSpec

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference"
PAGES = sorted(REFERENCE.glob("*.md"))


def generated(docs: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, docs / "generate.py", *options]
    return subprocess.run(words, capture_output=True, text=True, cwd=docs)


def text_of(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("log", "*.png")
    return Path(shutil.copytree(DOCS, tmp_path / "docs", ignore=ignored))


def test_the_reference_is_current(copied):
    """And one that is not is noticed, whether a page was edited, lost or left over; writing it again mends it."""
    done = generated(copied, "--check")
    assert (done.returncode, done.stderr) == (0, ""), "run make docs"
    page = copied / "reference" / "laws.md"
    page.write_bytes(page.read_bytes().replace(b"E", b"e", 1))
    (copied / "reference" / "columns.md").unlink()
    (copied / "reference" / "of-old.md").write_text("# Old\n")
    done = generated(copied, "--check")
    assert done.returncode == 1
    assert "(columns.md, laws.md, of-old.md)" in done.stderr
    assert generated(copied).returncode == 0
    assert {path.name: path.read_bytes() for path in (copied / "reference").iterdir()} == {
        path.name: path.read_bytes() for path in REFERENCE.iterdir()
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_row_of_a_table_has_its_cells(page):
    width = None
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        assert cells is None or width in (None, cells), line
        width = cells


def test_it_names_every_command_field_router_law_and_name():
    def below(command, path):
        yield path
        for name, inner in getattr(command, "commands", {}).items():
            yield from below(inner, f"{path} {name}")

    commands = re.findall(r"^## (.*)", text_of("commands.md"), re.MULTILINE)
    assert set(commands) == set(below(typer.main.get_command(app), "routelaw")) - {"routelaw"}
    kinds = {"model": ModelSpec, "router": RouterSpec, "train": TrainSpec, "execution": ExecutionSpec}
    named = {f"{table}.{f.name}" for table, kind in kinds.items() for f in fields(kind)} - {"model.architecture"}
    assert named < set(re.findall(r"^\| `([\w.]+)`", text_of("fields.md"), re.MULTILINE))
    assert set(re.findall(r"^## (.*)", text_of("routers.md"), re.MULTILINE)) == set(all_routers())
    assert set(re.findall(r"^## (.*)", text_of("laws.md"), re.MULTILINE)) == set(routelaw.all_laws())
    assert set(re.findall(r"^## (.*)", text_of("python.md"), re.MULTILINE)) == set(routelaw.__all__)


def test_it_describes_every_column_that_training_writes(tmp_path, tiny_corpus):
    run = routelaw.train(make_spec(tiny_corpus, "hash", steps=1), tiny_corpus, out=tmp_path / "run", device="cpu")
    described = set(re.findall(r"^\| `(\w+)`", text_of("columns.md"), re.MULTILINE))
    assert set(run.finish().table.frame.columns) <= described


def test_it_is_the_same_on_every_machine():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r" at 0x[0-9a-f]+|/home/|/Users/|/tmp/", text), page.name
        assert str(DOCS.parent) not in text, page.name
