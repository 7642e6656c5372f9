"""A sweep on this machine, with real worker processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from tiny_runs import EXECUTION, make_spec

from routelaw.corpus import Corpus
from routelaw.files import sha256_of
from routelaw.runs.store import Store
from routelaw.specs.run import RouterSpec
from routelaw.sweeps.local import run_local
from routelaw.sweeps.progress import Lost, RunEnded, RunFailed, Started, Watch
from routelaw.sweeps.sweep import PlannedRun
from routelaw.sweeps.task import Task

PLUGIN = """
from routelaw.routers.router import Router, register

@register("breaks")
class Breaks(Router):
    def route(self, x_TD, token_ids_T, ctx):
        raise RuntimeError("this router breaks")
"""
DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
PRINTS = """
import os
import torch
from routelaw.routers.router import Router, Routing, register

print("loaded")

@register("prints")
class Prints(Router):
    def route(self, x_TD, token_ids_T, ctx):
        print("routing")
        os.write(1, b"and from below\\n")
        return Routing(torch.arange(len(token_ids_T)), token_ids_T % self.experts, None)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def make_tasks(corpus: Corpus, store: Store, *specs, plugins: tuple[Path, ...] = ()) -> list[Task]:
    return [Task.of(PlannedRun(spec, EXECUTION, corpus.path, {}), EXECUTION, store, plugins) for spec in specs]


@pytest.mark.long
def test_a_crashed_run_does_not_stop_the_others(tiny_corpus: Corpus, store: Store, tmp_path: Path) -> None:
    plugin = tmp_path / "breaks.py"
    plugin.write_text(PLUGIN)
    breaks = make_spec(tiny_corpus, RouterSpec("breaks", 4, plugin=sha256_of(plugin)))
    specs = [breaks, *(make_spec(tiny_corpus, "hash", seed=seed) for seed in range(3))]
    tasks = make_tasks(tiny_corpus, store, *specs, plugins=(plugin,))
    watch = Watch(store, specs)
    events = list(run_local(tasks, store, devices=["cpu", "cpu"], threads=1))
    assert {e.run_id for e in events if isinstance(e, Started)} == {spec.run_id for spec in specs}
    assert {e.run_id for e in events if isinstance(e, RunEnded)} == {spec.run_id for spec in specs[1:]}
    [failed] = [e for e in events if isinstance(e, RunFailed)]
    assert failed.run_id == breaks.run_id
    assert failed.reason.endswith("breaks.py, line 7: RuntimeError: this router breaks.")
    by_id = {run.run_id: run for run in store.runs()}
    assert by_id[breaks.run_id].status == "failed"
    assert "RuntimeError: this router breaks" in (by_id[breaks.run_id].folder / "output.log").read_text()
    progress = watch.now()
    assert (progress.runs, progress.ended) == (4, 3)
    assert progress.share == pytest.approx(0.75, abs=0.01)


@pytest.mark.slow
def test_a_worker_that_dies_of_a_signal_says_which_and_what_to_do(
    tiny_corpus: Corpus, store: Store, tmp_path: Path
) -> None:
    """As on a CPU that advertises instructions it does not have: three times, and then the run has failed."""
    plugin = tmp_path / "dies.py"
    plugin.write_text(PLUGIN.replace('"breaks"', '"dies"').replace('raise RuntimeError("this router breaks")', DIES))
    spec = make_spec(tiny_corpus, RouterSpec("dies", 4, plugin=sha256_of(plugin)))
    events = list(run_local(make_tasks(tiny_corpus, store, spec, plugins=(plugin,)), store, devices=["cpu"], threads=1))
    reasons = [event.reason for event in events if isinstance(event, Lost | RunFailed)]
    assert len(reasons) == 3
    assert all(
        "was ended by SIGILL (an instruction that this CPU does not have: set ONEDNN_MAX_CPU" in r for r in reasons
    )


@pytest.mark.slow
def test_what_a_router_prints_is_not_taken_for_an_answer(tiny_corpus: Corpus, store: Store, tmp_path: Path) -> None:
    plugin = tmp_path / "prints.py"
    plugin.write_text(PRINTS)
    spec = make_spec(tiny_corpus, RouterSpec("prints", 4, plugin=sha256_of(plugin)))
    sweep = run_local(make_tasks(tiny_corpus, store, spec, plugins=(plugin,)), store, devices=["cpu"], threads=1)
    until = time.monotonic() + 120
    seen = []
    for event in sweep:
        seen.append(event)
        assert time.monotonic() < until, "the worker was not understood"
    assert RunEnded(spec.run_id) in seen


@pytest.mark.long
def test_a_killed_worker_s_run_goes_on_and_closing_stops_in_good_order(tiny_corpus: Corpus, store: Store) -> None:
    spec = make_spec(tiny_corpus, "s-base", steps=100_000)
    [task] = make_tasks(tiny_corpus, store, spec)
    sweep = run_local([task], store, devices=["cpu"], threads=1)
    lost = None
    for event in sweep:
        step = max((run.last_logged().get("step", 0) for run in store.runs()), default=0)
        if lost is None and step >= 3:
            [worker] = children()
            os.kill(worker, signal.SIGKILL)
            lost = step
        if isinstance(event, Lost):
            assert "SIGKILL" in event.reason
        if lost is not None and step > lost + 3:
            break
    sweep.close()
    assert children() == []
    [run] = store.runs()
    last = run.last_logged()["step"]
    assert run.status == "stopped"
    assert run.folder.name == f"{spec.run_id}.1"
    assert (run.folder / "checkpoints" / f"step-{last:08d}").is_dir(), "a checkpoint of the very last step"


@pytest.mark.long
def test_workers_do_not_outlive_their_parent(tiny_corpus: Corpus, store: Store) -> None:
    """kill −9 of the parent: the worker's input ends, and so does it, in the middle of a run."""
    script = """
import json, sys
from routelaw.runs.store import Store
from routelaw.sweeps.local import run_local
from routelaw.sweeps.task import Task
for _ in run_local([Task(**json.loads(sys.argv[1]))], Store(sys.argv[2]), devices=["cpu"], threads=1):
    pass
"""
    [task] = make_tasks(tiny_corpus, store, make_spec(tiny_corpus, "dense", steps=100_000))
    parent = subprocess.Popen([sys.executable, "-c", script, json.dumps(asdict(task)), str(store.path)])
    try:
        wait_for(lambda: [run.last_logged().get("step", 0) for run in store.runs()] > [3])
        [worker] = children(parent.pid)
    finally:
        parent.kill()
        parent.wait()
    wait_for(lambda: not Path(f"/proc/{worker}").exists())
    assert [run.status for run in store.runs()] == ["stopped"]


def children(pid: int | None = None) -> list[int]:
    words = ((thread / "children").read_text() for thread in Path(f"/proc/{pid or os.getpid()}/task").iterdir())
    found = [int(word) for word in " ".join(words).split()]
    return [child for child in found if b"routelaw.sweeps.worker" in Path(f"/proc/{child}/cmdline").read_bytes()]


def wait_for(condition, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came about"
        time.sleep(0.05)
