"""Traces as others hand them on: a bare list of events, and clocks of GPU and host that are apart."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from inferprof.explain import explain
from inferprof.explain.parts import parts_of
from inferprof.tables.trace.api_kind import untied


@pytest.fixture(scope="module")
def trace(repository: Path) -> dict[str, Any]:
    packed = repository / "tests/data/kineto/h100_ort_cuda_vit.json.gz"
    document: dict[str, Any] = json.loads(gzip.decompress(packed.read_bytes()))
    return document


@pytest.mark.parametrize("end", ["]", ",\n"])
def test_a_bare_list_of_events_is_a_trace(end: str, trace: dict[str, Any], tmp_path: Path) -> None:
    whole, listed = tmp_path / "whole.json", tmp_path / "list.json"
    whole.write_text(json.dumps(trace))
    listed.write_text(json.dumps(trace["traceEvents"])[:-1] + end)
    parts = [parts_of(explain([path])[0]) for path in (whole, listed)]
    assert parts[0] == parts[1] is not None


@pytest.mark.parametrize("moved_us", [1e9, -1e9])
def test_clocks_that_are_apart_are_said(moved_us: float, trace: dict[str, Any], tmp_path: Path) -> None:
    moved = [
        {**event, "ts": float(event["ts"]) + moved_us} if event.get("cat") == "kernel" else event
        for event in trace["traceEvents"]
    ]
    (tmp_path / "moved.json").write_text(json.dumps({"traceEvents": moved}))
    (case,) = explain([tmp_path / "moved.json"])
    timeline = case.captures[0].timeline
    assert timeline is not None
    assert (reason := untied(timeline)) is not None
    assert any(reason in lack.what for lack in case.lacks)
