"""The layers of TensorRT's engines by time, each with the ONNX nodes that it was made of and its kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from inferprof import registry
from inferprof.grouping import grouped
from inferprof.report.common import few, path_of
from inferprof.report.evidence import Evidence
from inferprof.report.fields import CASE, Field, csv_of, percent, plain, table_of, text, us
from inferprof.report.model import Block, Cell, Column, Entry, Outline, Table, words
from inferprof.report.numbers import count, microseconds
from inferprof.report.profiled import Profile, profiles
from inferprof.report.section import section
from inferprof.tables.nodes import attribution, layer_times, trt_kernels
from inferprof.tables.records import key_of, rows_of
from inferprof.words import counted

TOP_LAYERS = 5
OPENED_LAYERS = 20
"""Layers of a case that the page opens into nodes and kernels."""
TOP_KERNELS = 10
NAME_LENGTH = 40
"""Names are cut to this on the page, in the middle: a layer's name begins and ends with nodes."""
REFORMAT = "Reformatting CopyNode for "
"""How the name of a layer begins of which the page has a column of its own."""
SURE = 0.8
NOT_TIMED = "trt_layers did not watch this case"
NOT_TRACED = "trt_nodes did not watch this case"
LAYERS = (
    *CASE,
    percent("share", "%"),
    us("layer", "layer µs", NOT_TIMED, of="duration_ns"),
    us("kernels", "kernels µs", NOT_TRACED, of="kernel_ns"),
    plain("launches", None, count, NOT_TRACED, hidden=True),
    Field(Column("layer", "layer"), lambda row: Cell(short(row["layer"]), row["layer"])),
    Field(Column("type", "type", hidden=True), lambda row: words(row["layer_type"] or "")),
    text("inputs", "reads", hidden=True),
    text("outputs", "writes", hidden=True),
    Field(Column("nodes", "ONNX nodes", hidden=True), lambda row: words(", ".join(row["nodes"]))),
    Field(
        Column("conversion", "converts"),
        lambda row: words(row["conversion"] or "", "warn" if row["conversion"] else None),
    ),
)
SHARES = (
    *CASE,
    us("kernels", "kernels µs"),
    percent("layers", "in layers %"),
    percent("nodes", "in single nodes %"),
    percent("unattributed", "nobody's %"),
    percent("conversions", "in layers that only convert %"),
)
KERNELS = (
    *CASE,
    text("layer"),
    Field(Column("node", "node"), lambda row: words(row["node"] if isinstance(row["node"], str) else "")),
    plain("confidence", None, "{:g}".format, "it is nobody's"),
    us("", "µs", of="duration_ns"),
    plain("launches", None, count),
    text("kernel"),
)
NOTE = (
    "Per inference. %: of the kernels' time, where trt_nodes traced it, else of the layers'. A layer's time, from a "
    "run for nothing else, holds the cost of timing it: some µs even where its kernel takes one. Converts: that is "
    "all that it does."
)
SHARES_NOTE = (
    f"A single node: with a confidence of {SURE} or more that the kernel does its work. All other kernels in a layer "
    "are several nodes' at once, or no node's; nothing is spread over them."
)


@section("layers", "Layers", place=210, needs=("profiles",))
def build(evidence: Evidence) -> Sequence[Block]:
    """How much of the kernels' time is told, the longest layers, and what is in them; empty without engines."""
    seen = cases(evidence)
    if not seen:
        return ()
    tables = [(profile, layer_times.of_case(profile.frame), layer_times.kernels(profile.frame)) for profile in seen]
    longest = _rows((profile, layers.head(TOP_LAYERS)) for profile, layers, _ in tables)
    every = _rows((profile, layers) for profile, layers, _ in tables)
    kernels = _rows((profile, launched) for profile, _, launched in tables)
    title = f"The {TOP_LAYERS} layers with the largest share of each case"
    blocks: list[Block] = [
        *_shares(tables),
        table_of("layers", title, LAYERS, longest, NOTE, groups=5),
        Outline("Layers, their nodes and kernels", tuple(_opened(*entry) for entry in tables)),
        csv_of("all_layers", "Every layer", LAYERS, every),
    ]
    if kernels:
        blocks.append(csv_of("layer_kernels", "Kernels by layer and node", KERNELS, kernels))
    return blocks


def _rows(tables: Iterable[tuple[Profile, pd.DataFrame]]) -> list[dict[str, Any]]:
    """The rows of each case, with its names."""
    return [{**profile.case, **row} for profile, table in tables for row in rows_of(table)]


def cases(evidence: Evidence) -> list[Profile]:
    """One profile per case, with the rows of both tools."""
    by_key = grouped(
        (key_of(profile.case), profile)
        for profile in profiles(evidence, registry.tools(lambda profiler: profiler.owner == "layer"))
    )
    return [
        Profile(some[0].case, "+".join(part.tool for part in some), pd.concat([part.frame for part in some]))
        for some in by_key.values()
    ]


def _shares(tables: list[tuple[Profile, pd.DataFrame, pd.DataFrame]]) -> list[Table]:
    """How much of the kernels' time belongs to layers and to single nodes, of the cases that were traced."""
    rows = [_share(profile, layers) for profile, layers, kernels in tables if len(kernels)]
    return [table_of("layer_shares", "Kernel time by whose it is", SHARES, rows, SHARES_NOTE)] if rows else []


def _share(profile: Profile, layers: pd.DataFrame) -> dict[str, Any]:
    joined = trt_kernels.attributed(profile.frame)
    by_layer = attribution.shares(joined).to_dict("index")["layer"]
    by_node = attribution.shares(joined, SURE).to_dict("index")["op"]
    return {
        **profile.case,
        "kernels_ns": by_layer["total_ns"] / layer_times.inferences(profile.frame),
        "layers": by_layer["attributed_share"],
        "nodes": by_node["attributed_share"],
        "unattributed": by_layer["unattributed_share"],
        "conversions": float(layers.loc[layers["conversion"].notna(), "share"].sum()),
    }


# --- what opens ------------------------------------------------------------------------------------------------


def _opened(profile: Profile, layers: pd.DataFrame, kernels: pd.DataFrame) -> Entry:
    """A case, its longest layers in it, and in each of them the nodes and kernels."""
    shown = layers.head(OPENED_LAYERS)
    inside = [_opened_layer(row, kernels[kernels["layer"] == row["layer"]]) for row in rows_of(shown)]
    if rest := len(layers) - len(shown):
        inside.append(Entry(f"{counted(rest, 'more layer')} in csv/all_layers.csv"))
    return Entry(path_of(profile.case), counted(len(layers), "layer"), tuple(inside))


def _opened_layer(row: dict[str, Any], kernels: pd.DataFrame) -> Entry:
    label = f"{row['layer']} ({row['layer_type']})" if row["layer_type"] else row["layer"]
    formats = f" {row['inputs']} → {row['outputs']}" if row["inputs"] or row["outputs"] else ""
    nodes = (Entry(f"made of {few(row['nodes'])}", counted(len(row["nodes"]), "ONNX node")),) if row["nodes"] else ()
    inside = (*nodes, *(_opened_kernel(kernel) for kernel in rows_of(kernels.head(TOP_KERNELS))))
    converts = f", only converts ({row['conversion']})" if row["conversion"] else ""
    return Entry(f"{label}{formats}{converts}", f"{100 * row['share']:.1f} %", inside, "warn" if converts else None)


def _opened_kernel(row: dict[str, Any]) -> Entry:
    node = row["node"]
    whose = f"{node} ({row['confidence']:g}): " if isinstance(node, str) else ""
    times = f" × {count(row['launches'])}" if row["launches"] != 1 else ""
    return Entry(f"{whose}{row['kernel']}{times}", f"{microseconds(row['duration_ns'])} µs")


def short(name: str) -> str:
    """A layer's name as the page has it."""
    name = name.removeprefix(REFORMAT)
    if len(name) <= NAME_LENGTH:
        return name
    half = (NAME_LENGTH - 1) // 2
    return f"{name[:half]}…{name[half + 1 - NAME_LENGTH :]}"
