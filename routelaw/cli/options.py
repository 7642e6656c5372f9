"""Options that several commands share, and the points they select."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routelaw.formatting import shortened

if TYPE_CHECKING:
    from routelaw.laws import Law
    from routelaw.runs.table import RunTable

MOST_EXPERTS = 1_000_000
MOST_NUMBERS = 1000
"""In a list of them."""

Runs = Annotated[
    Path | None,
    typer.Argument(help="A run table (CSV or Parquet); the paper's released table is recognised.", show_default=False),
]
Target = Annotated[str, typer.Option(help="Which loss to fit: a loss_… column of the table.")]
Level = Annotated[float, typer.Option(min=0.5, max=0.999, help="Level of the intervals.")]
Draws = Annotated[int | None, typer.Option(min=50, max=100_000, help="Bootstrap draws.", show_default="1000")]
Seed = Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of the resampling.", show_default="0")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]
Plugin = Annotated[
    list[Path] | None, typer.Option(help="A Python file that defines LAW: your own law. Code, so only what you trust.")
]
Size = Annotated[str | None, typer.Option(help="A model size by name, e.g. 370M.")]
ActiveParams = Annotated[
    str | None, typer.Option("--params", help="Active parameters instead of a size, e.g. 1.5e9 or 1.5B.")
]


def use_one_thread() -> None:
    """Before NumPy is imported: matrices of the analysis are small, and threads of BLAS would only spin over them."""
    import os

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def refuse_without_effect(given: Mapping[str, object | None], where: str) -> None:
    """Refuse options that were given (those that are None were not) `where` nothing reads them."""
    from routelaw.errors import InputError

    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name} has no effect {where}: leave it out.")


def load(runs: Path | None, plugins: list[Path] | None = None) -> RunTable:
    """The table given, or the cached release of the paper's losses; plugins are made known first."""
    from routelaw.errors import InputError
    from routelaw.runs.fetch import find_released
    from routelaw.runs.files import read_runs

    load_laws(plugins or [])
    path = runs or find_released()
    if path is None:
        raise InputError(
            "no run table: give the path of one, or run `routelaw data fetch` once for the paper's released losses."
        )
    return read_runs(path)


def load_laws(plugins: list[Path]) -> list[Law]:
    """Make the laws of these files known; returns them."""
    from routelaw.laws import load_law

    return [load_law(plugin) for plugin in plugins]


def quantity(text: str, what: str) -> float:
    """A positive number as people type it: 1.5e9, 1.5B, 80GB, 80GiB, 2TFLOP."""
    import math
    import re

    from routelaw.errors import InputError

    match = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?\d+)?)\s*([kmgbt]?)(ib)?(?:b|flops?)?\s*", text.lower(), re.ASCII)
    scale = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
    binary = {"k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}
    try:
        scales = binary if match and match.group(3) else scale
        value = float(match.group(1)) * scales[match.group(2)] if match else 0.0
    except (KeyError, ValueError):
        value = 0.0
    if value <= 0 or not math.isfinite(value):
        raise InputError(f"{what} must be a positive number such as 1.5e9 or 1.5B, not {shortened(text)!r}.")
    return value


def parameters(text: str, what: str) -> float:
    """A number of parameters: of one at least."""
    from routelaw.errors import InputError

    value = quantity(text, what)
    if not 1 <= value <= 1e18:
        raise InputError(f"{what} must lie between 1 and 1e18, not {shortened(text)!r}.")
    return value


def active_params_of(size: str | None, params: str | None) -> float | None:
    from routelaw.errors import InputError
    from routelaw.specs.counting import dense_params
    from routelaw.specs.sizes import get_size

    if size is not None and params is not None:
        raise InputError("give either --size or --params, not both.")
    if size is not None:
        return float(dense_params(get_size(size)))
    return parameters(params, "--params") if params is not None else None


def numbers(text: str, option: str, kind: type, highest: float = MOST_EXPERTS) -> list:
    """Positive numbers as `1,2,4`."""
    import re

    from routelaw.errors import InputError

    written = re.compile(r"\d+" if kind is int else r"\d*\.?\d+(e[-+]?\d+)?", re.ASCII | re.IGNORECASE)
    parts = [part.strip() for part in text.split(",")]
    values = [kind(part) for part in parts if len(part) < 20 and written.fullmatch(part)]
    if len(values) < len(parts) or len(parts) > MOST_NUMBERS or not all(0 < v <= highest for v in values):
        whole = "whole " if kind is int else ""
        raise InputError(
            f"{option} takes positive {whole}numbers of at most {highest:g}, separated by commas, "
            f"not {shortened(text)!r}."
        )
    return values
