"""Speeds of models by themselves: timed for real on this machine, and told apart from those of runs that shared one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from drawn_runs import drawn_study

from experiments.miniature.analysis.claims import judge_one
from experiments.miniature.studies import SWEEPS
from experiments.miniature.train.allocation import build_quick_corpora
from experiments.miniature.train.machine import measured
from routelaw.runs.store import Store
from routelaw.sweeps.sweep import read_sweep


@pytest.mark.long
def test_speeds_of_runs_are_measured(tmp_path: Path) -> None:
    place = tmp_path / "experiments" / "miniature" / "sweeps"
    shutil.copytree(SWEEPS, place)
    build_quick_corpora(tmp_path / "out" / "miniature")
    small = read_sweep(place / "quick.toml").runs[0]
    (large,) = read_sweep(place / "quick.toml", overrides={"model.size": "0.8M", "router.name": "dense"}).runs
    found = measured([small, large], Store(tmp_path / "runs"))
    assert list(found["run_id"]) == [small.spec.run_id, large.spec.run_id]
    assert (found["tokens_per_second"] > 0).all()


def test_the_pace_of_runs_that_shared_the_device_is_no_speed() -> None:
    study = drawn_study()
    assert judge_one("k speed", study).verdict == "holds"
    assert study.costs is not None
    shared = replace(study, costs=study.costs.assign(runs_at_a_time=7))
    assert judge_one("k speed", shared).why == "no speed of a model by itself was recorded"
    slow = pd.DataFrame({"run_id": study.costs["run_id"], "tokens_per_second": 1e6})
    timed = judge_one("k speed", replace(shared, speeds=slow))
    assert timed.verdict == "does not hold"
    assert timed.ours is not None
    assert timed.ours.value == pytest.approx(1.0)
