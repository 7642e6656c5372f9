import math
from itertools import pairwise

import pytest

from routelaw.specs.run import TrainSpec
from routelaw.training.optimizer import learning_rate, warmup_steps


def test_the_papers_schedule() -> None:
    """Warm-up from 1e-7 to 2e-4 over 1,500 steps, then a cosine to 2e-5 at the last of 250k."""
    train = TrainSpec(steps=250_000)
    assert warmup_steps(train) == 1500
    assert learning_rate(train, 0) == 1e-7
    assert learning_rate(train, 750) == pytest.approx((1e-7 + 2e-4) / 2, rel=1e-12)
    assert learning_rate(train, 1500) == pytest.approx(2e-4, rel=1e-12)
    middle = 1500 + (249_999 - 1500) / 2
    assert learning_rate(train, int(middle)) == pytest.approx((2e-4 + 2e-5) / 2, rel=1e-4)
    assert learning_rate(train, 249_999) == pytest.approx(2e-5, rel=1e-12)


def test_it_rises_then_falls() -> None:
    train = TrainSpec(steps=200, warmup_steps=20)
    rates = [learning_rate(train, step) for step in range(200)]
    assert all(a < b for a, b in pairwise(rates[:21]))
    assert all(a > b for a, b in pairwise(rates[20:]))


@pytest.mark.parametrize("steps", [1, 2, 5, 15, 30])
def test_a_short_run_reaches_the_peak(steps: int) -> None:
    train = TrainSpec(steps=steps)
    rates = [learning_rate(train, step) for step in range(steps)]
    assert all(math.isfinite(rate) and 0 < rate <= train.learning_rate for rate in rates)
    assert steps == 1 or max(rates) == pytest.approx(train.learning_rate)
