"""What every law must do, over every law there is: a new file arrives tested."""

from pathlib import Path

import numpy as np
import pytest

from routelaw.errors import InputError
from routelaw.fitting.fit import fit_law
from routelaw.fitting.points import Points
from routelaw.laws import Law, Parameter, all_laws, get_law, load_law
from routelaw.laws.law import Constant
from routelaw.laws.trial import try_law

LAWS = list(all_laws().values())
IDS = [law.name for law in LAWS]

# Parameter values near which each law is exercised: plausible ones, so that predictions lie between 1 and 6 nats.
PLAUSIBLE = {
    "dense": {"a": -0.079, "d": 1.06},
    "experts": {"b": -0.03, "d": 0.45},
    "separable": {"a": -0.07, "b": -0.028, "d": 1.0},
    "bilinear": {"a": -0.08, "b": -0.09, "c": 0.0075, "d": 1.08},
    "quadratic": {"a": -0.2, "b": -0.09, "c": 0.0075, "d": 1.6, "q": 0.0075},
    "saturated": {"a": -0.083, "b": -0.12, "c": 0.01, "d": 1.117, "e_start": 2.2, "e_max": 230.0},
    "compute": {"a": -0.08, "b": -0.01, "c": 0.01, "d": 0.13, "b_start": 0.6, "b_max": 15.0},
    "irreducible": {"log_a": 1.57, "a": -0.18, "b": -0.096, "e_start": 2.5, "e_max": 300.0, "l_inf": 1.48},
    "irreducible-power": {"log_a": 1.53, "a": -0.18, "b": -0.07, "l_inf": 1.47},
    "irreducible-bilinear": {
        "a": -0.18, "b": -0.15, "c": 0.008, "d": 1.58, "e_start": 2.1, "e_max": 600.0, "l_inf": 1.45,
    },
    "ludziejewski2025": {
        "log_a": 1.45, "alpha": -0.16, "delta": -0.04, "gamma": -0.01, "log_b": 0.0, "omega": 0.03,
        "e_start": 3.0, "e_max": 1000.0, "l_inf": 0.3,
    },
    "abnar2025": {
        "log_a": 1.2, "alpha": -0.12, "log_c": -0.6, "lambda": 0.15, "log_d": 8.0, "delta": 1.3, "gamma": -1.3,
        "l_inf": 0.7,
    },
    "chinchilla": {"a": 400.0, "alpha": 0.34, "b": 1500.0, "beta": 0.36, "l_inf": 1.7},
    "chinchilla-experts": {
        "a": 400.0, "alpha": 0.34, "gamma": 0.12, "b": 1500.0, "beta": 0.36, "omega": 0.05, "e_start": 2.0,
        "e_max": 300.0, "l_inf": 1.7,
    },
    "ludziejewski2025-tokens": {
        "a": 35.9, "alpha": -0.189, "delta": -0.2285, "gamma": 0.0098, "b": 36.0, "beta": -0.1775, "omega": 0.553,
        "zeta": -0.0259, "e_start": 2.07, "e_max": 290.0, "c": 1.36,
    },
    "krajewski2024": {"a": 18.1, "alpha": 0.115, "b": 30.8, "beta": 0.147, "g": 2.1, "gamma": 0.58, "c": 0.47},
    "abnar2025-tokens": {
        "a": 16612.5, "alpha": 0.5962, "b": 5455.67, "beta": 0.3954, "c": 0.4598, "lambda": -0.1666, "d": 17.26,
        "delta": 0.1603, "gamma": 0.1595, "e": 0.94,
    },
    "joint": {
        "a": 400.0, "alpha": 0.34, "gamma": 0.12, "b": 1500.0, "beta": 0.36, "e_start": 2.0, "e_max": 300.0,
        "l_inf": 1.7,
    },
    "joint-params": {
        "a": 400.0, "alpha": 0.34, "gamma": 0.12, "b": 1500.0, "beta": 0.36, "u_start": 2.0, "u_max": 100.0,
        "l_inf": 1.7,
    },
    "wang2024": {"a": 400.0, "alpha": 0.34, "gamma": 0.08, "b": 1500.0, "beta": 0.36, "sigma": 1.7},
    "yun2024": {
        "a": 400.0, "alpha": 0.34, "b": 0.5, "beta": 0.3, "c": 1500.0, "gamma": 0.36, "f": 1.5, "d": 0.002,
        "e_start": 2.0, "e_max": 300.0,
    },
    "saturated-tokens": {
        "a": -0.083, "b": -0.12, "c": 0.01, "d": 1.1, "b_tokens": 1500.0, "beta": 0.36, "e_start": 2.2, "e_max": 230.0,
    },
    "kaplan2020-tokens": {"n_c": 8.8e13, "alpha_n": 0.076, "d_c": 5.4e13, "alpha_d": 0.095},
    "zhao2025": {
        "e": 0.1577, "f": 7.2446, "m": 5.1395, "n": -3.2363, "k": 0.0013, "h": 0.045, "a": 38.051, "alpha": 0.2383,
        "b": 27129.05, "beta": 0.4694, "c": 31.096, "epsilon": 1.8182,
    },
    "kaplan2020": {"n_scale": 0.95, "a_n": -0.07, "s_scale": 2.4, "a_s": -0.7},
    "kaplan2020-smin": {"n_scale": 0.95, "a_n": -0.07, "s_scale": 2.0, "a_s": -0.7},
}  # fmt: skip


def design(law: Law) -> dict[str, np.ndarray]:
    """Six sizes by ten expert counts (by eight steps), or the one size that `experts` describes."""
    sizes = np.array([1.65e7, 2.7e7, 5.7e7, 1.3e8, 3.7e8, 1.3e9]) if law.name != "experts" else np.array([3.7e8])
    steps = [3e4, 1e5, 2.5e5]
    active, experts, step = (v.ravel() for v in np.meshgrid(sizes, 2.0 ** np.arange(10), steps, indexing="ij"))
    number = np.arange(active.size)
    granularity, shared = 2.0 ** (number % 4), (number % 3).astype(float)
    return {
        "active_params": active,
        "experts": experts,
        "step": step,
        "tokens": 3e5 * step * (1 + number % 5),
        "k": np.minimum(1.0 + number % 7, experts),
        "granularity": granularity,
        "shared_experts": shared,
        "embedding_params": 400 * np.sqrt(active),
        "routing_frequency": np.full_like(active, 0.5),
        "total_params": active * (1 + 0.33 * (experts - 1)),
        "flops_per_token": 2.3 * active + 1e7,
    }


def points_of(law: Law, loss: np.ndarray) -> Points:
    x = design(law)
    return Points(
        router="test",
        target="loss_validation",
        x=x,
        loss=loss,
        weight=np.ones(loss.size),
        size=np.array([f"{n:.3g}" for n in x["active_params"]], dtype=object),
        dense=x["experts"] == 1,
    )


def around(law: Law, count: int, spread: float = 0.03) -> np.ndarray:
    row = law.row(PLAUSIBLE[law.name])
    return row * (1 + spread * np.random.default_rng(0).standard_normal((count, row.size)))


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_states_what_it_is(law: Law) -> None:
    assert law.formula
    assert law.source
    assert all(p.meaning for p in law.parameters)
    assert len(set(law.names)) == len(law.names)
    assert all(p.low < p.high for p in law.parameters)


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_jacobian_is_the_derivative(law: Law) -> None:
    params_BP, x = around(law, 5), design(law)
    exact = law.jacobian(params_BP, x)
    assert exact.shape == (5, x["experts"].size, len(law.parameters))
    np.testing.assert_allclose(exact, Law.jacobian(law, params_BP, x), rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_each_vector_may_have_points_of_its_own(law: Law) -> None:
    params_BP, x = around(law, 4), design(law)
    shared = law.log_loss(params_BP, x)
    own = law.log_loss(params_BP, {k: np.repeat(v[None, :4].T, 1, 1) for k, v in x.items()})
    np.testing.assert_allclose(own[:, 0], np.diagonal(shared[:, :4]), rtol=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_constants_follow_from_the_parameters(law: Law) -> None:
    params_BP = around(law, 4)
    names = [*law.names, *(c.name for c in law.constants)]
    assert len(set(names)) == len(names)
    for constant in law.constants:
        value_B = constant.of(params_BP)
        assert value_B.shape == (4,)
        assert np.isfinite(value_B).all()
        np.testing.assert_allclose(value_B[1], constant.of(params_BP[1:2])[0])


@pytest.mark.parametrize("name", ["dense", "kaplan2020"])
def test_kaplans_constants_are_the_law(name: str) -> None:
    """The law written with α and X_c is the law written with slopes and levels."""
    law = get_law(name)
    params_BP, x = around(law, 3), design(law)
    values = {c.name: 10.0 ** c.of(params_BP) if c.log else c.of(params_BP) for c in law.constants}
    axes = {"n": x["active_params"], "s": x["step"]} if name == "kaplan2020" else {"n": x["active_params"]}
    loss_BN = sum((values[f"{a}_c"][:, None] / x_N) ** values[f"alpha_{a}"][:, None] for a, x_N in axes.items())
    np.testing.assert_allclose(loss_BN, 10.0 ** law.log_loss(params_BP, x), rtol=1e-10)


def test_a_plugins_constants_are_tried() -> None:
    law = Mine()
    for constants, said in (
        ((Constant("a", "twice", lambda p: p[:, 0]),), "are called 'a'"),
        ((Constant("x", "", lambda p: p[:, 0]),), "a name and a meaning"),
        ((Constant("x", "one number", lambda p: 1.0),), "constant 'x' of law mine must return"),
        ([1], "a tuple of Constant"),
    ):
        law.constants = constants  # type: ignore[assignment]
        with pytest.raises(InputError, match=said):
            try_law(law, Path("law.py"))


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_search_coordinates_round_trip(law: Law) -> None:
    params_BP = around(law, 3)
    np.testing.assert_allclose(law.from_search(law.to_search(params_BP)), params_BP, rtol=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_fit_finds_the_law_behind_noiseless_losses(law: Law) -> None:
    truth = law.row(PLAUSIBLE[law.name])
    loss = 10.0 ** law.log_loss(truth, design(law))[0]
    assert 0.9 < loss.min() < loss.max() < 8
    fit = fit_law(law, points_of(law, loss))
    # Where terms can trade places the parameters may differ, but the curve may not.
    assert fit.rmsle < 2e-6
    np.testing.assert_allclose(law.log_loss(fit.params_BP, design(law))[0], np.log10(loss), atol=2e-5)


class Mine(Law):
    """A law outside the built-in family, as a user would write one: prediction and starting values only."""

    name = "mine"
    formula = "log L = a·log N + b·sqrt(log E) + d"
    source = "test"
    inputs = ("active_params", "experts")
    parameters = (
        Parameter("a", "slope", -1, 0, starts=(-0.05, -0.1)),
        Parameter("b", "experts", -1, 1, starts=(-0.05, 0.0)),
        Parameter("d", "level", -5, 5, starts=(0.5, 1.0)),
    )

    def log_loss(self, params_BP, x):
        a, b, d = (params_BP[:, i, None] for i in range(3))
        return a * np.log10(x["active_params"]) + b * np.sqrt(np.log10(x["experts"])) + d


def test_a_law_of_ones_own_is_one_object() -> None:
    law = Mine()
    loss = 10.0 ** law.log_loss(np.array([[-0.08, -0.05, 1.1]]), design(law))[0]
    fit = fit_law(law, points_of(law, loss))
    assert fit.params == pytest.approx({"a": -0.08, "b": -0.05, "d": 1.1}, rel=1e-6)


def test_a_law_of_ones_own_is_one_file(tmp_path) -> None:
    path = tmp_path / "cubic.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from routelaw.laws.separable import LAW as SEPARABLE\n"
        "LAW = replace(SEPARABLE, name='cubic')\n"
    )
    assert load_law(path).name == "cubic"
    assert get_law("cubic") is all_laws()["cubic"]


def test_a_plugin_without_a_law_is_refused(tmp_path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("x = 1\n")
    with pytest.raises(InputError, match="defines no law"):
        load_law(path)
    with pytest.raises(InputError, match="not a Python file"):
        load_law(tmp_path / "absent.py")


def test_unknown_law_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'saturated'"):
        get_law("saturatd")


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_passes_what_a_plugin_must(law: Law) -> None:
    try_law(law, Path("law.py"))
