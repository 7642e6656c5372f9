"""The columns of the run table that a spec fixes."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from routelaw.errors import InputError
from routelaw.formatting import shortened
from routelaw.specs.run import RunSpec, meaning_of, named_settings
from routelaw.specs.sizes import size_label

LOSS_NAME = re.compile(r"[A-Za-z0-9_.-]+")
VALIDATION = "validation"
OWN_COLUMNS = ("steps", "batch", "learning_rate", "seed")
"""Settings of training that have columns of their own, or make one."""


def columns_of(spec: RunSpec) -> dict[str, Any]:
    """`recipe` names the settings of training that differ from the defaults and have no column of their own: with it,
    `learning_rate`, `batch_tokens` and `corpus`, runs that differ in more than their seed can be told apart."""
    counts = spec.counts
    recipe = {name: value for name, value in meaning_of(spec.train).items() if name not in OWN_COLUMNS}
    return {
        "run_id": spec.run_id,
        "router": spec.router.name,
        "variant": spec.variant,
        "size": size_label(counts.active_params),
        "experts": spec.router.experts,
        "k": spec.router.k,
        "routing_frequency": spec.routing_frequency,
        "seed": spec.train.seed,
        "tokens_planned": spec.tokens_after(spec.train.steps),
        **asdict(counts),
        "learning_rate": spec.train.learning_rate,
        "batch_tokens": spec.tokens_after(1),
        "recipe": named_settings(recipe),
        "corpus": spec.corpus[:12],
    }


def check_loss_name(name: str, where: str) -> None:
    """The name of a text becomes the column loss_NAME of a table."""
    if not LOSS_NAME.fullmatch(name):
        raise InputError(f"{where}: a text is named in letters, digits, _, . and -, not {shortened(name)!r}.")
    if name == VALIDATION:
        raise InputError(f"{where}: the name {name!r} is that of the corpus's own held-out text; choose another.")
