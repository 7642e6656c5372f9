"""Published fits as named predictors, so that questions can be asked with no data at all.

Those of Clark et al. 2022 are fitted again to the losses that they released, at full precision and with intervals
(experiments/refit_clark2022.py). The paper prints three or four digits, within whose rounding N_cut = 10^(−b/c) moves
by orders of magnitude and RL-R and HASH change places: these are `clark2022-printed/…`. All others are as printed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from routelaw.errors import InputError
from routelaw.fitting.intervals import Resamples
from routelaw.laws import get_law
from routelaw.plans.predictor import Predictor
from routelaw.specs.names import DENSE, canonical_router, nearest_hint

REFITTED = Path(__file__).with_name("clark2022_fits.json")
Range = tuple[float, float]


@dataclass(frozen=True)
class Published:
    router: str
    law: str
    params: Mapping[str, float]
    source: str
    size_range: Range = (16_527_360, 1_308_819_456)
    experts_range: Range = (1, 512)
    tokens_range: Range | None = None
    """The tokens between which a law in tokens was fitted."""
    conventions: str = ""
    """How it counts, where that is not how everybody does."""
    warnings: tuple[str, ...] = ()
    resamples: Resamples | None = field(default=None, compare=False)


_PRINTED = "Clark et al. 2022, table of solutions to the joint law"
NO_ORDER = (
    "the three digits that the paper prints of a coefficient do not order RL-R and HASH: at 370M with 64 experts they "
    "give losses of 2.287 and 2.254, where fits of the same law to the released losses give 2.242 and 2.281: use "
    "clark2022/rl-r and clark2022/hash to compare the two."
)
UNORDERED = ("rl-r", "hash")
ANY: Range = (0.0, math.inf)
NO_RANGE = "between which sizes and expert counts it was fitted is not stated: whether it extrapolates cannot be told."

AS_PRINTED: dict[str, Published] = {
    "clark2022-printed/s-base": Published(
        "s-base", "saturated",
        {"a": -0.082, "b": -0.108, "c": 0.009, "d": 1.104, "e_start": 1.847, "e_max": 314.478}, _PRINTED,
    ),
    "clark2022-printed/rl-r": Published(
        "rl-r", "saturated",
        {"a": -0.083, "b": -0.126, "c": 0.012, "d": 1.111, "e_start": 1.880, "e_max": 469.982}, _PRINTED,
        warnings=(NO_ORDER,),
    ),
    "clark2022-printed/hash": Published(
        "hash", "saturated",
        {"a": -0.087, "b": -0.136, "c": 0.012, "d": 1.157, "e_start": 4.175, "e_max": 477.741}, _PRINTED,
        warnings=(NO_ORDER,),
    ),
    "clark2022-printed/dense": Published(
        "dense", "dense", {"a": -0.078, "d": 1.063},
        "Clark et al. 2022, table of transfer coefficients, dense on the validation set", experts_range=(1, 1),
    ),
    "hoffmann2022": Published(
        "dense", "chinchilla", {"a": 406.4, "alpha": 0.34, "b": 410.7, "beta": 0.28, "l_inf": 1.69},
        "Hoffmann et al. 2022, approach 3 as printed", (44e6, 16e9), (1, 1), (5e9, 5e11),
        conventions="N counts all parameters of a dense model.",
        warnings=(
            "the coefficients that Hoffmann et al. print do not fit their own figure; besiroglu2024 is fitted to it.",
        ),
    ),
    "besiroglu2024": Published(
        "dense", "chinchilla", {"a": 482.01, "alpha": 0.3478, "b": 2085.43, "beta": 0.3658, "l_inf": 1.8172},
        "Besiroglu et al. 2024, a refit of the losses of Hoffmann et al. 2022", (57e6, 16.2e9), (1, 1), (2.5e8, 3.2e11),
        conventions="N counts all parameters of a dense model; D is training FLOPs over 6·N.",
    ),
    "ludziejewski2025": Published(
        "moe", "ludziejewski2025-tokens",
        {
            "a": 35.91, "alpha": -0.1889, "delta": -0.2285, "gamma": 0.0098, "b": 35.98, "beta": -0.1775,
            "omega": 0.5529, "zeta": -0.0259, "e_start": 2.0732, "e_max": 290.4521, "c": 1.3637,
        },
        "Ludziejewski et al. 2025, table 3", (79e6, 2.7e9), (1, 32), (5e8, 8e10),
        conventions="N counts active parameters with embeddings.",
    ),
    "krajewski2024": Published(
        "moe", "krajewski2024",
        {"a": 18.1, "alpha": 0.115, "g": 2.1, "gamma": 0.58, "b": 30.8, "beta": 0.147, "c": 0.47},
        "Krajewski et al. 2024, table of fitted coefficients", (129e6, 3.7e9), (64, 64), (16e9, 130e9),
        conventions="N counts all parameters without embeddings, at an expansion rate of 64.",
    ),
    "krajewski2024/dense": Published(
        "dense", "chinchilla", {"a": 16.3, "alpha": 0.126, "b": 26.7, "beta": 0.127, "l_inf": 0.47},
        "Krajewski et al. 2024, dense models", (129e6, 3.7e9), (1, 1), (16e9, 130e9),
    ),
    "abnar2025": Published(
        "moe", "abnar2025-tokens",
        {
            "a": 16612.5, "alpha": 0.5962, "b": 5455.67, "beta": 0.3954, "c": 0.4598, "lambda": -0.1666, "d": 17.26,
            "delta": 0.1603, "gamma": 0.1595, "e": 0.94,
        },
        "Abnar et al. 2025, models of 3e19 to 1e21 training FLOPs", ANY, ANY,
        conventions="N counts all parameters.", warnings=(NO_RANGE,),
    ),
    "zhao2025": Published(
        "moe", "zhao2025",
        {
            "e": 0.1577, "f": 7.2446, "m": 5.1395, "n": -3.2363, "k": 0.0013, "h": 0.0450, "a": 38.051,
            "alpha": 0.2383, "b": 27129.05, "beta": 0.4694, "c": 31.096, "epsilon": 1.8182,
        },
        "Zhao et al. 2025, 446 runs", ANY, ANY,
        conventions="G is the number of experts that a token uses, S the share of them that are shared.",
        warnings=(NO_RANGE,),
    ),
}  # fmt: skip


@cache
def published_fits() -> Mapping[str, Published]:
    """Every published fit by name; the refits of the paper first."""
    stored = json.loads(REFITTED.read_text(encoding="utf-8"))
    refitted = {f"clark2022/{router}": _refit(router, entry) for router, entry in stored["fits"].items()}
    return {**refitted, **AS_PRINTED}


def _refit(router: str, entry: Mapping[str, Any]) -> Published:
    law = get_law(entry["law"])
    resamples = Resamples(
        law.row(entry["params"]), np.array(entry["resampled"], float), "size-bootstrap", int(entry["clusters"])
    )
    return Published(
        router,
        entry["law"],
        entry["params"],
        "Clark et al. 2022, its law fitted to the losses released with it",
        tuple(entry["size_range"]),
        tuple(entry["experts_range"]),
        resamples=resamples,
    )


def published(name: str) -> Predictor:
    """A published fit by name: something that predicts, and counts, with no data at all.

    >>> rl.published("clark2022/s-base").router
    's-base'
    """
    fits = published_fits()
    if name not in fits:
        raise InputError(f"no published fit {name!r}{nearest_hint(name, fits)}; there are {', '.join(fits)}.")
    entry = fits[name]
    law = get_law(entry.law)
    return Predictor(
        name,
        entry.router,
        law,
        law.row(entry.params),
        _source(entry),
        entry.size_range,
        entry.experts_range,
        draws=entry.resamples,
        warnings=entry.warnings,
        is_published=True,
    )


def _source(entry: Published) -> str:
    """Where it comes from, how it counts, and how long the runs behind it were trained."""
    tokens = entry.tokens_range
    trained = f"Fitted from {tokens[0]:.2g} to {tokens[1]:.2g} tokens." if tokens else ""
    more = " ".join(filter(None, (entry.conventions, trained)))
    return f"{entry.source}. {more}" if more else entry.source


def published_predictors(names: Sequence[str] = (), routers: Sequence[str] = ()) -> list[Predictor]:
    """The published fits of these names, or those of the paper for these routers: S-BASE, RL-R and HASH unless told
    otherwise."""
    if names:
        return [published(name) for name in dict.fromkeys(names)]
    known = {entry.router: name for name, entry in published_fits().items() if name.startswith("clark2022/")}
    wanted = list(dict.fromkeys(map(canonical_router, routers or [r for r in known if r != DENSE])))
    for router in wanted:
        if router not in known:
            hint, there = nearest_hint(router, known), ", ".join(known)
            raise InputError(f"no published fit of router {router!r}{hint}; there are {there}, or give a run table.")
    return [published(known[router]) for router in wanted]
