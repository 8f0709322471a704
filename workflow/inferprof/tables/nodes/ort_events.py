"""The events of ONNX Runtime's own profile, as they stand in its file; read with the standard library alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from inferprof.errors import UserError
from inferprof.files import opened

NOT_TOLD: Final = "not told"
"""In place of a provider (files of 2019) or an operator's type that the file leaves out."""
NODE_SUFFIX: Final = "_kernel_time"
"""How the name of an event ends that is a node's time; the name of the node stands before it."""
Event = Mapping[str, Any]


def read(path: Path) -> list[dict[str, Any]]:
    """The events of a file, packed or not. Raises UserError where it is damaged."""
    try:
        with opened(path) as file:
            return loads(file.read().decode("utf-8", errors="replace"))
    except (ValueError, EOFError) as error:
        raise UserError(f"{path} is damaged ({error}): profile again, or copy it again") from None


def loads(text: str) -> list[dict[str, Any]]:
    """The events of a profile, also of one that ends in the middle because the process died.

    Raises ValueError where what is lacking is not the end.
    """
    try:
        whole: list[dict[str, Any]] = json.loads(text)
    except ValueError:
        return _until_it_breaks(text)
    return whole


def _until_it_breaks(text: str) -> list[dict[str, Any]]:
    decoder, events = json.JSONDecoder(), []
    place = text.find("{")
    while place >= 0:
        try:
            event, end = decoder.raw_decode(text, place)
        except ValueError:
            if text.count('"cat"', place) > 1:
                raise
            break
        events.append(event)
        place = text.find("{", end)
    return events


def is_node(event: Event) -> bool:
    """Whether an event is the time of a node."""
    return event["cat"] == "Node" and str(event["name"]).endswith(NODE_SUFFIX)


def name_of(event: Event) -> str:
    """The name of a node; empty where it has none."""
    return str(event["name"]).removesuffix(NODE_SUFFIX)


def provider_of(event: Event) -> str:
    """The execution provider that ran a node."""
    return str(event["args"].get("provider", NOT_TOLD))
