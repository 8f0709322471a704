"""What unit tests share: above all small Nsight Systems exports, written table by table as each schema has them."""

from __future__ import annotations

import contextlib
import lzma
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Polygraphy decides for one flavour of TensorRT a process, at its first import; TensorRT-RTX is in the lock file.
os.environ["POLYGRAPHY_USE_TENSORRT_RTX"] = "1"

PID = 4242
GLOBAL_PID = 1 << 48 | PID << 24
THREAD = GLOBAL_PID | 17
SCHEMAS = ("none", "2.7.0", "2.9.1", "3.4.0", "3.16.1", "3.20.3", "3.24.14", "3.27.0")

_KERNEL = (
    "start end deviceId contextId streamId correlationId globalPid demangledName shortName launchType "
    "registersPerThread gridX gridY gridZ blockX blockY blockZ graphNodeId"
)
_COPY = "start end deviceId contextId streamId correlationId globalPid bytes copyKind srcKind dstKind graphNodeId"
_MEMSET = "start end deviceId contextId streamId correlationId globalPid value bytes graphNodeId memKind"
_GRAPH = "start end deviceId contextId streamId correlationId globalPid graphId graphExecId"
_RUNTIME = "start end eventClass globalTid correlationId nameId returnValue"
_NODES = "start end eventClass globalTid nameId graphNodeId originalGraphNodeId"
_NVTX = "start end eventType rangeId text globalTid textId domainId"
_SINCE = {
    "2.7.0": {"KERNEL": "mangledName", "MEMCPY": "virtualAddress"},
    "2.9.1": {"MEMCPY": "name", "RUNTIME": "name callchainId"},
    "3.16.1": {"KERNEL": "greenContextId", "MEMCPY": "greenContextId", "MEMSET": "greenContextId"},
    "3.20.3": {"MEMCPY": "copyCount"},
    "3.24.14": {"KERNEL": "graphId clusterX qmdLastCtaDone sharedMemoryRequestedPercentage"},
    "3.27.0": {"KERNEL": "tensorSizeMinusOneElements"},
}
"""What a schema adds, and later ones keep; 2.9.1's extra `name` columns came with its full set of empty tables."""


class Export:
    """An export under construction: calls, operations and ranges by name and time (ns)."""

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self.database = sqlite3.connect(path)
        self._correlation = 0
        self._columns = {
            "KERNEL": _KERNEL,
            "MEMCPY": _COPY,
            "MEMSET": _MEMSET,
            "GRAPH_TRACE": _GRAPH,
            "RUNTIME": _RUNTIME,
        }
        if schema != "none":
            for since in SCHEMAS[1 : SCHEMAS.index(schema) + 1]:
                for table, added in _SINCE.get(since, {}).items():
                    if since != "2.9.1" or schema == since:
                        self._columns[table] += f" {added}"
            self._version(schema)
        self._create("StringIds", "id value")
        self.all_tables = schema == "2.9.1"
        if self.all_tables:
            for table, columns in self._columns.items():
                self._create(f"CUPTI_ACTIVITY_KIND_{table}", columns)
            self._create("NVTX_EVENTS", _NVTX)

    def _version(self, schema: str) -> None:
        table = "META_DATA_EXPORT" if SCHEMAS.index(schema) >= SCHEMAS.index("3.4.0") else "EXPORT_META_DATA"
        self._create(table, "name value")
        self.database.execute(f"INSERT INTO {table} VALUES ('EXPORT_SCHEMA_VERSION', ?)", (schema,))

    def _create(self, table: str, columns: str) -> None:
        self.database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(columns.split())})")

    def _insert(self, table: str, columns: str, **values: object) -> None:
        self._create(table, columns)
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        self.database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))

    def _activity(self, table: str, **values: object) -> None:
        self._insert(f"CUPTI_ACTIVITY_KIND_{table}", self._columns[table], **values)

    def string(self, value: str) -> int:
        (count,) = self.database.execute("SELECT COUNT(*) FROM StringIds").fetchone()
        found = self.database.execute("SELECT id FROM StringIds WHERE value = ?", (value,)).fetchone()
        if found is None:
            self.database.execute("INSERT INTO StringIds VALUES (?, ?)", (count + 100, value))
        return int(found[0]) if found else count + 100

    def call(self, name: str, start: int, end: int, thread: int = THREAD) -> int:
        self._correlation += 1
        self._activity(
            "RUNTIME",
            start=start,
            end=end,
            globalTid=thread,
            correlationId=self._correlation,
            nameId=self.string(name),
            returnValue=0,
        )
        return self._correlation

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        call: int,
        *,
        stream: int = 7,
        short: str = "k",
        device: int = 0,
        node: int | None = None,
        process: int = GLOBAL_PID,
    ) -> None:
        self._activity(
            "KERNEL",
            **_where(start, end, call, stream) | {"deviceId": device, "globalPid": process},
            demangledName=self.string(name),
            shortName=self.string(short),
            graphNodeId=node,
        )

    def node(self, node: int, at: int, original: int | None = None, thread: int = THREAD) -> None:
        """A node of a CUDA graph is made, perhaps as a copy of another."""
        columns = {"graphNodeId": node, "originalGraphNodeId": original, "globalTid": thread}
        self._insert("CUDA_GRAPH_NODE_EVENTS", _NODES, start=at, end=at, **columns)

    def copy(self, start: int, end: int, call: int, *, kind: int, source: int, target: int, size: int) -> None:
        self._activity(
            "MEMCPY", **_where(start, end, call, 7), copyKind=kind, srcKind=source, dstKind=target, bytes=size
        )

    def memset(self, start: int, end: int, call: int, *, size: int) -> None:
        self._activity("MEMSET", **_where(start, end, call, 7), bytes=size, value=0)

    def graph(self, start: int, end: int, call: int, *, graph: int) -> None:
        self._activity("GRAPH_TRACE", **_where(start, end, call, 7), graphId=graph, graphExecId=graph + 1)

    def range(
        self,
        name: str,
        start: int,
        end: int | None,
        *,
        registered: bool = False,
        kind: int = 59,
        thread: int = THREAD,
    ) -> None:
        text, text_id = (None, self.string(name)) if registered else (name, None)
        self._insert(
            "NVTX_EVENTS", _NVTX, start=start, end=end, eventType=kind, text=text, textId=text_id, globalTid=thread
        )

    def done(self) -> Path:
        self.database.commit()
        self.database.close()
        return self.path


def _where(start: int, end: int, call: int, stream: int) -> dict[str, object]:
    return {
        "start": start,
        "end": end,
        "deviceId": 0,
        "contextId": 1,
        "streamId": stream,
        "correlationId": call,
        "globalPid": GLOBAL_PID,
    }


@pytest.fixture
def export(tmp_path: Path) -> Iterator[Callable[..., Export]]:
    """Makes an Export of a schema (by default the newest)."""
    with contextlib.ExitStack() as stack:

        def make(schema: str = SCHEMAS[-1], name: str = "made.sqlite") -> Export:
            made = Export(tmp_path / name, schema)
            stack.callback(made.database.close)
            return made

        yield make


@pytest.fixture(scope="session")
def captured(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Unpacks an export of tests/data/nsys by its name."""
    folder = tmp_path_factory.mktemp("nsys")

    def unpack(name: str) -> Path:
        path = folder / f"{name}.sqlite"
        if not path.exists():
            path.write_bytes(lzma.decompress((repository / f"tests/data/nsys/{name}.sqlite.xz").read_bytes()))
        return path

    return unpack


@pytest.fixture(autouse=True)
def no_plug_in_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A section, plot or check that raises is contained: here that is a failure, unless the test clears the log."""
    yield
    assert [record.exc_text for record in caplog.get_records("call") if record.name == "inferprof"] == []
