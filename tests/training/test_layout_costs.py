"""What the planner says a layout holds and sends, against real processes: verification/layout_costs.py, quick."""

from __future__ import annotations

import pytest

from routelaw.costs.communication import EXCHANGE, SHUFFLE, SMALL, communication, sent_by_kind
from routelaw.costs.memory import footprint
from routelaw.specs.layout import Layout
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from verification.layout_ranks import Case, measured

ROUTED = RouterSpec("s-base", 8, group_tokens=128)
TWO = [Layout(2, 1, 1), Layout(1, 2, 1), Layout(1, 1, 2)]


def make(router: RouterSpec = ROUTED, size: str = "0.8M") -> RunSpec:
    return RunSpec(ModelSpec(get_size(size), 512, 128), router, TrainSpec(steps=99, batch=16), "random")


def assert_as_planned(case, found) -> None:
    """To the byte what is built; within 15 % what autograd keeps and the most there is at once; within 5 % what is
    sent, of which only the rows that go to experts depend on the tokens."""
    sent = sent_by_kind(
        communication(case.spec, case.layout, case.micro_batches, case.precision, dropped=found[0].dropped)
    )
    sent[EXCHANGE] += sent.pop(SHUFFLE)
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


@pytest.mark.long
def test_two_processes() -> None:
    cases = [Case(make(), layout, steps=1, peak=False) for layout in TWO]
    for case, found in zip(cases, measured(cases), strict=True):
        assert_as_planned(case, found)
