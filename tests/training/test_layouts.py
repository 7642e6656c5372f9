"""A run means the same on any layout of processes: losses, gradients, drops and loads, step by step."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
import torch.multiprocessing
from layout_cases import CASES, checkpointed, compare, possible

from routelaw.specs.layout import Layout

TWO = [(Layout(2, 1, 1), 1), (Layout(1, 2, 1), 2), (Layout(1, 1, 2), 1)]
FOUR = [(Layout(2, 2, 1), 1), (Layout(1, 2, 2), 1), (Layout(1, 4, 1), 1)]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layouts", "dtype", "steps", "most"),
    [(TWO, torch.float64, 4, 1e-10), (TWO[:2], torch.float32, 2, 1e-5), (FOUR, torch.float64, 3, 1e-10)],
    ids=["two, float64", "two, float32", "four, float64"],
)
def test_any_layout_computes_the_same(layouts, dtype, steps, most) -> None:
    with torch.multiprocessing.Manager() as manager:
        told = manager.dict()
        world = layouts[0][0].world
        torch.multiprocessing.spawn(compare, (free_port(), layouts, dtype, steps, told), nprocs=world)
        found = dict(told)
    assert len(found) == sum(possible(router, *split) for router in CASES.values() for split in layouts)
    assert any(dropped > 0.05 for *_, dropped in found.values()), "capacity must matter"
    wrong = {case: gaps for case, gaps in found.items() if max(gaps[:2]) > most}
    assert not wrong


def launched(layout: Layout, folder: Path, until: int, saves: bool) -> dict[str, list[float]]:
    """By case: the step it began at, then loss and gradient norm of every step."""
    if layout.world == 1:
        alone: dict[str, list[float]] = {}
        checkpointed(0, 0, layout, folder, until, saves, alone)
        return alone
    with torch.multiprocessing.Manager() as manager:
        told = manager.dict()
        torch.multiprocessing.spawn(
            checkpointed, (free_port(), layout, folder, until, saves, told), nprocs=layout.world
        )
        return dict(told)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        (Layout(2, 2, 1), [Layout(), Layout(1, 2, 1), Layout(1, 2, 2)]),
        (Layout(), [Layout(1, 1, 2), Layout(2, 1, 1)]),
    ],
    ids=["four", "one"],
)
def test_a_checkpoint_of_any_layout_is_continued_by_any_other(tmp_path: Path, saved, loaded) -> None:
    undisturbed = launched(Layout(), tmp_path / "alone", 5, saves=False)
    launched(saved, tmp_path / "saved", 3, saves=True)
    for layout in loaded:
        for name, figures in launched(layout, tmp_path / "saved", 5, saves=False).items():
            assert figures[0] == 3
            assert figures[1:] == pytest.approx(undisturbed[name][-4:], abs=1e-10), (name, str(layout))
