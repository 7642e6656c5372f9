"""Published coefficients as named predictors, so that questions can be asked with no data at all.

Clark et al. 2022 print three or four digits, within whose rounding N_cut = 10^(−b/c) moves by orders of magnitude: to
ask about it, fit the released table instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routelaw.errors import InputError
from routelaw.laws import get_law
from routelaw.plans.predictor import Predictor
from routelaw.specs.names import canonical_router, nearest_hint


@dataclass(frozen=True)
class Published:
    router: str
    law: str
    params: dict[str, float]
    source: str
    size_range: tuple[float, float] = (16_527_360, 1_308_819_456)
    experts_range: tuple[float, float] = (1, 512)


_FINAL = "Clark et al. 2022, table of solutions to the joint law"
NO_ORDER = (
    "the three digits that the paper prints of a coefficient do not order RL-R and HASH: at 370M with 64 experts they "
    "give losses of 2.287 and 2.254, where fits of the same law to the released losses give 2.242 and 2.281; fit the "
    "released table to compare the two (`routelaw data fetch`)."
)
UNORDERED = ("rl-r", "hash")

PUBLISHED: dict[str, Published] = {
    "clark2022/s-base": Published(
        "s-base", "saturated",
        {"a": -0.082, "b": -0.108, "c": 0.009, "d": 1.104, "e_start": 1.847, "e_max": 314.478}, _FINAL,
    ),
    "clark2022/rl-r": Published(
        "rl-r", "saturated",
        {"a": -0.083, "b": -0.126, "c": 0.012, "d": 1.111, "e_start": 1.880, "e_max": 469.982}, _FINAL,
    ),
    "clark2022/hash": Published(
        "hash", "saturated",
        {"a": -0.087, "b": -0.136, "c": 0.012, "d": 1.157, "e_start": 4.175, "e_max": 477.741}, _FINAL,
    ),
    "clark2022/dense": Published(
        "dense", "dense", {"a": -0.078, "d": 1.063},
        "Clark et al. 2022, table of transfer coefficients, dense on the validation set", experts_range=(1, 1),
    ),
}  # fmt: skip


def published(name: str) -> Predictor:
    """A published fit by name: something that predicts, and counts, with no data at all.

    >>> rl.published("clark2022/s-base").router
    's-base'
    """
    if name not in PUBLISHED:
        raise InputError(f"no published fit {name!r}{nearest_hint(name, PUBLISHED)}; there are {', '.join(PUBLISHED)}.")
    entry = PUBLISHED[name]
    law = get_law(entry.law)
    return Predictor(
        name,
        entry.router,
        law,
        law.row(entry.params),
        entry.source,
        entry.size_range,
        entry.experts_range,
        warnings=(NO_ORDER,) if entry.router in UNORDERED else (),
        is_published=True,
    )


def published_predictors(names: Sequence[str] = (), routers: Sequence[str] = ()) -> list[Predictor]:
    """The published fits of these names, or of these routers: S-BASE, RL-R and HASH unless told otherwise."""
    if names:
        return [published(name) for name in dict.fromkeys(names)]
    known = {entry.router: name for name, entry in PUBLISHED.items()}
    wanted = list(dict.fromkeys(map(canonical_router, routers or ("s-base", "rl-r", "hash"))))
    for router in wanted:
        if router not in known:
            hint, there = nearest_hint(router, known), ", ".join(known)
            raise InputError(f"no published fit of router {router!r}{hint}; there are {there}, or give a run table.")
    return [published(known[router]) for router in wanted]
