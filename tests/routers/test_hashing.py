"""Hash tables: even, distinct, carried by the model."""

from __future__ import annotations

import pytest
import torch
from routing_problems import VOCABULARY, build, context, inputs
from scipy.stats import chisquare

from routelaw.errors import InputError
from routelaw.routers.hashing import greedy_table, modulo_table, random_table

ZIPF = (1e7 / torch.arange(1, 32_001)).to(torch.int64)
"""Token counts that fall as 1/rank."""


def heaviest(table_VK, experts):
    """Load of the fullest expert over the mean, by token frequency."""
    load_E = torch.zeros(experts).double()
    for column_V in table_VK.T:
        load_E.scatter_add_(0, column_V, ZIPF.double())
    return (load_E.max() / load_E.mean()).item()


def test_default_is_token_id_modulo_experts():
    _, ids = inputs(64)
    routing = build("hash", experts=8)(*inputs(64), context(64))
    assert torch.equal(routing.expert_N, ids % 8)
    assert routing.weight_N is None
    assert list(build("hash").parameters()) == []


@pytest.mark.parametrize("k", [1, 2, 3])
def test_greedy_is_more_even_than_modulo_and_random(k):
    ids = torch.arange(32_000)
    greedy, modulo, random = (
        heaviest(table, 64) for table in (greedy_table(ZIPF, 64, k), modulo_table(ids, 64, k), random_table(ids, 64, k))
    )
    assert greedy < modulo
    assert greedy < random


@pytest.mark.parametrize("table_of", [modulo_table, random_table])
@pytest.mark.parametrize(("experts", "k"), [(8, 1), (8, 2), (7, 3), (4, 4)])
def test_hashes_of_a_token_are_distinct_and_even(table_of, experts, k):
    table_VK = table_of(torch.arange(experts * 840), experts, k)
    assert all(len(set(row)) == k for row in table_VK.tolist())
    for column_V in table_VK.T:
        assert chisquare(torch.bincount(column_V, minlength=experts).numpy()).pvalue > 1e-3
    if 1 < k < experts:  # tokens that share their first expert do not all share the second
        assert len(set(table_VK[table_VK[:, 0] == 0, 1].tolist())) == experts - 1


def test_greedy_spreads_tokens_that_never_occur():
    counts = torch.tensor([5, 3, *([0] * 98)])
    assert torch.bincount(greedy_table(counts, 4, 1).flatten()).tolist() == [23, 25, 26, 26]


def test_permuted_differs_by_layer_and_keeps_the_evenness():
    tables = [build("hash", experts=5, layer=layer, permuted=True).table_VK for layer in (2, 4)]
    assert not torch.equal(*tables)
    assert all(torch.bincount(table.flatten()).tolist() == [20] * 5 for table in tables)
    assert torch.equal(build("hash", layer=2).table_VK, build("hash", layer=4).table_VK)
    with pytest.raises(InputError, match="permuted"):
        build("hash", scheme="greedy", permuted=True)


def test_greedy_needs_counts_once_and_the_model_carries_them():
    router = build("hash", scheme="greedy")
    with pytest.raises(InputError, match="token counts"):
        router(*inputs(64), context(64))
    with pytest.raises(InputError, match="do not fit a vocabulary of 100"):
        router.set_token_counts(torch.ones(7))
    router.set_token_counts(ZIPF[:VOCABULARY])
    routing = router(*inputs(64), context(64))
    restored = build("hash", scheme="greedy")
    restored.load_state_dict(router.state_dict())
    assert torch.equal(restored(*inputs(64), context(64)).expert_N, routing.expert_N)


def test_unknown_scheme_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'modulo'"):
        build("hash", scheme="module")
