"""Ties and random numbers: even, and a function of the token alone."""

from __future__ import annotations

import pytest
import torch
from routing_problems import build, context, inputs
from scipy.stats import chisquare, kstest

from routelaw.routers.gating import choose, tie_order
from routelaw.routers.router import Randomness

TOKENS = 20_000


def bits_of(step: int = 0, layer: int = 1, purpose: int = 0, seed: int = 0, first: int = 0, choices: int = 1):
    return Randomness.of(seed, step, layer).bits(purpose, torch.arange(first, first + TOKENS), choices)


def test_uniform_numbers_are_uniform():
    uniform = Randomness.of(0, 0, 1).uniform(0, torch.arange(TOKENS), 3, torch.float64)
    assert ((uniform > 0) & (uniform < 1)).all()
    for column in uniform.T:
        assert kstest(column.numpy(), "uniform").pvalue > 1e-3
        counts = torch.histc(column, 64, 0, 1)
        assert chisquare(counts.numpy()).pvalue > 1e-3
    assert abs(torch.corrcoef(uniform.T) - torch.eye(3)).max() < 4 / TOKENS**0.5


@pytest.mark.parametrize("other", [{"step": 1}, {"layer": 2}, {"purpose": 1}, {"seed": 1}, {"first": 1}])
def test_numbers_are_independent_of_those_of_any_other_place(other):
    pair = torch.stack([bits_of()[:, 0], bits_of(**other)[:, 0]]).remainder(8)
    counts = torch.bincount(pair[0] * 8 + pair[1], minlength=64)
    assert chisquare(counts.numpy()).pvalue > 1e-3


def test_numbers_belong_to_the_token_not_to_its_place_in_the_batch():
    token = torch.randperm(TOKENS, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Randomness.of(0, 0, 1).bits(0, token, 2), bits_of(choices=2)[token])


def test_step_may_be_a_tensor():
    assert torch.equal(Randomness.of(3, torch.tensor(17), 2).key, Randomness.of(3, 17, 2).key)


@pytest.mark.parametrize(("experts", "k"), [(8, 1), (8, 3), (5, 2)])
def test_equal_scores_spread_evenly(experts, k):
    order_TE = tie_order(context(experts * 40), experts)
    assert torch.equal(order_TE.sort(1).values, torch.arange(experts).expand_as(order_TE).to(order_TE.dtype))
    expert_TK = choose(torch.zeros(experts * 40, experts), k, order_TE)
    assert torch.bincount(expert_TK[:, 0]).tolist() == [40] * experts
    assert chisquare(torch.bincount(expert_TK.flatten()).numpy()).pvalue > 1e-3


def test_two_tied_of_many_are_equally_likely():
    scores_TE = torch.zeros(TOKENS, 8)
    scores_TE[:, 2:4] = 1
    taken = torch.bincount(choose(scores_TE, 1, tie_order(context(TOKENS), 8))[:, 0], minlength=8)
    assert taken[[0, 1, 4, 5, 6, 7]].sum() == 0
    assert chisquare(taken[2:4].numpy()).pvalue > 1e-3


def test_choice_without_ties_is_topk_and_minus_infinity_comes_last():
    scores_TE = torch.randn(500, 6, generator=torch.Generator().manual_seed(0))
    scores_TE[:, 4] = -torch.inf
    order_TE = tie_order(context(500), 6)
    assert torch.equal(choose(scores_TE, 5, order_TE), scores_TE.topk(5).indices)
    nothing = torch.full((500, 6), -torch.inf)
    assert torch.equal(choose(nothing, 6, order_TE).sort(1).values, torch.arange(6).expand(500, 6))


@pytest.mark.parametrize("name", ["switch", "s-base", "base", "rl-r"])
def test_an_indifferent_router_spreads_tokens(name):
    router = build(name, experts=8, **({"variant": "G"} if name == "rl-r" else {}))
    for parameter in router.parameters():
        parameter.data.zero_()
    for training in (True, False):
        routing = router(*inputs(80), context(80, training=training))
        assert torch.bincount(routing.expert_N).tolist() == [10] * 8
