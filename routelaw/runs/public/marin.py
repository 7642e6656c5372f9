"""Isoflop sweeps of Marin's mixture-of-experts models, as its README and issues print them."""

import pandas as pd

from routelaw.errors import InputError
from routelaw.runs.cells import numbers, text
from routelaw.runs.public import PublicTable

NATS = "paloma_macro"
"""The metric that is nats per token; the others of the table are bits per byte."""


def runs(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    rows = frame[(text(frame, "metric") == NATS) & frame["tokens"].notna()].reset_index(drop=True)
    if rows.empty:
        raise InputError(f"{source}: no row has the metric {NATS} and tokens: the others are bits per byte.")
    flops, tokens = numbers(rows, "flops", source), numbers(rows, "tokens", source)
    width = numbers(rows, "d_model", source)
    return pd.DataFrame(
        {
            "run_id": [f"marin-{i:02d}" for i in range(len(rows))],
            "router": "moe",
            "size": "d" + width.astype(int).astype(str),
            "experts": numbers(rows, "experts", source),
            "k": numbers(rows, "k", source),
            "active_params": flops / (6 * tokens),
            "tokens": tokens.round().astype("int64"),
            "recipe": text(rows, "recipe"),
            "loss_paloma": numbers(rows, "loss", source),
        }
    )


TABLE = PublicTable(
    name="marin",
    title="the mixture-of-experts models of Marin",
    url="",
    sha256="",
    license="none stated",
    file_name="marin_moe_isoflop.csv",
    header=("recipe", "experts", "k", "flops", "d_model", "tokens", "loss", "metric"),
    runs=runs,
    assumed=(
        f"Rows of another metric than {NATS} are left out: bits per byte are no nats per token.",
        "active_params is flops/(6·tokens): the table does not count parameters.",
        "Runs of different recipes differ in more than their size: choose one with --where \"recipe=='v16'\".",
    ),
)
