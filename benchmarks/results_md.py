"""benchmarks/RESULTS.md from results.jsonl: of every GPU benchmark and device the figures of each row's newest code.

    python benchmarks/results_md.py [--check]

Nothing in it is typed by hand, and the same ledger gives the same page. What each benchmark is to reach (targets.py)
comes first. Figures that turned out wrong stay in the ledger, and the line says so: `withdrawn` maps a column to the
reason, which stands on the page in its place. `--check` writes nothing and exits with 1 when the page is not what the
ledger gives.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from targets import TARGETS

HERE = Path(__file__).parent
LEDGER, PAGE = HERE / "results.jsonl", HERE / "RESULTS.md"
PREFIX = "gpu_"
FAILED = "failed: "
HEAD = """# Results

Written by `python benchmarks/results_md.py` from results.jsonl: of every GPU benchmark and device the figures of each
row's newest code, all of them where it was measured more than once. Ratios are against the baseline that the
benchmark names, measured in the same run. Under a benchmark's name stands what its own docstring says. A commit with
`+changes` had changes beside it that were not yet recorded; `git rev-parse COMMIT:routelaw` tells which commits have
the code that is named after it.
"""


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


def page(lines: Iterable[dict[str, Any]], folder: Path = HERE) -> str:
    shown = newest(_shown(line) for line in lines)
    parts = [HEAD, *reached([line for own in shown.values() for line in own])]
    for name, own in shown.items():
        parts.append(f"\n## {name}\n\n{about(folder / f'{name}.py')}")
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


def about(script: Path) -> str:
    """Its docstring but for how it is called, with the figure that it says it draws."""
    said = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) if script.is_file() else None
    if not said:
        return ""
    paragraphs = [part for part in said.split("\n\n") if not part.startswith("    ")]
    paragraphs += [f"![{name}]({name})" for name in re.findall(r"benchmarks/(figures/\w+\.svg)", said)]
    return "\n\n".join(paragraphs) + "\n"


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when the page is stale")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    with options.ledger.open(encoding="utf-8") as file:
        wanted = page(json.loads(line) for line in file if line.strip())
    if options.check:
        if not options.page.is_file() or options.page.read_text(encoding="utf-8") != wanted:
            sys.exit(f"{options.page.name} is not what {options.ledger.name} gives: run benchmarks/results_md.py.")
        return
    beside = options.page.with_name(options.page.name + ".new")
    beside.write_text(wanted, encoding="utf-8")
    beside.replace(options.page)


if __name__ == "__main__":
    main()
