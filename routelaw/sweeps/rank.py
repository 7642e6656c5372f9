"""One process of a run of a sweep that several train together: told what to do in a line of JSON."""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path

from routelaw.kernels.cpu_bfloat16 import apply_remembered


def _note(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def main() -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    told = json.loads(sys.stdin.read())
    apply_remembered()

    from routelaw.distributed.ranks import DISK_FULL, WRONG_INPUT, Rank, exit_with_parent, report_error_once
    from routelaw.errors import LOST_CONTACT, DiskFull, InputError, LostContact
    from routelaw.sweeps.task import Task, train

    exit_with_parent()
    try:
        with report_error_once(Rank.here()):
            train(Task(**told["task"]), Path(told["folder"]), stopping.is_set, _note)
    except (InputError, LostContact) as error:
        sys.stderr.write(f"error: {error}\n")
        lost = isinstance(error, LostContact)
        sys.exit(LOST_CONTACT if lost else DISK_FULL if isinstance(error, DiskFull) else WRONG_INPUT)


if __name__ == "__main__":
    main()
