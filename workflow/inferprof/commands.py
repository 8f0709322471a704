"""The verbs of the command line: one per stage, what each does is in `verbs`.

Exit codes: 0 done (as the job of a study also where the case failed: its document says so), 1 a job broke or the gate
of `compare` failed, 2 user error, 3 the gate of `compare` is undecided, 4 what a verb was asked for by hand failed.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from inferprof import (
    __version__,
    answer_verbs,
    escape,
    flags,
    graph_verbs,
    outcomes,
    processes,
    progress,
    registry,
    verbs,
)
from inferprof.errors import CaseFailed, ToolError, UserError, as_user_error, meant


def main(argv: Sequence[str] | None = None, *, watched: bool = False) -> int:
    """Run one verb. Returns the exit code.

    A job of a study is watched by a process of its own, which says how it ended where it cannot say so itself;
    `watched`: that is so already.
    """
    args = _arguments(argv)
    if argv is None and not watched and (limit := outcomes.job_limit_s()):
        processes.go_on_watched(limit)
    code = 1
    try:
        code = _run_verb(args)
        return code
    finally:
        with processes.reader_may_leave():
            sys.stdout.flush()
        if argv is None and getattr(args, "at_once", False):
            processes.end_at_once(code)


def _run_verb(args: argparse.Namespace) -> int:
    """The exit code of a verb; user errors, and what broke, in one line."""
    processes.die_with_parent()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # µ and → in a terminal's encoding that lacks them
    # CUDA counts the fastest GPU first unless told otherwise; NVML, which says which GPU this is, counts by PCI bus.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    try:
        registry.load_outside(os.environ.get(registry.OUTSIDE, ""))
        with progress.displayed(), as_user_error():
            return int(args.verb(args) or 0)
    except (UserError, ToolError, CaseFailed) as error:
        print(escape.message(f"inferprof: {error}"), file=sys.stderr)
        if isinstance(error, ToolError):  # the last line of a log is what a report quotes
            print(escape.line(f"inferprof: {error.summary}"), file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The flags of a verb; one that it has not ends the program as argparse does, and with what was meant."""
    args, rest = parser().parse_known_args(argv)
    if rest:
        flags_of_verb = [flag for action in args.parser._actions for flag in action.option_strings]
        args.parser.error(f"unrecognized arguments: {' '.join(rest)}{meant(rest, flags_of_verb)}")
    return args


def parser() -> argparse.ArgumentParser:
    """Every verb with its flags; the first line of the verb's docstring is its help."""
    parser = argparse.ArgumentParser(
        prog="inferprof", description="GPU inference performance studies.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="VERB")
    for name, (function, add_flags) in VERBS.items():
        sub = subparsers.add_parser(name, help=function.__doc__, description=function.__doc__, allow_abbrev=False)
        sub.set_defaults(verb=function, parser=sub)
        add_flags(sub)
    return parser


VERBS: dict[str, tuple[Any, Any]] = {
    "probe": (verbs.probe, flags.probe),
    "bandwidth": (verbs.bandwidth, flags.out),
    "ceilings": (verbs.ceilings, flags.out),
    "cases": (verbs.cases, flags.cases),
    "export": (graph_verbs.export, flags.export),
    "quantize": (graph_verbs.quantize, flags.quantize),
    "audit": (graph_verbs.audit, flags.audit),
    "partition": (graph_verbs.partition, flags.partition),
    "cost": (graph_verbs.cost, flags.cost),
    "expect": (graph_verbs.expect, flags.expect),
    "accuracy": (graph_verbs.accuracy, flags.accuracy),
    "sensitivity": (graph_verbs.sensitivity, flags.sensitivity),
    "build": (verbs.build, flags.build),
    "compile": (verbs.compile_ahead, flags.run),
    "run": (verbs.run, flags.run),
    "serve": (answer_verbs.serve, answer_verbs.serve_flags),
    "trtexec": (verbs.trtexec, flags.trtexec),
    "capture": (verbs.capture, flags.capture),
    "table": (verbs.table, flags.table),
    "explain": (answer_verbs.explain, answer_verbs.explain_flags),
    "watch": (answer_verbs.watch, answer_verbs.watch_flags),
    "links": (answer_verbs.links, answer_verbs.links_flags),
    "quick": (answer_verbs.quick, answer_verbs.quick_flags),
    "formats": (verbs.formats, flags.formats),
    "diagnose": (verbs.diagnose, flags.diagnose),
    "report": (verbs.report, flags.report),
    "select": (verbs.select, flags.select),
    "best": (answer_verbs.best, answer_verbs.best_flags),
    "compare": (verbs.compare, flags.compare),
    "bundle": (verbs.bundle, flags.bundle),
    "unbundle": (verbs.unbundle, flags.unbundle),
    "verify": (answer_verbs.verify, answer_verbs.verify_flags),
    "unlock": (verbs.unlock, flags.none),
}
"""Verb → what it does, and what adds its flags."""
