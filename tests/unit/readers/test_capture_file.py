"""What is no readable capture is refused in one line that says what to do."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from pathlib import Path

import pytest
from tests.unit.facts import naming

from inferprof import registry
from inferprof.errors import UserError
from inferprof.explain.opening import opened
from inferprof.files import unpacked
from inferprof.profilers import kineto, nsys
from inferprof.readers.capture_file import identify, recognise
from inferprof.readers.kind import Kind

KERNEL_CSV = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
REFUSED = {
    "report.nsys-rep": (b"NVIDIA Tegra Profiler Report 2025@5@2@266", "binary Nsight Systems report.*nsys export"),
    "old.qdrep": (b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)", "binary Nsight Systems report.*nsys export"),
    "pointer.nsys-rep": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:92\nsize 1\n",
        "LFS pointer.*git lfs pull",
    ),
    "packed.sqlite.xz": (b"\xfd7zXZ\0", "xz -dk"),
    "traces.zip": (b"PK\x03\x04", "unpack"),
    "mine.csv": (b"kernel,ms\ngemm,3.5\n", "not a capture that can be read.*as it was written"),
    "empty.csv": (b"", "is empty"),
    "latency.json": (b'{"latency_ms": [1, 2]}', "JSON without traceEvents"),
    "list.json": (b'[{"name": "a", "ph": "X"}]', "no tool here writes.*enable_profiling"),
    "cut.json": (b'{"schemaVersion": 1, "deviceProp', "not whole JSON.*cut short"),
    "half.json.gz": (gzip.compress(b'{"traceEvents": []}' * 99)[:40], "cut short or damaged"),
    "source.csv": (
        b'"#","Address","Source","# Samples"\n"0","0x7f","MOV R1, R2","3"\n',
        "page of Nsight.*--page details",
    ),
    "smi.csv": (b"timestamp, name, utilization.gpu [%]\n2025/11/12 10:00, NVIDIA L4, 98 %\n", "how busy.*watch"),
    "smi.txt": (b"Wed Nov 12\n+----+\n| NVIDIA-SMI 570.86.15   Driver\n", "how busy.*watch"),
    "dmon.txt": (b"# gpu    pwr  gtemp     sm\n# Idx      W      C      %\n    0     71     55     98\n", "how busy"),
    "polygraphy.txt": (b"[I] RUNNING | Command: /usr/bin/polygraphy run a.onnx --trt\n", "Polygraphy.*--save-engine"),
    "broken.sqlite": (b"SQLite format 3\0" + b"\xff" * 200, "damaged SQLite"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_everything_else_is_refused_with_what_to_do(name: str, tmp_path: Path) -> None:
    content, message = REFUSED[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        identify(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_nvprof_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.nsys-rep"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE StringTable (_id_, value)")
    database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (_id_, name, start, end)")
    database.close()
    with pytest.raises(UserError, match=naming("nvprof", "nsys")):
        identify(path)


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE orders (id)")
    database.close()
    with pytest.raises(UserError, match="no Nsight Systems export"):
        identify(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        identify(tmp_path / "nothing")
    with pytest.raises(UserError, match="is a folder"):
        identify(tmp_path)


def test_the_content_decides_and_not_the_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_bytes(gzip.compress(b'\xef\xbb\xbf{"traceEvents": []}'))
    assert identify(path).name == "kineto"
    path.write_text(KERNEL_CSV)
    assert identify(path).name == "nsys_stats"
    path.write_text('[\n{"cat" : "Session","pid" :1')
    assert identify(path).name == "ort_profile"


def test_the_other_profilers_files_name_their_reader(tmp_path: Path) -> None:
    trace, table = tmp_path / "trace.json", tmp_path / "kernels.csv"
    trace.write_text('{"traceEvents": []}')
    table.write_text(KERNEL_CSV)
    with pytest.raises(UserError, match="inferprof table kineto"):
        nsys.read(trace)
    with pytest.raises(UserError, match="inferprof table nsys"):
        kineto.read(table)


RECOGNISED = {
    "ncu_text": "[1] app@127.0.0.1\n  gemm(float *) (4, 1, 1)x(128, 1, 1)\n    Section: GPU Speed Of Light\n",
    "ncu_csv": "==ERROR== no kernels\n",
    "nsys_stats": "lots of output\n ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n",
    "trtexec_log": "program\n&&&& RUNNING TensorRT.trtexec [TensorRT v101601] [b11] # trtexec --onnx=a.onnx\n",
    "ort_log": "2026-01-01 10:00:00.1 [V:onnxruntime:, session_state.cc:1116 Verify] Node placements\n",
    "trt_metadata": '{"performance_summary": {"Throughput": 1.0}}',
    "trt_layers": '{"Layers": ["a"]}',
    "trt_plan": "ptrt\0\0",
    "onnx": "\x08\x08\x12\x04test",
    "lfs_pointer": "version https://git-lfs.github.com/spec/v1\n",
}


@pytest.mark.parametrize("kind", RECOGNISED)
def test_a_kind_is_told_by_what_stands_in_the_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "some.file"
    path.write_text(RECOGNISED[kind], encoding="utf-8")
    assert recognise(path).name == kind


def test_no_two_kinds_have_one_name() -> None:
    kinds = registry.constants("inferprof.readers.kinds", Kind)
    assert len(kinds) >= len(RECOGNISED)
    assert all(kind.read or kind.refusal or kind.name == "not_measured" for kind in kinds.values())


def test_a_page_that_quotes_a_line_of_ncu_is_none_of_its_files(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("The log has `==PROF==` lines.\n")
    with pytest.raises(UserError, match=naming("not", "nsys stats")):
        recognise(path)


@pytest.mark.parametrize("what", ["device", "pipe", "zeros", "kernel"])
def test_what_has_no_end_or_waits_is_refused_at_once(what: str, tmp_path: Path) -> None:
    path = {"device": Path("/dev/zero"), "kernel": Path("/proc/kmsg")}.get(what, tmp_path / what)
    if what == "pipe":
        os.mkfifo(path)
    if what == "zeros":
        path.touch()
        os.truncate(path, 1 << 36)
    with pytest.raises(UserError, match=naming(str(path))):
        opened([path], tmp_path)


def test_the_order_of_keys_tells_no_kind(shared: Path, repository: Path, tmp_path: Path) -> None:
    """Other programs sort the keys of what they pass on."""
    packed = {
        "times": shared / "real/trt_json/trt8_trex_resnet18_a100_fp16.timing.json.gz",
        "profile": shared / "real/trt_json/trt8_trex_resnet18_a100_fp16.profile.json",
        "layers": shared / "real/trt_json/trt8_trex_resnet18_a100_fp16.graph.json",
        "session": repository / "tests/data/ort_profile/h100_ort_cuda_vit.json.gz",
    }
    for name, original in packed.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(json.loads(unpacked(original)), sort_keys=True))
        assert recognise(path).name == recognise(original).name


@pytest.mark.parametrize("line", ["[I] Loading model: a.onnx", "[2026-01-02 03:04:05] hello"])
def test_a_line_in_a_bracket_is_no_json(line: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(f"{line}\n" * 3)
    with pytest.raises(UserError) as caught:
        recognise(path)
    assert "JSON" not in str(caught.value).partition("read an")[0]
