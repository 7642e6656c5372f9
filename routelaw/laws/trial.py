"""A plugin's law is tried on a few made-up points before it is fitted to anything.

What it returns goes into linear algebra, where a mistake would be an error of another file, or a wrong answer. Here it
is one sentence that names the plugin. Laws of the package have the contract tests instead.

Shapes: B parameter vectors, R weightings, S starts, N points, P parameters.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from routelaw.errors import InputError
from routelaw.formatting import shortened
from routelaw.laws.law import COLUMNS, Array, Constant, Inputs, Law, Parameter
from routelaw.plugins import fault_in_plugin

MOST_PARAMETERS, MOST_SEARCHES, LONGEST_NAME = 40, 1000, 60
TRACEBACK = "ROUTELAW_TRACEBACK"
"""As on the command line: whoever writes a plugin may want to see all of an error."""


def try_law(law: Law, path: Path) -> None:
    """Refuse a law that fitting could not use, or would use wrongly."""
    try:
        _check_description(law)
        with np.errstate(all="ignore"):
            _check_values(law)
    except InputError as error:
        raise InputError(f"plugin {path}: {error}") from None
    except (Exception, SystemExit) as error:
        if TRACEBACK in os.environ:
            raise
        fault = fault_in_plugin(error) or f"{path}: {type(error).__name__}: {shortened(error, 300)}"
        raise InputError(f"plugin {fault} (when its law is tried on a few points).") from error


def _check_description(law: Law) -> None:
    for name in ("name", "formula", "source"):
        value = getattr(law, name, None)
        if not isinstance(value, str) or not value.strip() or (name == "name" and len(value) > LONGEST_NAME):
            raise InputError(f"the {name} of a law is a short text, not {_described(value)}.")
    inputs = getattr(law, "inputs", None)
    if not isinstance(inputs, tuple) or not inputs or len(set(inputs)) < len(inputs):
        raise InputError(f"law {law.name} must name the columns that it reads, each once, as a tuple of texts.")
    for name in inputs:
        if name not in COLUMNS:
            raise InputError(f"law {law.name} reads {shortened(name)!r}; a law may read {', '.join(COLUMNS)}.")
    searches = law.searches
    if not _is_whole(searches) or not 1 <= searches <= MOST_SEARCHES:
        raise InputError(f"the searches of law {law.name} are a whole number from 1 to {MOST_SEARCHES}.")
    if not isinstance(law.along_training, bool):
        raise InputError(f"along_training of law {law.name} is True or False.")
    _check_parameters(law)
    _check_constants(law)


def _check_parameters(law: Law) -> None:
    parameters = getattr(law, "parameters", None)
    if not isinstance(parameters, tuple) or not all(isinstance(p, Parameter) for p in parameters):
        raise InputError(f"the parameters of law {law.name} are a tuple of Parameter(name, meaning, …).")
    if not 1 <= len(parameters) <= MOST_PARAMETERS:
        raise InputError(f"law {law.name} has {len(parameters)} parameters: 1 to {MOST_PARAMETERS} can be fitted.")
    names = [p.name for p in parameters]
    if not all(isinstance(text, str) and text for p in parameters for text in (p.name, p.meaning)):
        raise InputError(f"every parameter of law {law.name} needs a name and a meaning, two texts.")
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InputError(f"two parameters of law {law.name} are called {twice!r}; each needs a name of its own.")
    if tuple(law.names) != tuple(names):
        raise InputError(f"names of law {law.name} are not the names of its parameters: leave names as they are.")
    for p in parameters:
        if not (_is_number(p.low) and _is_number(p.high) and p.low < p.high):
            raise InputError(f"parameter {p.name!r} of law {law.name} needs a lower bound below its upper one.")
        if p.log and not p.low > 0:
            raise InputError(f"parameter {p.name!r} of law {law.name} is searched in log10: its bounds lie above 0.")
        if not isinstance(p.starts, tuple) or not all(_is_number(s) and p.low <= s <= p.high for s in p.starts):
            raise InputError(f"the starts of parameter {p.name!r} of law {law.name} are numbers within its bounds.")


def _check_constants(law: Law) -> None:
    constants = law.constants
    if not isinstance(constants, tuple) or not all(isinstance(c, Constant) for c in constants):
        raise InputError(f"the constants of law {law.name} are a tuple of Constant(name, meaning, of, …).")
    if not all(isinstance(text, str) and text for c in constants for text in (c.name, c.meaning)):
        raise InputError(f"every constant of law {law.name} needs a name and a meaning, two texts.")
    names = [*law.names, *(c.name for c in constants)]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InputError(f"two parameters or constants of law {law.name} are called {twice!r}.")


def _check_values(law: Law) -> None:
    """Call everything that a fit calls. Arguments are read-only: a law that changes them would change the data."""
    x, loss_N = _points()
    count, points = len(law.parameters), loss_N.size
    for params_BP in (_vectors(law, 5), _vectors(law, 1)):
        vectors = len(params_BP)
        log_loss_BN = _same_twice(law, "log_loss", lambda p=params_BP: law.log_loss(p, x))
        _check_array(law, "log_loss", log_loss_BN, (vectors, points), "vectors, points")
        own = {name: _fixed(np.tile(values_N[:vectors, None], 1)) for name, values_N in x.items()}
        _check_array(law, "log_loss", law.log_loss(params_BP, own), (vectors, 1), "vectors, points of their own")
        jac_BNP = law.jacobian(params_BP, x)
        _check_array(law, "jacobian", jac_BNP, (vectors, points, count), "vectors, points, parameters")
        if (np.isfinite(log_loss_BN) & ~np.isfinite(jac_BNP).all(-1)).all():
            raise InputError(f"jacobian of law {law.name} is nowhere finite, where log_loss is.")
        for constant in law.constants:
            _check_array(law, f"constant {constant.name!r}", constant.of(params_BP), (vectors,), "vectors")
        if "active_params" in law.inputs and set(law.inputs) <= {"active_params", "experts"}:
            _check_equivalence(law, params_BP, own)
    _check_starts(law, x, loss_N)


def _check_equivalence(law: Law, params_BP: Array, own: Inputs) -> None:
    """What effective parameters and cut-offs are found with."""
    pair = law.slopes(params_BP, own)
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise InputError(f"slopes of law {law.name} must be two arrays, by log N and by log E, not {_described(pair)}.")
    for slope_BN in pair:
        fits = isinstance(slope_BN, np.ndarray) and slope_BN.shape in ((len(params_BP), 1), (1, 1))
        if not fits or slope_BN.dtype != np.float64:
            raise InputError(
                f"slopes of law {law.name} must be float64 of (vectors, points), not {_described(slope_BN)}."
            )
    closed = law.log_cutoff(params_BP, 64.0)
    if closed is not None:
        _check_array(law, "log_cutoff", closed, (len(params_BP),), "vectors")


def _check_starts(law: Law, x: Inputs, loss_N: Array) -> None:
    weights_RN = _fixed(np.stack([np.ones(loss_N.size), np.arange(loss_N.size) % 3 + 1.0]))
    starts_RSP = _same_twice(law, "starts", lambda: law.starts(x, loss_N, weights_RN, 3))
    shape = starts_RSP.shape if isinstance(starts_RSP, np.ndarray) else ()
    if len(shape) != 3 or shape[0] != 2 or shape[1] < 1 or shape[2] != len(law.parameters):
        wanted = f"(weightings, starts, parameters), here (2, 1 or more, {len(law.parameters)})"
        raise InputError(f"starts of law {law.name} must have the shape {wanted}, not {_described(starts_RSP)}.")
    if starts_RSP.dtype != np.float64 or not np.isfinite(starts_RSP).all(-1).any():
        raise InputError(f"starts of law {law.name} must be finite float64 values, not {_described(starts_RSP)}.")
    at_starts_BN = law.log_loss(starts_RSP.reshape(-1, shape[2]), x)
    if not np.isfinite(at_starts_BN).any():
        raise InputError(f"law {law.name} has no finite prediction at any of its starts.")


def _same_twice(law: Law, what: str, call: Callable[[], Any]) -> Any:
    first, second = call(), call()
    arrays = isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and first.dtype == np.float64
    if arrays and not (first.shape == second.shape and np.array_equal(first, second, equal_nan=True)):
        raise InputError(f"{what} of law {law.name} returns something else every time: a law is a function.")
    return first


def _check_array(law: Law, what: str, value: Any, shape: tuple[int, ...], meaning: str) -> None:
    if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.shape != shape:
        wanted = f"float64 of shape {shape} ({meaning})"
        raise InputError(f"{what} of law {law.name} must return {wanted}, not {_described(value)}.")


def _points() -> tuple[dict[str, Array], Array]:
    """Three sizes by three expert counts, counted and with losses as real models have them."""
    active_N, experts_N = (v.ravel() for v in np.meshgrid([1.5e7, 1.3e8, 1.3e9], [1.0, 8.0, 64.0], indexing="ij"))
    x = {
        "active_params": active_N,
        "experts": experts_N,
        "k": np.array([1.0, 2.0, 4.0] * 3),
        "routing_frequency": np.full(active_N.size, 0.5),
        "total_params": active_N * (1 + 0.33 * (experts_N - 1)),
        "flops_per_token": 2.0 * active_N,
        "step": np.array([3e4, 1e5, 2.5e5] * 3),
        "tokens": np.array([2e10, 1e11, 4e11, 1e11, 4e11, 2e10, 4e11, 2e10, 1e11]),
        "granularity": np.array([1.0, 4.0, 2.0] * 3),
        "shared_experts": np.array([0.0, 1.0, 2.0] * 3),
        "embedding_params": 400 * np.sqrt(active_N),
        "batch_tokens": np.array([2.5e5, 5e5, 1e6] * 3),
        "learning_rate": np.array([4e-4, 2e-4, 3e-4] * 3),
    }
    u_N, v_N = np.log10(active_N), np.log10(experts_N)
    loss_N = 10.0 ** (1.08 - 0.08 * u_N - 0.09 * v_N + 0.0075 * u_N * v_N)
    return {name: _fixed(values_N) for name, values_N in x.items()}, _fixed(loss_N)


def _vectors(law: Law, count: int) -> Array:
    """Parameter vectors from the law's own starting values and bounds; small numbers where it names none."""
    columns = []
    for p in law.parameters:
        values = p.starts or tuple(v for v in (p.low, p.high) if np.isfinite(v)) or (-0.1, 0.1, 0.3)
        columns.append([float(values[i % len(values)]) for i in range(count)])
    return _fixed(np.array(columns).T.copy())


def _fixed(values: Array) -> Array:
    values.flags.writeable = False
    return values


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and value == value


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return shortened(repr(value)) if isinstance(value, str | int | float | None) else type(value).__name__
