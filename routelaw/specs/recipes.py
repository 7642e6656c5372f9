"""Recipes by name: settings that a publication used together, for `recipe = "…"` in the file of a run or a sweep.

A recipe stands below everything else: what a file, a rule or an option says wins over it. It is a way to write settings
down and no part of what a run means, so a run has the same id with it and with the same settings spelled out. It does
count where runs are named: `variant` says in what a run differs from its recipe, and the column `recipe` which that is.

What a recipe leaves out stands at the default of the field or of the technique; a test says that these are its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from routelaw.errors import InputError
from routelaw.specs.names import DENSE, nearest_hint


@dataclass(frozen=True)
class Recipe:
    train: Mapping[str, Any]
    """What every run has."""
    routed: Mapping[str, Any]
    """[router] of every routed run."""
    of_router: Mapping[str, Mapping[str, Any]]
    """[router] of the runs of one technique, over that."""

    def router(self, name: str) -> dict[str, Any]:
        return {} if name == DENSE else {**self.routed, **self.of_router.get(name, {})}


SHUFFLED = {"shuffle_groups": 4}
RECIPES = {
    # Clark et al. 2022: section 2 and appendix A for training, C.2 for the capacity, B.1 to B.3 for the weights of
    # losses, which are the techniques' own defaults. Before S-BASE balances them, tokens are shuffled between all
    # devices (B.2); how many there were is not said, and four groups are ours.
    "clark2022": Recipe(
        train={
            "steps": 250_000, "batch": 256, "learning_rate": 2e-4, "warmup_steps": 1500, "start_rate": 1e-7,
            "final_share": 0.1,
        },
        routed={"capacity_factor": 2.0},
        of_router={"s-base": SHUFFLED, "base": SHUFFLED},
    ),
}  # fmt: skip


def recipe_named(name: str, where: str) -> Recipe:
    if name not in RECIPES:
        raise InputError(
            f"{where}: unknown recipe {name!r}{nearest_hint(name, RECIPES)}; there is {', '.join(RECIPES)}."
        )
    return RECIPES[name]
