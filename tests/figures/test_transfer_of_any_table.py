"""The figures of transfer from tables that are not the paper's: any names, sizes, routers and corpora."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from routelaw.figures.figure import CannotDraw
from routelaw.figures.transfer import FIGURES, transfer_fits
from routelaw.runs.table import RunTable


def make_table(
    losses: tuple[str, ...] = ("loss_validation", "loss_mine", "loss_c4"),
    routers: tuple[str, ...] = ("dense", "hash", "my-router"),
    sizes: tuple[float, ...] = (0.2e6, 0.5e6),
) -> RunTable:
    draw, rows = np.random.default_rng(1), []
    for router in routers:
        for n in sizes:
            for e in (1,) if router == "dense" else (2, 4, 12):
                row = {"run_id": f"{router}-{n:g}-{e}", "router": router, "experts": e, "active_params": n}
                for nth, loss in enumerate(losses):
                    row[loss] = 10 ** (1 + nth / 10 - 0.08 * np.log10(n) - 0.03 * np.log10(e) + 1e-3 * draw.normal())
                rows.append(row)
    return RunTable.from_frame(pd.DataFrame(rows), "drawn")


@pytest.mark.parametrize("nth", range(len(FIGURES)))
@pytest.mark.parametrize("losses", [2, 3, 7])
def test_any_table_with_two_losses_can_be_drawn(nth: int, losses: int, tmp_path: Path) -> None:
    names = ("loss_validation", "loss_c4", *(f"loss_mine_{i}" for i in range(5)))[:losses]
    paths = FIGURES[nth].save(make_table(names), tmp_path)
    picture = np.asarray(Image.open(paths[1]).convert("L"))
    assert (picture < 128).mean() > 0.003, "something is drawn"


def test_names_come_from_the_table() -> None:
    table = make_table(sizes=(0.2e6, 0.5e6, 2e6))
    picture = FIGURES[0].draw(table)
    assert [label.get_text() for label in picture.axes[0].get_yticklabels()] == ["Validation", "C4", "mine"]
    labels = {text.get_text() for text in picture.legends[0].get_texts()}
    assert labels == {"Dense", "HASH", "my-router"}
    slopes = FIGURES[1].draw(table)
    assert [axes.get_title() for axes in slopes.axes[:3]] == ["Validation", "C4", "mine"]
    assert [tick.get_text() for tick in slopes.axes[0].get_xticklabels()] == ["200K", "500K", "2M"]


def test_values_are_those_of_least_squares() -> None:
    table = make_table()
    own = table.frame[table.frame["router"] == "my-router"]
    u, v = np.log10(own["active_params"]), np.log10(own["experts"])
    basis = np.stack([u, v, u * v, np.ones(len(u))], axis=1)
    solution = np.linalg.lstsq(basis, np.log10(own["loss_mine"]), rcond=None)[0]
    fit = transfer_fits(table)["my-router", "loss_mine"]
    np.testing.assert_allclose([fit.params[name] for name in "abcd"], solution, rtol=1e-5)


def test_what_is_missing_is_said() -> None:
    one = make_table(("loss_validation",))
    few = make_table(sizes=(0.2e6,))
    dense = make_table(routers=("dense",))
    empty = make_table()
    empty = replace(empty, frame=empty.frame.assign(loss_c4=np.nan))
    for table, sentence in ((one, "one loss only"), (few, "one model size"), (dense, "no routed runs"), (empty, "c4")):
        for figure in FIGURES:
            with pytest.raises(CannotDraw, match=sentence) as refused:
                figure.draw(table)
            assert str(refused.value).endswith(".")


def test_runs_of_one_variant_are_drawn() -> None:
    """Where every run has the same option, it is usual, and no variant."""
    table = make_table()
    same = replace(table, frame=table.frame.assign(variant=table.frame["router"].map({"dense": ""}).fillna("drop=1")))
    fits, plain = transfer_fits(same), transfer_fits(table)
    assert fits.routers == plain.routers
    assert fits["hash", "loss_c4"].params == plain["hash", "loss_c4"].params
