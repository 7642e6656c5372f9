"""Dispatch, products and combining against one token at a time, written down from the definition."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from tiny_models import NAMES
from torch import Tensor

from routelaw.model import experts as experts_module
from routelaw.model.experts import Experts, within_capacity
from routelaw.model.grouped_product import grouped_product, grouped_product_op, grouped_weight_gradient
from routelaw.routers.router import Randomness, RouteContext, Routing, router_class
from routelaw.specs.run import RouterSpec

TOKENS, WIDTH, EXPERTS = 24, 8, 4
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def drawn(module: torch.nn.Module, scale: float = 0.5) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return module.double()


def rows(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(TOKENS, WIDTH, generator=generator, dtype=torch.float64, requires_grad=True)


def context() -> RouteContext:
    members_GM = torch.arange(TOKENS).view(2, -1)
    return RouteContext(
        torch.arange(TOKENS), members_GM, torch.ones(TOKENS, dtype=torch.bool), Randomness.of(1, 2, 3), True, TOKENS
    )


def routed(name: str, k: int, normed_TD: Tensor) -> tuple[torch.nn.Module, Routing]:
    router = drawn(router_class(name)(WIDTH, 50, 2, RouterSpec(name, EXPERTS, k)))
    ids_T = torch.randint(50, (TOKENS,), generator=torch.Generator().manual_seed(4)) ** 2 // 50
    return router, router(normed_TD, ids_T, context())


def naive(experts: Experts, normed_TD: Tensor, residual_TD: Tensor, routing: Routing, kept_N: Tensor) -> Tensor:
    def gelu(x: Tensor) -> Tensor:
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    out = [torch.zeros(WIDTH, dtype=torch.float64) * normed_TD[0, 0] for _ in range(TOKENS)]
    for n, (token, expert) in enumerate(zip(routing.token_N.tolist(), routing.expert_N.tolist(), strict=True)):
        if not kept_N[n]:
            continue
        total = gelu(normed_TD[token] @ experts.up[0][expert]) @ experts.down[0][expert]
        for i in range(1, experts.ffws):
            whole = residual_TD[token] + total
            centred = whole - whole.mean()
            normed = centred / torch.sqrt((centred**2).mean() + 1e-5)
            normed = normed * experts.norm_scale[i - 1][expert] + experts.norm_offset[i - 1][expert]
            total = total + gelu(normed @ experts.up[i][expert]) @ experts.down[i][expert]
        out[token] = out[token] + (total if routing.weight_N is None else routing.weight_N[n] * total)
    return torch.stack(out)


def value_and_gradients(out_TD: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    against = torch.linspace(-1, 2, out_TD.numel(), dtype=torch.float64).view_as(out_TD)
    found = torch.autograd.grad((out_TD * against).sum(), leaves, retain_graph=True, allow_unused=True)
    pairs = zip(found, leaves, strict=True)
    return [out_TD, *(torch.zeros_like(leaf) if g is None else g for g, leaf in pairs)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("capacity", [0.0, 0.5])
@pytest.mark.parametrize("ffws", [1, 3])
def test_equal_to_one_token_at_a_time(name: str, k: int, capacity: float, ffws: int) -> None:
    normed_TD, residual_TD, experts = rows(2), rows(3), drawn(Experts(WIDTH, EXPERTS, ffws))
    router, routing = routed(name, k, normed_TD)
    kept_N = within_capacity(routing, context(), EXPERTS, k, capacity)
    assert bool(kept_N.all()) == (capacity == 0)
    leaves = [normed_TD, residual_TD, *experts.parameters(), *router.parameters()]
    ours = value_and_gradients(experts(normed_TD, residual_TD, routing, kept_N), leaves)
    plain = value_and_gradients(naive(experts, normed_TD, residual_TD, routing, kept_N), leaves)
    for one, two in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("ffws", [1, 2])
@pytest.mark.parametrize("case", ["empty experts", "all to one", "none kept", "one kept"])
def test_uneven_loads(case: str, ffws: int) -> None:
    normed_TD, residual_TD, experts = rows(2), rows(3), drawn(Experts(WIDTH, EXPERTS, ffws))
    expert_N = torch.full((TOKENS,), 2) if case == "all to one" else torch.arange(TOKENS) % 2 * 3
    routing = Routing(torch.arange(TOKENS), expert_N, None)
    kept_N = torch.full((TOKENS,), case in ("empty experts", "all to one"))
    kept_N[5] |= case == "one kept"
    leaves = [normed_TD, residual_TD, *experts.parameters()]
    ours = value_and_gradients(experts(normed_TD, residual_TD, routing, kept_N), leaves)
    plain = value_and_gradients(naive(experts, normed_TD, residual_TD, routing, kept_N), leaves)
    for one, two in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10)


class LeavesGarbage(torch.autograd.Function):
    """A product that treats rows beyond the last end as `grouped_mm` does: whatever the memory held."""

    @staticmethod
    def forward(ctx, x_ND, weight_EDF, ends):
        ctx.save_for_backward(x_ND, weight_EDF)
        ctx.ends = ends
        out = torch.full((x_ND.shape[0], weight_EDF.shape[2]), torch.nan, dtype=x_ND.dtype)
        for e, (a, b) in enumerate(pairwise([0, *ends.tolist()])):
            out[a:b] = x_ND[a:b] @ weight_EDF[e]
        return out

    @staticmethod
    def backward(ctx, gradient):
        x_ND, weight_EDF = ctx.saved_tensors
        of_x, of_weight = torch.full_like(x_ND, torch.nan), torch.zeros_like(weight_EDF)
        for e, (a, b) in enumerate(pairwise([0, *ctx.ends.tolist()])):
            of_x[a:b] = gradient[a:b] @ weight_EDF[e].T
            of_weight[e] = x_ND[a:b].T @ gradient[a:b]
        return of_x, of_weight, None


@pytest.mark.parametrize("name", ["switch", "hash"])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("ffws", [1, 2])
def test_garbage_in_dropped_rows_never_gets_out(monkeypatch: pytest.MonkeyPatch, name: str, k: int, ffws: int) -> None:
    normed_TD, residual_TD, experts = rows(2), rows(3), drawn(Experts(WIDTH, EXPERTS, ffws))
    router, routing = routed(name, k, normed_TD)
    kept_N = within_capacity(routing, context(), EXPERTS, k, 0.5)
    leaves = [normed_TD, residual_TD, *experts.parameters(), *router.parameters()]
    clean = value_and_gradients(experts(normed_TD, residual_TD, routing, kept_N), leaves)
    monkeypatch.setattr(experts_module, "grouped_product", LeavesGarbage.apply)
    monkeypatch.setattr(experts_module, "_is_eager_on_cpu", lambda x: False)  # the path of a GPU
    dirty = value_and_gradients(experts(normed_TD, residual_TD, routing, kept_N), leaves)
    for one, two in zip(clean, dirty, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


def test_rows_of_the_padded_table_teach_no_expert_when_dropped() -> None:
    """The way a GPU takes through the norms of stacked FFWs, with garbage as the gradient of a dropped row."""
    table_ED = torch.randn(3, 4, requires_grad=True)
    found = experts_module._padded_rows(table_ED, torch.tensor([0, 0, 2, 3, 3]))
    found.backward(torch.tensor([1.0, 1, 1, torch.nan, torch.nan])[:, None].expand(5, 4))
    assert table_ED.grad is not None
    assert table_ED.grad[:, 0].tolist() == [2, 0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_mm_of_torch_agrees_where_it_serves(dtype: torch.dtype) -> None:
    """With its own gradients, on the rows that mean something."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 16, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(3, 16, 32, generator=generator).to(dtype).requires_grad_()
    against = torch.randn(20, 32, generator=generator).to(dtype)
    results = []
    ends = torch.tensor([7, 7, 18], dtype=torch.int32)
    for product in (grouped_product, F.grouped_mm):
        out = product(x, weight, ends) if product is grouped_product else product(x, weight, offs=ends)
        of_x, of_weight = torch.autograd.grad(out, (x, weight), against)
        results.append((out[:18], of_x[:18], of_weight))
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two)


def test_a_compiler_sees_whole_operations() -> None:
    x, weight = torch.randn(20, 16, requires_grad=True), torch.randn(3, 16, 32, requires_grad=True)
    ends = torch.tensor([7, 7, 18], dtype=torch.int32)
    torch.library.opcheck(grouped_product_op, (x, weight, ends))
    torch.library.opcheck(grouped_weight_gradient, (x.detach(), torch.randn(20, 32), ends))


def some_dropped(ffws: int, k: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Output and gradients where some assignments are dropped and the last expert has none."""
    tokens, width = 64, 32
    experts = drawn(Experts(width, EXPERTS, ffws), 0.2).to(device, dtype)
    x_TD = torch.randn(tokens, width, generator=torch.Generator().manual_seed(5)).to(device, dtype).requires_grad_()
    number_N = torch.arange(tokens * k, device=device)
    torch.full((1 << 24,), torch.nan, device=device)  # what uninitialised memory is then likely to hold
    out_TD = experts(x_TD, x_TD, Routing(number_N // k, number_N % (EXPERTS - 1), None), number_N % 5 > 0)
    out_TD.to(torch.promote_types(dtype, torch.float32)).square().sum().backward()
    found = [out_TD, x_TD.grad, *(parameter.grad for parameter in experts.parameters())]
    return [tensor.detach().double().cpu() for tensor in found if tensor is not None]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
@pytest.mark.parametrize(("dtype", "share"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("ffws", [1, 2])
def test_shorter_numbers_agree_with_float64(ffws: int, k: int, dtype: torch.dtype, share: float, device: str) -> None:
    wanted, found = some_dropped(ffws, k, torch.float64, "cpu"), some_dropped(ffws, k, dtype, device)
    for wide, narrow in zip(wanted, found, strict=True):
        torch.testing.assert_close(narrow, wide, rtol=2 * share, atol=share * float(wide.abs().max()))
