"""The exceptions of inferprof, by who can mend them."""

from __future__ import annotations

from collections.abc import Iterable


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


def unknown(kind: str, names: Iterable[str], known: Iterable[str]) -> UserError:
    """`unknown models nope; known: minilm, vit_tiny`: the one wording for a name that does not exist."""
    return UserError(f"unknown {kind} {', '.join(names)}; known: {', '.join(sorted(known)) or 'none'}")
