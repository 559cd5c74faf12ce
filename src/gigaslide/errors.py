"""The errors a user is meant to read, and their exit codes.

A `GigaslideError` is one sentence: what was expected, what was found, where, and what to do. The command line prints
it without a traceback (`--debug` shows one).
"""


class GigaslideError(Exception):
    """Something failed while the command ran; exit code 1."""

    exit_code = 1


class UsageError(GigaslideError):
    """The command, `params.yaml` or the cohort table is wrong; exit code 2."""

    exit_code = 2


class SlideError(GigaslideError):
    """A slide, or the annotation of one, cannot be used."""


class GigaslideWarning(UserWarning):
    """Something was guessed or repaired; the message says what."""
