"""Variants: what a run's model differs in from its technique's defaults, and what is usual in a table.

A sweep may train every run of a router with the same option: rotary positions, weights that suit its length. Then the
option is not what its runs are compared by, and `relative_to_usual` writes every variant as its difference from what
is usual in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from routelaw.runs.table import RunTable
from routelaw.specs.names import DENSE

DEFAULT = "default"
"""The value that a variant has, relative to the usual one, where it stands at the technique's own default."""
COMMON_K, COMMON_FREQUENCY = 1, 0.5
TAKEN = "Taken: "


@dataclass(frozen=True)
class Usual:
    """What is usual in a table: the variant of each router, K and R."""

    variants: Mapping[str, str]
    k: int
    routing_frequency: float

    @property
    def notes(self) -> list[str]:
        """What was taken for usual where a reader could not guess it, a sentence each."""
        named = [f"{router}: {variant}" for router, variant in self.variants.items() if variant]
        sentences = [f"{TAKEN}each router's most frequent variant ({'; '.join(named)})."] if named else []
        if (self.k, self.routing_frequency) != (COMMON_K, COMMON_FREQUENCY):
            sentences.append(f"{TAKEN}K = {self.k} and R = {self.routing_frequency:.3g}, which most models have.")
        return sentences


def parts_of(variant: str) -> dict[str, str]:
    """Its settings: "capacity_factor=1,shared_decisions" is {"capacity_factor": "1", "shared_decisions": ""}."""
    pairs = (part.partition("=") for part in variant.split(",") if part)
    return {key: value for key, _, value in pairs}


def variant_of(parts: Mapping[str, str]) -> str:
    """The canonical text of settings: equal settings give equal text."""
    return ",".join(f"{key}={parts[key]}" if parts[key] else key for key in sorted(parts))


def usual_in(table: RunTable, chosen: Mapping[str, str] | None = None) -> Usual:
    """What most models of the table have: seeds of a model count once. `chosen` names the variants of some routers.

    K = 1 and R = 1/2 are usual wherever a routed model has both. Of several equally frequent variants the usual one is
    what they have in common. Dense models: the variant nearest to what routed models have, else the most frequent.
    """
    models = table.frame.drop_duplicates(["router", "variant", "size", "experts", "k", "routing_frequency"])
    routed, dense = models[models["router"] != DENSE], models[models["router"] == DENSE]
    variants = {str(router): _most_frequent(own["variant"]) for router, own in routed.groupby("router", sort=False)}
    variants |= chosen or {}
    if len(dense) and DENSE not in variants:
        variants[DENSE] = _of_dense(dense["variant"], list(variants.values()))
    common = (routed["k"] == COMMON_K) & np.isclose(routed["routing_frequency"], COMMON_FREQUENCY)
    if routed.empty or common.any():
        return Usual(variants, COMMON_K, COMMON_FREQUENCY)
    most = routed.value_counts(["k", "routing_frequency"]).index[0]
    return Usual(variants, int(most[0]), float(most[1]))


def _most_frequent(variants: pd.Series) -> str:
    counts = variants.value_counts()
    most = [parts_of(str(v)) for v in counts.index[counts == counts.max()]]
    return variant_of(dict(set.intersection(*(set(parts.items()) for parts in most))))


def _of_dense(variants: pd.Series, routed: list[str]) -> str:
    """The most settings that some dense model shares with the usual routed ones, whatever else these have."""
    counts = variants.value_counts()
    for usual in sorted(routed, key=routed.count, reverse=True):
        shared = [str(v) for v in counts.index if set(parts_of(str(v)).items()) <= set(parts_of(usual).items())]
        if shared:
            return max(shared, key=lambda v: len(parts_of(v)))
    return str(counts.index[0])


def relative_to_usual(table: RunTable, usual: Usual | None = None) -> RunTable:
    """The table with each variant as its difference from the usual one of its router; the notes say what was usual.

    A run that lacks a usual setting has it at the technique's default: `balance_weight=default`.
    """
    usual = usual or usual_in(table)
    if not any(usual.variants.values()):
        return replace(table, notes=(*table.notes, *usual.notes))
    parts = {router: parts_of(variant) for router, variant in usual.variants.items()}
    pairs = zip(table.frame["router"], table.frame["variant"], strict=True)
    relative = [_difference(parts_of(str(variant)), parts[str(router)]) for router, variant in pairs]
    frame = table.frame.assign(variant=pd.array(relative, dtype="str"))
    return replace(table, frame=frame, notes=(*table.notes, *usual.notes))


def _difference(parts: Mapping[str, str], usual: Mapping[str, str]) -> str:
    own = {key: value for key, value in parts.items() if usual.get(key) != value}
    return variant_of(own | dict.fromkeys(set(usual) - set(parts), DEFAULT))
