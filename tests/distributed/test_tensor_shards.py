"""Blocks of tensors: what two of them share, and where it lies in each."""

import itertools

import pytest
import torch
from torch import nn

from routelaw.distributed.groups import Group, Parallel
from routelaw.distributed.tensor_shards import TensorShard, tensor_shards


def test_shards_put_a_tensor_together_whatever_they_were_cut_for() -> None:
    """A 5 × 6 tensor stored in 2 × 3 blocks, and read in 3 × 2 blocks; the last ones hold less."""
    whole = torch.arange(30.0).view(5, 6)

    def blocks(rows: int, columns: int) -> list[TensorShard]:
        corners = itertools.product(range(0, 5, rows), range(0, 6, columns))
        return [TensorShard((5, 6), (r, c), (min(rows, 5 - r), min(columns, 6 - c))) for r, c in corners]

    for wanted in blocks(3, 2):
        read = torch.full(wanted.shape, -1.0)
        for stored in blocks(2, 3):
            common = wanted.intersection(stored)
            if common.elements:
                read[common.within(wanted)] = whole[stored.slices][common.within(stored)]
        assert torch.equal(read, whole[wanted.slices])


def test_a_scalar_is_a_shard_of_one_element() -> None:
    scalar = TensorShard.whole(())
    assert scalar.intersection(scalar).elements == 1
    assert scalar.within(scalar) == ()


@pytest.mark.parametrize(
    ("offset", "shape"), [((0, -1), (5, 6)), ((1, 0), (5, 6)), ((0,), (5,)), ((0, 0), (5, 6.0)), ((0, "0"), (5, 6))]
)
def test_what_cannot_be_a_shard_is_not_sound(offset: tuple, shape: tuple) -> None:
    assert TensorShard((5, 6), (0, 0), (5, 6)).is_sound
    assert not TensorShard((5, 6), offset, shape).is_sound


def test_the_first_of_those_that_hold_a_tensor_saves_it() -> None:
    """Heads and experts are split; of what tensor-parallel processes hold in common there is one first copy."""
    module = nn.Module()
    module.attention = nn.Module()
    module.attention.query = nn.Linear(4, 3, bias=False)
    module.norm = nn.LayerNorm(4)
    shards = tensor_shards(module, Parallel(tensor=Group(None, 1, 2)), ())
    assert shards["attention.query.weight"] == TensorShard((6, 4), (3, 0), (3, 4), replica=0)
    assert shards["norm.weight"] == TensorShard((4,), (0,), (4,), replica=1)
