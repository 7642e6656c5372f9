"""What every registered router must do: a new file in the room is tested by being there."""

from __future__ import annotations

from dataclasses import fields

import pytest
import routing_problems
import torch
from routing_problems import build, inputs
from torch.utils import _pytree as pytree

from routelaw.errors import InputError
from routelaw.routers.router import Routing, all_routers
from routelaw.specs.names import OPTIONS

NAMES = sorted(all_routers())
CASES = [
    *((name, {}) for name in NAMES),
    ("base", {"weight": "sigmoid"}),
    ("hash", {"scheme": "random", "permuted": True}),
    ("rl-r", {"variant": "G"}),
    ("rl-r", {"variant": "S", "importance": True}),
    ("rl-r", {"variant": "BS", "importance": True, "value_layers": 3, "value_loss": "squared"}),
    ("rl-r", {"credit": "sequence", "reward": "p"}),
    ("s-base", {"relative_temperature": True, "temperature": 0.05}),
    ("s-base", {"jitter": 0.3}),
    ("switch", {"jitter": 0.3}),
]
every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}{''.join(map(str, o))}" for n, o in CASES])
every_k = pytest.mark.parametrize("k", [1, 2])
TOKENS, SEQUENCE = 64, 16


def context(*args, **kwargs):
    return routing_problems.context(*args, sequence_length=SEQUENCE, **kwargs)


def shuffled(groups: int) -> torch.Tensor:
    return torch.randperm(TOKENS, generator=torch.Generator().manual_seed(1)).view(groups, -1)


def total_loss(router, routing: Routing, kept_N, nll_T):
    losses = router.losses(routing, kept_N, nll_T)
    assert set(losses) == set(router.loss_weights)
    return sum((value / count.clamp(min=1) for value, count in losses.values()), torch.zeros(()))


@every_case
@every_k
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("training", [True, False])
def test_shapes_range_and_distinctness(name, options, k, groups, training):
    router = build(name, k=k, **options)
    routing = router(*inputs(TOKENS), context(TOKENS, training=training, members_GM=shuffled(groups)))
    assert routing.token_N.tolist() == [t for t in range(TOKENS) for _ in range(k)]
    expert_TK = routing.expert_N.view(TOKENS, k)
    assert expert_TK.dtype == torch.int64
    assert 0 <= expert_TK.min() <= expert_TK.max() < 4
    assert all(len(set(row)) == k for row in expert_TK.tolist())
    if routing.weight_N is not None:
        assert routing.weight_N.shape == routing.expert_N.shape
        assert (routing.weight_N > 0).all()
        assert (routing.weight_N <= 1).all()
    assert "entropy" in routing.metrics
    assert all(m.ndim == 0 and not m.requires_grad and m.isfinite() for m in routing.metrics.values())
    leaves, spec = pytree.tree_flatten(routing)
    assert all(isinstance(leaf, torch.Tensor) or leaf is None for leaf in leaves)
    assert isinstance(pytree.tree_unflatten(leaves, spec), Routing)


@every_case
@every_k
def test_routing_is_a_function_of_its_arguments(name, options, k):
    router, (x, ids) = build(name, k=k, **options), inputs(TOKENS)
    first, second = (router(x, ids, context(TOKENS, 2)) for _ in range(2))
    assert torch.equal(first.expert_N, second.expert_N)
    assert first.weight_N is None or torch.equal(first.weight_N, second.weight_N)


@every_case
@every_k
def test_groups_do_not_know_each_other(name, options, k):
    router, (x, ids) = build(name, k=k, **options), inputs(TOKENS)
    nll = torch.linspace(1, 4, TOKENS, dtype=torch.float64)
    kept = torch.arange(TOKENS * k) % 5 != 0
    whole = router(x, ids, context(TOKENS, 2))
    half = TOKENS // 2
    parts = [router(x[a : a + half], ids[a : a + half], context(half, first=a)) for a in (0, half)]
    assert torch.equal(whole.expert_N, torch.cat([p.expert_N for p in parts]))
    if whole.weight_N is not None:
        torch.testing.assert_close(whole.weight_N, torch.cat([p.weight_N for p in parts]))
    together = router.losses(whole, kept, nll)
    apart = [router.losses(part, kept.view(2, -1)[i], nll.view(2, -1)[i]) for i, part in enumerate(parts)]
    for loss, (value, count) in together.items():
        torch.testing.assert_close(value, apart[0][loss][0] + apart[1][loss][0])
        torch.testing.assert_close(count, apart[0][loss][1] + apart[1][loss][1])


@every_case
@every_k
def test_evaluation_is_causal(name, options, k):
    router, (x, ids) = build(name, k=k, **options), inputs(TOKENS)
    other_x, other_ids = inputs(TOKENS, seed=9)
    for t in (1, 31, 63):
        changed_x, changed_ids = torch.cat([x[:t], other_x[t:]]), torch.cat([ids[:t], other_ids[t:]])
        a = router(x, ids, context(TOKENS, training=False))
        b = router(changed_x, changed_ids, context(TOKENS, training=False))
        assert torch.equal(a.expert_N[: t * k], b.expert_N[: t * k])
        assert a.weight_N is None or torch.equal(a.weight_N[: t * k], b.weight_N[: t * k])


@every_case
@every_k
def test_every_parameter_learns_and_gradients_are_finite(name, options, k):
    router, (x, ids) = build(name, k=k, **options), inputs(TOKENS)
    x.requires_grad_()
    routing = router(x, ids, context(TOKENS, 2))
    nll = torch.linspace(1, 4, TOKENS, dtype=torch.float64)
    loss = total_loss(router, routing, torch.ones(TOKENS * k, dtype=torch.bool), nll)
    if routing.weight_N is not None:
        loss = loss + (routing.weight_N * torch.arange(TOKENS * k)).mean()
    assert loss.isfinite()
    if not list(router.parameters()):
        return
    loss.backward()
    for parameter_name, parameter in [("input", x), *router.named_parameters()]:
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@every_case
def test_padding_sways_nothing(name, options):
    router, (x, ids) = build(name, **options), inputs(TOKENS)
    valid = torch.arange(TOKENS) % 4 != 3
    nll = torch.linspace(1, 4, TOKENS, dtype=torch.float64)
    moved_x, moved_nll = torch.where(valid[:, None], x, x + 50), torch.where(valid, nll, 1e6)
    a, b = (router(each, ids, context(TOKENS, 2, valid_T=valid)) for each in (x, moved_x))
    assert torch.equal(a.expert_N[valid], b.expert_N[valid])
    for (value, count), (value_b, count_b) in zip(
        router.losses(a, valid, nll).values(), router.losses(b, valid, moved_nll).values(), strict=True
    ):
        torch.testing.assert_close(value, value_b)
        assert count == count_b


@every_case
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_narrow_inputs_are_routed_in_float32(name, options, dtype):
    router, (x, ids) = build(name, k=2, **options).to(dtype), inputs(TOKENS)
    routing = router(x.to(dtype), ids, context(TOKENS))
    assert routing.weight_N is None or routing.weight_N.dtype == torch.float32
    loss = total_loss(router, routing, torch.ones(2 * TOKENS, dtype=torch.bool), torch.ones(TOKENS))
    assert loss.isfinite()
    assert loss.dtype == torch.float32


@every_case
@pytest.mark.parametrize("size", [1e4, -1e4, 0.0])
def test_extreme_logits_stay_finite(name, options, size):
    router, (x, ids) = build(name, k=2, **options).float(), inputs(TOKENS)
    routing = router(size * x.sign().float(), ids, context(TOKENS, 2))
    loss = total_loss(router, routing, torch.ones(2 * TOKENS, dtype=torch.bool), torch.ones(TOKENS))
    assert loss.isfinite()
    assert routing.weight_N is None or routing.weight_N.isfinite().all()


@every_case
def test_not_a_number_does_not_crash(name, options):
    """A diverging model must reach the loss, where divergence is handled."""
    router, (x, ids) = build(name, k=2, **options), inputs(TOKENS)
    routing = router(torch.full_like(x, torch.nan), ids, context(TOKENS))
    assert 0 <= routing.expert_N.min() <= routing.expert_N.max() < 4


@pytest.mark.parametrize("name", NAMES)
def test_unknown_option_names_the_nearest(name):
    known = [f.name for f in fields(all_routers()[name].Options)]
    if not known:
        with pytest.raises(InputError, match="takes no options"):
            build(name, frobnicate=1)
        return
    with pytest.raises(InputError, match=f"did you mean '{known[0]}'"):
        build(name, **{known[0] + "x": 1})


def test_the_names_of_options_are_known_without_the_routers():
    assert {f.name for kind in all_routers().values() for f in fields(kind.Options)} == OPTIONS


@pytest.mark.parametrize("name", NAMES)
def test_one_expert_is_everyones(name):
    routing = build(name, experts=1)(*inputs(TOKENS), context(TOKENS, 2))
    assert (routing.expert_N == 0).all()
