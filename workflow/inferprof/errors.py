"""The exceptions of inferprof, by who can mend them."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator

MENDABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EISDIR)
"""Errors of the system that are about the user's folder or disk."""


class UserError(Exception):
    """Something that the user can mend: one line that says what was given, what is allowed and what to do.

    The command line prints it without a traceback and exits with 2.
    """


class CaseFailed(Exception):
    """A measurement that ran and failed in a way that is itself a result (out of memory, NaN, shape rejected).

    The record keeps the reason, the job exits with 0 and the report shows it.
    """


class ToolError(Exception):
    """An external tool that failed: its command and the last lines of its log."""

    def __init__(self, command: Iterable[str], returncode: int, log: str, lines: int = 15) -> None:
        tail = "\n".join(log.rstrip().splitlines()[-lines:])
        super().__init__(f"`{' '.join(command)}` exited with {returncode}; the end of its log:\n{tail}")


@contextlib.contextmanager
def mendable() -> Iterator[None]:
    """Errors of the system that are MENDABLE become a UserError."""
    try:
        yield
    except OSError as error:
        if error.errno not in MENDABLE:
            raise
        raise UserError(f"{error.filename}: {error.strerror}") from error


@contextlib.contextmanager
def failures_of(tool: str) -> Iterator[None]:
    """What another's tool raises becomes a CaseFailed with the first line of its reason; our own errors stay."""
    try:
        yield
    except (UserError, CaseFailed, ToolError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in MENDABLE:
            raise
        raise CaseFailed(f"{tool}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The type of an exception and the first line of what it says."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[:1]])


def unknown(kind: str, names: Iterable[str], known: Iterable[str]) -> UserError:
    """`unknown models nope; known: minilm, vit_tiny`: the one wording for a name that does not exist."""
    return UserError(f"unknown {kind} {', '.join(names)}; known: {', '.join(sorted(known)) or 'none'}")
