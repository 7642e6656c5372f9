"""Room in experts: never too many, surplus dropped evenly, decisions that do not know how the batch is split."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import ceil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import NAMES, SEQUENCE, model_of, spec_of, tokens, training_context
from torch import Tensor

from routelaw.model.experts import slots, within_capacity
from routelaw.routers.router import Randomness, RouteContext, Routing


def context(tokens: int, groups: int = 1, *, first: int = 0, step: int = 0, training: bool = True) -> RouteContext:
    index_T = torch.arange(tokens)
    valid_T = torch.ones(tokens, dtype=torch.bool)
    return RouteContext(index_T + first, index_T.view(groups, -1), valid_T, Randomness.of(0, step, 1), training)


def chosen(expert_TK: Tensor) -> Routing:
    T, k = expert_TK.shape
    return Routing(torch.arange(T).repeat_interleave(k), expert_TK.flatten(), None)


@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 2, 4]), st.floats(0.1, 3.0), st.integers(0, 99))
def test_never_more_than_the_slots_and_never_fewer_than_there_are(
    groups: int, k: int, shared: int, factor: float, seed: int
) -> None:
    experts, members = 4, 12
    generator = torch.Generator().manual_seed(seed)
    score_TE = torch.rand(groups * members, experts, generator=generator) * torch.tensor([1.0, 1.5, 3.0, 0.5])
    expert_TK = score_TE.topk(k).indices
    kept_TK = within_capacity(chosen(expert_TK), context(groups * members, groups), experts, k, factor, shared)
    kept_TK = kept_TK.view_as(expert_TK)
    room = ceil(Fraction(str(factor)) * members * k / experts) * shared
    for group in range(groups):
        rows = slice(group * members, (group + 1) * members)
        pool_TK = expert_TK[rows] // shared
        asked, served = Counter(pool_TK.flatten().tolist()), Counter(pool_TK[kept_TK[rows]].tolist())
        assert all(served[pool] == min(asked[pool], room) for pool in asked)


def test_slots_round_up_what_was_written_not_its_binary_neighbour() -> None:
    assert slots(1.1, 200, 1, 4) == 55
    assert ceil(1.1 * 200 * 1 / 4) == 56
    assert slots(2, 100, 1, 64) == 4
    assert slots(1.25, 8, 2, 16) == 2


def test_shared_slots_serve_a_crowd_that_single_ones_would_drop() -> None:
    expert_TK = torch.tensor([[0]] * 6 + [[2]] * 2)
    alone, together = (within_capacity(chosen(expert_TK), context(8), 4, 1, 1.5, shared) for shared in (1, 2))
    assert (int(alone.sum()), int(together.sum())) == (3 + 2, 6 + 2)


def test_the_surplus_is_dropped_evenly_at_random() -> None:
    """Each of 16 assignments to one expert with 4 slots is kept a quarter of the time, and pairs are not tied."""
    trials = 4000
    ctx = context(16 * trials, groups=trials)
    kept = within_capacity(chosen(torch.zeros(16 * trials, 1, dtype=torch.int64)), ctx, 4, 1, 1.0).view(trials, 16)
    assert (kept.sum(1) == 4).all()
    share_T = kept.double().mean(0)
    assert ((share_T - 0.25).abs() < 5 * (0.25 * 0.75 / trials) ** 0.5).all()
    together_TT = (kept.double().T @ kept.double() / trials)[~torch.eye(16, dtype=torch.bool)]
    expected = 4 * 3 / (16 * 15)
    assert ((together_TT - expected).abs() < 5 * (expected / trials) ** 0.5).all()


def test_groups_split_over_passes_drop_the_same() -> None:
    expert_TK = (torch.rand(48, 4, generator=torch.Generator().manual_seed(0)) ** 2).topk(2).indices
    whole = within_capacity(chosen(expert_TK), context(48, 4), 4, 2, 0.75)
    parts = [within_capacity(chosen(expert_TK[a : a + 12]), context(12, first=a), 4, 2, 0.75) for a in range(0, 48, 12)]
    assert torch.equal(whole, torch.cat(parts))
    assert not whole.all()


def test_padding_takes_no_slot_and_is_never_served() -> None:
    ctx = context(8)
    ctx.valid_T[:4] = False
    kept_N = within_capacity(chosen(torch.zeros(8, 1, dtype=torch.int64)), ctx, 2, 1, 1.0)
    assert kept_N.tolist() == [False] * 4 + [True] * 4


@pytest.mark.parametrize("factor", [0.0, 0.5])
def test_evaluation_and_dropless_keep_everything(factor: float) -> None:
    expert_TK = torch.zeros(8, 1, dtype=torch.int64)
    assert within_capacity(chosen(expert_TK), context(8, training=factor == 0), 4, 1, factor).all()


@pytest.mark.parametrize("name", NAMES)
def test_drops_change_no_shape(name: str) -> None:
    ids_BS = tokens()[:, :-1]
    shapes = []
    for factor in (0.0, 0.25):
        spec = spec_of(name, 4, k=2, group_tokens=2 * SEQUENCE, capacity_factor=factor)
        output = model_of(spec)(ids_BS, training_context(spec, ids_BS))
        shapes.append([(layer.routing.expert_N.shape, layer.kept_N.shape) for layer in output.layers])
        shapes[-1].append(output.hidden_TD.shape)
        assert bool(output.layers[0].kept_N.all()) == (factor == 0)
        assert output.hidden_TD.isfinite().all()
    assert shapes[0] == shapes[1]
