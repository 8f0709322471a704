"""Device memory of CUDA graphs: does each keep intermediates and inputs of its own, and does it earn them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inferprof.diagnosis.times import RECORDS, percent
from inferprof.findings import Clear, Finding, Frames, NotAssessed, Threshold
from inferprof.plugins import check
from inferprof.tables.graph_memory import curves, wholes
from inferprof.tables.records import rows_of
from inferprof.units import MIB
from inferprof.words import ms

GRAPH_MIB = Threshold("graph_mib", 64.0, "MiB", "ours: with less no batch and no cache would be any larger")
GRAPH_POOLS = Threshold(
    "graph_pools", 0.25, "share of the graphs' pools", "ours: what changing the captures is worth"
)
GRAPH_SAVES = Threshold("graph_saves", 0.1, "share of the time without a graph", "ours: as for launch_bound")
Row = Mapping[str, Any]


@check("graph_memory", "CUDA graphs hold more memory than they need", "device", ("gpu", "record"))
def _graph_memory(frames: Frames) -> list[Finding] | Clear:
    """Memory that graphs of several batch sizes hold beyond what one pool, one input buffer and the sizes that gain
    time would. Nothing of it costs time, so there is no share and no gain: `capacity`.

    pools: against the pool of the largest graph alone, and the outputs of the others, which have to live beside it.
    """
    every = rows_of(wholes(frames.records))
    if not every:
        raise NotAssessed("graphs of several batch sizes: a variant with `graphs:`")
    whole = every[0]
    if whole["not_measured"]:
        raise NotAssessed(f"graphs of several batch sizes ({whole['not_measured']})")
    rows = [row for row in rows_of(curves(frames.records)) if row["file"] == whole["file"]]
    findings = [*_pools(frames, whole), *_inputs(frames, whole), *_idle_graphs(frames, rows)]
    return findings or Clear(f"{_held(whole)}; {_least(whole)}", _evidence(whole))


def _pools(frames: Frames, whole: Row) -> Iterator[Finding]:
    """Pools that hold more than one pool would."""
    if whole["one_pool"] is None:
        return
    excess, held = whole["graph_reserved"] - whole["one_pool"], whole["graph_reserved"]
    if excess < frames.limit(GRAPH_MIB) * MIB or excess < frames.limit(GRAPH_POOLS) * held:
        return
    if whole["pools"] > 1:
        why = "Each pool keeps the intermediates of its own graph."
        advice = (
            "Capture all graphs into one pool (`pool=` of torch.cuda.graph), the largest first. Copy each output out "
            "before the next replay: `graph_pool: shared, graph_order: descending`."
        )
    elif whole["order"] == "ascending":
        why = "The blocks that small graphs left are too small for the larger ones after them."
        advice = "Capture the largest graph first: `graph_order: descending`."
    else:
        why = "The graphs' blocks do not fit into each other's."
        advice = "Serve fewer batch sizes."
    least = _least(whole)
    reason = f"{_held(whole)}. {why} {least[0].upper()}{least[1:]}."
    yield _finding("pools", reason, {**_evidence(whole), "excess_mib": excess / MIB}, advice)


def _inputs(frames: Frames, whole: Row) -> Iterator[Finding]:
    """Static inputs beside the largest, of which the others could be parts."""
    excess = whole["static_inputs"] - whole["one_input"]
    if whole["inputs"] == "own" and excess >= frames.limit(GRAPH_MIB) * MIB:
        reason = (
            f"the static inputs of {whole['graphs']} graphs hold {_mib(whole['static_inputs'])}. "
            f"Those of the largest hold {_mib(whole['one_input'])}."
        )
        advice = "Use one buffer of the largest batch. Smaller graphs read its first rows: `graph_inputs: slices`."
        evidence = {"static_inputs_mib": whole["static_inputs"] / MIB, "one_input_mib": whole["one_input"] / MIB}
        yield _finding("static inputs", reason, evidence, advice)


def _idle_graphs(frames: Frames, rows: Sequence[Row]) -> Iterator[Finding]:
    """Graphs that take memory and save little time: of a GPU that has enough to do, the gaps between its kernels."""
    timed = [row for row in rows if row["saved_ns"] is not None]
    little = [row for row in timed if row["saved_ns"] < frames.limit(GRAPH_SAVES) * row["eager_ns"]]
    added = sum(row["added"] or 0 for row in little)
    if not little or added < frames.limit(GRAPH_MIB) * MIB:
        return
    most = max(timed, key=lambda row: row["saved_ns"])
    gains = [row["saved_ns"] for row in little]
    names = ", ".join(f"b{row['batch']}" for row in little)
    reason = (
        f"the graphs of {names} save less than {percent(frames.limit(GRAPH_SAVES))} of the time without one: "
        f"{ms(min(gains))} to {ms(max(gains))}. They brought {_mib(added)} into use. That of b{most['batch']} saves "
        f"{ms(most['saved_ns'])} with {_mib(most['added'] or 0)}."
    )
    evidence = {"graphs": float(len(little)), "added_mib": added / MIB, "most_saved_ns": most["saved_ns"]}
    yield _finding("graphs that save little", reason, evidence, "Run these batch sizes without a graph.")


def _held(whole: Row) -> str:
    """`16 graphs hold 2,100 MiB in 16 pools, 95.3 % of it under no living tensor`."""
    held, idle = whole["graph_reserved"], whole["graph_reserved"] - whole["graph_allocated"]
    pools = f"{whole['pools']} pools" if whole["pools"] > 1 else "one pool"
    return (
        f"{whole['graphs']} graphs hold {_mib(held)} in {pools}, {percent(idle / held)} of it under no living tensor"
    )


def _least(whole: Row) -> str:
    if whole["one_pool"] is None:
        return "what one pool needs was not measured"
    return f"one pool with the largest graph and all outputs needs {_mib(whole['one_pool'])}"


def _evidence(whole: Row) -> dict[str, float]:
    sizes = {f"{name}_mib": whole[name] / MIB for name in ("graph_reserved", "graph_allocated", "static_inputs")}
    least = {} if whole["one_pool"] is None else {"one_pool_mib": whole["one_pool"] / MIB}
    return {"graphs": float(whole["graphs"]), "pools": float(whole["pools"]), **sizes, **least}


def _mib(size: float) -> str:
    return f"{size / MIB:,.0f} MiB"


def _finding(subject: str, reason: str, evidence: Mapping[str, float], advice: str) -> Finding:
    return Finding(subject, "capacity", None, reason, evidence, RECORDS, None, advice, "high")
