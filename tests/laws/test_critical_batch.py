"""B_crit, S_min and Eq. B.5: against numbers worked out by hand, their definitions, and a search that knows neither."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from routelaw.errors import InputError
from routelaw.fitting import fit_law, select_points
from routelaw.fitting.validation import validate
from routelaw.laws import get_law
from routelaw.laws.critical_batch import CriticalBatch, converged_loss
from routelaw.laws.kaplan2020_smin import InMinSteps

BATCH = 256 * 2048  # the paper's, in tokens
KAPLAN = {"n_scale": 0.077 * math.log10(6.5e13), "a_n": -0.077, "s_scale": 0.76 * math.log10(2.1e3), "a_s": -0.76}
"""Kaplan et al.'s L(N, S_min), their table 3."""


def test_critical_batch_by_hand() -> None:
    """2e8/L^(1/0.21): 2e8 at one nat, 1.07M tokens at three, 39k at six; it doubles for a loss 13 % lower."""
    tokens = CriticalBatch().tokens(np.array([1.0, 3.0, 6.0]))
    assert tokens == pytest.approx([2e8, 1.0690e6, 3.940e4], rel=1e-3)
    assert CriticalBatch().tokens(0.87 * 2.5) / CriticalBatch().tokens(2.5) == pytest.approx(2, rel=0.05)
    # The paper's batch lies below it at all of its final losses: 15M ended at about 3.3 nats, 1.3B at 2.3.
    assert CriticalBatch().tokens(3.3) > BATCH
    assert CriticalBatch().min_steps(250_000, BATCH, 2.3) == pytest.approx(250_000 / 8.227, rel=1e-3)


def test_steps_and_tokens_trade_off_as_kaplan_defines() -> None:
    """(S/S_min − 1)·(E/E_min − 1) = 1 and B_crit = E_min/S_min (Eqs. 5.1 and 5.2), for any batch and loss."""
    draw = np.random.default_rng(0)
    critical = CriticalBatch(draw.uniform(1e7, 1e9), draw.uniform(0.1, 0.5))
    steps, batch, loss = draw.uniform(10, 1e6, 50), 10 ** draw.uniform(2, 8, 50), draw.uniform(1, 8, 50)
    tokens = steps * batch
    least_steps, least_tokens = critical.min_steps(steps, batch, loss), critical.min_tokens(tokens, batch, loss)
    assert (steps / least_steps - 1) * (tokens / least_tokens - 1) == pytest.approx(np.ones(50))
    assert least_tokens / least_steps == pytest.approx(critical.tokens(loss))
    at_critical = critical.min_steps(steps, critical.tokens(loss), loss)
    assert at_critical == pytest.approx(steps / 2)


@pytest.mark.parametrize("name", ["kaplan2020", "kaplan2020-smin"])
@pytest.mark.parametrize("compute", [1e18, 1e21, 1e24])
def test_compute_efficient_training_ends_at_one_plus_the_ratio(name: str, compute: float) -> None:
    """Eq. B.5: the N with the lowest loss at C = 6·N·B·S, found by search, has (1 + α_N/α_S) times its own (N_c/N)^α_N.
    Kaplan's constants: 10 % above the converged loss, as they say."""
    law = get_law(name)

    def loss(log_size: float) -> float:
        step = compute / (6 * 10**log_size * BATCH)
        given = {"active_params": 10**log_size, "step": step, "tokens": step * BATCH}
        return float(law.predict(KAPLAN, **{k: given[k] for k in law.inputs})[0])

    best = minimize_scalar(loss, bounds=(4, 15), method="bounded", options={"xatol": 1e-9})
    converged = (6.5e13 / 10**best.x) ** 0.077
    assert converged_loss(best.fun, 0.077, 0.76) == pytest.approx(converged, rel=1e-6)
    [excess] = [c.of(law.row(KAPLAN))[0] for c in law.constants if c.name == "efficient_excess"]
    assert best.fun / converged == pytest.approx(1 + excess, rel=1e-6)
    assert excess == pytest.approx(0.10, abs=0.002)


def test_the_law_in_least_steps_solves_its_equation() -> None:
    """Against a bracketing search for L, from early in training to its end and for batches from tiny to huge."""
    draw, law, critical = np.random.default_rng(1), InMinSteps(), CriticalBatch()
    for _ in range(40):
        size, step, batch = 10 ** draw.uniform(5, 11), 10 ** draw.uniform(0, 7), 10 ** draw.uniform(2, 9)
        params = {name: value * draw.uniform(0.7, 1.3) for name, value in KAPLAN.items()}

        def miss(loss: float, p=params, size=size, step=step, batch=batch) -> float:
            least = critical.min_steps(step, batch, loss)
            first = 10 ** (p["n_scale"] + p["a_n"] * math.log10(size))
            return first + 10 ** (p["s_scale"] + p["a_s"] * math.log10(least)) - loss

        expected = brentq(miss, 1e-3, 1e9, xtol=1e-13, rtol=1e-14)
        got = law.predict(params, active_params=size, step=step, tokens=step * batch)
        assert got[0] == pytest.approx(expected, rel=1e-9)


def test_at_a_huge_batch_it_is_the_law_in_steps() -> None:
    x = {"active_params": np.array([1e7, 1e9]), "step": np.array([1e4, 1e5])}
    in_steps = get_law("kaplan2020").predict(KAPLAN, **x)
    assert InMinSteps().predict(KAPLAN, **x, tokens=x["step"] * 1e16) == pytest.approx(in_steps, rel=1e-6)
    assert (InMinSteps().predict(KAPLAN, **x, tokens=x["step"] * BATCH) > in_steps).all()


def test_on_the_papers_dense_curves_least_steps_fit_better_than_steps(released) -> None:
    """With no parameter more, and a smaller error on sizes left out."""
    points = select_points(released, "dense", get_law("kaplan2020"))
    in_steps, in_least = (fit_law(name, points) for name in ("kaplan2020", "kaplan2020-smin"))
    assert (len(points), in_least.status) == (150, "converged")
    assert [1e4 * fit.rmsle for fit in (in_steps, in_least)] == pytest.approx([22.9, 17.5], abs=0.1)
    size_out = [validate(fit).leave_size_out for fit in (in_steps, in_least)]
    assert [1e4 * (error or np.nan) for error in size_out] == pytest.approx([36.3, 20.5], abs=0.1)


def test_a_table_without_tokens_is_refused(released) -> None:
    points = select_points(released, "dense", get_law("kaplan2020"))
    points.x["tokens"][:] = np.nan  # type: ignore[index]
    with pytest.raises(InputError, match="law kaplan2020-smin needs the column tokens"):
        fit_law("kaplan2020-smin", points)


def test_a_critical_batch_at_another_loss_is_doubted(released) -> None:
    def doubted(law: str, target: str) -> bool:
        points = select_points(released, "dense", get_law(law), target=target)
        return any("B_crit is taken at" in warning for warning in points.warnings)

    assert doubted("kaplan2020-smin", "loss_c4")
    assert not doubted("kaplan2020-smin", "loss_validation")
    assert not doubted("kaplan2020", "loss_c4")


def test_a_table_of_other_tokens_is_refused(released) -> None:
    frame = released.frame.assign(tokens=released.frame["tokens"].where(released.frame["step"] != 20_000, 0))
    with pytest.raises(InputError, match="has 0 tokens after its first step: law kaplan2020-smin reads them"):
        select_points(replace(released, frame=frame), "dense", get_law("kaplan2020-smin"))


def test_what_cannot_be_is_refused() -> None:
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="must be a number above 0"):
            CriticalBatch(scale=wrong)
        with pytest.raises(InputError, match="must be a number above 0"):
            CriticalBatch(exponent=wrong)
        with pytest.raises(InputError, match="loss must be above 0 and finite"):
            CriticalBatch().tokens(np.array([2.0, wrong]))
        with pytest.raises(InputError, match="batch_tokens must be above 0"):
            CriticalBatch().min_steps(10, wrong, 2.5)
        with pytest.raises(InputError, match="alpha_s must be a number above 0"):
            converged_loss(2.5, 0.07, wrong)
