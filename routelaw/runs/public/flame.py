"""Models of FLAME-MoE (Kang et al. 2025): 64 experts, of which a token visits eight, and two shared ones."""

import pandas as pd

from routelaw.runs.cells import numbers, reject_first
from routelaw.runs.public import PublicTable


def runs(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    flops, active = numbers(frame, "flops", source), numbers(frame, "active_params", source)
    for name, cells in (("flops", flops), ("active_params", active)):
        reject_first(~(cells >= 1), frame, name, source, "must be a number of at least 1")
    return pd.DataFrame(
        {
            "run_id": [f"flame-{i:02d}" for i in range(len(frame))],
            "router": "moe",
            "experts": 64,
            "k": 8,
            "shared_experts": 2,
            "active_params": active,
            "total_params": numbers(frame, "total_params", source),
            "tokens": (flops / (6 * active)).round().astype("int64"),
            "loss_validation": numbers(frame, "loss", source),
        }
    )


TABLE = PublicTable(
    name="flame",
    title="the models of FLAME-MoE (Kang et al. 2025)",
    url="",
    sha256="",
    license="none stated",
    file_name="flame_moe.csv",
    header=("flops", "active_params", "total_params", "loss"),
    header_only=True,
    runs=runs,
    assumed=(
        "Tokens are flops/(6·active_params), by which its isoflop curves are defined.",
        "E = 64, K = 8 and two shared experts, as the paper describes all of its models.",
    ),
)
