"""A study of options trains dozens of variants: the page begins with those trained most, and loses none."""

import pandas as pd
import pytest
from report_pages import Page, written

from routelaw.laws import get_law
from routelaw.report.runs.analysis import MOST_SHOWN, shared_settings
from routelaw.report.runs.law_text import without_law
from routelaw.runs.files import write_runs
from routelaw.runs.table import RunTable

WEIGHTS = [0.001 * 2**i for i in range(MOST_SHOWN + 4)]
SIZES = (1e6, 4e6, 16e6)


def rows() -> list[dict]:
    """Every run with rotary positions; HASH and two weights of Switch at three sizes, the other weights at one."""
    found = []
    for active in SIZES:
        models = [("dense", "positions=rope", 1), *(("hash", "positions=rope", e) for e in (2, 4, 8))]
        here = WEIGHTS if active == SIZES[0] else WEIGHTS[-2:]
        models += [("switch", f"balance_weight={w:g},positions=rope", e) for w in here for e in (2, 4, 8)]
        for router, variant, experts in models:
            loss = 4 * active**-0.03 * experts ** (-0.05 if router == "hash" else -0.04)
            cells = {"run_id": f"{router}-{variant}-{active:g}-{experts}", "router": router, "variant": variant}
            cells |= {"experts": experts, "active_params": active, "size": f"{active / 1e6:g}M", "status": "finished"}
            found.append({**cells, "loss_validation": loss, "step": 100, "tokens": 1_000_000})
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("variants")
    write_runs(RunTable.from_frame(pd.DataFrame(rows()), "made"), folder / "runs.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("routelaw.report.runs.analysis.comparable_laws", lambda: [get_law("separable")])
        return written(folder / "runs.csv", folder / "out")


def test_what_all_runs_share_is_said_once_and_in_no_name(page: Page) -> None:
    assert "All have positions=rope, which the names of techniques leave out." in page.text
    labels = {look["label"] for look in page.island("losses-chart")["looks"].values()}
    assert "HASH" in labels
    assert not [label for label in labels if "rope" in label]


def test_what_only_the_routed_runs_share_stays_in_their_names() -> None:
    frame = pd.DataFrame(rows())
    frame.loc[frame["router"] == "dense", "variant"] = ""
    assert shared_settings(RunTable.from_frame(frame, "made")) == []


def test_charts_begin_with_the_techniques_trained_most_and_have_all(page: Page) -> None:
    chart = page.island("losses-chart")
    techniques = {trace["meta"]["router"] for trace in chart["traces"] if "router" in trace["meta"]} - {"dense"}
    shown = techniques - set(chart["hidden"])
    assert (len(techniques), len(shown)) == (1 + len(WEIGHTS), MOST_SHOWN)
    labels = {chart["looks"][key]["label"] for key in shown}
    assert {"HASH", *(f"Switch (balance_weight={w:g})" for w in WEIGHTS[-2:])} <= labels


def test_grids_say_how_many_they_show_and_the_table_has_every_pair(page: Page) -> None:
    assert f"Pairs of the {MOST_SHOWN} techniques of {1 + len(WEIGHTS)} that were trained at most sizes" in page.text
    pairs = pd.read_csv(page.folder / "tables" / "pairwise.csv")
    count = 1 + len(WEIGHTS)
    assert len(pairs) == count * (count - 1) / 2


def test_a_list_of_variants_is_counted(page: Page) -> None:
    assert f"Trained: dense models, HASH and Switch in {len(WEIGHTS)} variants, at 3 sizes" in page.text
    one_size = "it was trained at one size only (1M), and a law in size needs two."
    assert f"{len(WEIGHTS) - 2} techniques have no law, each for this reason: {one_size}" in page.text


def test_a_few_without_a_law_are_named() -> None:
    assert without_law({"A": "x", "B": "x", "C": "y"}) == ["A has no law: x", "B has no law: x", "C has no law: y"]
