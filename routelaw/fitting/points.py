"""Which rows of a run table a fit takes, and what it leaves out.

A router's fit takes the last row with a value of each of its runs, and the dense runs as E = 1; runs that differ only
in their seed are averaged into one point; a law in (N, E) takes one (K, R). Whatever is left out is said.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.laws.law import Array, Law
from routelaw.runs.table import RunTable

DEFAULT_K, DEFAULT_FREQUENCY = 1, 0.5
NUMERIC = ("active_params", "experts", "k", "routing_frequency", "total_params", "flops_per_token", "step")
SAME_MODEL = ["router", "variant", "size", "active_params", "experts", "k", "routing_frequency"]


@dataclass(frozen=True, eq=False)
class Points:
    """What a law is fitted to: one entry per model (and step, for laws of training curves)."""

    router: str
    target: str
    x: Mapping[str, Array]
    loss: Array
    weight: Array
    size: Array
    """Label of the model size of each point: the clusters of leave-size-out and of the cluster bootstrap."""
    dense: Array
    """True for dense runs standing in as E = 1."""
    left_out: tuple[str, ...] = ()
    source: str = ""

    def __len__(self) -> int:
        return len(self.loss)

    @property
    def log_loss(self) -> Array:
        return np.log10(self.loss)

    @property
    def sizes(self) -> list[str]:
        """Distinct sizes, smallest first."""
        order = {s: n for s, n in sorted(zip(self.size, self.x["active_params"], strict=True), key=lambda p: p[1])}
        return list(order)

    def where(self, mask: Array, note: str = "") -> Points:
        """The points under a mask; `note` says why the others are left out."""
        return replace(
            self,
            x={k: v[mask] for k, v in self.x.items()},
            loss=self.loss[mask],
            weight=self.weight[mask],
            size=self.size[mask],
            dense=self.dense[mask],
            left_out=(*self.left_out, note) if note else self.left_out,
        )


def select_points(
    table: RunTable,
    router: str,
    law: Law | None = None,
    *,
    target: str = "loss_validation",
    include_dense: bool = True,
    k: int | None = None,
    routing_frequency: float | None = None,
    mixed: bool | None = None,
    variant: str = "",
    experts: Collection[int] | None = None,
    sizes: Collection[str] | None = None,
    average_seeds: bool = True,
    weight_column: str | None = None,
    up_to_step: int | None = None,
) -> Points:
    """The points of one router. `mixed` keeps every (K, R): the default for laws that do not read `experts`."""
    frame = _rows_of(table, router, target, include_dense)
    left_out: list[str] = []
    frame = _keep(frame, frame["status"] == "finished", "not finished", left_out)
    frame = _keep(frame, frame["variant"] == variant, f"of another variant than {variant!r}", left_out)
    frame = frame[frame[target].notna()]
    if up_to_step is not None:
        frame = frame[frame["step"] <= up_to_step]
    along = law is not None and law.along_training
    if along:
        frame = _keep(frame, frame["step"] > 0, "before the first step", left_out)
    else:
        frame = frame.sort_values("step", kind="stable").groupby("run_id", sort=False).tail(1)
    if mixed is None:
        mixed = law is not None and "experts" not in law.inputs and "flops_per_token" in law.inputs
    if not mixed:
        frame = _one_architecture(frame, k, routing_frequency, left_out)
    if experts is not None:
        frame = _keep(frame, frame["experts"].isin(list(experts)), "with an E not asked for", left_out)
    if sizes is not None:
        unknown = [s for s in sizes if s not in set(frame["size"])]
        if unknown:
            raise InputError(
                f"{table.source}: no run of {router} has size {unknown[0]!r}; there are {', '.join(_ordered_sizes(frame))}."
            )
        frame = _keep(frame, frame["size"].isin(list(sizes)), "of a size not asked for", left_out)
    if frame.empty:
        raise InputError(
            f"{table.source}: no finished run of {router} is left to fit ({'; '.join(left_out) or 'none'})."
        )
    points = _to_points(frame, router, target, average_seeds, weight_column, table.source)
    return replace(points, left_out=tuple(left_out))


def _rows_of(table: RunTable, router: str, target: str, include_dense: bool) -> pd.DataFrame:
    frame = table.frame
    if target not in frame:
        raise InputError(f"{table.source}: no column {target!r}; the losses are {', '.join(table.losses)}.")
    if router not in table.routers:
        nearest = difflib.get_close_matches(router, table.routers, n=1, cutoff=0.3)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise InputError(f"{table.source}: unknown router {router!r}: {hint}the table has {', '.join(table.routers)}.")
    wanted = [router, "dense"] if include_dense else [router]
    return frame[frame["router"].isin(wanted)]


def _one_architecture(
    frame: pd.DataFrame, k: int | None, routing_frequency: float | None, left_out: list[str]
) -> pd.DataFrame:
    """One (K, R) for a law in (N, E): the one asked for, else the only one, else K = 1, R = 0.5."""
    routed = frame["router"] != "dense"
    seen_k, seen_r = sorted(set(frame["k"][routed])), sorted(set(frame["routing_frequency"][routed]))
    chosen_k = k if k is not None else (seen_k[0] if len(seen_k) == 1 else DEFAULT_K)
    if routing_frequency is not None:
        chosen_r = routing_frequency
    else:
        chosen_r = seen_r[0] if len(seen_r) == 1 else DEFAULT_FREQUENCY
    frame = _keep(frame, ~routed | (frame["k"] == chosen_k), f"with K other than {chosen_k}", left_out)
    same_r = np.isclose(frame["routing_frequency"], chosen_r)
    return _keep(frame, (frame["router"] == "dense") | same_r, f"with R other than {chosen_r:g}", left_out)


def _keep(frame: pd.DataFrame, mask: pd.Series | Array, why_not: str, left_out: list[str]) -> pd.DataFrame:
    dropped = frame[~mask]
    if len(dropped):
        runs = dropped["run_id"].nunique()
        left_out.append(f"{runs} run{'s' if runs > 1 else ''} {why_not}")
    return frame[mask]


def _ordered_sizes(frame: pd.DataFrame) -> list[str]:
    return list(frame.sort_values("active_params")["size"].unique())


def _to_points(
    frame: pd.DataFrame, router: str, target: str, average_seeds: bool, weight_column: str | None, source: str
) -> Points:
    frame = frame.assign(_weight=1.0)
    if weight_column is not None:
        if weight_column not in frame:
            raise InputError(f"{source}: no column {weight_column!r} to take weights from.")
        frame["_weight"] = pd.to_numeric(frame[weight_column], errors="coerce")
        if not (np.isfinite(frame["_weight"]) & (frame["_weight"] >= 0)).all():
            raise InputError(f"{source}: column {weight_column!r} holds weights that are not numbers of at least 0.")
    if average_seeds:
        # Seeds may end an evaluation apart; models that differ in the seed alone are one point, whatever their last step.
        numeric = [c for c in NUMERIC if c not in SAME_MODEL]
        per_step = ["step"] if frame["run_id"].duplicated().any() else []
        numeric = [c for c in numeric if c not in per_step]
        aggregate = {**dict.fromkeys([target, *numeric, "_weight"], "mean")}
        frame = frame.groupby([*SAME_MODEL, *per_step], sort=False, dropna=False).agg(aggregate).reset_index()
    dense = (frame["router"] == "dense").to_numpy()
    experts = np.where(dense, 1.0, frame["experts"].to_numpy(float))
    frame = frame.assign(experts=experts).sort_values(["active_params", "experts"], kind="stable")
    return Points(
        router=router,
        target=target,
        x={name: frame[name].to_numpy(float, na_value=np.nan) for name in NUMERIC},
        loss=frame[target].to_numpy(float),
        weight=frame["_weight"].to_numpy(float),
        size=frame["size"].to_numpy(object),
        dense=(frame["router"] == "dense").to_numpy(),
        source=source,
    )
