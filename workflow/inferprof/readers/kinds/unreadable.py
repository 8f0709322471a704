"""Files that people have in place of a capture, and what to do about each."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from inferprof.readers.kind import Head, Kind, says

BEGIN: Final = b'{\n "not_measured": '
"""How what `inferprof capture` writes where a tool refused begins."""
_TAR: Final = slice(257, 262)
_ONNX: Final = re.compile(rb"\x08[\x01-\x20][\x12\x1a\x22\x2a\x32\x3a\x42]")
"""A protobuf message that begins with the version of ONNX's format, and a text or a graph behind it."""

_NCU_PAGE: Final = re.compile(
    r'^"?(?:#|Line No)"?,"?(?:Address|Source)"?,|^"Process ID","Process Name",.*"Invocations",', re.MULTILINE
)
_MONITOR: Final = re.compile(
    r"^\| NVIDIA-SMI |^RAM \d+/\d+MB .*GR3D|"
    r"\Atimestamp, [^\n]*(?:utilization|clocks|power|temperature|memory)[^\n]*\[|"
    r"\A# gpu\s+(?:pwr|sm|pid)|\A#Entity\s",
    re.MULTILINE,
)
"""nvidia-smi as it is, with --query-gpu, and dmon or pmon; tegrastats; dcgmi dmon."""
_POLYGRAPHY: Final = re.compile(r"^\[[IVW]\] (?:RUNNING \| Command: \S*polygraphy\b|\w+-runner-N\d+-)", re.MULTILINE)
_NVPROF: Final = re.compile(
    r"^==\d+==.*(?:NVPROF|Profiling (?:application|result))|^ *GPU activities: ", re.MULTILINE
)
_SCORE: Final = re.compile(
    r"^MLPerf Results Summary$|^(?:Total|Average) inference (?:time cost|requests)|^Average time cost: |"
    r"llama_(?:print_timings|perf_\w+): |^\| *model +\| *size +\| *params|Timing Report |"
    r"^\{\s*\"(?:avg_latency|elapsed_time)\": [\d.]+,\s*\"(?:latencies|num_requests)\": |"
    r"\d loops? each\)$|^\[ INFO \] Throughput: |^Throughput: [\d.]+ requests/s|^Avg latency: [\d.]+ seconds",
    re.MULTILINE,
)
"""LoadGen's summary, onnxruntime_perf_test, llama.cpp, jetson-inference, timeit, OpenVINO, vLLM by itself, and the
files of `vllm bench latency` and `throughput`."""
_BUILDING: Final = re.compile(
    r"^\[(?:TensorRT|TRT)\] ?(?:(?:INTERNAL_)?ERROR|WARNING|INFO|VERBOSE|\[[VIWEF]\])|"
    r"^(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?\[TRT(?:-LLM)?\] \[[VIWEF]\]|^ *\[[VIWEF]\] \[TRT\]",
    re.MULTILINE,
)
"""TensorRT's logger in a program of somebody's, up to 7 and since."""


def _begins(*magic: bytes) -> Callable[[Head], bool]:
    return lambda head: head.raw.startswith(magic)


LFS_POINTER: Final = Kind(
    name="lfs_pointer",
    title="a Git LFS pointer",
    recognises=_begins(b"version https://git-lfs"),
    refusal="is a Git LFS pointer, not the file itself: run `git lfs pull`",
    rank=0,
)
ARCHIVE: Final = Kind(
    name="archive",
    title="an archive",
    recognises=lambda head: head.raw.startswith(b"PK\x03\x04") or head.raw[_TAR] == b"ustar",
    refusal="is an archive: unpack it first",
    rank=0,
)
BZIP2: Final = Kind(
    name="bzip2",
    title="a file that is compressed with bzip2",
    recognises=_begins(b"BZh"),
    refusal="is compressed with bzip2: unpack it first",
    rank=0,
)
XZ: Final = Kind(
    name="xz",
    title="a file that is compressed with xz",
    recognises=_begins(b"\xfd7zXZ\0"),
    refusal="is compressed with xz: run `xz -dk` on it first",
    rank=0,
)
EMPTY: Final = Kind(
    name="empty",
    title="an empty file",
    recognises=lambda head: not head.raw,
    refusal="is empty: what wrote it was ended, or it was copied in part",
    rank=0,
)
PLAN: Final = Kind(
    name="trt_plan",
    title="a TensorRT engine",
    recognises=_begins(b"ptrt", b"ftrt"),
    refusal="is a TensorRT engine, which tells nothing without TensorRT of its version: run `trtexec --loadEngine=it "
    "--separateProfileRun --exportLayerInfo=x.graph.json --exportProfile=x.profile.json` and give these",
    rank=0,
)
ONNX_HINT: Final = Kind(
    name="onnx",
    title="an ONNX graph",
    recognises=lambda head: _ONNX.match(head.raw) is not None,
    refusal="is an ONNX graph, no capture of one: give it with --model, or ask `inferprof audit` and `partition`",
    rank=0,
)
NCU_PAGE: Final = Kind(
    name="ncu_page",
    title="a page of Nsight Compute without launches",
    recognises=says(_NCU_PAGE),
    refusal="is a page of Nsight Compute that tells no launch by itself (source, or a summary): write it again with "
    "`ncu --import x.ncu-rep --csv --page details` or `--page raw`",
    rank=1,
)
MONITOR: Final = Kind(
    name="gpu_monitor",
    title="what a monitor of GPUs prints",
    recognises=says(_MONITOR),
    refusal="says how busy a GPU was, and not with what: trace the program, `inferprof watch -- COMMAND`",
    rank=62,
)
POLYGRAPHY: Final = Kind(
    name="polygraphy_log",
    title="a log of Polygraphy",
    recognises=says(_POLYGRAPHY),
    refusal="is a log of Polygraphy, which times no layer and no kernel: save its engine (--save-engine e.plan) and "
    "run `trtexec --loadEngine=e.plan --dumpProfile --separateProfileRun`",
    rank=1,
)
NVPROF: Final = Kind(
    name="nvprof",
    title="what nvprof prints",
    recognises=says(_NVPROF),
    refusal="is what nvprof prints, which knows no newer GPU: trace with nsys, `inferprof watch -- COMMAND`",
    rank=2,
)
SCORE: Final = Kind(
    name="score",
    title="how fast a program was",
    recognises=says(_SCORE),
    refusal="says how long it took, and not where the time goes: trace the program, `inferprof watch -- COMMAND`",
    rank=60,
)
BUILDING: Final = Kind(
    name="trt_messages",
    title="messages of TensorRT",
    recognises=says(_BUILDING),
    refusal="holds messages of TensorRT in a program, and no times of an inference: save its engine and run "
    "`trtexec --loadEngine=it --dumpProfile --separateProfileRun`",
    rank=61,
)

NOT_MEASURED: Final = Kind(
    name="not_measured",
    title="the reason why nothing was captured",
    recognises=lambda head: head.raw.startswith(BEGIN),
    tool="ncu",
    rank=10,
)
