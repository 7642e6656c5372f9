"""A sweep file: what its runs have in common, what varies, and the runs that follow.

    base = "paper.toml"            another file to start from, paths relative to this one
    corpus = "out/corpus"          made by `routelaw corpus build`
    recipe = "clark2022"           a publication's settings, below all others (specs/recipes.py)
    study = "k"                    which of the paper's studies this is: `routelaw report` then judges its claims
    [model] [router] [train] [execution]
    [evaluate_on]                  NAME = "corpus": other texts to evaluate on
    [[grid]]                       fields with lists of values; several grids add up
    [[where]]                      exceptions

A grid is a table of values whose lists are alternatives, multiplied out into runs.

    [[grid]]
    model.size = ["0.2M", "0.8M"]
    router.name = ["dense", "s-base"]
    router.experts = [2, 4, 8]

is 2 × 2 × 3 combinations; a list that is itself a value stands in a list. A rule

    [[where]]
    model.size = ["15M", "25M"]
    set = { train.learning_rate = 1e-3 }

changes the combinations that it describes. Rules look at a combination as the grid wrote it, so that their order does
not matter unless two of them set the same field. Equal specs are one run, by the hash of what they mean.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from routelaw.corpus.shards import Corpus, open_corpus
from routelaw.errors import InputError
from routelaw.files import read_toml
from routelaw.runs.folders import check_loss_name
from routelaw.specs.counting import dense_params
from routelaw.specs.files import Tables, check_field, check_keys, from_mapping, put, run_spec
from routelaw.specs.names import DENSE, canonical_router, known_study
from routelaw.specs.recipes import recipe_named
from routelaw.specs.run import ExecutionSpec, RunSpec

TABLES = ("model", "router", "train", "execution", "evaluate_on")
KEYS = ("base", "corpus", "recipe", "study", *TABLES, "grid", "where")
DEEPEST = 8
"""Files upon files; more are a circle."""


@dataclass(frozen=True)
class PlannedRun:
    spec: RunSpec
    execution: ExecutionSpec
    corpus: Path
    others: Mapping[str, Path]
    """Evaluated beside the validation split."""
    missing: tuple[Path, ...] = ()
    """Those of its corpora that are not there. It can be priced all the same, and not trained."""

    @property
    def run_id(self) -> str | None:
        """None where its corpus is not there: what it holds is part of what a run is."""
        return None if self.corpus in self.missing else self.spec.run_id


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep file, each once.

    >>> sweep = rl.load_sweep("sweep.toml")
    >>> len(sweep.runs), sweep.runs[0].spec.router.name
    (2, 'dense')
    """

    source: str
    runs: tuple[PlannedRun, ...]
    """In the order of the file, each once."""
    combinations: int
    """How many the grids had, equal ones included."""
    plugins: tuple[Path, ...] = ()
    """Files that register the routers of its runs: workers load them, too."""
    study: str = ""
    """Which of the paper's studies it says it is; no part of what its runs mean."""


def smallest_sizes(sweep: Sweep, count: int) -> Sweep:
    """The runs of the smallest model sizes alone, so many of them: to try a sweep before it costs anything."""
    if count < 1:
        raise InputError(f"of the smallest sizes at least 1 is taken, not {count}.")
    own = {run.spec.run_id: dense_params(run.spec.model.architecture) for run in sweep.runs}
    kept = set(sorted(set(own.values()))[:count])
    return replace(sweep, runs=tuple(run for run in sweep.runs if own[run.spec.run_id] in kept))


def read_sweep(
    path: Path,
    *,
    overrides: Mapping[str, Any] | None = None,
    opened: Callable[[str | Path], Corpus | None] = open_corpus,
) -> Sweep:
    """Read and expand a sweep file. `overrides` (by dotted name) win over everything in it. `opened` gives None for a
    corpus that may be missing and is."""
    tables, rules, grids = _read(path)
    study = tables.pop("study", "")
    if not grids:
        grids = [{}]
    runs: dict[str, PlannedRun] = {}
    corpora: dict[str, Corpus | None] = {}
    count = 0
    for number, grid in enumerate(grids, start=1):
        where = f"{path} grid {number}" if len(grids) > 1 else str(path)
        for chosen in combinations(grid, where):
            count += 1
            if count > MOST_RUNS:
                raise InputError(f"{path}: the grids have more than {MOST_RUNS:,} runs together, the most of a sweep.")
            values = applied(tables, chosen, rules, overrides or {})
            planned = _planned(values, corpora, opened, f"{where}{_named(chosen)}")
            runs.setdefault(planned.spec.run_id, planned)
    return Sweep(str(path), tuple(runs.values()), count, study=study)


def _read(path: Path, depth: int = 0) -> tuple[Tables, list[Any], list[Any]]:
    """Tables, rules and grids of a file on top of its base's, paths made relative to where they were written."""
    content = read_toml(path)
    check_keys(content, KEYS, str(path))
    tables: Tables = {}
    rules: list[Any] = []
    if "base" in content:
        if depth == DEEPEST:
            raise InputError(f"{path}: base leads round in a circle.")
        tables, rules, grids = _read(path.parent / _text(content["base"], f"{path}: base"), depth + 1)
        if grids:
            raise InputError(
                f"{path}: its base {content['base']} has grids of its own; a base holds what runs have in common."
            )
    _put_own(tables, content, path)
    own_rules, grids = (_array(content.get(name, []), f"{path}: {name}") for name in ("where", "grid"))
    for rule in own_rules:
        check_rule(rule, f"{path} [[where]]")
    for grid in grids:
        _check_names(grid, f"{path} [[grid]]")
        if "corpus" in grid:
            each = _array_of_one(grid["corpus"])
            grid["corpus"] = [str(path.parent / _text(name, f"{path} [[grid]]: corpus")) for name in each]
    return tables, [*rules, *own_rules], grids


def _put_own(tables: Tables, content: Mapping[str, Any], path: Path) -> None:
    """What a file says itself, over what its base said."""
    for name in TABLES:
        given = content.get(name, {})
        if not isinstance(given, Mapping):
            raise InputError(f"{path}: {name} must be a table, not {given!r}.")
        for key, value in given.items():
            if name == "evaluate_on":  # names of the user's own, dots and all
                check_loss_name(key, f"{path} [evaluate_on]")
                text = _text(value, f"{path} [evaluate_on]: {key}")
                tables.setdefault(name, {})[key] = str(path.parent / text)
            else:
                check_field(f"{name}.{key}", str(path))  # here, since a dense run will not look at its router
                put(tables, f"{name}.{key}", copy.deepcopy(value))
    if "recipe" in content:
        tables["recipe"] = _text(content["recipe"], f"{path}: recipe")
        recipe_named(tables["recipe"], str(path))
    if "study" in content:
        tables["study"] = known_study(_text(content["study"], f"{path}: study"), str(path))
    if "corpus" in content:
        tables["corpus"] = str(path.parent / _text(content["corpus"], f"{path}: corpus"))


def _planned(
    values: Tables, corpora: dict[str, Corpus | None], opened: Callable[[str | Path], Corpus | None], where: str
) -> PlannedRun:
    corpus = values.pop("corpus", None)
    if corpus is None:
        raise InputError(f'{where}: names no corpus; write `corpus = "DIR"` or give --corpus.')
    others = values.pop("evaluate_on", {})
    for path in (corpus, *others.values()):
        if path not in corpora:
            corpora[path] = opened(path)
    execution = from_mapping(ExecutionSpec, values.pop("execution", {}), f"{where} [execution]")
    found = corpora[corpus]
    if isinstance(model := values.setdefault("model", {}), dict) and "vocabulary" not in model:
        if found is None:
            raise InputError(
                f"{where}: {corpus} is not there, and the vocabulary would be read from it: say it, "
                "as in --set model.vocabulary=32000, or build the corpus."
            )
        model["vocabulary"] = found.vocabulary
    try:
        spec = run_spec(values, found.id if found else f"{corpus} is not there", where)
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None
    missing = tuple(Path(path) for path in (corpus, *others.values()) if corpora[path] is None)
    return PlannedRun(spec, execution, Path(corpus), {name: Path(path) for name, path in others.items()}, missing)


def _check_names(grid: Any, where: str) -> None:
    """A name that is nothing's would otherwise vary nothing, or pass unseen where the run is dense."""
    if not isinstance(grid, Mapping):
        raise InputError(f"{where} must be a table, not {grid!r}.")
    for name in flattened(grid):
        if name != "corpus":
            check_field(name, where)


def _named(chosen: Mapping[str, Any]) -> str:
    return f" ({', '.join(f'{name} = {value}' for name, value in chosen.items())})" if chosen else ""


def _array(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{where} must be written [[{where.rpartition(' ')[2]}]], since there may be several.")
    return value


def _array_of_one(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where} must be text, not {value!r}.")
    return value


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
