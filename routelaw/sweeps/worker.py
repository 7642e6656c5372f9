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


if __name__ == "__main__":
    main()
