"""What a profiled session of ONNX Runtime says of itself, in front of its profile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferprof.backends import ort
from inferprof.device import Buffer
from inferprof.errors import CaseFailed
from inferprof.plugins import OpenRequest
from inferprof.readers.ort_json import read_profile
from inferprof.tables.nodes.ort_facts import Assigned


def test_a_profile_says_when_its_clock_began_and_who_took_what(
    small_model: Callable[..., Path],
    opening: Callable[..., OpenRequest],
    host: Callable[[Any], Buffer],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("onnxruntime")
    model = small_model([("Exp", ["x"], ["e"], {}), ("NonZero", ["e"], ["y"], {})], [("y", "INT64", [2, "found"])])
    out = tmp_path / "profile.json"
    before = time.time_ns()
    with ort.open_cpu(replace(opening(model), native_profile=out)) as session:
        session.bind({"x": host(np.ones((2, 4), np.float32))})
        session.enqueue()
    profile = read_profile(out)
    assert profile.facts is not None
    assert before < profile.facts.start_ns < time.time_ns()
    cpu = "CPUExecutionProvider"
    assert [replace(node, name="") for node in profile.facts.assigned] == [
        Assigned("", "Exp", cpu, 0),
        Assigned("", "NonZero", cpu, 1),
    ]
    assert profile.nodes[["op_type", "types", "process", "thread"]].to_numpy().tolist()[-2:] == [
        ["Exp", "float", os.getpid(), os.getpid()],
        ["NonZero", "float", os.getpid(), os.getpid()],
    ]
    assert [path.name for path in tmp_path.iterdir() if "profile" in path.name] == ["profile.json"]
    assert "[I:onnxruntime" not in capfd.readouterr().err


def test_where_a_session_cannot_be_made_its_log_is_shown(
    matmul: Path, opening: Callable[..., OpenRequest], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    request = replace(opening(matmul), native_profile=tmp_path / "profile.json")
    matmul.write_bytes(matmul.read_bytes()[:40])
    with pytest.raises(CaseFailed), ort.open_cpu(request):
        pass
    assert "[I:onnxruntime" in capfd.readouterr().err
