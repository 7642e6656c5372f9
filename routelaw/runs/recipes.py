"""Variants where a table has runs with and without a recipe (specs/recipes.py).

A run of a recipe has a variant relative to it: S-BASE as the paper has it has none, though its tokens are shuffled. So
has S-BASE at the defaults, which shuffles nothing. Together in a table they would pass for the same: then variants of
that router are all written relative to the defaults.
"""

from __future__ import annotations

from dataclasses import fields

import pandas as pd

from routelaw.specs.recipes import RECIPES
from routelaw.specs.run import RouterSpec, default_of, meaning_of, named_settings


def of_one_recipe(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """The rows of a router that has several recipes (none is one, too) without a recipe: what it sets is spelled out in
    `variant`, as it is where nobody named the recipe. `frame` has canonical routers and variants."""
    if "recipe" not in frame:
        return frame
    named = pd.Series([_name_in(cell) for cell in frame["recipe"]], index=frame.index)
    several = named.groupby(frame["router"]).transform("nunique") > 1
    changed = several & (named != "")
    if not changed.any():
        return frame
    rows = frame[changed]
    spelled = [_spelled_out(*row) for row in zip(rows["variant"], rows["router"], named[changed], strict=True)]
    frame = frame.copy()
    frame.loc[changed, "variant"] = spelled
    frame.loc[changed, "recipe"] = [str(cell).partition(",")[2] for cell in rows["recipe"]]
    routers, recipes = (", ".join(sorted({str(v) for v in cells[changed]})) for cells in (frame["router"], named))
    notes.append(
        f"Some runs of {routers} have the recipe {recipes} and others none: its settings are in their variant."
    )
    return frame


def _name_in(recipe: object) -> str:
    first = recipe.partition(",")[0] if isinstance(recipe, str) else ""
    return first if first in RECIPES else ""


def _spelled_out(variant: str, router: str, recipe: str) -> str:
    """The variant relative to the defaults: with the recipe's settings, without those that were put back to them."""
    defaults = {f.name: default_of(f) for f in fields(RouterSpec)}
    settings = RECIPES[recipe].router(router)
    parts = {part.partition("=")[0]: part for part in variant.split(",") if part}
    parts = {name: named_settings({name: meaning_of(value)}) for name, value in settings.items()} | parts
    at_default = {name for name in settings if parts[name] == named_settings({name: meaning_of(defaults[name])})}
    return ",".join(parts[name] for name in sorted(set(parts) - at_default))
