"""RL-R: the estimate against enumeration, and what each term does."""

from __future__ import annotations

import pytest
import torch
from routing_problems import build, context, inputs
from scipy.stats import chisquare

from routelaw.errors import InputError
from routelaw.routers.gating import tie_order
from routelaw.routers.reinforce import nucleus

LOGITS = torch.tensor([0.5, -0.3, 0.9, 0.0], dtype=torch.float64)
REWARD = torch.tensor([-1.0, -3.0, -2.5, -0.5], dtype=torch.float64)
TOKENS = 20_000


def tabular(baseline: float = 0.0, **options):
    """A router whose logits are its input, and whose baseline is a constant."""
    router = build("rl-r", experts=4, width=4, **options)
    router.weight.data, router.bias.data = torch.eye(4).double(), torch.zeros(4).double()
    return router, baseline


def estimates(router, baseline, reward_E=REWARD, **context_options):
    """The gradient of −E[R] in the logits, one estimate for each token."""
    x_TD = LOGITS.expand(TOKENS, 4).clone().requires_grad_()
    routing = router(x_TD, torch.zeros(TOKENS, dtype=torch.int64), context(TOKENS, **context_options))
    if "baseline_T" in routing.aux:
        routing.aux["baseline_T"] = torch.full((TOKENS,), baseline, dtype=torch.float64)
    kept = torch.ones(TOKENS, dtype=torch.bool)
    policy_sum, count = router.losses(routing, kept, -reward_E[routing.expert_N])["policy"]
    assert count == TOKENS
    policy_sum.backward()
    return routing, x_TD.grad


def exact_gradient(reward_E=REWARD):
    policy = LOGITS.softmax(0)
    return -policy * (reward_E - (policy * reward_E).sum())


@pytest.mark.parametrize("options", [{}, {"variant": "S", "nucleus": 1.0}, {"variant": "BS", "nucleus": 1.0}])
def test_estimate_agrees_with_enumeration(options):
    _, gradient_TE = estimates(*tabular(baseline=-1.5, **options))
    error_E = gradient_TE.mean(0) - exact_gradient()
    standard_error_E = gradient_TE.std(0) / TOKENS**0.5
    assert (error_E.abs() < 4 * standard_error_E).all()
    assert (standard_error_E < 0.02).all()


def test_baseline_lowers_the_variance():
    value = float((LOGITS.softmax(0) * REWARD).sum())
    with_baseline, without = (estimates(*tabular(baseline=b))[1].var(0).sum() for b in (value, 0.0))
    assert with_baseline < 0.5 * without


def test_actions_are_draws_from_the_policy():
    routing, _ = estimates(*tabular())
    expected = LOGITS.softmax(0) * TOKENS
    assert chisquare(torch.bincount(routing.expert_N).numpy(), expected.numpy()).pvalue > 1e-3
    greedy, _ = estimates(*tabular(variant="G"))
    assert (greedy.expert_N == 2).all()
    evaluated, _ = estimates(*tabular(), training=False)
    assert (evaluated.expert_N == 2).all()


def test_draws_differ_between_steps_and_seeds():
    routings = [estimates(*tabular(), **place)[0] for place in ({"step": 1}, {"step": 2}, {"step": 1, "seed": 8})]
    agreement = float((LOGITS.softmax(0) ** 2).sum())
    for a, b in ((0, 1), (0, 2)):
        same = (routings[a].expert_N == routings[b].expert_N).double().mean().item()
        assert same == pytest.approx(agreement, abs=0.02)


def test_nucleus_samples_its_set_and_importance_restores_the_policy_gradient_within_it():
    policy = LOGITS.softmax(0)  # 0.28 0.13 0.42 0.17: the smallest set of 0.8 is {2, 0, 3}
    inside = nucleus(policy[None], 0.8, 1, torch.arange(4)[None])
    assert inside.tolist() == [[True, False, True, True]]
    drawn, plain = estimates(*tabular(variant="S", nucleus=0.8))
    renormalised = policy[[0, 2, 3]] / policy[[0, 2, 3]].sum()
    counts = torch.bincount(drawn.expert_N, minlength=4)
    assert counts[1] == 0
    assert chisquare(counts[[0, 2, 3]].numpy(), (renormalised * TOKENS).numpy()).pvalue > 1e-3
    _, corrected = estimates(*tabular(variant="S", nucleus=0.8, importance=True))
    torch.testing.assert_close(corrected, plain * policy[[0, 2, 3]].sum())


def test_baseline_and_nucleus_are_each_what_they_are_alone():
    """BS draws what S draws from the same numbers, and its losses are those of B for the same actions."""
    options = {"nucleus": 0.8, "importance": True}
    both, sampled = (estimates(*tabular(variant=v, **options))[0] for v in ("BS", "S"))
    assert torch.equal(both.expert_N, sampled.expert_N)
    torch.testing.assert_close(both.aux["correction_T"], sampled.aux["correction_T"])
    drawn, _ = estimates(*tabular(variant="B"))
    assert not torch.equal(both.expert_N, drawn.expert_N)
    router, (x, ids) = build("rl-r", variant="BS", nucleus=1.0), inputs(32)
    alone = build("rl-r", variant="B")
    nll, kept = torch.linspace(1, 3, 32, dtype=torch.float64), torch.ones(32, dtype=torch.bool)
    losses, expected = (r.losses(r(x, ids, context(32)), kept, nll) for r in (router, alone))
    assert set(losses) == set(expected)
    for name, (value, count) in expected.items():
        torch.testing.assert_close(losses[name], (value, count))
    greedy, _ = estimates(*tabular(variant="BS"), training=False)
    assert (greedy.expert_N == 2).all()


def test_a_deeper_value_network_is_its_layers_in_turn():
    router, (x, ids) = build("rl-r", value_layers=3), inputs(32)
    shapes = {name: tuple(p.shape) for name, p in router.named_parameters() if name.startswith("value")}
    hidden = {f"value_hidden.{i}": (2, 2) for i in range(2)}
    assert shapes == {"value_in": (2, 16), **hidden, "value_out": (2,)}
    expected = x
    for weight in (router.value_in, *router.value_hidden):
        expected = torch.nn.functional.gelu(expected @ weight.T)
    routing = router(x, ids, context(32))
    torch.testing.assert_close(routing.aux["baseline_T"], expected @ router.value_out)


def test_a_squared_value_loss_is_hubers_for_small_errors_and_half_the_square_for_large():
    x, ids = inputs(32)
    kept = torch.ones(32, dtype=torch.bool)
    for nll, equal in ((torch.zeros(32).double(), True), (torch.full((32,), 9.0).double(), False)):
        routers = [build("rl-r", value_loss=loss) for loss in ("huber", "squared")]
        for router in routers:
            router.value_out.data *= 0.01
        values = [r.losses(r(x, ids, context(32)), kept, nll)["value"][0].item() for r in routers]
        baseline = routers[0](x, ids, context(32)).aux["baseline_T"]
        assert values[1] == pytest.approx(0.5 * ((-nll - baseline) ** 2).sum().item())
        assert (values[0] == pytest.approx(values[1])) == equal


def test_nucleus_of_equals_is_spread_and_holds_at_least_k():
    order_TE = tie_order(context(100), 10)
    inside_TE = nucleus(torch.full((100, 10), 0.1), 0.85, 1, order_TE)
    assert (inside_TE.sum(1) == 9).all()
    assert inside_TE.sum(0).min() > 70
    certain = torch.eye(10)[:1].expand(100, 10)
    assert (nucleus(certain, 0.9, 3, order_TE).sum(1) == 3).all()


def test_policy_loss_sums_log_policy_over_kept_actions_only():
    router, (x, ids) = build("rl-r", experts=4, k=2), inputs(32)
    routing = router(x, ids, context(32))
    nll = torch.linspace(1, 3, 32, dtype=torch.float64)
    kept = torch.arange(64) % 3 != 0
    losses = router.losses(routing, kept, nll)
    log_policy = torch.log_softmax(x @ router.weight.T + router.bias, 1)
    baseline = torch.nn.functional.gelu(x @ router.value_in.T) @ router.value_out
    policy = value = 0.0
    for t in range(32):
        advantage = (-nll[t] - baseline[t]).item()
        actions = [n for n in (2 * t, 2 * t + 1) if kept[n]]
        policy -= sum(log_policy[t, routing.expert_N[n]].item() * advantage for n in actions)
        huber = 0.5 * advantage**2 if abs(advantage) <= 1 else abs(advantage) - 0.5
        value += huber if actions else 0.0
    assert losses["policy"][0].item() == pytest.approx(policy)
    assert losses["value"][0].item() == pytest.approx(value)
    assert losses["reward"][0].item() == pytest.approx(-nll.sum().item())
    assert losses["baseline_error"][0].item() == pytest.approx((-nll - baseline).abs().sum().item())


def test_baseline_learns_from_detached_input_and_the_policy_not_from_the_baseline():
    router, (x, ids) = build("rl-r"), inputs(32)
    x.requires_grad_()
    losses = router.losses(router(x, ids, context(32)), torch.ones(32, dtype=torch.bool), torch.ones(32).double())
    losses["value"][0].backward(retain_graph=True)
    assert x.grad is None or (x.grad == 0).all()
    assert router.weight.grad is None
    before = router.value_out.grad.clone()
    losses["policy"][0].backward()
    assert torch.equal(router.value_out.grad, before)


def test_entropy_step_alone_lowers_the_entropy():
    router, (x, ids) = build("rl-r"), inputs(256)
    assert router.loss_weights["entropy"] == 5e-4
    before = router(x, ids, context(256))
    value, count = router.losses(before, torch.ones(256, dtype=torch.bool), torch.ones(256).double())["entropy"]
    (router.loss_weights["entropy"] * value / count).backward()
    for parameter in (router.weight, router.bias):
        parameter.data -= 100 * parameter.grad
    assert router(x, ids, context(256)).metrics["entropy"] < before.metrics["entropy"]


@pytest.mark.parametrize("variant", ["B", "S"])
def test_policy_finds_the_right_expert_of_each_token_type(variant):
    """Sixteen token types, eight experts, one right for each: from indifference to the right ones."""
    types = torch.arange(256) % 16
    right_T = types % 8
    x_TD = torch.eye(16, dtype=torch.float64)[types]
    router = build("rl-r", experts=8, variant=variant, entropy_weight=0.0)
    for parameter in (router.weight, router.bias):
        parameter.data *= 0.02
    optimizer = torch.optim.Adam(router.parameters(), lr=0.05)
    kept = torch.ones(256, dtype=torch.bool)
    for step in range(200):
        routing = router(x_TD, types, context(256, step=step))
        nll_T = torch.where(routing.expert_N == right_T, 1.0, 3.0).double()
        losses = router.losses(routing, kept, nll_T)
        weights = {"policy": 1.0, "value": 1.0, "balance": 0.1}
        loss = sum(weights.get(name, 0.0) * value / count for name, (value, count) in losses.items())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    greedy = router(x_TD, types, context(256, training=False)).expert_N
    assert (greedy == right_T).double().mean() > 0.95


def test_credit_by_sequence_averages_over_the_valid_tokens_of_a_sequence():
    router, (x, ids) = build("rl-r", credit="sequence", reward="p"), inputs(32)
    valid = torch.arange(32) % 8 != 7
    routing = router(x, ids, context(32, valid_T=valid, sequence_length=8))
    nll = torch.linspace(0.5, 2, 32, dtype=torch.float64)
    reward_T = router._reward(nll, routing.aux["valid_BS"])
    expected = torch.stack([torch.exp(-nll[s : s + 7]).mean() for s in (0, 8, 16, 24)])
    torch.testing.assert_close(reward_T.view(4, 8), expected[:, None].expand(4, 8))
    with pytest.raises(InputError, match="how long sequences are"):
        router(x, ids, context(32))


def test_weights_are_those_of_the_papers_table_unless_asked_otherwise():
    shared = {"balance": 1.0, "reward": 0.0}
    b = shared | {"policy": 1e-2, "value": 1e-2, "entropy": 5e-4, "baseline_error": 0.0}
    assert build("rl-r").loss_weights == b
    assert build("rl-r", variant="BS").loss_weights == b
    for variant in "GS":
        assert build("rl-r", variant=variant).loss_weights == shared | {"policy": 1e-1, "entropy": 0.0}
    asked = build("rl-r", policy_weight=0.3, value_weight=0.2, entropy_weight=0.1).loss_weights
    assert asked == b | {"policy": 0.3, "value": 0.2, "entropy": 0.1}


def test_parameters_are_the_linear_map_and_the_value_network():
    counted = {name: p.numel() for name, p in build("rl-r", experts=4).named_parameters()}
    assert counted == {"weight": 64, "bias": 4, "value_in": 16 * 2, "value_out": 2}
