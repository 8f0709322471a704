"""A failure that is planted in a row is that row's failure, with the right next step, and no other row's."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import mentions
from tests.unit.verify.conftest import Plant, Tools, bandwidth, option, partition, product, write

from inferprof.verify.rows import BACKENDS, GRAPHS, ROWS

Verified = Callable[..., dict[str, dict[str, Any]]]


def of(verb: str, *marks: str) -> Callable[[list[str]], bool]:
    """Whether a command is of a verb, and holds these words."""
    return lambda words: words[0] == verb and all(mark in words for mark in marks)


def tabled(tool: str, part: str) -> Callable[[list[str]], bool]:
    """Whether a command makes the table of a case with this part in its path."""
    return lambda words: words[:2] == ["table", tool] and part in words[2].split("/")


def failing(wanted: Callable[[list[str]], bool], do: Callable[[Tools, list[str]], int]) -> Plant:
    """Does the wanted commands otherwise."""
    return lambda tools, words: do(tools, words) if wanted(words) else None


def refused_run(reason: str) -> Callable[[Tools, list[str]], int]:
    """A run whose record says that it failed."""

    def run(tools: Tools, words: list[str]) -> int:
        record = tools.record(words, status="failed", reason=reason)
        return write(Path(option(words, "--out")), record)

    return run


def refused_build(tools: Tools, words: list[str]) -> int:
    out = Path(option(words, "--out"))
    write(out, "")
    return write(out.with_suffix(".build.json"), {"status": "failed", "reason": "node /0/Det: UNSUPPORTED_NODE"})


def refused_capture(reason: str) -> Callable[[Tools, list[str]], int]:
    """A profiler that could not watch: its reason is in the run's record."""

    def capture(tools: Tools, words: list[str]) -> int:
        own = words[: words.index("--")]
        return write(Path(option(own, "--record")), {"status": "failed", "reason": reason})

    return capture


def table(change: Callable[[Any], Any]) -> Callable[[Tools, list[str]], int]:
    """A table of the real capture, changed."""
    return lambda tools, words: tools.write_table(words, change(tools.frames(words[1])))


def nobody(frame: Any) -> Any:
    """Kernels that belong to no layer."""
    confidence = frame["metric"].isin(["layer_confidence", "node_confidence"])
    return frame[~confidence].assign(owner=None)


def facts(**content: Any) -> Callable[[Tools, list[str]], int]:
    """A verb that writes other facts."""
    return lambda tools, words: write(Path(option(words, "--out")), content)


def untimed(tools: Tools, words: list[str]) -> int:
    tools.done(words)
    profile = Path(option(words[: words.index("--")], "--out"))
    return write(profile, [{"count": 14}])


def on_cuda(tools: Tools, words: list[str]) -> int:
    """A session that gave all its nodes to another provider."""
    code = tools.done(words)
    capture = Path(option(words[: words.index("--")], "--out"))
    text = gzip.decompress(capture.read_bytes()).decode()
    capture.write_bytes(
        gzip.compress(re.sub(r'"provider": "\w+"', '"provider": "CUDAExecutionProvider"', text).encode())
    )
    return code


def stale(tools: Tools, words: list[str]) -> int:
    """Runs that leave records of another time."""
    return write(Path(option(words, "--out")), tools.record(words, started="2020-01-01T00:00:00"))


WRONG = "self-check outputs_match: output logits: SQNR 3.0 dB, needs 40 dB"
PLANTED: dict[str, tuple[Plant, str]] = {
    "probe": (failing(of("probe"), lambda tools, words: 1), "`inferprof probe` exited with 1: it said nothing"),
    "model": (failing(of("export"), lambda tools, words: 2), "`inferprof export` exited with 2: it said nothing"),
    **{
        name: (failing(of("build", name, "default"), refused_build), "node /0/Det: UNSUPPORTED_NODE")
        if name in ("ort_tensorrt", "tensorrt_rtx")
        else (failing(of("run", name, "default"), refused_run(WRONG)), WRONG)
        for name in BACKENDS
    },
    "build_ahead": (failing(of("build", "--target"), refused_build), "node /0/Det: UNSUPPORTED_NODE"),
    "partition_parser": (
        failing(of("partition"), facts(**partition(68, "no importer"))),
        "it takes 68 of 69 nodes: no importer",
    ),
    **{
        f"partition_{name}": (
            failing(of("capture", "ort_profile", name), on_cuda),
            "no node ran on TensorRT: CUDAExecutionProvider: 5",
        )
        for name in ("ort_tensorrt", "ort_tensorrt_rtx")
    },
    "layers": (failing(of("capture", "trt_layers"), untimed), "TensorRT timed no layer"),
    "join": (
        failing(tabled("trt_nodes", "fp32"), table(nobody)),
        "only 0% of the kernels' time belongs to a layer, 0% to an ONNX node",
    ),
    **{
        name: (
            failing(of("table", name), table(lambda frame: frame[frame["level"] == "range"])),
            "the capture holds no kernel",
        )
        for name in ("nsys", "kineto")
    },
    "ncu": (
        failing(of("capture", "ncu"), refused_capture("ncu: the kernel k cannot be replayed")),
        "ncu: the kernel k cannot be replayed",
    ),
    **{
        f"graph_{name}": (
            failing(of("run", name, "graph"), refused_run("the runtime cannot capture this model as a CUDA graph")),
            "the runtime cannot capture this model as a CUDA graph",
        )
        for name in GRAPHS
    },
    "telemetry": (
        lambda tools, words: (
            write(Path(option(words, "--out")), tools.record(words, telemetry={"not_measured": "the sampler ended"}))
            if words[0] == "run" and option(words, "--round") == "1"
            else None
        ),
        "the sampler ended",
    ),
    "bandwidth": (
        failing(of("bandwidth"), facts(**bandwidth(55.0, 50.0))),
        "link 55.0 GB/s, memory 50 GB/s: the memory cannot be slower than the link",
    ),
    **{
        f"kernels_{precision}": (
            failing(tabled("trt_nodes", precision), table(lambda frame: product("sgemm_128x128_nn"))),
            f"asked for {precision}: 0.0 % of the time in matrix products ran in {dtype}, 100.0 % in fp32",
        )
        for precision, dtype in {"fp16": "fp16", "fp8": "fp8", "mxfp8": "mxfp8", "nvfp4": "fp4"}.items()
    },
    "self_checks": (
        failing(of("run"), stale),
        "no run left a record",
    ),
}
"""Row → a failure of its own kind, and the reason that the row must give."""


def test_a_failure_is_planted_in_every_row() -> None:
    assert list(PLANTED) == [row.name for row in ROWS]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_failure_fails_its_row_with_its_reason_and_next_step(name: str, verified: Verified) -> None:
    plant, reason = PLANTED[name]
    row = next(row for row in ROWS if row.name == name)
    result = verified(plant, name)[name]
    assert (result["outcome"], result["detail"], result["next_step"]) == ("fail", reason, row.next_step)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_failure_is_no_failure_of_another_row(name: str, verified: Verified) -> None:
    rows = verified(PLANTED[name][0])
    assert [other for other, result in rows.items() if result["outcome"] == "fail"] == [name]
    lost = {row.name for row in ROWS if name in row.after}
    assert all(mentions(rows[other]["next_step"], "named first", "verify again") for other in lost)
    assert {rows[other]["outcome"] for other in lost} <= {"not here"}
