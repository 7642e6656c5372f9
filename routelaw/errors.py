"""Errors that a user causes and a user can mend."""

import errno
from pathlib import Path


class InputError(ValueError):
    """Wrong input. The message is one sentence that says what is wrong, where, and what to do.

    The command line prints it and exits with code 2; nothing has been written when it is raised.
    """


class DiskFull(InputError):
    """No room left: what fails here fails everywhere, so a sweep stops instead of trying the next run."""


def unwritable(path: Path, error: OSError, advice: str = "") -> InputError:
    """What to raise for a file that the system did not let us write."""
    kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else InputError
    return kind(f"{path}: cannot be written ({error.strerror or error}){advice}.")


LOST_CONTACT = 7
"""Exit code of a process whose partners no longer answer."""


class LostContact(Exception):
    """The other processes of a run do not answer: no fault of the run's, which goes on when started again."""
