"""A fit judged: what is reported, where, and the doubts in words."""

import json
from dataclasses import replace

import numpy as np
import pytest

from routelaw.errors import InputError
from routelaw.fitting import fit_law
from routelaw.fitting.fit_report import judge, reference_point

DERIVED = ["n_cut", "epc", "epc_max", "a_of_e", "b_of_n", "loss"]


@pytest.fixture(scope="module")
def bilinear(simulate):
    return fit_law("bilinear", simulate("bilinear"))


def test_where_a_fit_is_reported(bilinear) -> None:
    """The middle size and an E of about 64, both among the points, unless told otherwise."""
    at = reference_point(bilinear, None, None)
    assert at["active_params"] in bilinear.points.x["active_params"]
    assert at["experts"] == 64
    assert reference_point(bilinear, 1e9, 7) == {"active_params": 1e9, "experts": 7}
    for size, experts in ((0.0, None), (np.nan, None), (None, 0.0), (None, -3.0), (None, np.inf)):
        with pytest.raises(InputError, match="must be a finite number of at least 1"):
            reference_point(bilinear, size, experts)


def test_derived_quantities_follow_from_the_parameters(bilinear) -> None:
    p = bilinear.params
    judged = judge(bilinear, draws=60, active_params=1e8, experts=32)
    assert list(judged.derived) == DERIVED
    assert set(judged.intervals) == {*p, *DERIVED}
    u, v = 8.0, np.log10(32)
    assert judged.derived["a_of_e"] == pytest.approx(p["a"] + p["c"] * v)
    assert judged.derived["b_of_n"] == pytest.approx(p["b"] + p["c"] * u)
    assert judged.derived["n_cut"] == pytest.approx(10 ** (-p["b"] / p["c"]))
    log_loss = p["a"] * u + p["b"] * v + p["c"] * u * v + p["d"]
    assert judged.derived["loss"] == pytest.approx(10**log_loss)
    assert judged.derived["epc"] == pytest.approx(10 ** ((log_loss - p["d"]) / p["a"]))


def test_the_dictionary_is_plain(bilinear) -> None:
    made = judge(bilinear, draws=60, level=0.8).as_dict()
    assert {"law", "router", "target", "points", "params", "intervals", "rmsle", "derived", "warnings"} <= set(made)
    assert (made["interval_method"], made["level"]) == ("size-bootstrap", 0.8)
    json.dumps(made)


def test_the_level_widens_and_the_seed_repeats(bilinear) -> None:
    narrow, wide, again = (judge(bilinear, draws=60, level=level, seed=4) for level in (0.6, 0.95, 0.95))
    for name, interval in wide.intervals.items():
        assert interval == again.intervals[name]
        assert interval.low <= narrow.intervals[name].low <= narrow.intervals[name].high <= interval.high


def test_a_distant_cut_off_is_doubted(bilinear) -> None:
    assert any("times beyond the largest size fitted" in w for w in judge(bilinear, draws=60).warnings)


def test_a_law_without_a_cut_off_says_so(simulate) -> None:
    judged = judge(fit_law("irreducible-power", simulate("irreducible", experts=8)), draws=60)
    assert "under law irreducible-power routing never stops helping: there is no n_cut." in judged.warnings


def test_what_the_data_do_not_determine_is_said(simulate) -> None:
    """A pure power law in E up to 128: any large e_max will do, so only a lower end is known."""
    fit = fit_law("saturated", simulate("bilinear", experts=8, noise=1e-3))
    judged = judge(fit, draws=60)
    assert any(w.startswith("e_max") for w in judged.warnings)
    assert judged.intervals["e_max"].open_high


def test_too_few_sizes_for_intervals(simulate) -> None:
    judged = judge(fit_law("bilinear", simulate("bilinear", sizes=2)))
    assert (judged.method, judged.draws) == ("profile", None)
    assert any(w.startswith("size-bootstrap needs at least 3 sizes") for w in judged.warnings)
    assert judged.derived["loss"] > 0


def test_the_dense_law_has_kaplans_constants(simulate) -> None:
    """L = (N_c/N)^α_N: an interval of α is that of −a turned round; N_c has one of its own, from the same refits."""
    points = simulate("bilinear")
    fit = fit_law("dense", points.where(points.dense))
    judged = judge(fit, draws=60)
    a, d = fit.params["a"], fit.params["d"]
    assert judged.derived == pytest.approx({"alpha_n": -a, "n_c": 10 ** (-d / a)})
    assert set(judged.intervals) == {"a", "d", "alpha_n", "n_c"}
    alpha, n_c = (judged.intervals[name] for name in ("alpha_n", "n_c"))
    assert (alpha.low, alpha.high) == pytest.approx((-judged.intervals["a"].high, -judged.intervals["a"].low))
    size = points.x["active_params"][0]
    kaplan = (judged.derived["n_c"] / size) ** judged.derived["alpha_n"]
    assert kaplan == pytest.approx(fit.predict(active_params=np.array([size]))[0], rel=1e-12)
    assert n_c.low < judged.derived["n_c"] < n_c.high
    scales_R = judged.draws.params_RP[:, 1] / -judged.draws.params_RP[:, 0]
    assert np.log10(n_c.low) <= np.quantile(scales_R, 0.05) < np.quantile(scales_R, 0.95) <= np.log10(n_c.high)
    assert "N_c: scale of Kaplan's (N_c/N)^α_N\n" in f"{judged}"


def test_constants_without_an_end_are_open(simulate) -> None:
    """Losses that do not fall with size have no N_c: infinity is no number of parameters."""
    points = simulate("bilinear")
    flat = fit_law("dense", replace(points.where(points.dense), loss=np.full(6, 2.5)))
    judged = judge(flat, draws=60)
    assert judged.intervals["n_c"].open_high
