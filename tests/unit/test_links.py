"""`inferprof links`, between two processes on the CPU: each operation at each size, as a document and as lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.facts import naming

from inferprof import documents, links
from inferprof.documents import Links
from inferprof.errors import UserError
from inferprof.machine import hardware


def test_two_processes_measure_each_operation_at_each_size(tmp_path: Path) -> None:
    out = tmp_path / "links.json"
    command = [sys.executable, "-m", "inferprof", "links", "--gpus", "2", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    document: Links = documents.read(out, "links")
    assert (document.status, document.ranks, document.through) == ("ok", 2, {"library": "gloo"})
    assert document.operations is not None
    assert set(document.operations) == {"AllReduce", "AllGather", "ReduceScatter", "AllToAll", "SendRecv"}
    for operation in document.operations.values():
        assert list(operation.by_size) == [str(size) for size in links.CPU_SIZES]
    largest = str(links.CPU_SIZES[-1])
    reduce, send = (document.operations[name].by_size[largest] for name in ("AllReduce", "SendRecv"))
    assert reduce.gb_per_s == pytest.approx(2 * 1 / 2 * int(largest) / reduce.ns)
    assert send.gb_per_s == pytest.approx(int(largest) / send.ns)
    assert done.stdout.count("\n") == 3 + 5 * len(links.CPU_SIZES)


@pytest.mark.parametrize(("there", "asked"), [(1, None), (2, 3), (0, 1), (4, 1)])
def test_a_link_needs_two_gpus_that_are_there(monkeypatch: pytest.MonkeyPatch, there: int, asked: int | None) -> None:
    monkeypatch.setattr(hardware, "count_gpus", lambda: there)
    with pytest.raises(UserError, match=naming("--gpus", str(asked or there), "2", str(there))):
        links.measure(asked)
