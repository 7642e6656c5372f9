"""A process that carries out tasks, one after another: a line of JSON in, a line of JSON out.

What anything else prints, a user's router say, goes to standard error: standard output is for answers alone.
It lives as long as its standard input: when whoever started it is gone, however that came about, it ends at once, as if
it had been killed too. SIGTERM asks it to leave a checkpoint and stop.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from routelaw.kernels.cpu_bfloat16 import apply_remembered

ABANDONED = 4
"""Exit code of a worker whose parent has gone."""


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    tasks: queue.SimpleQueue[str | None] = queue.SimpleQueue()  # unlike Queue, it may be filled by a signal's handler
    stopping = threading.Event()
    busy = threading.Event()
    threading.Thread(target=_listen, args=(tasks, busy), daemon=True).start()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()
        tasks.put(None)

    signal.signal(signal.SIGTERM, stop)
    apply_remembered()
    from routelaw.sweeps.task import Task, carry_out  # torch: seconds, during which a signal must already be heard
    from routelaw.training.device import release

    while (line := tasks.get()) is not None and not stopping.is_set():
        busy.set()
        outcome = carry_out(Task(**json.loads(line)), stopping.is_set)
        release()  # others may share the GPU
        busy.clear()
        print(json.dumps(asdict(outcome)), file=answers, flush=True)


def _listen(tasks: queue.SimpleQueue[str | None], busy: threading.Event) -> None:
    for line in sys.stdin:
        busy.set()
        tasks.put(line)
    if busy.is_set():
        os._exit(ABANDONED)
    tasks.put(None)


def train_one_rank() -> None:
    """One process of a run that several train together: the task and its folder are read from standard input."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    given = json.loads(sys.stdin.read())
    apply_remembered()

    from routelaw.distributed.ranks import DISK_FULL, WRONG_INPUT, Rank, exit_with_parent, report_error_once
    from routelaw.errors import LOST_CONTACT, DiskFull, InputError, LostContact
    from routelaw.sweeps.task import Task, train

    def note(sentence: str) -> None:
        print(sentence, file=sys.stderr)

    exit_with_parent()
    try:
        with report_error_once(Rank.here()):
            train(Task(**given["task"]), Path(given["folder"]), stopping.is_set, note)
    except (InputError, LostContact) as error:
        sys.stderr.write(f"error: {error}\n")
        lost = isinstance(error, LostContact)
        sys.exit(LOST_CONTACT if lost else DISK_FULL if isinstance(error, DiskFull) else WRONG_INPUT)


if __name__ == "__main__":
    train_one_rank() if sys.argv[1:] else main()
