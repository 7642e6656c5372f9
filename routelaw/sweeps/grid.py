"""Grids: tables of values whose lists are alternatives, multiplied out into runs.

    [[grid]]
    model.size = ["0.2M", "0.8M"]
    router.name = ["dense", "s-base"]
    router.experts = [2, 4, 8]

is 2 × 2 × 3 combinations; a list that is itself a value stands in a list. A rule

    [[where]]
    model.size = ["15M", "25M"]
    set = { train.learning_rate = 1e-3 }

changes the combinations that it describes. Rules look at a combination as the grid wrote it, so that their order does
not matter unless two of them set the same field.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from routelaw.errors import InputError
from routelaw.specs.files import Tables, check_field, put
from routelaw.specs.names import DENSE, canonical_router

SET = "set"
MOST_RUNS = 10_000
"""Bound for all grids of a file together; a value or two more and it would be millions."""


def combinations(grid: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """Every choice of one value per field, by dotted name; the first field changes slowest."""
    fields = flattened(grid)
    for name, values in fields.items():
        if values == []:
            raise InputError(f"{where}: {name} has no values; leave it out or give some.")
        if name.partition(".")[0] == "execution" and isinstance(values, list) and len(values) > 1:
            raise InputError(f"{where}: {name} is no part of what a run means, so it cannot be varied: give one value.")
    alternatives = [values if isinstance(values, list) else [values] for values in fields.values()]
    if (count := math.prod(map(len, alternatives))) > MOST_RUNS:
        raise InputError(f"{where}: the grid has {count:,} runs; {MOST_RUNS:,} is the most of a sweep.")
    for chosen in itertools.product(*alternatives):
        yield dict(zip(fields, chosen, strict=True))


def flattened(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted names: in TOML `router.k = 1` and `"router.k" = 1` are the same here."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        name = f"{prefix}{key}"
        inner = flattened(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
        if twice := flat.keys() & inner.keys():
            raise InputError(f"{sorted(twice)[0]} is given twice, once by its dotted name in quotes; leave one out.")
        flat |= inner
    return flat


def applied(
    tables: Tables, chosen: Mapping[str, Any], rules: Sequence[Mapping[str, Any]], overrides: Mapping[str, Any]
) -> Tables:
    """The tables of one run: the common ones, what the grid chose, what the rules say about that, and overrides."""
    made = copy.deepcopy(tables)
    for name, value in chosen.items():
        put(made, name, copy.deepcopy(value))  # a rule may write into a table that the next combination shares
    written = flattened(made)
    for rule in rules:
        if all(_agrees(written.get(name), wanted) for name, wanted in _conditions(rule).items()):
            for name, value in flattened(rule[SET]).items():
                put(made, name, value)
    for name, value in overrides.items():
        put(made, name, copy.deepcopy(value))
    router = made.get("router", {})
    if isinstance(router, dict) and canonical_router(str(router.get("name", DENSE))) == DENSE:
        made["router"] = {"name": DENSE}  # one dense model, however many E are listed
    return made


def check_rule(rule: Any, where: str) -> None:
    if not isinstance(rule, Mapping) or not isinstance(rule.get(SET), Mapping):
        raise InputError(f"{where}: a rule has conditions and `set = {{ … }}`, not {rule!r}.")
    if not _conditions(rule):
        raise InputError(f"{where}: a rule without a condition holds for all runs: write it as [train] or the like.")
    for name, wanted in _conditions(rule).items():
        if wanted == []:
            raise InputError(f"{where}: {name} = [] describes no run; leave the condition out or give values.")
    for name in (*_conditions(rule), *flattened(rule[SET])):
        check_field(name, where)


def _conditions(rule: Mapping[str, Any]) -> dict[str, Any]:
    return flattened({key: value for key, value in rule.items() if key != SET})


def _agrees(value: Any, wanted: Any) -> bool:
    """Whether a value is the one wanted or one of those; sizes and techniques have one name in any case of letters."""
    return any(_spelled(value) == _spelled(each) for each in (wanted if isinstance(wanted, list) else [wanted]))


def _spelled(value: Any) -> Any:
    return canonical_router(value) if isinstance(value, str) else value
