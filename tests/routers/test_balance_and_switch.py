"""The balance loss against a loop; the weights of switch."""

from __future__ import annotations

import pytest
import torch
from routing_problems import build, context, inputs

from routelaw.routers.gating import balance_loss


def naive_balance(probability_TE, preferred_T, members, valid):
    total, groups = 0.0, 0
    for group in members.tolist():
        rows = [t for t in group if valid[t]]
        if not rows:
            continue
        groups += 1
        experts = probability_TE.shape[1]
        for e in range(experts):
            mean = sum(float(probability_TE[t, e]) for t in rows) / len(rows)
            asked = sum(int(preferred_T[t]) == e for t in rows)
            total += experts * mean * asked / len(rows)
    return total, groups


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("padding", [0, 7, 16])
def test_equals_a_naive_loop(groups, padding):
    generator = torch.Generator().manual_seed(groups + padding)
    probability = torch.randn(48, 5, generator=generator, dtype=torch.float64).softmax(1)
    members = torch.randperm(48, generator=generator).view(groups, -1)
    valid = torch.ones(48, dtype=torch.bool)
    valid[members.flatten()[:padding]] = False
    ctx = context(48, members_GM=members, valid_T=valid)
    value, count = balance_loss(probability, probability.argmax(1), ctx)
    expected, groups_counted = naive_balance(probability, probability.argmax(1), members, valid)
    assert value.item() == pytest.approx(expected, abs=1e-12)
    assert count.item() == groups_counted


def test_is_one_when_uniform_and_E_when_collapsed():
    ctx = context(48, 2)
    uniform, alone = torch.full((48, 4), 0.25), torch.eye(4)[torch.zeros(48, dtype=torch.int64)]
    assert balance_loss(uniform, torch.arange(48) % 4, ctx)[0].item() == pytest.approx(2)
    assert balance_loss(alone, torch.zeros(48, dtype=torch.int64), ctx)[0].item() == pytest.approx(8)


def test_a_step_down_its_gradient_balances():
    router, (x, ids) = build("switch", experts=4), inputs(256)
    router.bias.data = torch.tensor([4.0, 0, 0, 0], dtype=torch.float64)
    optimizer = torch.optim.Adam(router.parameters(), lr=0.1)
    loads = []
    for _ in range(100):
        routing = router(x, ids, context(256))
        loads.append(torch.bincount(routing.expert_N, minlength=4).max().item())
        value, count = router.losses(routing, None, None)["balance"]
        optimizer.zero_grad()
        (value / count).backward()
        optimizer.step()
    assert loads[0] > 200
    assert loads[-1] < 110


@pytest.mark.parametrize("k", [1, 2, 4])
def test_switch_weights_are_the_full_softmax(k):
    router, (x, ids) = build("switch", experts=4, k=k), inputs(64)
    routing = router(x, ids, context(64))
    softmax = (x @ router.weight.T + router.bias).softmax(1)
    top = softmax.topk(k)
    assert torch.equal(routing.expert_N.view(64, k), top.indices)
    torch.testing.assert_close(routing.weight_N.view(64, k), top.values)
    torch.testing.assert_close(routing.metrics["entropy"], -(softmax * softmax.log()).sum(1).mean().detach())
    assert router.loss_weights == {"balance": 1e-2}
