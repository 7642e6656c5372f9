"""What would change nothing is refused when a run is trained: it would give one model many ids."""

from dataclasses import replace

import pytest

from routelaw.errors import InputError
from routelaw.routers.router import all_routers, check_router
from routelaw.specs.counting import Architecture
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec


def spec(name: str, **fields: object) -> RunSpec:
    model = ModelSpec(Architecture(16, 4, 2, 8), vocabulary=64, sequence_length=8)
    return RunSpec(model, RouterSpec(name, 4, **fields), TrainSpec(steps=10, batch=8), "corpus")


@pytest.mark.parametrize(
    ("name", "fields", "named"),
    [
        ("rl-r", {"options": {"nucleus": 0.5}}, "router.options.nucleus"),
        ("rl-r", {"options": {"variant": "B", "importance": True}}, "router.options.importance"),
        ("rl-r", {"options": {"variant": "G", "nucleus": 0.9}}, "router.options.nucleus"),
        ("rl-r", {"options": {"variant": "G", "value_weight": 0.1}}, "router.options.value_weight"),
        ("rl-r", {"options": {"variant": "G", "importance": False}}, "router.options.importance"),
        ("rl-r", {"options": {"variant": "S", "value_weight": 0.1}}, "router.options.value_weight"),
        ("rl-r", {"options": {"variant": "G", "value_layers": 2}}, "router.options.value_layers"),
        ("rl-r", {"options": {"variant": "S", "value_loss": "squared"}}, "router.options.value_loss"),
        ("hash", {"balance_weight": 0.1}, "router.balance_weight"),
        ("hash", {"capacity_factor": 0.0, "group_tokens": 16}, "router.group_tokens"),
        ("hash", {"capacity_factor": 0.0, "shuffle_groups": 2}, "router.shuffle_groups"),
        ("switch", {"capacity_factor": 0.0, "shared_slots": 2}, "router.shared_slots"),
        ("base", {"capacity_factor": 1.5}, "router.capacity_factor"),
        ("switch", {"placement": "2,4", "routing_frequency": 0.6}, "router.routing_frequency"),
        ("s-base", {"k": 4, "options": {"relative_temperature": True}}, "router.options.relative_temperature"),
        ("base", {"capacity_factor": 0.0}, "router.capacity_factor"),
    ],
)
def test_a_field_without_effect_is_refused_and_named(name: str, fields: dict, named: str) -> None:
    with pytest.raises(InputError, match=f"^{named} has no effect, since "):
        check_router(spec(name, **fields))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("rl-r", {"options": {"variant": "S", "nucleus": 0.5, "importance": True}}),
        ("rl-r", {"options": {"variant": "B", "value_weight": 0.1, "entropy_weight": 0.1, "policy_weight": 1.0}}),
        ("rl-r", {"options": {"variant": "G", "entropy_weight": 0.1, "temperature": 2.0, "reward": "p"}}),
        ("rl-r", {"options": {"variant": "BS", "nucleus": 0.5, "importance": True, "value_weight": 0.1}}),
        ("rl-r", {"options": {"value_layers": 2, "value_loss": "squared"}}),
        ("switch", {"options": {"jitter": 0.01}}),
        ("s-base", {"k": 4, "options": {"jitter": 0.01}}),
        ("hash", {"group_tokens": 16, "capacity_factor": 1.0, "shuffle_groups": 2}),
        ("s-base", {"k": 3, "options": {"relative_temperature": True, "temperature": 0.05}}),
        ("switch", {"balance_weight": 0.0, "capacity_factor": 0.0, "group_tokens": 16}),
        ("base", {"capacity_factor": 0.5, "shared_slots": 2}),
    ],
)
def test_what_has_an_effect_is_not(name: str, fields: dict) -> None:
    check_router(spec(name, **fields))


@pytest.mark.parametrize("name", all_routers())
def test_no_router_complains_of_its_own_defaults(name: str) -> None:
    check_router(spec(name))


def test_the_sentence_says_which_variants_an_option_is_for() -> None:
    with pytest.raises(InputError, match="it belongs to variants S and BS of router rl-r, and this is B: leave it out"):
        check_router(spec("rl-r", options={"importance": True}))
    with pytest.raises(InputError, match="it belongs to variants B and BS of router rl-r, and this is G: leave it out"):
        check_router(spec("rl-r", options={"variant": "G", "value_layers": 1}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"value_loss": "l1"}, "option value_loss of router rl-r is huber or squared, not 'l1'"),
        ({"variant": "SB"}, "option variant of router rl-r is B or G or S or BS, not 'SB'"),
        ({"value_layers": 0}, "router.options.value_layers must be a whole number from 1 to 100, not 0"),
        ({"value_layers": 101}, "must be a whole number from 1 to 100"),
        ({"value_layers": True}, "value_layers must be a whole number"),
        ({"value_layers": 1.5}, "value_layers must be a whole number"),
        ({"value_layers": "two"}, "value_layers must be a whole number"),
    ],
)
def test_a_value_network_that_cannot_be_is_refused(options: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_router(spec("rl-r", options=options))


@pytest.mark.parametrize("layers", [-1, 0, "two"])
def test_nor_is_it_counted(layers: object) -> None:
    with pytest.raises(InputError, match="value_layers must be a whole number from 1 to 100"):
        _ = spec("rl-r", options={"value_layers": layers}).counts


def test_a_deeper_value_network_is_counted() -> None:
    """Each hidden layer after the first is (d/8)² parameters more in every routed block, and two FLOPs for each."""
    base, deep = spec("rl-r", options={"variant": "BS"}), spec("rl-r", options={"variant": "BS", "value_layers": 4})
    more = len(base.routed_blocks) * 3 * 2**2
    assert spec("rl-r").counts == base.counts
    assert deep.counts.total_params - base.counts.total_params == more
    assert deep.counts.flops_per_token - base.counts.flops_per_token == 2 * more
    assert deep.counts.active_params == base.counts.active_params


@pytest.mark.parametrize("name", ["s-base", "switch"])
@pytest.mark.parametrize("jitter", [-0.1, 1.0, 2.0])
def test_a_jitter_that_cannot_be_is_refused(name: str, jitter: float) -> None:
    with pytest.raises(InputError, match=f"option jitter of router {name} must be at least 0 and below 1"):
        check_router(spec(name, options={"jitter": jitter}))


def test_variants_of_rl_r_are_counted_without_the_value_network_they_do_not_have() -> None:
    """The difference is the network itself: d·d/8 + d/8 parameters in each routed block, two FLOPs each."""
    with_it = spec("rl-r")
    routed, network = len(with_it.routed_blocks), 16 * 2 + 2
    for variant in ("G", "S"):
        without = replace(with_it, router=replace(with_it.router, options={"variant": variant}))
        assert with_it.counts.total_params - without.counts.total_params == routed * network
        assert with_it.counts.flops_per_token - without.counts.flops_per_token == 2 * routed * network
        assert without.counts.active_params == with_it.counts.active_params
