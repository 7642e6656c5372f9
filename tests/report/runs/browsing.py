"""What a reader does with a page, for tests: find, click, read a cell, see what a chart shows."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

pytest.importorskip("selenium", reason="selenium is not installed")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

__all__ = ["By", "Keys", "Select", "cell", "click", "column", "find", "rows", "visible", "wait"]


def wait(until: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, "the page did not get there"
        time.sleep(0.05)


def find(browser, selector: str):
    return browser.find_element(By.CSS_SELECTOR, selector)


def click(browser, selector: str):
    """At once where it is: the page scrolls smoothly, and a click would miss what moves."""
    element = find(browser, selector)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    element.click()
    return element


def cell(browser, router: str, what: str, explorer: str = "explorer-view") -> str:
    return find(browser, f'#{explorer} td[data-router="{router}"][data-what="{what}"]').text


def visible(browser, chart: str) -> list[tuple[str | None, str | None, str | None, bool]]:
    found = browser.execute_script(
        f"return document.querySelector('#{chart} .plot').data.map("
        "t => [t.meta.router ?? null, t.meta.size ?? null, t.meta.law ?? null, t.visible !== false])"
    )
    return [tuple(row) for row in found]


def rows(browser) -> list[list[str]]:
    return browser.execute_script(
        "return [...document.querySelectorAll('table.runs tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )


def column(browser, name: str) -> int:
    heads = browser.find_elements(By.CSS_SELECTOR, "table.runs th")
    return [head.get_attribute("data-column") for head in heads].index(name)
