"""Which rows of a run table a fit takes, and what it leaves out.

A router's fit takes the last row with a value of each of its runs, and the dense runs as E = 1; runs that differ only
in their seed are averaged into one point; a law takes one value of K, R, granularity and shared experts where it reads
none, and one length of training where it reads no tokens. Whatever is left out is said.
Which runs are seeds of one model is decided in `noise.py`; those that look like it and are not are separate points, and
a warning says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.fitting.lengths import along_training, check_tokens, lengths_apart, one_length, reads_length
from routelaw.fitting.noise import SAME_MODEL, averaged_in_doubt, kept_apart, seed_groups
from routelaw.laws.kaplan2020_smin import InMinSteps
from routelaw.laws.law import COLUMNS, Array, Law
from routelaw.runs.table import DESCRIPTION, FINISHED, LOSS_PREFIX, SOURCE, RunTable, last_rows, last_status
from routelaw.specs.names import DENSE, OPTIONS, canonical_router, nearest_hint
from routelaw.specs.run import RouterSpec

DEFAULT_K, DEFAULT_FREQUENCY = 1, 0.5
USUAL = {"granularity": 1.0, "shared_experts": 0.0}
"""What a law that does not read these columns takes, where a table mixes several."""
CORPUS = "corpus"
WIDEST_WEIGHTS = 1e12
"""The largest weight over the smallest: beyond it the small ones are rounding."""


@dataclass(frozen=True, eq=False)
class Points:
    """What a law is fitted to: one entry per model (and step, for laws of training curves).

    >>> points = rl.select_points(table, "hash")
    >>> points
    Points(hash, loss_validation: 20 of 4 sizes)
    >>> len(points), int(points.x["experts"].max())
    (20, 128)
    """

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
    warnings: tuple[str, ...] = ()
    source: str = ""
    model: Array | None = None
    """Number of the model that each point is, or is a seed of; None where nobody counted."""

    def __len__(self) -> int:
        return len(self.loss)

    def __repr__(self) -> str:
        return f"Points({self.router}, {self.target}: {len(self)} of {len(self.sizes)} sizes)"

    @property
    def log_loss(self) -> Array:
        return np.log10(self.loss)

    @property
    def sizes(self) -> list[str]:
        """Distinct sizes, smallest first."""
        return list(dict.fromkeys(self.size[np.argsort(self.x["active_params"], kind="stable")]))

    def by_size(self) -> Iterator[tuple[str, float, Points]]:
        """Each size with its active parameters and its points, smallest first."""
        for size in self.sizes:
            group = self.where(self.size == size)
            yield size, float(group.x["active_params"][0]), group

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
            model=None if self.model is None else self.model[mask],
        )


def knows_routing(law: Law) -> bool:
    """Whether a law tells routed models from dense ones: by E, by total parameters or by compute."""
    return bool({"experts", "total_params", "flops_per_token"} & set(law.inputs))


def takes_every_architecture(law: Law | None) -> bool:
    """Whether a law tells models of any K, R, granularity and shared experts apart: by compute, or by both counts of
    parameters."""
    if law is None:
        return False
    by_compute = "flops_per_token" in law.inputs and "experts" not in law.inputs
    return by_compute or {"active_params", "total_params"} <= set(law.inputs)


def in_size_and_experts(law: Law) -> bool:
    """A law in (N, E): what effective parameters, cut-offs and b(N) need."""
    return set(law.inputs) == {"active_params", "experts"}


def has_finished(table: RunTable, router: str, target: str | None = None) -> bool:
    """Whether a router has any run that a fit could take: with a value of `target`, if one is named."""
    rows = table.frame[table.frame["router"] == router]
    finished = last_status(rows) == FINISHED
    if target is not None:
        finished &= rows[target].notna().groupby(rows["run_id"]).transform("any")
    return bool(finished.any())


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
    variant: str | None = None,
    experts: Collection[int] | None = None,
    sizes: Collection[str] | None = None,
    average_seeds: bool = True,
    weight_column: str | None = None,
    up_to_step: int | None = None,
    every_length: bool | None = None,
) -> Points:
    """The points of one router. `mixed` keeps every architecture: the default for laws that tell them apart by their
    compute or their parameters. `every_length` keeps every length of training: the default for laws in tokens.

    What is left out, and why, is part of the result, as `left_out` and `warnings`.

    >>> rl.select_points(table, "s-base", sizes=["15M", "60M"]).sizes
    ['15M', '60M']
    """
    router = canonical_router(router)
    check_one_source(table)
    frame = _rows_of(table, router, target, include_dense)
    left_out: list[str] = []
    frame = one_corpus(frame, left_out)
    frame = keep(frame, last_status(frame) == FINISHED, "not finished", left_out)
    variant = _one_variant(frame, router, variant, table.source)
    frame = keep(frame, _of_variant(frame, router, variant), f"of another variant than {variant!r}", left_out)
    measured = frame[target].notna().groupby(frame["run_id"]).transform("any")
    frame = keep(frame, measured, f"without a value of {target}", left_out)
    frame = frame[frame[target].notna()]
    if up_to_step is not None:
        frame = frame[frame["step"] <= up_to_step]
    if law is not None and law.along_training:
        frame = along_training(frame, law, table.source, left_out)
    else:
        frame = last_rows(frame)
        if not (reads_length(law) if every_length is None else every_length):
            frame = one_length(frame, left_out, keep)
    if not (takes_every_architecture(law) if mixed is None else mixed):
        frame = _one_architecture(frame, k, routing_frequency, left_out, table.source, law)
    if experts is not None:
        frame = keep(frame, frame["experts"].isin(list(experts)), "with an E not asked for", left_out)
    if sizes is not None:
        for size in sizes:
            _check_named(size, frame.sort_values("active_params")["size"], "size", router, table.source)
        frame = keep(frame, frame["size"].isin(list(sizes)), "of a size not asked for", left_out)
    frame = frame.assign(_weight=_weights(frame, weight_column, table.source))
    frame = keep(frame, frame["_weight"] > 0, "of weight 0", left_out)
    if not (frame["router"] == router).any():
        because = f": left out are {'; '.join(left_out)}" if left_out else ""
        raise InputError(f"{table.source}: no run of {router} is left to fit{because}.")
    if law is not None and not knows_routing(law) and frame["experts"].nunique() > 1 and not mixed:
        raise InputError(
            f"{table.source}: law {law.name} knows nothing of E, and the runs of {router} have several: "
            f"fit it to dense runs, or choose a law in (N, E)."
        )
    points = _to_points(frame, router, target, average_seeds, table.source)
    warnings = [*table.warnings, *kept_apart(frame, law.inputs if law else ())]
    if average_seeds:
        warnings += averaged_in_doubt(frame, weight_column)
    if law is not None and reads_length(law):
        warnings += check_tokens(frame, law, table.source)
    elif law is None or not law.along_training:
        warnings += lengths_apart(frame)
    if isinstance(law, InMinSteps) and target != "loss_validation":
        warnings.append(f"B_crit is taken at {target}, and Kaplan's is that of the loss on the text of training.")
    return replace(points, left_out=tuple(left_out), warnings=tuple(warnings))


def one_corpus(frame: pd.DataFrame, left_out: list[str]) -> pd.DataFrame:
    """Losses on different texts cannot be compared: of several corpora, the one of most runs."""
    if CORPUS not in frame or frame[CORPUS].nunique() < 2:
        return frame
    commonest = frame.groupby(CORPUS)["run_id"].nunique().sort_index().idxmax()
    alike = frame[CORPUS].isna() | (frame[CORPUS] == commonest)
    return keep(frame, alike, f"of another corpus than {commonest}", left_out)


def _rows_of(table: RunTable, router: str, target: str, include_dense: bool) -> pd.DataFrame:
    frame = table.frame
    if target not in table.losses:
        hint = nearest_hint(target, table.losses)
        raise InputError(f"{table.source}: no loss {target!r}{hint}; the losses are {', '.join(table.losses)}.")
    if router not in table.routers:
        hint, there = nearest_hint(router, table.routers), ", ".join(table.routers)
        raise InputError(f"{table.source}: no run of router {router!r}{hint}; the table has {there}.")
    frame = frame[frame["router"].isin([router, DENSE] if include_dense else [router])]
    # E, K and R mean nothing for a dense model: whatever a table says there, it is one and the same.
    dense = frame["router"] == DENSE
    nothing = {name: frame[name].mask(dense, usual) for name, usual in USUAL.items() if name in frame}
    return frame.assign(
        **nothing,
        total_params=frame["total_params"].where(~dense | frame["total_params"].notna(), frame["active_params"]),
        experts=frame["experts"].mask(dense, 1),
        k=frame["k"].mask(dense, DEFAULT_K),
        routing_frequency=frame["routing_frequency"].mask(dense, DEFAULT_FREQUENCY),
    )


def check_one_source(table: RunTable) -> None:
    """Tables put together by `runs export --all` say whose a run is: no law holds for several corpora and recipes."""
    names = [str(name) for name in table.frame[SOURCE].unique()] if SOURCE in table.frame else []
    if len(names) > 1:
        raise InputError(
            f"{table.source}: its runs were put together from several tables ({', '.join(names[:4])}); no law holds "
            f"for them all: keep the rows of one {SOURCE}."
        )


def _one_variant(frame: pd.DataFrame, router: str, asked: str | None, source: str) -> str:
    """The variant asked for; else the technique's defaults; else the only one that there is, if the dense runs are of
    it too or could not be: nothing is mixed then."""
    there = frame["variant"][frame["router"] == router]
    if asked is not None:
        _check_named(asked, there, "variant", router, source)
        return asked
    [first, *others] = there.unique() if len(there) else [""]
    shared = (frame["variant"][frame["router"] == DENSE] == first).any()
    return first if not others and (shared or _of_the_router(first)) else ""


def _of_variant(frame: pd.DataFrame, router: str, variant: str) -> pd.Series:
    """Its runs, and the dense ones of the same variant; else of as much of it as dense ones have; where the router
    alone varies, the plain dense ones."""
    dense, same = frame["router"] == DENSE, frame["variant"] == variant
    if router == DENSE or (dense & same).any():
        return same
    shared = [v for v in frame["variant"][dense].unique() if v and set(v.split(",")) < set(variant.split(","))]
    if shared:
        return same | (dense & (frame["variant"] == max(shared, key=lambda v: v.count(","))))
    return same | (dense & (frame["variant"] == "")) if _of_the_router(variant) else same


def _of_the_router(variant: str) -> bool:
    """Whether a variant names fields and options of the router alone, which a dense model does not have."""
    known = {f.name for f in fields(RouterSpec)} | OPTIONS
    return all(part.partition("=")[0] in known for part in variant.split(",")) if variant else False


def _check_named(name: str, there: pd.Series, what: str, router: str, source: str) -> None:
    """A default that no run stands at (the empty variant) is left to the sentence about what was left out."""
    names = [n for n in there.unique() if n]
    if name and name not in names:
        known = f"there {'are' if len(names) > 1 else 'is'} {', '.join(names)}" if names else "no run names one"
        raise InputError(f"{source}: no run of {router} has {what} {name!r}{nearest_hint(name, names)}; {known}.")


def _one_architecture(
    frame: pd.DataFrame,
    k: int | None,
    routing_frequency: float | None,
    left_out: list[str],
    source: str,
    law: Law | None,
) -> pd.DataFrame:
    """One value each of K, R, granularity and shared experts, of those that the law does not read: the one asked for,
    else the only one, else K = 1, R = 0.5, G = 1 and no shared expert (else the commonest of the last two)."""
    read = law.inputs if law else ()
    for name, usual in USUAL.items():
        routed = frame["router"] != DENSE
        seen = frame[name][routed] if name in frame and name not in read else pd.Series(dtype=float)
        if seen.nunique() > 1:
            chosen = usual if (seen == usual).any() else seen.mode().iloc[0]
            frame = keep(frame, ~routed | (frame[name] == chosen), f"with {name} other than {chosen:g}", left_out)
    routed = frame["router"] != DENSE
    seen_k, seen_r = sorted(set(frame["k"][routed])), sorted(set(frame["routing_frequency"][routed]))
    chosen_k = k if k is not None else (seen_k[0] if len(seen_k) == 1 else DEFAULT_K)
    if routing_frequency is not None:
        chosen_r = routing_frequency
    else:
        chosen_r = seen_r[0] if len(seen_r) == 1 else DEFAULT_FREQUENCY
    same_k = (frame["k"] == chosen_k) | ("k" in read)
    same_r = np.isclose(frame["routing_frequency"], chosen_r) | ("routing_frequency" in read)
    if routed.any() and not (routed & same_k & same_r).any():
        pairs = sorted(set(zip(frame["k"][routed], frame["routing_frequency"][routed], strict=True)))
        there = ", ".join(f"K = {pair_k} with R = {pair_r:g}" for pair_k, pair_r in pairs)
        router = frame["router"][routed].iloc[0]
        raise InputError(f"{source}: no run of {router} has K = {chosen_k} and R = {chosen_r:g}; there is {there}.")
    frame = keep(frame, ~routed | same_k, f"with K other than {chosen_k}", left_out)
    routed = frame["router"] != DENSE
    same_r = np.isclose(frame["routing_frequency"], chosen_r) | ("routing_frequency" in read)
    return keep(frame, ~routed | same_r, f"with R other than {chosen_r:g}", left_out)


def keep(frame: pd.DataFrame, mask: pd.Series | Array, why_not: str, left_out: list[str]) -> pd.DataFrame:
    dropped = frame[~mask]
    if len(dropped):
        runs = dropped["run_id"].nunique()
        left_out.append(f"{runs} run{'s' if runs > 1 else ''} {why_not}")
    return frame[mask]


def _weights(frame: pd.DataFrame, column: str | None, source: str) -> pd.Series | float:
    if column is None:
        return 1.0
    if column not in frame:
        extras = [str(c) for c in frame if c not in DESCRIPTION and not str(c).startswith((LOSS_PREFIX, "_"))]
        raise InputError(f"{source}: no column {column!r} to take weights from{nearest_hint(column, extras)}.")
    cells = frame[column]
    kind = pd.api.types
    no_number = kind.is_bool_dtype(cells) or kind.is_datetime64_any_dtype(cells) or kind.is_timedelta64_dtype(cells)
    weights = pd.to_numeric(cells, errors="coerce").astype(float) if not no_number else pd.Series(np.nan, cells.index)
    wrong = ~(np.isfinite(weights) & (weights >= 0)) | cells.map(lambda cell: isinstance(cell, bool)).astype(bool)
    if wrong.any():
        run, cell = frame.loc[wrong, ["run_id", column]].iloc[0]
        raise InputError(f"{source}: column {column!r} holds {cell} for run {run}: a weight is a number of at least 0.")
    used = weights[weights > 0]
    if used.empty:
        return weights
    # Only ratios matter; of very large or small numbers the squares that a fit adds up would be infinite or nothing.
    weights, least = weights / used.max(), float((used / used.max()).min())
    if least * WIDEST_WEIGHTS < 1:
        raise InputError(
            f"{source}: the weights in column {column!r} differ by more than a factor of {WIDEST_WEIGHTS:g}: give runs "
            "that should not count a weight of 0."
        )
    return weights


def _to_points(frame: pd.DataFrame, router: str, target: str, average_seeds: bool, source: str) -> Points:
    frame = frame.assign(_model=seed_groups(frame))
    numeric = [name for name in COLUMNS if name in frame]
    if average_seeds:
        # Models that differ in the seed alone are one point, even where their last evaluations are a step apart.
        curves = frame["run_id"].duplicated().any()
        same = [frame["_model"], *([frame["step"]] if curves else [])]
        averaged = {name: "mean" for name in (target, "_weight", *numeric) if name not in SAME_MODEL}
        frame = frame.groupby(same, sort=False).agg(averaged | dict.fromkeys([*SAME_MODEL, "_model"], "first"))
    frame = frame.sort_values(["active_params", "experts"], kind="stable")
    return Points(
        router=router,
        target=target,
        x={name: frame[name].to_numpy(float, na_value=np.nan) for name in numeric}
        | {name: np.full(len(frame), np.nan) for name in COLUMNS if name not in frame},
        loss=frame[target].to_numpy(float),
        weight=frame["_weight"].to_numpy(float),
        size=frame["size"].to_numpy(object),
        dense=(frame["router"] == DENSE).to_numpy(),
        source=source,
        model=frame["_model"].to_numpy(),
    )
