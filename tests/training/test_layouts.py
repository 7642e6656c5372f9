"""A run means the same on any layout of processes: losses, gradients, drops and loads, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from routelaw.specs.layout import Layout
from verification.layout_equality import RESHARDED, LayoutCase, Stretch, checkpointed, compare, spawned

MOST = {torch.float64: 1e-10, torch.float32: 1e-5}
PAIRS = [LayoutCase(Layout(1, 2, 1), 2, torch.float64, 2)]
OTHERS = [
    *(LayoutCase(Layout(*sides), 1, torch.float64, 2) for sides in ((2, 1, 1), (1, 1, 2), (2, 2, 1), (1, 2, 2))),
    LayoutCase(Layout(1, 2, 1), 1, torch.float32, 1),
]


@pytest.mark.parametrize(
    "trials",
    [pytest.param(PAIRS, marks=pytest.mark.slow), pytest.param(OTHERS, marks=pytest.mark.long)],
    ids=["experts on two", "others"],
)
def test_any_layout_computes_the_same(trials: list[LayoutCase]) -> None:
    """Few steps of few layouts; verification/layout_equality.py takes twenty of all."""
    found = spawned(compare, *trials)
    assert len(found) == sum(len(trial.cases) for trial in trials)
    assert any(dropped > 0.05 for *_, dropped in found.values()), "capacity must matter"
    wrong = {case: gaps for case, gaps in found.items() if max(gaps[:2]) > MOST[case[0].dtype]}
    assert not wrong


@pytest.mark.long
def test_a_checkpoint_of_any_layout_is_continued_by_any_other(tmp_path: Path) -> None:
    four, one = tmp_path / "of four", tmp_path / "of one"
    undisturbed = Stretch(Layout(), tmp_path / "whole", 5)
    saving = [Stretch(Layout(2, 2, 1), four, 3, saves=True), Stretch(Layout(), one, 3, saves=True)]
    loading = [Stretch(Layout(*sides), four, 5) for sides in ((1, 1, 1), (1, 2, 1), (1, 2, 2))]
    loading += [Stretch(Layout(*sides), one, 5) for sides in ((1, 1, 2), (2, 1, 1))]
    found = spawned(checkpointed, undisturbed, *saving, *loading)
    for name in RESHARDED:
        whole = found[undisturbed, name]
        for stretch in loading:
            figures = found[stretch, name]
            assert figures[0] == 3
            assert figures[1:] == pytest.approx(whole[-4:], abs=1e-10), (name, str(stretch.layout))
