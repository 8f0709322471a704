"""The command line. A job of a study hands its verb to a process with the libraries imported, where one serves it.

This module and what it imports at its top are all that such a job loads: `commands` has the verbs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from inferprof import forked


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Returns the exit code."""
    if argv is None and (code := forked.served(sys.argv[1:])) is not None:
        return code
    from inferprof import commands

    return commands.main(argv)
