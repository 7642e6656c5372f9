"""Options that several commands share, and the points they select."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from routelaw.cli.output import note
from routelaw.errors import InputError
from routelaw.files import check_plain
from routelaw.formatting import shortened

if TYPE_CHECKING:
    from routelaw.laws import Law
    from routelaw.plans.predictor import Predictor
    from routelaw.runs.table import RunTable


MOST_EXPERTS = 1_000_000
MOST_NUMBERS = 1000
"""In a list of them."""

Runs = Annotated[
    Path | None,
    typer.Argument(
        help="A run table (CSV or Parquet) or a store; the paper's released losses unless given.", show_default=False
    ),
]
RunsOrPublished = Annotated[
    Path | None,
    typer.Argument(
        help="A run table (CSV or Parquet) or a store, to which the law is fitted; the paper's published coefficients "
        "unless given.",
        show_default=False,
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help='Only rows for which this holds, e.g. "tokens>=1e9 and experts>1" (repeatable).',
    ),
]
BestOf = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Of runs that differ in these alone, the one of lowest loss: learning_rate,batch_tokens.",
    ),
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


def selected(table: RunTable, conditions: Sequence[str] | None, best_of: str | None, target: str) -> RunTable:
    """What --where and --best-of leave of a table."""
    from routelaw.runs import filters

    for condition in conditions or []:
        table = filters.where(table, condition)
    if best_of is not None:
        table = filters.best_of(table, [name.strip() for name in best_of.split(",") if name.strip()], target)
    return table


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


T = TypeVar("T", bound=str)


def one_of(value: str, choices: tuple[T, ...], option: str) -> T:
    from routelaw.errors import InputError
    from routelaw.specs.names import nearest_hint

    for choice in choices:
        if value == choice:
            return choice
    raise InputError(f"{option} takes {', '.join(choices)}, not {value!r}{nearest_hint(value, choices)}.")


def named_paths(items: Sequence[str], option: str) -> dict[str, Path]:
    from routelaw.errors import InputError
    from routelaw.formatting import shortened
    from routelaw.runs.folders import check_loss_name

    found: dict[str, Path] = {}
    for item in items:
        name, given, path = item.partition("=")
        if not given or not path or not name:
            raise InputError(f"{option} takes NAME=PATH, such as c4=texts/c4.jsonl.xz, not {shortened(item)!r}.")
        check_loss_name(name, option)
        if name in found:
            raise InputError(f"{option}: the name {name!r} is given twice; choose another.")
        found[name] = Path(path)
    return found


LONGEST_VALUE = 20_000
"""Characters of a value that are read as TOML; what is longer is text, if anything."""


def settings_of(settings: Sequence[str]) -> dict[str, Any]:
    """Values by dotted name out of `table.key=value`, and the recipe out of `recipe=name`."""
    values = {}
    for setting in settings:
        name, given, text = setting.partition("=")
        if not given or ("." not in name and name.strip() != "recipe"):
            raise InputError(f"--set takes table.key=value, such as router.k=2, not {setting!r}.")
        values[name.strip()] = plain_value(text.strip())
    return values


def plain_value(text: str) -> Any:
    """As TOML would read it; what is no TOML value is text, so that names need no quotes."""
    try:
        value = tomllib.loads(f"value = {text}")["value"] if len(text) < LONGEST_VALUE else text
    except tomllib.TOMLDecodeError:
        value = text
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        raise InputError(f"--set cannot take {text[:20]!r}… as a value.") from None
    try:
        check_plain(value)
    except ValueError as error:
        raise InputError(f"--set cannot take {text[:40]!r} as a value: {error}.") from None
    return value


PUBLISHED_TARGET, PUBLISHED_LAW = "loss_validation", "saturated"


def predictors(
    runs: Path | None,
    named: list[str] | None,
    law: str,
    routers: list[str] | None,
    target: str,
    *,
    draws: int | None,
    seed: int | None,
    plugins: list[Path] | None = None,
    check: Callable[[Law], None],
    quiet: bool = False,
) -> list[Predictor]:
    """Published fits when named, or when there is no table at all; else the law fitted to each router of the table.

    `check` refuses a law that the command has no use for, before anything is fitted. `quiet`: of routers left out
    somebody has heard already.
    """
    from routelaw.cli import options
    from routelaw.errors import InputError
    from routelaw.fitting.intervals import DEFAULT_DRAWS
    from routelaw.plans.literature import published_predictors
    from routelaw.plans.predictor import fitted_predictors

    if named and runs:
        raise InputError("give either a run table or --fit, not both.")
    if named and routers:
        raise InputError("give either --router or --fit, not both: a published fit is of one router.")
    if runs is None:
        if plugins:
            raise InputError("--plugin has no effect on published fits: give a run table for the law to be fitted to.")
        options.refuse_without_effect({"--draws": draws, "--seed": seed}, "on published fits, which bring their own")
        for option, asked, only in (("--target", target, PUBLISHED_TARGET), ("--law", law, PUBLISHED_LAW)):
            if asked != only:
                raise InputError(f"{option} {asked} needs a run table: the published fits have {only} alone.")
        return published_predictors(named or (), routers or ())
    return fitted_predictors(
        options.load(runs, plugins),
        law,
        routers or (),
        target=target,
        draws=draws or DEFAULT_DRAWS,
        seed=seed or 0,
        check=check,
        notice=(lambda _: None) if quiet else note,
    )
