"""One outlier is found and named, with what would be said without it; and none is where there is none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from drawn_runs import World, drawn_routing, true_frame, with_noise

from experiments.miniature.analysis import page
from experiments.miniature.analysis.claims import decided_by_size, judge_all, judge_one, largest_outlier
from experiments.miniature.analysis.study import Study, plain, spending
from routelaw.fitting.claims import HOLDS, OPEN
from routelaw.fitting.matched_runs import ALL_BUT_SEED
from routelaw.fitting.noise import mean_noise, noise_floor
from routelaw.runs.table import RunTable
from routelaw.studies import claims_on_losses

WORLD = World(studies=False)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients are judged here, too, and resampling them takes the longest."""
    monkeypatch.setattr(claims_on_losses, "DRAWS", 40)


def study_of(frame: pd.DataFrame, **known: pd.DataFrame) -> Study:
    return Study(plain(RunTable.from_frame(frame, "drawn")), **known)


def frame_with_outlier() -> tuple[pd.DataFrame, str]:
    """HASH with 64 experts and seed 1 loses a tenth of a nat and more."""
    frame = with_noise(true_frame(WORLD), WORLD.noise, 3)
    bad = (frame["router"] == "hash") & (frame["experts"] == 64) & (frame["seed"] == 1)
    frame.loc[bad, "loss_validation"] *= 1.05
    return frame, frame[bad]["run_id"].iloc[0]


@pytest.mark.long
def test_the_outlier_is_found_and_what_it_decides() -> None:
    frame, run_id = frame_with_outlier()
    study = study_of(frame)
    found = largest_outlier(study, judge_all(study))
    assert found is not None
    assert (found.run_id, found.router, found.experts, found.seed) == (run_id, "hash", 64, 1)
    without = frame[frame["run_id"] != run_id]
    floor, whole = mean_noise([noise_floor(RunTable.from_frame(without, "less"))]), study.noise(found.size)
    assert floor is not None
    assert whole is not None
    assert found.without == floor
    gone = 1 - floor.sd**2 * floor.freedom / (whole.sd**2 * whole.freedom)
    assert found.share == pytest.approx(gone)
    assert gone > 0.9
    others = {claim.claim.name: claim.verdict for claim in judge_all(study_of(without))}
    now = {claim.claim.name: claim.verdict for claim in judge_all(study)}
    differ = {name: verdict for name, verdict in others.items() if verdict != now[name]}
    assert {claim.claim.name: verdict for claim, verdict in found.changed} == differ
    assert differ, "seeds that are far apart leave something open"
    assert page._decisive(found) is found
    (block,) = page._outlier(found)
    words = str(block)
    assert all(f"{c.claim.statement}: {verdict} instead of {c.verdict}" in words for c, verdict in found.changed)
    assert f"HASH {found.size} with E = 64 and seed 1" in words


def test_seeds_that_agree_have_no_run_to_name() -> None:
    study = study_of(with_noise(true_frame(WORLD), WORLD.noise, 3))
    found = largest_outlier(study, judge_all(study))
    assert found is not None
    assert found.share < 0.5
    assert page._decisive(found) is None
    assert page._outlier(None) == []
    assert not found.changed
    assert study.seeded_sizes == [study.finals[study.finals["seed"] == 1]["size"].iloc[0]]
    alone = study_of(true_frame(World(studies=False, seeds=False)))
    assert largest_outlier(alone, judge_all(alone)) is None
    assert alone.seeded_sizes == []


@pytest.mark.long
def test_a_run_is_an_outlier_among_the_seeds_of_its_size() -> None:
    """Seeds of a smaller size that are all far apart, twenty times, do not hide the one."""
    frame, run_id = frame_with_outlier()
    seeds = frame[frame.groupby(ALL_BUT_SEED, dropna=False)["run_id"].transform("nunique") > 1]
    quiet = with_noise(true_frame(WORLD), WORLD.noise, 3).loc[seeds.index, "loss_validation"]
    mean = quiet.groupby([seeds["router"], seeds["experts"], seeds["tokens"]]).transform("mean")
    small = next(iter(study_of(frame).active_params))
    active = frame[frame["size"] == small]["active_params"].iloc[0]
    loud = seeds.assign(size=small, active_params=active, run_id=seeds["run_id"] + "-small",
                        loss_validation=mean * (quiet / mean) ** 100)  # fmt: skip
    study = study_of(pd.concat([frame, loud]))
    noises = [study.noise(size) for size in study.seeded_sizes]
    assert noises[0].sd > 2 * noises[1].sd, "the loud ones have most of all squares"
    found = largest_outlier(study, judge_all(study))
    assert found is not None
    assert found.run_id == run_id
    assert found.share > 0.9
    assert found.without.sd < 0.3 * noises[1].sd


@pytest.mark.long
def test_a_size_that_decides_is_named() -> None:
    """RL-R of 5M is better than S-BASE there, by so much that nothing can be said of all sizes."""
    frame = with_noise(true_frame(WORLD), WORLD.noise, 3)
    assert judge_one("s-base >= rl-r", study_of(frame)).verdict == HOLDS
    odd = (frame["router"] == "rl-r") & (frame["size"] == "5M")
    study = study_of(frame.assign(loss_validation=frame["loss_validation"] * np.where(odd, 0.9, 1.0)))
    claims = judge_all(study)
    found = decided_by_size(study, claims)
    said = {claim.claim.name: verdict for claim, verdict in found["5M"]}
    assert judge_one("s-base >= rl-r", study).verdict == OPEN
    assert said["s-base >= rl-r"] == HOLDS
    without = study_of(study.table.frame[study.table.frame["size"] != "5M"])
    assert all(judge_one(name, without).verdict == verdict for name, verdict in said.items())
    (_, listed) = page._decided_by_size(found)
    assert any("Without 5M: " in item and "S-BASE has the lower loss than RL-R: holds instead of cannot tell" in item
               for item in listed.items)  # fmt: skip
    assert page._decided_by_size({}) == []


def test_of_two_seeds_none_is_an_outlier() -> None:
    frame = with_noise(true_frame(WORLD), WORLD.noise, 3)
    study = study_of(frame[frame["seed"] < 2])
    assert largest_outlier(study, judge_all(study)) is None


def test_drops_stand_beside_a_comparison() -> None:
    frame, routing = true_frame(WORLD), drawn_routing(WORLD)
    routers = frame.drop_duplicates("run_id").set_index("run_id")["router"]
    experts = frame.drop_duplicates("run_id").set_index("run_id")["experts"]
    share = routing["run_id"].map(routers).map({"s-base": 0.25, "hash": 0.125}) * routing["run_id"].map(experts) / 128
    told = judge_one("s-base >= hash", study_of(frame, routing=routing.assign(dropped=share))).why
    assert "With E = 128 S-BASE drops 25.0% and HASH drops 12.5% of its assignments." in told
    assert "dropped" not in judge_one("s-base >= hash", study_of(frame)).why


def test_a_run_costs_what_is_known_of_its_fellows() -> None:
    """One of two shared the device with nobody knows how many: it is no run that took nothing."""
    frame = true_frame(World(studies=False, seeds=False), ("0.8M", "2M"))
    dense = frame[frame["router"] == "dense"].drop_duplicates("run_id", keep="last")
    runs = pd.concat([dense.head(1), dense.head(1).assign(run_id="other", seed=1)])
    costs = pd.DataFrame(
        {"run_id": runs["run_id"], "seconds": 40.0, "tokens_per_second": 1.0, "runs_at_a_time": [4, np.nan]}
    )
    (row,) = spending(study_of(runs, costs=costs), 3600.0).to_dict("records")
    assert (row["runs"], row["device_seconds"], row["cost_of_a_run"]) == (2, 10.0, pytest.approx(10.0))
    assert "known" not in row
