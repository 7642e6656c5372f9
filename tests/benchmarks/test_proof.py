"""What the proof of the fast paths rests on: its verdict, its plain forms, and decisions that can be forced."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

import benchmarks.proof_comparisons as comparisons
import benchmarks.proof_paths as paths
import routelaw.model.experts as experts_module
from benchmarks.gpu_transformers import GATED_MULTIPLE
from benchmarks.proof_comparisons import chain_batches, curve_difference
from routelaw.bench.peers import gated_width
from routelaw.kernels.dispatch import expert_order, summed_rows
from routelaw.kernels.fp32_product import fp32_linear
from routelaw.model.grouped_product import grouped_product
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size


def noisy(seeds: int = 3, steps: int = 300, spread: float = 0.05) -> np.ndarray:
    """Falling curves that differ by a constant of each seed and by noise of each step."""
    random = np.random.default_rng(0)
    level_S1 = spread * random.standard_normal((seeds, 1))
    return 9 - np.linspace(0, 4, steps) + level_S1 + 0.01 * random.standard_normal((seeds, steps))


def test_the_verdict_is_of_the_largest_difference() -> None:
    reference_SN = noisy()
    assert curve_difference(reference_SN, reference_SN).difference == 0
    bent_SN = reference_SN.copy()
    bent_SN[:, 100:150] += 0.5  # longer than what smoothing averages over
    found = curve_difference(reference_SN, bent_SN)
    assert found.difference == pytest.approx(0.5)
    assert not found.within
    assert found.ratio == pytest.approx(0.5 / found.spread)
    assert curve_difference(reference_SN, reference_SN + 0.3 * found.spread).within


def test_the_spread_is_of_seeds_and_not_of_steps() -> None:
    reference_SN = noisy(seeds=200)
    found = curve_difference(reference_SN, reference_SN)
    assert found.spread == pytest.approx(0.05, rel=0.2)


def test_a_curve_that_is_not_finite_is_outside() -> None:
    broken_SN = noisy()
    broken_SN[1, 7] = np.nan
    assert not curve_difference(noisy(), broken_SN).within


def test_a_chain_is_the_same_for_all_seeds() -> None:
    draw = chain_batches(64, 32, 20)
    followers: list[set[tuple[int, int]]] = [set(), set()]
    for seed in (0, 1):
        tokens_BS = draw(seed, 3)
        np.testing.assert_array_equal(tokens_BS, draw(seed, 3))
        followers[seed] = {(int(a), int(b)) for row in tokens_BS for a, b in pairwise(row)}
    assert not np.array_equal(draw(0, 3), draw(1, 3))
    assert len(followers[0] | followers[1]) <= 20 * 8


def test_the_sliced_product_is_the_grouped_one() -> None:
    generator = torch.Generator().manual_seed(0)
    offsets_E = torch.tensor([3, 3, 7, 10], dtype=torch.int32)
    weight = torch.randn(4, 5, 6, generator=generator, dtype=torch.float64)
    rows = torch.randn(12, 5, generator=generator, dtype=torch.float64)  # two of them nobody's
    toward = torch.randn(10, 6, generator=generator, dtype=torch.float64)
    found = []
    for product in (paths.sliced_product, grouped_product):
        x, w = rows.clone().requires_grad_(), weight.clone().requires_grad_()
        y = product(x, w, offsets_E)[:10]
        (y * toward).sum().backward()
        assert x.grad is not None
        assert w.grad is not None
        found.append((y.detach(), x.grad[:10], w.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_plain_dispatch_is_dispatch() -> None:
    draw = torch.Generator().manual_seed(0)
    for tokens, k, experts in ((40, 1, 5), (33, 3, 7)):
        expert_N = torch.randint(experts - 1, (tokens * k,), generator=draw)  # the last expert has none
        kept_N = torch.rand(tokens * k, generator=draw) < 0.8
        order, plain = (way(expert_N, kept_N, experts) for way in (expert_order, paths.plain_order))
        assert all(torch.equal(one, other) for one, other in zip(order, plain, strict=True))
        x_ND = torch.randn(tokens * k, 6, generator=draw)
        x_ND[order[1][~kept_N]] = torch.nan
        rows = (x_ND, order[1], kept_N, k)
        torch.testing.assert_close(paths.plain_rows(*rows), summed_rows(*rows))


def test_patches_are_in_place_only_meanwhile() -> None:
    with paths.all_patches():
        assert experts_module.grouped_product is paths.sliced_product
        assert experts_module.expert_order is paths.plain_order
        assert experts_module.summed_rows is paths.plain_rows
        assert paths.Transformer.token_nll is paths.plain_nll
        assert paths.sinkhorn_module.expert_potentials is paths.plain_potentials
        assert paths.attention_module.relative_attention is paths.biased
        assert paths.gating_module.fp32_linear is paths.reinforce_module.fp32_linear is paths.upcast_linear
    assert experts_module.grouped_product is grouped_product
    assert (experts_module.expert_order, experts_module.summed_rows) == (expert_order, summed_rows)
    assert paths.Transformer.token_nll is not paths.plain_nll
    assert paths.attention_module.relative_attention is not paths.biased
    assert paths.gating_module.fp32_linear is paths.reinforce_module.fp32_linear is fp32_linear


def test_what_waits_for_the_device_is_not_recorded() -> None:
    """Grouped sizes, Sinkhorn's looks and the unfused optimiser's question are answered on the host."""
    for name in ("sinkhorn kernel", "grouped product", "fused AdamW", "any of them"):
        assert not paths.WITHOUT[name].recorded


@pytest.mark.parametrize("router", ["s-base", "switch", "rl-r", "hash"])
def test_forced_decisions_are_the_ones_taken(router: str) -> None:
    spec = RunSpec(
        ModelSpec(get_size("0.05M"), 50, 8), RouterSpec(router, 4), TrainSpec(steps=9, batch=4), corpus="none"
    )
    model = replace(paths.PLAIN, dtype=torch.float64).model(spec, 0)
    tokens_BS = torch.randint(50, (4, 9), generator=torch.Generator().manual_seed(1)).to(model.embedding.device)
    free, chosen = comparisons.gradients(model, tokens_BS, 0)
    model.zero_grad()
    with comparisons.forced(router, chosen):
        same, again = comparisons.gradients(model, tokens_BS, 0)
    assert comparisons.relative_errors(same, free).whole < 1e-12
    model.zero_grad()
    with comparisons.forced(router, [(experts_N + 1) % 4 for experts_N in chosen]):
        other, moved = comparisons.gradients(model, tokens_BS, 0)
    shift = 0 if router == "hash" else 1
    for one, two, three in zip(chosen, again, moved, strict=True):
        assert torch.equal(one, two)
        assert torch.equal((one + shift) % 4, three)
    assert (comparisons.relative_errors(other, free).whole > 1e-3) == (router != "hash")


def test_relative_errors_leave_out_what_is_zero() -> None:
    exact = {"a": torch.tensor([3.0, 4.0]), "b": torch.zeros(2)}
    errors = comparisons.relative_errors({"a": torch.tensor([3.0, 4.5]), "b": torch.zeros(2)}, exact)
    assert errors.by_name == {"a": pytest.approx(0.1)}
    assert errors.whole == pytest.approx(0.1)
    assert errors.share_within == 0
    half = comparisons.GradientErrors(0.05, {"a": 0.05})
    assert comparisons.most_over(errors, half) == pytest.approx(2)


@pytest.mark.parametrize("size", ["25M", "130M", "370M", "1.3B"])
def test_a_gated_ffw_has_the_flops_of_ours(size: str) -> None:
    width = get_size(size).d_model
    gated = 3 * 2 * width * gated_width(width, GATED_MULTIPLE)
    assert gated == pytest.approx(16 * width**2, rel=32 / (8 / 3 * width))
    assert gated_width(1536, GATED_MULTIPLE) == 4096
