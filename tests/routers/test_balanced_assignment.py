"""Exact assignment against SciPy."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from routing_problems import build, context, inputs
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import identity, kron, vstack

from routelaw.errors import InputError
from routelaw.routers.balanced_assignment import SLACK, balanced_assignment


def tie_order(tokens, experts):
    return torch.from_numpy((np.arange(experts) - np.arange(tokens)[:, None]) % experts)


def scores_of(kind, tokens, experts, rng):
    if kind == "normal":
        return rng.normal(size=(tokens, experts)) + 2 * rng.normal(size=experts)
    if kind == "integers":  # many ties
        return rng.integers(0, 3, size=(tokens, experts)).astype(float)
    if kind == "types":  # tokens that are equal to each other
        return rng.normal(size=(3, experts))[rng.integers(0, 3, tokens)]
    return 1e4 * rng.choice([-1.0, 1.0], size=(tokens, experts))


def best_by_linear_programming(scores, k):
    tokens, experts = scores.shape
    per_token = kron(identity(tokens), np.ones((1, experts)))
    per_expert = kron(np.ones((1, tokens)), identity(experts))
    wanted = np.r_[np.full(tokens, k), np.full(experts, tokens * k / experts)]
    return -linprog(-scores.ravel(), A_eq=vstack([per_token, per_expert]), b_eq=wanted, bounds=(0, 1)).fun


@pytest.mark.parametrize("kind", ["normal", "integers", "types", "huge"])
@pytest.mark.parametrize("seed", range(12))
def test_total_equals_scipy(kind, seed):
    rng = np.random.default_rng(seed)
    experts = int(rng.integers(2, 7))
    tokens = experts * int(rng.integers(1, 9))
    scores = scores_of(kind, tokens, experts, rng)
    within = tokens * experts * SLACK * (1 + np.abs(scores).max())
    found = balanced_assignment(scores, 1, tie_order(tokens, experts)).holds_TE
    assert (found.sum(0) == tokens // experts).all()
    assert (found.sum(1) == 1).all()
    slots = np.repeat(scores, tokens // experts, axis=1)
    assert scores[found].sum() >= slots[linear_sum_assignment(slots, maximize=True)].sum() - within
    k = int(rng.integers(2, experts + 1))
    found = balanced_assignment(scores, k, tie_order(tokens, experts)).holds_TE
    assert (found.sum(0) == tokens * k // experts).all()
    assert (found.sum(1) == k).all()
    assert scores[found].sum() == pytest.approx(best_by_linear_programming(scores, k), rel=1e-9, abs=1e-6)


def test_prices_certify_the_optimum():
    """No token would rather have an expert it lacks than one it has, at the final prices."""
    scores = np.random.default_rng(0).normal(size=(4096, 4)) @ np.random.default_rng(1).normal(size=(4, 16))
    for k in (1, 2):
        found = balanced_assignment(scores, k, tie_order(4096, 16))
        values = scores + found.prices_E
        held, lacked = np.where(found.holds_TE, values, np.inf).min(1), np.where(found.holds_TE, -np.inf, values).max(1)
        assert (held - lacked).min() > -1e-10


def test_a_large_group_takes_seconds():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(32_768, 8)) @ rng.normal(size=(8, 64)) + rng.normal(size=64)
    began = time.process_time()
    found = balanced_assignment(scores, 1, tie_order(32_768, 64))
    assert (found.holds_TE.sum(0) == 512).all()
    assert time.process_time() - began < 30


@pytest.mark.parametrize("k", [1, 2])
def test_router_gives_every_expert_its_share_of_every_group(k):
    router, (x, ids) = build("base", experts=8, k=k), inputs(256)
    members = torch.randperm(256, generator=torch.Generator().manual_seed(0)).view(4, 64)
    routing = router(x, ids, context(256, members_GM=members))
    expert_TK = routing.expert_N.view(256, k)
    for group in members:
        assert torch.bincount(expert_TK[group].flatten()).tolist() == [64 * k // 8] * 8
    logits = x @ router.weight.T + router.bias
    torch.testing.assert_close(routing.weight_N.view(256, k), logits.softmax(1).gather(1, expert_TK))
    sigmoid = build("base", experts=8, k=k, weight="sigmoid")(x, ids, context(256, members_GM=members))
    torch.testing.assert_close(sigmoid.weight_N.view(256, k), logits.sigmoid().gather(1, expert_TK))


def test_experts_that_do_not_divide_are_refused():
    with pytest.raises(InputError, match="5 experts do not divide a routing group of 64 tokens"):
        build("base", experts=5)(*inputs(64), context(64))
