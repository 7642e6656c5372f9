"""Every study file of the paper in miniature, cut to its smallest sizes: the report ends with figure and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from synthetic_store import write_store

from routelaw.fitting.claims import FAILS, HOLDS, OPEN
from routelaw.report.runs.data import read_report_data
from routelaw.report.runs.studies import report_studies, study_section
from routelaw.runs.store import Store
from routelaw.sweeps.sweep import Sweep, read_sweep, smallest_sizes

EXPERIMENTS = Path(__file__).parents[3] / "experiments" / "paper"
FILES = sorted({path.stem for path in EXPERIMENTS.glob("*.toml")} - {"paper", "miniature"})
BASE = 'base = "paper.toml"'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("miniature")
    for path in EXPERIMENTS.glob("*.toml"):
        (place / path.name).write_text(path.read_text("utf-8").replace(BASE, BASE.replace("paper", "miniature")))
    return place


def cut(folder: Path, file: str, **overrides: Any) -> Sweep:
    corpus: Any = SimpleNamespace(vocabulary=2048, id="c")
    return smallest_sizes(read_sweep(folder / f"{file}.toml", overrides=overrides, opened=lambda _: corpus), 2)


def judged(store: Path, study: str, out: Path) -> Any:
    (data,) = read_report_data(store)
    (found,) = report_studies([study], data, "loss_validation", logs_of(store), out, "figures")
    return found


def logs_of(store: Path) -> Mapping[str, Any]:
    return {run.run_id: run.log() for run in Store(store).runs()}


@pytest.mark.slow
@pytest.mark.parametrize(("file", "steps"), [*((file, 20) for file in FILES), ("lengths", None)])
def test_ends_with_its_figure_and_verdicts(folder: Path, tmp_path: Path, file: str, steps: int | None) -> None:
    sweep = cut(folder, file, **({"train.steps": steps} if steps else {}))
    specs = [run.spec for run in sweep.runs]
    store = write_store(tmp_path / "store", specs, evaluations=1 if steps else 6, logged=2)
    found = judged(store, sweep.study, tmp_path / "out")
    assert [picture.name for picture in found.pictures], found.not_drawn
    assert all((tmp_path / "out" / Path(link).name).is_file() for p in found.pictures for _, link in p.links)
    assert {claim.verdict for claim in found.judged.claims} <= {HOLDS, FAILS, OPEN}
    assert all(claim.why for claim in found.judged.claims)
    _, _, blocks = study_section(found, "study")
    assert blocks
