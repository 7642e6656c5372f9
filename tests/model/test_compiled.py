"""Blocks compile whole, one graph for the routed and one for the others, and a step more compiles nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import torch.compiler.config
from tiny_models import NAMES, model_of, spec_of, tokens
from torch._dynamo.testing import CompileCounterWithBackend

from routelaw import kernels, routers
from routelaw.specs.run import RunSpec
from routelaw.training.compiling import compile_blocks, our_code
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import train_step

pytestmark = pytest.mark.filterwarnings("ignore")  # tracing, torch warns of itself
ON_THE_HOST = "base"
"""Its exact assignment is no tensor program."""


def losses(spec: RunSpec, compiled: str | None, steps: int = 3, recompute: bool = False) -> tuple[list[float], int]:
    """Losses of a few steps with the norms of their gradients, and how many graphs they took."""
    torch._dynamo.reset()
    model = model_of(spec, torch.float32)
    model.recompute = recompute
    counter = CompileCounterWithBackend(compiled or "eager")
    for block in model.blocks if compiled else ():
        block.compile(fullgraph=True, dynamic=False, backend=counter)
    optimizer = Optimizer(model, spec.train)
    infos = [train_step(model, optimizer, tokens(seed=n), spec, n) for n in range(steps)]
    torch._dynamo.reset()
    return [figure for info in infos for figure in (info.loss, info.gradient_norm)], counter.frame_count


BLOCKS = [("dense", "xl"), ("dense", "rope"), *((name, "rope") for name in NAMES if name != ON_THE_HOST)]
SHORT = ("xl", "s-base")
"""The one that differs most, of positions and of routers; the others are left to `make test-all`."""


@pytest.mark.parametrize(
    ("name", "positions"),
    [pytest.param(*block, marks=[] if set(SHORT) & set(block) else pytest.mark.long) for block in BLOCKS],
)
def test_one_graph_for_each_kind_of_block(name: str, positions: str) -> None:
    options = {} if name == "dense" else {"experts": 4, "group_tokens": 16, "shuffle_groups": 2}
    spec = spec_of(name, positions=positions, **options)
    plain, _ = losses(spec, None)
    compiled, graphs = losses(spec, "aot_eager")
    assert compiled == pytest.approx(plain, rel=1e-5)
    assert graphs == (1 if name == "dense" else 2)
    if name == "s-base":
        again, graphs = losses(spec, "aot_eager", recompute=True)
        assert again == pytest.approx(plain, rel=1e-5)
        assert graphs == 2


def test_a_relative_temperature_compiles_into_the_same_graphs() -> None:
    options = {"relative_temperature": True, "temperature": 0.05}
    spec = spec_of("s-base", positions="rope", experts=4, group_tokens=16, shuffle_groups=2, options=options)
    compiled, graphs = losses(spec, "aot_eager")
    assert compiled == pytest.approx(losses(spec, None)[0], rel=1e-5)
    assert graphs == 2


@pytest.mark.parametrize(
    ("name", "options"), [("switch", {"jitter": 0.3}), ("rl-r", {"variant": "BS", "value_layers": 3})]
)
def test_options_that_draw_or_deepen_compile_whole(name: str, options: dict) -> None:
    spec = spec_of(name, experts=4, positions="rope", options=options)
    plain, _ = losses(spec, None)
    compiled, graphs = losses(spec, "aot_eager")
    assert compiled == pytest.approx(plain, rel=1e-5)
    assert graphs == 2
    assert plain != losses(spec_of(name, experts=4, positions="rope"), None)[0]


@pytest.mark.slow
def test_the_compiler_itself_computes_the_same() -> None:
    spec = spec_of("dense")
    assert losses(spec, "inductor", steps=2)[0] == pytest.approx(losses(spec, None, steps=2)[0], rel=1e-5)


@pytest.mark.parametrize("name", ["dense", *NAMES])
def test_blocks_computed_again_give_the_same_gradients(name: str) -> None:
    """To the bit: nothing of a decision depends on when it is made."""
    spec = spec_of(name, **({} if name == "dense" else {"experts": 4, "group_tokens": 16, "shuffle_groups": 2}))
    found = []
    for again in (False, True):
        model = model_of(spec, torch.float32)
        model.recompute = again
        optimizer = Optimizer(model, spec.train)
        infos = [train_step(model, optimizer, tokens(seed=n), spec, n) for n in range(3)]
        found.append((infos, [p.detach().clone() for p in model.parameters()]))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(a, b) for a, b in zip(found[0][1], found[1][1], strict=True))


def test_what_was_compiled_counts_for_this_code_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An operation's registered gradient is not part of what torch knows a graph by."""
    before = our_code.__wrapped__()
    assert before == our_code()
    for package in (kernels, routers):
        copy = tmp_path / package.__name__
        shutil.copytree(package.__path__[0], copy)
        with (copy / "__init__.py").open("a") as file:
            file.write("# another gradient\n")
        with monkeypatch.context() as patch:
            patch.setattr(package, "__path__", [str(copy)])
            assert our_code.__wrapped__() != before
    with torch.compiler.config.patch(cache_key_tag=""):
        compile_blocks(model_of(spec_of("dense"), torch.float32))
        assert torch.compiler.config.cache_key_tag == before
