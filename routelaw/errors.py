"""The one error that a user causes and a user can mend."""


class InputError(ValueError):
    """Wrong input. The message is one sentence that says what is wrong, where, and what to do.

    The command line prints it and exits with code 2; nothing has been written when it is raised.
    """
