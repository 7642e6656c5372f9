"""What must hold within and between the fields of a run, each in one sentence.

Nothing here knows a technique: what only one of them wants is checked by its own file, when the model is built.
"""

from __future__ import annotations

from dataclasses import fields
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from routelaw.errors import InputError
from routelaw.specs.counting import PLACEMENTS, POSITIONS, routed_positions
from routelaw.specs.names import DENSE

if TYPE_CHECKING:
    from routelaw.specs.run import RouterSpec, RunSpec

ABOVE_ZERO = (
    "train.steps", "train.batch", "train.learning_rate", "train.clip", "model.sequence_length", "model.vocabulary",
    "router.experts", "router.shuffle_groups", "router.shared_slots", "router.ffws_per_expert",
)  # fmt: skip
ZERO_OR_MORE = (
    "train.warmup_steps", "train.start_rate", "train.weight_decay", "router.group_tokens", "router.balance_weight",
    "router.capacity_factor",
)  # fmt: skip
MOST = {
    "train.steps": 10**12, "train.batch": 10**9, "train.warmup_steps": 10**12, "model.sequence_length": 10**8,
    "model.vocabulary": 2**31, "router.experts": 10**6, "router.shuffle_groups": 10**9, "router.group_tokens": 10**12,
    "router.ffws_per_expert": 1000, "router.balance_weight": 10**9, "router.capacity_factor": 10**6,
    "train.learning_rate": 1e30, "train.start_rate": 1e30, "train.weight_decay": 1e6, "train.clip": 1e30,
}  # fmt: skip
"""Beyond these a number is a slip of the pen. They keep counts within 64 bits, rates within
float32 and lists within memory."""
WIDEST = {"d_model": 10**6, "blocks": 10**4, "heads": 10**5, "kv_size": 10**5}
SHARES = {"train.final_share": 1.0, "train.beta1": None, "train.beta2": None}
"""Between 0 and this, or below 1 where there is none."""


def check(spec: RunSpec) -> None:
    """Raise an InputError for the first thing that cannot be."""
    _check_ranges(spec)
    if spec.model.positions not in POSITIONS:
        raise InputError(f"model.positions is {' or '.join(POSITIONS)}, not {spec.model.positions!r}.")
    if spec.model.positions == "rope" and spec.model.architecture.kv_size % 2:
        raise InputError(
            f"rotary positions turn pairs, so kv_size must be even, not {spec.model.architecture.kv_size}."
        )
    if not 0 <= spec.train.seed < 2**63:
        raise InputError(f"train.seed must be a whole number from 0 to 2^63 − 1, not {spec.train.seed:.3g}.")
    if spec.router.name == DENSE:
        _check_dense(spec.router)
    else:
        _check_routing(spec)


def _check_ranges(spec: RunSpec) -> None:
    def of(name: str) -> float:
        table, key = name.split(".")
        value = getattr(getattr(spec, table), key)
        return 0.0 if value is None else value

    for name in (*ABOVE_ZERO, *ZERO_OR_MORE, *SHARES):
        if not isfinite(of(name)):
            raise InputError(f"{name} must be a finite number, not {of(name)}.")
    for name in ABOVE_ZERO:
        if of(name) <= 0:
            raise InputError(f"{name} must be above 0, not {of(name):g}.")
    for name in ZERO_OR_MORE:
        if of(name) < 0:
            raise InputError(f"{name} must be 0 or more, not {of(name):g}.")
    for name, largest in MOST.items():
        if of(name) > largest:
            raise InputError(f"{name} must be at most {largest:,.12g}, not {of(name):.6g}.")
    for name, largest in WIDEST.items():
        if (value := getattr(spec.model.architecture, name)) > largest:
            raise InputError(f"model.{name} must be at most {largest:,}, not {value:,}.")
    for name, most in SHARES.items():
        if not 0 <= of(name) <= (most or inf) or (most is None and of(name) >= 1):
            raise InputError(f"{name} must be at least 0 and {'at most' if most else 'below'} 1, not {of(name):g}.")


def _check_dense(router: RouterSpec) -> None:
    """Fields without a meaning are refused: they would give one model many names."""
    if router.experts != 1:
        raise InputError(f"a dense model has one expert, not {router.experts}; name a router to have more.")
    plain = type(router)()
    for f in fields(router):
        if getattr(router, f.name) != getattr(plain, f.name):
            raise InputError(f"a dense model has no router that router.{f.name} could be for: leave it out.")


def _check_routing(spec: RunSpec) -> None:
    model, router, train = spec.model, spec.router, spec.train
    if not 1 <= router.k <= router.experts:
        raise InputError(f"router.k must lie between 1 and experts = {router.experts}, not {router.k}.")
    if router.experts % router.shared_slots:
        raise InputError(f"router.shared_slots = {router.shared_slots} must divide experts = {router.experts}.")
    if spec.group_tokens % model.sequence_length:
        raise InputError(
            f"router.group_tokens = {spec.group_tokens} must be a whole number of sequences of {model.sequence_length}."
        )
    batch_tokens = train.batch * model.sequence_length
    block_tokens = spec.block_tokens
    if batch_tokens % block_tokens:
        raise InputError(
            f"a batch of {batch_tokens} tokens does not hold whole shuffle blocks of {block_tokens} "
            f"({router.shuffle_groups} groups of {spec.group_tokens}): change train.batch or router.group_tokens."
        )
    placed = routed_positions(model.architecture.blocks, router.routing_frequency, router.placement)
    asked = router.routing_frequency if router.routing_frequency != type(router)().routing_frequency else None
    listed = router.placement not in PLACEMENTS
    if listed and asked is not None and round(asked * model.architecture.blocks) != len(placed):
        raise InputError(
            f"router.placement names {len(placed)} blocks and router.routing_frequency = {asked:g} asks for another "
            "number: leave the frequency out."
        )
    _check_options(router.options)


def _check_options(options: dict[str, Any]) -> None:
    for key, value in options.items():
        for part in value if isinstance(value, list | tuple) else (value,):
            if not isinstance(part, str | int | float | None) or (isinstance(part, float) and not isfinite(part)):
                raise InputError(f"router.options.{key} must be text, a number or true or false, not {value!r}.")
