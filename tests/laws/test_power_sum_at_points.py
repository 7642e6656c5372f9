"""The quick way to evaluate a sum of powers against the plain one."""

from __future__ import annotations

import numpy as np
import pytest

from routelaw.laws import all_laws, get_law
from routelaw.laws.law import LN10, Law
from routelaw.laws.power_sum import PowerSum
from routelaw.laws.power_sum_at_points import PowerSumAtPoints

LAWS = [name for name, law in all_laws().items() if isinstance(law, PowerSum)]


def some_points(law: Law) -> dict[str, np.ndarray]:
    active_N = np.repeat(10 ** np.linspace(7, 9, 5), 6)
    experts_N = np.tile(2.0 ** np.arange(6), 5)
    known = {
        "active_params": active_N,
        "experts": experts_N,
        "total_params": active_N * (1 + experts_N / 3),
        "flops_per_token": 2 * active_N,
        "step": 100.0 * (1 + np.arange(30)),
        "tokens": 1e9 * (1 + np.arange(30) % 7),
        "k": np.minimum(experts_N, 2.0),
        "granularity": 2.0 ** (np.arange(30) % 4),
        "embedding_params": 400 * np.sqrt(active_N),
    }
    return {name: known[name] for name in law.inputs}


@pytest.mark.parametrize("name", LAWS)
def test_values_and_slopes(name: str) -> None:
    law = get_law(name)
    assert isinstance(law, PowerSum)
    x = some_points(law)
    loss_N = np.linspace(3.0, 2.0, 30)
    search_SP = law.to_search(law.starts(x, loss_N, np.ones((1, 30)), 5))[0]
    search_SP = np.concatenate([search_SP, search_SP * 1.01])
    at = law.at_points(x)
    assert isinstance(at, PowerSumAtPoints)
    evaluation, params_SP = at.evaluate(search_SP), law.from_search(search_SP)
    with np.errstate(all="ignore"):
        assert evaluation.log_loss_BN == pytest.approx(law.log_loss(params_SP, x), rel=1e-12, nan_ok=True)
        rows = np.array([0, 3, 4]) % len(search_SP)
        chain_LP = np.where(law.log_mask_P, params_SP[rows] * LN10, 1.0)
        expected_LNP = law.jacobian(params_SP[rows], x) * chain_LP[:, None]
        jac_LPN = evaluation.jacobian(rows)
    assert jac_LPN.transpose(0, 2, 1) == pytest.approx(expected_LNP, rel=1e-10, abs=1e-12, nan_ok=True)
    if law.is_log_linear:
        basis_BNC = np.broadcast_to(at.basis(search_SP), (len(search_SP), law.linear_count, 30)).transpose(0, 2, 1)
        assert basis_BNC == pytest.approx(law.basis(params_SP, x), rel=1e-12, nan_ok=True)


def test_a_law_of_ones_own_is_evaluated_by_its_own_formula() -> None:
    class Doubled(PowerSum):
        def log_loss(self, params_BP, x):
            return 2 * super().log_loss(params_BP, x)

    law = get_law("bilinear")
    assert isinstance(law, PowerSum)
    own = Doubled("doubled", "", "", law.inputs, law.terms, second=law.second)
    x, params_BP = some_points(own), np.array([[-0.08, -0.1, 0.01, 1.1]])
    got = own.at_points(x).evaluate(own.to_search(params_BP)).log_loss_BN
    assert got == pytest.approx(2 * law.log_loss(params_BP, x))
