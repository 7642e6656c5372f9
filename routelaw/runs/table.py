"""The run table: one row per run and evaluation step, the same columns whoever trained the models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.runs.cells import integers, numbers, reject_first, text, warn_of, where
from routelaw.runs.recipes import of_one_recipe
from routelaw.specs.names import DENSE, canonical_router
from routelaw.specs.sizes import size_label

DESCRIPTION = (
    "run_id", "router", "variant", "size", "experts", "k", "routing_frequency", "seed", "step", "tokens",
    "tokens_planned", "status", "active_params", "total_params", "flops_per_token",
)  # fmt: skip
OPTIONAL_NUMBERS = {
    "granularity": (1.0, 1e6, 1.0),
    "shared_experts": (0.0, 1e6, 0.0),
    "learning_rate": (0.0, 1e300, None),
    "batch_tokens": (1.0, 1e15, None),
    "embedding_params": (0.0, 1e15, None),
}
"""Columns of numbers that a table may have: the least and the most there may be, and what an empty cell stands for."""
REQUIRED = ("run_id", "router", "experts", "active_params")
SAME_THROUGHOUT_A_RUN = (
    "router", "variant", "size", "experts", "k", "routing_frequency", "seed", "active_params", "total_params",
)  # fmt: skip
TELLS_APART = (
    "total_params", "flops_per_token", "granularity", "shared_experts", "embedding_params", "learning_rate", "lr",
    "batch_tokens", "batch_size", "batch", "recipe", "optimizer", "optimiser", "schedule", "weight_decay", "warmup",
    "warmup_steps", "dropout", "epochs", "dataset", "data", "tokenizer", "vocabulary", "vocab_size", "sequence_length",
    "seq_len", "context_length", "d_model", "d_ff", "width", "depth", "layers", "num_layers", "n_layers", "blocks",
    "num_blocks", "heads", "num_heads", "kqv_size", "capacity_factor", "flop_increase",
)  # fmt: skip
"""Columns in which seeds of one model do not differ, as far as a table has them."""
LOSS_PREFIX = "loss_"
FINISHED = "finished"
SOURCE = "from_table"
"""An extra column: whose a run is, in tables that were put together from several."""
SAME_SIZE = 1.1
LARGEST_COUNT = {"active_params": 1e18, "total_params": 1e20, "flops_per_token": 1e22}
LOSS_RANGE = (1e-6, 1e4)
"""Nats per token outside of which nothing was measured: a slip of the pen, or an overflow."""
USUAL_LOSS = (0.1, 13.9)
"""ln 10⁶ = 13.8 is the loss of a uniform guess among a million tokens; more is a perplexity, a sum or a percentage."""
FEW_PARAMS = 1000
"""Fewer active parameters are probably millions of them."""
LEAST_FREQUENCY = 1e-4
"""One routed block in ten thousand; no model has as many."""
MOST_OF_A_PLAN = 1.5
"""Times the tokens planned that a run may have seen; its last batch may be one too many."""
ONE_SIZE_SPAN = 2.0
"""Active parameters under one name of a size differ by less than this factor."""


@dataclass(frozen=True, eq=False)
class RunTable:
    """Losses of trained models, checked and in canonical form.

    Columns:
        run_id: name of the run; its rows differ in `step` alone.
        router: technique of routing, `dense` for a model without experts.
        variant: what else differs from the technique's defaults, such as `capacity_factor=1`; empty for nothing.
        size: name of the model size; where it is missing, it follows from `active_params`.
        experts: E, experts in each routed block; 1 for a dense model.
        k: K, experts that a token visits; 1 where it is missing.
        routing_frequency: R, share of the blocks that is routed; 0.5 where it is missing.
        seed: seed of the run; 0 where it is missing.
        step: optimizer steps so far. Without this column a run has one row.
        tokens: tokens trained on so far.
        tokens_planned: D, tokens that the whole run is planned for.
        status: `finished`, `running`, `diverged` or `failed`; `finished` where it is missing.
        active_params: N, parameters that a token passes through, without embeddings and routers.
        total_params: P, all parameters without embeddings, experts and routers included.
        flops_per_token: F, FLOPs of a forward pass per token.
        loss_validation: nats per token on the held-out part of the corpus; what is fitted unless told otherwise.
        loss_NAME: nats per token on another text, as many columns as there are texts.
        granularity: G, how many times narrower an expert is than a dense feed-forward block. Optional; empty is 1.
        shared_experts: experts that every token visits beside its K. Optional; empty is 0.
        bpb_NAME: bits per byte on that text, which can be compared between tokenizers. Optional.
        acc_NAME: share of the passages whose last word was predicted (LAMBADA). Optional.
        learning_rate: peak of the learning rate. Optional.
        batch_tokens: tokens in a step. Optional.
        embedding_params: parameters of the embeddings, which N and P leave out. Optional.
        recipe: the recipe that `variant` is relative to, such as `clark2022`, if it changes the router's defaults, and
            other settings of training that differ from the defaults, such as `clip=0.5`. Optional.
        corpus: first digits of the corpus's hash; losses on different corpora are never fitted together. Optional.
        from_table: the table that a run came from, where several were put together. Optional.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"run_id": ["a", "b"], "router": ["dense", "hash"], "experts": [1, 8],
    ...                       "active_params": [20e6, 20e6], "loss_validation": [3.2, 3.1]})
    >>> table = rl.RunTable.from_frame(frame, "by hand")
    >>> table.notes[0]
    'k is not given in every row: taken as 1.'
    >>> table
    RunTable(by hand: 2 runs of dense, hash; loss_validation)
    """

    frame: pd.DataFrame
    """The columns of `DESCRIPTION`, then the losses, then whatever else the table held."""
    source: str
    """Where the table came from, for messages and captions."""
    notes: tuple[str, ...] = ()
    """What was assumed or corrected on the way in."""
    warnings: tuple[str, ...] = ()
    """What is possible but hard to believe, each with the row: every fit to the table repeats it."""

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, source: str) -> RunTable:
        """Check `frame`, fill in what may be missing, and say so in the notes.

        A loss may be missing at some steps of a run, as it is at a few in the paper's release: the last row with a
        value then speaks for the run. A finished run without any value for a loss is an error, because a fit would
        silently lose that point; rows with another status (diverged, failed, running) are excused.
        """
        _check_shape(frame, source)
        frame = frame.reset_index(drop=True)
        losses = _loss_columns(frame)
        notes: list[str] = []
        warnings: list[str] = []
        columns: dict[str, pd.Series] = {
            **_identity(frame, source),
            **_choices(frame, source, notes),
            **_progress(frame, source),
            **_counts(frame, source),
        }
        optional = _optional(frame, source, notes)
        columns["size"] = _size(frame, columns["active_params"], notes)
        columns.update({loss: numbers(frame, loss, source) for loss in losses})
        extras = [column for column in frame.columns if column not in columns]
        canonical = pd.DataFrame({name: columns[name] for name in (*DESCRIPTION, *losses)})
        canonical[extras] = frame[extras]
        canonical = of_one_recipe(canonical.assign(**optional), notes)
        _check_runs(canonical, source)
        _check_models(canonical, source, warnings)
        _check_progress(canonical, warnings)
        _check_losses(canonical, losses, source, notes, warnings)
        return cls(canonical, source, tuple(notes), tuple(warnings))

    def __repr__(self) -> str:
        runs, losses = self.frame["run_id"].nunique(), ", ".join(self.losses)
        return f"RunTable({self.source}: {runs} runs of {', '.join(self.routers)}; {losses})"

    @property
    def losses(self) -> list[str]:
        return _loss_columns(self.frame)

    @property
    def routers(self) -> list[str]:
        """In the order in which the table first names them."""
        return list(self.frame["router"].unique())


def last_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The row of the last step of each run, by step."""
    return frame.sort_values("step", kind="stable").groupby("run_id", sort=False).tail(1)


def last_status(frame: pd.DataFrame) -> pd.Series:
    """A run is what its last row says it is: earlier rows may have been written while it was running."""
    in_order = frame.sort_values("step", kind="stable")
    return in_order.groupby("run_id", sort=False)["status"].transform("last").reindex(frame.index)


def _loss_columns(frame: pd.DataFrame) -> list[str]:
    """Validation first: it is what fits predict unless told otherwise."""
    losses = [column for column in frame.columns if column.startswith(LOSS_PREFIX)]
    return sorted(losses, key=lambda column: column != "loss_validation")


def _check_shape(frame: pd.DataFrame, source: str) -> None:
    if not all(isinstance(column, str) for column in frame.columns):
        raise InputError(f"{source}: the columns have no names; the first line must name them.")
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        if not twice:
            raise InputError(f"{source}: several columns have no name; name them, or leave them out.")
        raise InputError(f"{source}: column {twice} appears twice; keep one.")
    missing = [column for column in REQUIRED if column not in frame.columns]
    if not _loss_columns(frame):
        missing.append("loss_validation (or any other loss_…)")
    if missing:
        raise InputError(
            f"{source}: column{'s' if len(missing) > 1 else ''} {', '.join(missing)} missing; "
            f"the table has {', '.join(frame.columns[:12])}{', …' if len(frame.columns) > 12 else ''}."
        )
    if frame.empty:
        raise InputError(f"{source}: the table is empty; it has a header and no rows.")


def _identity(frame: pd.DataFrame, source: str) -> dict[str, pd.Series]:
    columns = {name: text(frame, name) for name in ("run_id", "router")}
    for name, cells in columns.items():
        reject_first(cells.str.strip() == "", frame, name, source, "must not be empty")
    canonical = {name: canonical_router(name) for name in columns["router"].unique()}
    columns["router"] = columns["router"].map(canonical).astype("str")
    for name, default in (("variant", ""), ("status", FINISHED)):
        cells = text(frame, name) if name in frame else _constant(default, frame, "str")
        columns[name] = cells.mask(cells == "", default).astype("str")
    return columns


def _choices(frame: pd.DataFrame, source: str, notes: list[str]) -> dict[str, pd.Series]:
    experts = integers(frame, "experts", source, lowest=1)
    reject_first(experts.isna(), frame, "experts", source, "must be given (1 for a dense model)")
    columns: dict[str, pd.Series] = {"experts": experts.astype("int64")}
    k = integers(frame, "k", source, lowest=1) if "k" in frame else _constant(None, frame, "Int64")
    columns["k"] = _or_default("k", k, 1, notes).astype("int64")
    name = "routing_frequency"
    frequency = numbers(frame, name, source) if name in frame else _constant(np.nan, frame, "float64")
    reject_first(
        ~frequency.isna() & ~frequency.between(0, 1, "right"), frame, name, source, "must be above 0 and at most 1"
    )
    columns[name] = _or_default(name, frequency, 0.5, notes).astype("float64")
    seed = integers(frame, "seed", source, lowest=0) if "seed" in frame else _constant(0, frame, "Int64")
    columns["seed"] = seed.fillna(0).astype("int64")
    return columns


def _or_default(name: str, cells: pd.Series, default: float, notes: list[str]) -> pd.Series:
    absent = cells.isna().sum()
    if absent:
        rows = "every row" if absent == len(cells) else f"{absent} of {len(cells)} rows"
        notes.append(f"{name} is not given in {rows}: taken as {default:g}.")
    return cells.fillna(default)


def _progress(frame: pd.DataFrame, source: str) -> dict[str, pd.Series]:
    columns = {}
    for name in ("step", "tokens", "tokens_planned"):
        columns[name] = integers(frame, name, source, lowest=0) if name in frame else _constant(None, frame, "Int64")
    step = columns["step"]
    if step.isna().all():
        repeated = text(frame, "run_id").duplicated()
        reject_first(
            repeated, frame, "run_id", source, "must be unique where there is no column step to tell its rows apart"
        )
    else:
        reject_first(step.isna(), frame, "step", source, "must be given in every row or in none")
        columns["step"] = step.astype("int64")
    return columns


def _counts(frame: pd.DataFrame, source: str) -> dict[str, pd.Series]:
    columns = {}
    for name in ("active_params", "total_params", "flops_per_token"):
        cells = numbers(frame, name, source) if name in frame else _constant(np.nan, frame, "float64")
        wrong = ~((cells >= 1) & (cells <= LARGEST_COUNT[name]))
        if name != "active_params":
            wrong &= ~cells.isna()
        if name in frame:
            reject_first(wrong, frame, name, source, f"must be a number from 1 to {LARGEST_COUNT[name]:g}")
        columns[name] = cells
    return columns


def _optional(frame: pd.DataFrame, source: str, notes: list[str]) -> dict[str, pd.Series]:
    columns = {}
    for name, (low, high, default) in OPTIONAL_NUMBERS.items():
        if name not in frame:
            continue
        cells = numbers(frame, name, source)
        rule = f"must be a number from {low:g} to {high:g}"
        reject_first(cells.notna() & ~cells.between(low, high), frame, name, source, rule)
        columns[name] = cells if default is None else _or_default(name, cells, default, notes)
    return columns


def _size(frame: pd.DataFrame, active_params: pd.Series, notes: list[str]) -> pd.Series:
    """Labels as given; else by active parameters, where counts within 10 % (a router counted or not) are one size."""
    given = text(frame, "size") if "size" in frame else _constant("", frame, "str")
    counts = np.unique(active_params[given == ""])
    label: dict[float, str] = {}
    first = 0.0
    firsts = 0
    for count in counts:
        # Compared with the smallest of a size: of many counts, each near the next, the last are far apart.
        if count > SAME_SIZE * first:
            first, firsts = count, firsts + 1
        label[count] = size_label(first)
    if counts.size > firsts:
        notes.append(f"{counts.size} values of active_params within 10 % of a neighbour are {firsts} sizes.")
    return given.where(given != "", active_params.map(label)).astype("str")


def _check_runs(table: pd.DataFrame, source: str) -> None:
    if table["step"].notna().all():
        twice = table.duplicated(["run_id", "step"])
        reject_first(twice, table, "step", source, "appears twice for this run; a run has one row per step")
    first = table.groupby("run_id", sort=False)[list(SAME_THROUGHOUT_A_RUN)].transform("first")
    for name in SAME_THROUGHOUT_A_RUN:
        rule = "differs from the run's first row; give different models different run_ids"
        differs = (table[name] != first[name]) & table[name].notna()
        reject_first(differs, table, name, source, rule)


def _check_models(table: pd.DataFrame, source: str, warnings: list[str]) -> None:
    """No model has more experts than parameters, uses more of them than there are, or has fewer parameters in all than
    it uses. Columns that were swapped or given another unit often show here."""
    experts, active, total = table["experts"], table["active_params"], table["total_params"]
    rule = "is 1 for router dense, which has no experts; name the router, or the experts, rightly"
    reject_first((table["router"] == DENSE) & (experts > 1), table, "experts", source, rule)
    rule = "must not be above active_params (are the two columns swapped?)"
    reject_first(experts > active, table, "experts", source, rule)
    routed = table["router"] != DENSE  # K of a dense model means nothing, and often stands there all the same
    reject_first(routed & (table["k"] > experts), table, "k", source, "must not be above experts")
    reject_first(total < active, table, "total_params", source, "must not be below active_params")
    few = active < FEW_PARAMS
    warnings += warn_of(few, table, "active_params", "are these millions? Laws take the number of parameters itself.")
    flops = table["flops_per_token"]
    odd = (flops < active) | (flops > 1e4 * active)
    warnings += warn_of(
        odd, table, "flops_per_token", "a forward pass takes about 2 FLOPs per token for every active parameter."
    )
    few = routed & (table["routing_frequency"] < LEAST_FREQUENCY)
    warnings += warn_of(few, table, "routing_frequency", "is it the share of the blocks that is routed?")
    same = routed & (experts > 1) & (total == active)
    doubt = "with several experts a model has more parameters in all than a token uses."
    warnings += warn_of(same, table, "total_params", doubt)
    many = ~routed & (total >= 2 * active)
    warnings += warn_of(many, table, "total_params", "a dense model uses all of its parameters: are they active ones?")
    of_size = active.groupby(table["size"])
    wide = of_size.transform("max") > ONE_SIZE_SPAN * of_size.transform("min")
    doubt = "models of this name differ more than twofold in active_params: is it one size?"
    warnings += warn_of(wide & ~table["size"].duplicated(), table, "size", doubt)


def _check_progress(table: pd.DataFrame, warnings: list[str]) -> None:
    """Steps and tokens that contradict each other, or the plan."""
    step, tokens, planned = (table[name].astype("Float64") for name in ("step", "tokens", "tokens_planned"))
    finished = (table["status"] == FINISHED) & ~table["run_id"].duplicated(keep="last")
    for name, cells in (("step", step), ("tokens", tokens)):
        untrained = (cells.groupby(table["run_id"]).transform("max") == 0).fillna(False)
        warnings += warn_of(finished & untrained, table, name, "a finished run has been trained: is this its end?")
    beyond = (tokens > MOST_OF_A_PLAN * planned).fillna(False)
    warnings += warn_of(
        beyond, table, "tokens", "that is far more than tokens_planned: is one of them in another unit?"
    )
    in_order = table.assign(tokens=tokens).sort_values("step", kind="stable").groupby("run_id", sort=False)["tokens"]
    falls = (in_order.diff() < 0).fillna(False).reindex(table.index)
    warnings += warn_of(falls, table, "tokens", "that is less than at an earlier step of the run.")


def _check_losses(table: pd.DataFrame, losses: list[str], source: str, notes: list[str], warnings: list[str]) -> None:
    finished = table["status"] == FINISHED
    absent = 0
    for loss in losses:
        cells = table[loss]
        given = cells.notna()
        wrong = given & ~((cells > 0) & np.isfinite(cells))
        reject_first(wrong, table, loss, source, "must be a positive, finite number (mean nats per token)")
        (least, most), (low, high) = LOSS_RANGE, USUAL_LOSS
        beyond = given & finished & ~cells.between(least, most)  # a run that diverged may have any loss
        reject_first(beyond, table, loss, source, f"must lie between {least:g} and {most:g} nats per token")
        odd = given & finished & ~cells.between(low, high)
        doubt = "is it a perplexity, a sum, a percentage or an accuracy, and not the mean of nats per token?"
        warnings += warn_of(odd, table, loss, doubt)
        has_value = cells.notna().groupby(table["run_id"]).transform("any")
        without = (finished & ~has_value).to_numpy()
        # Other losses may be measured on some runs only; a fit to one of them says which runs it leaves out.
        if loss == losses[0] and without.any():
            raise InputError(
                f"{where(table, loss, int(np.argmax(without)), source)} is NaN or empty, and the run has no value for "
                f"this loss at any step; fill it in, drop the run, or give it the status diverged or failed."
            )
        absent += cells.isna().sum()
    if absent:
        notes.append(f"{absent} loss values are missing: the last step with a value speaks for a run.")


def _constant(value: object, frame: pd.DataFrame, dtype: str) -> pd.Series:
    return pd.Series([value] * len(frame), index=frame.index, dtype=dtype)


"""Settings of training that have columns of their own, or make one."""
