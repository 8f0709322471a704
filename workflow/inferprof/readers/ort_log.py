"""Reads the log of ONNX Runtime (severity VERBOSE, INFO): who got which node, the copies between them, and why.

Checked against lines of ONNX Runtime 1.1 (one list per provider), 1.13 (a line per node) and 1.14 to 1.31 (a line
per provider, then its nodes). Needs the standard library alone, since a profiled run reads its own log with it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

MARK: Final = re.compile(
    r"\[[VIWEF]:onnxruntime:|VerifyEachNodeIsAssignedToAnEp|"
    r"Node\(s\) placed on \[|All nodes (?:have been )?placed on \["
)
COLOURS: Final = re.compile(r"\x1b\[[\d;]*m")
REASONS: Final = (
    re.compile(r"(?P<why>\w+ kernel not found in registries) for Op type: \S+ node name: (?P<node>.*?)\s*$"),
    re.compile(r"(?P<why>CUDA kernel not supported)\. Fallback .* for Op type: \S+ node name: (?P<node>.+?)\s*$"),
    re.compile(
        r"Force fallback to CPU execution for node: (?P<node>.+?) because "
        r"(?P<why>the CPU execution path is deemed faster than overhead involved with execution on other EPs)"
    ),
)
"""Lines about a node that a provider left to the CPU."""
_PREFIX: Final = re.compile(r"^.*?\[(?P<level>[VIWEF]):onnxruntime:(?P<session>[^,\]]*)[^\]]*\] ?")
_PLACED: Final = re.compile(
    r"(?:Node\(s\)|All nodes) placed on \[(?P<provider>\w+)\]\. Number of nodes: (?P<count>\d+)"
)
_ALL: Final = re.compile(r"All nodes have been placed on \[(?P<provider>\w+)\]")
_ONE: Final = re.compile(r"Node \[(?P<node>.+?)\] has been placed on \[(?P<provider>\w+)\]")
_LIST: Final = re.compile(r"Provider: \[(?P<provider>\w+)\]: \[(?P<nodes>.*)\]")
_NODE: Final = re.compile(r"^\s*(?P<type>[\w.:-]*\w[\w.:-]*)(?: \((?P<name>.*)\))?\s*$")
_COPY: Final = re.compile(r"Add (?P<way>Memcpy(?:From|To)Host) (?:after|before) \S+ for (?P<provider>\w+)")
_COPIES: Final = re.compile(
    r"(?P<count>\d+) Memcpy nodes are added to the graph (?P<graph>\S+) for (?P<provider>\w+)"
)
COPY: Final = "Memcpy"


@dataclass
class Placement:
    """The nodes of a session by provider, the copies that were added, and why nodes were left to the CPU."""

    nodes: dict[str, int] = field(default_factory=dict)
    """Provider → nodes, copies among them."""
    types: dict[str, Counter[str]] = field(default_factory=dict)
    copies: int = 0
    reasons: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def reasons(log: str) -> dict[str, str]:
    """Node → why it was left to the CPU, of the lines that say so."""
    by_node = {}
    for line in COLOURS.sub("", log).splitlines():
        if match := _reason(line):
            by_node[match["node"]] = match["why"]
    return by_node


def _reason(line: str) -> re.Match[str] | None:
    return next((match for pattern in REASONS if (match := pattern.search(line))), None)


def sessions(log: str) -> list[Placement]:
    """What each session says, in order: a new one begins with each list of placements."""
    made: list[Placement] = []
    current = Placement()
    provider, left = "", 0
    placing = False
    for line in COLOURS.sub("", log).splitlines():
        head = _PREFIX.match(line)
        text = line[head.end() :] if head else line
        if "Node placements" in text:
            made.append(current)
            current = Placement()
            placing = True
        target = made[-1] if placing else current
        if match := _PLACED.search(text):
            provider, left = match["provider"], int(match["count"])
            target.nodes[provider] = target.nodes.get(provider, 0) + left
        elif match := _ALL.search(text):
            target.nodes.setdefault(match["provider"], 0)
        elif match := _ONE.search(text):
            _add(target, match["provider"], match["node"])
        elif match := _LIST.search(text):
            for node in re.findall(r"[\w.:-]+(?: \(.*?\)(?=, |$))?", match["nodes"].rstrip(", ")):
                _add(target, match["provider"], node)
        elif left and (match := _NODE.match(text)):
            left -= 1
            target.types.setdefault(provider, Counter())[_type(text)] += 1
        else:
            left = 0
            _said(made[-1] if placing else current, current, text, head["level"] if head else "")
    if not made and (current.copies or current.reasons or current.nodes or current.warnings or current.errors):
        made.append(current)
    return made


def _said(placed: Placement, coming: Placement, text: str, level: str) -> None:
    """Copies and reasons stand in front of the placements that they belong to."""
    if match := _COPY.search(text):
        coming.copies += 1
    elif match := _COPIES.search(text):
        coming.copies = max(coming.copies, int(match["count"]))
        coming.warnings.append(text.strip())
    elif match := _reason(text):
        coming.reasons[match["node"]] = match["why"]
    elif level in ("W", "E", "F"):
        (placed.warnings if level == "W" else placed.errors).append(text.strip())


def _add(placement: Placement, provider: str, node: str) -> None:
    placement.nodes[provider] = placement.nodes.get(provider, 0) + 1
    placement.types.setdefault(provider, Counter())[_type(node)] += 1


def _type(node: str) -> str:
    """`Conv (conv1)` → Conv; a copy is one by its name or its type."""
    match = _NODE.match(node)
    name = match["type"] if match else node.strip()
    return COPY if name.startswith(COPY) else name
