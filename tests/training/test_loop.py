"""Steps that nobody looks at: taken all the same, and what they skipped is told with the next that is read."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_runs import make_spec

from routelaw.corpus import Corpus
from routelaw.training import state as state_module
from routelaw.training.loop import train_steps
from routelaw.training.optimizer import Optimizer
from routelaw.training.state import DIVERGED, FINISHED, TrainState
from routelaw.training.step import StepInfo

CPU = torch.device("cpu")


def infos(corpus: Corpus, every: int, steps: int = 10) -> tuple[TrainState, list[StepInfo]]:
    spec = make_spec(corpus, "s-base", steps=steps)
    state = TrainState.start(spec, corpus, CPU, torch.float32)
    steps_taken = train_steps(state.model, state.optimizer, corpus, spec, look=lambda step: step % every == 0)
    return state, list(steps_taken)


def test_looking_seldom_changes_nothing_but_what_is_seen(tiny_corpus: Corpus) -> None:
    always, all_of_them = infos(tiny_corpus, 1)
    seldom, some = infos(tiny_corpus, 4)
    assert [info.step for info in some] == [4, 8, 10], "the last step is always read"
    assert [len(info.earlier) for info in some] == [3, 3, 1]
    for info in some:
        assert replace(info, earlier=()) == all_of_them[info.step - 1]
    for name, parameter in always.model.named_parameters():
        assert torch.equal(parameter, seldom.model.get_parameter(name))


@pytest.mark.parametrize("every", [1, 4, 10])
@pytest.mark.parametrize(("bad", "status"), [((2, 3, 7), FINISHED), ((3, 4, 5), DIVERGED)])
def test_skipped_steps_are_counted_whenever_one_looks(
    tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch, every: int, bad: tuple[int, ...], status: str
) -> None:
    honest, calls = Optimizer.gradient_norm, []

    def sometimes_infinite(self: Optimizer) -> torch.Tensor:
        calls.append(1)
        return honest(self) * (float("inf") if len(calls) in bad else 1.0)

    monkeypatch.setattr(Optimizer, "gradient_norm", sometimes_infinite)
    monkeypatch.setattr(state_module, "MOST_SKIPPED", 3)
    state, seen = infos(tiny_corpus, every)
    for info in seen:
        state.record(info)
    assert state.skipped == 3
    assert state.status == status
    assert state.skipped_in_a_row == 0
