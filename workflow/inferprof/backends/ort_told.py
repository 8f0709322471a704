"""What ONNX Runtime tells of a session when it is asked to profile it: who took which node, and why others did not.

The reasons stand in its log only, on the process's standard error, while the session is made.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inferprof.readers.ort_log import reasons
from inferprof.tables.nodes import ort_facts
from inferprof.tables.nodes.ort_facts import Assigned, SessionFacts

if TYPE_CHECKING:
    import onnxruntime

ASSIGNMENT: Final = "session.record_ep_graph_assignment_info"
INFO, WARNING = 1, 2
"""Severities of ONNX Runtime's log."""
STDERR: Final = 2
OPTIONS: Final = ("trt_min_subgraph_size", "trt_max_partition_iterations", "trt_op_types_to_exclude")
"""The options of providers that decide which nodes they take."""
_BELOW_WARNING: Final = re.compile(r"\[[VI]:")


def ask(options: onnxruntime.SessionOptions, profile: Path) -> None:
    """Switch on the profile, the record of assignments (ONNX Runtime 1.24 and newer) and the reasons."""
    profile.parent.mkdir(parents=True, exist_ok=True)
    options.enable_profiling = True
    options.profile_file_prefix = str(profile)
    options.log_severity_level = INFO
    options.add_session_config_entry(ASSIGNMENT, "1")


@contextlib.contextmanager
def heard(options: onnxruntime.SessionOptions) -> Iterator[None]:
    """Keep the log of what happens inside beside the profile that `options` ask for, for `keep`."""
    if not options.enable_profiling:
        yield
        return
    with _into(_log(Path(options.profile_file_prefix))):
        yield


@contextlib.contextmanager
def _into(log: Path) -> Iterator[None]:
    """Write the log of what happens inside into a file. Warnings and errors go on to standard error, all of the log
    does where the block fails."""
    made = False
    try:
        with _stderr_into(log):
            yield
        made = True
    finally:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        sys.stderr.writelines(f"{line}\n" for line in lines if not (made and _BELOW_WARNING.search(line)))


@contextlib.contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """The descriptor itself: C++ does not write through sys.stderr."""
    import onnxruntime

    sys.stderr.flush()
    before = os.dup(STDERR)
    with log.open("wb") as file:
        os.dup2(file.fileno(), STDERR)
    onnxruntime.set_default_logger_severity(INFO)  # some parts have no logger of the session
    try:
        yield
    finally:
        onnxruntime.set_default_logger_severity(WARNING)
        os.dup2(before, STDERR)
        os.close(before)


def keep(session: Any, profile: Path) -> None:
    """End the profile and leave it at `profile`, with the session's facts in front of its events."""
    end = profile.with_name(f"{profile.name}.end.log")
    with _into(end):  # it says where it writes
        written = Path(session.end_profiling())
    end.unlink()
    events = json.loads(written.read_text(encoding="utf-8"))
    written.unlink()
    log = _log(profile)
    facts = SessionFacts(
        start_ns=session.get_profiling_start_time_ns(),
        assigned=_assigned(session),
        reasons=reasons(log.read_text(encoding="utf-8", errors="replace")),
        options=_options(session),
    )
    log.unlink()
    profile.write_text(json.dumps([ort_facts.event(facts, os.getpid()), *events]), encoding="utf-8")


def _log(profile: Path) -> Path:
    return profile.with_name(f"{profile.name}.log")


def _assigned(session: Any) -> tuple[Assigned, ...]:
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return ()
    subgraphs = session.get_provider_graph_assignment_info()
    return tuple(
        Assigned(node.name, node.op_type, subgraph.ep_name, number)
        for number, subgraph in enumerate(subgraphs)
        for node in subgraph.get_nodes()
    )


def _options(session: Any) -> dict[str, dict[str, str]]:
    providers = session.get_provider_options()
    deciding = {name: {key: given[key] for key in OPTIONS if key in given} for name, given in providers.items()}
    return {name: given for name, given in deciding.items() if given}
