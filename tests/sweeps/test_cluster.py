"""A sweep on Ray: what is specific to it. That a lost node loses nothing is shown by test_faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_runs import EXECUTION, make_spec

from routelaw.corpus import Corpus
from routelaw.errors import InputError
from routelaw.runs.store import Store
from routelaw.sweeps.local import Machine
from routelaw.sweeps.ray_cluster import run_on_ray
from routelaw.sweeps.sweep import PlannedRun
from routelaw.sweeps.task import Task

pytest.importorskip("ray", reason="Ray is not installed: pip install 'routelaw[ray]'")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_told_to_stop_its_runs_leave_checkpoints(tiny_corpus: Corpus, tmp_path: Path) -> None:
    store, spec = Store(tmp_path / "store"), make_spec(tiny_corpus, "hash", steps=1_000_000)
    task = Task.of(PlannedRun(spec, EXECUTION, tiny_corpus.path, {}), EXECUTION, store, ())
    sweep = run_on_ray([task], store, address="local", cpus=1, gpus=0)
    for _ in sweep:
        if max((run.last_logged().get("step", 0) for run in store.runs()), default=0) >= 3:
            break
    sweep.close()
    [run] = store.runs()
    assert run.status == "stopped"
    assert (run.folder / "checkpoints" / f"step-{run.last_logged()['step']:08d}").is_dir()
    assert [path.name for path in store.path.iterdir()] == ["unfinished"], "the sign to stop is taken away"


def test_a_gpu_is_not_hoped_for() -> None:
    from dataclasses import replace

    asks = [replace(EXECUTION, device="cuda")]
    with pytest.raises(InputError, match="--gpus-per-run"):
        Machine.on_cluster(asks, 1, 0)
    assert Machine.on_cluster(asks, 2, 0.25).execution(asks[0]).device == "cuda"
    assert Machine.on_cluster([replace(EXECUTION, device="auto")], 2, 0).execution(EXECUTION).device == "cpu"
