"""A law of one's own is checked when it is declared, and need not have a constant."""

import numpy as np
import pytest

from routelaw.errors import InputError
from routelaw.fitting.fit import fit_law
from routelaw.fitting.points import Points
from routelaw.laws.power_sum import Coefficient, PowerSum, coefficient


def declared(*terms: tuple[Coefficient, ...]) -> PowerSum:
    return PowerSum(
        name="mine",
        formula="…",
        source="me",
        inputs=("active_params", "experts"),
        second=lambda x: x["experts"],
        terms=terms,
    )


def test_names_are_unique() -> None:
    with pytest.raises(InputError, match="law mine: two parameters are called 'a'"):
        declared((coefficient("a", "slope", (1, 0)), coefficient("a", "constant", (0, 0))))


def test_each_of_several_terms_begins_with_its_scale() -> None:
    scaled = (coefficient("log_a", "scale", (0, 0)), coefficient("alpha", "slope", (1, 0)))
    turned = (coefficient("beta", "slope", (0, 1)), coefficient("log_b", "scale", (0, 0)))
    with pytest.raises(InputError, match=r"term 2 of 2 must begin with its scale.* 'beta' has \(0, 1\)"):
        declared(scaled, turned)
    declared(scaled, turned[::-1])
    declared(turned)


def test_a_law_needs_a_term() -> None:
    for terms in ((), ((),)):
        with pytest.raises(InputError, match="at least one term"):
            declared(*terms)


def test_a_law_without_a_constant_is_fitted() -> None:
    """log L is linear in what there is, so ordinary least squares gives the answer to compare with."""
    law = declared((coefficient("a", "slope in log N", (1, 0)), coefficient("b", "slope in log E", (0, 1))))
    active, experts = (v.ravel() for v in np.meshgrid([1e7, 1e8, 1e9], [1.0, 4.0, 16.0, 64.0], indexing="ij"))
    u, v = np.log10(active), np.log10(experts)
    log_loss = 0.05 * u - 0.03 * v + 0.001 * np.random.default_rng(0).standard_normal(u.size)
    points = Points(
        router="test",
        target="loss_validation",
        x={"active_params": active, "experts": experts},
        loss=10**log_loss,
        weight=np.ones_like(active),
        size=np.array([f"{n:g}" for n in active], dtype=object),
        dense=np.zeros(active.size, dtype=bool),
    )
    expected = np.linalg.lstsq(np.stack([u, v], axis=1), log_loss, rcond=None)[0]
    assert list(fit_law(law, points).params.values()) == pytest.approx(expected, rel=1e-8)
