"""What are the coefficients of the paper's law at full precision, with resamples of them?

    python experiments/refit_clark2022.py [TABLE]

Cost: seconds. Writes routelaw/plans/clark2022_fits.json, the law fitted to the paper's released losses. The paper
prints three digits of each coefficient, which do not decide what the losses decide. The table is the released one
(`routelaw data fetch`) unless another path to it is given.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import routelaw as rl
from routelaw.fitting.intervals import bootstrap
from routelaw.plans.literature import REFITTED
from routelaw.runs.fetch import fetch_released

DRAWS, DIGITS = 300, 9
ROUTERS = {"s-base": "saturated", "rl-r": "saturated", "hash": "saturated", "dense": "dense"}


def refits(path: Path) -> dict[str, Any]:
    table = rl.read_runs(path)
    entries = {}
    for router, law in ROUTERS.items():
        fit = rl.fit_law(law, rl.select_points(table, router, rl.get_law(law)))
        draws = bootstrap(fit, draws=DRAWS, method="size-bootstrap", seed=0)
        entries[router] = {
            "law": law,
            "params": {name: _rounded(value) for name, value in fit.params.items()},
            "rmsle": _rounded(fit.rmsle),
            "points": len(fit.points),
            "size_range": [float(fit.points.x["active_params"].min()), float(fit.points.x["active_params"].max())],
            "experts_range": [float(fit.points.x["experts"].min()), float(fit.points.x["experts"].max())],
            "clusters": draws.clusters,
            "resampled": [[_rounded(v) for v in row] for row in draws.params_RP.tolist()],
        }
    return {"made by": "experiments/refit_clark2022.py", "method": "size-bootstrap", "fits": entries}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


if __name__ == "__main__":
    found = Path(sys.argv[1]) if len(sys.argv) > 1 else fetch_released()
    REFITTED.write_text(json.dumps(refits(found), indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
