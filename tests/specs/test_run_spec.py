"""What a run is called, and what it may not be."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from routelaw.errors import InputError
from routelaw.specs.counting import count
from routelaw.specs.run import ExecutionSpec, ModelSpec, RouterSpec, RunSpec, TrainSpec, meaning_of
from routelaw.specs.sizes import get_size

CORPUS = "0123456789abcdef"


def spec(
    router: RouterSpec | None = None, model: dict[str, Any] | None = None, size: str = "0.8M", **train: Any
) -> RunSpec:
    return RunSpec(
        ModelSpec(get_size(size), **(model or {})), router or RouterSpec(), TrainSpec(**{"steps": 100, **train}), CORPUS
    )


def routed(**changes: Any) -> RunSpec:
    return spec(RouterSpec(**{"name": "s-base", "experts": 8, **changes}))


GOLDEN = {
    "dense": (spec(), "6734725b6376"),
    "paper": (spec(RouterSpec("s-base", 64), size="370M", steps=250_000), "0378d82128b4"),
    "options": (
        spec(RouterSpec("rl-r", 8, options={"variant": "S", "importance": True}), batch=32, seed=1),
        "a3be734ac4c9",
    ),
    "many": (
        spec(
            RouterSpec("hash", 16, 2, 0.25, capacity_factor=1.0, shared_slots=4, ffws_per_expert=2),
            {"positions": "rope", "sequence_length": 256, "vocabulary": 4096},
            batch=16,
            learning_rate=1e-3,
        ),
        "357d8fe13240",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_ids(name: str) -> None:
    """If one of these fails, every run that exists has lost its name: change the code, not the id."""
    made, expected = GOLDEN[name]
    assert made.run_id == expected


def test_what_is_hashed_is_what_differs_from_the_defaults() -> None:
    made = spec(RouterSpec("switch", 8, balance_weight=0.0), batch=64)
    assert meaning_of(made) == {
        "model": {"architecture": {"d_model": 128, "blocks": 4, "heads": 4, "kv_size": 32}},
        "router": {"name": "switch", "experts": 8, "balance_weight": 0},
        "train": {"steps": 100, "batch": 64},
        "corpus": CORPUS,
    }


@dataclass(frozen=True)
class LaterRouterSpec(RouterSpec):
    jitter: float = 0.25


@dataclass(frozen=True)
class LaterTrainSpec(TrainSpec):
    schedule: str = "cosine"


def test_a_field_added_later_changes_no_id() -> None:
    made = routed(k=2)
    own = {f.name: getattr(made.router, f.name) for f in fields(RouterSpec)}
    grown = replace(made, router=LaterRouterSpec(**own), train=LaterTrainSpec(steps=100))
    assert grown.run_id == made.run_id
    assert grown.variant == made.variant
    assert replace(grown, router=LaterRouterSpec(**own, jitter=0.5)).run_id != made.run_id


@pytest.mark.parametrize(
    "changed",
    [
        routed(k=2),
        routed(experts=16),
        routed(options={"tolerance": 0.1}),
        routed(balance_weight=0.01),
        routed(routing_frequency=0.25),
        replace(routed(), corpus="another"),
        replace(routed(), train=TrainSpec(steps=101)),
        replace(routed(), train=TrainSpec(steps=100, seed=1)),
    ],
)
def test_another_meaning_is_another_id(changed: RunSpec) -> None:
    assert changed.run_id != routed().run_id


def test_spelling_is_not_meaning() -> None:
    assert routed(name="S_Base").run_id == routed().run_id
    assert routed(placement="4, 2").run_id == routed(placement="2,4").run_id
    assert routed(capacity_factor=1).run_id == routed(capacity_factor=1.0).run_id
    assert routed(options={"tolerance": 1}).run_id == routed(options={"tolerance": 1.0}).run_id
    one, two = {"tolerance": 0.5, "max_iterations": 9}, {"max_iterations": 9, "tolerance": 0.5}
    assert routed(options=one).run_id == routed(options=two).run_id
    assert routed(options=one).variant == routed(options=two).variant == "max_iterations=9,tolerance=0.5"


def test_what_is_spelled_out_is_meant_even_at_the_techniques_own_default() -> None:
    assert routed(balance_weight=0.01).run_id != routed(balance_weight=None).run_id


def test_execution_is_no_part_of_a_run() -> None:
    assert not {f.name for f in fields(ExecutionSpec)} & {f.name for f in fields(RunSpec)}
    assert "execution" not in meaning_of(routed())


@pytest.mark.parametrize(
    ("made", "variant"),
    [
        (spec(), ""),
        (routed(k=2, experts=16, routing_frequency=0.25), ""),
        (routed(shared_decisions=True), "shared_decisions"),
        (routed(capacity_factor=0, shared_slots=4), "capacity_factor=0,shared_slots=4"),
        (routed(placement="2,4"), "placement=2+4"),
        (routed(options={"tolerance": 0.5}, ffws_per_expert=2), "ffws_per_expert=2,tolerance=0.5"),
        (spec(model={"positions": "rope"}), "positions=rope"),
        (spec(RouterSpec("hash", 4, options={"scheme": "random", "permuted": False})), "permuted=false,scheme=random"),
    ],
)
def test_variants(made: RunSpec, variant: str) -> None:
    assert made.variant == variant


def test_knobs_are_few() -> None:
    """About twenty for any one run: 28 fields of meaning, of which eight (K, R, placement, slots, group, shuffle,
    shared decisions, FFWs per expert) are what the paper compares, and stay alone unless that is the study.

    Room for two more. Whoever needs a third finds one that can be derived, or makes it an option of its technique.
    """
    assert sum(len(fields(kind)) for kind in (ModelSpec, RouterSpec, TrainSpec)) <= 30


def test_counts_come_from_the_placement() -> None:
    made = routed(placement="2,3,4", k=2)
    assert made.routed_blocks == (2, 3, 4)
    assert made.routing_frequency == 0.75
    assert made.counts == count(get_size("0.8M"), "s-base", 8, k=2, routed=3)
    assert routed().routing_frequency == 0.5
    assert spec().routed_blocks == ()
    assert spec().counts == count(get_size("0.8M"))
    assert routed(name="mine").counts == routed(name="switch").counts


@pytest.mark.parametrize(
    ("batch", "shuffle", "sequences"), [(256, 1, 8), (4, 1, 4), (12, 1, 6), (11, 1, 1), (16, 4, 4), (32, 4, 8)]
)
def test_groups_nobody_asked_for_are_whole(batch: int, shuffle: int, sequences: int) -> None:
    made = spec(RouterSpec("s-base", 8, shuffle_groups=shuffle), batch=batch)
    assert made.group_tokens == sequences * 2048


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("router", "model", "train", "sentence"),
    [
        ({}, {}, {"steps": 0}, "train.steps must be above 0, not 0"),
        ({}, {}, {"batch": -1}, "train.batch must be above 0, not -1"),
        ({}, {}, {"learning_rate": NAN}, "train.learning_rate must be a finite number, not nan"),
        ({}, {}, {"learning_rate": INF}, "train.learning_rate must be a finite number, not inf"),
        ({}, {}, {"clip": 0.0}, "train.clip must be above 0"),
        ({}, {}, {"weight_decay": -0.1}, "train.weight_decay must be 0 or more, not -0.1"),
        ({}, {}, {"warmup_steps": -1}, "train.warmup_steps must be 0 or more"),
        ({}, {}, {"beta2": 1.0}, "train.beta2 must be at least 0 and below 1, not 1"),
        ({}, {}, {"final_share": 1.5}, "train.final_share must be at least 0 and at most 1, not 1.5"),
        ({}, {}, {"seed": 2**63}, "train.seed must be a whole number from 0"),
        ({}, {"sequence_length": 0}, {}, "model.sequence_length must be above 0"),
        ({}, {"vocabulary": 0}, {}, "model.vocabulary must be above 0"),
        ({}, {"positions": "sine"}, {}, "model.positions is xl or rope, not 'sine'"),
        ({"name": "dense"}, {}, {}, "a dense model has one expert, not 8; name a router to have more"),
        ({"name": "dense", "experts": 1, "k": 2}, {}, {}, "a dense model has no router that router.k could be for"),
        ({"k": 0}, {}, {}, "router.k must lie between 1 and experts = 8, not 0"),
        ({"k": 9}, {}, {}, "router.k must lie between 1 and experts = 8, not 9"),
        ({"experts": 0}, {}, {}, "router.experts must be above 0"),
        ({"capacity_factor": -1.0}, {}, {}, "router.capacity_factor must be 0 or more"),
        ({"capacity_factor": INF}, {}, {}, "router.capacity_factor must be a finite number"),
        ({"balance_weight": -1.0}, {}, {}, "router.balance_weight must be 0 or more"),
        ({"shared_slots": 3}, {}, {}, "router.shared_slots = 3 must divide experts = 8"),
        ({"ffws_per_expert": 0}, {}, {}, "router.ffws_per_expert must be above 0"),
        ({"group_tokens": -2048}, {}, {}, "router.group_tokens must be 0 or more"),
        ({"group_tokens": 100}, {}, {}, "must be a whole number of sequences of 2048"),
        ({"group_tokens": 3 * 2048}, {}, {}, "does not hold whole shuffle blocks of 6144"),
        ({"shuffle_groups": 3}, {}, {}, "does not hold whole shuffle blocks"),
        ({"shuffle_groups": 0}, {}, {}, "router.shuffle_groups must be above 0"),
        ({"routing_frequency": 0.0}, {}, {}, "above 0 and at most 1"),
        ({"routing_frequency": 0.01}, {}, {}, "routes none of the 4 blocks"),
        ({"placement": "2,9"}, {}, {}, "distinct blocks between 1 and 4"),
        ({"placement": "first"}, {}, {}, "placement is even, interior, or block numbers"),
        (
            {"placement": "2,3", "routing_frequency": 1.0},
            {},
            {},
            "names 2 blocks and router.routing_frequency = 1 asks",
        ),
        ({"options": {"when": object()}}, {}, {}, "router.options.when must be text, a number or true or false"),
        ({"options": {"tolerance": NAN}}, {}, {}, "router.options.tolerance must be"),
    ],
)
def test_what_cannot_be_is_one_sentence(router: dict, model: dict, train: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        spec(RouterSpec(**{"name": "s-base", "experts": 8, **router}) if router else None, model, **train)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_rotary_positions_turn_pairs() -> None:
    odd = replace(get_size("0.8M"), kv_size=31)
    with pytest.raises(InputError, match="kv_size must be even, not 31"):
        RunSpec(ModelSpec(odd, positions="rope"), RouterSpec(), TrainSpec(1), CORPUS)
