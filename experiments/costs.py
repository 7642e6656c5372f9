"""What does every study cost, as the paper has it and in miniature?

    python experiments/costs.py

Prints the table of experiments/README.md: each sweep file is read twice, once on each base, and its runs are counted,
not trained. Training FLOPs are three forward passes over every token of a run. Cost: seconds.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from routelaw.specs.run import RunSpec
from routelaw.sweeps.sweep import Sweep, read_sweep

HERE = Path(__file__).parent
SWEEPS = HERE / "paper"
PAPER, MINIATURE = "paper.toml", "miniature.toml"
FORWARD_AND_BACKWARD = 3
"""A backward pass costs about two forward ones."""
VOCABULARY = 2048
"""Vocabulary of a corpus built as miniature.toml says; paper.toml has its own."""


def studies() -> list[Path]:
    """Sweep files but for the two bases, the main sweep first."""
    files = [path for path in SWEEPS.glob("*.toml") if path.name not in (PAPER, MINIATURE)]
    return sorted(files, key=lambda path: (path.stem != "main", path.stem))


def on_base(study: Path, base: str) -> Sweep:
    """The study with its one line changed, in a copy. No corpus has to be there."""
    corpus: Any = SimpleNamespace(vocabulary=VOCABULARY, id="")
    with TemporaryDirectory() as folder:
        for path in SWEEPS.glob("*.toml"):
            text = path.read_text(encoding="utf-8").replace(f'base = "{PAPER}"', f'base = "{base}"')
            (Path(folder) / path.name).write_text(text, encoding="utf-8")
        return read_sweep(Path(folder) / study.name, opened=lambda _: corpus)


def training_flops(specs: Collection[RunSpec]) -> int:
    return FORWARD_AND_BACKWARD * sum(
        spec.counts.flops_per_token * spec.train.steps * spec.train.batch * spec.model.sequence_length for spec in specs
    )


def question(path: Path) -> str:
    """What a file asks: its comment or docstring as far as the first question mark."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        words = ast.get_docstring(ast.parse(text)) or ""
    else:
        words = " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))
    return " ".join(words.partition("?")[0].split()) + "?"


def cost(program: Path) -> str:
    """What a program says of it, since only it knows."""
    words = " ".join((ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or "").split())
    return words.partition("Cost: ")[2].partition(".")[0] or "see there"


def table() -> Iterator[str]:
    yield "| question | file | runs | training FLOPs | runs in miniature | training FLOPs in miniature |"
    yield "|---|---|---|---|---|---|"
    distinct: dict[str, dict[str, RunSpec]] = {PAPER: {}, MINIATURE: {}}
    for path in studies():
        cells = []
        for base, known in distinct.items():
            specs = {run.spec.run_id: run.spec for run in on_base(path, base).runs}
            cells.append(_cells(specs.values()))
            known |= specs
        yield f"| {question(path)} | [{path.name}]({path.relative_to(HERE)}) | {' | '.join(cells)} |"
    yield f"| all of them, each run once | | {' | '.join(_cells(known.values()) for known in distinct.values())} |"
    for path in sorted(HERE.glob("*.py")):
        yield f"| {question(path)} | [{path.name}]({path.name}) | – | – | – | {cost(path)} |"


def _cells(specs: Collection[RunSpec]) -> str:
    return f"{len(specs)} | {training_flops(specs):.1e}"


if __name__ == "__main__":
    print("\n".join(table()))
