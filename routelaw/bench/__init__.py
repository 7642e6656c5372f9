"""What things cost here: tables of ratios against named baselines, measured in one run on a GPU or a CPU.

One module per table, found by name. Each has `Options`, their presets (`FULL` as published, `ON_CPU` for two cores in
some ten minutes together, `QUICK` to see that it works), and

    rows(options)        what was measured, one row at a time
    describe(options)    the words of the table: setting, baseline, columns
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from routelaw.bench.results import Row, Table, gathered
from routelaw.specs.files import from_mapping

TABLES = ("sinkhorn", "layer", "experts", "attention", "models", "cpu", "analysis")


def preset(name: str, quick: bool = False, **given: Any) -> Any:
    """The options of a table that suit this machine, and what was given instead of some of them."""
    from routelaw.bench.clock import CUDA

    module = importlib.import_module(f"{__name__}.{name}")
    fitting = module.QUICK if quick else module.FULL if CUDA else module.ON_CPU
    checked = from_mapping(type(fitting), given, f"routelaw bench {name}")
    return replace(fitting, **{field: getattr(checked, field) for field in given})


def measured(name: str, options: Any, follow: Callable[[Iterable[Row]], Iterable[Row]] = iter) -> Table:
    """A table by name; `follow` sees its rows as they come."""
    from routelaw.bench.clock import here

    module = importlib.import_module(f"{__name__}.{name}")
    return gathered(name, module.describe(options), follow(module.rows(options)), here())
