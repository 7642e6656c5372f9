"""A blind test of the laws: predictions for the largest size are written down before it is trained, and scored after.

    python -m experiments.miniature.analysis.blind predict data/runs.csv.gz predictions/predicted_largest.json
    python -m experiments.miniature.analysis.blind score data/runs.csv.gz

`predict` refuses a table that holds runs of the size, or lacks some of the studies that predictions stand on
(--incomplete goes on all the same, and the file says so), and does not write over predictions. What could not be
predicted is in the file, with the reason. Commit it before the first of these runs is trained: whether that was so is
told by what the runs recorded (preregistration.py).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.miniature.analysis.laws import fits_of, routers_of
from experiments.miniature.analysis.preregistration import FILE, hash_of
from experiments.miniature.analysis.study import Study, plain
from experiments.miniature.studies import MAIN, PREDICTIONS, SPECS, run_program, specs_in, specs_of
from routelaw.errors import InputError
from routelaw.fitting.claims import student
from routelaw.fitting.fit import Fit
from routelaw.fitting.intervals import DEFAULT_LEVEL, Method, bootstrap, small_sample_stretch
from routelaw.fitting.matched_runs import VALIDATION
from routelaw.fitting.noise import NoiseFloor
from routelaw.laws.law import Array
from routelaw.runs.files import read_runs

COLUMNS = ("active_params", "experts", "total_params", "flops_per_token")
STANDS_ON = (MAIN, "seeds")
"""Studies that have to be there whole: what is fitted, and how far apart seeds are."""
DRAWS = 400
SAME_SIZE = 1.1
"""Active parameters within this factor are one size."""


def predict(study: Study, planned: pd.DataFrame) -> dict[str, Any]:
    """The loss of every planned (router, E), dense as E = 1, under every law that the table determines."""
    size, active = _one_size(planned)
    seen = study.table.frame["active_params"]
    if ((seen / active).between(1 / SAME_SIZE, SAME_SIZE)).any():
        raise InputError(f"{study.table.source}: it holds runs of {size} already; nothing can be predicted blindly.")
    noise = study.noise(list(study.active_params)[-1])
    rows: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    for router in dict.fromkeys([*routers_of(study), *sorted(set(planned["router"]) - {"dense"})]):
        runs = planned[planned["router"].isin([router, "dense"])]
        runs = runs.assign(experts=runs["experts"].mask(runs["router"] == "dense", 1)).drop_duplicates("experts")
        if not (runs["router"] == router).any():
            continue
        fits, reasons = fits_of(study, router)
        skipped += [{"law": law, "router": router, "why": why} for law, why in reasons.items()]
        for fit in fits:
            try:
                low, middle, high, method = interval(fit, runs, noise)
            except InputError as error:
                skipped.append({"law": fit.law.name, "router": router, "why": str(error)})
                continue
            of_each = {"experts": runs["experts"].astype(int), "loss": middle, "low": low, "high": high}
            said = pd.DataFrame({"law": fit.law.name, "router": router, **of_each, "interval": method})
            rows += said.to_dict("records")
    return {
        "size": size,
        "active_params": active,
        "level": DEFAULT_LEVEL,
        "largest_seen": float(seen.max()),
        "runs_seen": int(study.table.frame["run_id"].nunique()),
        "predictions": rows,
        "skipped": skipped,
    }


def interval(fit: Fit, runs: pd.DataFrame, noise: NoiseFloor | None) -> tuple[Array, Array, Array, Method]:
    """Low, predicted and high loss of single runs to come, and how the fit was resampled.

    The fit's uncertainty is that of refits to resampled sizes, widened for few of them; of resampled runs, and not
    widened, where sizes cannot be resampled, which is optimistic (routelaw/fitting/intervals.py). A run scatters about
    a law as the fitted ones do, and at least as seeds do.
    """
    x = {name: runs[name].to_numpy(float) for name in COLUMNS}
    estimate = fit.law.log_loss(fit.params_BP, x)[0]
    drawn, stretch, method = _drawn(fit, x)
    freedom = max(len(fit.points) - len(fit.law.parameters), 1)
    scatter = fit.rmsle * np.sqrt(len(fit.points) / freedom)
    scatter = max(scatter, noise.sd) if noise else scatter
    shaken = np.random.default_rng(1).normal(0.0, scatter, drawn.shape)
    spread = estimate + stretch * (drawn - estimate) + shaken
    low, high = np.nanquantile(spread, [(1 - DEFAULT_LEVEL) / 2, (1 + DEFAULT_LEVEL) / 2], axis=0)
    return 10.0**low, 10.0**estimate, 10.0**high, method


def _drawn(fit: Fit, x: dict[str, Array]) -> tuple[Array, float, Method]:
    """log10 L under resampled fits, (draws, runs), by how much to widen it, and what was resampled."""
    try:
        draws = bootstrap(fit, draws=DRAWS)
        stretch = small_sample_stretch(draws.clusters, DEFAULT_LEVEL)
    except InputError:
        draws, stretch = bootstrap(fit, "case-bootstrap", DRAWS), 1.0
    with np.errstate(all="ignore"):
        return fit.law.log_loss(draws.params_RP, x), stretch, draws.method


def missing_runs(study: Study, planned: pd.DataFrame, folder: Path) -> str:
    """What the table lacks of the runs that predictions stand on, in words; `folder` has the specs of those it has."""
    specs = specs_in(folder)
    if not specs:
        return f"which cannot be told without {SPECS}"
    known = next(iter(specs.values()))
    needed = {spec.run_id: spec for of in STANDS_ON for spec in specs_of(of, known.corpus, known.model.vocabulary)}
    lacking = needed.keys() - set(study.table.frame["run_id"]) - set(planned["run_id"])
    by_router = Counter(needed[run_id].router.name for run_id in lacking)
    return ", ".join(f"{count} of {router}" for router, count in sorted(by_router.items()))


def _one_size(planned: pd.DataFrame) -> tuple[str, float]:
    sizes = planned["size"].unique()
    if len(sizes) != 1:
        raise InputError(f"the blind test is about one size, and the plan has {', '.join(sizes)}.")
    return str(sizes[0]), float(planned["active_params"].min())


def measured(study: Study, size: str) -> dict[tuple[str, int], float]:
    """Losses of the size by (router, E), seeds averaged; the dense model as E = 1 of every router."""
    dense = study.losses("dense")
    found = {}
    for router in [r for r in study.table.routers if r != "dense"]:
        for losses in (study.losses(router), dense):
            own = losses[losses.index.get_level_values("size") == size]
            found |= {(router, int(e)): float(10**v) for (_, e), v in own.items()}
    return found


def score(study: Study, said: dict[str, Any]) -> dict[str, Any]:
    """Errors by law and router: RMSE and mean of log10 (predicted / measured), whether the mean is beyond the noise of
    the measured runs, the share within intervals, how wide these are, as shares of the loss, in the middle, and what
    was resampled for them. The dense model counts with every router that it was predicted for."""
    losses = measured(study, said["size"])
    rows = pd.DataFrame(said["predictions"])
    rows["measured"] = [losses.get((r, e), np.nan) for r, e in zip(rows["router"], rows["experts"], strict=True)]
    rows = rows.dropna(subset=["measured"])
    if rows.empty:
        raise InputError(f"{study.table.source}: no run of {said['size']} that was predicted is there yet.")
    rows["error"] = np.log10(rows["loss"] / rows["measured"])
    rows["width"] = (rows["high"] - rows["low"]) / rows["measured"]
    rows["inside"] = (rows["low"] <= rows["measured"]) & (rows["measured"] <= rows["high"])
    noise = study.noise(said["size"])
    return {
        "size": said["size"],
        "level": said["level"],
        "noise": noise.sd if noise else None,
        "seeds_of": study.seeds_for(said["size"]),
        "by_law": _errors(rows, ["law"], noise),
        "by_law_and_router": _errors(rows, ["law", "router"], noise),
        "runs": rows.to_dict("records"),
    }


def _errors(rows: pd.DataFrame, keys: Sequence[str], noise: NoiseFloor | None) -> list[dict[str, Any]]:
    made = [
        {**dict(zip(keys, names, strict=True)), "points": len(g), "rmse": float(np.sqrt((g["error"] ** 2).mean())),
         "mean_error": float(g["error"].mean()), "beyond_noise": _beyond_noise(g, noise),
         "coverage": float(g["inside"].mean()), "width": float(g["width"].median()),
         "intervals": sorted(set(g["interval"]))}
        for names, g in rows.groupby(list(keys))
    ]  # fmt: skip
    return sorted(made, key=lambda row: row["rmse"])


def _beyond_noise(rows: pd.DataFrame, noise: NoiseFloor | None) -> bool:
    """Whether the mean error is beyond the chance of the measured runs, 90 %, as if predictions had none. One run, the
    dense model, may stand in several rows."""
    if noise is None:
        return False
    runs = rows["router"].mask(rows["experts"] == 1, "dense") + rows["experts"].astype(str)
    error = noise.sd * float(np.sqrt((runs.value_counts() ** 2).sum())) / len(rows)
    return abs(float(rows["error"].mean())) > student(noise.freedom, DEFAULT_LEVEL) * error


def planned_runs(path: Path) -> pd.DataFrame:
    """The runs of `routelaw sweep … --dry-run --json`."""
    return pd.DataFrame(json.loads(path.read_text(encoding="utf-8"))["runs"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("predict", "score"):
        command = commands.add_parser(name)
        command.add_argument("table", type=Path)
        if name == "predict":
            command.add_argument("planned", type=Path)
            command.add_argument(
                "--incomplete", action="store_true", help="predict though runs are missing; the file says so"
            )
        command.add_argument("--file", type=Path, default=PREDICTIONS / FILE, help="where predictions are written")
    asked = parser.parse_args()
    study = Study(plain(read_runs(asked.table)))
    if asked.command == "score":
        outcome = score(study, json.loads(asked.file.read_text(encoding="utf-8")))
        for row in [*outcome["by_law"], *outcome["by_law_and_router"]]:
            errors = f"{1e4 * row['rmse']:7.1f}e-4  mean {1e4 * row['mean_error']:+6.1f}e-4"
            print(f"{row['law']:22} {row.get('router', 'all'):8} {errors}  {row['coverage']:.0%} inside")
        return
    if asked.file.exists():
        raise InputError(f"{asked.file} is there already: predictions are made once. Move it away to make others.")
    planned = planned_runs(asked.planned)
    missing = missing_runs(study, planned, asked.table.parent)
    if missing and not asked.incomplete:
        raise InputError(
            f"{asked.table} lacks runs of {' and '.join(STANDS_ON)}: {missing}. Train them first, or say --incomplete."
        )
    said = predict(study, planned)
    stamp = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "table": asked.table.name,
        "sha256": hash_of(asked.table),
        "target": VALIDATION,
        "incomplete": asked.incomplete,
        "missing": missing,
    }
    asked.file.write_text(json.dumps({**stamp, **said}, indent=1) + "\n", encoding="utf-8")
    print(f"{len(said['predictions'])} predictions for {said['size']} in {asked.file}")


if __name__ == "__main__":
    run_program(main)
