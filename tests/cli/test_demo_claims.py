"""What the demo says of the paper's losses is what they say, where they are at hand."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from routelaw.cli import demo
from routelaw.runs.files import read_runs

RELEASE = Path(__file__).parents[3] / "shared" / "data" / "routing_curves.csv.gz"


@pytest.mark.skipif(not RELEASE.is_file(), reason="the paper's released losses are not at hand")
def test_how_often_each_technique_is_best_on_the_paper_s_losses() -> None:
    frame = read_runs(RELEASE).frame
    frame = frame[(frame["k"] == 1) & (frame["routing_frequency"] == 0.5) & (frame["experts"] > 1)]
    last = frame.dropna(subset=["loss_validation"]).sort_values("step").groupby("run_id").tail(1)
    routers = ["s-base", "rl-r", "hash"]
    last = last[last["router"].isin(routers) & (last["variant"] == "")]
    shared = last.pivot_table(index=["size", "experts"], columns="router", values="loss_validation")[routers].dropna()
    best = shared.idxmin(axis=1).value_counts()
    assert (len(shared), best["s-base"], best["rl-r"], best.get("hash", 0)) == (51, 42, 9, 0)
    words = " ".join(inspect.getsource(demo._scale).split())
    assert "42 of the 51" in words
