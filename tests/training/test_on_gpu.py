"""bfloat16 on a GPU with float32 masters: it learns, resumes, and may go on on a CPU."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
import torch
from test_run import Stopped, stop_after
from tiny_runs import EXECUTION, ROUTERS, make_spec

from routelaw.corpus import Corpus
from routelaw.specs.counting import Architecture
from routelaw.specs.run import ExecutionSpec, RunSpec
from routelaw.training.compiling import GraphedStep
from routelaw.training.run import Progress, run
from routelaw.training.state import TrainState
from routelaw.training.step import StepInfo, take_step

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
pytestmark.append(pytest.mark.filterwarnings("ignore"))  # tracing, torch warns of itself
GPU = replace(EXECUTION, device="cuda", threads=0)


def followed(spec: RunSpec, execution: ExecutionSpec, corpus: Corpus, folder: Path, last: int = 0) -> dict[int, float]:
    """Training losses by step of a run that goes on from where the folder stands, to its end or after `last`."""
    losses: dict[int, float] = {}

    def observe(progress: Progress) -> None:
        losses[progress.info.step] = progress.info.loss
        if progress.info.step == last:
            raise Stopped

    with pytest.raises(Stopped) if last else nullcontext():
        run(spec, replace(execution, log_every=1), corpus, folder, observe=observe)
    return losses


@pytest.mark.parametrize("name", ROUTERS)
def test_learns_and_continues(tiny_corpus: Corpus, tmp_path: Path, name: str) -> None:
    """On the same device, and on another in another precision. The steps after the stop are compared, not the ends:
    at this learning rate a difference in rounding grows tenfold in ten steps."""
    spec = make_spec(tiny_corpus, name, steps=40, learning_rate=1e-2)
    spec = replace(spec, model=replace(spec.model, architecture=Architecture(64, 2, 2, 32)))
    whole = followed(spec, GPU, tiny_corpus, tmp_path / "whole")
    assert len(whole) == 40
    assert run_loss(tmp_path / "whole") < 4.5
    for folder, then in (("again", GPU), ("cpu", replace(GPU, device="cpu"))):
        before = followed(spec, GPU, tiny_corpus, tmp_path / folder, last=17)
        after = followed(spec, then, tiny_corpus, tmp_path / folder)
        assert min(after) == 16, "saved every third step"
        assert after[16] == pytest.approx(before[16], abs=0.03)
        assert run_loss(tmp_path / folder) < 4.5


@pytest.mark.parametrize("name", [name for name in ROUTERS if name != "base"])
@pytest.mark.parametrize("positions", ["xl", "rope"])
def test_a_step_waits_for_nothing(tiny_corpus: Corpus, name: str, positions: str) -> None:
    """BASE is solved on the host; all others leave the GPU to itself once everything is there."""
    spec = make_spec(tiny_corpus, name, steps=40, batch=8, model={"positions": positions})
    spec = replace(spec, model=replace(spec.model, architecture=Architecture(64, 2, 2, 32)))
    state = TrainState.start(spec, tiny_corpus, torch.device("cuda"), torch.bfloat16)
    shape = (8, spec.model.sequence_length + 1)
    tokens_BS = torch.randint(spec.model.vocabulary, shape, device="cuda")
    for step in range(2):
        take_step(state.model, state.optimizer, tokens_BS, spec, step)
    torch.cuda.set_sync_debug_mode("error")
    try:
        outcome = take_step(state.model, state.optimizer, tokens_BS, spec, 2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not outcome.read().skipped


def test_a_step_that_is_not_finite_updates_nothing(tiny_corpus: Corpus) -> None:
    spec = make_spec(tiny_corpus, "s-base", steps=40, batch=8)
    state = TrainState.start(spec, tiny_corpus, torch.device("cuda"), torch.bfloat16)
    tokens_BS = torch.randint(spec.model.vocabulary, (8, spec.model.sequence_length + 1), device="cuda")
    assert not take_step(state.model, state.optimizer, tokens_BS, spec, 0).read().skipped
    before = {name: value.clone() for name, value in state.optimizer.state().items()}
    with torch.no_grad():
        state.model.final_norm.weight[0] = torch.nan
    assert take_step(state.model, state.optimizer, tokens_BS, spec, 1).read().skipped
    assert all(torch.equal(before[name], value) for name, value in state.optimizer.state().items())


@pytest.mark.parametrize("name", [name for name in ROUTERS if name != "base"])
def test_recorded_steps_are_the_steps(tiny_corpus: Corpus, tmp_path: Path, name: str) -> None:
    """A recorded run ends where a compiled one does, and goes on where it stood."""
    spec = make_spec(tiny_corpus, name, steps=30, learning_rate=1e-2)
    spec = replace(spec, model=replace(spec.model, architecture=Architecture(64, 2, 2, 32)))
    losses, norms = {}, {}
    for way in ("off", "blocks", "step"):
        seen: list[StepInfo] = []
        execution = replace(GPU, compile=way, log_every=1)
        run(spec, execution, tiny_corpus, tmp_path / way, observe=lambda p, seen=seen: seen.append(p.info))
        losses[way], norms[way] = [i.loss for i in seen], [i.gradient_norm for i in seen]
    assert len(losses["step"]) == 30
    for way in ("off", "blocks"):  # rounding grows, so the first ones; a gradient that is missing shows at once
        assert losses["step"][:5] == pytest.approx(losses[way][:5], abs=5e-2)
        assert norms["step"][:3] == pytest.approx(norms[way][:3], rel=5e-2)
        assert mean(losses["step"][-10:]) == pytest.approx(mean(losses[way][-10:]), abs=0.3)
    with pytest.raises(Stopped):
        run(spec, replace(GPU, compile="step"), tiny_corpus, tmp_path / "again", observe=stop_after(17))
    result = run(spec, replace(GPU, compile="step"), tiny_corpus, tmp_path / "again")
    assert result.loss_validation == pytest.approx(run_loss(tmp_path / "step"), abs=0.3)


def run_loss(folder: Path) -> float:
    return json.loads((folder / "result.json").read_text())["loss_validation"]


def test_a_recorded_step_skips_what_is_not_finite(tiny_corpus: Corpus) -> None:
    spec = make_spec(tiny_corpus, "s-base", steps=40, batch=8)
    state = TrainState.start(spec, tiny_corpus, torch.device("cuda"), torch.bfloat16)
    take = GraphedStep(state.model, state.optimizer, spec)
    tokens_BS = torch.randint(spec.model.vocabulary, (8, spec.model.sequence_length + 1), device="cuda")
    for step in range(6):
        assert not take(tokens_BS, step).read().skipped
    before = {name: value.clone() for name, value in state.optimizer.state().items()}
    kept = state.model.final_norm.weight.detach().clone()
    with torch.no_grad():
        state.model.final_norm.weight[0] = torch.nan
    assert take(tokens_BS, 6).read().skipped
    assert all(torch.equal(before[name], value) for name, value in state.optimizer.state().items())
    with torch.no_grad():
        state.model.final_norm.weight.copy_(kept)
    assert not take(tokens_BS, 7).read().skipped
