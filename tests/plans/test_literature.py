"""Published coefficients as predictors: the paper's formulas written out by hand, and its printed examples."""

import numpy as np
import pytest

from routelaw.errors import InputError
from routelaw.fitting import fit_law, select_points
from routelaw.fitting.intervals import effective_params, n_cut
from routelaw.plans.literature import NO_ORDER, PUBLISHED, UNORDERED, published
from routelaw.runs.table import RunTable
from routelaw.specs.counting import dense_params
from routelaw.specs.sizes import get_size

# Clark et al. 2022, table of solutions to the joint law: a, b, c, d, E_start, E_max.
PRINTED = {
    "clark2022/s-base": (-0.082, -0.108, 0.009, 1.104, 1.847, 314.478),
    "clark2022/rl-r": (-0.083, -0.126, 0.012, 1.111, 1.880, 469.982),
    "clark2022/hash": (-0.087, -0.136, 0.012, 1.157, 4.175, 477.741),
}


def joint_law(name: str, active_params: float, experts: float) -> float:
    """log L = a·log N + b·log Ê + c·log N·log Ê + d, 1/Ê = 1/(E − 1 + (1/E_start − 1/E_max)^−1) + 1/E_max."""
    a, b, c, d, start, ceiling = PRINTED[name]
    effective = 1 / (1 / (experts - 1 + 1 / (1 / start - 1 / ceiling)) + 1 / ceiling)
    u, v = np.log10(active_params), np.log10(effective)
    return 10 ** (a * u + b * v + c * u * v + d)


@pytest.mark.parametrize("name", PRINTED)
def test_losses_by_hand(name) -> None:
    sizes, experts = np.array([15e6, 370e6, 1.3e9, 5e6]), np.array([1.0, 64.0, 512.0, 128.0])
    ours = 10 ** published(name).log_loss(active_params=sizes, experts=experts)
    assert ours == pytest.approx([joint_law(name, n, e) for n, e in zip(sizes, experts, strict=True)], rel=1e-12)


@pytest.mark.parametrize("name", PRINTED)
def test_effective_parameters_by_hand(name) -> None:
    """log N̄ = [α(Ê)·log N + b·log(Ê/E_start)] / α(E_start), α(x) = a + c·log x."""
    a, b, c, _, start, ceiling = PRINTED[name]
    reached = 1 / (1 / (63 + 1 / (1 / start - 1 / ceiling)) + 1 / ceiling)
    at_start, at_reached = (a + c * np.log10(x) for x in (start, reached))
    log_equal = (at_reached * np.log10(370e6) + b * np.log10(reached / start)) / at_start
    predictor = published(name)
    assert predictor.value(effective_params(predictor.law, 370e6, 64)) == pytest.approx(10**log_equal, rel=1e-9)
    assert predictor.value(n_cut(predictor.law)) == pytest.approx(10 ** (-b / c), rel=1e-9)


def test_the_dense_law_by_hand() -> None:
    ours = 10 ** published("clark2022/dense").log_loss(active_params=np.array([1e8]), experts=np.array([1.0]))
    assert ours == pytest.approx([10 ** (-0.078 * 8 + 1.063)])


def test_no_intervals_where_none_were_printed() -> None:
    predictor = published("clark2022/hash")
    assert predictor.interval(effective_params(predictor.law, 370e6, 64)) is None


def test_where_it_extrapolates() -> None:
    """The released sweep runs from 15M to 1.3B and to 512 experts; a hundredth beyond is let pass."""
    predictor = published("clark2022/s-base")
    assert predictor.extrapolation(16_527_360, 1) == predictor.extrapolation(1_308_819_456, 512) == ""
    assert predictor.extrapolation(2 * 1_308_819_456, 64) == "size is 2.0× the largest fitted"
    assert predictor.extrapolation(16_527_360 / 4, 64) == "size is 4.0× below the smallest fitted"
    assert predictor.extrapolation(370e6, 1024) == "E is beyond the 512 fitted"


def test_every_name_says_where_it_comes_from() -> None:
    for name, entry in PUBLISHED.items():
        assert published(name).router == entry.router
        assert name.startswith("clark2022/")
        assert "Clark et al. 2022" in published(name).source
    with pytest.raises(InputError, match="did you mean 'clark2022/s-base'"):
        published("s-base")


def test_the_digits_printed_do_not_order_rl_r_and_hash(released: RunTable) -> None:
    """The numbers of the sentence are those of the coefficients and of fits to the released losses, to the digit."""
    size, experts = float(dense_params(get_size("370M"))), 64.0
    for router in UNORDERED:
        named = published(f"clark2022/{router}")
        assert NO_ORDER in named.warnings
        printed = 10 ** named.log_loss(active_params=[size], experts=[experts])[0]
        refitted = fit_law("saturated", select_points(released, router)).predict(active_params=size, experts=experts)
        assert f"{printed:.3f}" in NO_ORDER
        assert f"{float(refitted[0]):.3f}" in NO_ORDER
    assert published("clark2022/s-base").warnings == ()
