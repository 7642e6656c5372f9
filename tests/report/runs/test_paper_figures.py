"""The report's section of the paper's figures: what the runs allow, and the sentence for each that they do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from report_pages import Page, written

from routelaw import figures
from routelaw.report.runs import paper_figures
from routelaw.runs.files import write_runs
from routelaw.runs.table import RunTable

DRAWN = ("three_panels_hash", "joint_curves", "linear_fits")
NOT_DRAWN = ("k_against_flops", "shared_decisions", "three_panels_rl_r")


@pytest.fixture(scope="module")
def table() -> RunTable:
    rows = [
        {
            "run_id": f"{router}-{size:g}-{e}", "router": router, "experts": e, "active_params": size,
            "total_params": size * (1 + (e - 1) / 3), "flops_per_token": 2.2 * size, "size": f"<{size / 1e6:g}M>",
            "loss_validation": 6 * size**-0.04 * e**-0.02, "loss_c4": 7 * size**-0.04 * e**-0.02,
        }
        for size in (15e6, 60e6, 250e6)
        for router, experts in (("dense", (1,)), ("hash", (2, 8, 32)), ("s-base", (2, 8, 32)))
        for e in experts
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    noise = np.random.default_rng(0).normal(0, 1e-3, (len(frame), 2))
    frame[["loss_validation", "loss_c4"]] *= np.exp(noise)
    return RunTable.from_frame(frame, "made up")


@pytest.fixture(scope="module")
def page(table: RunTable, tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("paper")
    write_runs(table, folder / "runs.csv")
    chosen = [f for f in figures.all_figures() if f.name in (*DRAWN, *NOT_DRAWN, "expert_slope", "cutoff_by_law")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper_figures, "all_figures", lambda: chosen)
        return written(folder / "runs.csv", folder / "out")


def test_the_page_has_the_figures_that_its_runs_allow(page: Page) -> None:
    titles = {figure.name: figure.title for figure in figures.all_figures()}
    assert "Figures of the paper" in page.text
    for name in DRAWN:
        assert {f"{name}.svg", f"{name}.png"} <= {path.name for path in (page.folder / "figures").iterdir()}
        assert f'id="figure-{name}"' in page.html
        assert titles[name] in page.text
    for name in NOT_DRAWN:
        assert not list(page.folder.rglob(f"{name}.*"))
        assert titles[name] in page.text
    assert "no router was trained with several K" in page.text
    assert "there is no finished run of rl-r" in page.text


def test_what_a_chart_shows_already_is_not_drawn_twice(page: Page) -> None:
    for name in ("expert_slope", "cutoff_by_law"):
        assert not list(page.folder.rglob(f"{name}.*"))


def test_figures_show_the_loss_of_the_report(table: RunTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [f for f in figures.all_figures() if f.name == "linear_fits"]
    monkeypatch.setattr(paper_figures, "all_figures", lambda: chosen)
    pictures = []
    for target in ("loss_validation", "loss_c4"):
        (tmp_path / target).mkdir()
        made = paper_figures.draw_paper_figures(table, target, tmp_path / target)
        assert [figure.name for figure, _ in made.drawn] == ["linear_fits"]
        pictures.append((tmp_path / target / "linear_fits.png").read_bytes())
    assert pictures[0] != pictures[1]
