"""What the scripts of benchmarks/ and verification/ share: options from a dataclass, rows as they come, and the line
that they leave in a file of results where `--record` asks for it.

    run("fit", __doc__, Options, rows, wanted={"speedup": (100, math.inf)})

`rows(options)` yields rows of figures. A limit of time (`--limit`) or SIGTERM ends them, and those that came are kept.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from routelaw.bench.results import RESULTS, ResultsFile, Row, kept

T = TypeVar("T")
DATA = Path(__file__).parents[2] / "shared" / "data"
"""Tables and texts too large for the repository, where they are beside it."""
Bounds = Mapping[str, tuple[float, float]]
"""Least and most of columns."""


def use_one_thread() -> None:
    """Start over with one thread for matrix products: they are small here, and threads only add noise to the times."""
    wanted = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if not wanted.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **wanted})


def parser_of(kind: type[Any], words: str | None) -> argparse.ArgumentParser:
    """A parser with an option for each field, named and typed as its default is: a list where that is a tuple."""
    parser = argparse.ArgumentParser(
        description=(words or "").split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    for field in fields(kind):
        usual: Any = field.default
        flag, help_ = f"--{field.name.replace('_', '-')}", " "
        if isinstance(usual, bool):
            parser.add_argument(flag, default=usual, action=argparse.BooleanOptionalAction, help=help_)
        elif isinstance(usual, tuple):
            parser.add_argument(flag, default=usual, nargs="*", type=type(usual[0]) if usual else str, help=help_)
        else:
            parser.add_argument(flag, default=usual, type=Path if usual is None else type(usual), help=help_)
    return parser


def run(
    name: str,
    words: str | None,
    kind: type[T],
    rows: Callable[[T], Iterable[Row]],
    data: Callable[[T], str] = str,
    *,
    wanted: Bounds | None = None,
    quick: Mapping[str, Any] | None = None,
    device: Callable[[], object] = str,
) -> list[Row]:
    """Measure what the command line asks for; `data` says on what. Ends with 1 where a wanted column is missed. `quick`
    has the options of a first look, whose figures are not recorded."""
    parser = parser_of(kind, words)
    parser.add_argument("--record", nargs="?", type=Path, const=RESULTS, help="append to this file of results")
    parser.add_argument("--limit", type=float, help="seconds after which nothing more is measured")
    if quick:
        parser.add_argument("--quick", action="store_true", help="tiny, to see that it works; recorded nowhere")
    given = vars(parser.parse_args())
    record, limit, is_quick = given.pop("record"), given.pop("limit"), given.pop("quick", False)
    options = kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})
    if is_quick:
        options = replace(options, **(quick or {}))  # pyrefly: ignore
    file = ResultsFile(record) if record and not is_quick else None
    found = kept(rows(options), limit)
    if file:
        file.append(name, data(options), flat(found), str(device()))
    missed = [line for row in found for line in missed_by(row, wanted or {})]
    if missed:
        sys.exit("\n".join(missed))
    return found


def flat(rows: Iterable[Row]) -> dict[str, Any]:
    """`row/column`, failures in words; of rows with one name the later ones win."""
    found: dict[str, Any] = {}
    for row in rows:
        found |= {f"{row.name}/{column}": value for column, value in row.figures.items()}
        found |= {f"{row.name}/{failure.candidate}": f"failed: {failure.reason}" for failure in row.failures}
    return found


def missed_by(row: Row, wanted: Bounds) -> list[str]:
    return [
        f"missed: {row.name}, {column} {row.figures[column]:g} is not within {least:g} and {most:g}"
        for column, (least, most) in wanted.items()
        if column in row.figures and not least <= row.figures[column] <= most
    ]
