"""The examples of README.md and docs/*.md run as a reader would type them: in order, each page in a folder of its own.

Training is cut down to two steps (`CUTS`). What is not run is listed with the reason (`NOT_RUN`), and nothing else is
left out. A file that a page shows is saved under its name; files of the reader are made up (`own_files`).
"""

from __future__ import annotations

import ast
import doctest
import io
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from calling import called
from examples import FILES, OUTPUT, PAGES, ROOT, Example, examples_of
from tiny_runs import EXECUTION, make_spec, make_text

import routelaw as rl
from routelaw.runs.store import Store
from routelaw.sweeps.progress import RunEnded, Started, Tick
from routelaw.sweeps.sweep import PlannedRun
from routelaw.sweeps.task import Task

RELEASED = Path(__file__).parents[3] / "shared" / "data" / "routing_curves.csv.gz"
"""The paper's losses, which are not part of the project."""
PUBLIC = {
    "epoch_chinchilla_svg.csv": ("chinchilla", "svg_extracted_data.csv"),
    "steplaw_moe_lr_bs_loss.csv": ("step-law", "moe_lr_bs_loss.csv"),
}
"""Other people's tables beside the released one: under which name each is fetched, and its file's own name."""
NOT_RUN = {
    "make demo": "tests/cli/test_demo_command.py does what it does",
    "make test": "it is the suite that this test is part of",
    "make setup": "it installs packages from the network",
    "routelaw bench --quick": "it is all tables one after another, which tests/bench and tests/cli run one by one",
    ". .venv/bin/activate": "it changes the shell that the reader types in",
    "torchrun --nnodes 4 --nproc-per-node 8 -m routelaw train … --data 4 --expert 8": "it takes 32 GPUs",
}
CUTS = (
    (r"(\bsteps\W{1,4})\d+", r"\g<1>2"),
    (r"(router\.experts = \[2, 8), 32\]", r"\1]"),
    (r"^(routelaw (?:train|sweep) (?!.*--dry-run).*)$", r"\1 --set execution.evaluate_tokens=1024"),
    (r"^(routelaw bench (?!.*--quick).*)$", r"\1 --quick"),
    (r"(\bwidths=\[)[\d,]+", r"\g<1>64"),
    (r"^(routelaw bench .*) --record\b", r"\1"),
)
"""Pattern and replacement: steps of training, runs of a sweep, tokens of an evaluation, and shapes of benchmarks, whose
results are not to be recorded."""
OF_THE_PAPER = re.compile(
    r"routelaw (data fetch|reproduce|compare$|(fit|compare) --|epc ~)|.*(svg_extracted|moe_lr_bs)"
)
"""Examples that read the paper's released losses, or other public ones."""
QUICK = ("docs/planning.md",)
"""Pages that are quick; the others train, and are long."""


def examples_in(page: str) -> list[Example]:
    return list(examples_of(PAGES[page]))


def cut(text: str) -> str:
    for pattern, replacement in CUTS:
        text = re.sub(pattern, replacement, text)
    return text


def own_losses(first: str) -> pd.DataFrame:
    """A table such as a reader has: a dense and two routed techniques, at four sizes."""
    rows: list[dict[str, Any]] = []
    for size in ("15M", "55M", "130M", "370M"):
        for router, experts in (("dense", 1), *((name, e) for name in ("my-router", "hash") for e in (2, 8, 32))):
            counts = rl.count(rl.get_size(size), "dense" if experts == 1 else "hash", experts)
            loss = 1.5 + 6 * counts.active_params**-0.1 * experts**-0.03 + 0.01 * (router == "hash")
            row = {"run_id": f"{first}{len(rows)}", "router": router, "size": size, "experts": experts}
            counted = {name: getattr(counts, name) for name in ("active_params", "total_params", "flops_per_token")}
            rows.append({**row, **counted, "loss_validation": round(loss, 4)})
    return pd.DataFrame(rows)


def sweep_of_the_tutorial() -> str:
    """What pages that only name `my_sweep.toml` sweep over."""
    return next(example.text for example in examples_in("docs/tutorial.md") if example.kind == "my_sweep.toml")


@pytest.fixture(scope="session")
def python_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("examples") / "corpus"
    rl.build_corpus(["python"], out, vocabulary=512, workers=1)
    return out


@pytest.fixture
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a reader: texts, tables of losses, and a home with the paper's losses if they are at hand."""
    for variable in ("ROUTELAW_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "reader"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 10))  # to whatever asks before it removes
    if RELEASED.is_file():
        cache = tmp_path / "home" / ".cache" / "routelaw" / "clark2022"
        cache.mkdir(parents=True)
        shutil.copy(RELEASED, cache / "curves.csv.gz")
    for kept, (name, published) in PUBLIC.items():
        if (table := RELEASED.parent / "tables" / kept).is_file():
            shutil.copy(table, published)
            (tmp_path / "home" / ".cache" / "routelaw" / name).mkdir(parents=True)
            shutil.copy(table, tmp_path / "home" / ".cache" / "routelaw" / name / published)
    Path("my_text.txt").write_text(make_text(20))
    passages = [json.dumps({"text": line}) for line in make_text(20).splitlines()]
    Path("lambada.jsonl").write_text("\n".join(passages))
    Path("my_sweep.toml").write_text(cut(sweep_of_the_tutorial()))
    own_losses("a").to_csv("my_runs.csv", index=False)
    own_losses("b").to_csv("other_table.csv", index=False)
    return folder


def command_words(text: str) -> list[str]:
    """As a shell would give them, with the ids of two runs that there are."""
    ids = [path.parent.name for path in sorted(Path("runs").glob("*/result.json"))]
    for placeholder, run_id in zip(("RUN_ID", "OTHER_ID"), ids[:2], strict=False):
        text = re.sub(rf"\b{placeholder}\b", run_id, text)
    return [str(Path(word).expanduser()) if word.startswith("~") else word for word in shlex.split(text)][1:]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Does what an example says."""
    names: dict[str, Any] = {}
    said = ""

    def follow(example: Example) -> None:
        nonlocal said
        text = cut(example.text)
        if example.kind == "command":
            done = called(command_words(text), monkeypatch, capfd)
            assert done.code == 0, f"{text}\n{done.err}"
            said = done.out
        elif example.kind == "python":
            exec(compile(text, "example", "exec"), names)
        elif example.kind == OUTPUT:
            shown, words = (" ".join(each.split()) for each in (example.text, said))
            assert shown in words
        else:
            Path(example.kind).write_text(text, encoding="utf-8")
            if example.kind.endswith(".csv"):
                rl.read_runs(example.kind)

    return follow


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page in QUICK else pytest.mark.long) for page in PAGES if examples_in(page)],
)
def test_the_examples_of_a_page_run(page, own_files, request, reader):
    if "out/corpus" in PAGES[page] and not re.search(r"routelaw corpus build|rl\.build_corpus", PAGES[page]):
        shutil.copytree(request.getfixturevalue("python_corpus"), own_files / "out" / "corpus")
    left_out = []
    for example in examples_in(page):
        if example.text in NOT_RUN:
            continue
        if OF_THE_PAPER.match(example.text) and not RELEASED.is_file():
            left_out.append(example.text)
            continue
        reader(example)
    if left_out:
        pytest.skip(f"all but {len(left_out)} examples ran: the paper's released losses are not beside the repository")


def test_the_backend_that_the_guide_shows_trains_a_sweep(tmp_path, tiny_corpus):
    names: dict[str, Any] = {}
    exec(next(example.text for example in examples_in("docs/extending.md") if "def run_in_turn" in example.text), names)
    store = Store(tmp_path / "runs")
    specs = [make_spec(tiny_corpus, router, steps=2) for router in ("dense", "hash")]
    planned = [PlannedRun(spec, EXECUTION, tiny_corpus.path, {}) for spec in specs]
    tasks = [Task.of(run, run.execution, store, ()) for run in planned]
    events = [event for event in names["run_in_turn"](tasks, store) if not isinstance(event, Tick)]
    ids = [spec.run_id for spec in specs]
    assert events == [kind(run_id) for run_id in ids for kind in (Started, RunEnded)]
    assert all(store.ended(run_id) for run_id in ids)


def test_what_is_not_run_is_in_the_documents():
    shown = {example.text for page in PAGES for example in examples_in(page)}
    assert set(NOT_RUN) <= shown, "an exception that is no longer needed"
    others = {example.text for page in PAGES for example in examples_in(page) if example.kind == "command"}
    assert {text for text in others if not text.startswith("routelaw ")} <= set(NOT_RUN)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_an_example(page):
    text, found = PAGES[page], examples_in(page)
    commands = [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if re.match(r"(    )?routelaw ", line)]
    assert len(commands) == sum(example.text.startswith("routelaw ") for example in found)
    for example in found:
        if example.kind in FILES.values() and not example.kind.endswith(".csv"):
            assert f"`{example.kind}`" in text or f" {example.kind}" in text, "the page says what the file is called"


def test_every_example_of_a_docstring_is_that_of_a_public_name():
    """Those run in tests/test_public_face.py."""
    documented = (getattr(rl, name) for name in rl.__all__)
    finder = doctest.DocTestFinder(exclude_empty=True)
    run = {
        example.source for thing in documented for found in finder.find(thing, "x", False) for example in found.examples
    }
    shown = set()
    for path in sorted((ROOT / "routelaw").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                shown |= {e.source for e in doctest.DocTestParser().get_examples(ast.get_docstring(node) or "")}
    assert shown <= run


def test_the_reader_of_examples():
    page = (
        "Words:\n\n    routelaw fit a.csv \\\n        --law x  # why\n    make y\n\nPrints\n\n    a  1\n\nand\n\n"
        "```\nrouter.name = 'x'\n[[grid]]\n```\n\n- a list\n  goes on\n\n    import routelaw as rl\n\n    rl.x\n"
    )
    assert [(example.kind, example.text) for example in examples_of(page)] == [
        ("command", "routelaw fit a.csv --law x"),
        ("command", "make y"),
        (OUTPUT, "a  1\n"),
        ("my_sweep.toml", "router.name = 'x'\n[[grid]]\n"),
        ("python", "import routelaw as rl\n\nrl.x\n"),
    ]
    assert cut("routelaw train --steps 200 --out x") == (
        "routelaw train --steps 2 --out x --set execution.evaluate_tokens=1024"
    )
    assert cut('steps = 200\nwarmup_steps = 9\nsettings={"train.steps": 500}') == (
        'steps = 2\nwarmup_steps = 9\nsettings={"train.steps": 2}'
    )


def test_an_example_that_fails_is_noticed(own_files, reader):
    for kind, text in (("command", "routelaw fit nowhere.csv"), ("python", "rl.nothing"), (OUTPUT, "never said")):
        with pytest.raises((AssertionError, NameError)):
            reader(Example(kind, text))
