"""What a sweep will take, said before it starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_runs import EXECUTION, ROUTERS, make_spec

from routelaw.corpus import Corpus
from routelaw.costs.memory import PROCESS_FLOOR, footprint
from routelaw.costs.step_time import KNOWN, Device
from routelaw.errors import InputError
from routelaw.runs.store import Store, StoredRun
from routelaw.specs.files import to_mapping
from routelaw.specs.run import ExecutionSpec, RouterSpec, RunSpec
from routelaw.sweeps.estimate import sweep_estimate as estimating
from routelaw.sweeps.estimate import time_estimator
from routelaw.sweeps.estimate.memory_check import (
    AvailableMemory,
    fits,
    floor_here,
    host_memory,
    memory_error,
    required_memory,
)
from routelaw.sweeps.estimate.sweep_estimate import DONE, STARTUP_SECONDS, estimate_sweep, steps_done, too_large
from routelaw.sweeps.estimate.time_estimator import (
    ARITHMETIC,
    COMPILED_BEGIN,
    MEASURED,
    SAVE_RATE,
    TRIAL,
    StepTime,
    arithmetic_pace,
    between,
    device_here,
    evaluated_tokens,
    history,
    pace_of,
    shape_of,
)
from routelaw.sweeps.estimate.trial import WARM_UP, _seconds_a_step
from routelaw.sweeps.local import Machine
from routelaw.sweeps.sweep import PlannedRun
from routelaw.sweeps.task import Task, carry_out
from routelaw.training.device import device_name, resolve_device, settings
from routelaw.training.step import StepInfo

ONE, TWO = Machine(("cpu",), 1), Machine(("cpu", "cpu"), 1)
ROOMY = AvailableMemory(None, 10**12)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever memory the machine has: the tests about it have their own."""
    monkeypatch.setattr(estimating, "available_memory", lambda *_: ROOMY)
    monkeypatch.setattr(time_estimator, "floor_here", lambda: PROCESS_FLOOR)


def planned(corpus: Corpus, router: RouterSpec | str = "s-base", **train) -> PlannedRun:
    return PlannedRun(make_spec(corpus, router, **train), EXECUTION, corpus.path, {})


def write_run(store: Store, spec: RunSpec, device: str, *, step: float, evaluation: float) -> StoredRun:
    """A finished run whose clock ticks as told: rows every 10 steps, an evaluation every 50, a slow first step."""
    folder = store.path / spec.run_id
    folder.mkdir(parents=True)
    rows, seconds = [{"step": 1, "seconds": 5.0}], 5.0
    for taken in range(10, 201, 10):
        seconds += step * (taken - rows[-1]["step"]) + (evaluation if taken % 50 == 0 else 0)
        rows.append({"step": taken, "seconds": seconds})
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "evaluations.jsonl").write_text("".join(f'{{"step": {s}}}\n' for s in (50, 100, 150, 200)))
    (folder / "spec.json").write_text(json.dumps({"run_id": spec.run_id, "spec": to_mapping(spec)}))
    (folder / "result.json").write_text(json.dumps({"status": "finished", "device": device, "seconds": seconds}))
    return StoredRun(spec.run_id, folder)


def test_shapes_are_alike_where_a_step_is(tiny_corpus: Corpus) -> None:
    def shape(router: RouterSpec | str = "s-base", micro_batches: int = 1, precision: str = "float32", **train):
        return shape_of(make_spec(tiny_corpus, router, **train), micro_batches, precision)

    assert shape() == shape(seed=3, steps=99, learning_rate=1.0)
    others = [shape("switch"), shape(batch=8), shape(micro_batches=2), shape(precision="bfloat16")]
    others.append(shape(RouterSpec("s-base", 8)))
    assert all(other != shape() for other in others)
    assert [other.family == shape().family for other in others] == [False, False, False, False, True]


def test_a_log_tells_steps_from_evaluations(tiny_corpus: Corpus, store: Store) -> None:
    run = write_run(store, make_spec(tiny_corpus), "a device", step=0.25, evaluation=3.0)
    pace = pace_of(run, evaluated_tokens=1000)
    assert pace is not None
    assert (pace.step_seconds, pace.build_seconds, pace.how) == (pytest.approx(0.25), pytest.approx(4.75), MEASURED)
    assert pace.token_seconds == pytest.approx(3.0 / 1000)
    execution = ExecutionSpec(evaluate_every=100, save_every=400)
    # 1000 steps, 10 evaluations, and 3 checkpoints of as many bytes as are saved in 2 s
    expected = 4.75 + 1000 * 0.25 + 10 * 3.0 + 3 * 2.0
    assert pace.seconds(1000, execution, 1000, round(2 * SAVE_RATE)) == pytest.approx(expected)


def test_history_is_of_the_same_device(tiny_corpus: Corpus, store: Store) -> None:
    for seed, step in enumerate((0.1, 0.2, 0.9)):
        write_run(store, make_spec(tiny_corpus, seed=seed), "a device", step=step, evaluation=1.0)
    write_run(store, make_spec(tiny_corpus, seed=9), "another", step=7.0, evaluation=1.0)
    shape = shape_of(make_spec(tiny_corpus, seed=5), 1, "float32")
    other = replace(shape, batch=shape.batch * 2)
    found = history(store, [shape, other], "a device", 1000)
    assert found.keys() == {shape}
    assert found[shape].step_seconds == pytest.approx(0.2)
    assert history(store, [shape], "a third", 1000) == {}


def test_a_result_that_says_how_it_was_done_counts_for_that_alone(tiny_corpus: Corpus, store: Store) -> None:
    run = write_run(store, make_spec(tiny_corpus), "a device", step=0.1, evaluation=1.0)
    (run.folder / "result.json").write_text(json.dumps({**run.result, "micro_batches": 2}))
    one, two = (shape_of(make_spec(tiny_corpus), pieces, "float32") for pieces in (1, 2))
    assert history(store, [one, two], "a device", 1000).keys() == {two}
    (run.folder / "result.json").write_text(json.dumps({**run.result, "micro_batches": 1, "compile": "step"}))
    recorded = replace(one, compile="step")
    assert history(store, [one, recorded], "a device", 1000).keys() == {recorded}
    again = replace(recorded, recompute=True)
    assert history(store, [again], "a device", 1000) == {}
    (run.folder / "result.json").write_text(json.dumps({**run.result, "recompute": True}))
    assert history(store, [recorded, again], "a device", 1000).keys() == {again}


def test_a_damaged_run_tells_nothing(tiny_corpus: Corpus, store: Store) -> None:
    run = write_run(store, make_spec(tiny_corpus), "a device", step=0.1, evaluation=1.0)
    (run.folder / "result.json").write_text("{")
    assert history(store, [shape_of(run.spec, 1, "float32")], "a device", 1000) == {}


def test_between_two_numbers_of_experts() -> None:
    few, many = StepTime(1.0, 0.1, 2.0, TRIAL), StepTime(4.0, 0.4, 8.0, TRIAL)
    assert between((2, few), (8, many), 2) == few
    assert between((2, few), (8, many), 8) == many
    assert between((2, few), (8, many), 4) == StepTime(2.0, pytest.approx(0.2), 4.0, TRIAL)


def test_runs_in_the_store_are_known_and_done(tiny_corpus: Corpus, store: Store) -> None:
    first, second, other = planned(tiny_corpus), planned(tiny_corpus, seed=1), planned(tiny_corpus, "hash")
    assert carry_out(Task.of(first, EXECUTION, store, ())).kind == "ended"
    found = estimate_sweep([first, second, other], store, machine=ONE, price=36.0)
    assert [run.how for run in found.runs] == [DONE, MEASURED, ARITHMETIC]
    assert [run.done for run in found.runs] == [True, False, False]
    assert found.runs[0].seconds == found.runs[0].cost == 0
    assert found.runs[1].seconds > 0
    assert found.rough
    assert found.cost == pytest.approx(sum(run.seconds for run in found.runs) * 36 / 3600)
    assert found.wall_seconds == pytest.approx(STARTUP_SECONDS + sum(run.seconds for run in found.runs))
    assert json.loads(json.dumps(found.to_json()))["runs"][1]["how"] == MEASURED
    assert "2 runs to do, 1 are there" in found.sentences()[0]
    done = estimate_sweep([first], store, machine=ONE)
    assert (done.wall_seconds, done.rough, done.checkpoint_bytes) == (0, False, 0)


def test_what_a_checkpoint_holds_is_not_done_again(tiny_corpus: Corpus, store: Store) -> None:
    run = planned(tiny_corpus, steps=9)
    whole = estimate_sweep([run], store, machine=ONE, device_name="h100").runs[0].seconds
    asked = iter([False] * 5 + [True])
    carry_out(Task.of(run, EXECUTION, store, ()), lambda: next(asked))
    assert steps_done(store, run.spec.run_id) == 6
    left = estimate_sweep([run], store, machine=ONE, device_name="h100").runs[0].seconds
    assert left - COMPILED_BEGIN == pytest.approx((whole - COMPILED_BEGIN) / 3, rel=0.2)


def test_workers_take_the_longest_first(tiny_corpus: Corpus, store: Store) -> None:
    runs = [planned(tiny_corpus, steps=steps) for steps in (1000, 4000, 3000)]
    found = estimate_sweep(runs, store, machine=TWO, price=10.0)
    by_steps = {run.run.spec.train.steps: run.seconds for run in found.runs}
    longest = max(by_steps[4000], by_steps[3000] + by_steps[1000])
    assert found.wall_seconds == pytest.approx(STARTUP_SECONDS + longest)
    # two runs share the machine: each costs half of it while it lasts
    assert found.device_hours == pytest.approx(sum(by_steps.values()) / 2 / 3600)
    assert found.cost == pytest.approx(10 * found.device_hours)


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 10])
def test_the_seconds_of_a_step_are_those_between_looks(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Each step takes a quarter of a second by this clock, looked at or not."""
    now = [0.0]
    monkeypatch.setattr("routelaw.sweeps.estimate.trial.time.perf_counter", lambda: now[0])

    def steps() -> Iterator[StepInfo]:
        for step in range(WARM_UP + 1, 1000):
            now[0] += 0.25
            if step % every == 0:
                yield StepInfo(step, 1.0, 1.0, 1e-3, False, [])

    looked = steps()
    assert _seconds_a_step(looked) == pytest.approx(0.25)
    assert next(looked).step < 40, "a trial is short"


@pytest.mark.long
def test_trial_steps_of_real_processes(tiny_corpus: Corpus, store: Store) -> None:
    runs = [planned(tiny_corpus, RouterSpec("s-base", experts), batch=16) for experts in (2, 4, 16)]
    runs += [planned(tiny_corpus, "dense"), planned(tiny_corpus, "dense", seed=1)]
    heard = []
    found = estimate_sweep(runs, store, machine=TWO, measure=True, notice=lambda *counts: heard.append(counts))
    assert {run.how for run in found.runs} == {TRIAL}
    assert heard == [(2, 3), (3, 3)]
    low, middle, high = (run.seconds for run in found.runs[:3])
    assert min(low, high) <= middle <= max(low, high)
    assert found.runs[3].seconds == found.runs[4].seconds > 0
    assert store.runs() == []  # nothing is left behind


@pytest.mark.slow
def test_a_trial_that_fails_says_why(tiny_corpus: Corpus, store: Store, tmp_path: Path) -> None:
    plugin = tmp_path / "breaks.py"
    plugin.write_text("import no_such_module\n")
    with pytest.raises(InputError, match=r"trial steps failed .*no_such_module"):
        estimate_sweep([planned(tiny_corpus)], store, machine=ONE, measure=True, plugins=[plugin])


def test_the_device_is_named_as_in_results(tiny_corpus: Corpus, store: Store) -> None:
    found = estimate_sweep([planned(tiny_corpus)], store, machine=ONE)
    with settings(EXECUTION, resolve_device("cpu")):
        assert found.device == device_name(resolve_device("cpu"))


def test_arithmetic_grows_with_the_work(tiny_corpus: Corpus) -> None:
    device = Device("a device", lambda width: 1e12, 1e11, False)

    def step(router: RouterSpec | str = "dense", **train) -> float:
        spec = make_spec(tiny_corpus, router, **train)
        return arithmetic_pace(PlannedRun(spec, EXECUTION, Path(), {}), footprint(spec), device).step_seconds

    assert step() < step("hash") < step(RouterSpec("hash", 64))
    assert step(batch=64) > step()
    assert step(RouterSpec("base", 16)) > step(RouterSpec("switch", 16))
    slower = Device("slower", lambda width: 1e9, 1e8, False)
    spec = make_spec(tiny_corpus)
    planned = PlannedRun(spec, EXECUTION, Path(), {})
    assert arithmetic_pace(planned, footprint(spec), slower).step_seconds > step("s-base")


def test_recomputation_takes_another_forward_pass_of_the_blocks(tiny_corpus: Corpus) -> None:
    device, spec = Device("a device", lambda width: 1e12, 1e11, False), make_spec(tiny_corpus, "dense")
    once, again = (
        arithmetic_pace(PlannedRun(spec, replace(EXECUTION, recompute=on), Path(), {}), footprint(spec), device)
        for on in (False, True)
    )
    blocks = spec.counts.flops_per_token - 2 * spec.model.vocabulary * spec.model.architecture.d_model
    tokens = spec.train.batch * spec.model.sequence_length
    assert again.step_seconds - once.step_seconds == pytest.approx(tokens * blocks / 1e12)
    assert again.token_seconds == once.token_seconds, "evaluation keeps nothing"


def test_rates_of_this_machine_are_those_of_a_computer() -> None:
    here = device_here("cpu", 1, "float32")
    assert 1e8 < here.flops(64) < 1e14
    assert 1e8 < here.bandwidth < 1e13


def test_a_device_that_is_not_here(tiny_corpus: Corpus, store: Store) -> None:
    runs = [planned(tiny_corpus, router) for router in ROUTERS.values()]
    found = estimate_sweep(runs, store, machine=ONE, device_name="H100", price=2.0)
    assert {run.how for run in found.runs} == {ARITHMETIC}
    assert (found.device, found.available.device) == ("h100", 80 * 10**9)
    assert found.runs[0].memory.masters > 0  # bfloat16, as on any GPU
    assert not any("--measure" in sentence for sentence in found.sentences())  # there is nothing to measure
    with pytest.raises(InputError, match="h100"):
        estimate_sweep(runs, store, machine=ONE, device_name="h1000")


def test_products_reach_more_of_the_peak_the_wider_they_are() -> None:
    rates = [KNOWN["h200"].flops(width) for width in (128, 256, 448, 896, 1536)]
    measured = [157e12, 402e12, 571e12, 710e12, 748e12]
    assert rates == pytest.approx(measured, rel=0.06)


def test_evaluations_are_of_whole_windows(tiny_corpus: Corpus) -> None:
    run = planned(tiny_corpus)
    assert evaluated_tokens(run) == 256
    there = len(tiny_corpus.validation.tokens)
    everything = replace(run, execution=replace(EXECUTION, evaluate_tokens=10**9), others={"again": tiny_corpus.path})
    assert evaluated_tokens(everything) == 2 * (there // 16 * 16)


# -- memory ----------------------------------------------------------------------------------------------------


def test_a_run_that_does_not_fit_is_named_with_what_would_help(
    tiny_corpus: Corpus, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [planned(tiny_corpus, RouterSpec("s-base", experts)) for experts in (4, 512)]
    required = [footprint(run.spec).with_slack + PROCESS_FLOOR for run in runs]
    monkeypatch.setattr(estimating, "available_memory", lambda *_: AvailableMemory(None, required[1] - 1))
    found = estimate_sweep(runs, store, machine=TWO)
    said = too_large(found)
    assert said is not None
    assert said.startswith(f"s-base 6.78K E=512 ({runs[1].spec.run_id}) needs ")
    assert "(the process itself 420 MB, evaluation 134 MB, optimiser 8.54 MB, " in said
    assert said.endswith("for each of 2 runs at a time: take fewer experts or fewer --jobs.")
    assert said in found.sentences()
    assert said == found.to_json()["too_large"]
    monkeypatch.setattr(estimating, "available_memory", lambda *_: AvailableMemory(None, required[1]))
    assert too_large(estimate_sweep(runs, store, machine=TWO)) is None


def test_a_long_batch_is_helped_by_micro_batches(
    tiny_corpus: Corpus, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimating, "available_memory", lambda *_: AvailableMemory(None, 1000))
    said = too_large(estimate_sweep([planned(tiny_corpus, "dense")], store, machine=ONE))
    assert said is not None
    assert said.endswith("and there is 1 kB: take more execution.micro_batches.")


def test_what_lacks_beside_a_gpu_is_said_of_the_host(tiny_corpus: Corpus) -> None:
    spec = make_spec(tiny_corpus, RouterSpec("switch", 8))
    memory = footprint(spec, 1, "bfloat16", gpu=True)
    required = required_memory(memory, gpu=True, shared=False)
    assert fits(required, AvailableMemory(required.device, required.host))
    assert (
        memory_error("a run", memory, required, AvailableMemory(required.device, required.host), jobs=1, experts=8)
        is None
    )
    short = memory_error(
        "a run", memory, required, AvailableMemory(required.device, required.host - 1), jobs=1, experts=8
    )
    assert short is not None
    assert "of this machine's memory (the process itself 1.2 GB, model and optimiser on their way to disk" in short
    short = memory_error(
        "a run", memory, required, AvailableMemory(required.device - 1, required.host), jobs=1, experts=8
    )
    assert short is not None
    assert "of the GPU's memory (the process itself 800 MB, " in short
    assert required_memory(memory, gpu=True, shared=True).device > required.device


def test_a_run_that_does_not_fit_is_not_tried(
    tiny_corpus: Corpus, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimating, "available_memory", lambda *_: AvailableMemory(None, 1000))
    found = estimate_sweep([planned(tiny_corpus)], store, machine=ONE, measure=True)
    assert [run.how for run in found.runs] == [ARITHMETIC]


def write_machine(folder: Path, cgroup: str, files: dict[str, str]) -> tuple[Path, Path]:
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    (folder / "proc" / "self" / "cgroup").write_text(cgroup)
    for name, content in files.items():
        (folder / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup" / name).write_text(content)
    return folder / "proc", folder / "cgroup"


V2 = {
    "memory.max": "max\n",
    "a/memory.max": "5000000\n",
    "a/memory.current": "2000000\n",
    "a/memory.stat": "anon 1\ninactive_file 500000\n",
    "a/b/memory.max": "max\n",
}
V1 = {
    "memory/memory.limit_in_bytes": "9223372036854771712\n",
    "memory/c/memory.limit_in_bytes": "3000000\n",
    "memory/c/memory.usage_in_bytes": "1000000\n",
    "memory/c/memory.stat": "total_inactive_file 0\n",
}


@pytest.mark.parametrize(
    ("cgroup", "files", "left"),
    [
        ("0::/a/b\n", V2, 3_500_000),
        ("4:memory,cpu:/c\n1:cpu:/\n0::/\n", V1, 2_000_000),
        ("0::/elsewhere\n", {}, 8000 * 1024),
    ],
)
def test_memory_of_a_machine_and_its_control_groups(
    tmp_path: Path, cgroup: str, files: dict[str, str], left: int
) -> None:
    assert host_memory(*write_machine(tmp_path, cgroup, files)) == left


def test_memory_of_a_machine_that_does_not_tell(tmp_path: Path) -> None:
    assert host_memory(tmp_path, tmp_path) is None


def test_a_process_on_a_cpu_takes_more_where_torch_is_built_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    alone = floor_here()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert floor_here() > alone == PROCESS_FLOOR
