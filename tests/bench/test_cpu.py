"""The table of steps on a CPU, and that our step computes what plain torch does."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import pytest

from routelaw.bench import cpu, measured


def test_rows_and_ratios() -> None:
    table = measured("cpu", cpu.QUICK)
    routed, rope, xl = table.rows.values()
    assert list(table.rows) == ["0.05M switch E = 4", "0.05M demo rope", "0.05M demo xl"]
    assert routed["over own dense"] == pytest.approx(routed[cpu.OURS] / routed[cpu.DENSE], rel=1e-3)
    assert {"over plain torch", cpu.PLAIN} <= rope.keys()
    assert "over rope" in xl
    missing = [] if find_spec("transformers") else [cpu.QWEN]
    assert [failure.candidate for failure in table.failures] == missing


@pytest.mark.parametrize(
    ("router", "experts", "positions"), [("dense", 1, "rope"), ("dense", 1, "xl"), ("switch", 4, "xl")]
)
def test_our_step_is_that_of_plain_torch(router: str, experts: int, positions: str) -> None:
    spec = cpu._spec("0.05M", router, experts, positions, 4, 32, 64)
    apart = cpu.losses_apart(spec, 6)
    assert apart[cpu.IN_FLOAT64] < 1e-8
    assert apart[cpu.APART] < 1e-4


def test_a_difference_would_show() -> None:
    """Another learning rate of ours, by a thousandth."""
    spec = cpu._spec("0.05M", "dense", 1, "rope", 4, 32, 64)
    other = replace(spec, train=replace(spec.train, learning_rate=1.001 * spec.train.learning_rate))
    ours, theirs = (cpu._our_step(cpu.Transformer(s).double(), s) for s in (other, spec))
    tokens = [cpu.random_tokens(spec, step) for step in range(6)]
    assert max(abs(ours(t) - theirs(t)) for t in tokens) > 1e-7


def test_capacity_is_of_routed_models_alone() -> None:
    options = replace(cpu.QUICK, capacity=2.0)
    assert options.spec("0.05M", "switch", 4).router.capacity_factor == 2.0
    assert cpu.QUICK.spec("0.05M", "switch", 4).router.capacity_factor == 0.0
    assert options.spec("0.05M", "dense", 1) == cpu.QUICK.spec("0.05M", "dense", 1)
