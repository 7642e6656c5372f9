"""What the scripts share: options by the fields of a dataclass, the line of results, the exit code 1 for a miss."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.script import run
from routelaw.bench.results import Row, row


@dataclass(frozen=True)
class Options:
    sizes: tuple[str, ...] = ("3M",)
    none: tuple[str, ...] = ()
    steps: int = 4
    rate: float = 0.1
    fast: bool = True
    data: Path | None = None


def rows(options: Options) -> Iterator[Row]:
    yield row("all", {"steps": options.steps}, {"sizes": " ".join(options.sizes)})
    yield row("all", {"later": options.steps + 1})
    yield row("paths", {"given": options.data is not None, "fast": options.fast, "none": len(options.none)})


def called(monkeypatch: pytest.MonkeyPatch, *words: str, **more) -> list[Row]:
    monkeypatch.setattr(sys, "argv", ["script", *words])
    return run("made_up", "What it does.", Options, rows, lambda o: f"{o.steps} steps", quick={"steps": 1}, **more)


def test_options_are_fields_and_a_line_is_left_where_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    called(monkeypatch, "--sizes", "3M", "8M", "--no-fast", "--data", "x.csv", "--record", str(file), "--limit", "60")
    (line,) = map(json.loads, file.read_text().splitlines())
    assert (line["benchmark"], line["data"]) == ("made_up", "4 steps")
    assert line["figures"] == {
        "all/steps": 4, "all/sizes": "failed: 3M 8M", "all/later": 5, "paths/given": 1, "paths/fast": 0, "paths/none": 0
    }  # fmt: skip


def test_a_first_look_is_not_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = called(monkeypatch, "--quick", "--record", str(tmp_path / "results.jsonl"))
    assert found[0].figures["steps"] == 1
    assert list(tmp_path.iterdir()) == []


def test_what_misses_its_bounds_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    assert called(monkeypatch, wanted={"steps": (0, 4)})
    with pytest.raises(SystemExit, match="missed: all, steps 4 is not within 5 and 9"):
        called(monkeypatch, wanted={"steps": (5, 9)})
