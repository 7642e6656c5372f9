"""The studies of the paper that a source was made for, or that were asked for: figure, claims and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from routelaw.errors import InputError
from routelaw.figures import all_figures
from routelaw.figures.figure import CannotDraw
from routelaw.formatting import finite
from routelaw.report.page import Block, Bullets, Picture, Text, embedded
from routelaw.report.page.judged import claims_grid, rules_of
from routelaw.report.runs.data import ReportData, one_recipe
from routelaw.runs.table import RunTable
from routelaw.studies.paper import get_study
from routelaw.studies.study import JudgedStudy, Study
from routelaw.studies.study_runs import SPREAD, StudyRuns

FOLDER = "studies"
"""Below the folder of figures: a study's figures are drawn from all lengths."""
VARIES = ("seed", "steps")
"""What runs may differ in that a study compares."""


@dataclass(frozen=True)
class ReportedStudy:
    judged: JudgedStudy
    pictures: Sequence[Picture]
    not_drawn: Mapping[str, str]
    """Name of a figure → why it could not be drawn."""
    excluded: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        figures = {
            picture.name.removeprefix("study-"): [link for _, link in picture.links] for picture in self.pictures
        }
        content = self.judged.as_dict()
        left_out = {"excluded": list(self.excluded), "not_drawn": dict(self.not_drawn)}
        return finite({**content, "figures": figures, **left_out})


def report_studies(
    names: Sequence[str], data: ReportData, target: str, logs: Mapping[str, Any], folder: Path, address: str
) -> list[ReportedStudy]:
    """Judge the studies and draw their figures into `folder`, which the page knows by `address`."""
    if data.table is None or not names:
        return []
    specs = {run.run_id: run.spec for run in data.runs if run.spec is not None}
    table, excluded = one_recipe(data.table, specs, VARIES)
    runs = StudyRuns.of(table, target, _routing(logs))
    found = []
    for study in map(get_study, names):
        pictures, not_drawn = _draw(study, table, folder, address)
        found.append(ReportedStudy(study.judge(runs), pictures, not_drawn, excluded))
    return found


def _routing(logs: Mapping[str, Any]) -> pd.DataFrame | None:
    """How every routed block spread its tokens, as it was logged."""
    rows = [
        {"run_id": run_id, "step": row["step"], "block": layer.get("block"),
         "oversubscribed": layer.get("oversubscribed"), "dropped": layer.get("dropped"),
         "router_entropy": (layer.get("metrics") or {}).get("entropy")}
        for run_id, log in logs.items() for row in log if "step" in row for layer in row.get("layers") or []
    ]  # fmt: skip
    return pd.DataFrame(rows).astype(dict.fromkeys(SPREAD, float)) if rows else None


def _draw(study: Study, table: RunTable, folder: Path, address: str) -> tuple[list[Picture], dict[str, str]]:
    known = {figure.name: figure for figure in all_figures()}
    pictures, not_drawn = [], {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in study.figures:
        figure = known[name]
        try:
            paths = figure.save(table, folder)
        except (CannotDraw, InputError) as error:
            not_drawn[figure.title] = str(error)
            continue
        links = [(path.suffix[1:].upper(), f"{address}/{path.name}") for path in paths]
        pictures.append(Picture(f"study-{name}", figure.title, figure.caption, embedded(paths), figure.paper, links))
    return pictures, not_drawn


def study_section(reported: ReportedStudy, anchor: str) -> tuple[str, str, list[Block]]:
    """Title, anchor and blocks."""
    study = reported.judged.study
    return f"Study: {study.name}", f"{anchor}-{study.name}", _blocks(reported)


def _blocks(reported: ReportedStudy) -> list[Block]:
    judged = reported.judged
    blocks: list[Block] = [
        Text(f"{judged.study.question} ({judged.study.place} of the paper)", "key"),
        Text(judged.in_short),
        *reported.pictures,
        *(Text(f"{title} cannot be drawn from these runs: {why}") for title, why in reported.not_drawn.items()),
        claims_grid(judged.claims),
        Text(judged.noise_in_words, "soft"),
    ]
    if notes := [*reported.excluded, *judged.notes]:
        blocks.append(Bullets(notes))
    return [*blocks, Text("How each claim is judged:", "soft"), rules_of(claim.claim for claim in judged.claims)]
