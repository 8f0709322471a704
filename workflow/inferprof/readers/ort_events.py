"""The events of ONNX Runtime's own profile, as they stand in its file; read with the standard library alone."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from inferprof.errors import UserError, in_one_line
from inferprof.files import text_of, unpacked

NOT_TOLD: Final = "not told"
"""In place of a provider (files of 2019) or an operator's type that the file leaves out."""
NODE_SUFFIX: Final = "_kernel_time"
"""How the name of an event ends that is a node's time; the name of the node stands before it."""
MOST_CUT: Final = 4
"""Braces at the end of a cut list that may be of its last event."""
LONGEST_US: Final = 1e15
"""30 years, which no session lasts; ids of processes and threads are smaller, too."""
Event = Mapping[str, Any]


def is_cut(path: Path) -> bool:
    """Whether the list of events has no end, as where the session was killed."""
    return not unpacked(path).rstrip().endswith(b"]")


def _whole(text: str) -> str:
    """A list that has no end, up to its last event that has one."""
    body = text.rstrip().rstrip(",")
    for _ in range(MOST_CUT):
        with contextlib.suppress(ValueError):
            json.loads(f"{body}]")
            return f"{body}]"
        head, comma, _ = body.rpartition("},")
        if not comma:
            break
        body = f"{head}}}"
    return text


def read(path: Path, *, cut: bool = False) -> list[dict[str, Any]]:
    """The events of a file, packed or not; `cut`: of one without an end those that are whole.

    Raises UserError where it is cut short, damaged, or none of theirs.
    """
    try:
        text = text_of(path)
        events = json.loads(_whole(text) if cut and is_cut(path) else text)
    except (ValueError, RecursionError) as error:
        whole = "" if cut else "; inferprof explain tells of a cut one what is whole of it"
        raise UserError(
            f"{path} is cut short or damaged ({in_one_line(error)}): profile again, or copy it again{whole}"
        ) from None
    if not isinstance(events, list):
        raise UserError(f"{path} is no list of events, which ONNX Runtime's profiles are")
    for place, event in enumerate(events):
        if fault := _fault(event):
            raise UserError(f"{path}: event {place} has {fault}, which ONNX Runtime does not write")
    return [{**event, "args": event.get("args", {})} for event in events]


def _fault(event: Any) -> str | None:
    """What keeps an event from being one; None where nothing does."""
    if not isinstance(event, dict) or not isinstance(event.get("name"), str) or "cat" not in event:
        return "no name or category"
    if not isinstance(event.get("args", {}), dict):
        return "arguments that are no dictionary"
    for key in ("ts", "dur", "pid", "tid"):
        value = event.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return f"no number as its {key}"
        if abs(value) > LONGEST_US:
            return f"{value:.3g} as its {key}"
    return "a negative duration" if event["dur"] < 0 else None


def is_node(event: Event) -> bool:
    """Whether an event is the time of a node."""
    return event["cat"] == "Node" and str(event["name"]).endswith(NODE_SUFFIX)


def name_of(event: Event) -> str:
    """The name of a node; empty where it has none."""
    return str(event["name"]).removesuffix(NODE_SUFFIX)


def provider_of(event: Event) -> str:
    """The execution provider that ran a node."""
    return str(event["args"].get("provider") or NOT_TOLD)
