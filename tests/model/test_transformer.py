"""The whole model: one expert is none, splits and threads change nothing, the parameters are those counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from tiny_models import NAMES, SEQUENCE, VOCABULARY, gradients, loss_of, model_of, spec_of, tokens, training_context

from routelaw.errors import InputError
from routelaw.model.transformer import StepContext, Transformer
from routelaw.specs.counting import Architecture
from routelaw.specs.run import RunSpec
from routelaw.specs.sizes import get_size
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import train_step

VARIANTS = [
    {}, {"k": 2}, {"routing_frequency": 1.0}, {"placement": "1,2,4"}, {"shared_decisions": True, "k": 2},
    {"ffws_per_expert": 3}, {"ffws_per_expert": 2, "shared_decisions": True, "placement": "interior"},
]  # fmt: skip


def named(model: Transformer, *, without: str = "") -> dict[str, torch.Tensor]:
    return {name: p for name, p in model.named_parameters() if not without or without not in name}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("capacity", [0.0, 2.0])
@pytest.mark.parametrize("name", NAMES)
def test_one_expert_is_the_dense_model_bit_for_bit(name: str, capacity: float, dtype: torch.dtype) -> None:
    """Also where there are weights (a softmax over one expert is exactly 1), a policy (sure of its only choice) or a
    value network (which sees detached input)."""
    dense = model_of(spec_of(), dtype)
    routed = model_of(spec_of(name, 1, capacity_factor=capacity, group_tokens=2 * SEQUENCE), dtype)
    ours, theirs = named(routed, without=".router."), named(dense)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[n], theirs[n]) for n in theirs)
    batch = tokens()
    assert torch.equal(loss_of(dense, batch)[1], loss_of(routed, batch)[1])
    of_dense, of_routed = gradients(dense, batch), gradients(routed, batch)
    assert all(torch.equal(of_dense[n], of_routed[n]) for n in of_dense)
    assert all(of_dense[n].abs().sum() > 0 for n in of_dense)


@pytest.mark.parametrize("positions", ["xl", "rope"])
def test_stacked_ffws_of_one_expert_differ_from_dense(positions: str) -> None:
    plain, stacked = (model_of(spec_of("hash", 1, positions=positions, ffws_per_expert=n)) for n in (1, 2))
    assert loss_of(plain, tokens())[1] != loss_of(stacked, tokens())[1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "options", [{}, {"k": 2, "capacity_factor": 0.5}, {"shared_decisions": True, "capacity_factor": 1.0}]
)
def test_splitting_between_groups_changes_no_gradient(name: str, options: dict) -> None:
    spec = spec_of(name, 4, group_tokens=SEQUENCE, shuffle_groups=2, **options)
    whole, halves = (gradients(model_of(spec), tokens(), pieces) for pieces in (1, 2))
    for parameter, gradient in whole.items():
        torch.testing.assert_close(halves[parameter], gradient, rtol=1e-12, atol=1e-12, msg=parameter)


@pytest.mark.parametrize(("name", "experts"), [("dense", 1), ("hash", 4)])
def test_dense_and_dropless_hash_are_exact_at_any_split(name: str, experts: int) -> None:
    options = {} if name == "dense" else {"capacity_factor": 0.0, "k": 2}
    model = model_of(spec_of(name, experts, **options))
    whole = gradients(model, tokens())
    for pieces in (2, 4):
        split = gradients(model, tokens(), pieces)
        for parameter, gradient in whole.items():
            torch.testing.assert_close(split[parameter], gradient, rtol=1e-12, atol=1e-13, msg=parameter)


@pytest.mark.parametrize("name", NAMES)
def test_shared_decisions_are_those_of_the_first_routed_block(name: str) -> None:
    spec = spec_of(name, 4, k=2, shared_decisions=True, routing_frequency=1.0, capacity_factor=0.5)
    model, ids_BS = model_of(spec), tokens()[:, :-1]
    layers = model(ids_BS, training_context(spec, ids_BS)).layers
    assert [layer.block for layer in layers] == [1, 2, 3, 4]
    assert [block.router is not None for block in model.blocks] == [True, False, False, False]
    assert all(layer.routing is layers[0].routing for layer in layers)
    assert all(torch.equal(layer.kept_N, layers[0].kept_N) for layer in layers)
    alone = model_of(replace(spec, router=replace(spec.router, shared_decisions=False)))
    first = alone(ids_BS, training_context(spec, ids_BS)).layers[0]
    assert torch.equal(first.routing.expert_N, layers[0].routing.expert_N)


def exceptions(spec: RunSpec) -> int:
    """Parameters of a built model beyond those counted: embeddings, final norm, router biases; hash has no router."""
    d, router = spec.model.architecture.d_model, spec.router
    more = spec.model.vocabulary * d + 2 * d
    deciding = spec.routed_blocks[:1] if router.shared_decisions else spec.routed_blocks
    for _ in deciding:
        if router.name == "hash":
            more -= router.experts * d
        else:
            more += router.experts
    return more


@pytest.mark.parametrize("positions", ["xl", "rope"])
@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_the_parameters_built_are_those_counted(name: str, options: dict, positions: str) -> None:
    spec = spec_of(name, 8, positions=positions, architecture=Architecture(24, 4, 3, 4), **options)
    built = sum(p.numel() for p in Transformer(spec).parameters())
    assert built == spec.counts.total_params + exceptions(spec)


@pytest.mark.parametrize("options", [{"variant": "G"}, {"variant": "S"}, {"variant": "BS", "value_layers": 3}], ids=str)
def test_a_policy_is_counted_with_the_value_network_it_has(options: dict) -> None:
    spec = spec_of("rl-r", 4, options=options)
    assert sum(p.numel() for p in Transformer(spec).parameters()) == spec.counts.total_params + exceptions(spec)


@pytest.mark.parametrize("size", ["0.2M", "0.8M", "15M"])
def test_dense_models_of_named_sizes(size: str) -> None:
    spec = spec_of(architecture=get_size(size))
    built = sum(p.numel() for p in Transformer(spec).parameters())
    assert built == spec.counts.active_params + (VOCABULARY + 2) * spec.model.architecture.d_model


def test_experts_and_equal_parts_of_other_models_start_as_they_should() -> None:
    """Experts are drawn independently; what two models share starts equal; residual outputs start smaller."""
    eight, four = Transformer(spec_of("switch", 8)), Transformer(spec_of("switch", 4, routing_frequency=1.0))
    up_EDF = eight.blocks[1].experts.up[0]
    assert torch.equal(up_EDF[:4], four.blocks[1].experts.up[0])
    assert not torch.equal(up_EDF[0], up_EDF[1])
    assert torch.equal(eight.embedding, four.embedding)
    assert (eight.blocks[1].router.bias == 0).all()
    assert abs(float(up_EDF.detach().std()) - 0.02) < 0.001
    assert abs(float(eight.blocks[1].experts.down[0].detach().std()) - 0.02 / 8**0.5) < 0.0004
    other = Transformer(replace(spec_of("switch", 8), train=replace(eight.spec.train, seed=4)))
    assert not torch.equal(other.embedding, eight.embedding)


def test_credit_by_sequence_reaches_the_router() -> None:
    spec = spec_of("rl-r", 4, options={"credit": "sequence"})
    assert loss_of(model_of(spec), tokens())[0].isfinite()


def test_what_a_technique_cannot_do_is_refused_before_any_step() -> None:
    with pytest.raises(InputError, match="experts do not divide"):
        Transformer(spec_of("base", 7))


@pytest.fixture
def two_threads_deterministic() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("two_threads_deterministic")
@pytest.mark.parametrize("name", ["dense", *NAMES])
def test_three_steps_with_two_threads_are_bit_identical(name: str) -> None:
    options = {} if name == "dense" else {"k": 2, "capacity_factor": 1.0, "ffws_per_expert": 2}
    spec = spec_of(name, 1 if name == "dense" else 4, architecture=Architecture(64, 2, 2, 32), **options)
    spec = replace(
        spec, model=replace(spec.model, sequence_length=32, vocabulary=512), train=replace(spec.train, batch=8)
    )
    ends = []
    for _ in range(2):
        model = Transformer(spec)
        optimizer = Optimizer(model, spec.train)
        losses = [train_step(model, optimizer, tokens(8, 33, 512, seed=step), spec, step).loss for step in range(3)]
        ends.append((losses, {n: p.detach().clone() for n, p in model.named_parameters()}))
    assert ends[0][0] == ends[1][0]
    assert all(torch.equal(ends[0][1][n], ends[1][1][n]) for n in ends[0][1])


def test_the_shuffle_deals_tokens_within_blocks_and_differs_by_layer_and_step():
    index_T = torch.arange(128)
    step = StepContext(0, 3, index_T, index_T.view(8, 16), torch.ones(128, dtype=torch.bool), True, shuffle_groups=4)
    members = step.members_of(2)
    for block in (slice(0, 4), slice(4, 8)):  # two blocks of four groups: tokens stay in their block
        inside = members[block].flatten().sort().values
        assert torch.equal(inside, index_T.view(8, 16)[block].flatten())
    assert not torch.equal(members, step.members_of(4))
    assert not torch.equal(members, replace(step, step=4).members_of(2))
    # A device that holds the second block alone deals it in the same way.
    alone = StepContext(0, 3, index_T[64:], torch.arange(64).view(4, 16), torch.ones(64, dtype=torch.bool), True, 4)
    assert torch.equal(alone.members_of(2) + 64, members[4:])
