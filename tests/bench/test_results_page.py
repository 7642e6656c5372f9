"""benchmarks/results_md.py on a made-up ledger, and the figure of cost against E."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPT = FOLDER / "results_md.py"


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line(benchmark: str, device: str, day: int, **figures: float | str) -> dict:
    return {
        "benchmark": benchmark,
        "date": f"2026-11-{day:02}T10:00:00+00:00",
        "commit": f"c{day}",
        "device": device,
        "data": "65,536 tokens",
        "figures": {key.replace("__", "/"): value for key, value in figures.items()},
    }


LINES = [
    line("gpu_layer", "Old GPU", 3, row__ours=0.5),
    line("fit", "CPU", 4, seconds=1.0),
    line("gpu_layer", "New GPU", 9, row__ours=0.876543, row__dense=123456.0, other__ours=0.25),
    line("gpu_layer", "Old GPU", 2, row__ours=0.1),
    line("gpu_attention", "New GPU", 9, row__flex="failed: Error: a|b", row__peak=float("nan"), row__rope=1.0),
]


def test_the_newest_line_of_each_device() -> None:
    page = script("results_md").page(LINES)
    assert page.index("## gpu_attention") < page.index("## gpu_layer")
    assert page.index("### New GPU", page.index("## gpu_layer")) < page.index("### Old GPU")
    assert "| row | 0.8765 | 123,456 |\n| other | 0.25 | – |" in page
    assert "65,536 tokens. 2026-11-03 10:00 UTC, commit c3." in page
    assert "| row | 0.5 |" in page
    assert "commit c2" not in page
    assert "seconds" not in page
    assert "A routed layer on a GPU against a compiled dense FFW" in page


def test_a_second_run_of_a_commit_hides_nothing() -> None:
    """A lucky run does not hide an unlucky one of the same code; a newer commit hides both."""
    first, second = (
        line("gpu_step", "GPU", 9, **{f"row__{of}": value}) for of, value in (("ours", 0.9), ("ours", 1.1))
    )
    beside = line("gpu_step", "GPU", 9, more__ours=7.0, more__other=8.0)
    page = script("results_md").page([first, second, beside])
    assert "| row | 1.1 |\n| row | 0.9 |" in page, "of the same columns: one table, newest first"
    assert "| more | 7 | 8 |" in page
    assert page.count("### GPU") == 2
    page = script("results_md").page([first, second, beside, line("gpu_step", "GPU", 10, row__ours=1.0)])
    assert "0.9" not in page
    assert "1.1" not in page
    assert "| more | 7 | 8 |" in page


def test_states_go_by_their_code() -> None:
    """Whether a commit has changed about it or not."""

    def at(hour: int, package: str, commit: str, value: float) -> dict:
        date = f"2026-11-09T{hour}:00:00+00:00"
        return line("gpu_step", "GPU", 9, row__ours=value) | {"package": package, "commit": commit, "date": date}

    page = script("results_md").page([at(10, "aaaaaaa", "c9", 0.9), at(11, "bbbbbbb", "c9", 1.1)])
    assert "commit c9 (routelaw bbbbbbb)." in page
    assert "0.9" not in page
    page = script("results_md").page([at(10, "aaaaaaa", "c8", 0.9), at(11, "aaaaaaa", "c9", 1.1)])
    assert "| row | 1.1 |\n| row | 0.9 |" in page


def test_code_goes_by_the_name_that_git_has_for_it(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "core.autocrlf=false"]
        done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    tree, folder = script("ledger").tree, tmp_path / "package"
    for name in ("a.py", "a/b.py", "a-b/c.py", "a.b/é.py", "__pycache__/a.pyc"):  # git sorts folders as "a/"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name} = 1\n", encoding="utf-8")
    (folder / "a-b" / "c.py").chmod(0o755)
    (tmp_path / ".gitignore").write_text("__pycache__\n")
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "a")
    assert tree(folder) == git("rev-parse", "HEAD:package")
    (folder / "a" / "b.py").write_text("b = 2\n")
    assert tree(folder) != git("rev-parse", "HEAD:package")


def test_what_was_withdrawn_is_said_and_not_shown() -> None:
    wrong = line("gpu_step", "GPU", 9, row__ours=0.9, row__optimizer=77.0) | {"withdrawn": {"optimizer": "launched"}}
    page = script("results_md").page([wrong])
    assert "77" not in page
    assert "- optimizer is withdrawn: launched" in page


def test_targets_take_the_figure_that_is_farthest_off() -> None:
    said = {"130M rope s-base": (0.99, 1.035), "130M rope hash": (1.0,), "370M rope rl-r": (1.07,)}
    lines = [line("gpu_step", "GPU", 9, **{f"{row}__over switch": v}) for row, values in said.items() for v in values]
    page = script("results_md").page(lines)
    assert "| S-BASE over Switch, 130M, E = 64, R = ½ | ≤ 1.03 | 1.035 | 1 of 2 |" in page
    assert "| HASH over Switch, 130M, E = 64, R = ½ | ≤ 1 | 1 | yes |" in page
    assert "| RL-R over Switch, 370M, E = 64, R = ½ | ≤ 1.06 | 1.07 | no |" in page
    assert "S-BASE over Switch, 370M" not in page, "not measured"


def test_every_target_is_of_a_column_that_was_once_measured() -> None:
    """A pattern that fits nothing would never be missed."""
    ledger = [json.loads(text) for text in (FOLDER / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    waiting = {target.words for target in script("targets").TARGETS if not target.values(ledger)}
    assert waiting <= {"tokens/s of one of each size", "Mixtral compiled over ours: forward and backward, E = 64"}


def test_failures_are_listed_and_their_words_are_no_markup() -> None:
    page = script("results_md").page(LINES)
    assert "| row | failed | – | 1 |" in page
    assert r"- row, flex: failed: Error: a\|b" in page


def test_an_empty_ledger_gives_a_page() -> None:
    assert "none yet" in script("results_md").page([])


def test_check_says_when_the_page_is_stale(tmp_path: Path) -> None:
    ledger, page = tmp_path / "results.jsonl", tmp_path / "RESULTS.md"
    ledger.write_text("".join(json.dumps(line) + "\n" for line in LINES[:3]))

    def run(*arguments: str) -> int:
        call = [sys.executable, str(SCRIPT), "--ledger", str(ledger), "--page", str(page), *arguments]
        return subprocess.run(call, capture_output=True, check=False).returncode

    assert run("--check") == 1
    assert not page.exists()
    assert run() == 0
    first = page.read_bytes()
    assert run("--check") == 0
    assert run() == 0
    assert page.read_bytes() == first
    with ledger.open("a") as file:
        file.write(json.dumps(LINES[3] | {"date": "2026-11-20T10:00:00+00:00"}) + "\n")
    assert run("--check") == 1
    assert page.read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["RESULTS.md", "results.jsonl"]


def test_the_figure_is_drawn_from_a_table(tmp_path: Path) -> None:
    drawing = script("gpu_experts")
    rows = {f"E={e}": {"E": e, "routed (ms)": 1 + e / 10, "dense (ms)": 1.0, "floor (ms)": e / 20} for e in (1, 8, 64)}
    rows["E=512"] = {}  # did not fit
    svg, png = drawing.save(rows, "a machine", tmp_path)
    assert svg.read_bytes() == drawing.save(rows, "a machine", tmp_path)[0].read_bytes()
    assert png.stat().st_size > 5000
    axes = drawing.draw(rows, "a machine").axes[0]
    assert list(axes.lines[0].get_xdata()) == [1, 8, 64]
    assert axes.get_xscale() == axes.get_yscale() == "log"
