"""Errors that a user causes and a user can mend."""

import errno
import signal
from pathlib import Path


class InputError(ValueError):
    """Wrong input. The message is one sentence that says what is wrong, where, and what to do.

    The command line prints it and exits with code 2; nothing has been written when it is raised.

    >>> try:
    ...     rl.get_size("371M")
    ... except rl.InputError as error:
    ...     print(str(error).partition(";")[0])
    Unknown size '371M' (did you mean '370M'?)
    """


class DiskFull(InputError):
    """No room left: what fails here fails everywhere, so a sweep stops instead of trying the next run."""


def unwritable(path: Path, error: OSError, advice: str = "") -> InputError:
    """What to raise for a file that the system did not let us write."""
    kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else InputError
    return kind(f"{path}: cannot be written ({error.strerror or error}){advice}.")


WHAT_TO_DO = {
    signal.SIGKILL: "out of memory? Take fewer --jobs, more execution.micro_batches or a smaller model",
    signal.SIGILL: "an instruction that this CPU does not have: set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16, or leave "
    "execution.precision at float32",
    signal.SIGBUS: "is shared memory or the disk full?",
    signal.SIGSEGV: "a fault in compiled code: with execution.compile = off and no plugin, does it happen again?",
    signal.SIGABRT: "a library gave up: its last words are in the log",
}


def ended_by(code: int) -> str:
    """`ended by SIGKILL (out of memory? …)` for the return code of a process that a signal ended, with what to do."""
    try:
        number = signal.Signals(-code)
    except ValueError:  # a real-time signal has a number alone
        return f"ended by signal {-code}"
    return f"ended by {number.name}{f' ({WHAT_TO_DO[number]})' if number in WHAT_TO_DO else ''}"


LOST_CONTACT = 7
"""Exit code of a process whose partners no longer answer."""


class LostContact(Exception):
    """The other processes of a run do not answer: no fault of the run's, which goes on when started again."""
