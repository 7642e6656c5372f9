"""Sparse models of four sizes from the runs behind "(Mis)Fitting: A Survey of Scaling Laws" (Li et al. 2025)."""

import re

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.runs.cells import numbers, text
from routelaw.runs.public import PublicTable

PERPLEXITY = "eval/ppl//fsx-onellm/data/corpora/text_only/text_eval/{}.jsonl"
TEXTS = ("c4", "wikipedia")


def runs(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    names = text(frame, "Name")
    size = names.str.extract(r"model-(\d+(?:\.\d+)?[mb])\b", flags=re.IGNORECASE)[0]
    if size.isna().any():
        raise InputError(f"{source}: the name of run {names[size.isna()].iloc[0]!r} does not say its size (model-12m).")
    scale = size.str[-1].str.lower().map({"m": 1e6, "b": 1e9})
    losses = {}
    for name in TEXTS:
        perplexity = numbers(frame, PERPLEXITY.format(name), source)
        losses[f"loss_{name}"] = np.log(perplexity.where(perplexity > 0))
    return pd.DataFrame(
        {
            "run_id": [f"misfitting-{i:03d}" for i in range(len(frame))],
            "router": "spm",
            "size": size.str.upper(),
            "experts": numbers(frame, "model.number_of_experts", source),
            "k": 1,
            "routing_frequency": 1.0 / numbers(frame, "model.moe_everyk", source),
            "active_params": size.str[:-1].astype(float) * scale,
            "step": numbers(frame, "train/step", source),
            "tokens": numbers(frame, "optim/n_tokens", source).round().astype("int64"),
            "learning_rate": numbers(frame, "optim.lr", source),
            **losses,
        }
    )


TABLE = PublicTable(
    name="misfitting",
    title="the sparse models behind Li et al. 2025, (Mis)Fitting",
    url="https://github.com/hadasah/scaling_laws/raw/1f3708c0a12df0effb0ee906b1da5f9f0ff4f4f1/data/spm.csv",
    sha256="66bfa62b58943a1c32fb95557b3d25055bce2d7aee4d8675f0bb1dde8fb9e95e",
    license="none stated",
    file_name="spm.csv",
    header=("Name", PERPLEXITY.format("c4"), "model.number_of_experts", "optim/n_tokens", "optim.lr"),
    runs=runs,
    assumed=(
        "Losses are natural logarithms of the perplexities of C4 and Wikipedia.",
        "active_params is the size in a run's name: the table does not count parameters.",
        "K is taken as 1, and one block in model.moe_everyk as routed.",
        "Of each size and E take the best learning rate with --best-of learning_rate.",
    ),
)
