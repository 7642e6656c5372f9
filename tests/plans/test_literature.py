"""Published coefficients as predictors: the paper's formulas written out by hand, and its printed examples."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

from routelaw.errors import InputError
from routelaw.fitting import fit_law, select_points
from routelaw.fitting.intervals import effective_params, n_cut
from routelaw.laws import get_law
from routelaw.plans.literature import NO_ORDER, REFITTED, UNORDERED, published, published_fits
from routelaw.runs.table import RunTable
from routelaw.specs.counting import dense_params
from routelaw.specs.sizes import get_size

# Clark et al. 2022, table of solutions to the joint law: a, b, c, d, E_start, E_max.
PRINTED = {
    "clark2022-printed/s-base": (-0.082, -0.108, 0.009, 1.104, 1.847, 314.478),
    "clark2022-printed/rl-r": (-0.083, -0.126, 0.012, 1.111, 1.880, 469.982),
    "clark2022-printed/hash": (-0.087, -0.136, 0.012, 1.157, 4.175, 477.741),
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
    ours = 10 ** published("clark2022-printed/dense").log_loss(active_params=np.array([1e8]), experts=np.array([1.0]))
    assert ours == pytest.approx([10 ** (-0.078 * 8 + 1.063)])


def test_no_intervals_where_none_were_printed() -> None:
    predictor = published("clark2022-printed/hash")
    assert predictor.interval(effective_params(predictor.law, 370e6, 64)) is None


def test_where_it_extrapolates() -> None:
    """The released sweep runs from 15M to 1.3B and to 512 experts; a hundredth beyond is let pass."""
    predictor = published("clark2022/s-base")
    assert predictor.extrapolation(16_527_360, 1) == predictor.extrapolation(1_308_819_456, 512) == ""
    assert predictor.extrapolation(2 * 1_308_819_456, 64) == "size is 2.0× the largest fitted"
    assert predictor.extrapolation(16_527_360 / 4, 64) == "size is 4.0× below the smallest fitted"
    assert predictor.extrapolation(370e6, 1024) == "E is beyond the 512 fitted"


def test_every_name_says_where_it_comes_from() -> None:
    for name, entry in published_fits().items():
        predictor = published(name)
        assert predictor.router == entry.router
        assert re.search(r"et al\. 20\d\d", predictor.source)
        assert predictor.law.names == tuple(entry.params)
    with pytest.raises(InputError, match="did you mean 'clark2022/s-base'"):
        published("s-base")


def test_the_digits_printed_do_not_order_rl_r_and_hash(released: RunTable) -> None:
    """The numbers of the sentence are those of the coefficients and of fits to the released losses, to the digit."""
    size, experts = float(dense_params(get_size("370M"))), 64.0
    for router in UNORDERED:
        named = published(f"clark2022-printed/{router}")
        assert NO_ORDER in named.warnings
        printed = 10 ** named.log_loss(active_params=[size], experts=[experts])[0]
        refitted = fit_law("saturated", select_points(released, router)).predict(active_params=size, experts=experts)
        assert f"{printed:.3f}" in NO_ORDER
        assert f"{float(refitted[0]):.3f}" in NO_ORDER
    assert published("clark2022/s-base").warnings == ()


def test_refits_are_those_of_the_released_losses(released: RunTable, released_path: Path) -> None:
    """What is stored against what the script makes of the table today, resamples included."""
    path = Path(__file__).parents[2] / "experiments" / "refit_clark2022.py"
    spec = importlib.util.spec_from_file_location("refit_clark2022", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made, stored = script.refits(released_path)["fits"], json.loads(REFITTED.read_text())["fits"]
    assert made.keys() == stored.keys()
    for router, entry in stored.items():
        assert made[router]["params"] == pytest.approx(entry["params"], rel=1e-5)
        assert np.median(np.abs(np.array(made[router]["resampled"]) / entry["resampled"] - 1)) < 1e-4


def test_without_data_rl_r_and_hash_are_ordered_as_the_release_orders_them(released: RunTable) -> None:
    """At 370M and E = 64, where the printed digits have them the other way round."""
    at = {"active_params": np.array([370e6]), "experts": np.array([64.0])}
    ours = {router: float(published(f"clark2022/{router}").log_loss(**at)[0]) for router in ("s-base", "rl-r", "hash")}
    rows = released.frame[(released.frame["size"] == "370M") & (released.frame["experts"] == 64)]
    rows = rows[(rows["k"] == 1) & (rows["routing_frequency"] == 0.5) & (rows["variant"] == "")]
    measured = rows.sort_values("step").groupby("router")["loss_validation"].last()
    assert sorted(ours, key=ours.get) == sorted(ours, key=measured.get)
    interval = published("clark2022/hash").interval(effective_params(get_law("saturated"), 370e6, 64))
    assert interval is not None
    assert interval[0] < 983e6 < interval[1]


# What a paper's coefficients give at its own examples, beside what it prints.
@pytest.mark.parametrize(
    ("experts", "m", "mu", "n", "nu"), [(1, 30.40, -0.1818, 53.84, -0.1964), (32, 16.55, -0.1557, 234.6, -0.2653)]
)
def test_ludziejewski_at_one_number_of_experts(experts: float, m: float, mu: float, n: float, nu: float) -> None:
    """At one E the law is m·N^mu + n·D^nu + c, and its table 4 prints these."""
    predictor = published("ludziejewski2025")

    def excess(size: float, tokens: float) -> float:
        x = {"active_params": [size], "embedding_params": [0.0], "experts": [experts], "tokens": [tokens]}
        return float(10 ** predictor.log_loss(**x)[0]) - 1.3637

    endless = 1e60
    for size in (1e8, 1e9):
        assert excess(size, endless) == pytest.approx(m * size**mu, rel=2e-3)
    for tokens in (1e9, 1e11):
        assert excess(endless, tokens) == pytest.approx(n * tokens**nu, rel=3e-3)


def test_zhao_has_its_best_choice_where_it_prints_it() -> None:
    """G = 6.8 experts per token, and a share of .315 of them shared."""
    predictor = published("zhao2025")

    def loss(used: float, share: float) -> float:
        shared = used * share
        x = {"active_params": [1e9], "total_params": [8e9], "k": [used - shared], "shared_experts": [shared]}
        return float(predictor.log_loss(**x, tokens=[1e11])[0])

    used, shares = np.linspace(2, 15, 1301), np.linspace(0.05, 0.9, 851)
    assert used[np.argmin([loss(g, 0.3) for g in used])] == pytest.approx(6.8, abs=0.05)
    assert shares[np.argmin([loss(6.8, s) for s in shares])] == pytest.approx(0.315, abs=0.001)


def test_abnar_and_krajewski_by_hand() -> None:
    x = {"total_params": [2e9], "experts": [16.0], "k": [2.0], "tokens": [4e10], "granularity": [4.0]}
    active = 2 / 16
    abnar = 16612.5 / 2e9**0.5962 + 5455.67 / 4e10**0.3954 + 0.4598 / active**-0.1666
    abnar += 17.26 / (active**0.1603 * 2e9**0.1595) + 0.94
    assert 10 ** published("abnar2025").log_loss(**x)[0] == pytest.approx(abnar, rel=1e-12)
    krajewski = 0.47 + (2.1 / 4**0.58 + 18.1) / 2e9**0.115 + 30.8 / 4e10**0.147
    assert 10 ** published("krajewski2024").log_loss(**x)[0] == pytest.approx(krajewski, rel=1e-12)
