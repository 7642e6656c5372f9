"""The losses behind Hoffmann et al. 2022 ("Chinchilla"), read off its figure by Besiroglu et al. 2024 (Epoch AI)."""

import pandas as pd

from routelaw.errors import InputError
from routelaw.runs.cells import numbers, reject_first
from routelaw.runs.public import PublicTable

SIZE, COMPUTE = "Model Size", "Training FLOP"


def runs(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    size, compute = numbers(frame, SIZE, source), numbers(frame, COMPUTE, source)
    for name, cells in ((SIZE, size), (COMPUTE, compute)):
        reject_first(~(cells >= 1), frame, name, source, "must be a number of at least 1")
    tokens = (compute / (6 * size)).round()
    if not (tokens < 2**62).all():
        raise InputError(f"{source}: {COMPUTE}/(6·{SIZE}) is no number of tokens in every row.")
    return pd.DataFrame(
        {
            "run_id": [f"chinchilla-{i:03d}" for i in range(len(frame))],
            "router": "dense",
            "experts": 1,
            "active_params": size,
            "total_params": size,
            "tokens": tokens.astype("int64"),
            "loss_validation": numbers(frame, "loss", source),
        }
    )


TABLE = PublicTable(
    name="chinchilla",
    title="the losses of Hoffmann et al. 2022, read off their figure by Besiroglu et al. 2024",
    url="https://github.com/epoch-research/analyzing-chinchilla/raw/9225883/data/svg_extracted_data.csv",
    sha256="193478df4e90f040016431996c45682659306840ecdadf83cfb9cd5ca0aa1b30",
    license="none stated",
    file_name="svg_extracted_data.csv",
    header=(SIZE, COMPUTE, "loss"),
    runs=runs,
    assumed=(
        "Tokens are Training FLOP/(6·Model Size), by which the figure defines them.",
        "Model Size is taken as active_params; it counts all parameters of a dense model, as Hoffmann et al. do.",
        "Five losses above 3.44 lie off the rest: Besiroglu et al. leave them out (--where 'loss_validation<3.44').",
    ),
)
