"""Losses on other corpora, or under other recipes, are never averaged as if they were seeds of one model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from routelaw.figures.matched import matched_runs
from routelaw.fitting.comparison import compare, of_one_length
from routelaw.fitting.matched_runs import one_recipe
from routelaw.report.runs.data import read_report_data
from routelaw.report.runs.report import report_steps
from routelaw.runs.files import write_runs
from routelaw.runs.table import RunTable
from routelaw.studies.paper import get_study
from routelaw.studies.study_runs import StudyRuns

SIZES, EXPERTS = {"1M": 1e6, "3M": 3e6, "10M": 1e7}, (4, 16)


def runs(routers: dict[str, float], over: float, **columns: object) -> pd.DataFrame:
    """Each router's loss, and how much more all of them have here."""
    rows = [
        {"run_id": f"{router}-{size}-{e}-{seed}-{over}", "router": router, "variant": "", "size": size, "experts": e,
         "k": 1, "routing_frequency": 0.5, "seed": seed, "step": 10, "tokens": 1e6, "tokens_planned": 1e6,
         "active_params": n, "total_params": n * e, "flops_per_token": 2 * n,
         "loss_validation": loss + over + 0.001 * seed, **columns}
        for router, loss in routers.items() for size, n in SIZES.items()
        for e in ((1,) if router == "dense" else EXPERTS) for seed in (0, 1)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def mixed(column: str, usual: object, other: object) -> RunTable:
    """RL-R is better than HASH; without HASH, all was trained once more where losses are larger."""
    first = runs({"s-base": 3.0, "rl-r": 3.1, "hash": 3.3}, 0.0, **{column: usual})
    second = runs({"s-base": 3.0, "rl-r": 3.1}, 2.0, **{column: other})
    return RunTable.from_frame(pd.concat([first, second], ignore_index=True), "made")


@pytest.mark.parametrize(("column", "usual", "other"), [("corpus", "c4", "wiki"), ("learning_rate", 0.01, 0.001)])
def test_claims_are_judged_on_one_corpus_and_recipe(column: str, usual: object, other: object) -> None:
    table = mixed(column, usual, other)
    judged = StudyRuns.of(table)
    (claim,) = [c for c in get_study("main").judge(judged).claims if c.claim.name == "rl-r >= hash"]
    assert claim.verdict == "holds"
    assert claim.ours is not None
    assert 5 < claim.ours.value < 8
    (sentence,) = [note for note in judged.notes if note.startswith("Left out")]
    assert "24 runs of" in sentence
    assert ("wiki" in str(other)) == ("another corpus than c4" in sentence)
    assert set(matched_runs(table).finals["loss_validation"].round(2) // 1) == {3.0}


def test_a_recipe_of_its_own_is_no_reason_to_leave_a_model_out() -> None:
    frame = mixed("learning_rate", 0.01, 0.001).frame
    apart = frame[(frame["learning_rate"] == 0.01) == (frame["size"] != "10M")]
    left: list[str] = []
    assert one_recipe(apart, left) is apart
    assert not left


def test_lengths_are_no_recipes() -> None:
    """Warm-up often goes with the length of training."""
    table = mixed("warmup_steps", 100, 300)
    frame = table.frame.assign(tokens_planned=table.frame["warmup_steps"] * 1e4)
    assert one_recipe(frame, []) is frame
    unplanned = frame.assign(tokens=frame["tokens_planned"], tokens_planned=pd.NA)
    assert one_recipe(replace(table, frame=unplanned).frame, []) is unplanned


@pytest.mark.parametrize("column", ["corpus", "tokens_planned"])
def test_routers_are_compared_on_one_corpus_and_length(column: str) -> None:
    """Most runs of RL-R are of another corpus, or length, where losses are larger."""
    usual, other = {"corpus": ("c4", "wiki"), "tokens_planned": (1e6, 1e7)}[column]
    first = runs({"dense": 3.5, "s-base": 3.0, "hash": 3.3, "rl-r": 3.1}, 0.0, **{column: usual})
    again = [runs({"rl-r": 3.1}, over, **{column: other}) for over in (2.0, 2.1, 2.2)]
    table = RunTable.from_frame(pd.concat([first, *again], ignore_index=True), "made")
    said: list[str] = []
    found = compare(table, laws=["separable"], experts=8, notice=said.append).routers
    assert found is not None
    assert found.routers == ["s-base", "rl-r", "hash"]
    assert len(said) == 1
    assert said[0].startswith("so that routers are compared alike, left out are 36 runs of another")


def test_a_report_compares_techniques_on_one_corpus(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    mixed("corpus", "c4", "wiki").frame.to_csv(path, index=False)
    (data,) = read_report_data(path)
    assert data.comparable is not None
    assert set(data.comparable.frame["corpus"]) == {"c4"}
    assert data.excluded[0].startswith("24 runs of another corpus than c4")


def test_a_report_compares_techniques_at_one_length(tmp_path: Path) -> None:
    """Most runs of HASH are ten times as long, and their losses lower for that: it is compared where all were."""
    short = runs({"dense": 3.4, "s-base": 3.0, "rl-r": 3.1, "hash": 3.3}, 0.0)
    short = short[(short["router"] != "hash") | (short["seed"] == 0)]
    longer = [runs({"hash": 2.5}, 0.001 * i, tokens=1e7, tokens_planned=1e7) for i in (1, 2)]
    table = RunTable.from_frame(pd.concat([short, *longer], ignore_index=True), "made")
    alike, said = of_one_length(table)
    assert said == ["24 runs of another length than 1e+06 tokens"]
    assert alike.frame["loss_validation"].min() > 2.9
    assert len(alike.frame) == len(short)
    write_runs(table, tmp_path / "runs.csv")
    (*_, ended) = report_steps(tmp_path / "runs.csv", tmp_path / "out")
    own = ended.summary["sources"]["own"]
    assert any("24 runs of another length" in sentence for sentence in own["excluded"])
    best = [pair for pair in own["pairwise"] if "hash" in (pair["first"], pair["second"])]
    assert best
    for pair in best:
        assert (pair["lead_log10"] > 0) == (pair["second"] == "hash"), pair
    assert of_one_length(alike) == (alike, [])
