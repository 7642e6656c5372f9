"""Loss and spread of tokens by the routers' weights: which runs count, and what is told of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from drawn_runs import CROSSED, World, drawn_study
from drawn_runs import WEIGHTS as DRAWN_WEIGHTS

from experiments.miniature.analysis.claims import judge_one
from experiments.miniature.analysis.page_sections import blocks_on_weights
from experiments.miniature.analysis.study import Study, plain
from experiments.miniature.studies import specs_of
from routelaw.figures.seeds import spread_along
from routelaw.report.page import Grid, Text
from routelaw.runs.table import RunTable
from routelaw.runs.variants import parts_of
from routelaw.studies.claims_on_balance import EXCESS, by_balance, crosses, spread_noise, varied, weighted
from routelaw.studies.claims_on_training import noise_on_the_way
from routelaw.studies.study_runs import WEIGHTS

ROUTERS = ("rl-r", "s-base", "switch")
SEEDED = "2M"


@pytest.fixture(scope="module")
def study() -> Study:
    return drawn_study(World(noise=0.0, excess_noise=0.0))


def table_of(rows: list[tuple[str, str, str]]) -> RunTable:
    """Runs by router, variant and studies."""
    frame = pd.DataFrame(rows, columns=["router", "variant", "studies"])
    frame = frame.assign(run_id=frame.index.map(str), experts=8, k=1, routing_frequency=0.5, step=1, active_params=1e6)
    frame.loc[frame["router"] == "dense", "experts"] = 1
    return RunTable.from_frame(frame.assign(total_params=2e6, flops_per_token=1e7, loss_validation=3.0), "few")


def test_variants_are_differences_from_the_main_sweep() -> None:
    chosen = "balance_weight=0.1,entropy_weight=0.05,policy_weight=0.1,positions=rope"
    rows = [
        ("dense", "positions=rope", "rates main"),
        ("rl-r", chosen, "main seeds"),
        ("rl-r", chosen.replace("0.05", "0"), "robustness"),
        ("rl-r", f"{chosen},variant=G", "rl_variants"),
        ("rl-r", "positions=rope", "paper_weights"),
        ("switch", "balance_weight=1,positions=rope", "robustness"),
        ("switch", "positions=rope", "main"),
    ]
    frame = plain(table_of(rows)).frame
    default = "balance_weight=default,entropy_weight=default,policy_weight=default"
    assert list(frame["variant"]) == ["", "", "entropy_weight=0", "variant=G", default, "balance_weight=1", ""]
    np.testing.assert_array_equal(frame["balance"], [np.nan, 0.1, 0.1, 0.1, 1.0, 1.0, 1e-2])
    np.testing.assert_array_equal(frame["entropy"], [np.nan, 0.05, 0.0, 0.05, 5e-4, np.nan, np.nan])
    without = plain(table_of([row for row in rows if "main seeds" not in row])).frame
    changed = "balance_weight=0.1,entropy_weight=0.05,policy_weight=0.1"
    assert list(without[without["router"] == "rl-r"]["variant"]) == [
        changed.replace("0.05", "0"), f"{changed},variant=G", "",
    ], "without main runs of its own: what the whole main sweep has in common"  # fmt: skip
    kept = weighted(Study(plain(table_of(rows))))
    assert list(kept["variant"]) == ["", "entropy_weight=0", "balance_weight=1", ""]


def test_the_runs_of_the_sweep_are_all_of_them_known() -> None:
    found = [(spec.router.name, spec.variant, "robustness") for spec in specs_of("robustness", "c", 8192)]
    main = {(spec.router.name, spec.variant, "main") for spec in specs_of("main", "c", 8192)}
    frame = plain(table_of([*found, *main])).frame
    frame = frame[frame["studies"] == "robustness"]
    assert len(frame) == 21
    assert all(set(parts_of(variant)) <= WEIGHTS for variant in frame["variant"])
    assert len(frame[["router", "balance", "entropy"]].drop_duplicates()) == 21, "by their weights alone"
    assert frame[frame["variant"] == ""].groupby("router").size().to_dict() == dict.fromkeys(ROUTERS, 1)


def test_every_router_has_its_row_at_the_usual_entropy_weight(study: Study) -> None:
    losses, shares = varied(by_balance(study)), by_balance(study, EXCESS)
    assert list(losses.index) == [(router, "2M", 64) for router in ROUTERS]
    assert tuple(losses.columns) == DRAWN_WEIGHTS
    assert shares.loc[("s-base", "2M", 64), 1e-2] == pytest.approx(0.05), "the end of training, not its mean"
    assert shares.loc[("rl-r", "2M", 64), 1e-2] == pytest.approx(0.2 + 0.03)


def test_the_cross_has_the_balance_weights_that_were_crossed(study: Study) -> None:
    ((place, grid),) = crosses(study, EXCESS).items()
    assert place == ("2M", 64)
    assert tuple(grid.columns) == CROSSED
    assert list(grid.index) == [0.0, 5e-4, 5e-3]
    assert grid.loc[5e-3, 1e-2] == pytest.approx(0.5)
    assert grid[1.0].nunique() == 1


def test_a_balance_weight_without_one_of_the_entropy_weights_still_counts(study: Study) -> None:
    said = judge_one("entropy", study).why
    frame = study.table.frame
    hole = (frame["router"] == "rl-r") & (frame["entropy"] == 5e-4) & (frame["balance"] == CROSSED[0])
    assert hole.any()
    assert f"; {len(CROSSED)} balance weights." in said
    assert judge_one("entropy", replace(study, table=replace(study.table, frame=frame[~hole]))).why == said


def test_noise_is_that_of_seeds() -> None:
    sd, freedom = spread_noise(drawn_study(World(excess_noise=0.01)), ("s-base", "rl-r", "hash"), SEEDED, 64) or (0, 0)
    assert freedom == 4, "two models of three seeds; hash has no weights"
    assert 0.003 < sd < 0.03


def test_without_the_log_losses_are_shown_alone(study: Study) -> None:
    blind = replace(study, routing=None)
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
    apart = pd.DataFrame(spread_along(Study(replace(study.table, frame=moved)))[1])
    assert apart["s-base", "2M", 8].max() == pytest.approx(0.5)
    assert apart["s-base", "2M", 8].idxmax() == frame[early]["tokens"].item()
    assert apart.drop(columns=[("s-base", "2M", 8)]).max().max() == pytest.approx(0.0, abs=1e-12)


def test_seeds_are_further_apart_on_the_way() -> None:
    study = drawn_study(World(noise=1e-3, studies=False))
    assert noise_on_the_way(study, SEEDED, 0.5) == pytest.approx(1.0), "drawn runs are off by the same share all along"
    frame = study.table.frame
    tripled = frame["loss_validation"].mask(frame["step"] == 500, frame["loss_validation"] ** 3)
    moved = Study(replace(study.table, frame=frame.assign(loss_validation=tripled)))
    assert noise_on_the_way(moved, SEEDED, 0.48) == pytest.approx(3.0)
    assert noise_on_the_way(moved, SEEDED, 0.9) == pytest.approx(1.0)
    assert noise_on_the_way(drawn_study(World(seeds=False, studies=False)), SEEDED, 0.5) == 1.0
