"""The losses released with "Unified Scaling Laws for Routed Language Models" (Clark et al., 2022; CC-BY 4.0).

223 runs, 5,799 rows: https://github.com/google-deepmind/scaling_laws_for_routing, file data/curves.csv.gz.
"""

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from routelaw.errors import InputError
from routelaw.runs.cells import integers, numbers, text
from routelaw.runs.table import RunTable
from routelaw.specs.counting import Architecture, Counts, count
from routelaw.specs.names import known_router

TOKENS_PER_STEP = 256 * 2048
STEPS_PLANNED = 250_000

WHOLE_NUMBERS = (
    "hyper_id", "step", "num_experts", "d_model", "num_blocks", "num_heads", "kqv_size", "flop_increase", "k", "seed",
    "total_parameter_count", "dense_parameter_count", "flops_per_step",
)  # fmt: skip
LOSSES = ("loss_validation", "loss_c4", "loss_curation_corpus", "loss_lambada", "loss_pile", "loss_wikitext103")
COLUMNS = (*WHOLE_NUMBERS, "routing_frequency", "router_type", "model_size_label", *LOSSES)
KEPT = ("hyper_id", "d_model", "num_blocks", "num_heads", "kqv_size", "flop_increase")

SHARED_DECISIONS = "shared_decisions"
SHARED_DECISION_FREQUENCY = {54: 0.5, 55: 0.5, 56: 0.25, 57: 0.25, 66: 1.0, 67: 1.0}
"""hyper_id → routing frequency of six S-BASE 25M runs whose labels cannot be right.

Labelled R = 0.125, 0.125, 0.25, 0.25, 0.125, 1, two of them would repeat other runs with quite another loss. Read with
these frequencies they lie within 0.025 of HASH, as the paper's ablation with one routing decision for all layers
should. That is an inference, so the runs are a variant of their own and the label stays in
`routing_frequency_labelled`. """


def is_release(columns: Iterable[str]) -> bool:
    """Whether a header is the release's, even with a few columns lost on the way."""
    present = set(columns)
    return "run_id" not in present and len(present & set(COLUMNS)) >= len(COLUMNS) - 4


def import_release(frame: pd.DataFrame, source: str) -> RunTable:
    """The release, or some of its rows, as a run table. Parameters and FLOPs are recounted for every run."""
    release = _typed(frame, source)
    by_run: dict[int, dict] = {}
    for row in release.drop_duplicates([c for c in release.columns if c not in ("step", *LOSSES)]).to_dict("records"):
        if row["hyper_id"] in by_run:
            raise InputError(f"{source}: the rows of run {row['hyper_id']} describe two different models.")
        _check_counts(row, source)
        by_run[row["hyper_id"]] = _describe(row)
    described = pd.DataFrame([by_run[hyper_id] for hyper_id in release["hyper_id"]])
    described["step"] = release["step"]
    described["tokens"] = release["step"] * TOKENS_PER_STEP
    described["tokens_planned"] = STEPS_PLANNED * TOKENS_PER_STEP
    columns = [*LOSSES, *KEPT]
    described[columns] = release[columns]
    table = RunTable.from_frame(described, source)
    return replace(table, notes=(*_notes(by_run), *table.notes))


def _typed(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    missing = [column for column in COLUMNS if column not in frame.columns]
    if missing:
        plural = "s" if len(missing) > 1 else ""
        raise InputError(
            f"{source}: this is the paper's released table, but without its column{plural} {', '.join(missing)}."
        )
    if frame.empty:
        raise InputError(f"{source}: the table is empty; it has a header and no rows.")
    typed = {name: integers(frame, name, source, lowest=0) for name in WHOLE_NUMBERS}
    for name, cells in typed.items():
        if cells.isna().any():
            raise InputError(f"{source}: column {name} is empty in data row {int(cells.isna().argmax()) + 1}.")
    return pd.DataFrame(
        {name: cells.astype("int64") for name, cells in typed.items()}
        | {name: numbers(frame, name, source) for name in ("routing_frequency", *LOSSES)}
        | {name: text(frame, name) for name in ("router_type", "model_size_label")}
    )


def _counted(row: dict, *, routing_frequency: float, shared_decisions: bool = False) -> Counts:
    return count(
        Architecture(row["d_model"], row["num_blocks"], row["num_heads"], row["kqv_size"]),
        row["router_type"],
        row["num_experts"],
        k=1 if row["num_experts"] == 1 else row["k"],
        routing_frequency=routing_frequency,
        flop_increase=row["flop_increase"],
        shared_decisions=shared_decisions,
    )


def _check_counts(row: dict, source: str) -> None:
    counts = _counted(row, routing_frequency=row["routing_frequency"])
    for column, recounted in (
        ("dense_parameter_count", counts.active_params),
        ("total_parameter_count", counts.total_params),
        ("flops_per_step", counts.flops_per_token * TOKENS_PER_STEP),
    ):
        if row[column] != recounted:
            raise InputError(
                f"{source}: run {row['hyper_id']} states {column} {row[column]:,}, "
                f"but its architecture gives {recounted:,}; the table has been altered, fetch it again."
            )


def _describe(row: dict) -> dict:
    router = known_router(row["router_type"])
    shared = row["hyper_id"] in SHARED_DECISION_FREQUENCY and router == "s-base"
    labelled = row["routing_frequency"]
    frequency = SHARED_DECISION_FREQUENCY[row["hyper_id"]] if shared else labelled
    counts = _counted(row, routing_frequency=frequency, shared_decisions=shared)
    widened = f"flop_increase={row['flop_increase']}" if row["flop_increase"] != 1 else ""
    return {
        "run_id": f"clark2022-{row['hyper_id']}",
        "router": router,
        "variant": SHARED_DECISIONS if shared else widened,
        "size": row["model_size_label"],
        "experts": row["num_experts"],
        "k": 1 if row["num_experts"] == 1 else row["k"],
        "routing_frequency": frequency,
        "routing_frequency_labelled": labelled,
        "seed": row["seed"],
        "active_params": counts.active_params,
        "total_params": counts.total_params,
        "flops_per_token": counts.flops_per_token,
    }


def _notes(by_run: dict[int, dict]) -> list[str]:
    notes = [f"Imported from the paper's release: parameters and FLOPs of all {len(by_run)} runs recounted and equal."]
    shared = [str(hyper_id) for hyper_id, run in by_run.items() if run["variant"] == SHARED_DECISIONS]
    if shared:
        notes.append(
            f"Runs {', '.join(shared)} (S-BASE 25M) contradict their labels and are read as the variant "
            f"{SHARED_DECISIONS}, with the routing frequency that fits; the label is in routing_frequency_labelled."
        )
    if any(run["variant"].startswith("flop_increase") for run in by_run.values()):
        notes.append("Dense runs with wider FFWs are the variant flop_increase=…, with k = 1 as for every dense run.")
    return notes
