"""Runs at a time: never more than there is memory for, whichever meet; and how fast models are by themselves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from experiments.miniature.studies import SWEEPS, specs_of
from experiments.miniature.train import machine as machine_module
from experiments.miniature.train.allocation import build_quick_corpora
from experiments.miniature.train.machine import fitting_jobs, largest_at_once, machine_for, measured
from routelaw.costs.memory import footprint_of
from routelaw.runs.store import Store
from routelaw.specs.run import ExecutionSpec
from routelaw.sweeps.estimate.memory_check import AvailableMemory, RequiredMemory, required_memory
from routelaw.sweeps.sweep import PlannedRun, read_sweep

GB = 10**9
H200, HOST, DISK = AvailableMemory(149 * GB, 137 * GB), AvailableMemory(None, 137 * GB), 10**13


def needs_of(study: str) -> tuple[list[RequiredMemory], list[int]]:
    made = [footprint_of(spec, ExecutionSpec(), "bfloat16", gpu=True) for spec in specs_of(study, "c", 8192)]
    return [required_memory(memory, gpu=True, shared=True) for memory in made], [memory.checkpoint for memory in made]


def test_the_largest_are_added_up() -> None:
    assert largest_at_once([1, 5, 3], 9) == 3
    assert largest_at_once([1, 5, 3], 8) == 2
    assert largest_at_once([1, 5, 3], 7) == 1
    assert largest_at_once([1, 5, 3], 4) == 1, "it fails by itself"
    assert largest_at_once([1, 5, 3], None) == 3


def test_every_limit_counts() -> None:
    needs, checkpoints = [RequiredMemory(10, 4)] * 8, [2] * 8
    assert fitting_jobs(6, needs, checkpoints, AvailableMemory(100, 100), 100, 1) == 6
    assert fitting_jobs(6, needs, checkpoints, AvailableMemory(35, 100), 100, 1) == 3, "the GPU"
    assert fitting_jobs(6, needs, checkpoints, AvailableMemory(35, 100), 100, 2) == 6, "two of them"
    assert fitting_jobs(6, needs, checkpoints, AvailableMemory(35, 19), 100, 2) == 4, "the host"
    assert fitting_jobs(6, needs, checkpoints, AvailableMemory(100, 100), 5, 1) == 2, "the disk"
    assert fitting_jobs(6, needs, checkpoints, AvailableMemory(None, 100), 100, 0) == 6


@pytest.mark.parametrize("study", ["main", "largest"])
def test_those_that_are_let_go_together_fit_an_h200(study: str) -> None:
    needs, checkpoints = needs_of(study)
    jobs = fitting_jobs(99, needs, checkpoints, H200, DISK, 1)
    for kind, there in (("device", H200.device), ("host", H200.host)):
        together = sorted((getattr(need, kind) for need in needs), reverse=True)[:jobs]
        assert sum(together) <= (there or 0)
    assert jobs >= 6, "as many as an allocation is told to have"
    assert fitting_jobs(6, needs, checkpoints, AvailableMemory(40 * GB, H200.host), DISK, 1) < 6, (
        "a smaller GPU has fewer"
    )


def test_an_allocation_has_as_many_as_fit_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = specs_of("quick", "c", 8192)
    runs = [PlannedRun(spec, ExecutionSpec(device="cpu", threads=1), tmp_path, {}) for spec in specs]
    monkeypatch.setattr(machine_module, "available_memory", lambda *_: HOST)
    machine, words = machine_for(runs, Store(tmp_path), 3)
    assert (machine.jobs, words) == (3, "")
    monkeypatch.setattr(machine_module, "available_memory", lambda *_: AvailableMemory(None, GB))
    machine, words = machine_for(runs, Store(tmp_path), 3)
    assert machine.jobs < 3
    assert f"{machine.jobs} runs at a time, not 3: the largest needs" in words


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
