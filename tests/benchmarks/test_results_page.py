"""benchmarks/results_md.py on made-up results, and the figure of cost against E."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.results_md import TARGETS, draw, save_figure
from benchmarks.results_md import page as page_of

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPT = FOLDER / "results_md.py"


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
    page = page_of(LINES)
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
    page = page_of([first, second, beside])
    assert "| row | 1.1 |\n| row | 0.9 |" in page, "of the same columns: one table, newest first"
    assert "| more | 7 | 8 |" in page
    assert page.count("### GPU") == 2
    page = page_of([first, second, beside, line("gpu_step", "GPU", 10, row__ours=1.0)])
    assert "0.9" not in page
    assert "1.1" not in page
    assert "| more | 7 | 8 |" in page


def test_states_go_by_their_code() -> None:
    """Whether a commit has changed about it or not."""

    def at(hour: int, package: str, commit: str, value: float) -> dict:
        date = f"2026-11-09T{hour}:00:00+00:00"
        return line("gpu_step", "GPU", 9, row__ours=value) | {"package": package, "commit": commit, "date": date}

    page = page_of([at(10, "aaaaaaa", "c9", 0.9), at(11, "bbbbbbb", "c9", 1.1)])
    assert "commit c9 (routelaw bbbbbbb)." in page
    assert "0.9" not in page
    page = page_of([at(10, "aaaaaaa", "c8", 0.9), at(11, "aaaaaaa", "c9", 1.1)])
    assert "| row | 1.1 |\n| row | 0.9 |" in page


def test_what_was_withdrawn_is_said_and_not_shown() -> None:
    wrong = line("gpu_step", "GPU", 9, row__ours=0.9, row__optimizer=77.0) | {"withdrawn": {"optimizer": "launched"}}
    page = page_of([wrong])
    assert "77" not in page
    assert "- optimizer is withdrawn: launched" in page


def test_targets_take_the_figure_that_is_farthest_off() -> None:
    said = {"130M rope s-base": (0.99, 1.035), "130M rope hash": (1.0,), "370M rope rl-r": (1.07,)}
    lines = [line("gpu_step", "GPU", 9, **{f"{row}__over switch": v}) for row, values in said.items() for v in values]
    page = page_of(lines)
    assert "| S-BASE over Switch, 130M, E = 64, R = ½ | ≤ 1.03 | 1.035 | 1 of 2 |" in page
    assert "| HASH over Switch, 130M, E = 64, R = ½ | ≤ 1 | 1 | yes |" in page
    assert "| RL-R over Switch, 370M, E = 64, R = ½ | ≤ 1.06 | 1.07 | no |" in page
    assert "S-BASE over Switch, 370M" not in page, "not measured"


def test_every_target_is_of_a_column_that_was_once_measured() -> None:
    """A pattern that fits nothing would never be missed."""
    results = [json.loads(text) for text in (FOLDER / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    waiting = {target.words for target in TARGETS if not target.values(results)}
    assert waiting <= {"tokens/s of one of each size", "Mixtral compiled over ours: forward and backward, E = 64"}


def test_failures_are_listed_and_their_words_are_no_markup() -> None:
    page = page_of(LINES)
    assert "| row | failed | – | 1 |" in page
    assert r"- row, flex: failed: Error: a\|b" in page


def test_no_results_give_a_page() -> None:
    assert "none yet" in page_of([])


def test_check_says_when_the_page_is_stale(tmp_path: Path) -> None:
    results, page = tmp_path / "results.jsonl", tmp_path / "RESULTS.md"
    results.write_text("".join(json.dumps(line) + "\n" for line in LINES[:3]))

    def run(*arguments: str) -> int:
        call = [sys.executable, str(SCRIPT), "--results", str(results), "--page", str(page), *arguments]
        return subprocess.run(call, capture_output=True, check=False).returncode

    assert run("--check") == 1
    assert not page.exists()
    assert run() == 0
    first = page.read_bytes()
    assert run("--check") == 0
    assert run() == 0
    assert page.read_bytes() == first
    with results.open("a") as file:
        file.write(json.dumps(LINES[3] | {"date": "2026-11-20T10:00:00+00:00"}) + "\n")
    assert run("--check") == 1
    assert page.read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["RESULTS.md", "results.jsonl"]


def test_the_figure_is_drawn_from_the_newest_line(tmp_path: Path) -> None:
    rows = {f"E={e}": {"E": e, "routed (ms)": 1 + e / 10, "dense (ms)": 1.0, "floor (ms)": e / 20} for e in (1, 8, 64)}
    rows["E=512"] = {}  # did not fit
    figures = {f"{name}__{column}": value for name, row in rows.items() for column, value in row.items()}
    lines = [line("gpu_experts", "GPU", 2, row__E=3.0), line("gpu_experts", "GPU", 9, **figures)]
    svg, png = save_figure(lines, tmp_path)
    assert svg.read_bytes() == save_figure(lines, tmp_path)[0].read_bytes()
    assert png.stat().st_size > 5000
    axes = draw(rows, "a machine").axes[0]
    assert list(axes.lines[0].get_xdata()) == [1, 8, 64]
    assert axes.get_xscale() == axes.get_yscale() == "log"
