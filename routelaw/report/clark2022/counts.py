"""Parameters and FLOPs: the table of architectures, and every run of the release."""

from __future__ import annotations

import io

import pandas as pd

from routelaw.report.clark2022 import printed
from routelaw.report.clark2022.verdict import ResultTable, judge
from routelaw.runs.clark2022 import TOKENS_PER_STEP
from routelaw.runs.files import read_packed
from routelaw.runs.table import RunTable
from routelaw.specs.counting import Architecture, count, dense_params
from routelaw.specs.sizes import PAPER_SIZES

RELEASED_RUNS = 223
COUNTED = {
    "active parameters N": "dense_parameter_count",
    "total parameters P": "total_parameter_count",
    "forward FLOPs F": "flops_per_step",
}


def architectures(table: RunTable) -> ResultTable:
    cells = [
        judge(size, "active parameters N", value, dense_params(PAPER_SIZES[size]))
        for size, value in printed.ACTIVE_PARAMS.items()
    ]
    return ResultTable(
        name="architectures",
        title="Parameters of the seven model sizes",
        paper="tab:architectures",
        convention="N = L·(5·d·H·v + 8·d² + 4·d) from the printed widths, blocks, heads and key/value sizes: five "
        "attention projections (one for relative positions), FFW of width 4d, two LayerNorms, no biases, no "
        "embeddings.",
        tolerance="Counts must be equal to the unit.",
        cells=tuple(cells),
    )


def released_counts(table: RunTable) -> ResultTable:
    raw = pd.read_csv(io.BytesIO(read_packed(table.source)))
    runs = raw.drop_duplicates("hyper_id").to_dict("records")
    recounted = [_recount(run) for run in runs]
    cells = [
        judge(
            f"runs whose {name} equals ours",
            "runs",
            str(RELEASED_RUNS),
            sum(run[column] == counts[column] for run, counts in zip(runs, recounted, strict=True)),
        )
        for name, column in COUNTED.items()
    ]
    cells.append(
        judge(
            "models of the main sweep",
            "runs",
            printed.MAIN_SWEEP_MODELS,
            _main_sweep_models(table),
            note="Four trained models are not in the release: S-BASE 130M with 256 experts, and HASH 130M with 8 and "
            "256 and 25M with 32.",
        )
    )
    return ResultTable(
        name="released_counts",
        title="Counts of all released runs",
        paper="release of the paper; section on scaling behaviour for the size of the sweep",
        convention="N, P and forward FLOPs of each run recounted from its architecture, technique, E, K and R as "
        "labelled, and compared with the release's own columns. The main sweep is K = 1, R = ½, seeds counted once.",
        tolerance="Counts must be equal to the unit; the printed column is the number of runs in the release.",
        cells=tuple(cells),
    )


def _recount(run: dict) -> dict[str, int]:
    dense = run["num_experts"] == 1
    counts = count(
        Architecture(run["d_model"], run["num_blocks"], run["num_heads"], run["kqv_size"]),
        run["router_type"],
        run["num_experts"],
        k=1 if dense else run["k"],
        routing_frequency=run["routing_frequency"],
        flop_increase=run["flop_increase"],
    )
    return {
        "dense_parameter_count": counts.active_params,
        "total_parameter_count": counts.total_params,
        "flops_per_step": counts.flops_per_token * TOKENS_PER_STEP,
    }


def _main_sweep_models(table: RunTable) -> int:
    frame = table.frame
    main = frame[(frame["variant"] == "") & (frame["k"] == 1)]
    main = main[(main["routing_frequency"] == 0.5) | (main["router"] == "dense")]
    return len(main.drop_duplicates(["router", "size", "experts"]))
