"""Does a run of two processes that is killed end as if it had never been? kill −9 at random instants, resume, compare.

    python verification/kill_two_processes.py [--kills 8] [--seed 0]

Each trial trains a tiny run on two processes (experts on either), kills whoever started them, or one of the two, at a
random moment, up to three times, and lets it finish. Compared with a run that nobody disturbed, bit for bit: the sha256
of every tensor file of the last checkpoint, and every row of log and evaluations but for the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from routelaw.training.checkpoint import list_checkpoints, read_state

STEPS, CLOCK = 40, ("tokens_per_second", "seconds")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as place:
        corpus = _corpus(Path(place))
        assert _started(corpus, Path(place) / "whole").wait() == 0
        wanted = _outcome(Path(place) / "whole")
        kills = trials = equal = 0
        while kills < asked.kills:
            folder = Path(place) / f"trial-{trials}"
            for _ in range(min(draw.randint(1, 3), asked.kills - kills)):
                kills += _killed(corpus, folder, draw)
            same = _started(corpus, folder).wait() == 0 and _outcome(folder) == wanted
            trials, equal = trials + 1, equal + same
            print(f"trial {trials}, {kills} kills so far: {'equal' if same else 'the end differs'}", flush=True)
    print(f"{kills} kills of runs on two processes; {equal} of {trials} runs ended equal")
    return 0 if equal == trials else 1


def _killed(corpus: Path, folder: Path, draw: random.Random) -> bool:
    """Train until some step, then kill the launcher or one of its processes; whether it was still at it."""
    process, wanted = _started(corpus, folder), _step(folder) + draw.randint(1, 12)
    while process.poll() is None and _step(folder) < wanted:
        time.sleep(0.005)
    time.sleep(draw.uniform(0, 0.05))
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(draw.choice([process.pid, *map(int, children)]), signal.SIGKILL)
    except OSError:
        pass  # it has just ended
    return process.wait() != 0


def _started(corpus: Path, folder: Path) -> subprocess.Popen[bytes]:
    words = {
        "corpus": corpus, "size": "0.05M", "router": "s-base", "experts": 4, "steps": STEPS, "batch": 8, "expert": 2,
        "sequence-length": 16, "device": "cpu", "evaluate-every": 10, "save-every": 4, "out": folder,
    }  # fmt: skip
    given = [str(word) for name, value in words.items() for word in (f"--{name}", value)]
    fields = ("router.group_tokens=16", "execution.log_every=1")
    command = [sys.executable, "-m", "routelaw", "train", *given, *(word for f in fields for word in ("--set", f))]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _step(folder: Path) -> int:
    try:
        return len((folder / "log.jsonl").read_bytes().splitlines())
    except FileNotFoundError:
        return 0


def _outcome(folder: Path) -> tuple[object, ...]:
    state = read_state(list_checkpoints(folder / "checkpoints")[-1])
    rows = [
        [{k: v for k, v in json.loads(line).items() if k not in CLOCK} for line in (folder / name).open()]
        for name in ("log.jsonl", "evaluations.jsonl")
    ]
    return state["step"], state["counters"], state["sha256"], rows


def _corpus(place: Path) -> Path:
    draw = random.Random(3)
    words = ["".join(draw.choices("aeiobdglmnrst", k=4)) for _ in range(40)]
    (place / "text.txt").write_text("".join(" ".join(draw.choices(words, k=20)) + "\n" for _ in range(200)))
    command = ["corpus", "build", place / "text.txt", "--out", place / "corpus", "--vocabulary", 320, "--documents"]
    words = [sys.executable, "-m", "routelaw", *map(str, command), "line", "--validation", "0.1"]
    subprocess.run(words, check=True, capture_output=True)
    return place / "corpus"


if __name__ == "__main__":
    sys.exit(main())
