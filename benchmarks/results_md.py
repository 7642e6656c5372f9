"""benchmarks/RESULTS.md from results.jsonl: of every GPU benchmark and device the figures of each row's newest code.

    python benchmarks/results_md.py [--check] [--figure]

Nothing in its tables is typed by hand, and the same results give the same page. What each benchmark is to reach
(targets.toml) comes first; what each measures is said in descriptions.md. Figures that turned out wrong stay in
results.jsonl, and the line says so: `withdrawn` maps a column to the reason, which stands on the page in its place.
`--check` writes nothing and exits with 1 when the page is not what the results give. `--figure` draws the cost of
experts against their number instead, from its newest line.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results.jsonl", HERE / "RESULTS.md"
PREFIX = "gpu_"
FAILED = "failed: "
HEAD, *_SECTIONS = re.split(r"\n## (?=gpu_)", (HERE / "descriptions.md").read_text(encoding="utf-8"))
DESCRIPTIONS = dict(section.split("\n\n", 1) for section in _SECTIONS)
"""By benchmark."""


@dataclass(frozen=True)
class Target:
    words: str
    benchmark: str
    row: str
    """A pattern of whole names."""
    column: str
    """A pattern, too."""
    least: float = -math.inf
    most: float = math.inf

    @property
    def wanted(self) -> str:
        return f"≤ {self.most:,.4g}" if math.isinf(self.least) else f"≥ {self.least:,.12g}"

    def meets(self, value: float) -> bool:
        return self.least <= value <= self.most

    def farthest(self, values: Iterable[float]) -> float:
        """The one that is hardest put to meet it."""
        return max(values) if math.isinf(self.least) else min(values)

    def values(self, lines: Iterable[dict[str, Any]]) -> list[float]:
        """In all lines of its benchmark, as they come."""
        pattern = f"(?:{self.row})/(?:{self.column})"
        figures = (item for line in lines if line["benchmark"] == self.benchmark for item in line["figures"].items())
        return [float(value) for key, value in figures if re.fullmatch(pattern, key) and not isinstance(value, str)]


TARGETS = [Target(**given) for given in tomllib.loads((HERE / "targets.toml").read_text(encoding="utf-8"))["targets"]]


def newest(lines: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """By benchmark, in alphabetical order: lines by device, newest first, each with the rows that no newer code has.
    A run of some shapes alone does not hide what was measured of others, nor a second run the first."""
    found: dict[str, list[dict[str, Any]]] = {}
    code: dict[tuple[str, str, str], str] = {}
    backwards = sorted(enumerate(lines), key=lambda each: (each[1]["date"], each[0]), reverse=True)
    for _, line in backwards:
        if not line["benchmark"].startswith(PREFIX):
            continue
        name, device = line["benchmark"], line["device"]
        of_row = {row: code.setdefault((name, device, row), _code(line)) for row in map(_row, line["figures"])}
        own = {key: value for key, value in line["figures"].items() if of_row[_row(key)] == _code(line)}
        if own:
            found.setdefault(name, []).append({**line, "figures": own})
    return {name: sorted(found[name], key=lambda line: line["device"]) for name in sorted(found)}


def _code(line: dict[str, Any]) -> str:
    """What was measured: the package, whatever else was committed; older lines have the commit alone."""
    return line.get("package") or line["commit"]


def _row(key: str) -> str:
    return key.split("/", 1)[0] if "/" in key else ""


def page(lines: Iterable[dict[str, Any]]) -> str:
    shown = newest(_shown(line) for line in lines)
    parts = [HEAD, *reached([line for own in shown.values() for line in own])]
    for name, own in shown.items():
        parts.append(f"\n## {name}\n\n{DESCRIPTIONS.get(name, '')}")
        parts += [section(alike) for alike in gathered(own)]
    if not shown:
        parts.append("\nThere are none yet.\n")
    return "".join(parts)


def _shown(line: dict[str, Any]) -> dict[str, Any]:
    """Without what was withdrawn, and a GPU by the name that it has in newer lines."""
    wrong = line.get("withdrawn", {})
    figures = {key: value for key, value in line["figures"].items() if key.split("/", 1)[-1] not in wrong}
    return {**line, "device": re.sub(r" \(cuda\)$", "", line["device"]), "figures": figures}


def reached(lines: list[dict[str, Any]]) -> Iterator[str]:
    """A table of targets by device: of several figures the one farthest from it, and how many meet it."""
    for device in sorted({line["device"] for line in lines}):
        own = [line for line in lines if line["device"] == device]
        rows = []
        for target in TARGETS:
            values = target.values(own)
            if not values:
                continue
            met = sum(map(target.meets, values))
            said = ("yes" if met else "no") if len(values) == 1 else f"{met} of {len(values)}"
            figure = cell(target.farthest(values))
            rows.append(f"| {escaped(target.words)} | {target.wanted} | {figure} | {said} |\n")
        if rows:
            yield f"\n## What was to be reached, {escaped(device)}\n\n"
            yield "Where there is more than one figure, the one that is farthest off is shown.\n\n"
            yield "| | wanted | figure | met |\n| --- | ---: | ---: | ---: |\n" + "".join(rows)


def gathered(lines: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Together what is one table: of one setting, commit and set of columns, measured by several processes, say."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in lines:
        columns = frozenset(key.split("/", 1)[-1] for key in line["figures"])
        found.setdefault((line["device"], line["data"], _code(line), columns), []).append(line)
    return list(found.values())


def section(lines: list[dict[str, Any]]) -> str:
    newest, rows = lines[0], [row for line in lines for row in _rows(line)]
    columns = list(dict.fromkeys(column for _, row in rows for column in row))
    head = f"\n### {escaped(newest['device'])}\n\n{escaped(newest['data'])}. "
    head += f"{newest['date'][:16].replace('T', ' ')} UTC, commit {newest['commit']}"
    head += f" (routelaw {newest['package']}).\n\n" if newest.get("package") else ".\n\n"
    grid = [["", *map(escaped, columns)], ["---", *["---:"] * len(columns)]]
    grid += [[escaped(name), *(cell(row.get(column)) for column in columns)] for name, row in rows]
    failures = [
        f"- {escaped(name)}, {escaped(column)}: {escaped(value)}\n"
        for name, row in rows for column, value in row.items() if isinstance(value, str)
    ]  # fmt: skip
    wrong = dict(item for line in lines for item in line.get("withdrawn", {}).items())
    notes = failures + [f"- {escaped(column)} is withdrawn: {escaped(why)}\n" for column, why in wrong.items()]
    return head + "".join(f"| {' | '.join(cells)} |\n" for cells in grid) + ("\n" + "".join(notes)) * bool(notes)


def _rows(line: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    rows: dict[str, dict[str, Any]] = {}
    for key, value in line["figures"].items():
        rows.setdefault(_row(key), {})[key.split("/", 1)[-1]] = value
    return list(rows.items())


def cell(value: Any) -> str:
    if isinstance(value, str):
        return "failed" if value.startswith(FAILED) else escaped(value)
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def escaped(text: str) -> str:
    """So that no word of a machine or an error becomes markup."""
    for mark in "\\`*_|<>[]":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def draw(rows: Mapping[str, Mapping[str, float]], words: str) -> Figure:
    """Milliseconds against E, both logarithmic: the routed layer, the dense one as a level, the floor as a line."""
    from routelaw.figures import style

    whole = sorted((r for r in rows.values() if {"E", "routed (ms)", "floor (ms)"} <= r.keys()), key=lambda r: r["E"])
    experts = [int(r["E"]) for r in whole]
    dense = median(r["dense (ms)"] for r in rows.values() if "dense (ms)" in r)
    picture, (axes,) = style.panels(1, width=5.2, height=3.8)
    axes.plot(experts, [r["routed (ms)"] for r in whole], color=style.router_colour("s-base"), marker="o",
              label="routed layer")  # fmt: skip
    axes.axhline(dense, color=style.router_colour("dense"), linestyle="--", label="dense FFW of the same FLOPs")
    axes.plot(experts, [r["floor (ms)"] for r in whole], color=style.router_colour("rl-r"), linestyle=":",
              label="floor: bytes of expert weights at a copy's bandwidth")  # fmt: skip
    style.experts_axis(axes, tuple(experts))
    axes.set_yscale("log")
    axes.set_ylabel("forward + backward (ms)")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.0))
    highest = max(r["routed (ms)"] for r in whole)
    axes.set_ylim(dense / 50, max(highest, dense) * 6)  # a floor far below says nothing; room for the legend
    axes.set_title(words, fontsize=7, color="#555555", loc="left", wrap=True)
    return picture


def save_figure(lines: Iterable[dict[str, Any]], folder: Path) -> list[Path]:
    """What experts cost against their number, from the newest line, as SVG and PNG."""
    import matplotlib

    from routelaw.figures import style

    matplotlib.use("Agg")
    newest = max((line for line in lines if line["benchmark"] == "gpu_experts"), key=lambda line: line["date"])
    words = f"{newest['data']}\n{newest['device']}, {newest['date'][:10]}"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"cost_against_experts.{kind}" for kind in ("svg", "png")]
    with matplotlib.rc_context(style.RC):
        picture = draw(dict(_rows(newest)), words)
        for path in paths:
            picture.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when the page is stale")
    parser.add_argument("--figure", action="store_true", help="draw the cost of experts instead")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    with options.results.open(encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.strip()]
    if options.figure:
        print(*save_figure(lines, options.page.parent / "figures"), sep="\n")
        return
    wanted = page(lines)
    if options.check:
        if not options.page.is_file() or options.page.read_text(encoding="utf-8") != wanted:
            sys.exit(f"{options.page.name} is not what {options.results.name} gives: run benchmarks/results_md.py.")
        return
    beside = options.page.with_name(options.page.name + ".new")
    beside.write_text(wanted, encoding="utf-8")
    beside.replace(options.page)


if __name__ == "__main__":
    main()
