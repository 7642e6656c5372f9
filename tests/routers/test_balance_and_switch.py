"""The balance loss against a loop; the weights of switch."""

from __future__ import annotations

import pytest
import torch
from routing_problems import build, context, inputs
from scipy.stats import kstest

from routelaw.routers.gating import balance_loss, jittered


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


def test_jitter_is_uniform_around_one_and_independent_of_the_split():
    """A function of (seed, step, token, dimension): the layer's numbers are those of the context."""
    x = torch.ones(200, 16, dtype=torch.float64)
    noise = jittered(x, 0.25, context(200))
    assert kstest(noise.flatten().numpy(), "uniform", (0.75, 0.5)).pvalue > 1e-3
    assert noise.unique().numel() == noise.numel()
    parts = [jittered(x[a : a + 50], 0.25, context(50, first=a)) for a in range(0, 200, 50)]
    assert torch.equal(noise, torch.cat(parts))
    for place in ({"step": 4}, {"seed": 8}):
        assert not torch.equal(noise, jittered(x, 0.25, context(200, **place)))


def test_jitter_is_off_in_evaluation_and_at_zero():
    x = inputs(8)[0]
    assert jittered(x, 0.25, context(8, training=False)) is x
    assert jittered(x, 0.0, context(8)) is x


def test_jitter_of_bfloat16_is_not_rounded_away():
    """One per mille is below half the spacing of bfloat16 above one."""
    noise = jittered(torch.ones(64, 16, dtype=torch.bfloat16), 1e-3, context(64))
    assert noise.dtype == torch.float32
    assert noise.unique().numel() > 900


@pytest.mark.parametrize("name", ["switch", "s-base"])
def test_jitter_reaches_the_decision_in_training_alone(name):
    plain, noisy = build(name), build(name, jitter=0.5)
    x, ids = inputs(256)
    for training, same in ((True, False), (False, True)):
        routings = [router(x, ids, context(256, training=training)) for router in (plain, noisy)]
        assert torch.equal(routings[0].expert_N, routings[1].expert_N) == same
        assert torch.equal(routings[0].weight_N, routings[1].weight_N) == same
