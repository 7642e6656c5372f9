"""The tables of `routelaw.bench` on a few tokens, eager: their columns, and that they measure what they say."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from routelaw.bench import attention, experts, layer, measured, models, preset, sinkhorn
from routelaw.bench.clock import DTYPE, time_interleaved
from routelaw.bench.results import Table
from routelaw.errors import InputError
from routelaw.specs.run import TrainSpec
from routelaw.training.optimizer import Optimizer

EAGER = {"compile": False}
SMALL: dict[str, dict[str, Any]] = {
    "sinkhorn": {"tokens": 64, "shapes": ((8, 1), (8, 2))},
    "layer": {"tokens": 64, "widths": (16,), "experts": (2, 4)},
    "experts": {"tokens": 64, "width": 16, "experts": (1, 2, 4), "copied": 2**20},
    "attention": {"shapes": ((1, 16, 2, 4),)},
    "models": {"tokens": 64, "length": 32},
}
RATIOS = {
    "sinkhorn": ("speedup, 16", "to 1e-2 over floor"),
    "layer": ("ours eager",),
    "experts": ("over dense", "over floor"),
    "attention": ("ours eager", "rope", "pieces of 256"),
    "models": ("over dense",),
}


def anew(name: str, **more: Any) -> Table:
    return measured(name, preset(name, quick=True, **SMALL[name], **EAGER, **more))


small = functools.cache(anew)
"""Measured once for all tests that only look at it."""


@pytest.mark.parametrize("name", RATIOS)
def test_ratios_are_there_and_finite(name: str) -> None:
    table = small(name)
    assert table.name == name
    assert table.failures == ()
    assert table.baseline
    assert table.machine.torch == str(torch.__version__)
    for row in table.rows.values():
        assert set(RATIOS[name]) <= row.keys() <= table.columns.keys()
        assert all(math.isfinite(value) for value in row.values())
        assert all(row[column] > 0 for column in RATIOS[name])
    assert set(RATIOS[name]) <= set(table.present)


def test_rows_are_the_shapes_asked_for() -> None:
    assert list(small("layer").rows) == ["d=16 E=2", "d=16 E=2 zipf 0.7", "d=16 E=4", "d=16 E=4 zipf 0.7"]
    assert list(small("attention").rows) == ["(1, 16, 2, 4)"]
    assert list(small("models", routers=("switch",)).rows) == ["0.05M rope switch"]


def test_the_floor_grows_with_the_bytes_of_the_weights() -> None:
    rows = small("experts").rows
    floors = [row["floor (ms)"] for row in rows.values()]
    assert floors[1:] == pytest.approx([2 * floors[0], 4 * floors[0]], rel=1e-3)
    row = rows["E=4"]
    two_matrices = 2 * 4 * (16 * 64) * DTYPE.itemsize
    assert row["floor (ms)"] == pytest.approx(1e3 * 3 * two_matrices / (row["copy (GB/s)"] * 1e9), rel=1e-2)
    assert row["over dense"] == pytest.approx(row["routed (ms)"] / row["dense (ms)"], rel=1e-3)


def test_our_layer_computes_what_the_plain_one_does() -> None:
    near = 2e-2 if DTYPE.itemsize == 2 else 1e-5
    assert all(row["difference"] < near for row in small("layer").rows.values())
    assert all(row["difference"] < 1e-4 for row in small("sinkhorn").rows.values())


def test_a_load_is_even_or_skewed_and_always_complete() -> None:
    even_E = layer.choices(128, 8, 0.0).bincount(minlength=8)
    skewed_E = layer.choices(128, 8, 0.7).bincount(minlength=8)
    assert even_E.tolist() == [16] * 8
    assert skewed_E.sum() == 128
    assert skewed_E[0] > 2 * skewed_E[-1] > 0


def test_who_fails_is_named_and_the_others_go_on() -> None:
    def broken() -> None:
        raise RuntimeError("no such kernel\nand a long trace")

    ran = time_interleaved({"broken": broken, "idle": lambda: None})
    assert ran.failures == {"broken": "RuntimeError: no such kernel"}
    assert ran.ms.keys() == {"idle"}
    assert math.isnan(ran.ratio("broken", "idle"))


def with_another(name: str, way: attention.Attend) -> Callable[[bool, int, int], dict[str, attention.Attend]]:
    usual = attention.candidates
    return lambda compiled, length, kv_size: usual(compiled, length, kv_size) | {name: way}


def test_a_candidate_that_fails_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not on this device")

    monkeypatch.setattr(attention, "candidates", with_another("flex", broken))
    table = anew("attention")
    (failure,) = table.failures
    assert (failure.row, failure.candidate, failure.reason) == (
        "(1, 16, 2, 4)", "flex", "RuntimeError: not on this device"
    )  # fmt: skip
    assert "flex" in table.present
    assert "flex" not in table.rows["(1, 16, 2, 4)"]
    assert table.figures()["(1, 16, 2, 4)/flex"] == "failed: RuntimeError: not on this device"


def test_who_computes_something_else_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "candidates", with_another("flex", attention.flash))
    (failure,) = anew("attention").failures
    assert failure.candidate == "flex"
    assert "computes something else" in failure.reason


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "name", "row"),
    [(experts, "Problem", "E=1"), (layer, "Problem", "d=16 E=2"), (sinkhorn, "scores", "64x8, 1 groups"),
     (models, "built", "0.05M rope dense")],
    ids=["experts", "layer", "sinkhorn", "models"],
)  # fmt: skip
def test_a_row_that_cannot_begin_says_why(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, row: str) -> None:
    def too_large(*_: Any) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(module, name, too_large)
    table = anew(module.__name__.rpartition(".")[2])
    assert table.rows[row] == {}
    assert len(table.failures) == len(table.rows)
    assert str(table.failures[0]) == f"{row}: everything failed: OutOfMemoryError: out of memory"


def test_a_whole_step_is_timed_apart() -> None:
    row = small("models", routers=("dense",), whole=True).rows["0.05M rope dense"]
    assert row["amortised (ms)"] == pytest.approx(row["fb (ms)"] + row["optimizer (ms)"] * 2 / 256, rel=1e-2)


def test_models_take_turns_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [replace(models.QUICK, experts=8).spec("0.05M", router, "rope") for router in ("dense", "s-base")]
    weights = [spec.counts.total_params for spec in specs]
    needed = 2 * (sum(weights) * models.DTYPE.itemsize)
    assert models.fits(specs, whole=True), "on a CPU they always do"
    monkeypatch.setattr(models, "CUDA", True)
    for memory, whole, answer in ((needed + 2, False, True), (needed - 2, False, False), (needed + 2, True, False),
                                  (needed + 2 + 28 * max(weights), True, True)):  # fmt: skip
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, m=memory: SimpleNamespace(total_memory=m))
        assert models.fits(specs, whole) is answer


@pytest.mark.long
@pytest.mark.parametrize("in_turn", [True, False])
def test_a_model_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch, in_turn: bool) -> None:
    original = models.TimedModel.forward_and_backward

    def broken(timed: models.TimedModel) -> None:
        if timed.spec.router.name == "switch":
            raise RuntimeError("no kernel")
        original(timed)

    monkeypatch.setattr(models.TimedModel, "forward_and_backward", broken)
    monkeypatch.setattr(models, "fits", lambda specs, whole: in_turn)
    table = anew("models", routers=("dense", "switch", "hash"), whole=False)
    assert list(table.rows) == ["0.05M rope dense", "0.05M rope switch", "0.05M rope hash"]
    assert [str(failure) for failure in table.failures] == [
        "0.05M rope switch: fb (ms) failed: RuntimeError: no kernel"
    ]
    assert table.rows["0.05M rope hash"]["over dense"] > 0
    assert "over switch" not in table.rows["0.05M rope hash"]


def test_who_stops_keeps_the_rows_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = models.rows(replace(models.QUICK, tokens=64, length=32, compile=False, whole=False))
    assert next(rows).name == "0.05M rope dense"

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(models.TimedModel, "row", stopped)
    with pytest.raises(KeyboardInterrupt):
        next(rows)


def test_an_optimizer_alone_updates_with_gradients_that_are_there() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer, made = Optimizer(model, TrainSpec(steps=10, learning_rate=0.1)), []

    def gradients() -> None:
        made.append(1)
        model(torch.ones(4, 3)).square().mean().backward()

    step, seen = models.optimizer_alone(optimizer, gradients), [model.weight.detach().clone()]
    for _ in range(2):
        step()
        seen.append(model.weight.detach().clone())
    assert len(made) == 1
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_models_that_do_not_fit_are_refused_before_any_is_built(monkeypatch) -> None:
    monkeypatch.setattr(models, "CUDA", False)
    monkeypatch.setattr(models, "host_memory", lambda: 24 << 30)
    models.check_room(models.QUICK)
    with pytest.raises(InputError, match=r"the models of size 7B need some 1\d\d GB"):
        models.check_room(replace(models.QUICK, sizes=("7B",)))
