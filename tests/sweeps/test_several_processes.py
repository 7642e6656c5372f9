"""Runs of a sweep that take several processes each, on this machine and on Ray."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_runs import EXECUTION, make_spec

from routelaw.corpus import Corpus
from routelaw.errors import InputError
from routelaw.runs.folders import EVALUATIONS, read_lines
from routelaw.runs.store import Store
from routelaw.specs.run import RouterSpec, RunSpec
from routelaw.sweeps.local import Machine, run_local, worker_environment
from routelaw.sweeps.progress import Event, Lost, RunEnded
from routelaw.sweeps.ray_cluster import run_on_ray
from routelaw.sweeps.sweep import PlannedRun
from routelaw.sweeps.task import Task, carry_out

ON_TWO = replace(EXECUTION, expert=2, save_every=5, hang_timeout=60.0)
ROUTED = RouterSpec("s-base", 4, group_tokens=16)


def make_task(corpus: Corpus, store: Store, spec: RunSpec, execution=ON_TWO) -> Task:
    return Task.of(PlannedRun(spec, execution, corpus.path, {}), execution, store, ())


def losses(store: Store, run_id: str) -> list[float]:
    [run] = [run for run in store.runs() if run.run_id == run_id]
    assert run.status == "finished"
    return [row["loss_validation"] for row in read_lines(run.folder / EVALUATIONS)]


def ranks(store: Store) -> list[int]:
    """Processes of this machine that train, by their numbers."""
    own = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if b"one-rank" in (path / "cmdline").read_bytes():
                variables = dict(v.split(b"=", 1) for v in (path / "environ").read_bytes().split(b"\0") if b"=" in v)
                if variables.get(b"TEST_STORE") == str(store.path).encode():
                    own[int(variables[b"RANK"])] = int(path.name)
        except OSError:
            continue
    return [own[rank] for rank in sorted(own)]


@pytest.mark.long
def test_a_lost_process_of_a_run_costs_only_what_was_not_saved(
    tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, alone = Store(tmp_path / "store"), Store(tmp_path / "alone")
    monkeypatch.setenv("TEST_STORE", str(store.path))
    spec = make_spec(tiny_corpus, ROUTED, steps=60)
    seen: list[Event] = []
    killed = False
    for event in run_local([make_task(tiny_corpus, store, spec)], store, devices=["cpu"], threads=1):
        seen.append(event)
        step = max((run.last_logged().get("step", 0) for run in store.runs()), default=0)
        if not killed and step >= 8 and len(found := ranks(store)) == 2:
            os.kill(found[1], signal.SIGKILL)
            killed = True
    assert killed
    [lost] = [event for event in seen if isinstance(event, Lost)]
    assert lost.reason.startswith("process 1 of 2 was ended by SIGKILL (out of memory?")
    assert RunEnded(spec.run_id) in seen
    assert carry_out(make_task(tiny_corpus, alone, spec, EXECUTION)).kind == "ended"
    assert losses(store, spec.run_id) == pytest.approx(losses(alone, spec.run_id), abs=1e-5)


@pytest.fixture
def two_nodes() -> Iterator[str]:
    """A Ray cluster of two nodes with a core each, both this machine."""
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed: pip install 'routelaw[ray]'")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        yield cluster.address
    finally:
        cluster.shutdown()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_over_two_nodes_of_a_cluster(tiny_corpus: Corpus, tmp_path: Path, two_nodes: str) -> None:
    store, spec = Store(tmp_path / "store"), make_spec(tiny_corpus, ROUTED, steps=8)
    task = make_task(tiny_corpus, store, spec)
    assert RunEnded(spec.run_id) in list(run_on_ray([task], store, address=two_nodes, cpus=1, gpus=0))
    assert len(losses(store, spec.run_id)) == 2
    assert not list(store.path.glob(".stop*"))
    with pytest.raises(InputError, match="each of a run's 2 processes needs 2 CPUs and 0 GPUs, and no node"):
        next(iter(run_on_ray([task], store, address=two_nodes, cpus=2, gpus=0)))


@pytest.mark.long
def test_wrong_input_is_a_reason_not_a_retry(tiny_corpus: Corpus, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    outcome = carry_out(make_task(tiny_corpus, store, make_spec(tiny_corpus, RouterSpec("s-base", 3, group_tokens=16))))
    assert outcome.kind == "failed"
    assert outcome.reason == "3 experts cannot be spread evenly over 2 processes."


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)


def test_more_jobs_than_gpus_share_them_in_turn(four_gpus: None) -> None:
    machine = Machine.here([replace(EXECUTION, device="auto")], 6)
    assert machine.devices == ("cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:0", "cuda:1")
    assert [worker_environment(device, 1)["CUDA_VISIBLE_DEVICES"] for device in machine.devices[3:5]] == ["3", "0"]


def test_gpus_are_given_out_in_lots(four_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpus = replace(EXECUTION, device="cuda", data=2)
    machine = Machine.here([on_gpus, replace(on_gpus, data=1)], None)
    assert machine.devices == ("cuda:0,1", "cuda:2,3")
    assert machine.device == "cuda"
    assert worker_environment("cuda:2,3", 1)["CUDA_VISIBLE_DEVICES"] == "2,3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert worker_environment("cuda:2,3", 1)["CUDA_VISIBLE_DEVICES"] == "6,7"
    with pytest.raises(InputError, match="at most 2 --jobs"):
        Machine.here([on_gpus], 3)
    with pytest.raises(InputError, match="a run of 8 processes needs as many GPUs, and this machine has 4"):
        Machine.here([replace(on_gpus, data=8)], None)
    with pytest.raises(InputError, match="do not share a GPU"):
        Machine.on_cluster([on_gpus], 1, 0.5)


def test_cores_are_shared_out_among_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(16))
    machine = Machine.here([replace(EXECUTION, threads=0, data=4)], None)
    assert (machine.jobs, machine.threads) == (4, 1)
    machine = Machine.here([replace(EXECUTION, threads=0, data=4)], 2)
    assert (machine.jobs, machine.threads) == (2, 2)
