"""The scripts and styles of pages people play with: ours beside this file, and Plotly's from its package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

SCRIPTS = ("charts.js", "explorer.js", "curves.js", "heat_maps.js", "run_table.js")
"""In this order: the first holds what the others share, the last one starts the page."""

STYLE = """
.facts { display: flex; flex-wrap: wrap; gap: 10px 34px; margin: 20px 0 18px; }
.facts div { display: flex; flex-direction: column; }
.facts dd { margin: 0; order: -1; font-size: 1.55rem; font-weight: 600; line-height: 1.2; }
.facts dt { color: var(--soft); font-size: .84rem; max-width: 15em; }
th .under { display: block; font-size: .76rem; font-weight: 400; color: var(--soft); max-width: 30em; }
th:has(.under) { min-width: 14em; }
td.left, th.left { text-align: left; }
figure .interactive { border: 1px solid var(--line); border-radius: 6px; padding: 12px; min-height: 120px; }
.controls { display: flex; flex-wrap: wrap; gap: 8px 22px; margin-bottom: 8px; align-items: center; }
.chips { display: flex; flex-wrap: wrap; gap: 5px; align-items: center; }
.chips-name { color: var(--soft); font-size: .82rem; margin-right: 5px; }
.chip { font: inherit; font-size: .84rem; border: 1px solid var(--line); border-radius: 999px; background: var(--wash);
  color: var(--ink); padding: 2px 11px; cursor: pointer; max-width: 100%; overflow-wrap: anywhere; }
.chip[aria-pressed="false"] { color: #9aa3b0; background: none; text-decoration: line-through; }
.chip[aria-pressed="false"] .dot { opacity: .25; }
.chip:focus-visible, .choice :focus-visible, .slider :focus-visible, th button:focus-visible {
  outline: 2px solid var(--link); outline-offset: 1px; }
.dot { display: inline-block; width: .68em; height: .68em; border-radius: 50%; margin-right: 6px; }
.choice { display: inline-flex; align-items: center; max-width: 100%; }
.choice select, .choice input { font: inherit; font-size: .86rem; padding: 3px 8px; border: 1px solid var(--line);
  border-radius: 6px; background: var(--paper); color: var(--ink); max-width: min(100%, 30em); min-width: 0; }
.plot { width: 100%; height: 460px; }
.plot.tall { height: auto; }
.sliders { display: grid; gap: 8px; margin: 10px 0 4px; max-width: 720px; }
.slider { display: grid; grid-template-columns: 11.5em 1fr 4.5em; gap: 12px; align-items: center; font-size: .9rem; }
.slider input { width: 100%; accent-color: var(--link); min-width: 0; }
.slider-value { font-weight: 600; font-variant-numeric: tabular-nums; }
.readout th { text-align: left; white-space: nowrap; }
.readout thead th { text-align: right; }
.readout thead th:first-child { text-align: left; }
.scroll.runs { max-height: 70vh; overflow: auto; border: 1px solid var(--line); border-radius: 6px; margin: 6px 0 0; }
table.runs { font-size: .84rem; width: 100%; }
table.runs thead th { position: sticky; top: 0; background: var(--paper); padding: 0; z-index: 1;
  box-shadow: inset 0 -1.5px 0 var(--ink); border: 0; }
table.runs th button { font: inherit; color: inherit; background: none; border: 0; padding: 7px 10px; cursor: pointer;
  white-space: nowrap; }
table.runs th[aria-sort="ascending"] button::after { content: " ↑"; }
table.runs th[aria-sort="descending"] button::after { content: " ↓"; }
table.runs tbody tr:hover { background: var(--wash); }
table.runs td { max-width: 24em; overflow: hidden; text-overflow: ellipsis; }
@media (max-width: 640px) {
  .plot { height: 360px; }
  figure .interactive { padding: 8px; }
  .slider { grid-template-columns: 1fr 4.5em; gap: 2px 10px; }
  .slider span { grid-column: 1 / -1; }
  .facts dd { font-size: 1.3rem; }
}
"""


def scripts() -> list[str]:
    """Plotly's and ours, as text to stand in a page."""
    import plotly

    own = "\n".join((files("routelaw.report") / "scripts" / name).read_text(encoding="utf-8") for name in SCRIPTS)
    library = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return [library.read_text(encoding="utf-8").replace("\r\n", "\n"), own]
