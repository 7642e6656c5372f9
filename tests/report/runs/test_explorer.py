"""Numbers behind the sliders and charts: against the laws' own predictions and closed forms."""

import numpy as np
import pandas as pd
import pytest
from synthetic_store import grid, true_loss, write_store

from routelaw.fitting.fit import fit_law
from routelaw.fitting.points import select_points
from routelaw.fitting.slopes import law_slopes
from routelaw.laws import PowerSum, coefficient, get_law
from routelaw.report.runs.analysis import Analysis, analyse
from routelaw.report.runs.chart_data import expert_nodes, explorer_data, size_nodes
from routelaw.report.runs.charts import effective_chart, loss_chart, ranking_chart, slope_chart
from routelaw.runs.files import read_runs
from routelaw.runs.table import RunTable

MINE = PowerSum(
    name="mine",
    formula="log L = a·log N + b·log E + d",
    source="a test",
    inputs=("active_params", "experts"),
    second=lambda x: x["experts"],
    terms=((coefficient("a", "slope", (1, 0)), coefficient("b", "slope", (0, 1)), coefficient("d", "level", (0, 0))),),
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> RunTable:
    specs = grid(sizes=("0.2M", "0.5M", "0.8M", "2M"), experts=(2, 4, 8, 16))
    return read_runs(write_store(tmp_path_factory.mktemp("store"), specs, evaluations=2, logged=0))


@pytest.fixture(scope="module")
def analysis(table: RunTable) -> Analysis:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "routelaw.report.runs.analysis.comparable_laws", lambda: [get_law("bilinear"), get_law("irreducible")]
        )
        return analyse(table, own_laws=[MINE], law=get_law("bilinear"))


def test_nodes_are_logarithmic_and_hold_what_was_trained() -> None:
    trained = np.array([213_504.0, 854_016.0, 5e6])
    nodes = size_nodes(trained)
    assert set(trained) <= set(nodes)
    assert nodes[0] < trained[0] / 3.5
    assert nodes[-1] > 28 * trained[-1]
    assert np.diff(np.log10(nodes)).max() < 2.1 / 24
    experts = expert_nodes(16)
    assert set(2.0 ** np.arange(8)) <= set(experts)
    assert experts[0] == 1
    assert experts[-1] == 128
    assert (experts == np.round(experts)).all()


def test_every_number_of_the_explorer_is_what_the_law_predicts(table: RunTable, analysis: Analysis) -> None:
    data = explorer_data(analysis)
    sizes, experts = np.array(data["sizes"], float), np.array(data["experts"], float)
    assert data["laws"][0]["name"] == "bilinear"
    assert {law["name"] for law in data["laws"]} == {"bilinear", "irreducible", "mine"}
    n, e = (m.ravel() for m in np.meshgrid(sizes, experts, indexing="ij"))
    for law in data["laws"]:
        for router in ("s-base", "hash"):
            fit = fit_law(MINE if law["name"] == "mine" else law["name"], select_points(table, router, mixed=False))
            predicted = fit.predict(active_params=n, experts=e)
            shown = np.array(law["grids"][router]["loss"], float)
            np.testing.assert_allclose(shown, predicted, rtol=2e-5)


def test_effective_sizes_are_those_of_the_closed_form(table: RunTable, analysis: Analysis) -> None:
    """The bilinear law has log N̄ = log N + (b + c·log N)·log E / a."""
    data = explorer_data(analysis)
    n, e = np.meshgrid(np.log10(data["sizes"]), np.log10(data["experts"]), indexing="ij")
    for router in ("s-base", "hash"):
        p = fit_law("bilinear", select_points(table, router, mixed=False)).params
        expected = n + (p["b"] + p["c"] * n) * e / p["a"]
        shown = np.array(data["laws"][0]["grids"][router]["effective"], float).reshape(n.shape)
        np.testing.assert_allclose(np.log10(shown), expected, atol=1e-4)


def test_intervals_hold_the_prediction_and_widen_away_from_the_data(analysis: Analysis) -> None:
    data = explorer_data(analysis)
    grids = data["laws"][0]["grids"]["s-base"]
    loss, low, high = (np.array(grids[name], float).reshape(len(data["sizes"]), -1) for name in ("loss", "low", "high"))
    assert (low <= loss * 1.0001).mean() > 0.95
    assert (high >= loss * 0.9999).mean() > 0.95
    width = np.log(high / low)
    middle = data["start"]
    assert width[-1, -1] > 2 * width[middle[0], middle[1]]
    assert "low" not in data["laws"][1]["grids"]["s-base"], "intervals are known of the selected law alone"


def test_the_start_is_a_model_that_was_trained(analysis: Analysis) -> None:
    data = explorer_data(analysis)
    n, e = data["sizes"][data["start"][0]], data["experts"][data["start"][1]]
    assert [n, e] in [row[:2] for row in data["techniques"][0]["measured"]]


def test_the_loss_chart_shows_every_model_once_and_every_law(analysis: Analysis) -> None:
    chart = loss_chart(analysis)
    marks = [t for t in chart["traces"] if t["mode"] != "text" and "law" not in t["meta"]]
    shown = [(t["meta"]["router"], t["meta"]["size"], x) for t in marks for x in t["x"]]
    assert len(shown) == len(set(shown)) == 4 * (1 + 2 * 4)
    for spec in grid(sizes=("0.5M",), experts=(8,)):
        trace = next(t for t in marks if t["meta"] == {"router": spec.router.name, "size": "0.5M"})
        value = trace["y"][trace["x"].index(spec.router.experts)]
        assert value == pytest.approx(true_loss(spec), rel=0.01)
    lines = {(t["meta"]["router"], t["meta"]["law"]) for t in chart["traces"] if "law" in t["meta"]}
    assert lines == {(r, law) for r in ("s-base", "hash") for law in ("bilinear", "irreducible", "mine")}
    assert chart["select"]["values"][0] == "bilinear"


def test_slopes_of_marks_and_lines_mean_the_same(analysis: Analysis) -> None:
    """On the predictions of the law itself both are equal, at every size."""
    fit = analysis.fits("bilinear")["hash"]
    p = fit.params
    sizes = np.geomspace(2e5, 2e6, 5)
    np.testing.assert_allclose(law_slopes(fit, sizes), p["b"] + p["c"] * np.log10(sizes), rtol=1e-9)
    chart = slope_chart(analysis)
    marks = next(t for t in chart["traces"] if t["mode"] == "markers" and t["meta"]["router"] == "hash")
    points = analysis.points["hash"]
    for size, active, slope in zip(points.sizes, marks["x"], marks["y"], strict=True):
        own = points.where(points.size == size)
        assert active == pytest.approx(own.x["active_params"][0], rel=1e-4)
        assert slope == pytest.approx(np.polyfit(np.log10(own.x["experts"]), own.log_loss, 1)[0], rel=1e-4)


def test_other_charts_carry_what_they_should(analysis: Analysis) -> None:
    ranking = ranking_chart(analysis)
    errors = {t["meta"]["router"]: t["x"] for t in ranking["traces"]}
    for key, rows in analysis.ranked.items():
        assert errors[key] == pytest.approx([1e4 * r.validation.leave_size_out for r in rows], rel=1e-4)
    assert ranking["select"] is None
    effective = effective_chart(analysis)
    line = next(t for t in effective["traces"] if t["mode"] == "lines" and t["meta"]["law"] == "bilinear")
    assert line["y"][0] == pytest.approx(1.0), "with one expert a model is worth itself"


def test_a_law_that_no_technique_can_fit_leaves_no_explorer() -> None:
    rows = [("d", "dense", 1, 1e6, 4.0), ("x", "a", 2, 1e6, 3.9)]
    columns = ["run_id", "router", "experts", "active_params", "loss_validation"]
    analysis = analyse(RunTable.from_frame(pd.DataFrame(rows, columns=columns), "made"))
    assert explorer_data(analysis) is None
    assert analysis.law is None
    assert "one size only" in analysis.refusals["a"]
