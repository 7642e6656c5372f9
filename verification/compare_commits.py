"""Did a restructuring change anything? Two commits side by side: run ids, losses, fits, and runs that go on.

    python -m verification.compare_commits BASE [HEAD] [--data CSV]

Each commit is checked out into a temporary worktree and runs with this interpreter. Compared are

- the ids of runs with every router;
- the losses of short trainings, one for each router, to the last bit;
- runs that BASE begins and HEAD resumes, against runs that BASE trains alone: parameters to the last bit;
- the keys and numbers of `fit`, `compare` and `reproduce --json` on the released losses, where they are at hand.

Sentences, execution settings and the layout of files may differ. The exit code is 1 where anything else does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RELEASED = ROOT.parent / "shared" / "data" / "routing_curves.csv.gz"
ROUTERS = ("dense", "switch", "s-base", "base", "hash", "rl-r")
STEPS = 200
TOLERANCE = 1e-9
"""Relative difference of numbers in JSON."""
IDS = """
import json, sys
from pathlib import Path
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
routers = json.loads(sys.argv[1])
model = ModelSpec(get_size("0.05M"), 512, 64)
specs = [RunSpec(model, RouterSpec() if r == "dense" else RouterSpec(r, e, k), TrainSpec(steps=10, batch=4), corpus="c")
         for r in routers for e, k in ([(1, 1)] if r == "dense" else [(4, 1), (8, 2)])]
print(json.dumps([[s.run_id, s.variant] for s in specs]))
"""


def environment_of(tree: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}


def run(tree: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment_of(tree), capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)[:200]} in {tree.name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def routelaw(tree: Path, *words: str | Path) -> Any:
    return json.loads(run(tree, "-m", "routelaw", *map(str, words), "--json").strip().splitlines()[-1])


def words_of(corpus: Path, out: Path, router: str) -> list[str]:
    experts = [] if router == "dense" else ["--experts", "4"]
    size = ["--size", "0.05M", "--steps", str(STEPS), "--batch", "4", "--sequence-length", "64"]
    saves = [word for field in ("save_every=20", "keep=1") for word in ("--set", f"execution.{field}")]
    words = ["train", "--corpus", str(corpus), "--router", router, *experts, *size, "--learning-rate", "6e-3"]
    return [*words, *saves, "--out", str(out)]


def parameters_of(folder: Path) -> dict[str, bytes]:
    """The model's parameters of the newest checkpoint, whatever the files are called."""
    from safetensors import safe_open

    found: dict[str, bytes] = {}
    for file in sorted(folder.rglob("*.safetensors")):
        with safe_open(file, "np") as opened:
            for name in opened.keys():  # noqa: SIM118 (not a mapping)
                found[name.rpartition("model/")[2]] = opened.get_tensor(name).tobytes()
    return found


def differences(base: Any, head: Any, where: str = "") -> Iterator[str]:
    """Where two JSON values differ in keys or numbers. Text may differ."""
    if isinstance(base, dict) and isinstance(head, dict):
        for key in sorted(base.keys() ^ head.keys()):
            yield f"{where}.{key}: only in {'base' if key in base else 'head'}"
        for key in base.keys() & head.keys():
            yield from differences(base[key], head[key], f"{where}.{key}")
    elif isinstance(base, list) and isinstance(head, list):
        if len(base) != len(head):
            yield f"{where}: {len(base)} and {len(head)} entries"
        for number, (one, other) in enumerate(zip(base, head, strict=False)):
            yield from differences(one, other, f"{where}[{number}]")
    elif isinstance(base, int | float) and isinstance(head, int | float):
        if not math.isclose(base, head, rel_tol=TOLERANCE, abs_tol=1e-15):
            yield f"{where}: {base} and {head}"
    elif type(base) is not type(head):
        yield f"{where}: {base!r:.60} and {head!r:.60}"


def compared_ids(base: Path, head: Path) -> Iterator[tuple[str, list[str]]]:
    ids = [json.loads(run(tree, "-c", IDS, json.dumps(ROUTERS))) for tree in (base, head)]
    yield f"{len(ids[0])} run ids and variants", [f"{a} and {b}" for a, b in zip(*ids, strict=True) if a != b]


def compared_training(base: Path, head: Path, place: Path) -> Iterator[tuple[str, list[str]]]:
    corpus = place / "corpus"
    text = place / "text.txt"
    text.write_text("\n".join(f"{n} times {n + 1} is {n * (n + 1)}, they say." for n in range(20_000)))
    run(
        base,
        "-m",
        "routelaw",
        "corpus",
        "build",
        str(text),
        "--out",
        str(corpus),
        "--vocabulary",
        "300",
        "--documents",
        "line",
        "--json",
    )
    for router in ROUTERS:
        results = [routelaw(tree, *words_of(corpus, place / f"{tree.name}-{router}", router)) for tree in (base, head)]
        figures = [{k: r[k] for k in ("run_id", "step", "loss_validation")} for r in results]
        wrong = [] if figures[0] == figures[1] else [f"{figures[0]} and {figures[1]}"]
        whole = parameters_of(place / f"base-{router}")
        if not whole:
            sys.exit(f"the run of {router} left no parameters to compare")
        if whole != parameters_of(place / f"head-{router}"):
            wrong.append("parameters differ")
        yield f"{router}: loss {figures[0]['loss_validation']:.6f}, parameters after {STEPS} steps", wrong
        continued = place / f"continued-{router}"
        train_and_kill(base, corpus, continued, router)
        routelaw(head, *words_of(corpus, continued, router))
        wrong = [] if parameters_of(continued) == whole else ["parameters differ"]
        yield f"{router}: begun by base, killed, resumed by head", wrong


def train_and_kill(tree: Path, corpus: Path, out: Path, router: str) -> None:
    """The same run, killed (SIGKILL) as soon as it has left a checkpoint."""
    command = [sys.executable, "-m", "routelaw", *words_of(corpus, out, router)]
    process = subprocess.Popen(command, cwd=tree, env=environment_of(tree), stdout=subprocess.DEVNULL)
    while process.poll() is None and not any(out.rglob("*.safetensors")):
        time.sleep(0.002)
    process.kill()
    process.wait()
    if (out / "result.json").is_file():
        sys.exit(f"{out}: the run ended before it could be killed")


def compared_analysis(base: Path, head: Path, place: Path, data: Path) -> Iterator[tuple[str, list[str]]]:
    commands = [
        ("fit", data, "--law", "saturated", "--router", "s-base"),
        ("fit", data, "--law", "irreducible", "--router", "hash", "--target", "loss_c4"),
        ("fit", data, "--law", "compute", "--router", "s-base"),
        ("compare", data),
    ]
    for words in commands:
        results = [routelaw(tree, *words) for tree in (base, head)]
        yield " ".join(map(str, words)).replace(str(data), "RELEASED"), list(differences(*results))
    results = [routelaw(t, "reproduce", "--data", data, "--out", place / f"{t.name}-reproduce") for t in (base, head)]
    yield "reproduce", list(differences(*[{k: v for k, v in r.items() if k != "out"} for r in results]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("head", nargs="?", default="HEAD")
    parser.add_argument("--data", type=Path, default=RELEASED)
    asked = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        base, head = place / "base", place / "head"
        try:
            for tree, commit in ((base, asked.base), (head, asked.head)):
                subprocess.run(["git", "worktree", "add", "-q", "--detach", tree, commit], cwd=ROOT, check=True)
            parts = [compared_ids(base, head), compared_training(base, head, place)]
            if asked.data.is_file():
                parts.append(compared_analysis(base, head, place, asked.data.resolve()))
            else:
                print(f"{asked.data} is not there: fits are left out")
            for part in parts:
                for what, wrong in part:
                    print(f"{'DIFFERS' if wrong else 'same':8}{what}", *(f"        {w}" for w in wrong[:10]), sep="\n")
                    failed = failed or bool(wrong)
        finally:
            for tree in (base, head):
                subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=False)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
