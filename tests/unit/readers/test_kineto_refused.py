"""Traces that are cut short, packed too tightly, or of nobody are refused in one line."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cuts import accepted, places

from inferprof import files
from inferprof.errors import UserError
from inferprof.profilers import kineto

ARGS = {"device": 0, "stream": 7, "correlation": 1}
KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 2, "args": ARGS}
CALL = {**KERNEL, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "args": {"correlation": 1}}
NO_TIMES: tuple[Any, ...] = ("soon", None, [1], {}, "1e40", 1 << 80, "NaN", "Infinity")


def written(folder: Path, *events: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": list(events)}))
    return path


def assert_refused(path: Path, words: str = ".") -> None:
    with pytest.raises(UserError, match=words) as caught:
        kineto.read(path)
    assert "\n" not in str(caught.value) and "decimal" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a": ' + '{"a":' * 100_000 + "1" + "}" * 100_001,
        '{"traceEvents": {"ph": "X"}}',
        '{"traceEvents": null}',
        '{"traceEvents": [1, "a", null, [2]]}',
        '{"traceEvents": [{"ph": "X", "ts": 1' + "0" * 5000 + "}]}",
    ],
    ids=["deep list", "deep object", "object", "null", "scalars", "digits"],
)
def test_json_of_another_shape_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    assert_refused(path)


@pytest.mark.parametrize(
    "change",
    [
        *({"ts": value} for value in NO_TIMES),
        *({"dur": value} for value in (-5, *NO_TIMES)),
        *({"cat": value} for value in (["kernel"], {"a": 1})),
        {"args": [1]},
        *({"args": {**ARGS, key: "x"}} for key in ARGS),
        {"args": {**ARGS, "device": 1 << 70}},
        {"args": {**ARGS, "grid": 3, "block": None}},
        *({key: True} for key in ("ts", "dur")),
        *({"args": {**ARGS, key: True}} for key in (*ARGS, "bytes")),
        {"args": {**ARGS, "bytes": -7}},
        *({"ph": phase} for phase in "BE"),
    ],
    ids=str,
)
@pytest.mark.parametrize("event", [KERNEL, CALL], ids=["kernel", "call"])
def test_an_event_that_kineto_does_not_write_is_refused(
    event: Mapping[str, Any], change: Mapping[str, Any], tmp_path: Path
) -> None:
    if event is CALL and ("ph" in change or ("args" in change and change["args"] != [1])):
        change = {"args": {"correlation": "x"}}
    assert_refused(written(tmp_path, KERNEL, {**event, **change}))


@pytest.mark.parametrize("key", ["ts", "dur", "name"])
def test_an_event_that_lacks_what_all_have_is_refused(key: str, tmp_path: Path) -> None:
    assert_refused(written(tmp_path, {name: value for name, value in KERNEL.items() if name != key}), f"no '{key}'")


def test_an_event_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    frame = kineto.read(
        written(tmp_path, *[{**KERNEL, "args": {**ARGS, "grid": [1, 1, 1], "block": [32, 1, 1]}}] * 2)
    )
    rows = frame[frame["level"].isin(["kernel", "launch_config"]) & frame["metric"].eq("duration_total")]
    assert rows[["instances", "value"]].to_numpy().tolist() == [[1, 2000.0], [1, 2000.0]]


def test_no_more_is_unpacked_than_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 10_000 + b"]}"))
    monkeypatch.setattr(files, "LARGEST_FILE", 9_000)
    assert_refused(path, "holds more than")


def test_an_archive_is_refused_whole_and_cut(tmp_path: Path) -> None:
    trace = written(tmp_path, KERNEL)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(trace, "trace.json")
    path = tmp_path / "traces.tgz"
    for kept in (packed.getbuffer().nbytes, packed.getbuffer().nbytes - 4, 60, 5, 2):
        path.write_bytes(packed.getvalue()[:kept])
        assert_refused(path)


def test_a_trace_is_refused_at_every_cut(tmp_path: Path) -> None:
    path = written(tmp_path, *({**KERNEL, "ts": 10 * i, "args": {**ARGS, "correlation": i}} for i in range(40)))
    content = json.dumps(json.loads(path.read_text()), indent=1).encode()
    assert list(accepted(content, "cut.json", kineto.read, tmp_path, places(content, 50))) == []
    packed = gzip.compress(content)
    kept = {*range(0, 30), *places(packed, 40), *range(len(packed) - 10, len(packed))}
    assert list(accepted(packed, "cut.json.gz", kineto.read, tmp_path, sorted(kept))) == []


def test_our_own_trace_is_refused_at_every_cut(repository: Path, tmp_path: Path) -> None:
    content = (repository / "tests/data/kineto/h100_ort_cuda_vit.json.gz").read_bytes()
    assert list(accepted(content, "cut.json.gz", kineto.read, tmp_path, places(content, 5))) == []


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_other_peoples_traces_are_refused_when_cut(kept: float, shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.json.gz"
    for name in ("hta_amd_mi250_rocm6.2", "hta_2023_simple_add_training", "tracelens_torch_compile_triton"):
        content = (shared / f"real/kineto/{name}.json.gz").read_bytes()
        path.write_bytes(content[: int(len(content) * kept)])
        assert_refused(path)
