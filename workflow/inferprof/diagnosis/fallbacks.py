"""What ONNX Runtime left to another execution provider than the one that was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
from msgspec.structs import replace

from inferprof import registry
from inferprof.diagnosis.kernel_time import clipped
from inferprof.findings import Clear, Finding, Frames, Gain, NotAssessed
from inferprof.plugins import check
from inferprof.tables.nodes import fallback
from inferprof.tables.nodes.providers import first_run_alone, per_run
from inferprof.tables.records import rows_of
from inferprof.words import counted, ms

SUMS: Final = ("nodes_ns", "copies_ns", "casts_ns", "copies", "casts", "executions")


def fallbacks_of(frames: Frames) -> pd.DataFrame:
    """Fallbacks of tables.nodes.fallback that are not on purpose, those that are alike in one row; none where no tool
    watched the session."""
    return frames.once(_fallbacks)


def _fallbacks(frames: Frames) -> pd.DataFrame:
    fallbacks = fallback.explained(
        fallback.ledger(frames.once(_session)[1]), frames.case.backend, frames.documents.partition
    )
    return fallback.alike(fallbacks[fallbacks["why"] != fallback.ON_PURPOSE])


@check("fallback", "Nodes with another provider", "engine", ("gpu",), by="model")
def _fallback(frames: Frames) -> list[Finding] | Clear:
    """A finding for fallbacks that are alike, with the gain's bounds that are written in tables.nodes.fallback."""
    tool, nodes = frames.once(_session)
    if not tool and not frames.case.backend.startswith("ort_"):
        return Clear(f"{frames.case.backend} has no second provider that nodes could fall back to")
    if not tool:
        raise NotAssessed(f"a profile by {' or '.join(registry.sessions())}")
    if nodes.empty:
        raise NotAssessed("a run of the session that came to its end")
    amiss = fallbacks_of(frames)
    if amiss.empty:
        return Clear(
            f"all of {counted(len(nodes), 'node')} are with {fallback.main_provider(nodes)}, or on purpose elsewhere"
        )
    findings = [_finding(frames, row, tool) for row in rows_of(amiss)]
    return [_of_first_run(finding) for finding in findings] if first_run_alone(frames.of_tool(tool)) else findings


def _session(frames: Frames) -> tuple[str, pd.DataFrame]:
    """The first tool that watched the session, and its nodes; no tool where none did."""
    tool = next((tool for tool in registry.sessions() if len(frames.of_tool(tool))), "")
    return tool, per_run(frames.of_tool(tool))


def _of_first_run(finding: Finding) -> Finding:
    """The same of a profile that holds the first run alone, which says nothing of shares and gains."""
    return replace(
        finding,
        reason=f"{finding.reason} This run is the first and only one. Engines are built and nodes tune themselves in "
        "it.",
        share=None,
        gain=None,
        advice="Profile a second run. The first is no inference's time.",
        confidence="low",
        acts=False,
    )


def _finding(frames: Frames, row: Mapping[str, Any], tool: str) -> Finding:
    why = "; ".join(fallback.WHYS[cause] for cause in row["why"].split(", "))
    time = row["nodes_ns"] + row["copies_ns"] + row["casts_ns"]
    where = row["providers"].replace("ExecutionProvider", "")
    what, run = (
        (row["nodes"], "runs") if row["fallbacks"] == 1 else (f"{row['fallbacks']} × {row['op_types']}", "run")
    )
    return Finding(
        subject=clipped(f"{what} with another provider"),
        bottleneck="copy" if row["copies_ns"] >= row["nodes_ns"] else "launch",
        share=frames.share(time),
        reason=f"{run} on {where} ({why}). {counted(row['copies'], 'copy')} and {counted(row['casts'], 'cast')} are "
        f"around {ms(row['nodes_ns'])} of work. A run spends {ms(time)} on it in all.",
        evidence={name: float(row[name]) for name in SUMS},
        source=tool,
        gain=Gain(float(row["gain_low"]), float(row["gain_high"])),
        advice="Replace the operator by others that the provider has, or move it to the end of the graph.",
        confidence="medium",
    )
