"""The searches over learning rate and batch size of Step-Law (Li et al. 2025): mixtures of experts, and dense models.

A feed-forward block has three matrices; parameters leave embeddings out, and their FLOPs follow DeepSeek's count M,
that of training per token.
"""

import pandas as pd

from routelaw.runs.cells import numbers, text
from routelaw.runs.public import PublicTable

LOSS = "smooth loss"
SHARED = ("h", "ffnh", "numh", "numl", "lr", "bs", "ti", "loss", LOSS, "D", "N")
ASSUMED = (
    f"loss_validation is {LOSS!r}, the training loss smoothed at the end; the table holds no loss of unseen text.",
    "learning_rate is the peak, batch_tokens is bs sequences of 2,048 tokens: take the best of each cell with "
    "--best-of learning_rate,batch_tokens.",
)


def mixtures(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    layers, dense_layers = numbers(frame, "numl", source), numbers(frame, "numld", source)
    width, expert_width = numbers(frame, "ffnh", source), numbers(frame, "moeh", source)
    return _common(frame, source).assign(
        router="moe",
        size=text(frame, "moe_name"),
        experts=numbers(frame, "nume", source),
        k=numbers(frame, "topk", source),
        granularity=width / expert_width,
        shared_experts=numbers(frame, "sed", source) / expert_width,
        routing_frequency=(layers - dense_layers) / layers,
        active_params=numbers(frame, "Na", source),
        total_params=numbers(frame, "N", source),
        flops_per_token=numbers(frame, "M", source) / 3,
    )


def dense(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    params = numbers(frame, "N", source)
    return _common(frame, source).assign(router="dense", experts=1, active_params=params, total_params=params)


def _common(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    sequence = numbers(frame, "seq_len", source) if "seq_len" in frame else 2048
    return pd.DataFrame(
        {
            "run_id": [f"step-law-{i:04d}" for i in range(len(frame))],
            "tokens": numbers(frame, "D", source).round().astype("int64"),
            "learning_rate": numbers(frame, "lr", source),
            "batch_tokens": numbers(frame, "bs", source) * sequence,
            "loss_validation": numbers(frame, LOSS, source),
            "last_loss": numbers(frame, "loss", source),
        }
    )


TABLE = PublicTable(
    name="step-law",
    title="the mixture-of-experts models of Step-Law (Li et al. 2025)",
    url="https://github.com/step-law/steplaw/raw/32a8f4c/data/moe_lr_bs_loss.csv",
    sha256="653d585244a7b227423007e8b796bc16d76f6d24eb87b1919b8f048a91897b92",
    license="none stated",
    file_name="moe_lr_bs_loss.csv",
    header=(*SHARED, "topk", "nume", "moeh", "sed", "numld", "Na", "M", "moe_name"),
    runs=mixtures,
    assumed=(
        *ASSUMED,
        "granularity is the width of the dense block over an expert's, shared_experts the shared width over it.",
        "flops_per_token is a third of M, DeepSeek's count of training FLOPs per token.",
    ),
)
