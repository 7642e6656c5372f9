"""Attention against its definition, pair by pair."""

from __future__ import annotations

import cmath
import math

import pytest
import torch
from torch import Tensor

from routelaw.model.attention import Attention, position_table, rotate, sinusoids, turns
from routelaw.model.relative_attention import biased, by_distance_to_by_key, in_pieces
from routelaw.specs.counting import Architecture
from routelaw.specs.run import ModelSpec

WIDE_HEADS = Architecture(d_model=6, blocks=1, heads=3, kv_size=4)


def attention(positions: str) -> Attention:
    generator = torch.Generator().manual_seed(2)
    module = Attention(WIDE_HEADS, positions).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def some_input(length: int = 7, batch: int = 2) -> Tensor:
    return torch.randn(batch, length, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def output(module: Attention, x_BSD: Tensor) -> Tensor:
    return module(x_BSD, position_table(ModelSpec(WIDE_HEADS, positions=module.positions), x_BSD.shape[1], x_BSD))


def turned(vector: Tensor, position: int) -> Tensor:
    """Pairs (i, i + V/2) as complex numbers, times e^(i·position·10000^(−2i/V))."""
    half = len(vector) // 2
    result = [complex(vector[i], vector[i + half]) for i in range(half)]
    result = [z * cmath.exp(1j * position * 10_000 ** (-2 * i / len(vector))) for i, z in enumerate(result)]
    return torch.tensor([z.real for z in result] + [z.imag for z in result], dtype=torch.float64)


def wave(distance: int, width: int) -> Tensor:
    rates = [10_000 ** (-i / width) for i in range(0, width, 2)]
    waves = [math.sin(distance * r) for r in rates] + [math.cos(distance * r) for r in rates]
    return torch.tensor(waves, dtype=torch.float64)


def naive(module: Attention, x_BSD: Tensor) -> Tensor:
    B, S, _ = x_BSD.shape
    out = torch.zeros_like(x_BSD)
    for b in range(B):
        for i in range(S):
            mixed = []
            for h in range(3):
                own = slice(4 * h, 4 * h + 4)

                def project(layer: torch.nn.Linear, x: Tensor, own: slice = own) -> Tensor:
                    return (layer.weight @ x)[own]

                q = project(module.query, x_BSD[b, i])
                scores = []
                for j in range(i + 1):
                    k = project(module.key, x_BSD[b, j])
                    if module.positions == "rope":
                        score = turned(q, i) @ turned(k, j)
                    else:
                        score = q @ k + q @ project(module.relative, wave(i - j, 6))
                    scores.append(score / math.sqrt(4))
                weight = torch.softmax(torch.stack(scores), 0)
                mixed.append(sum(weight[j] * project(module.value, x_BSD[b, j]) for j in range(i + 1)))
            out[b, i] = module.out.weight @ torch.cat(mixed)
    return out


@pytest.mark.parametrize("positions", ["xl", "rope"])
def test_equal_to_every_pair_in_turn(positions: str) -> None:
    module, x = attention(positions), some_input()
    with torch.no_grad():
        torch.testing.assert_close(output(module, x), naive(module, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_scores_by_distance_move_to_their_key(length: int) -> None:
    by_distance = torch.arange(2 * 3 * length * length).view(2, 3, length, length)
    by_key = by_distance_to_by_key(by_distance)
    for i in range(length):
        for j in range(i + 1):
            assert torch.equal(by_key[:, :, i, j], by_distance[:, :, i, i - j])


def test_rotation_is_a_complex_one_and_keeps_float64() -> None:
    x = torch.randn(1, 2, 9, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    table = turns(9, 6, x.device, x.dtype)
    for h in range(2):
        for s in range(9):
            torch.testing.assert_close(rotate(x, table)[0, h, s], turned(x[0, h, s], s), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoids(width: int) -> None:
    table = sinusoids(50, width, torch.device("cpu"), torch.float64)
    assert table.shape == (50, width)
    for distance in (0, 1, 49):
        torch.testing.assert_close(table[distance], wave(distance, width)[:width], rtol=0, atol=1e-13)


@pytest.mark.parametrize("positions", ["xl", "rope"])
@pytest.mark.parametrize("kept", [1, 3, 6])
def test_what_comes_later_changes_nothing(positions: str, kept: int) -> None:
    module, x = attention(positions), some_input()
    other = x.clone()
    other[:, kept:] = 100.0
    assert torch.equal(output(module, x)[:, :kept], output(module, other)[:, :kept])


@pytest.mark.parametrize(("length", "rows"), [(1, 4), (8, 4), (11, 4), (5, 8), (9, 1)])
def test_pieces_of_the_queries_make_the_same(length: int, rows: int) -> None:
    """Values and gradients, whether or not the pieces come out even."""
    generator = torch.Generator().manual_seed(3)
    q, k, v = (
        torch.randn(2, 3, length, 4, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3)
    )
    r = torch.randn(length, 3, 4, generator=generator, dtype=torch.float64).requires_grad_()
    against = torch.randn(2, 3, length, 4, generator=generator, dtype=torch.float64)
    whole, pieces = biased(q, k, v, r), in_pieces(q, k, v, r, rows)
    torch.testing.assert_close(pieces, whole, rtol=1e-12, atol=1e-12)
    for one, two in zip(*(torch.autograd.grad(x, (q, k, v, r), against) for x in (pieces, whole)), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-11, atol=1e-11)
