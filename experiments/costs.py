"""What does every study cost, as the paper has it and in miniature?

    python experiments/costs.py

Prints the table of experiments/README.md: each sweep file is read twice, once on each base, and priced as
`routelaw sweep FILE --dry-run` does, without a corpus. Cost: half a minute.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from routelaw.runs.store import Store
from routelaw.sweeps.dry_run import dry_run
from routelaw.sweeps.estimate.sweep_estimate import RunEstimate
from routelaw.sweeps.run_sweep import load_sweep

HERE = Path(__file__).parent
SWEEPS = HERE / "paper"
PAPER, MINIATURE = "paper.toml", "miniature.toml"
DEVICE = "h100"
"""That paper.toml plans for."""


def studies() -> list[Path]:
    """Sweep files but for the two bases, the main sweep first."""
    files = [path for path in SWEEPS.glob("*.toml") if path.name not in (PAPER, MINIATURE)]
    return sorted(files, key=lambda path: (path.stem != "main", path.stem))


def on_base(base: str) -> dict[Path, tuple[RunEstimate, ...]]:
    """The runs of every study with its one line changed, in a copy. No corpus has to be there."""
    found = {}
    with TemporaryDirectory() as folder:
        for path in SWEEPS.glob("*.toml"):
            text = path.read_text(encoding="utf-8").replace(f'base = "{PAPER}"', f'base = "{base}"')
            (Path(folder) / path.name).write_text(text, encoding="utf-8")
        for study in studies():
            sweep = load_sweep(Path(folder) / study.name, may_lack_corpus=True)
            estimate = dry_run(sweep, Store(Path(folder) / "runs"), device_name=DEVICE)
            assert not estimate.without_layout, estimate.without_layout
            found[study] = estimate.runs
    return found


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
    scales = f"runs | training FLOPs | {DEVICE} hours | runs in miniature | training FLOPs in miniature"
    yield f"| question | file | {scales} |"
    yield "|---|---|---|---|---|---|---|"
    paper, miniature = on_base(PAPER), on_base(MINIATURE)
    for path in studies():
        cells = [*_cells(paper[path]), *_cells(miniature[path])[:2]]
        yield f"| {question(path)} | [{path.name}]({path.relative_to(HERE)}) | {' | '.join(cells)} |"
    cells = [*_cells(_once(paper)), *_cells(_once(miniature))[:2]]
    yield f"| all of them, each run once | | {' | '.join(cells)} |"
    for path in sorted(HERE.glob("*.py")):
        yield f"| {question(path)} | [{path.name}]({path.name}) | – | – | – | – | {cost(path)} |"


def _once(found: dict[Path, tuple[RunEstimate, ...]]) -> Iterable[RunEstimate]:
    return {each.run.spec.run_id: each for runs in found.values() for each in runs}.values()


def _cells(runs: Iterable[RunEstimate]) -> list[str]:
    """Their number, FLOPs and device hours."""
    runs = list(runs)
    flops, hours = sum(run.training_flops for run in runs), sum(run.seconds * run.devices for run in runs) / 3600
    return [str(len(runs)), f"{flops:.1e}", f"{float(f'{hours:.2g}'):,.0f}"]


if __name__ == "__main__":
    print("\n".join(table()))
