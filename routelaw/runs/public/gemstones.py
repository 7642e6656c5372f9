"""The Gemstones (McLeish et al. 2025): dense models of many widths and depths, each decayed at several lengths."""

import pandas as pd

from routelaw.errors import InputError
from routelaw.runs.cells import numbers, text
from routelaw.runs.public import PublicTable


def runs(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    name = text(frame, "run_name").str.removeprefix("PyGemma-").str.removesuffix("_pretrain")
    tokens = numbers(frame, "tokens", source)
    if tokens.isna().any():
        raise InputError(f"{source}: tokens are not given in every row.")
    return pd.DataFrame(
        {
            "run_id": name + "-" + (tokens / 1e9).round(1).astype(str) + "B",
            "router": "dense",
            "size": name,
            "experts": 1,
            "active_params": numbers(frame, "params_active_precise", source),
            "total_params": numbers(frame, "params_active_precise", source),
            "tokens": tokens.round().astype("int64"),
            "width": numbers(frame, "width", source),
            "depth": numbers(frame, "depth", source),
            "loss_validation": numbers(frame, "final_loss", source),
        }
    )


TABLE = PublicTable(
    name="gemstones",
    title="the Gemstones (McLeish et al. 2025), each length decayed to its end",
    url="",
    sha256="",
    license="MIT",
    file_name="gemstones_cool_end.jsonl",
    header=("run_name", "params_active_precise", "width", "depth", "tokens", "final_loss"),
    runs=runs,
    assumed=(
        "Every row is a run of its own: a branch of one long run whose learning rate was decayed there.",
        "active_params is params_active_precise, and final_loss is taken as loss_validation.",
    ),
)
