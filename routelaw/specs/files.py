"""Specs as TOML: strict, so that a typo is an error that names what was meant, never a silent default."""

from __future__ import annotations

import tomllib
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from routelaw.errors import InputError
from routelaw.specs.architecture import Architecture
from routelaw.specs.nearest import nearest_hint
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}.") from None


def from_mapping(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a spec from plain values; unknown, missing or mistyped keys are named with where they stand."""
    hints = get_type_hints(kind)
    known = {f.name: f for f in fields(kind) if f.init}  # pyrefly: ignore
    for key in values:
        if key not in known:
            raise InputError(f"{where}: unknown key {key!r}{nearest_hint(key, known)}; it takes {', '.join(known)}.")
    for name, f in known.items():
        if name not in values and f.default is MISSING and f.default_factory is MISSING:
            raise InputError(f"{where}: {name} is missing.")
    return kind(**{key: _typed(value, hints[key], f"{where}.{key}") for key, value in values.items()})


def _typed(value: Any, hint: Any, where: str) -> Any:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for option in options:
        plain = get_origin(option) or option
        if plain is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if plain is int and isinstance(value, bool):
            continue
        if isinstance(plain, type) and isinstance(value, plain):
            return value
    wanted = " or ".join(getattr(get_origin(o) or o, "__name__", str(o)) for o in options if o is not type(None))
    raise InputError(f"{where} must be {wanted}, not {value!r}.")


def model_spec(values: Mapping[str, Any], where: str) -> ModelSpec:
    """A model by `size = "0.8M"` or by its four numbers."""
    values = dict(values)
    numbers = {f.name: values.pop(f.name) for f in fields(Architecture) if f.name in values}
    if "size" in values:
        if numbers:
            raise InputError(f"{where}: give either size or {', '.join(numbers)}, not both.")
        architecture = get_size(values.pop("size"))
    else:
        architecture = from_mapping(Architecture, numbers, where)
    return from_mapping(ModelSpec, {**values, "architecture": architecture}, where)


def run_spec(values: Mapping[str, Any], corpus: str, where: str) -> RunSpec:
    """A run from its tables [model], [router] and [train]; the corpus is given by its content hash."""
    known = ("model", "router", "train")
    for key in values:
        if key not in known:
            raise InputError(f"{where}: unknown table [{key}]{nearest_hint(key, known)}.")
    return RunSpec(
        model=model_spec(values.get("model", {}), f"{where} [model]"),
        router=from_mapping(RouterSpec, values.get("router", {}), f"{where} [router]"),
        train=from_mapping(TrainSpec, values.get("train", {}), f"{where} [train]"),
        corpus=corpus,
    )


def to_mapping(spec: RunSpec) -> dict[str, Any]:
    """The whole spec as plain values, defaults included: what is stored beside a run."""
    return asdict(spec)


def from_stored(values: Mapping[str, Any], where: str) -> RunSpec:
    """The inverse of `to_mapping`."""
    model = dict(values["model"])
    architecture = from_mapping(Architecture, model.pop("architecture"), where)
    return RunSpec(
        model=from_mapping(ModelSpec, {**model, "architecture": architecture}, where),
        router=from_mapping(RouterSpec, values["router"], where),
        train=from_mapping(TrainSpec, values["train"], where),
        corpus=values["corpus"],
    )
