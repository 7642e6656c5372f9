"""Memory of one process among several, by hand and by what all of them must add up to. Real ranks are measured in
tests/training/test_layout_costs.py."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelaw.costs.memory import footprint
from routelaw.costs.parameters import model_parameters, shard, sharded
from routelaw.distributed.groups import Group, Parallel
from routelaw.model.transformer import Transformer
from routelaw.specs.counting import Architecture
from routelaw.specs.layout import Layout
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec

ROUTED = RouterSpec("switch", 8, group_tokens=16)
ROUTERS = {
    "dense": RouterSpec(),
    "switch": ROUTED,
    "hash": replace(ROUTED, name="hash"),
    "rl-r": replace(ROUTED, name="rl-r"),
    "stacked": replace(ROUTED, ffws_per_expert=3),
    "shared": replace(ROUTED, name="s-base", shared_decisions=True, routing_frequency=1.0),
}


def make(router: RouterSpec = ROUTED, batch: int = 48, **model: Any) -> RunSpec:
    shape = Architecture(24, 3, 4, 8)
    return RunSpec(ModelSpec(shape, 50, 16, **model), router, TrainSpec(steps=9, batch=batch), "a corpus")


@pytest.mark.parametrize("tensor", [1, 2, 4])
@pytest.mark.parametrize("expert", [1, 2, 8])
@pytest.mark.parametrize("name", ROUTERS)
def test_shapes_are_those_of_the_model(name: str, expert: int, tensor: int) -> None:
    """Built as one process of the layout builds it, with nobody to talk to."""
    if name == "dense":
        expert = 1
    teams = [Group(None, 0, size) for size in (expert, 1, expert, tensor)]
    model = Transformer(make(ROUTERS[name]), Parallel(*teams))
    layout = Layout(1, expert, tensor)
    said = [p.local(layout) for part in model_parameters(make(ROUTERS[name])) for p in part]
    assert Counter(said) == Counter(tuple(p.shape) for p in model.parameters())


def test_a_shard_by_hand() -> None:
    """Five rows over three: pieces of two, so the last has one and carries one of padding."""
    three = [shard((5, 4), 3, place) for place in range(3)]
    assert [s.own for s in three] == [8, 8, 4]
    assert {(s.whole, s.padded, s.gathered) for s in three} == {(20, 8, 24)}


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    st.integers(1, 9),
)
def test_shards_make_up_the_whole(shape: tuple[int, ...], processes: int) -> None:
    shards = [shard(shape, processes, place) for place in range(processes)]
    assert sum(s.own for s in shards) == prod(shape) == shards[0].whole
    assert all(s.own <= s.padded == shards[0].padded for s in shards)
    assert shards[0].own == shards[0].padded
    assert shards[0].gathered >= prod(shape)


SPREAD = [Layout(2), Layout(3), Layout(1, 8), Layout(3, 4), Layout(4, 2, 2), Layout(2, 1, 4)]


@pytest.mark.parametrize(
    ("name", "layout"), [(n, layout) for n in ROUTERS for layout in SPREAD if n != "dense" or layout.expert == 1]
)
def test_all_processes_hold_every_moment_once(name: str, layout: Layout) -> None:
    """But for what tensor-parallel ones have in common."""
    spec = make(ROUTERS[name])
    parts = [p for part in model_parameters(spec) for p in part]
    found = [footprint(spec, layout=layout, rank=rank) for rank in range(layout.world)]
    moments = sum(f.optimizer - 4 * len(parts) for f in found)
    once = sum(prod(p.shape) for p in parts if p.split is not None)
    common = sum(prod(p.shape) for p in parts if p.split is None)
    assert moments == 2 * 4 * (once + layout.tensor * common)


def test_more_data_parallel_processes_less_of_the_optimiser() -> None:
    found = [footprint(make(), layout=Layout(data)) for data in (1, 2, 3, 4, 8)]
    assert all(a.optimizer > b.optimizer for a, b in pairwise(found))
    assert found[1].sharded
    assert not found[0].sharded


def test_experts_are_shared_out_and_all_else_is_sharded() -> None:
    """Two processes that have half of the experts each: parameters whole, by hand."""
    spec = make(routing := replace(ROUTED, routing_frequency=1.0))
    d, experts = 24, routing.experts
    block = 5 * d * 32 + 4 * d + experts * d + experts
    rest = 50 * d + 2 * d + 3 * block
    own = 3 * (experts // 2) * 8 * d * d
    found = footprint(spec, layout=Layout(1, 2))
    # embeddings 50/2, widths 24/2 and heads 32/2 are even; so are the 8 rows of a router
    assert found.parameters == 4 * (rest + own)
    assert found.masters == found.gradients == 4 * (rest // 2 + own)
    tensors = 3 + 3 * (5 + 4 + 2 + 2)
    assert found.optimizer == 2 * 4 * (rest // 2 + own) + 4 * tensors
    assert found.checkpoint == found.masters + found.optimizer


def test_masters_are_float32_where_parameters_are_not() -> None:
    wide, narrow = (footprint(make(), 1, precision, layout=Layout(2)) for precision in ("float32", "bfloat16"))
    assert (narrow.masters, narrow.optimizer) == (wide.masters, wide.optimizer)
    assert narrow.parameters * 2 == wide.parameters
    alone = footprint(make(), 1, "bfloat16", layout=Layout(tensor=2))
    assert alone.masters == 2 * alone.parameters


def test_tokens_heads_and_hidden_units_are_shared() -> None:
    """A stream of T·d numbers is whole on every tensor-parallel process; its attention and hidden layer are not."""
    whole = footprint(make(), 1)
    embedding = 4 * make().model.vocabulary * make().model.architecture.d_model
    for layout in (Layout(2), Layout(1, 2)):
        half = footprint(make(), 1, layout=layout)
        assert (half.logits - embedding) * 2 == whole.logits - embedding
        assert 0.49 < half.activations / whole.activations < 0.52
    split = footprint(make(), 1, layout=Layout(tensor=2))
    assert split.logits == whole.logits
    assert 0.5 < split.activations / whole.activations < 0.8


def test_all_to_all_buffers_are_shown_by_name() -> None:
    stream = 48 // 4 * 16 * 24 * 4
    assert footprint(make(), layout=Layout(4)).exchange == 0
    assert footprint(make(), layout=Layout(1, 4)).exchange == 2 * stream
    assert footprint(make(replace(ROUTED, k=2)), layout=Layout(2, 2)).exchange == 2 * 2 * stream
    dealt = replace(ROUTED, shuffle_groups=24)  # blocks of 24 sequences, and a process has 12
    assert footprint(make(dealt), layout=Layout(4)).exchange == 2 * stream
    assert footprint(make(dealt)).exchange == 0


def test_the_peak_is_a_moment_with_its_parts() -> None:
    for layout in (Layout(), Layout(2), Layout(1, 4), Layout(2, 2, 2)):
        for pieces in (1, 2):
            found = footprint(make(), pieces, layout=layout)
            assert found.total == found.peak.total + found.masters + found.optimizer
            assert all(part >= 0 for part in found.peak.parts.values())


def test_a_group_of_one_process_is_not_padded() -> None:
    model = sharded(model_parameters(make()), Layout(1, 8))
    assert all(s.gathered == s.whole == s.own for block in model.experts for s in block)
