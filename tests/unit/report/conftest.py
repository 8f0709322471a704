"""A made-up results folder: small JSON files like those of the real stages. No number in it was measured."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferprof import report
from inferprof.case import Case
from inferprof.profilers import nsys
from inferprof.report import evidence
from inferprof.tables import records, schema

FAILED = Path(__file__).parents[2] / "data/failed/record.json"
"""What the program wrote on an H200 of a case that failed under a CUDA graph."""
TRACED = {
    "vit/fp16/ort_cuda/default/b1": "h100_ort_cuda_minilm",
    "vit/fp32/ort_cuda/default/b1": "h100_ort_cuda_graph_vit_tiny",
}
"""The cases of `traced`, and the captures in tests/data that they have."""
CASE_KEYS = ("model", "precision", "backend", "variant", "shape")
NO_DEVICE_CLOCK = "a CPU has no clock apart from the host's"


@dataclass
class Results:
    """A results folder in the making. Cases are written `model/precision/backend/variant/shape`."""

    root: Path
    study: str = "sample"
    machine: str = "cpu-sample-0123abcd"

    def __post_init__(self) -> None:
        self.cases: list[tuple[str, str, str]] = []

    def write(self, path: str, content: Any) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")

    def plan(self) -> None:
        """Write cases.csv of all cases so far."""
        path = self.root / "reports" / self.study / "cases.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["machine", *CASE_KEYS, "outcome", "reason"])
            for case, outcome, reason in self.cases:
                writer.writerow([self.machine, *case.split("/"), outcome, reason])

    def refused(self, case: str, reason: str) -> None:
        self.cases.append((case, "refused", reason))

    def broken(self, case: str) -> None:
        self.cases.append((case, "run", ""))

    def failed(self, case: str, reason: str) -> None:
        self.cases.append((case, "run", ""))
        head = {"case": dict(zip(CASE_KEYS, case.split("/"), strict=True)), "machine": self.machine, "reason": reason}
        self.write(self.record_path(case, 0), json.loads(FAILED.read_text(encoding="utf-8")) | head)

    def ok(self, case: str, ms: float, rounds: int = 1, gpu: bool = False, **more: Any) -> None:
        self.cases.append((case, "run", ""))
        for round_ in range(rounds):
            shift = 1 + 0.01 * np.random.default_rng(round_ + sum(map(ord, case))).random()
            self.write(self.record_path(case, round_), self.measurement(case, round_, ms * shift, gpu) | more)

    def record_path(self, case: str, round_: int) -> str:
        return f"{self.machine}/benchmark/{case}/r{round_}.json"

    def record(self, case: str, round_: int) -> dict[str, Any]:
        return {
            "schema": 1,
            "case": dict(zip(CASE_KEYS, case.split("/"), strict=True)),
            "round": round_,
            "machine": self.machine,
            "status": "ok",
            "reason": None,
            "boundaries": {},
            "environment": {"git": "0123abcd", "packages": {}, "gpu": None, "processes_on_gpu": None},
            "placement": "pageable",
            "protocol": {},
            "started": f"2026-01-0{round_ + 1}T00:00:00+00:00",
        }

    def measurement(self, case: str, round_: int, ms: float, gpu: bool) -> dict[str, Any]:
        seed = sum(map(ord, case)) + round_
        extra = 1.6 if gpu else 1.02
        record = self.record(case, round_)
        record["boundaries"] = {
            "device": series(ms, seed) if gpu else {"not_measured": NO_DEVICE_CLOCK},
            "call": series(ms * 1.01, seed + 1),
            "end_to_end": series(ms * extra, seed + 2),
        }
        shares = {"stage_inputs": 0.05, "h2d": 0.25, "bind": 0.02, "execute": 1.0, "d2h": 0.15, "extract": 0.03}
        names = shares if gpu else ("stage_inputs", "execute", "extract")
        record["stages"] = {name: {"samples_ns": [round(ms * shares[name] * 1e6)] * 5} for name in names}
        record["throughput"] = {
            "back_to_back": {"inferences": 500, "seconds": 500 * ms / 1e3},
            "pipelined": {"not_measured": "needs a GPU"},
        }
        if gpu:
            seconds = 800 * ms * 0.9 / 1e3
            record["throughput"]["pipelined"] = {"inferences": 800, "seconds": seconds, "overlap": 0.72}
        record["first"] = {"load_ns": 812_000_000, "first_inference_ns": int(ms * 3e6)}
        record["memory"] = {
            "host_rss_bytes": 512 << 20,
            "device_bytes": 734 << 20 if gpu else None,
            "runtime": {},
        }
        record["telemetry"] = telemetry() if gpu else {"not_measured": "no GPU"}
        record["checks"] = {"outputs finite": {"passed": True, "detail": "2 outputs"}}
        return record

    def accuracy(self, model: str, precision: str, sqnr: float | None, outcome: str, **more: Any) -> None:
        content = {
            "precision": precision,
            "pretrained": True,
            "seed": 0,
            "outcome": outcome,
            "reason": f"output logits: SQNR {sqnr} dB",
            "from": "onnxruntime cpu",
            "samples": 64,
            "tolerance": {"passes_db": 40.0, "warns_db": 30.0, "reason": "sample"},
            "collapse": [],
            "outputs": {
                "logits": {
                    "cosine_mean": 0.9999,
                    "cosine_min": 0.99987,
                    "sqnr_db": sqnr,
                    "max_abs_error": 0.0 if sqnr is None else 0.0123,
                    "max_abs_expected": 9.5,
                }
            },
            "agreement": {"kind": "top-1", "share": 0.984375, "of": 64},
        }
        self.write(f"onnx/{model}/{precision}.accuracy.json", content | more)

    def audit(self, model: str, precision: str, dtype: str, **more: Any) -> None:
        content = {
            "precision": precision,
            "shape": "b1",
            "macs": 1_253_683_200,
            "macs_share": {dtype: 0.982, "float32": 0.018} if dtype != "float32" else {dtype: 1.0},
            "weight_bytes": {dtype: 22_748_164, "int64": 96},
            "casts": 0 if dtype == "float32" else 14,
            "quantizers": 0,
            "dequantizers": 0,
            "softmax": {dtype: 12},
            "normalization": {"float32": 25},
            "foreign_domains": {},
            "high_precision": [],
            "unaligned": [],
            "advice": ["size 197 (k of 24 products) is no multiple of 16: padded to 208"],
        }
        self.write(f"onnx/{model}/{precision}.audit.json", content | more)


def evidence_of(results: Results, baseline: str | None = None) -> evidence.Evidence:
    """What the report has of the planned cases."""
    cases = records.read_cases(results.root / "reports" / results.study / "cases.csv")
    return evidence.load(results.root, results.study, results.machine, cases, baseline)


def telemetry() -> dict[str, Any]:
    """A GPU that idled while the case was loaded, was then throttled for a while, and had it for itself."""
    loading = {"sm_mhz": 345.0, "memory_mhz": 2619.0, "power_w": 78.0, "temperature_c": 38.0}
    gauges = {"sm_mhz": 1755.0, "memory_mhz": 2619.0, "power_w": 412.5, "temperature_c": 58.0}
    whole = _gpu_summary(loading, 0.01)
    energy = {"not_measured": "the samples of the loop span 0.40 s; needs 1 s"}
    boundaries = {"end_to_end": _gpu_summary(gauges, 0.05)}
    return {"interval_s": 0.05, "summary": whole, "boundaries": boundaries, "energy": energy, "samples": {}}


def _gpu_summary(gauges: dict[str, float], throttled: float) -> dict[str, Any]:
    return {
        "samples": 120,
        **{name: {"median": value, "min": value, "max": value} for name, value in gauges.items()},
        "throttled": True,
        "throttled_share": throttled,
        "throttle_reasons": ["power cap"],
        "other_processes": 0,
    }


def series(ms: float, seed: int, n: int = 400) -> dict[str, Any]:
    """Skewed samples around a median of `ms`, always the same for a seed."""
    noise = np.random.default_rng(seed).gamma(2.0, 0.004, n)
    samples = ms * 1e6 * (1 + noise - np.median(noise))
    return {
        "samples_ns": [round(value) for value in samples],
        "warmup": 20,
        "settled": True,
        "stopped_by": "interval",
        "interval": 0.004,
    }


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """An empty results folder on a CPU."""
    return Results(tmp_path / "results")


NO_GPU = "no NVIDIA GPU in this machine"
INT8_IN_TORCH = "torch_eager runs bf16, fp16, fp32; int8 lives in the ONNX graph"
PARSER_MESSAGE = (
    "In node 12 with name /encoder/layer.0/MatMul and operator: QuantizeLinear (checkScale): scale must be positive"
)


def cpu_results(root: Path) -> Results:
    """One round on a CPU: ok, refused and failed cases of two models; one has random weights."""
    results = Results(root)
    for batch, factor in ((1, 1.0), (8, 6.1)):
        results.ok(f"vit_tiny/fp32/ort_cpu/default/b{batch}", 18.4 * factor)
        results.ok(f"vit_tiny/fp32/torch_eager/default/b{batch}", 25.9 * factor)
        results.ok(f"vit_tiny/fp16/ort_cpu/default/b{batch}", 31.7 * factor)
        results.ok(f"vit_tiny/int8/ort_cpu/default/b{batch}", 11.2 * factor)
        results.refused(f"vit_tiny/int8/torch_eager/default/b{batch}", INT8_IN_TORCH)
        for precision in ("fp32", "fp16", "int8"):
            results.refused(f"vit_tiny/{precision}/ort_cuda/default/b{batch}", NO_GPU)
            results.refused(f"vit_tiny/{precision}/tensorrt/default/b{batch}", NO_GPU)
        results.ok(f"minilm/fp32/ort_cpu/default/b{batch}_s128", 9.8 * factor)
        results.ok(f"minilm/int8/ort_cpu/default/b{batch}_s128", 4.1 * factor)
    results.failed("minilm/fp16/ort_cpu/default/b8_s128", "output embedding: all NaN")
    results.plan()
    for precision, dtype in (("fp32", "float32"), ("fp16", "float16")):
        results.audit("vit_tiny", precision, dtype)
        results.write(f"onnx/vit_tiny/{precision}.convert.json", {"method": f"sample {precision}", "bytes": 1 << 24})
    for model in ("vit_tiny", "minilm"):
        pretrained = model == "minilm"
        results.accuracy(model, "fp32", None, "pass", pretrained=pretrained, reason="identical")
        results.accuracy(model, "fp16", 62.1, "pass", pretrained=pretrained)
        results.accuracy(
            model, "int8", 24.3 if pretrained else 34.0, "fail" if pretrained else "warn", pretrained=pretrained
        )
        for precision, status in (("fp32", "ok"), ("int8", "failed")):
            case = f"aot-sm120/engine/{model}/{precision}/tensorrt_rtx/default/{'b8_s128' if pretrained else 'b8'}"
            failed = {"status": "failed", "reason": PARSER_MESSAGE}
            ok = {"status": "ok", "reason": None, "seconds": 41.3, "bytes": 12_345_678}
            results.write(f"{case}.build.json", ok if status == "ok" else failed)
    results.write(
        f"{results.machine}/environment.json",
        {"cpu": {"model": "Sample CPU"}, "gpus": {"not_measured": "no GPU"}, "packages": {"torch": "2.13.0"}},
    )
    return results


def gpu_results(root: Path) -> Results:
    """Three rounds on a GPU with a CPU baseline beside it, and two batch sizes."""
    results = Results(root, study="gpu", machine="h100-80gb-hbm3-sm90-0123abcd")
    for batch, factor in ((1, 1.0), (8, 2.1), (64, 11.0)):
        results.ok(f"vit_tiny/fp32/ort_cpu/default/b{batch}", 18.4 * batch, rounds=3)
        results.ok(f"vit_tiny/fp32/ort_cuda/default/b{batch}", 0.92 * factor, rounds=3, gpu=True)
        results.ok(f"vit_tiny/fp16/ort_cuda/default/b{batch}", 0.51 * factor, rounds=3, gpu=True)
        results.ok(f"vit_tiny/fp16/ort_cuda/graph/b{batch}", 0.38 * factor, rounds=3, gpu=True)
        results.ok(f"vit_tiny/fp16/torch_compile/reduce-overhead/b{batch}", 0.41 * factor, rounds=3, gpu=True)
        results.refused(f"vit_tiny/nvfp4/tensorrt/default/b{batch}", "nvfp4 on compute capability 9.0: needs 10.0")
    results.failed("vit_tiny/fp32/torch_compile/reduce-overhead/b64", "CUDA out of memory: tried to allocate 2.4 GiB")
    results.plan()
    results.accuracy("vit_tiny", "fp32", None, "pass", pretrained=False, reason="identical")
    results.accuracy("vit_tiny", "fp16", 58.3, "pass", pretrained=False)
    wide = {"name": "/layers.3/mlp/MatMul", "dtype": "float32", "macs_share": 0.018, "with_weight": True}
    results.audit("vit_tiny", "fp16", "float16", high_precision=[wide])
    return results


@pytest.fixture
def cpu_study(tmp_path: Path) -> Results:
    """cpu_results, for a test that changes it."""
    return cpu_results(tmp_path / "results")


@pytest.fixture
def gpu_study(tmp_path: Path) -> Results:
    """gpu_results, for a test that changes it."""
    return gpu_results(tmp_path / "results")


@pytest.fixture(scope="session")
def written_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the report on cpu_results, written once, not to be changed."""
    return written(cpu_results(tmp_path_factory.mktemp("cpu")), "fp32/ort_cpu/default")


@pytest.fixture(scope="session")
def written_gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the report on gpu_results, written once, not to be changed."""
    return written(gpu_results(tmp_path_factory.mktemp("gpu")), "fp32/ort_cuda/default")


def written(results: Results, baseline: str) -> Path:
    """Write the report; returns its folder."""
    report.write(results.root, results.study, results.machine, baseline)
    return results.root / "reports" / results.study


@pytest.fixture
def traced(results: Results, captured: Callable[[str], Path]) -> Results:
    """traced_results, for a test that changes it."""
    return traced_results(results, captured)


@pytest.fixture(scope="session")
def written_traced(tmp_path_factory: pytest.TempPathFactory, captured: Callable[[str], Path]) -> Path:
    """The folder of the report on traced_results, written once, not to be changed."""
    return written(traced_results(Results(tmp_path_factory.mktemp("traced")), captured), "fp32/ort_cpu/default")


def traced_results(results: Results, captured: Callable[[str], Path]) -> Results:
    """A study whose two cases were traced."""
    for place, (case, capture) in enumerate(TRACED.items()):
        results.ok(case, 10.0 + place, gpu=True)
        frame = schema.of_case(nsys.read(captured(capture)), results.machine, Case.from_path(case))
        path = results.root / results.machine / "table" / "nsys" / f"{case}.parquet"
        path.parent.mkdir(parents=True)
        frame.to_parquet(path)
    results.refused("vit/nvfp4/tensorrt/default/b1", "needs 10.0")
    results.plan()
    return results
