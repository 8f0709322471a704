"""Reads a SQLite export of Nsight Systems into a Timeline.

Checked against exports of nsys 2020 (no version table) and schemas 2.7.0, 2.9.1, 3.4.0, 3.16.1, 3.20.3, 3.24.14 and
3.27.0. Only the columns that all of them have are relied on; tables exist only when there are data, or exist empty.
Rows are read as columns of integers (by ADBC, in half the time of Python's sqlite3), and the text of a name once,
however often it was launched.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import adbc_driver_sqlite.dbapi
import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute

from inferprof.errors import UserError
from inferprof.readers.sqlite_file import address, database_of
from inferprof.tables.trace.api_kind import PAGEABLE
from inferprof.tables.trace.timeline import (
    GRAPH,
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
_COPY_KINDS: Final = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "HtoD unified memory",
    12: "DtoH unified memory",
    13: "DtoD unified memory",
}
"""ENUM_CUDA_MEMCPY_OPER, whose first ten are CUpti_ActivityMemcpyKind."""
_HOST_MEMORY: Final = {0: PAGEABLE, 1: "pinned", 4: "managed", 6: "managed"}
"""ENUM_CUDA_MEM_KIND, where it is host memory or may be."""
_SIZES: Final = [f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"]
_CONFIG: Final = ["mangledName", *_SIZES]
_BATCH: Final = 1 << 16
"""Rows that are read at a time."""
_MEMSET_NAME: Final = "memset"
_PUSH_POP, _START_END = 59, 60
_API_VERSION: Final = re.compile(r"_v\d{4,}$")
"""The version of an entry point, which `nsys stats` leaves out too (where it has four digits)."""

_Reduce = Callable[[pd.DataFrame], pd.DataFrame]
_ENDED: Final = "end IS NOT NULL AND NOT (end = 0 AND start > 0)"
"""Not what was still running when the capture stopped."""

# A correlation is unique in its process: pid in the upper half. globalPid and globalTid hold the pid in bits 24-47.
_PROCESS_SHIFT: Final = 32
_CORRELATION: Final = "((COALESCE({owner}, 0) >> 24) & 0xFFFFFF) << 32 | COALESCE(correlationId, 0)"


def read_timeline(path: Path) -> Timeline:
    """The export's GPU operations, CUDA API calls and NVTX ranges. Raises UserError where it holds none of them."""
    with database_of(path) as database:
        export = _Export(path, database)
        export.check()
        names = _Names(database)
        with ThreadPoolExecutor(2) as beside:
            reading = [beside.submit(read) for read in (export.calls, export.ranges)]
            ops, launches = export.operations(names)
        calls, ranges = (part.result() for part in reading)
        calls["name"] = names.of_strings(calls["name"].to_numpy(), without_version)
        if ops.empty and calls.empty:
            raise UserError(
                f"{path} holds no CUDA activity: the traced process did not use the GPU in the capture range, "
                "or nsys did not trace it (children need --trace-fork-before-exec=true)"
            )
        ops["process"] = ops["correlation"].to_numpy() >> _PROCESS_SHIFT
        return assemble(export.with_nodes(export.with_gpus(ops)), calls, ranges, names.texts, launches)


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
            codes.append(self.code(spelled(str(row[0])) if has_text else f"[string {string_id}]"))
        return np.array(codes, np.int32)[inverse]


class _Export:
    """The tables of one export."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path = path
        self._database = database
        self._columns_of: dict[str, set[str]] = {}
        columns = database.execute(
            "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns"
        )
        for table, column in columns:
            self._columns_of.setdefault(table, set()).add(column)

    def check(self) -> None:
        """Refuse a schema that is newer or older than what was checked."""
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            if self._columns(table):
                rows = dict(self._database.execute(f"SELECT name, value FROM {table}"))
                version = rows.get("EXPORT_SCHEMA_VERSION", "")
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
        others = pd.concat([self.copies(names), self.memsets(names), self.graphs(names)])
        ops = pd.concat([kernels, others.assign(launched=np.int32(NOT_TOLD))], ignore_index=True)
        return ops, launches

    def kernels(self, names: _Names) -> tuple[pd.DataFrame, list[Launch]]:
        """The kernels, and what their codes `launched` stand for; none in exports without grids and blocks."""
        columns = self._columns(f"{_PREFIX}KERNEL")
        name = "demangledName" if "demangledName" in columns else "shortName"
        codes: dict[tuple[int, ...], int] = {}

        def with_codes(rows: pd.DataFrame) -> pd.DataFrame:
            """Seven columns as one, batch by batch: of all of them at once, memory holds no copy."""
            groups = rows.groupby(_CONFIG, sort=False)
            distinct = map(tuple, rows[_CONFIG].drop_duplicates().to_numpy().tolist())
            of_group = np.array([codes.setdefault(config, len(codes)) for config in distinct], np.int32)
            return rows.drop(columns=_CONFIG).assign(launched=of_group[groups.ngroup().to_numpy()])

        if set(_SIZES) <= columns:
            frame = self._ops("KERNEL", KERNEL, [name, *_CONFIG], with_codes)
        else:
            frame = self._ops("KERNEL", KERNEL, [name]).assign(launched=np.int32(NOT_TOLD))
        frame["name"] = names.of_strings(frame.pop(name).to_numpy())
        return frame.assign(bytes=0), [self._launch(*config) for config in codes]

    def _launch(self, symbol: int, *sizes: int) -> Launch:
        row = self._database.execute("SELECT value FROM StringIds WHERE id = ?", (symbol,)).fetchone()
        grid, block = (",".join(map(str, axes)) for axes in (sizes[:3], sizes[3:]))
        return Launch(row and row[0], grid, block)

    def copies(self, names: _Names) -> pd.DataFrame:
        frame = self._ops("MEMCPY", MEMCPY, ["bytes", "copyKind", "srcKind", "dstKind"])
        keys = ["copyKind", "srcKind", "dstKind"]
        distinct, inverse = np.unique(frame[keys].to_numpy(), axis=0, return_inverse=True)
        codes = np.array([names.code(_copy_name(*kinds)) for kinds in distinct.tolist()], np.int32)
        return frame.drop(columns=keys).assign(name=codes[inverse])

    def memsets(self, names: _Names) -> pd.DataFrame:
        frame = self._ops("MEMSET", MEMSET, ["bytes"])
        return frame.assign(name=np.int32(names.code(_MEMSET_NAME)))

    def graphs(self, names: _Names) -> pd.DataFrame:
        frame = self._ops("GRAPH_TRACE", GRAPH, ["graphId"])
        graphs = frame.pop("graphId")
        labels = {graph: names.code(f"CUDA graph {graph}") for graph in graphs.unique()}
        return frame.assign(name=graphs.map(labels).astype(np.int32), bytes=0)

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
            f"SELECT (globalTid >> 24) & 0xFFFFFF, graphNodeId, originalGraphNodeId, start, globalTid FROM {_NODES}"
        )
        made = {(process, node): (original, start, thread) for process, node, original, start, thread in nodes}
        # A row for operations without a node behind the others: as row -1 it is found by those that find none.
        first = np.array([*(_first_made(made, *key) for key in made), (0, 0)], np.int64)
        rows = pd.DataFrame(list(made), columns=["process", "node"]).assign(row=np.arange(len(made)))
        keys = pd.DataFrame({"process": ops["correlation"].to_numpy() >> 32, "node": ops.pop("node").to_numpy()})
        row = keys.merge(rows, on=["process", "node"], how="left")["row"].fillna(-1).to_numpy(np.int64)
        return ops.assign(made_at=first[row, 0], made_by=first[row, 1])

    def calls(self) -> pd.DataFrame:
        """The API calls, their names as ids of strings. Uses no connection of another thread."""
        return self._integers(
            f"{_PREFIX}RUNTIME",
            {
                "start": "start",
                "end": "end",
                "thread": "globalTid",
                "name": "nameId",
                "correlation": _CORRELATION.format(owner="globalTid"),
            },
        )

    def ranges(self) -> pd.DataFrame:
        """Closed NVTX ranges of all domains; marks, categories and ranges still open at the end are no ranges.

        Labels come without serial numbers, each text once: torch's emit_nvtx writes millions, each of its own.
        """
        columns = ["start", "end", "thread"]
        query = (
            "SELECT start, end, globalTid, CAST(COALESCE(text, value, '') AS BLOB) "
            "FROM NVTX_EVENTS LEFT JOIN StringIds ON StringIds.id = textId "
            f"WHERE eventType IN ({_PUSH_POP}, {_START_END}) AND end IS NOT NULL AND globalTid IS NOT NULL"
        )
        codes: dict[bytes, int] = {}

        def with_codes(batch: pa.RecordBatch) -> pd.DataFrame:
            labels = _without_serial(batch.column(3)).dictionary_encode()
            of_batch = [codes.setdefault(label, len(codes)) for label in labels.dictionary.to_pylist()]
            numbers = self._frame("NVTX_EVENTS", columns, batch.select([0, 1, 2]))
            return numbers.assign(label=np.array(of_batch, np.int32)[labels.indices.to_numpy()])

        frame = self._read(query, with_codes) if self._columns("NVTX_EVENTS") else None
        if frame is None:
            return pd.DataFrame(columns=[*columns, "label"])
        # A cut label may end in half a character.
        texts = [label.decode("utf-8", errors="replace") for label in codes]
        return frame.assign(label=np.array(texts, object)[frame["label"].to_numpy()])

    def _ops(self, table: str, kind: int, extra: Sequence[str], reduce: _Reduce = pd.DataFrame) -> pd.DataFrame:
        columns = {
            "start": "start",
            "end": "end",
            "device": "deviceId",
            "stream": "streamId",
            "correlation": _CORRELATION.format(owner="globalPid"),
        }
        # -1, not 0: a kind of memory that is not told must not read as pageable.
        available = self._columns(_PREFIX + table)
        optional = {name: f"COALESCE({name}, -1)" if name in available else "-1" for name in extra}
        if self._columns(_NODES):
            optional["node"] = "COALESCE(graphNodeId, 0)" if "graphNodeId" in available else "0"
        return self._integers(_PREFIX + table, columns | optional, reduce).assign(kind=np.int8(kind))

    def _integers(self, table: str, columns: dict[str, str], reduce: _Reduce = pd.DataFrame) -> pd.DataFrame:
        """Integer columns (name → SQL expression) of what ended, each batch of rows as `reduce` leaves it; no rows
        where the table does not exist."""
        nothing = pd.DataFrame({name: np.empty(0, np.int64) for name in columns})
        if not self._columns(table):
            return reduce(nothing)
        selected = ", ".join(f"COALESCE({expression}, 0)" for expression in columns.values())
        query = f"SELECT {selected} FROM {table} WHERE {_ENDED}"
        frame = self._read(query, lambda batch: reduce(self._frame(table, list(columns), batch)))
        return reduce(nothing) if frame is None else frame

    def _read(self, query: str, made_of: Callable[[pa.RecordBatch], pd.DataFrame]) -> pd.DataFrame | None:
        """What is made of each batch of rows; None where there are none."""
        with adbc_driver_sqlite.dbapi.connect(address(self._path)) as database, database.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH)})
            cursor.execute(query)
            batches = [made_of(batch) for batch in cursor.fetch_record_batch()]
        return pd.concat(batches, ignore_index=True) if batches else None

    def _frame(self, table: str, columns: list[str], batch: pa.RecordBatch) -> pd.DataFrame:
        if types := {str(column.type) for column in batch.columns} - {"int64"}:
            raise ValueError(f"{table} holds values of type {', '.join(sorted(types))} where integers belong")
        return pd.DataFrame({name: batch.column(place).to_numpy() for place, name in enumerate(columns)}, copy=False)

    def _columns(self, table: str) -> set[str]:
        return self._columns_of.get(table, set())


def _first_made(
    made: Mapping[tuple[int, int], tuple[int | None, int, int]], process: int, node: int
) -> tuple[int, int]:
    """Time and thread that made a node, of a copy those of the node that was first in the line of copies."""
    original, start, thread = made[process, node]
    while original is not None and (process, original) in made:
        original, start, thread = made[process, original]
    return start, thread


def _without_serial(labels: pa.Array) -> pa.Array:
    """`without_serial` of each."""
    of_operator, of_step = SERIAL_NUMBERS
    short = compute.replace_substring_regex(labels.cast(pa.binary()), of_operator, "")
    return compute.replace_substring_regex(short, of_step, r"\1")


def _copy_name(kind: int, source: int, target: int) -> str:
    """`HtoD pageable`, `DtoH pinned`, `DtoD`: the direction, and what the host's memory is where there is any."""
    direction = _COPY_KINDS.get(kind, f"copy kind {kind}")
    host = {"HtoD": source, "HtoA": source, "DtoH": target, "AtoH": target}.get(direction)
    memory = None if host is None else _HOST_MEMORY.get(host)
    return f"{direction} {memory}" if memory else direction
