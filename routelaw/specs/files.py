"""Specs as TOML: strict, so that a typo is an error that names what was meant, never a silent default."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from routelaw.errors import InputError
from routelaw.files import DEEPEST, read_toml
from routelaw.plugins import router_file
from routelaw.specs.counting import Architecture
from routelaw.specs.names import DENSE, canonical_router, nearest_hint
from routelaw.specs.recipes import recipe_named
from routelaw.specs.run import ExecutionSpec, ModelSpec, RouterSpec, RunSpec, TrainSpec, meaning_of
from routelaw.specs.sizes import get_size

T = TypeVar("T")
Tables = dict[str, Any]
"""Nested tables of plain values: [model], [router], [train] and whatever else a file holds."""
SIZE = "model.size"
RECIPE = ("recipe",)
"""What may stand beside the tables of a run, in files from now on."""
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", dict: "a table", list: "a list"}


def put(tables: Tables, name: str, value: Any) -> None:
    """Set `table.key`, making the tables on the way."""
    *path, key = name.split(".")
    if len(path) > DEEPEST:
        raise InputError(f"{name[:40]}… cannot be set: the name has too many parts.")
    table = tables
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise InputError(f"{name} cannot be set: {part} is not a table.")
    table[key] = value
    if name == SIZE:  # a size stands for the four numbers a file may have
        for number in fields(Architecture):
            table.pop(number.name, None)


def gather_tables(file: Path | None, *settings: Mapping[str, Any]) -> Tables:
    """A run from several places as nested tables of plain values: a TOML file, then values by dotted name, the later
    ones winning. A value of None was not given."""
    tables: Tables = read_toml(file) if file else {}
    if file and isinstance(tables.get("corpus"), str):
        tables["corpus"] = str(file.parent / tables["corpus"])  # a file's paths are relative to it
    for values in settings:
        for name, value in values.items():
            if value is not None:
                put(tables, name, value)
    return tables


def from_mapping(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a spec from plain values; unknown, missing or mistyped keys are named with where they stand."""
    hints = _hints(kind)
    known = {f.name: f for f in fields(kind) if f.init}  # pyrefly: ignore
    check_keys(values, known, where)
    for name, f in known.items():
        if name not in values and f.default is MISSING and f.default_factory is MISSING:
            raise InputError(f"{where}: {name} is missing.")
    return kind(**{key: _typed(value, hints[key], f"{where}: {key}") for key, value in values.items()})


_hints = functools.cache(get_type_hints)
"""Evaluated once for each kind: a sweep reads thousands of specs."""


def check_field(name: str, where: str) -> None:
    """A dotted name must be that of a field: `router.experts`, or `router.options.reward` of whatever technique."""
    table, _, key = name.partition(".")
    kinds = {"model": ModelSpec, "router": RouterSpec, "train": TrainSpec, "execution": ExecutionSpec}
    check_keys({table: None}, tuple(kinds), where)
    known = [f.name for f in fields(kinds[table]) if f.name != "architecture"]
    if table == "model":
        known = ["size", *(f.name for f in fields(Architecture)), *known]
    check_keys({key.partition(".")[0]: None}, tuple(known), f"{where} {table}")


def check_keys(values: Any, known: Mapping[str, Any] | tuple[str, ...], where: str) -> None:
    if not isinstance(values, Mapping):
        raise InputError(f"{where} must be a table of {', '.join(known)}, not {values!r}.")
    for key in values:
        if key not in known:
            raise InputError(f"{where}: unknown key {key!r}{nearest_hint(key, known)}; it takes {', '.join(known)}.")


def _typed(value: Any, hint: Any, where: str) -> Any:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = [get_origin(option) or option for option in options]
    for option, kind in zip(options, kinds, strict=True):
        if kind is Any:
            return value
        if is_dataclass(kind) and isinstance(value, Mapping):
            return from_mapping(kind, value, where)
        if kind is dict and isinstance(value, Mapping):
            _, inner = get_args(option) or (str, Any)
            return {key: _typed(one, inner, f"{where}.{key}") for key, one in value.items()}
        if kind is tuple and isinstance(value, list | tuple):
            inner, *_ = get_args(option)  # tuple[T, ...], the only kind that specs and manifests have
            return tuple(_typed(one, inner, f"{where}[{number}]") for number, one in enumerate(value))
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(_bounded(value, where))
        if kind is int and isinstance(value, int) and not isinstance(value, bool):
            return _bounded(value, where)
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
    wanted = " or ".join(KINDS.get(kind, kind.__name__) for kind in kinds if kind is not types.NoneType)
    raise InputError(f"{where} must be {wanted}, not {value!r}.")


def _bounded(value: float, where: str) -> float:
    """What does not fit in 64 bits, or is not finite, would fail much later, or compare as false with everything."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(f"{where} must fit in 64 bits, and does not.")
    if not isfinite(value):
        raise InputError(f"{where} must be a finite number, not {value}.")
    return value


def model_spec(values: Mapping[str, Any], where: str) -> ModelSpec:
    """A model by `size = "0.8M"` or by its four numbers."""
    parts = tuple(f.name for f in fields(Architecture))
    others = tuple(f.name for f in fields(ModelSpec) if f.name != "architecture")
    check_keys(values, ("size", *parts, *others), where)
    given = [name for name in parts if name in values]
    if "size" not in values:
        if not given:
            raise InputError(f'{where}: give a size such as "0.8M", or {", ".join(parts)}.')
        architecture = from_mapping(Architecture, {name: values[name] for name in given}, where)
    elif given:
        raise InputError(f"{where}: give either size or {', '.join(given)}, not both.")
    else:
        architecture = get_size(_typed(values["size"], str, f"{where}: size"))
    rest = {name: values[name] for name in others if name in values}
    return from_mapping(ModelSpec, {**rest, "architecture": architecture}, where)


def run_spec(values: Mapping[str, Any], corpus: str, where: str) -> RunSpec:
    """A run from its tables [model], [router] and [train], on top of a recipe if it names one; the corpus is given by
    its content hash."""
    check_keys(values, (*RECIPE, "model", "router", "train"), where)
    recipe = _typed(values.get("recipe", ""), str, f"{where}: recipe")
    given, train = values.get("router", {}), values.get("train", {})
    if recipe and isinstance(given, Mapping) and isinstance(train, Mapping):
        settings = recipe_named(recipe, where)
        given = {**settings.router(canonical_router(str(given.get("name", DENSE)))), **given}
        train = {**settings.train, **train}
    router = from_mapping(RouterSpec, given, f"{where} [router]")
    if router.plugin:
        raise InputError(f"{where} [router]: plugin is filled in from the file of --plugin; leave it out.")
    return RunSpec(
        model=model_spec(values.get("model", {}), f"{where} [model]"),
        router=replace(router, plugin=router_file(router.name)),
        train=from_mapping(TrainSpec, train, f"{where} [train]"),
        corpus=corpus,
        recipe=recipe,
    )


def to_mapping(spec: RunSpec) -> dict[str, Any]:
    """The whole spec as plain values, defaults included: what is stored beside a run."""
    return asdict(spec)


def from_stored(values: Mapping[str, Any], where: str) -> RunSpec:
    """The inverse of `to_mapping`, as strict as a file of the user's: what is stored may be damaged, or be newer."""
    tables = ("model", "router", "train", "corpus")
    check_keys(values, (*tables, *RECIPE), where)
    for name in tables:
        if name not in values:
            raise InputError(f"{where}: {name} is missing.")
    return RunSpec(
        model=from_mapping(ModelSpec, values["model"], f"{where} [model]"),
        router=from_mapping(RouterSpec, values["router"], f"{where} [router]"),
        train=from_mapping(TrainSpec, values["train"], f"{where} [train]"),
        corpus=_typed(values["corpus"], str, f"{where}: corpus"),
        recipe=_typed(values.get("recipe", ""), str, f"{where}: recipe"),
    )


def differences(stored: RunSpec, asked: RunSpec) -> list[str]:
    """Fields in which two specs differ in meaning, as `table.field: stored → asked`."""
    found: list[str] = []

    def walk(one: Any, two: Any, where: str) -> None:
        if isinstance(one, dict) and isinstance(two, dict):
            for key in sorted({*one, *two}):
                walk(one.get(key, "default"), two.get(key, "default"), f"{where}.{key}" if where else key)
        elif one != two:
            found.append(f"{where}: {_short(one)} → {_short(two)}")

    walk(meaning_of(stored), meaning_of(asked), "")
    return found


def require_same_run(stored: RunSpec, asked: RunSpec, sentence: str) -> None:
    """Layout and cadence may differ, and are no part of a RunSpec; what the run means may not."""
    if stored.run_id != asked.run_id:
        raise InputError(f"{sentence} (stored → asked): {'; '.join(differences(stored, asked))}.")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"
