"""What do our own runs say about the paper's claims, laws and predictions?

    python -m experiments.miniature.analysis.report [FOLDER] [--out out/miniature/report] [--price 2.5]

FOLDER has data/runs.csv.gz and, where they are there, data/costs.csv, data/routing.csv.gz and the like,
predictions/predicted*.json (of dry runs) and predictions/predictions.json (of the blind test). Writes index.html,
claims.json, summary.json and figures. Cost: under a minute.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Drawn

from experiments.miniature.analysis import blind, figures_of_choices, figures_of_results
from experiments.miniature.analysis.claims import Outlier, counts, decided_by_size, judge_all, largest_outlier
from experiments.miniature.analysis.laws import LawResult, compare_laws, floor_of, paper_results, winner
from experiments.miniature.analysis.page import MiniatureData, build_page
from experiments.miniature.analysis.preregistration import FILE, preregistration
from experiments.miniature.analysis.study import Study, read_study, spending, time_predicted
from experiments.miniature.studies import DATA, HERE, PREDICTIONS, TABLE, run_program
from routelaw.errors import InputError
from routelaw.figures import lengths, seeds
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.fitting.intervals import parameter_quantities
from routelaw.formatting import finite
from routelaw.report.page import Picture, embedded, report_folder
from routelaw.studies.claims_on_losses import resampled

OF_THE_PACKAGE = (*lengths.FIGURES, *seeds.FIGURES)
"""Figures that any run table has, among those of the page."""


def report(folder: Path, out: Path, *, price: float | None = None) -> dict[str, Any]:
    """Everything, written to `out`; returns the summary."""
    study = read_study(folder)
    claims, made, paper = judge_all(study), compare_laws(study), paper_results()
    scored, outlier = _scored(study, folder / PREDICTIONS.name / FILE), largest_outlier(study, claims)
    by_size = decided_by_size(study, claims)
    with report_folder(out, force=True) as place:
        pictures, not_drawn = _draw(study, made, paper, scored, place)
        told = time_predicted(study)
        material = MiniatureData(study, claims, outlier, by_size, made, paper, _coefficients(study), scored,
                            spending(study, price), price, told, pictures, not_drawn)  # fmt: skip
        (place / "index.html").write_text(build_page(material), encoding="utf-8")
        _write(place / "claims.json", [claim.as_dict() for claim in claims])
        noises = {"all": study.noise(), **{size: study.noise(size) for size in study.seeded_sizes}}
        summary = {
            "verdicts": counts(claims),
            "noise": {of: asdict(noise) for of, noise in noises.items() if noise},
            "outlier": _outlier(outlier),
            "decided_by_size": {
                size: {claim.claim.name: verdict for claim, verdict in changed} for size, changed in by_size.items()
            },
            "laws": [asdict(s) for s in made],
            "winner": {who: _winner(of) for who, of in (("ours", made), ("paper", paper))},
            "coefficients": material.coefficients,
            "blind": {k: v for k, v in scored.items() if k != "runs"} if scored else None,
            "spending": material.spending.to_dict("records"),
            "time_predicted": asdict(told) if told else None,
            "not_drawn": dict(not_drawn),
        }
        _write(place / "summary.json", summary)
        drawn = {file.name for file in (place / "figures").iterdir()}
    for name in _figures(study, made, paper, scored):
        for file in (out / "figures").glob(f"{name}.*"):
            if file.name not in drawn:  # of other runs, in the same folder before
                file.unlink()
    return summary


def _outlier(run: Outlier | None) -> dict[str, Any] | None:
    if run is None:
        return None
    return {**asdict(replace(run, changed=())), "changed": [(c.as_dict(), verdict) for c, verdict in run.changed]}


def _winner(made: list[LawResult]) -> dict[str, Any]:
    best, level = winner(made)
    return {"law": best, "clearly behind on no router": level}


def _scored(study: Study, predictions: Path) -> dict[str, Any] | None:
    if not predictions.is_file():
        return None
    try:
        scored = blind.score(study, json.loads(predictions.read_text(encoding="utf-8")))
        return {**scored, "preregistration": asdict(preregistration(study, predictions))}
    except InputError:  # predicted, and not trained yet
        return None


def _draw(
    study: Study, made: list[LawResult], paper: list[LawResult], scored: dict[str, Any] | None, place: Path
) -> tuple[list[Picture], list[tuple[str, str]]]:
    (place / "figures").mkdir()
    pictures, not_drawn = [], []
    for name, (title, caption, draw) in _figures(study, made, paper, scored).items():
        figure = Figure(name, title, caption, lambda _, draw=draw: draw())
        try:
            paths = figure.save(study.table, place / "figures")
        except (InputError, CannotDraw) as error:
            not_drawn.append((title, str(error)))
            continue
        links = [(p.suffix[1:].upper(), f"figures/{p.name}") for p in paths]
        pictures.append(Picture(f"figure-{name}", title, caption, embedded(paths), links=links))
    return pictures, not_drawn


def _figures(
    study: Study, made: list[LawResult], paper: list[LawResult], scored: dict[str, Any] | None
) -> dict[str, tuple[str, str, Callable[[], Drawn]]]:
    def blind_test() -> Drawn:
        if scored is None:
            raise InputError("nothing was predicted, or the size is not trained yet")
        return figures_of_results.draw_blind(scored)

    return {
        "main": ("The law on our runs", "(a) Loss of one router by E and size with the paper's law (dotted). "
                 "(b) Its level curves; dots are runs. (c) All runs at their effective parameters N̄, dense ones at N."
                 + _undetermined(study),
                 lambda: figures_of_results.draw_main(study)),
        "law_ranking": ("Laws ranked by a size left out", "Error on each size predicted from the others, with its 90 % "
                        "interval over resampled sizes; open marks are clearly behind the best, or wrong by 26 % "
                        "and more (an arrow); intervals end at 3 and 1000. Crosses: the same on the paper's "
                        "losses. Grey band: the noise of seeds, below which nothing can be told.",
                        lambda: figures_of_results.draw_ranking(made, paper, floor_of(study))),
        "blind_test": ("The blind test", "First: error of every law on the largest size, predicted before it was "
                       "trained. Then each router's models under the best law, the paper's and irreducible: predicted "
                       "over measured loss, with 90 % intervals; zero is right.", blind_test),
        "k_and_r": ("Experts per token and share of routed blocks", "Left: loss of K > 1 over the line through K = 1 "
                    "at equal FLOPs; below zero the FLOPs were better spent on K. Right: loss by the share of blocks "
                    "that are routed.", lambda: figures_of_results.draw_k_and_r(study)),
        **{figure.name: (figure.title, figure.caption, partial(figure.draw, study.table)) for figure in OF_THE_PACKAGE},
        "balance": ("Sensitivity to the balance weight", "(a) Loss over that of the best weight of each router; the "
                    "grey band is what seeds do. (b) Assignments beyond an even load of their group.",
                    lambda: figures_of_choices.draw_balance(study)),
        "cross": ("RL-R by entropy and balance weight", "Loss over that of the best cell, and assignments beyond an "
                  "even load. A positive entropy weight concentrates the policy.",
                  lambda: figures_of_choices.draw_cross(study)),
        "rates": ("Learning rates", "Loss over that of the best rate, up to .2 nats. (a) Dense models, on which rates "
                  "were chosen. (b) Routed models at half and twice the rate that was chosen.",
                  lambda: figures_of_choices.draw_rates(study)),
        "rl_weights": ("RL-R learns to route, or does not", "Every dot is a run with other weights of the policy's "
                       "losses (balance, policy and entropy weight) or another reward.",
                       lambda: figures_of_choices.draw_rl_weights(study)),
        "temperature": ("S-BASE by the temperature of its rebalancing", "(a) Gain over the dense model, HASH's beside "
                        "it. (b) Assignments beyond the capacity at the end of training. The paper's temperature is 1.",
                        lambda: figures_of_choices.draw_temperature(study)),
        "drops": ("How tokens are spread", "(a) Assignments dropped for lack of capacity and (b) beyond an even load "
                  "of their group, at the end of training, over all routed blocks; larger models are darker.",
                  lambda: figures_of_choices.draw_drops(study)),
        "zero_shot": ("Zero-shot losses", "(a) Losses on other text against the validation loss; marks are routers. "
                      "(b) Their slope in log N less that of the validation loss: above zero they fall more slowly.",
                      lambda: figures_of_results.draw_transfer(study)),
    }  # fmt: skip


def _undetermined(study: Study) -> str:
    """What the fit of the main figure leaves open, for its caption."""
    try:
        warnings = figures_of_results.main_fit(study).warnings
    except InputError:
        return ""
    return f" Beyond the runs themselves the curves are not to be relied on: {' '.join(warnings)}" if warnings else ""


def _coefficients(study: Study) -> list[dict[str, Any]]:
    """The paper's law by router, with intervals from resampled sizes; or why there is none."""
    found, missing = resampled(study)
    made: list[dict[str, Any]] = []
    for router, (sizes, _) in found.items():
        spans = {}
        for quantity in parameter_quantities(sizes.fit.law):
            i = sizes.interval(quantity)
            spans[quantity.name] = f"{'' if i.open_low else f'{i.low:.3g}'} … {'' if i.open_high else f'{i.high:.3g}'}"
        made.append({"router": router, "params": sizes.fit.params, "spans": spans, "warnings": sizes.fit.warnings})
    return made + [{"router": router, "missing": why} for router, why in missing.items()]


def _write(path: Path, content: Any) -> None:
    """JSON knows no infinity: an end that an interval does not have is null."""
    text = json.dumps(finite(content), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=HERE)
    parser.add_argument("--out", type=Path, default=Path("out/miniature/report"))
    parser.add_argument("--price", type=float, help="of an hour of the device")
    asked = parser.parse_args()
    table = asked.folder / DATA.name / TABLE
    if not table.is_file():
        print(f"{table} is not there yet: nothing to report.")
        return
    summary = report(asked.folder, asked.out, price=asked.price)
    found = ", ".join(f"{n} {verdict}" for verdict, n in summary["verdicts"].items())
    print(f"{asked.out / 'index.html'}: {found}")


if __name__ == "__main__":
    run_program(main)
