"""Differences of matched runs have the intervals that sizes and seeds give them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from routelaw.fitting.matched_runs import MatchedRuns, mean_effect, slope_effect
from routelaw.fitting.noise import NoiseFloor
from routelaw.runs.table import RunTable


def test_an_interval_has_the_noise_of_each_size_by_its_runs() -> None:
    """The noise of a size with one pair and one with four is that of the mean of their means."""
    sds = {"small": 3e-3, "large": 1e-3}
    floors = {name: NoiseFloor(sd, 1e9, sd, sd, 3, 0.1, 3.0) for name, sd in sds.items()}
    effect = mean_effect(np.zeros(5), ["small", *["large"] * 4], floors.get)
    error = np.sqrt(2 * 3e-3**2 + 2 * 1e-3**2 / 4) / 2
    assert effect.high == pytest.approx(1.645 * error, rel=1e-3)
    x = np.array([0.0, 1.0, 3.0])
    drawn = np.random.default_rng(0).normal(0, 1, (200_000, 3)) * [3e-3, 1e-3, 1e-3]
    slopes = drawn @ (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    of_slope = slope_effect(x, np.zeros(3), ["small", "large", "large"], 1.0, floors.get)
    assert of_slope.high == pytest.approx(1.645 * slopes.std(), rel=0.01)
    assert mean_effect(np.zeros(2), ["small", "other"], floors.get).high == np.inf, "without seeds nothing is known"


def test_any_table_can_be_asked_for_the_gap_of_two_routers() -> None:
    """By hand: HASH is 2 % behind at the smaller size and 4 % at the larger; seeds are averaged in log L."""
    rows = [("s-base", size, e, 3.0, seed) for size in ("25M", "370M") for e in (8, 64) for seed in (0, 1)]
    rows += [("hash", size, e, 3.0 * (1 + more), 0) for size, more in (("25M", 0.02), ("370M", 0.04)) for e in (8, 64)]
    frame = pd.DataFrame(rows, columns=["router", "size", "experts", "loss_validation", "seed"])
    frame = frame.assign(
        run_id=frame.index.astype(str), k=1, routing_frequency=0.5, status="finished", step=10,
        active_params=frame["size"].map({"25M": 25e6, "370M": 370e6}),
    )  # fmt: skip
    runs = MatchedRuns(RunTable.from_frame(frame, "by hand"))
    gap = runs.losses("hash") - runs.losses("s-base")
    assert gap.groupby("size").mean().to_dict() == pytest.approx({"25M": np.log10(1.02), "370M": np.log10(1.04)})
    assert runs.mean_gap(gap).value == pytest.approx((np.log10(1.02) + np.log10(1.04)) / 2)
    assert list(runs.active_params) == runs.seeded_sizes == ["25M", "370M"]
    assert runs.seeds_for("370M") == "370M"
