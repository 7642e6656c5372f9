"""Losses whose law is known, because they were made from it."""

from collections.abc import Callable

import numpy as np
import pytest

from routelaw.fitting import Points
from routelaw.laws import get_law

TRUTH = {
    "bilinear": {"a": -0.083, "b": -0.12, "c": 0.0101, "d": 1.117},
    "saturated": {"a": -0.083, "b": -0.12, "c": 0.0101, "d": 1.117, "e_start": 2.2, "e_max": 230.0},
    "irreducible": {"log_a": 2.2, "a": -0.25, "b": -0.14, "e_start": 2.0, "e_max": 300.0, "l_inf": 1.5},
}


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Points]:
    def made(
        law: str = "saturated",
        *,
        noise: float = 3e-3,
        seed: int = 1,
        sizes: int = 6,
        experts: int = 10,
        shift: float = 0,
    ) -> Points:
        """A grid of sizes and expert counts (1, 2, 4, …); `shift` is added to every log10 loss."""
        active_N, experts_N = (
            m.ravel() for m in np.meshgrid(10 ** np.linspace(7.2, 9.1, sizes), 2.0 ** np.arange(experts))
        )
        x = {"active_params": active_N, "experts": experts_N}
        chosen, rng = get_law(law), np.random.default_rng(seed)
        log_loss_N = chosen.log_loss(chosen.row(TRUTH[law]), x)[0] + noise * rng.standard_normal(active_N.size) + shift
        size = np.array([f"{n / 1e6:.0f}M" for n in active_N], dtype=object)
        return Points("simulated", "loss_validation", x, 10**log_loss_N, np.ones(active_N.size), size, experts_N == 1)

    return made


@pytest.fixture(scope="session")
def truth() -> dict[str, dict[str, float]]:
    """The parameters behind `simulate`, by law."""
    return TRUTH
