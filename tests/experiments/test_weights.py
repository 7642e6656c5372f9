"""Loss and spread of tokens by the routers' weights: which runs count, and what is told of them."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import pandas as pd
import pytest
from drawn_runs import CROSSED, WEIGHTS, World, drawn_study

from experiments.miniature.claims import judge_one
from experiments.miniature.claims_on_losses import seeds_along
from experiments.miniature.page_on_weights import blocks_on_weights
from experiments.miniature.studies import specs_of
from experiments.miniature.study import Study, weights_of
from experiments.miniature.weights import EXCESS, by_balance, crosses, spread_noise, varied
from routelaw.report.page import Grid, Text

ROUTERS = ("rl-r", "s-base", "switch")


@pytest.fixture(scope="module")
def study() -> Study:
    return drawn_study(World(noise=0.0, excess_noise=0.0))


def test_weights_are_read_off_variants() -> None:
    assert weights_of("rl-r", "") == (1.0, 5e-4)
    assert weights_of("rl-r", "balance_weight=0.1,entropy_weight=0") == (0.1, 0.0)
    balance, entropy = weights_of("switch", "balance_weight=0.1") or (0, 0)
    assert balance == 0.1
    assert isnan(entropy)
    assert weights_of("rl-r", "variant=G") is weights_of("hash", "") is None


def test_the_runs_of_the_sweep_are_all_of_them_known() -> None:
    found = {
        (
            spec.router.name,
            *(weights_of(spec.router.name, spec.variant.removesuffix("positions=rope").rstrip(",")) or ()),
        )
        for spec in specs_of("robustness", "c", 8192)
    }
    assert len(found) == 21, "by their weights alone"
    assert all(len(known) == 3 for known in found)


def test_every_router_has_its_row_at_the_usual_entropy_weight(study: Study) -> None:
    losses, shares = varied(by_balance(study)), by_balance(study, EXCESS)
    assert list(losses.index) == [(router, "2M", 64) for router in ROUTERS]
    assert tuple(losses.columns) == WEIGHTS
    assert shares.loc[("s-base", "2M", 64), 1e-2] == pytest.approx(0.05), "the end of training, not its mean"
    assert shares.loc[("rl-r", "2M", 64), 1e-2] == pytest.approx(0.2 + 0.03)


def test_the_cross_has_the_balance_weights_that_were_crossed(study: Study) -> None:
    ((place, grid),) = crosses(study, EXCESS).items()
    assert place == ("2M", 64)
    assert tuple(grid.columns) == CROSSED
    assert list(grid.index) == [0.0, 5e-4, 5e-3]
    assert grid.loc[5e-3, 1e-2] == pytest.approx(0.5)
    assert grid[1.0].nunique() == 1


def test_noise_is_that_of_seeds() -> None:
    sd, freedom = spread_noise(drawn_study(World(excess_noise=0.01)), ("s-base", "rl-r", "hash"), 64) or (0, 0)
    assert freedom == 4, "two models of three seeds; hash has no weights"
    assert 0.003 < sd < 0.03


def test_without_the_log_losses_are_shown_alone(study: Study) -> None:
    blind = replace(study, routing=None, noises={})
    assert judge_one("over-subscription", blind).why == "how tokens were spread was not recorded"
    assert judge_one("entropy", blind).why == "how tokens were spread was not recorded"
    blocks = blocks_on_weights(blind, [])
    assert sum(isinstance(block, Grid) for block in blocks) == 2
    assert "losses alone" in next(block.text for block in blocks if isinstance(block, Text))


def test_the_largest_distance_of_seeds_may_lie_within_training(study: Study) -> None:
    frame = study.table.frame
    model = (frame["router"] == "s-base") & (frame["size"] == "2M") & (frame["experts"] == 8) & (frame["k"] == 1)
    early = model & (frame["seed"] == 1) & (frame["step"] == 300)
    moved = frame.assign(loss_validation=frame["loss_validation"].mask(early, frame["loss_validation"] + 0.5))
    apart = seeds_along(Study(replace(study.table, frame=moved)))
    assert apart["s-base", "2M", 8].max() == pytest.approx(0.5)
    assert isinstance(apart, pd.DataFrame)
    assert apart["s-base", "2M", 8].idxmax() == frame[early]["tokens"].item()
    assert apart.drop(columns=[("s-base", "2M", 8)]).max().max() == pytest.approx(0.0, abs=1e-12)
