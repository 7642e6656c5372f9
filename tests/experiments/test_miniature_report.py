"""The whole report on drawn runs: page, claims, figures; and on the paper's released losses."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from drawn_runs import World, drawn_costs, drawn_routing, true_frame, with_noise

from experiments.miniature.analysis import blind, figures_of_results, laws, page, report
from experiments.miniature.analysis.claims import CLAIMS, judge_one
from experiments.miniature.analysis.laws import LawResult, paper_results, winner
from experiments.miniature.analysis.study import Study, device_seconds, plain
from routelaw.figures import seeds
from routelaw.fitting.claims import HOLDS
from routelaw.fitting.intervals import small_sample_probability
from routelaw.fitting.noise import noise_floor
from routelaw.runs.files import write_runs
from routelaw.runs.table import RunTable

QUICK_LAWS = ("separable", "bilinear", "irreducible", "saturated", "compute")


CHOICES = {
    "Learning rates",
    "RL-R learns to route, or does not",
    "S-BASE by the temperature of its rebalancing",
}
"""Figures of studies that no runs are drawn of here: test_choices.py has them."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws that take longest to resample are left to the test of the released losses."""
    chosen = [law for law in laws.competing_laws() if law.name in QUICK_LAWS]
    monkeypatch.setattr(laws, "competing_laws", lambda: chosen)
    monkeypatch.setattr(laws, "DRAWS", 40)
    monkeypatch.setattr(blind, "DRAWS", 40)


@pytest.mark.long
def test_everything_is_written(quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    world = World()
    small = with_noise(true_frame(world), world.noise, 0)
    largest = true_frame(World(studies=False, seeds=False), ("20M",))
    said = blind.predict(Study(plain(RunTable.from_frame(small, "small"))), largest.drop_duplicates("run_id"))
    folder, predictions, out = tmp_path / "data", tmp_path / "predictions", tmp_path / "out"
    folder.mkdir()
    predictions.mkdir()
    (predictions / "predictions.json").write_text(json.dumps(said))
    both = pd.concat([small, with_noise(largest, world.noise, 1)])
    write_runs(RunTable.from_frame(both, "all"), folder / "runs.csv.gz")
    costs = drawn_costs(both, world).assign(runs_at_a_time=4)
    costs.to_csv(folder / "costs.csv", index=False)
    costs[["run_id", "tokens_per_second"]].to_csv(folder / "speeds.csv", index=False)
    drawn_routing(world).to_csv(folder / "routing.csv.gz", index=False)
    time_predicted = [{"run_id": r, "seconds": s / 8} for r, s in zip(costs["run_id"], costs["seconds"], strict=True)]
    (predictions / "predicted_main.json").write_text(json.dumps({"runs": time_predicted}))

    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path), "--out", str(out), "--price", "2"])
    report.main()
    assert "24 holds" in capsys.readouterr().out
    claims = json.loads((out / "claims.json").read_text())
    assert [c["name"] for c in claims] == [claim.name for claim in CLAIMS]
    assert all(c["verdict"] == HOLDS and c["ours"]["low"] <= c["ours"]["high"] for c in claims)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["winner"]["ours"]["law"] == "saturated"  # the law that the runs were drawn from
    assert summary["blind"]["by_law"][0]["law"] == "saturated"
    assert summary["time_predicted"]["ratio"] == pytest.approx(2.0)
    assert summary["noise"]["all"]["low"] < world.noise < summary["noise"]["all"]["high"]
    paid = costs["seconds"].sum() / 4 / 3600 * 2
    assert sum(row["cost"] for row in summary["spending"]) == pytest.approx(paid), "four shared the device"
    assert sum(row["cost_of_a_run"] * row["runs"] for row in summary["spending"]) == pytest.approx(paid)
    assert "Costs are at 2 an hour" in (out / "index.html").read_text()
    assert set(summary["not_drawn"]) == CHOICES
    names = {path.stem for path in (out / "figures").glob("*.png")}
    assert names == {
        "main",
        "law_ranking",
        "blind_test",
        "k_and_r",
        "lengths",
        "seeds",
        "balance",
        "cross",
        "drops",
        "zero_shot",
    }
    page = (out / "index.html").read_text()
    assert all(c["statement"] in page for c in claims)
    assert "RL-R 2M, E = 64: entropy weight" in page
    assert "runs running" not in page
    assert "Largest with balance weight" in page
    assert "is not shown: 29 of 29 runs of 20M do not say when they began" in page


def test_without_a_table_there_is_nothing_to_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path), "--out", str(tmp_path / "out")])
    report.main()
    assert "not there yet" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_table_of_the_main_sweep_alone(quick: None, tmp_path: Path) -> None:
    """No studies, no seeds, no costs, nothing predicted: a page that says so."""
    frame = with_noise(true_frame(World(studies=False, seeds=False)), 3e-4, 0)
    (tmp_path / "data").mkdir()
    write_runs(RunTable.from_frame(frame, "main"), tmp_path / "data" / "runs.csv.gz")
    figures = tmp_path / "out" / "figures"
    figures.mkdir(parents=True)
    for name in ("seeds.png", "main.png", "mine.png"):
        (figures / name).write_text("of other runs")
    summary = report.report(tmp_path, tmp_path / "out")
    assert not (figures / "seeds.png").exists()
    assert (figures / "main.png").read_bytes().startswith(b"\x89PNG")
    assert (figures / "mine.png").exists(), "what is not ours stays"
    assert summary["noise"] == {}
    assert summary["blind"] is None
    assert len(summary["not_drawn"]) == 6 + len(CHOICES)
    page = (tmp_path / "out" / "index.html").read_text()
    assert "not trained" in page
    assert "No router was trained with several balance weights and the rest as usual." in page


def test_an_interval_without_ends_is_still_json(tmp_path: Path) -> None:
    report._write(tmp_path / "claims.json", [{"ours": {"value": 1.5, "ends": (-inf, inf)}}])
    assert json.loads((tmp_path / "claims.json").read_text()) == [{"ours": {"value": 1.5, "ends": [None, None]}}]


def test_laws_on_the_papers_runs_are_as_committed(quick: None, released: RunTable) -> None:
    """What stands in paper_laws.json is what its command gives; a size left out needs no draws."""
    now = {(s.law, s.router): s.leave_size_out for s in laws.compare_laws(Study(plain(released)))}
    then = {(s.law, s.router): s.leave_size_out for s in paper_results() if s.law in QUICK_LAWS}
    assert now.keys() == then.keys()
    assert all(now[key] == pytest.approx(then[key], rel=0.02) for key in then)
    # Computed independently of this code, in 1e-4.
    assert 1e4 * (then["saturated", "s-base"] or 0) == pytest.approx(55.0, abs=0.5)
    assert 1e4 * (then["irreducible", "hash"] or 0) == pytest.approx(27.2, abs=0.5)


def test_the_winner_is_judged_on_all_routers() -> None:
    def one(law: str, router: str, error: float | None) -> LawResult:
        return LawResult(law, router, 4, 20, 0.001, error, None, None, False, None)

    made = [one("a", "hash", 0.002), one("a", "rl-r", 0.002), one("b", "hash", 0.001), one("b", "rl-r", None)]
    assert winner(made) == ("a", ["a"])
    assert winner([]) == (None, [])
    others = [one("c", "hash", 0.001), one("c", "rl-r", 0.001), replace(one("d", "hash", 0.003), behind=True)]
    others += [one("d", "rl-r", 0.0), one("a", "switch", 9.0)]
    assert winner([*made, *others]) == ("c", ["c", "a"]), "d is behind on one, and Switch is not among the paper's"


def test_a_law_that_is_wrong_by_decades_is_behind_however_few_sizes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one size of three: resampled sizes alone would not tell."""
    study = Study(
        plain(RunTable.from_frame(true_frame(World(studies=False, seeds=False), ("0.8M", "2M", "5M")), "drawn"))
    )
    fits = [fit for fit in laws.fits_of(study, "hash")[0] if fit.law.name in ("separable", "bilinear")]
    first = fits[0].points.size == fits[0].points.sizes[0]
    wrong = {"separable": np.full(len(first), 0.001), "bilinear": np.where(first, 35.0, 0.0009)}
    monkeypatch.setattr(laws, "cut_probability", lambda fit: (None, None))
    behind = {s.law: (s.behind, s.low) for s in laws._ranked("hash", fits, wrong, None)}
    assert behind == {"separable": (False, 0.001), "bilinear": (True, 0.0)}


def test_an_interval_that_reaches_zero_is_drawn_and_said() -> None:
    """The least certain of all must not look exact."""
    own = LawResult("separable", "hash", 3, 24, 0.001, 0.0057, 0.0, 0.1076, False, None)
    picture = figures_of_results.draw_ranking([own], [], None)
    (bars,) = picture.axes[0].collections
    (((low, _), (high, _)),) = bars.get_segments()
    assert (low, high) == (figures_of_results.LEAST, figures_of_results.SHOWN)
    material = SimpleNamespace(laws=[own])
    cell = page._cell(own, replace(own, leave_size_out=35.0), "error", material)
    assert (cell.text, cell.under, cell.over) == ("57.0", "0 … over 1000", "over 1000")


def test_some_laws_have_no_size_where_routing_ends() -> None:
    """What 300 draws did not show is not impossible; what no draw could show is."""
    never = {law.name for law in laws.competing_laws() if laws.never_stops_helping(law)}
    assert never == {"separable", "irreducible-power", "irreducible"}
    study = Study(plain(RunTable.from_frame(true_frame(World(studies=False, seeds=False)), "drawn")))
    fits = {fit.law.name: fit for fit in laws.fits_of(study, "hash")[0]}
    assert laws.cut_probability(fits["separable"]) == (0.0, None)
    probability, share = laws.cut_probability(fits["saturated"])
    assert share is not None
    assert probability == pytest.approx(small_sample_probability(share, study.finals["size"].nunique(), laws.DRAWS))
    assert probability, "never none"


@pytest.mark.parametrize(
    ("probability", "share", "words"),
    [
        (0.042, 0.0, "below 4%"),
        (0.958, 1.0, "above 96%"),
        (0.3, 0.25, "30%"),
        (0.0, None, "none by its form"),
        (None, None, ""),
    ],
)
def test_a_probability_that_no_draw_shows_is_a_bound(
    probability: float | None, share: float | None, words: str
) -> None:
    own = LawResult("saturated", "hash", 6, 32, 0.001, 0.002, None, None, False, probability, share)
    assert page._cut(own) == words


def test_the_device_is_divided_among_the_runs_under_way() -> None:
    began = ["2026-01-01T00:00:00+00:00", "2026-01-01T00:00:10+00:00", "2026-01-01T01:00:00+00:00", None]
    costs = pd.DataFrame({"began": began, "seconds": [30.0, 20.0, 7.0, 12.0], "runs_at_a_time": [2, 2, 2, 4]})
    shares = device_seconds(costs)
    assert shares.tolist() == pytest.approx([10 + 20 / 2, 20 / 2, 7, 12 / 4])
    assert shares[:3].sum() == pytest.approx(37), "the device was in use that long"


def test_a_law_is_of_the_sizes_that_were_swept() -> None:
    """A size that only another study has is left out of what is said of sizes; a table without studies is whole."""
    frame = true_frame(World(studies=False, seeds=False))
    named = frame.assign(studies=frame["size"].map(lambda s: "main" if s != "788K" else "routing_frequency"))
    some, every = (Study(plain(RunTable.from_frame(f, "drawn"))) for f in (named, frame))
    assert set(every.losses("hash").index.get_level_values("size")) == set(frame["size"])
    assert set(some.losses("hash").index.get_level_values("size")) == set(frame["size"]) - {"788K"}
    assert all("788K" not in set(fit.points.size) for fit in laws.fits_of(some, "hash")[0])


def test_seeds_of_several_sizes_have_a_panel_and_a_noise_each() -> None:
    """The seeds that are drawn, and the same once more as another size, where they are twice as far apart."""
    frame = with_noise(true_frame(World(studies=False)), 1e-3, 0)
    seeded = frame[frame.groupby(["router", "size", "experts"])["run_id"].transform("nunique") > 1]
    (size,) = set(seeded["size"])
    mean = seeded.groupby(["router", "experts", "tokens"])["loss_validation"].transform("mean")
    further = mean + 2 * (seeded["loss_validation"] - mean)
    more = 9e6 / seeded["active_params"]
    counts = {name: seeded[name] * more for name in ("active_params", "total_params", "flops_per_token")}
    other = seeded.assign(size="9M", **counts, run_id=seeded["run_id"] + "-9M", loss_validation=further)
    study = Study(plain(RunTable.from_frame(pd.concat([frame, other]), "both")))
    panels = seeds.draw(study.table).axes
    assert [panel.get_title().partition(",")[0] for panel in panels[:2]] == [size, "9M"]
    panels = panels[2:]
    models = [[line for line in panel.lines if line.get_marker() != "None"] for panel in panels]
    ends = [{line.get_label(): line.get_ydata()[-1] for line in lines} for lines in models]
    assert len(ends[0]) == 7
    assert ends[1] == pytest.approx({model: 2 * apart for model, apart in ends[0].items()})
    noises = [noise_floor(study.where("size", name)) for name in (size, "9M")]
    assert noises[1].sd == pytest.approx(2 * noises[0].sd, rel=0.02)
    assert study.seeded_sizes == [size, "9M"]
    stands = {name: study.seeds_for(name) for name in study.active_params}
    assert stands == {name: "9M" if active >= 9e6 else size for name, active in study.active_params.items()}
    assert {name for name, of in stands.items() if name != of}, "some have no seeds of their own"
    assert any(active < study.active_params[size] for active in study.active_params.values())
    for name, of in stands.items():
        assert study.noise(name).sd == pytest.approx(noises[[size, "9M"].index(of)].sd)
    both = study.noise(size, "9M", size)
    assert both.sd**2 == pytest.approx((noises[0].sd ** 2 + noises[1].sd ** 2) / 2)
    assert noises[0].sd < study.noise().sd < noises[1].sd
    assert noises[0].sd < laws.floor_of(study).sd < noises[1].sd
    assert study.noise().freedom == 28


def test_sizes_and_seeds_that_have_not_ended_have_no_noise_of_their_own() -> None:
    """The largest size is still being trained, and the seeds of the smallest have only been begun."""
    frame = with_noise(true_frame(World(studies=False)), 1e-3, 0)
    whole = Study(plain(RunTable.from_frame(frame, "whole")))
    smallest, *_, largest = whole.active_params
    begun = frame[(frame["size"] == smallest) & (frame["status"] == "running")]
    begun = begun.assign(seed=1, run_id=begun["run_id"] + "-1")
    status = frame["status"].mask(frame["size"] == largest, "running")
    study = Study(plain(RunTable.from_frame(pd.concat([frame.assign(status=status), begun]), "partly")))
    assert study.seeded_sizes == whole.seeded_sizes
    assert smallest not in study.seeded_sizes
    assert largest not in study.active_params
    assert laws.floor_of(study).sd == pytest.approx(whole.noise(*whole.seeded_sizes).sd)
    assert judge_one("routing helps", study).ours is not None
