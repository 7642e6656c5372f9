"""Bytes that a process sends, by hand. Calls of real ranks are counted in tests/training/test_layout_costs.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from routelaw.costs.communication import KINDS, communication, sent_by_kind
from routelaw.specs.counting import Architecture
from routelaw.specs.layout import Layout
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec

ROUTED = RouterSpec("switch", 4, group_tokens=16)
D, INNER, V, S, BATCH, BLOCKS = 16, 32, 64, 16, 8, 2
ATTENTION, NORMS = 5 * D * INNER, 4 * D
REST = V * D + 2 * D + BLOCKS * (ATTENTION + NORMS) + (4 * D + 4)
"""All but experts and dense FFW: two and four processes divide every tensor evenly."""
FFW = 8 * D * D


def make(router: RouterSpec = ROUTED) -> RunSpec:
    model = ModelSpec(Architecture(D, BLOCKS, 4, 8), V, S)
    return RunSpec(model, router, TrainSpec(steps=9, batch=BATCH), "a corpus")


def sent(layout: Layout, router: RouterSpec = ROUTED, micro_batches: int = 1, **more) -> dict[str, float]:
    return sent_by_kind(communication(make(router), layout, micro_batches, **more))


def test_one_process_sends_nothing() -> None:
    assert communication(make(), Layout()) == ()
    assert sent(Layout()) == dict.fromkeys(KINDS, 0.0)


def test_data_parallel_processes_gather_and_reduce() -> None:
    found = sent(Layout(2))
    assert found["gather"] == found["reduce"] == 4 * (REST + FFW + 4 * FFW) / 2
    assert found["exchange"] == found["shuffle"] == found["tensor"] == 0
    assert 0 < found["small"] < 1000


def test_padding_travels() -> None:
    """Six biases over four processes are two each, eight in all; every other tensor comes out even somewhere."""
    six = replace(ROUTED, experts=6)
    rest = V * D + 2 * D + BLOCKS * (ATTENTION + NORMS) + 6 * D + 8
    assert sent(Layout(4), six)["gather"] == 4 * (rest + FFW + 6 * FFW) * 3 / 4


def test_narrow_parameters_travel_narrow_and_gradients_wide() -> None:
    wide, narrow = sent(Layout(2)), sent(Layout(2), precision="bfloat16")
    assert narrow["gather"] * 2 == wide["gather"]
    assert narrow["reduce"] == wide["reduce"]


def test_every_micro_batch_gathers_and_reduces_again() -> None:
    one, four = sent(Layout(2)), sent(Layout(2), micro_batches=4)
    assert four["gather"] == 4 * one["gather"]
    assert four["reduce"] == 4 * one["reduce"]


def test_expert_parallel_processes_exchange_rows() -> None:
    """There and back, forwards and backwards, three quarters of 2 sequences; of experts nothing is gathered."""
    found = sent(Layout(1, 4))
    rows = BATCH // 4 * S
    assert found["exchange"] == 4 * rows * D * 4 * 3 / 4
    assert found["gather"] == pytest.approx(4 * (REST + FFW) * 3 / 4, rel=1e-12)
    assert sent(Layout(1, 4), replace(ROUTED, k=2))["exchange"] == 2 * found["exchange"]
    assert sent(Layout(1, 4), dropped=0.25)["exchange"] == 0.75 * found["exchange"]
    assert sent(Layout(1, 4), replace(ROUTED, ffws_per_expert=2))["exchange"] == 1.5 * found["exchange"]
    assert sent(Layout(1, 4), micro_batches=2)["exchange"] == found["exchange"]


def test_experts_on_both_axes() -> None:
    found = sent(Layout(2, 2))
    assert found["gather"] == pytest.approx(4 * ((REST + FFW) * 3 / 4 + 2 * FFW / 2), rel=1e-12)


def test_tensor_parallel_processes_sum_up() -> None:
    """Attention and FFW of each block, forwards and backwards: all 128 tokens, twice (t − 1)/t of them."""
    for tensor in (2, 4):
        found = sent(Layout(tensor=tensor))
        assert found["tensor"] == pytest.approx(4 * BLOCKS * BATCH * S * D * 4 * 2 * (tensor - 1) / tensor)
        assert found["gather"] == found["reduce"] == found["exchange"] == 0
    twice = sent(Layout(tensor=2), replace(ROUTED, k=2))["tensor"]
    assert twice == pytest.approx(sent(Layout(tensor=2))["tensor"] * 5 / 4)


def test_tensor_parallel_processes_share_what_is_gathered() -> None:
    split = sent(Layout(2, 1, 2))
    common = V * D + 2 * D + BLOCKS * NORMS + 4 * D + 4
    assert split["gather"] == 4 * (common + (BLOCKS * ATTENTION + FFW + 4 * FFW) / 2) / 2


def test_a_shuffle_over_processes_deals_rows() -> None:
    """Blocks of 4 sequences over processes of 2: half of the rows leave, with a token's number and a loss each."""
    shuffled = replace(ROUTED, shuffle_groups=4)
    tokens = BATCH // 4 * S
    assert sent(Layout(4), shuffled)["shuffle"] == (4 * tokens * D * 4 + tokens * 8 + tokens * 4) / 2
    assert sent(Layout(2), shuffled)["shuffle"] == 0
    whole = replace(ROUTED, shuffle_groups=8)
    assert sent(Layout(4), whole)["shuffle"] == (4 * tokens * D * 4 + tokens * 8 + tokens * 4) * 3 / 4


def test_flows_say_who_talks() -> None:
    flows = communication(make(), Layout(2, 2, 2))
    assert {(flow.group, flow.members) for flow in flows} == {("batch", 4), ("data", 2), ("expert", 2), ("tensor", 2)}
    assert all(flow.sent == pytest.approx(float(flow.times * flow.share * flow.size)) for flow in flows)
    assert {flow.ring for flow in flows if flow.group == "expert"} == {False}
