"""Reads a SQLite export of Nsight Systems into a Timeline.

Checked against exports of nsys 2020 (no version table) and schemas 2.7.0, 2.9.1, 3.4.0, 3.16.1, 3.20.3, 3.24.14 and
3.27.0. Only the columns that all of them have are relied on; tables exist only when there are data, or exist empty.
Rows are read as columns of integers, and the text of a name once, however often it was launched.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute

from inferprof.errors import UserError
from inferprof.readers.nsys_copies import copy_name
from inferprof.readers.sqlite_file import Columns, Tables, Wanted, database_of, joined, numbers, text_of
from inferprof.tables.trace.aggregate import grouped
from inferprof.tables.trace.timeline import (
    GRAPH,
    ID_BITS,
    KERNEL,
    MEMCPY,
    MEMSET,
    NOT_TOLD,
    SERIAL_NUMBERS,
    Launch,
    Timeline,
    assemble,
)

READABLE_SCHEMAS: Final = (2, 3)
"""Major schema versions that were checked; exports without a version table are older and have the same core."""

_PREFIX: Final = "CUPTI_ACTIVITY_KIND_"
_NODES: Final = "CUDA_GRAPH_NODE_EVENTS"
"""When and by which thread each node of a CUDA graph was made, and of which other node it is a copy."""
_GPUS: Final = "TARGET_INFO_CUDA_DEVICE"
"""Which of the machine's GPUs each process counts as which; from schema 3.20 on."""
_SIZES: Final = tuple(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ")
"""Packed into two numbers: no grid is larger than 2³¹ - 1, 65535 and 65535, no block than 1024, 1024 and 64 (CUDA C++
Programming Guide, `Technical Specifications per Compute Capability`)."""
_MEMSET_NAME: Final = "memset"
_PUSH_POP, _START_END = 59, 60
_API_VERSION: Final = re.compile(r"_v\d{4,}$")
"""The version of an entry point, which `nsys stats` leaves out too (where it has four digits)."""

_OPEN: Final = -1 << 63
"""A time that is not told. Without an end: what was still running when the capture stopped, as is what ends at 0 and
began later."""
_PROCESS_SHIFT: Final = 32
_OWN_CORRELATION: Final = (1 << _PROCESS_SHIFT) - 1
"""A correlation has 32 bits and is unique in its process, whose pid is above. globalPid and globalTid have that in
bits 24-47."""


def read_timeline(path: Path) -> Timeline:
    """The export's GPU operations, CUDA API calls and NVTX ranges. Raises UserError where it holds none of them."""
    with database_of(path) as database:
        export = _Export(path, database)
        export.check()
        names = _Names(database)
        ops, launches = export.operations(names)
        calls, ranges = export.calls(names), export.ranges()
        if ops.empty and calls.empty:
            raise UserError(
                f"{path} holds no CUDA activity: the traced process did not use the GPU in the capture range, "
                "or nsys did not trace it (children need --trace-fork-before-exec=true)"
            )
        ops["process"] = ops["correlation"].to_numpy() >> _PROCESS_SHIFT
        timeline = assemble(export.with_nodes(export.with_gpus(ops)), calls, ranges, names.texts, launches)
        return replace(timeline, endless=export.endless)


def without_version(name: str) -> str:
    """`cudaLaunchKernel_v7000` → `cudaLaunchKernel`; other names as they are."""
    return _API_VERSION.sub("", name)


class _Names:
    """Codes for texts: string ids of the export, and names that we give."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.texts: list[str] = []
        self._database = database
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        code = self._codes.setdefault(text, len(self.texts))
        if code == len(self.texts):
            self.texts.append(text)
        return code

    def of_strings(self, ids: np.ndarray, spelled: Callable[[str], str] = str) -> np.ndarray:
        """String ids → codes of the `spelled` strings; an id without a string keeps its number as a name."""
        inverse, distinct = pd.factorize(ids)
        query = "SELECT value FROM StringIds WHERE id = ?"
        codes = []
        for string_id in distinct.tolist():
            row = self._database.execute(query, (string_id,)).fetchone()
            has_text = row is not None and row[0] is not None
            codes.append(self.code(spelled(text_of(row[0])) if has_text else f"[string {string_id}]"))
        return np.array(codes, np.int32)[inverse]


class _Export:
    """The tables of one export."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path = path
        self._database = database
        self._tables = Tables(path, database)
        self._columns = self._tables.columns
        self.endless = 0

    def check(self) -> None:
        """Refuse a schema that is newer or older than what was checked."""
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            if self._columns(table):
                rows = dict(self._database.execute(f"SELECT name, value FROM {table}"))
                version = text_of(rows.get("EXPORT_SCHEMA_VERSION") or "")
                major = version.partition(".")[0]
                if major and int(major) not in READABLE_SCHEMAS:
                    raise UserError(
                        f"{self._path} has export schema {version}; 2.x and 3.x can be read: "
                        "export the report again with an nsys from 2021.5 to 2026.3"
                    )
                return

    def operations(self, names: _Names) -> tuple[pd.DataFrame, list[Launch]]:
        """All kinds of operations, and what their codes `launched` stand for."""
        kernels, launches = self.kernels(names)
        others = (self.copies(names), self.memsets(names), self.graphs(names))
        every = [kernels, *({**part, "launched": np.full(part["start"].size, NOT_TOLD, np.int32)} for part in others)]
        return pd.DataFrame(joined(every), copy=False), launches

    def kernels(self, names: _Names) -> tuple[Columns, list[Launch]]:
        """The kernels, and what their codes `launched` stand for; none in exports without grids and blocks."""
        columns = self._columns(f"{_PREFIX}KERNEL")
        sizes: dict[str, tuple[str | None, int]] = {size: (size, 0) for size in _SIZES if columns.issuperset(_SIZES)}
        if sizes:
            sizes["mangledName"] = self._told("KERNEL", "mangledName")
        name = self._told("KERNEL", "demangledName" if "demangledName" in columns else "shortName")
        kernels = self._ops("KERNEL", KERNEL, {"name": name, **sizes}, _packed if sizes else dict)
        kernels["name"] = names.of_strings(kernels["name"])
        kernels["bytes"] = np.zeros_like(kernels["start"])
        kernels["launched"] = np.full(kernels["start"].size, NOT_TOLD, np.int32)
        if not sizes:
            return kernels, []
        group, configs = grouped({key: kernels.pop(key) for key in ("grid", "block")})
        kernels["launched"] = group.astype(np.int32)
        return kernels, [self._launch(*config) for config in configs.to_numpy().tolist()]

    def _launch(self, grid: int, block: int) -> Launch:
        row = self._database.execute("SELECT value FROM StringIds WHERE id = ?", (block >> 32,)).fetchone()
        grids = grid >> 32, grid >> 16 & 0xFFFF, grid & 0xFFFF
        blocks = block >> 21 & 0x7FF, block >> 10 & 0x7FF, block & 0x3FF
        return Launch(row and row[0] and text_of(row[0]), *(",".join(map(str, axes)) for axes in (grids, blocks)))

    def copies(self, names: _Names) -> Columns:
        keys = ("copyKind", "srcKind", "dstKind")
        copies = self._ops("MEMCPY", MEMCPY, {key: self._told("MEMCPY", key) for key in ("bytes", *keys)})
        group, kinds = grouped({key: copies.pop(key) for key in keys})
        codes = np.array([names.code(copy_name(*kind)) for kind in kinds.to_numpy().tolist()], np.int32)
        return {**copies, "name": codes[group]}

    def memsets(self, names: _Names) -> Columns:
        memsets = self._ops("MEMSET", MEMSET, {"bytes": self._told("MEMSET", "bytes")})
        return {**memsets, "name": np.full(memsets["start"].size, names.code(_MEMSET_NAME), np.int32)}

    def graphs(self, names: _Names) -> Columns:
        graphs = self._ops("GRAPH_TRACE", GRAPH, {"graph": self._told("GRAPH_TRACE", "graphId")})
        group, distinct = pd.factorize(graphs.pop("graph"))
        codes = np.array([names.code(f"CUDA graph {graph}") for graph in distinct.tolist()], np.int32)
        return {**graphs, "name": codes[group], "bytes": np.zeros_like(graphs["start"])}

    def with_gpus(self, ops: pd.DataFrame) -> pd.DataFrame:
        """The operations with the machine's numbers of GPUs in place of their processes' own, where several GPUs have
        the same of these: each rank of a job may see but one, as 0."""
        columns = ["gpuId", "cudaId", "pid"]
        if not set(columns) <= self._columns(_GPUS):
            return ops
        there = " AND ".join(f"{column} IS NOT NULL" for column in columns)
        rows = self._database.execute(f"SELECT pid & 0xFFFFFF, cudaId, gpuId FROM {_GPUS} WHERE {there}")
        gpus = pd.DataFrame(rows, columns=["process", "device", "gpu"], dtype=np.int64)
        gpus = gpus.drop_duplicates(["process", "device"])
        used = ops[["process", "device"]].drop_duplicates().merge(gpus, on=["process", "device"])
        if not (used.groupby("device")["gpu"].nunique() > 1).any():
            return ops
        placed = ops[["process", "device"]].merge(gpus, on=["process", "device"], how="left")["gpu"].to_numpy(float)
        return ops.assign(device=np.where(np.isnan(placed), ops["device"], placed).astype(np.int64))

    def with_nodes(self, ops: pd.DataFrame) -> pd.DataFrame:
        """The operations with made_at and made_by of their nodes of CUDA graphs, in captures that trace these."""
        if "node" not in ops:
            return ops
        nodes = self._database.execute(
            f"SELECT (globalTid >> 24) & 0xFFFFFF, graphNodeId, originalGraphNodeId, start, globalTid FROM {_NODES} "
            "WHERE graphNodeId IS NOT NULL AND start IS NOT NULL AND globalTid IS NOT NULL"
        )
        made = {(process, node): (original, start, thread) for process, node, original, start, thread in nodes}
        # A row for operations without a node behind the others: as row -1 it is found by those that find none.
        first = np.array([*(_first_made(made, *key) for key in made), (0, 0)], np.int64)
        rows = pd.DataFrame(list(made), columns=["process", "node"]).assign(row=np.arange(len(made)))
        keys = pd.DataFrame({"process": ops["correlation"].to_numpy() >> 32, "node": ops.pop("node").to_numpy()})
        row = keys.merge(rows, on=["process", "node"], how="left")["row"].fillna(-1).to_numpy(np.int64)
        return ops.assign(made_at=first[row, 0], made_by=first[row, 1])

    def calls(self, names: _Names) -> pd.DataFrame:
        """The API calls."""
        calls, _ = _ended(self._integers(f"{_PREFIX}RUNTIME", {"owner": ("globalTid", _OPEN), "name": ("nameId", 0)}))
        calls["name"] = names.of_strings(calls["name"], without_version)
        return pd.DataFrame(calls, copy=False).rename(columns={"owner": "thread"})

    def ranges(self) -> pd.DataFrame:
        """Closed NVTX ranges of all domains; marks, categories and ranges still open at the end are no ranges.

        Labels come without serial numbers, each text once: torch's emit_nvtx writes millions, each of its own.
        """
        table = "NVTX_EVENTS"
        columns = ["start", "end", "thread"]
        query = (
            f"SELECT COALESCE(start, {_OPEN}) AS start, end, globalTid AS thread, "
            "CAST(COALESCE(text, value, '[string ' || textId || ']', '') AS BLOB) "
            f"FROM {table} LEFT JOIN StringIds ON StringIds.id = textId "
            f"WHERE eventType IN ({_PUSH_POP}, {_START_END}) AND end IS NOT NULL AND globalTid IS NOT NULL"
        )
        codes: dict[bytes, int] = {}
        coding = threading.Lock()

        def with_codes(batch: pa.RecordBatch) -> Columns:
            labels = batch.column(3).dictionary_encode()
            short = _without_serial(labels.dictionary).to_pylist()
            with coding:
                of_batch = np.array([codes.setdefault(label, len(codes)) for label in short], np.int32)
            return {**numbers(table, batch.select(columns)), "label": of_batch[labels.indices.to_numpy()]}

        events = self._tables.selected(table, query, with_codes) if self._columns(table) else {}
        if not events:
            return pd.DataFrame(columns=[*columns, "label"])
        _require_told(table, "when", events["start"])
        # A cut label may end in half a character.
        texts = pd.Index([label.decode("utf-8", errors="replace") for label in codes], dtype=object)
        label, distinct = pd.factorize(texts)
        return pd.DataFrame(events, copy=False).assign(
            label=pd.Categorical.from_codes(label[events["label"]], distinct)
        )

    def _told(self, table: str, column: str, otherwise: int = -1) -> tuple[str | None, int]:
        """A column, or else a number where it tells nothing, or is not there. -1, not 0: a kind of memory that is not
        told must not read as pageable."""
        return column if column in self._columns(_PREFIX + table) else None, otherwise

    def _ops(self, table: str, kind: int, extra: Wanted, made_of: Callable[[Columns], Columns] = dict) -> Columns:
        columns = {"device": ("deviceId", 0), "stream": ("streamId", 0), "owner": ("globalPid", _OPEN), **extra}
        if self._columns(_NODES):
            columns["node"] = self._told(table, "graphNodeId", 0)
        ops, lost = _ended(self._integers(_PREFIX + table, columns, made_of))
        self.endless += lost
        del ops["owner"]
        return {**ops, "kind": np.full(ops["start"].size, kind, np.int8)}

    def _integers(self, table: str, columns: Wanted, made_of: Callable[[Columns], Columns] = dict) -> Columns:
        """Integer columns, with start, end and correlation, in the process of `owner`; no rows where the table does
        not exist."""
        columns = {"start": ("start", _OPEN), "end": ("end", _OPEN), "correlation": ("correlationId", 0), **columns}

        def tied(rows: Columns) -> Columns:
            process = rows["owner"] >> ID_BITS & (1 << ID_BITS) - 1
            own = rows["correlation"] & _OWN_CORRELATION
            return made_of({**rows, "correlation": own | process << _PROCESS_SHIFT})

        rows = self._tables.integers(table, columns, tied) if self._columns(table) else {}
        rows = rows or tied({name: np.empty(0, np.int64) for name in columns})
        _require_told(table, "when", rows["start"])
        if (rows["owner"] == _OPEN).all():  # they are all of one
            rows["owner"] = np.zeros_like(rows["owner"])
        _require_told(table, "of which process", rows["owner"])
        return rows


def _ended(rows: Columns) -> tuple[Columns, int]:
    """The rows that have an end, and how many have none although others began behind them."""
    ended = (rows["end"] != _OPEN) & ((rows["end"] != 0) | (rows["start"] <= 0))
    if ended.all():
        return rows, 0
    last = rows["start"][ended].max(initial=_OPEN)
    return {name: values[ended] for name, values in rows.items()}, int((rows["start"][~ended] < last).sum())


def _require_told(table: str, what: str, values: np.ndarray) -> None:
    """Raise ValueError where a start or a process is not told: 0 in its place would be one."""
    if lacking := int((values == _OPEN).sum()):
        raise ValueError(f"{table} does not tell {what} {lacking:,} of its events are")


def _packed(kernels: Columns) -> Columns:
    """With each grid and each block, with the mangled name, as one number."""
    grid, block = ([kernels.pop(f"{what}{axis}") for axis in "XYZ"] for what in ("grid", "block"))
    kernels["grid"] = grid[0] << 32 | grid[1] << 16 | grid[2]
    kernels["block"] = kernels.pop("mangledName") << 32 | block[0] << 21 | block[1] << 10 | block[2]
    return kernels


def _first_made(
    made: Mapping[tuple[int, int], tuple[int | None, int, int]], process: int, node: int
) -> tuple[int, int]:
    """Time and thread that made a node, of a copy those of the node that was first in the line of copies."""
    original, start, thread = made[process, node]
    seen = {node}
    while original is not None and original not in seen and (process, original) in made:
        seen.add(original)
        original, start, thread = made[process, original]
    return start, thread


def _without_serial(labels: pa.Array) -> pa.Array:
    """`without_serial` of each."""
    of_operator, of_step = SERIAL_NUMBERS
    short = compute.replace_substring_regex(labels.cast(pa.binary()), of_operator, "")
    return compute.replace_substring_regex(short, of_step, r"\1")
