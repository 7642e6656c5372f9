"""The page in a real browser, opened from disk: it draws, it answers, it fits, and names stay names."""

import shutil
import time
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import pytest
from browsing import By, Keys, Select, cell, click, column, find, rows, visible, wait
from report_pages import Page, written
from synthetic_store import Ending, grid, make_spec, write_store

from routelaw.fitting.fit import fit_law
from routelaw.fitting.points import select_points
from routelaw.laws import get_law
from routelaw.laws.equivalence import effective_params
from routelaw.runs.files import read_runs
from routelaw.runs.table import RunTable

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("there is no Chromium with its driver here", allow_module_level=True)

from selenium.webdriver.chrome.options import Options  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402

pytestmark = pytest.mark.long
HOSTILE = "<b><img/src=x/onerror=alert(1)>"
"""In the one spelling that a router's name keeps; a browser would run it, and Plotly would swallow the <b>."""
LAWS = ("bilinear", "separable")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Own runs, one of which failed, and an imported table whose router is called what no router should be."""
    folder = tmp_path_factory.mktemp("browser")
    failed = make_spec("0.8M", "hash", 8)
    store = write_store(folder / "store", grid(), endings={failed.run_id: Ending("failed", f"no {HOSTILE} left")})
    (store / "imported").mkdir()
    rows = [
        (f"{HOSTILE}-{n:g}-{e}-{r}", r, e, n, step, 4 - 0.1 * np.log10(n) - 0.1 * e**0.3 - step / 9)
        for n in (1e6, 4e6, 16e6)
        for r, e in (("dense", 1), (HOSTILE, 2), (HOSTILE, 8), (HOSTILE, 16))
        for step in (1, 2)
    ]
    frame = pd.DataFrame(rows, columns=["run_id", "router", "experts", "active_params", "step", "loss_validation"])
    RunTable.from_frame(frame, "odd").frame.to_parquet(store / "imported" / "odd.parquet", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("routelaw.report.runs.analysis.comparable_laws", lambda: [get_law(name) for name in LAWS])
        patch.setattr("routelaw.report.runs.report.draw_static_figures", lambda source, folder: [])
        return written(store, folder / "out", law=get_law("bilinear"))


@pytest.fixture(scope="module")
def browser() -> Iterator:
    options = Options()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, page: Page) -> Callable:
    """The page at a width, its parts (all, or those named) drawn by scrolling to them as a reader would."""

    def open_at(width: int = 1400, *names: str):
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        browser.get((page.folder / "index.html").as_uri())
        for name in names or page.names:
            view = find(browser, f"#{name} .interactive")
            browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant'})", view)
            wait(lambda view=view: view.get_attribute("data-drawn"))
        return browser

    return open_at


@pytest.mark.parametrize("width", [400, 1400])
def test_it_draws_without_console_messages_and_fits_the_screen(opened, page: Page, width: int) -> None:
    browser = opened(width)
    plots = browser.find_elements(By.CSS_SELECTOR, ".plot")
    wait(lambda: all(plot.find_elements(By.CSS_SELECTOR, "svg.main-svg") for plot in plots))
    assert len(plots) == len(page.names) - 1, "all but the table of runs"
    wide, screen = browser.execute_script(
        "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
    )
    assert wide <= screen
    assert width - 20 <= screen <= width, "but for a scroll bar"
    for plot in plots:
        assert plot.size["width"] <= width
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in loaded if name.startswith(("http", "//"))] == []


def test_on_a_phone_tables_scroll_in_their_own_box(opened) -> None:
    browser = opened(400, "runs-table")
    box = find(browser, ".scroll.runs")
    inner, outer = browser.execute_script("return [arguments[0].scrollWidth, arguments[0].clientWidth]", box)
    assert inner > outer
    assert box.size["width"] <= 400


def test_sliders_move_predictions_to_what_python_computes(opened, page: Page) -> None:
    browser = opened(1400, "explorer-view")
    data = page.island("explorer-view")
    table = read_runs(page.folder.parent / "store")
    fits = {r: fit_law("bilinear", select_points(table, r, mixed=False)) for r in ("s-base", "hash")}
    sliders = {axis: find(browser, f'#explorer-view input[data-axis="{axis}"]') for axis in "ne"}
    for moves in ({}, {"n": 7, "e": -3}, {"n": -15, "e": 9}):
        for axis, by in moves.items():
            sliders[axis].send_keys((Keys.ARROW_RIGHT if by > 0 else Keys.ARROW_LEFT) * abs(by))
        n = data["sizes"][int(sliders["n"].get_attribute("value"))]
        e = data["experts"][int(sliders["e"].get_attribute("value"))]
        for router, fit in fits.items():
            expected = float(fit.predict(active_params=n, experts=e)[0])
            assert float(cell(browser, router, "loss")) == pytest.approx(expected, abs=1.5e-4)
            ratio = float(effective_params(fit.law, fit.params_BP, n, e)[0]) / n
            assert float(cell(browser, router, "ratio")) == pytest.approx(ratio, rel=6e-3)
    assert find(browser, '#explorer-view [data-shown="e"]').text == str(e)


def test_what_extrapolates_says_so_and_another_law_predicts_otherwise(opened, page: Page) -> None:
    browser = opened(1400, "explorer-view")
    assert cell(browser, "s-base", "range") == "within the data"
    slider = find(browser, '#explorer-view input[data-axis="n"]')
    slider.send_keys(Keys.END)
    assert cell(browser, "s-base", "range").startswith("extrapolates: N is 32 times its largest size")
    before = cell(browser, "s-base", "loss")
    Select(find(browser, "#explorer-view select")).select_by_visible_text("separable")
    assert cell(browser, "s-base", "loss") != before
    assert cell(browser, "s-base", "interval") == "–"


def test_chips_hide_and_show_what_they_name(opened) -> None:
    browser = opened(1400, "losses-chart", "curves-chart")
    law = {None, "bilinear"}
    chip = click(browser, '#losses-chart .chip[data-value="hash"]')
    assert all(shown == (r != "hash" and name in law) for r, _, name, shown in visible(browser, "losses-chart"))
    chip.click()
    size = find(browser, '#losses-chart .chip[data-value="0.5M"]')
    browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('dblclick'))", size)
    for _, s, name, shown in visible(browser, "losses-chart"):
        assert shown == (s == "0.5M" and name in law)
    browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('dblclick'))", size)
    Select(find(browser, "#losses-chart select")).select_by_visible_text("separable")
    assert {name for *_, name, shown in visible(browser, "losses-chart") if shown} == {None, "separable"}
    click(browser, '#curves-chart .chip[data-value="dense"]')
    assert all(shown == (r != "dense") for r, _, _, shown in visible(browser, "curves-chart"))


def test_the_table_sorts_by_what_is_clicked(opened) -> None:
    browser = opened(1400, "runs-table")
    for name in ("experts", "loss_validation", "active_params"):
        place = column(browser, name)
        scale = {"K": 1e3, "M": 1e6}

        def number(text: str, scale=scale) -> float:
            return float(text[:-1]) * scale[text[-1]] if text[-1:] in scale else float(text)

        for down in (False, True):
            click(browser, f'table.runs th[data-column="{name}"] button')
            values = [number(row[place]) for row in rows(browser) if row[place]]
            assert values == sorted(values, reverse=down)
            assert len(values) > 30
    click(browser, 'table.runs th[data-column="size"] button')
    sizes = [row[column(browser, "size")] for row in rows(browser)]
    assert list(dict.fromkeys(sizes)) == ["0.2M", "0.5M", "0.8M", "1M", "4M", "16M"], "by size, not by spelling"


def test_the_table_filters_by_text_and_by_box(opened, page: Page) -> None:
    browser = opened(1400, "runs-table")
    everything = len(page.island("runs-table")["rows"])
    assert len(rows(browser)) == everything == 21 + 12
    Select(find(browser, 'select[data-filter="router"]')).select_by_visible_text("hash")
    assert {row[column(browser, "router")] for row in rows(browser)} == {"hash"}
    Select(find(browser, 'select[data-filter="size"]')).select_by_visible_text("0.8M")
    assert len(rows(browser)) == 3
    search = find(browser, 'input[data-filter="text"]')
    search.send_keys("failed")
    assert [row[column(browser, "status")] for row in rows(browser)] == ["failed"]
    assert find(browser, '#runs-table [data-what="count"]').text == f"1 of {everything} runs."
    search.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.BACKSPACE)
    Select(find(browser, 'select[data-filter="router"]')).select_by_visible_text("all")
    Select(find(browser, 'select[data-filter="size"]')).select_by_visible_text("all")
    Select(find(browser, 'select[data-filter="source"]')).select_by_visible_text("odd")
    assert len(rows(browser)) == 12


def test_a_run_is_chosen_for_the_heat_maps(opened, page: Page) -> None:
    browser = opened(1400, "load-maps")
    runs = page.island("load-maps")["runs"]
    box = Select(find(browser, "#load-maps select"))
    assert len(box.options) == len(runs)
    for nth in (0, len(runs) - 1):
        box.select_by_index(nth)
        drawn = browser.execute_script(
            "return document.querySelector('#load-maps .plot').data.map(t => [t.type, t.customdata ?? t.y])"
        )
        layers = runs[nth]["layers"]
        assert [values for kind, values in drawn if kind == "heatmap"] == [layer["load"] for layer in layers]
        assert [values for kind, values in drawn if kind == "scatter"] == [layer["dropped"] for layer in layers]


def test_the_mouse_names_the_run(opened, page: Page) -> None:
    browser = opened(1400, "curves-chart")
    browser.execute_script(
        "Plotly.Fx.hover(document.querySelector('#curves-chart .plot'), [{curveNumber: 0, pointNumber: 0}])"
    )
    label = find(browser, "#curves-chart .hoverlayer").text
    assert page.island("curves-chart")["curves"][0]["run"] in label


def test_a_hostile_name_is_shown_and_does_nothing(opened) -> None:
    browser = opened(1400, "runs-table", "odd-1-losses-chart", "odd-1-explorer-view", "odd-1-curves-chart")
    assert HOSTILE in find(browser, "#odd-1-losses-chart .chips").text
    for chart in ("odd-1-losses-chart", "odd-1-curves-chart"):
        count = browser.execute_script(f"return document.querySelector('#{chart} .plot').data.length")
        told = []
        for curve in range(count):
            browser.execute_script(
                f"Plotly.Fx.hover(document.querySelector('#{chart} .plot'), [{{curveNumber: {curve}, pointNumber: 0}}])"
            )
            time.sleep(0.12)  # Plotly hears at most one hover in 50 ms
            told.append(find(browser, f"#{chart} .hoverlayer").text)
        assert any(f"{HOSTILE} 1M, E = 2" in text for text in told), "as it stands, neither run nor swallowed"
    Select(find(browser, 'select[data-filter="router"]')).select_by_visible_text(HOSTILE)
    assert {row[column(browser, "router")] for row in rows(browser)} == {HOSTILE}
    # Figures are pictures of the page's own; the name must have made none.
    strange = "img:not([src^='data:image/']), img[onerror]"
    assert browser.execute_script(f'return document.querySelectorAll("{strange}").length') == 0
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert cell(browser, HOSTILE, "loss", "odd-1-explorer-view")
