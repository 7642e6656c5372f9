"""Counts against the release, which the formula here was not copied from, and against models counted layer by layer."""

from pathlib import Path

import pandas as pd
import pytest

from routelaw.errors import InputError
from routelaw.specs.counting import Architecture, count, routed_blocks
from routelaw.specs.names import TECHNIQUES
from routelaw.specs.sizes import NAMED_SIZES, get_size

SMALL = Architecture(d_model=16, blocks=4, heads=2, kv_size=8)


def test_all_released_runs_to_the_unit(released_path: Path) -> None:
    runs = pd.read_csv(released_path).drop_duplicates("hyper_id")
    assert len(runs) == 223
    for run in runs.itertuples():
        counts = count(
            Architecture(run.d_model, run.num_blocks, run.num_heads, run.kqv_size),
            run.router_type,
            run.num_experts,
            k=run.k if run.num_experts > 1 else 1,
            routing_frequency=run.routing_frequency,
            flop_increase=int(run.flop_increase),
        )
        assert counts.active_params == run.dense_parameter_count
        assert counts.total_params == run.total_parameter_count
        assert counts.flops_per_token * 256 * 2048 == run.flops_per_step


def layer_by_layer(
    size: Architecture, experts: int, *, rl: bool = False, ffws: int = 1, routers: int | None = None
) -> int:
    """Total parameters with R = 1/2, added up tensor by tensor."""
    d, inner = size.d_model, size.heads * size.kv_size
    norm, ffw = 2 * d, d * 4 * d + 4 * d * d
    total, routers_left = 0, size.blocks if routers is None else routers
    for block in range(1, size.blocks + 1):
        total += 4 * d * inner + d * inner + norm + norm
        if block % 2 or experts == 1:
            total += ffw
            continue
        total += experts * (ffw + (ffws - 1) * (norm + ffw))
        if routers_left:
            routers_left -= 1
            total += d * experts + (d * (d // 8) + d // 8 if rl else 0)
    return total


@pytest.mark.parametrize("router", ["s-base", "rl-r", "hash", "switch", "base"])
@pytest.mark.parametrize("experts", [2, 7, 64])
def test_total_is_the_sum_of_its_tensors(router: str, experts: int) -> None:
    assert count(SMALL, router, experts).total_params == layer_by_layer(SMALL, experts, rl=router == "rl-r")


@pytest.mark.parametrize("router", ["dense", "s-base", "rl-r"])
def test_one_expert_is_the_dense_model(router: str) -> None:
    counts = count(SMALL, router, 1)
    assert counts == count(SMALL)
    assert counts.active_params == counts.total_params == layer_by_layer(SMALL, 1)


def test_shared_decisions_have_one_router() -> None:
    shared = count(SMALL, "rl-r", 8, shared_decisions=True)
    assert shared.total_params == layer_by_layer(SMALL, 8, rl=True, routers=1)
    router_and_baseline = 2 * 16 * 8 + 2 * (16 * 2 + 2)
    assert count(SMALL, "rl-r", 8).flops_per_token - shared.flops_per_token == router_and_baseline


def test_stacked_ffws_bring_a_norm_each() -> None:
    stacked, plain = count(SMALL, "hash", 4, ffws_per_expert=3), count(SMALL, "hash", 4)
    assert stacked.total_params == layer_by_layer(SMALL, 4, ffws=3)
    assert stacked.active_params - plain.active_params == 2 * 2 * (8 * 16**2 + 2 * 16)
    assert stacked.flops_per_token - plain.flops_per_token == 2 * 2 * (16 * 16**2 + 5 * 16)
    assert count(SMALL, "hash", 1, ffws_per_expert=3).total_params == stacked.active_params


def test_each_further_choice_costs_an_ffw_in_every_routed_block() -> None:
    one, three = count(SMALL, "switch", 8, k=1), count(SMALL, "switch", 8, k=3)
    assert three.flops_per_token - one.flops_per_token == 2 * (2 * 16 * 16**2)
    assert three.active_params == one.active_params
    stacked = [count(SMALL, "switch", 8, k=k, ffws_per_expert=2).flops_per_token for k in (1, 2)]
    assert stacked[1] - stacked[0] == 2 * (2 * 16 * 16**2 + 5 * 16)


def test_sequence_and_vocabulary_enter_the_flops_alone() -> None:
    long = count(SMALL, sequence_length=4096, vocabulary=50_000)
    attention = 4 * 2048 * (6 * 16 + 3 * 2)
    assert long.flops_per_token - count(SMALL).flops_per_token == attention + 2 * 18_000 * 16
    assert long.total_params == count(SMALL).total_params


def test_counts_are_whole_numbers() -> None:
    counts = count(get_size("7B"), "rl-r", 64)
    assert {type(counts.active_params), type(counts.total_params), type(counts.flops_per_token)} == {int}


def test_routed_blocks_of_the_release() -> None:
    assert [routed_blocks(12, r) for r in (1, 0.5, 0.25, 1 / 12)] == [12, 6, 3, 1]


@pytest.mark.parametrize(
    ("router", "experts", "options", "sentence"),
    [
        ("s-base", 0, {}, "experts must be at least 1"),
        ("s-base", 8, {"k": 0}, "k must lie between 1"),
        ("s-base", 8, {"k": 9}, r"number of experts \(8\), not 9"),
        ("s-base", 8, {"routing_frequency": 0.0}, "above 0 and at most 1"),
        ("s-base", 8, {"routing_frequency": 1.01}, "above 0 and at most 1"),
        ("s-base", 8, {"routing_frequency": float("nan")}, "above 0 and at most 1"),
        ("s-base", 8, {"routing_frequency": 0.05}, r"routes none of the 4 blocks"),
        ("dense", 8, {}, "A dense model has one expert"),
        ("s-base", 8, {"flop_increase": 2}, "belongs to dense models"),
        ("dense", 1, {"flop_increase": 0}, "flop_increase must be at least 1"),
        ("hash", 8, {"ffws_per_expert": 0}, "at least one FFW"),
        ("dense", 1, {"ffws_per_expert": 2, "flop_increase": 2}, "not both"),
        ("hash", 8, {"vocabulary": 0}, "must be positive"),
        ("", 8, {}, "A router has a name"),
        ("s-base", 8, {"routed": 5}, "none and all of the 4 blocks can be routed, not 5"),
        ("s-base", 8, {"positions": "sine"}, "Positions are xl or rope, not 'sine'"),
    ],
)
def test_wrong_choices(router: str, experts: int, options: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        count(SMALL, router, experts, **options)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def by_the_formula(a: Architecture, router: str, e: int, k: int, nr: int, rope: bool) -> tuple[int, int, int]:
    """The sums of FACTS, term by term; with rotary positions one projection and one score product fewer."""
    d, hv, length, vocabulary = a.d_model, a.heads * a.kv_size, 2048, 32_000
    projections, products = (4, 2) if rope else (5, 3)
    baseline = d * d // 8 + d // 8 if router == "rl-r" else 0
    n = a.blocks * (projections * d * hv + 8 * d**2 + 4 * d)
    flops = a.blocks * (
        16 * d**2 + 2 * projections * d * hv + 2 * products * length * hv + 3 * length * a.heads + 10 * d
    )
    flops += 2 * vocabulary * d
    if e == 1:
        return n, n, flops
    total = n + nr * ((e - 1) * 8 * d**2 + e * d + baseline)
    return n, total, flops + nr * (2 * d * e + (k - 1) * 16 * d**2 + 2 * baseline)


@pytest.mark.parametrize("size", NAMED_SIZES)
def test_every_size_router_e_k_and_r(size: str) -> None:
    architecture = get_size(size)
    for router in TECHNIQUES[1:]:
        for experts in (1, 2, 16, 512):
            for k in (1, 2, 4):
                for frequency in (1.0, 0.5, 0.25):
                    for positions in ("xl", "rope"):
                        if k > experts:
                            continue
                        made = count(
                            architecture, router, experts, k=k, routing_frequency=frequency, positions=positions
                        )
                        routed = round(architecture.blocks * frequency)
                        by_hand = by_the_formula(architecture, router, experts, k, routed, positions == "rope")
                        assert (made.active_params, made.total_params, made.flops_per_token) == by_hand


def test_a_number_of_routed_blocks_overrides_the_frequency() -> None:
    assert count(SMALL, "hash", 4, routed=1) == count(SMALL, "hash", 4, routing_frequency=0.25)
    assert count(SMALL, routed=0) == count(SMALL)


def test_a_technique_of_ones_own_counts_like_a_linear_router() -> None:
    assert count(SMALL, "My_Router", 8, k=2) == count(SMALL, "switch", 8, k=2)
