"""What the planner says a layout holds and sends, against real processes: a quick version of benchmarks/layouts.py."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from routelaw.specs.communication import DEAL, EXCHANGE, SMALL, communication, sent_by_kind
from routelaw.specs.footprint import footprint
from routelaw.specs.layout import Layout
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROUTED = RouterSpec("s-base", 8, group_tokens=128)
TWO = [Layout(2, 1, 1), Layout(1, 2, 1), Layout(1, 1, 2)]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The processes find the module where this one does."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("layout_ranks")


def make(router: RouterSpec = ROUTED, size: str = "0.8M") -> RunSpec:
    return RunSpec(ModelSpec(get_size(size), 512, 128), router, TrainSpec(steps=99, batch=16), "random")


def assert_as_planned(case, found) -> None:
    """To the byte what is built; within 15 % what autograd keeps and the most there is at once; within 5 % what is
    sent, of which only the rows that go to experts depend on the tokens."""
    sent = sent_by_kind(
        communication(case.spec, case.layout, case.micro_batches, case.precision, dropped=found[0].dropped)
    )
    sent[EXCHANGE] += sent.pop(DEAL)
    for rank, one in enumerate(found):
        said = footprint(case.spec, case.micro_batches, case.precision, layout=case.layout, rank=rank)
        assert one.held == {name: getattr(said, name) for name in one.held}, (case.layout, rank)
        assert 0.85 < (said.activations + said.logits) / one.kept < 1.15, (case.layout, rank)
        if one.peak is not None and said.peak.name != "evaluation":
            assert 0.85 < said.total / one.peak < 1.15, (case.layout, rank)
    real = {kind: sum(one.sent.get(kind, 0.0) for one in found) / len(found) for kind in sent}
    assert sum(sent.values()) == pytest.approx(sum(real.values()), rel=0.05), case.layout
    for kind in sent.keys() - {EXCHANGE, SMALL}:
        assert sent[kind] == pytest.approx(real[kind], rel=1e-9), (case.layout, kind)
    assert sent[EXCHANGE] == pytest.approx(real[EXCHANGE], rel=0.1), case.layout
    assert max(sent[SMALL], real[SMALL]) < 0.01 * sum(real.values()), "payload must dominate"


def test_two_processes(ranks: ModuleType) -> None:
    cases = [ranks.Case(make(), layout, steps=1, peak=False) for layout in TWO]
    for case, found in zip(cases, ranks.measured(cases), strict=True):
        assert_as_planned(case, found)


@pytest.mark.slow
def test_four_processes(ranks: ModuleType) -> None:
    spread = [Layout(4, 1, 1), Layout(1, 4, 1), Layout(2, 2, 1)]
    cases = [ranks.Case(make(), layout, steps=1, peak=False) for layout in spread]
    dealt = replace(ROUTED, name="switch", k=2, capacity_factor=1.0, shuffle_groups=16)
    stacked = replace(ROUTED, name="rl-r", ffws_per_expert=2)
    uneven = replace(ROUTED, name="hash", experts=6)
    cases += [
        ranks.Case(make(RouterSpec()), Layout(2, 1, 2), steps=1),
        ranks.Case(make(dealt), Layout(2, 2, 1), precision="bfloat16"),
        ranks.Case(make(stacked), Layout(1, 2, 2), precision="bfloat16"),
        ranks.Case(make(uneven), Layout(4, 1, 1), micro_batches=2, steps=1),
    ]
    measured = ranks.measured(cases)
    for case, found in zip(cases, measured, strict=True):
        assert_as_planned(case, found)
    alone = footprint(make()).optimizer
    for found in measured[: len(spread)]:  # without tensor-parallel processes, which have some things in common
        assert max(one.held["optimizer"] for one in found) == pytest.approx(alone / 4, rel=0.01)
