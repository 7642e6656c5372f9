"""How long a step computes, on one process and on several."""

from __future__ import annotations

import pytest

from routelaw.costs.memory import footprint
from routelaw.costs.step_time import KNOWN, ComputeTime, Device, compute_time, known_device
from routelaw.errors import InputError
from routelaw.specs.layout import Layout
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size

FLAT = Device("flat", lambda width: 1e12, 1e12, True)
"""As quick at any width."""


def made(layout: Layout = Layout(), device: Device = FLAT, pieces: int = 1, router: str = "s-base") -> ComputeTime:
    spec = RunSpec(ModelSpec(get_size("370M")), RouterSpec(router, 64, group_tokens=2048), TrainSpec(steps=1), "any")
    return compute_time(spec, pieces, footprint(spec, 1, "bfloat16", gpu=True, layout=layout), device, layout)


def test_products_are_three_forward_passes() -> None:
    spec = RunSpec(ModelSpec(get_size("370M")), RouterSpec("s-base", 64), TrainSpec(steps=1), "any")
    assert made().products == pytest.approx(3 * 256 * 2048 * spec.counts.flops_per_token / 1e12)


@pytest.mark.parametrize("layout", [Layout(8), Layout(1, 8), Layout(2, 4)], ids=str)
def test_tokens_are_shared_out(layout: Layout) -> None:
    one, eight = made(), made(layout)
    assert eight.products * 8 == pytest.approx(one.products)
    assert eight.scores * 8 == one.scores
    assert eight.handing_out == one.handing_out


def test_tensor_parallel_processes_share_all_but_logits_and_router() -> None:
    one, four = made(), made(Layout(tensor=4))
    whole = 2 * 32_000 * 1536 + 6 * 2 * 1536 * 64
    assert (one.whole_flops, four.whole_flops) == (whole, whole)
    assert four.split_flops * 4 == pytest.approx(one.split_flops)
    assert four.split_width == 768
    narrow, wide = made(Layout(tensor=4), KNOWN["h100"]), made(device=KNOWN["h100"])
    assert narrow.products > wide.products / 4 + 3 * 256 * 2048 * whole * 0.7 / KNOWN["h100"].flops(1536)


def test_the_optimiser_steps_its_shard() -> None:
    assert made(Layout(8)).updating * 8 == pytest.approx(made().updating, rel=0.01)
    assert made(pieces=4).handing_out == 4 * made().handing_out
    assert made(router="base").assigning == pytest.approx(1e-6 * 256 * 2048 * 64 * 6)


ON_AN_H200 = [
    ("130M", RouterSpec(), "rope", 83.7),
    ("130M", RouterSpec("switch", 64), "rope", 111.8),
    ("130M", RouterSpec("s-base", 64), "rope", 111.6),
    ("130M", RouterSpec("rl-r", 64), "rope", 114.9),
    ("130M", RouterSpec("hash", 64), "rope", 108.6),
    ("370M", RouterSpec(), "rope", 166.3),
    ("370M", RouterSpec(), "xl", 231.7),
    ("370M", RouterSpec("switch", 8, routing_frequency=1.0), "rope", 191.6),
    ("3M", RouterSpec("s-base", 8), "rope", 7.15),
]
"""Milliseconds of compiled steps of 32,768 tokens (benchmarks/RESULTS.md)."""


@pytest.mark.parametrize(("size", "router", "positions", "milliseconds"), ON_AN_H200)
def test_compiled_steps_as_measured(size: str, router: RouterSpec, positions: str, milliseconds: float) -> None:
    length, vocabulary = (512, 8000) if size == "3M" else (2048, 32_000)
    model = ModelSpec(get_size(size), vocabulary, length, positions)
    spec = RunSpec(model, router, TrainSpec(steps=1, batch=32_768 // length), "any")
    memory = footprint(spec, 1, "bfloat16", gpu=True)
    found = compute_time(spec, 1, memory, known_device("h200"), compiled=True)
    assert 1e3 * found.total == pytest.approx(milliseconds, rel=0.1)
    assert compute_time(spec, 1, memory, known_device("h200")).total > found.total


def test_devices_by_name() -> None:
    assert known_device(" H100 ") is KNOWN["h100"]
    for device in KNOWN.values():
        assert device.network <= device.link < device.bandwidth
        assert device.flops(64) < device.flops(4096) < 3e15
    with pytest.raises(InputError, match=r"unknown device 'h10'.*h100.*b200"):
        known_device("h10")
