"""Figures of what was chosen: which runs they show, and that they can be drawn from few."""

from __future__ import annotations

from math import log

import numpy as np
import pandas as pd
import pytest

from experiments.miniature.analysis.figures_of_choices import (
    draw_rates,
    draw_rl_weights,
    draw_temperature,
    rates,
    rl_weights,
    temperatures,
)
from experiments.miniature.analysis.study import Study, plain
from experiments.miniature.studies import DATA, TABLE, specs_of
from routelaw.errors import InputError
from routelaw.fitting.matched_runs import final_rows
from routelaw.runs.files import read_runs
from routelaw.runs.table import RunTable

CHOSEN = "balance_weight=0.1,entropy_weight=0.05,policy_weight=0.1,positions=rope"
OTHERS = {
    "positions=rope": (log(8), 4.2),
    CHOSEN.replace("0.05", "0.005"): (0.5 * log(8), 3.9),
    f"{CHOSEN},reward=p": (0.9 * log(8), 4.0),
    f"{CHOSEN},variant=G": (0.1, 3.7),
}


def table(rows: list[dict[str, object]]) -> RunTable:
    usual = {"step": 1500, "tokens_planned": 49e6}
    frame = pd.DataFrame([{**usual, **each} for each in rows]).assign(k=1, routing_frequency=0.5, status="finished")
    frame = frame.assign(run_id=[f"{r}-{i}" for i, r in enumerate(frame["router"])], size="788K", active_params=788_480)
    return RunTable.from_frame(frame.assign(total_params=2e6, flops_per_token=1e7), "few")


def row(
    router: str, experts: int, variant: str, loss: float, rate: float = 0.013, studies: str = ""
) -> dict[str, object]:
    return {"router": router, "experts": experts, "variant": variant, "loss_validation": loss, "learning_rate": rate,
            "studies": studies}  # fmt: skip


@pytest.fixture
def study() -> Study:
    main = [
        row("dense", 1, "positions=rope", 3.87, studies="main"),
        row("s-base", 8, "positions=rope", 3.82, studies="main"),
        row("s-base", 64, "positions=rope", 3.81, studies="main"),
        row("s-base", 64, "positions=rope,temperature=0.1", 3.75),
        row("hash", 8, "positions=rope", 3.7, studies="main"),
        row("rl-r", 8, CHOSEN, 3.83, studies="main rl_weights"),
        *(row("rl-r", 8, variant, loss) for variant, (_, loss) in OTHERS.items()),
    ]
    tried = [row("dense", 1, "positions=rope", 3.8 + d, rate) for rate, d in ((0.004, 0.15), (0.016, 0.08))]
    tried += [row("s-base", 8, "positions=rope", 3.8 + d, rate) for rate, d in ((0.0065, 0.006), (0.026, 0.07))]
    tried += [row("hash", 8, "positions=rope", 3.81, 0.0065)]
    made = plain(table(main))
    ids = made.frame["run_id"]
    entropies = [np.nan, 0.7, 2.9, 2.6, np.nan, 0.02, *(e for e, _ in OTHERS.values())]
    routing = pd.DataFrame({"run_id": ids, "step": 1500, "router_entropy": entropies, "oversubscribed": 0.1,
                            "dropped": [np.nan, 0, 0.12, 0, 0, 0, 0, 0, 0, 0]})  # fmt: skip
    return Study(made, routing=routing, rates=final_rows(plain(table(tried))))


def test_rates_have_the_chosen_one_among_them(study: Study) -> None:
    found = rates(study)
    assert set(found["router"]) == {"dense", "s-base"}, "hash was tried with one rate beside the chosen one"
    dense = found[found["router"] == "dense"]
    assert list(dense["learning_rate"]) == [0.004, 0.013, 0.016]
    assert list(dense["chosen"]) == [False, True, False]
    assert list(found[found["router"] == "s-base"]["loss_validation"]) == pytest.approx([3.806, 3.82, 3.87])
    axes = draw_rates(study).axes
    assert [len(panel.get_legend_handles_labels()[1]) for panel in axes] == [1, 2]


def test_policies_are_measured_against_uniform_ones(study: Study) -> None:
    found = rl_weights(study).set_index("loss_validation")["decided"]
    assert found.to_dict() == pytest.approx({3.83: 1 - 0.02 / log(8), 4.2: 0.0, 3.9: 0.5, 4.0: 0.1})
    (panel,) = draw_rl_weights(study).axes
    assert panel.get_title() == "RL-R 788K, E = 8"
    said = panel.get_legend_handles_labels()[1]
    assert said == ["entropy weight 0.0005", "entropy weight 0.005", "entropy weight 0.05", "chosen", "Dense", "S-BASE"]


def test_the_papers_temperature_is_one(study: Study) -> None:
    found = temperatures(study)
    assert sorted(zip(found["experts"], found["temperature"], found["dropped"], strict=True)) == [
        (8, 1.0, 0.0), (64, 0.1, 0.0), (64, 1.0, 0.12),
    ]  # fmt: skip
    gains = {line.get_label(): list(line.get_ydata()) for line in draw_temperature(study).axes[0].lines}
    assert gains == {
        "788K, temperature 0.1": pytest.approx([100 * log(3.87 / 3.75)]),
        "788K, temperature 1": pytest.approx([100 * log(3.87 / loss) for loss in (3.82, 3.81)]),
        "788K, HASH": pytest.approx([100 * log(3.87 / 3.7)]),
    }


def test_without_such_runs_nothing_is_drawn() -> None:
    bare = Study(plain(table([row("dense", 1, "", 3.9), row("s-base", 8, "", 3.8), row("rl-r", 8, "", 3.9)])))
    for draw in (draw_rates, draw_rl_weights, draw_temperature):
        with pytest.raises(InputError, match="no such runs"):
            draw(bare)


@pytest.mark.skipif(not (DATA / TABLE).is_file(), reason="no runs of the miniature are committed")
def test_the_weights_that_were_chosen_are_the_best_that_were_tried() -> None:
    """By the mean of the losses at the two E, as chosen.toml says."""
    last = final_rows(read_runs(DATA / TABLE))
    tried = last[last["studies"].fillna("").str.split().map(lambda own: "rl_weights" in own)]
    losses = tried.pivot_table(index="variant", columns="experts", values="loss_validation").dropna()
    assert list(losses.columns) == [8, 64]
    assert len(losses) > 12
    chosen = {spec.variant for spec in specs_of("main", "c", 8192) if spec.router.name == "rl-r"}
    assert chosen == {losses.mean(axis=1).idxmin()}
