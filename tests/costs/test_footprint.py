"""Memory before the run: exact for what is built, and close to what torch keeps and holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from memory_counting import Alive, built, kept_for_backward, some_tokens

from routelaw.costs import activations
from routelaw.costs.memory import ITEMSIZE, footprint
from routelaw.errors import InputError
from routelaw.evaluation.likelihood import token_losses
from routelaw.evaluation.texts import BATCH_TOKENS
from routelaw.model import relative_attention, token_loss
from routelaw.specs.counting import Architecture
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from routelaw.training.device import release
from routelaw.training.step import train_step

SMALL = Architecture(48, 3, 3, 20)
ROUTERS = {
    "dense": RouterSpec(),
    "hash": RouterSpec("hash", 4),
    "hash, K = 3": RouterSpec("hash", 8, k=3),
    "switch": RouterSpec("switch", 4),
    "switch, one expert": RouterSpec("switch", 1),
    "s-base": RouterSpec("s-base", 8, k=2, routing_frequency=1.0),
    "base": RouterSpec("base", 4),
    "rl-r": RouterSpec("rl-r", 4),
    "rl-r G": RouterSpec("rl-r", 4, options={"variant": "G"}),
    "rl-r BS, deeper": RouterSpec("rl-r", 4, options={"variant": "BS", "value_layers": 3}),
    "s-base, jitter": RouterSpec("s-base", 4, options={"jitter": 0.01}),
    "shared": RouterSpec("rl-r", 4, routing_frequency=1.0, shared_decisions=True),
    "stacked": RouterSpec("switch", 4, ffws_per_expert=3),
}


def make(
    router: RouterSpec,
    shape: Architecture = SMALL,
    length: int = 16,
    batch: int = 8,
    vocabulary: int = 200,
    **model: Any,
) -> RunSpec:
    return RunSpec(ModelSpec(shape, vocabulary, length, **model), router, TrainSpec(steps=9, batch=batch), "a corpus")


def size_of(tensors) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("precision", ITEMSIZE)
@pytest.mark.parametrize("positions", ["xl", "rope"])
@pytest.mark.parametrize("name", ROUTERS)
def test_what_is_built_is_counted_to_the_byte(name: str, positions: str, precision: str) -> None:
    assert_exact(make(ROUTERS[name], positions=positions), precision)


def test_many_experts_to_the_byte() -> None:
    assert_exact(make(RouterSpec("s-base", 512), get_size("0.2M"), vocabulary=2048), "bfloat16")


def assert_exact(spec: RunSpec, precision: str) -> None:
    model, optimizer = built(spec, precision)
    optimizer.gradient_norm()  # every parameter has a gradient then
    gradients = size_of(master.grad for master in optimizer.masters.values())
    optimizer.step(1e-3, torch.ones(()))
    masters = [master for name, master in optimizer.masters.items() if master is not optimizer.parameters[name]]
    statistics = [value for state in optimizer.statistics.values() for value in state.values()]
    found = footprint(spec, 1, precision)
    assert found.parameters == size_of(model.state_dict().values())
    assert (found.masters, found.gradients) == (size_of(masters), gradients)
    assert found.optimizer == size_of(statistics)
    assert found.checkpoint == size_of(model.state_dict().values()) + size_of(optimizer.state().values())


@pytest.mark.parametrize("name", [name for name in ROUTERS if name not in ("rl-r G", "switch, one expert")])
def test_the_counted_parameters_are_among_them(name: str) -> None:
    """The paper's count has neither embeddings, final LayerNorm nor router biases, and charges hash routers for E·d."""
    spec = make(ROUTERS[name])
    width, experts = spec.model.architecture.d_model, spec.router.experts
    routers = 1 if spec.router.shared_decisions else len(spec.routed_blocks)
    besides = 202 * width + routers * (-experts * width if spec.router.name == "hash" else experts)
    assert footprint(spec).gradients == 4 * (spec.counts.total_params + besides)


KEPT = [
    (make(RouterSpec()), 1),
    (make(RouterSpec(), length=256, batch=2), 1),
    (make(RouterSpec(), Architecture(64, 2, 2, 32), length=128, batch=4, vocabulary=3000), 2),
    (make(RouterSpec(), positions="rope", length=128), 1),
    (make(RouterSpec("hash", 8, k=4)), 1),
    (make(RouterSpec("switch", 8, capacity_factor=0.5)), 1),
    (make(RouterSpec("switch", 8, k=4)), 1),
    (make(RouterSpec("switch", 4, ffws_per_expert=3)), 1),
    (make(RouterSpec("s-base", 512, capacity_factor=4.0), length=64, batch=16), 1),  # what is dropped is not kept
    (make(RouterSpec("s-base", 8, group_tokens=64, routing_frequency=1.0)), 4),
    (make(RouterSpec("base", 64, options={"weight": "sigmoid"})), 1),
    (make(RouterSpec("rl-r", 512), length=64), 1),
    (make(RouterSpec("rl-r", 2, options={"value_layers": 40})), 1),
    (make(RouterSpec("switch", 8, options={"jitter": 0.01}, routing_frequency=1.0)), 1),
    (make(RouterSpec("rl-r", 8, k=2, shared_decisions=True, routing_frequency=1.0)), 1),
]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("number", range(len(KEPT)))
def test_activations_are_what_autograd_keeps(number: int, precision: str) -> None:
    spec, micro_batches = KEPT[number]
    found = footprint(spec, micro_batches, precision)
    kept = kept_for_backward(spec, micro_batches, precision)
    assert 0.94 < (found.activations + found.logits) / kept < 1.06


PEAKS = [
    (make(RouterSpec(), length=256, batch=32), 1),  # scores
    (make(RouterSpec(), length=16, batch=700, vocabulary=3000), 1),  # logits, in two pieces
    (make(RouterSpec("s-base", 64), length=64, batch=128), 2),
    (make(RouterSpec("hash", 8, k=4), length=16, batch=256), 1),
    (make(RouterSpec("switch", 256), length=64, batch=128), 1),
    (make(RouterSpec("hash", 256), length=64, batch=8), 1),  # the update
    (make(RouterSpec("hash", 128), length=16, batch=512), 4),  # gradients of the micro-batches before
]


@pytest.mark.parametrize(
    ("number", "precision"), [(n, "bfloat16" if n % 2 else "float32") for n in range(len(PEAKS))] + [(0, "bfloat16")]
)
def test_the_peak_is_the_most_that_is_alive(number: int, precision: str) -> None:
    spec, micro_batches = PEAKS[number]
    model, optimizer = built(spec, precision)
    tokens_BS = some_tokens(spec, spec.train.batch)
    train_step(model, optimizer, tokens_BS, spec, 0, micro_batches)
    fixed = [*model.parameters(), *model.buffers(), *optimizer.state().values()]
    training = Alive([*fixed, tokens_BS])
    with training:
        train_step(model, optimizer, tokens_BS, spec, 1, micro_batches)
    rows_BS = some_tokens(spec, BATCH_TOKENS // spec.model.sequence_length)
    evaluation = Alive([*fixed, rows_BS])
    with evaluation:
        token_losses(model, rows_BS)
    most = size_of(fixed) + max(training.most, evaluation.most)
    assert 0.9 < footprint(spec, micro_batches, precision).total / most < 1.1


@pytest.mark.parametrize("name", ["dense", "s-base"])
@pytest.mark.parametrize("positions", ["xl", "rope"])
def test_the_peak_where_blocks_are_computed_again(name: str, positions: str) -> None:
    shape = Architecture(32, 8, 2, 16)
    spec = make(RouterSpec() if name == "dense" else RouterSpec(name, 8), shape, 64, 64, positions=positions)
    model, optimizer = built(spec, "float32")
    model.recompute = True
    tokens_BS = some_tokens(spec, spec.train.batch)
    train_step(model, optimizer, tokens_BS, spec, 0)
    fixed = [*model.parameters(), *model.buffers(), *optimizer.state().values()]
    training = Alive([*fixed, tokens_BS])
    with training:
        train_step(model, optimizer, tokens_BS, spec, 1)
    found = footprint(spec, recompute=True)
    assert found.total < 0.6 * footprint(spec).total
    assert 0.85 < found.total / (size_of(fixed) + training.most) < 1.2


def test_evaluation_may_be_the_peak() -> None:
    """A training batch of a few tokens, and a large vocabulary."""
    spec = make(RouterSpec(), length=16, batch=2, vocabulary=3000)
    model, _ = built(spec, "float32")
    rows_BS = some_tokens(spec, BATCH_TOKENS // 16)
    alive = Alive([*model.parameters(), rows_BS])
    with alive:
        token_losses(model, rows_BS)
    found = footprint(spec)
    assert found.at_once > 10 * (found.activations + found.logits)
    assert 0.9 < found.at_once / alive.most < 1.1


def test_numbers_that_other_rooms_own() -> None:
    assert (activations.LOGIT_ROWS, activations.EVALUATED_TOKENS) == (token_loss.LOGIT_ROWS, BATCH_TOKENS)
    assert activations.PIECE == relative_attention.ROWS


def test_micro_batches_save_activations_alone() -> None:
    spec = make(RouterSpec("s-base", 4, group_tokens=16), batch=8)
    whole, pieces = footprint(spec), footprint(spec, 4)
    assert pieces.activations < 0.3 * whole.activations
    assert (pieces.parameters, pieces.gradients) == (whole.parameters, whole.gradients)


def test_fused_attention_keeps_less() -> None:
    spec = make(RouterSpec(), Architecture(64, 2, 2, 32), length=256)
    assert footprint(spec, 1, "bfloat16", gpu=True).activations < footprint(spec, 1, "bfloat16").activations


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InputError, match="not 'float16'"):
        footprint(make(RouterSpec()), 1, "float16")


@pytest.mark.filterwarnings("ignore")  # tracing, torch warns of itself
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
@pytest.mark.parametrize("router", [RouterSpec(), RouterSpec("s-base", 64), RouterSpec("rl-r", 8, k=2)], ids=str)
def test_the_peak_on_a_gpu(router: RouterSpec, precision: str) -> None:
    spec = make(router, get_size("0.8M"), length=256, batch=32, vocabulary=4096)
    spec = replace(spec, train=replace(spec.train, steps=100))
    release()  # or what another test left is freed on the way
    torch._C._cuda_clearCublasWorkspaces()  # a run's own take part in its peak
    before = torch.cuda.memory_allocated()
    model, optimizer = built(spec, precision, "cuda")
    tokens_BS = some_tokens(spec, spec.train.batch, "cuda")
    train_step(model, optimizer, tokens_BS, spec, 0)
    torch.cuda.reset_peak_memory_stats()
    train_step(model, optimizer, tokens_BS, spec, 1)
    most = torch.cuda.max_memory_allocated() - before
    assert 0.85 < footprint(spec, 1, precision, gpu=True).total / most < 1.15
