"""Quantized weights beside plain ones: the eager model of an H100 capture, with kernels that unpack weights added."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.diagnosis.asking import approx, ask
from tests.unit.facts import facts, mentions, states
from tests.unit.made_records import made

from inferprof.case import Case
from inferprof.diagnosis import frames as reading
from inferprof.files import write_json
from inferprof.findings import Frames, Gain, PairedCase
from inferprof.tables.trace.kernel_compare import of_iterations

Measured = Callable[..., Frames]
PATH = "vit_base/fp16/torch_eager/default/b64"
PLAIN = Case("vit_base", "fp16", "torch_eager", "plain", "b64")
UNPACK = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)>"
ITERATIONS = 10


def with_kernel(rows: pd.DataFrame, name: str, ns: float, launches: int) -> pd.DataFrame:
    """The rows and one more kernel: ns and launches of an iteration."""
    template = of_iterations(rows[rows["metric"] == "duration_total"]).head(1)
    return pd.concat([rows, template.assign(name=name, value=ns * ITERATIONS, instances=launches * ITERATIONS)])


def compared(frames: Frames, own_ms: float, plain_ms: float, half: float = 0.001) -> Frames:
    """The frames with a paired case of these rows, and the device times of both."""
    record = made({"memory": {"runtime": {"weights": 200_000_000}}})
    rows = [
        {
            **dataclasses.asdict(case),
            **{"device_ms": ms, "device_low_ms": ms - half, "device_high_ms": ms + half},
        }
        for case, ms in ((frames.case, own_ms), (PLAIN, plain_ms))
    ]
    paired = PairedCase(PLAIN, record, frames.profiles)
    return dataclasses.replace(frames, unquantized=paired, peers=pd.DataFrame(rows))


@pytest.fixture
def quantized(measured: Measured) -> Frames:
    def change(record: dict[str, Any]) -> None:
        record["options"] = {"quantize": "float8_weight_only"}
        record["memory"]["runtime"] = {"weights": 100_000_000}

    return measured(PATH, change, profile="h100_torch_eager")


def unpacking(frames: Frames, ns: float, launches: int) -> Frames:
    """The same with kernels that unpack weights, in the trace of the case but not of its paired case."""
    return dataclasses.replace(frames, timeline=with_kernel(frames.timeline, UNPACK, ns, launches))


def test_kernels_that_unpack_the_weights_are_named_as_the_cause(quantized: Frames) -> None:
    frames = unpacking(compared(quantized, own_ms=2.0, plain_ms=1.0), ns=950_000.0, launches=100)
    (finding,) = ask("quantized_weights", frames).findings
    assert (finding.subject, finding.bottleneck) == ("converted weights", "memory")
    assert finding.gain == Gain(0.0, approx(950_000.0))
    assert states(finding.reason, "2 ms", "1 ms", "device", "2", "weights", "100 MB", "200 MB")
    assert states(finding.reason, "226", "kernels", "1.45 ms", "126", "0.496 ms")
    assert "100 more an inference;" in finding.reason
    assert mentions(finding.reason, "100.0 %", "plain weights too")


def test_what_no_kernel_explains_is_the_hosts(quantized: Frames) -> None:
    frames = unpacking(compared(quantized, own_ms=2.0, plain_ms=1.0), ns=300_000.0, launches=100)
    host, kernels = ask("quantized_weights", frames).findings
    assert (host.subject, host.bottleneck) == ("the host", "launch")
    assert host.evidence["part_ns"] == approx(700_000.0)
    assert facts(kernels.reason, "plain", "weights")[:6] == [
        "slower",
        "plain",
        "weights",
        "0.3 ms",
        "more",
        "kernels",
    ]
    assert kernels.evidence["part_ns"] == approx(300_000.0)


def test_products_that_are_other_kernels_are_told_from_those_that_multiply_plain_weights(quantized: Frames) -> None:
    frames = compared(quantized, own_ms=2.0, plain_ms=1.0)
    slower = with_kernel(frames.timeline, "void gemvx::kernel<int, int, __nv_bfloat16>", 950_000.0, 49)
    (finding,) = ask("quantized_weights", dataclasses.replace(frames, timeline=slower)).findings
    assert (finding.subject, finding.bottleneck) == ("other products", "kernels")
    own = 950_000.0 + float(kernels_of(frames, "nvjet"))
    kept = f"{100 * (1 - 950_000.0 / own):.1f} %"
    assert mentions(finding.reason, kept, "the products' time")
    assert states(finding.reason, *facts(f"{kept}"), "100.0 %")


def kernels_of(frames: Frames, name: str) -> float:
    """ns of an iteration in kernels of this name."""
    rows = of_iterations(frames.timeline[frames.timeline["metric"] == "duration_total"])
    return float(rows.loc[rows["name"].str.contains(name), "value"].sum()) / ITERATIONS


def test_what_does_not_occur_is_said_with_the_numbers(quantized: Frames) -> None:
    answer = ask("quantized_weights", compared(quantized, own_ms=1.0, plain_ms=2.0))
    assert answer.verdict == "clear"
    assert facts(answer.reason, "weights")[:7] == ["1 ms", "2 ms", "device", "0.5", "weights", "100 MB", "200 MB"]
    assert facts(answer.reason, "")[-5:] == ["126", "kernels", "0.496 ms", "126", "0.496 ms"]
    assert (answer.evidence["quantized_ns"], answer.evidence["plain_bytes"]) == (1e6, 2e8)


def test_a_difference_within_the_intervals_is_no_finding(quantized: Frames) -> None:
    assert ask("quantized_weights", compared(quantized, 1.001, 1.0, half=0.01)).verdict == "clear"


def test_without_intervals_nothing_is_said(quantized: Frames) -> None:
    answer = ask("quantized_weights", compared(quantized, 2.0, 1.0, half=float("nan")))
    assert mentions(answer.reason, "needs", "samples", "interval")


def test_without_a_trace_of_both_the_cause_stays_open(quantized: Frames) -> None:
    frames = compared(quantized, own_ms=2.0, plain_ms=1.0)
    assert frames.unquantized is not None
    untraced = dataclasses.replace(frames.unquantized, profiles=frames.profiles.head(0))
    (finding,) = ask("quantized_weights", dataclasses.replace(frames, unquantized=untraced)).findings
    assert mentions(finding.reason, "1 ms more", "no trace of both")


def test_plain_weights_are_clear_and_a_lone_quantized_case_is_not_assessed(
    measured: Measured, quantized: Frames
) -> None:
    assert facts(ask("quantized_weights", measured(PATH)).reason, "weights") == ["no", "weights", "torch"]
    alone = ask("quantized_weights", quantized)
    assert facts(alone.reason, "case", "quantize") == ["case", "without", "quantize"]


def test_it_is_not_the_precision_that_says_what_quantized_weights_are_multiplied_in(quantized: Frames) -> None:
    assert mentions(ask("precision", quantized).reason, "needs", "float8_weight_only", "multiplied in")


def test_the_paired_case_is_the_case_with_the_same_other_options(tmp_path: Path) -> None:
    options = {
        "plain": {},
        "graph": {"cuda_graph": True},
        "fp8": {"quantize": "float8_weight_only"},
        "fp8_graph": {"quantize": "float8_weight_only", "cuda_graph": True},
    }
    for variant, own in options.items():
        case = dataclasses.replace(PLAIN, variant=variant)
        record = {"case": dataclasses.asdict(case), "round": 0, "machine": "m", "status": "ok", "options": own}
        write_json(tmp_path / f"m/benchmark/{case.path}/r0.json", {**RECORD, **record})
    paired = {
        frames.case.variant: frames.unquantized and frames.unquantized.case.variant
        for frames in reading.of_model(tmp_path, "m", "vit_base")
    }
    assert paired == {"plain": None, "graph": None, "fp8": "plain", "fp8_graph": "graph"}


RECORD: dict[str, Any] = {
    "schema": 1,
    "reason": None,
    "environment": {},
    "protocol": {},
    "started": "2026-01-01T00:00:00+00:00",
    "boundaries": {},
    "stages": {},
    "throughput": {},
    "first": {},
    "memory": {"runtime": {}},
    "checks": {},
    "outputs": {},
    "telemetry": {"not_measured": "no GPU"},
}
