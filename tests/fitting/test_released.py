"""The optimum and the errors on the paper's released table, against figures computed independently of this code."""

import pytest

from routelaw.fitting import fit_law, select_points
from routelaw.fitting.validation import validate

ROUTERS = ("s-base", "rl-r", "hash")

# a, b, c, d, e_start, e_max as tabulated with the digits given there.
OPTIMUM = {
    "s-base": (("-0.0833", "-0.1202", "0.01013", "1.1168", "2.204", "229.6"), (32.2, 36.6, 55.0, 89.8)),
    "rl-r": (("-0.0830", "-0.1253", "0.01142", "1.1100", "1.829", "450.3"), (32.3, 36.1, 54.6, 90.0)),
    "hash": (("-0.0879", "-0.1415", "0.01294", "1.1648", "4.548", "402.5"), (29.8, 34.1, 53.2, 85.7)),
}

# Leave-one-out and leave-size-out error of each law, in 1e-4 of log10 L.
MANY_PARAMETERS = ("ludziejewski2025", "abnar2025")
"""Whose fits take seconds."""
ERRORS = {
    "separable": ((60.9, 77.0), (68.1, 84.2), (68.2, 83.9)),
    "bilinear": ((41.5, 58.2), (37.6, 55.8), (41.5, 58.4)),
    "saturated": ((36.6, 55.0), (36.1, 54.6), (34.1, 53.2)),
    "irreducible-power": ((26.2, 27.4), (26.3, 29.6), (38.2, 38.4)),
    "irreducible": ((17.9, 21.4), (21.5, 27.7), (20.2, 27.2)),
    "irreducible-bilinear": ((18.3, 31.9), (19.3, 32.7), (16.5, 30.0)),
    "ludziejewski2025": ((15.4, 27.3), (13.5, 26.5), (11.9, 24.9)),
    "abnar2025": ((17.2, 30.3), (16.6, 22.7), (10.7, 23.1)),
}


@pytest.mark.parametrize("router", ROUTERS)
def test_six_parameter_optimum_to_every_digit(released, router) -> None:
    fit = fit_law("saturated", select_points(released, router))
    digits, errors = OPTIMUM[router]
    for (name, value), printed in zip(fit.params.items(), digits, strict=True):
        decimals = len(printed.split(".")[1])
        assert f"{value:.{decimals}f}" == printed, name
    v = validate(fit)
    ours = (v.in_sample, v.leave_one_out, v.leave_size_out, v.largest_size_out)
    assert [1e4 * e for e in ours] == pytest.approx(errors, abs=0.1)
    assert fit.status == "converged"


@pytest.mark.parametrize(("router", "held_out"), [("s-base", 27.4), ("rl-r", 46.3), ("hash", 47.7)])
def test_irreducible_law_on_the_largest_size(released, router, held_out) -> None:
    v = validate(fit_law("irreducible", select_points(released, router)))
    assert v.largest_size_out is not None
    assert 1e4 * v.largest_size_out == pytest.approx(held_out, abs=0.1)


@pytest.mark.parametrize(
    "law", [pytest.param(law, marks=[pytest.mark.long] * (law in MANY_PARAMETERS)) for law in ERRORS]
)
def test_errors_of_every_law(released, law) -> None:
    for router, (one_out, size_out) in zip(ROUTERS, ERRORS[law], strict=True):
        v = validate(fit_law(law, select_points(released, router)))
        assert v.leave_one_out is not None
        assert v.leave_size_out is not None
        assert 1e4 * v.leave_one_out == pytest.approx(one_out, abs=0.11)
        assert 1e4 * v.leave_size_out == pytest.approx(size_out, abs=0.11)


def test_dense_law_gives_the_printed_constant(released) -> None:
    """N_c = 10^(−d/a) = 3.568e13 (errata 6)."""
    fit = fit_law("dense", select_points(released, "dense"))
    assert len(fit.points) == 6
    assert f"{10 ** (-fit.params['d'] / fit.params['a']):.3e}" == "3.568e+13"
    assert -fit.params["a"] == pytest.approx(0.0786, abs=5e-5)
