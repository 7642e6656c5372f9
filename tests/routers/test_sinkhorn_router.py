"""Sinkhorn against POT, and S-BASE's use of it."""

from __future__ import annotations

import numpy as np
import ot
import pytest
import torch
from routing_problems import build, context, inputs

from routelaw.errors import InputError
from routelaw.kernels.sinkhorn import sinkhorn
from routelaw.routers.sinkhorn import standardised


def plan_of(logits_ME, tolerance=1e-12, cap=20_000):
    valid = torch.ones(1, len(logits_ME), dtype=torch.bool)
    f, g, iterations, violation = sinkhorn(logits_ME[None], valid, tolerance, cap)
    plan = torch.exp(logits_ME + f[0, :, None] + g[0]) / logits_ME.numel()
    return plan, int(iterations), float(violation)


@pytest.mark.parametrize(("tokens", "experts", "scale"), [(64, 8, 1.0), (100, 7, 3.0), (256, 16, 0.1), (40, 2, 5.0)])
def test_plan_equals_POT(tokens, experts, scale):
    generator = torch.Generator().manual_seed(tokens)
    logits = scale * torch.randn(tokens, experts, generator=generator, dtype=torch.float64)
    logits += scale * torch.randn(experts, generator=generator, dtype=torch.float64)
    plan, _, violation = plan_of(logits)
    marginals = np.full(tokens, 1 / tokens), np.full(experts, 1 / experts)
    reference = ot.bregman.sinkhorn_log(*marginals, -logits.numpy(), 1.0, numItermax=50_000, stopThr=1e-13)
    assert violation <= 1e-12
    assert np.abs(plan.numpy() - reference).max() * tokens * experts <= 1e-6


def test_stops_within_the_tolerance_and_reports_the_true_violation():
    logits = 2 * torch.randn(512, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits[:, 0] += 4
    for tolerance in (1e-1, 1e-2, 1e-4):
        plan, iterations, violation = plan_of(logits, tolerance, 200)
        measured = (plan.sum(0) - 1 / 16).abs().sum() + (plan.sum(1) - 1 / 512).abs().sum()
        assert violation == pytest.approx(measured.item(), rel=1e-6)
        assert violation <= tolerance
        assert plan_of(logits, tolerance, iterations - 1)[2] > tolerance


def test_groups_stop_on_their_own():
    logits = torch.randn(2, 128, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits[1, :, 0] += 6
    valid = torch.ones(2, 128, dtype=torch.bool)
    together = sinkhorn(logits, valid, 1e-6, 500)
    for group in range(2):
        alone = sinkhorn(logits[group : group + 1], valid[:1], 1e-6, 500)
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[group], b[0], rtol=1e-12, atol=1e-12)
    assert together[2][0] < together[2][1]


def test_padding_is_left_out():
    logits = torch.randn(1, 96, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    valid = (torch.arange(96) % 3 != 0)[None]
    _, g, iterations, violation = sinkhorn(logits, valid, 1e-8, 1000)
    _, g_alone, iterations_alone, violation_alone = sinkhorn(logits[valid][None], valid[valid][None], 1e-8, 1000)
    torch.testing.assert_close(g, g_alone)
    assert iterations == iterations_alone
    torch.testing.assert_close(violation, violation_alone)
    _, g, _, violation = sinkhorn(logits, torch.zeros_like(valid), 1e-8, 1000)
    assert (g == 0).all()
    assert violation == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_logits_are_finite(dtype):
    generator = torch.Generator().manual_seed(0)
    logits = 1e4 * torch.randn(2, 64, 4, generator=generator, dtype=dtype).sign()
    for value in sinkhorn(logits, torch.ones(2, 64, dtype=torch.bool), 1e-2, 200):
        assert value.isfinite().all()


def test_training_is_balanced_where_the_logits_are_not():
    router, (x, ids) = build("s-base", experts=8), inputs(2048)
    router.bias.data[0] += 3
    own = torch.bincount(router(x, ids, context(2048, training=False)).expert_N, minlength=8)
    routing = router(x, ids, context(2048, 2))
    rebalanced = torch.bincount(routing.expert_N, minlength=8)
    assert own.max() > 4 * 256
    assert rebalanced.max() < 1.5 * 256
    softmax = (x @ router.weight.T + router.bias).softmax(1)
    torch.testing.assert_close(routing.weight_N, softmax.gather(1, routing.expert_N[:, None])[:, 0])
    assert 1 <= routing.metrics["sinkhorn_iterations"] <= 200
    assert routing.metrics["sinkhorn_violation"] <= 1e-2
    assert routing.metrics["sinkhorn_capped"] == 0


def test_a_low_temperature_evens_out_what_small_logits_leave_uneven():
    """Tokens of a few kinds that prefer experts faintly: the plan is even, its rows' best are not."""
    x, ids = inputs(2048)
    x = x[torch.arange(2048) % 12] + 0.3 * x
    fullest = {}
    for temperature in (1.0, 0.3, 0.05):
        router = build("s-base", experts=32, temperature=temperature)
        router.weight.data, router.bias.data = 0.3 * router.weight.data, 0 * router.bias.data
        routing = router(x, ids, context(2048, 2))
        assert routing.metrics["sinkhorn_capped"] == 0
        fullest[temperature] = torch.bincount(routing.expert_N, minlength=32).max() / 64
        logits = x @ router.weight.T
        torch.testing.assert_close(routing.weight_N, logits.softmax(1).gather(1, routing.expert_N[:, None])[:, 0])
        evaluated = router(x, ids, context(2048, training=False))
        assert torch.equal(evaluated.expert_N, logits.argmax(1)), "the temperature is the rebalancing's alone"
    assert fullest[1.0] > 3
    assert fullest[0.3] < 2, "within the usual capacity"
    assert fullest[0.05] < 1.2
    capped = build("s-base", experts=32, temperature=0.001)(x, ids, context(2048, 2))
    assert capped.metrics["sinkhorn_capped"] == 1, "too low for its iterations, and it says so"


EVEN = {"relative_temperature": True, "temperature": 0.05}
"""What the demo and the miniatures have."""


def of_few_kinds(tokens, width=64, seed=0):
    """Tokens as a young model sees them: 200 kinds, some far more frequent than others, and a little of their own."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randn(200, width, generator=generator, dtype=torch.float64)
    kind_T = torch.multinomial(1 / torch.arange(1.0, 201), tokens, replacement=True, generator=generator)
    return kinds[kind_T] + 0.3 * torch.randn(tokens, width, generator=generator, dtype=torch.float64)


def share_dropped(routing, tokens, experts, k, capacity_factor=2):
    load_E = torch.bincount(routing.expert_N, minlength=experts)
    return float((load_E - capacity_factor * tokens * k / experts).clamp(min=0).sum() / (tokens * k))


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("size", [1e-5, 0.02, 1.0, 30.0])
@pytest.mark.parametrize(("tokens", "experts"), [(512, 4), (512, 16), (1536, 64), (4096, 32)])
def test_a_relative_temperature_drops_nothing_however_small_logits_are(tokens, experts, size, k):
    for seed in range(3):
        x = of_few_kinds(tokens, seed=seed)
        router = build("s-base", experts=experts, k=k, width=64, **EVEN)
        router.weight.data *= size
        routing = router(x, torch.zeros(tokens, dtype=torch.int64), context(tokens))
        assert share_dropped(routing, tokens, experts, k) < 0.02
        assert routing.metrics["sinkhorn_capped"] == 0


@pytest.mark.parametrize("tolerance", [1e-2, 1e-8])
@pytest.mark.parametrize(("tokens", "experts"), [(512, 32), (1536, 64), (4096, 32)])
def test_the_defaults_drop_a_good_deal_of_small_logits_whatever_the_tolerance(tokens, experts, tolerance):
    for seed in range(3):
        router = build("s-base", experts=experts, width=64, tolerance=tolerance)
        router.weight.data *= 0.02
        routing = router(of_few_kinds(tokens, seed=seed), torch.zeros(tokens, dtype=torch.int64), context(tokens))
        assert routing.metrics["sinkhorn_violation"] <= tolerance
        assert share_dropped(routing, tokens, experts, 1) > 0.04


def test_a_relative_temperature_knows_neither_the_scale_nor_the_offsets_of_logits():
    x, ids = inputs(512)
    choices = []
    for scale, offset in ((1.0, 0.0), (1e-6, 0.0), (1e3, 0.0), (1.0, 7.0)):
        router = build("s-base", experts=8, **EVEN)
        router.weight.data, router.bias.data = scale * router.weight.data, scale * router.bias.data
        router.bias.data[0] += offset
        choices.append(router(x, ids, context(512, 2)).expert_N)
    for other in choices[1:]:
        assert (other == choices[0]).double().mean() > 0.999, "but for what the tolerance leaves"


def test_logits_are_standardised_in_each_group_and_without_padding():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(96, 5, generator=generator, dtype=torch.float64) * 3 + 10 * torch.arange(5)
    valid = torch.arange(96) % 4 != 0
    logits[:48] *= 1e-4
    logits[~valid] = 1e9
    ctx = context(96, members_GM=torch.randperm(96, generator=generator).view(2, 48), valid_T=valid)
    found = standardised(logits, ctx)
    for members in ctx.members_GM:
        own = members[valid[members]]
        centred = logits[own] - logits[own].mean(0) - logits[own].mean(1, keepdim=True) + logits[own].mean()
        torch.testing.assert_close(found[own], centred / centred.std(correction=0))
    assert (found[~valid] == 0).all()


def test_logits_without_a_preference_leave_the_choice_to_the_order_of_ties():
    router, (x, ids) = build("s-base", experts=8, **EVEN), inputs(512)
    router.weight.data.zero_()
    router.bias.data.zero_()
    load = torch.bincount(router(x, ids, context(512, 2)).expert_N, minlength=8)
    assert (load == 64).all()


def test_the_cap_is_reported():
    router, (x, ids) = build("s-base", experts=8, max_iterations=1, tolerance=1e-9), inputs(256)
    assert router(x, ids, context(256, 2)).metrics["sinkhorn_capped"] == 1


def test_balance_loss_is_on_the_original_decisions():
    spec = {"experts": 8}
    s_base, switch, (x, ids) = build("s-base", **spec), build("switch", **spec), inputs(128)
    for ours, theirs in zip(s_base.parameters(), switch.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    a, b = (r.losses(r(x, ids, context(128, 2)), None, None)["balance"] for r in (s_base, switch))
    torch.testing.assert_close(a, b)


def test_options_out_of_range_are_refused():
    for wrong in ({"tolerance": 0.0}, {"temperature": 0.0}, {"temperature": float("nan")}, {"max_iterations": 0}):
        with pytest.raises(InputError, match=r"temperature (above 0|must be a finite number)"):
            build("s-base", **wrong)
