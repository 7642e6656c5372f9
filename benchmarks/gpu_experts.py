"""What experts cost on a GPU: a routed layer against their number, with the floor that their bytes set, as a figure.

    python benchmarks/gpu_experts.py [--quick] [--width 1024] [--experts 1 2 … 512] [--tokens 32768]
    python benchmarks/gpu_experts.py --redraw

Forward and backward, K = 1, hidden layer 4d, bfloat16, compiled, beside a compiled dense FFW of the same FLOPs. The
floor is the bytes of the experts' weights (read forwards, read backwards, gradients written) over the bandwidth of a
copy measured in the same run. Writes benchmarks/figures/cost_against_experts.svg and .png, and appends one line to
results.jsonl; `--redraw` draws the newest line again.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import ledger
import matplotlib
from budget import kept

matplotlib.use("Agg")

from matplotlib.figure import Figure as Picture

from routelaw.figures import style

FOLDER = Path(__file__).parent / "figures"
NAME = "cost_against_experts"
Rows = Mapping[str, Mapping[str, float]]


def draw(rows: Rows, words: str) -> Picture:
    """Milliseconds against E, both logarithmic: the routed layer, the dense one as a level, the floor as a line."""
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


def save(rows: Rows, words: str, folder: Path = FOLDER) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{NAME}.{kind}" for kind in ("svg", "png")]
    with matplotlib.rc_context(style.RC):
        picture = draw(rows, words)
        for path in paths:
            picture.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def redraw() -> list[Path]:
    lines = [line for line in ledger.lines() if line["benchmark"] == "gpu_experts"]
    if not lines:
        raise SystemExit("results.jsonl has no line of gpu_experts to draw: run it without --redraw first.")
    newest = max(lines, key=lambda line: line["date"])
    rows: dict[str, dict[str, float]] = {}
    for key, value in newest["figures"].items():
        row, _, column = key.partition("/")
        if not isinstance(value, str):
            rows.setdefault(row, {})[column] = value
    return save(rows, _words(newest["data"], newest["device"], newest["date"][:10]))


def _words(setting: str, device: str, date: str) -> str:
    return f"{setting}\n{device}, {date}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few tokens; leaves no line, and draws nothing")
    parser.add_argument("--redraw", action="store_true", help="the figure again, from the newest line")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--experts", type=int, nargs="+", default=[2**n for n in range(10)])
    parser.add_argument("--tokens", type=int, default=32_768)
    given = parser.parse_args()
    if given.redraw:
        print(*redraw(), sep="\n")
        return
    from dataclasses import replace

    from routelaw.bench import experts

    options = experts.Options(given.width, tuple(given.experts), given.tokens, compile=True)
    if given.quick:
        options = replace(experts.QUICK, compile=True)
    table = experts.table(options, kept(experts.rows(options)))
    if not given.quick:
        ledger.append_table("gpu_experts", table)
    if not given.quick and len(table.rows) == len(options.experts):
        print(*save(table.rows, _words(table.setting, str(table.machine), table.machine.date)), sep="\n")


if __name__ == "__main__":
    main()
