"""What follows from a law, solved numerically, against the closed forms of the paper (with its errata)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelaw.errors import InputError
from routelaw.laws import PowerSum, coefficient, get_law
from routelaw.laws import equivalence as eq

SATURATED = get_law("saturated")
S_BASE = {"a": -0.0833, "b": -0.1202, "c": 0.01013, "d": 1.1168, "e_start": 2.204, "e_max": 229.6}
ROW = SATURATED.row(S_BASE)

sizes = st.floats(1e7, 1e10)
counts = st.floats(1, 4096)


def effective_experts(experts: float) -> float:
    """1/Ê as printed, in plain floats."""
    shift = 1 / (1 / S_BASE["e_start"] - 1 / S_BASE["e_max"])
    return 1 / (1 / (experts - 1 + shift) + 1 / S_BASE["e_max"])


def alpha(x: float) -> float:
    return S_BASE["a"] + S_BASE["c"] * np.log10(x)


def test_saturation_starts_and_ends_where_it_says() -> None:
    assert effective_experts(1) == pytest.approx(S_BASE["e_start"])
    assert effective_experts(1e12) == pytest.approx(S_BASE["e_max"], rel=1e-8)
    loss = eq.log_loss_at(SATURATED, ROW, 1e8, 16.0)[0]
    e_hat = np.log10(effective_experts(16))
    u = 8.0
    direct = S_BASE["a"] * u + S_BASE["b"] * e_hat + S_BASE["c"] * u * e_hat + S_BASE["d"]
    assert loss == pytest.approx(direct, abs=1e-12)


@given(sizes, counts)
def test_effective_params_equal_the_closed_form(active, experts) -> None:
    """Errata 3: log N̄ = [α(Ê)·log N + b·log(Ê/E_start)] / α(E_start)."""
    e_hat = effective_experts(experts)
    closed = (alpha(e_hat) * np.log10(active) + S_BASE["b"] * np.log10(e_hat / S_BASE["e_start"])) / alpha(
        S_BASE["e_start"]
    )
    solved = np.log10(eq.effective_params(SATURATED, ROW, active, experts)[0])
    assert solved == pytest.approx(closed, abs=1e-8)


@given(sizes, counts)
def test_loss_along_effective_params_is_one_power_law(active, experts) -> None:
    """Errata 3: log L = α(E_start)·log N̄ + d + b·log E_start."""
    effective = eq.effective_params(SATURATED, ROW, active, experts)[0]
    line = alpha(S_BASE["e_start"]) * np.log10(effective) + S_BASE["d"] + S_BASE["b"] * np.log10(S_BASE["e_start"])
    assert eq.log_loss_at(SATURATED, ROW, active, experts)[0] == pytest.approx(line, abs=1e-9)


@given(sizes, st.floats(1.5, 512))
def test_inverse_gives_the_experts_back(active, experts) -> None:
    effective = eq.effective_params(SATURATED, ROW, active, experts)[0]
    assert eq.experts_for_effective(SATURATED, ROW, active, effective)[0] == pytest.approx(experts, rel=1e-4)


@pytest.mark.parametrize("name", ["bilinear", "saturated", "irreducible-bilinear"])
def test_cutoff_is_minus_b_over_c(name) -> None:
    """Errata 2: N_cut = 10^(−b/c), whatever E; also from the generic search, without the closed form."""
    law = get_law(name)
    params = {**S_BASE, "l_inf": 1.2}
    row = law.row({n: params[n] for n in law.names})
    expected = -S_BASE["b"] / S_BASE["c"]
    assert np.log10(eq.cutoff(law, row)[0]) == pytest.approx(expected, abs=1e-9)
    law.log_cutoff, closed = lambda *_: None, law.log_cutoff
    try:
        assert np.log10(eq.cutoff(law, row)[0]) == pytest.approx(expected, abs=1e-6)
    finally:
        law.log_cutoff = closed
    at_cut = eq.cutoff(law, row)[0]
    one, many = (eq.log_loss_at(law, row, at_cut, e)[0] for e in (1.0, 512.0))
    assert one == pytest.approx(many, abs=1e-9)


def test_cutoff_is_infinite_without_interaction_and_zero_when_routing_never_helps() -> None:
    law = get_law("irreducible-power")
    assert eq.cutoff(law, law.row({"log_a": 1.5, "a": -0.18, "b": -0.07, "l_inf": 1.5}))[0] == np.inf
    assert eq.cutoff(law, law.row({"log_a": 1.5, "a": -0.18, "b": 0.07, "l_inf": 1.5}))[0] == 0.0
    bilinear = get_law("bilinear")
    falling = bilinear.row({"a": -0.08, "b": -0.01, "c": -0.001, "d": 1.1})
    assert eq.cutoff(bilinear, falling)[0] == np.inf
    late = bilinear.row(
        {"a": -0.08, "b": 0.05, "c": -0.01, "d": 1.1}
    )  # routing hurts below 1e5 and helps for ever above
    assert eq.cutoff(bilinear, late)[0] == np.inf


def test_max_effective_is_reached_without_limit_on_experts_and_is_the_size_itself_beyond_the_cutoff() -> None:
    below, above = 1e9, 1e13
    unlimited = eq.effective_params(SATURATED, ROW, below, 1e12)[0]
    assert eq.max_effective_params(SATURATED, ROW, below)[0] == pytest.approx(unlimited)
    assert eq.max_effective_params(SATURATED, ROW, above)[0] == pytest.approx(above)
    # Errata 5: non-decreasing in N, since E_max ≤ 10^(−a/c).
    assert S_BASE["e_max"] <= 10 ** (-S_BASE["a"] / S_BASE["c"])
    curve = [eq.max_effective_params(SATURATED, ROW, n)[0] for n in np.logspace(7, 13, 40)]
    assert np.all(np.diff(curve) >= 0)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("bilinear", {"a": -0.082, "b": -0.108, "c": 0.009, "d": 1.104}),
        ("separable", {"a": -0.08, "b": -0.03, "d": 1.1}),
        ("irreducible-power", {"log_a": 1.5, "a": -0.18, "b": -0.07, "l_inf": 1.5}),
    ],
)
def test_max_effective_is_infinite_where_experts_never_stop_helping(name: str, row: dict[str, float]) -> None:
    """It was the value at E = 10¹² once, 1.94T at 370M: a number that the law does not have."""
    law = get_law(name)
    assert eq.max_effective_params(law, law.row(row), 3.7e8)[0] == np.inf
    if name == "bilinear":
        beyond = 10 * eq.cutoff(law, law.row(row))[0]
        assert eq.max_effective_params(law, law.row(row), beyond)[0] == pytest.approx(beyond)


def test_max_effective_of_a_law_that_turns_up_again_is_at_its_turning_point() -> None:
    """log L = … + 0.01·(log E)² − 0.06·log E is lowest at E = 10³."""
    powers = {"a": (1, 0), "b": (0, 1), "q": (0, 2), "d": (0, 0)}
    law = PowerSum(
        name="bent",
        formula="log L = a·log N + b·log E + q·(log E)² + d",
        source="this test",
        inputs=("active_params", "experts"),
        second=lambda x: x["experts"],
        terms=(tuple(coefficient(name, "", power) for name, power in powers.items()),),
    )
    row = law.row({"a": -0.08, "b": -0.06, "q": 0.01, "d": 1.1})
    best = eq.effective_params(law, row, 3.7e8, 1e3)[0]
    assert eq.max_effective_params(law, row, 3.7e8)[0] == pytest.approx(best, rel=1e-6)


def test_growing_n_multiplies_effective_params_by_its_own_power() -> None:
    """Errata 4: N → x·N multiplies N̄ by x^{α(Ê)/α(E_start)}."""
    ratio = np.divide(*(eq.effective_params(SATURATED, ROW, n, 64.0)[0] for n in (4e8, 1e8)))
    assert ratio == pytest.approx(4 ** (alpha(effective_experts(64)) / alpha(S_BASE["e_start"])), rel=1e-9)


def test_slopes_are_the_partial_derivatives_without_a_minus_sign() -> None:
    """Errata 1: a(E) = a + c·log Ê and b(N) = b + c·log N."""
    a_of_e, b_of_n = eq.slopes_at(SATURATED, ROW, 3.7e8, 64.0)
    assert a_of_e[0] == pytest.approx(alpha(effective_experts(64)), abs=1e-12)
    assert b_of_n[0] == pytest.approx(S_BASE["b"] + S_BASE["c"] * np.log10(3.7e8), abs=1e-12)
    assert b_of_n[0] < 0


def test_level_curve_has_the_loss_it_is_named_for() -> None:
    for experts in (1.0, 8.0, 512.0):
        size = eq.size_for_loss(SATURATED, ROW, np.log10(2.4), experts)[0]
        assert 10 ** eq.log_loss_at(SATURATED, ROW, size, experts)[0] == pytest.approx(2.4, rel=1e-9)


def test_unreachable_loss_and_effect_are_infinite() -> None:
    law = get_law("irreducible")
    row = law.row({"log_a": 1.57, "a": -0.18, "b": -0.096, "e_start": 2.5, "e_max": 300.0, "l_inf": 1.5})
    assert eq.size_for_loss(law, row, np.log10(1.4), 1.0)[0] == np.inf
    assert eq.experts_for_effective(SATURATED, ROW, 1e8, 1e11)[0] == np.inf


def test_laws_in_other_variables_are_refused() -> None:
    with pytest.raises(InputError, match="not a law in"):
        eq.check_law(get_law("compute"))
