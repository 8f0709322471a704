"""What is new takes one module: a made-up number format, profiler, GPU and builder option, each as far as the report.

Sections, columns of tables, checks and plots are in test_report_plugins.py.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.report.conftest import Results

from inferprof import cli, config, registry, report
from inferprof.backends import tensorrt_build
from inferprof.case import Variant
from inferprof.machine import peaks
from inferprof.plots import style

MODEL = "vit/{}/ort_cuda/default/b8"
FORMAT = """
from inferprof.plugins import Precision, Tolerance


def convert(request):
    request.out.write_bytes(request.onnx.read_bytes())
    return {"method": "made up", "not_reproducible": []}


MADE_UP = Precision(
    name="made_up",
    title="Made up",
    source="onnx",
    convert=convert,
    tolerance=Tolerance(passes=20.0, warns=10.0, reason="made up"),
    storage="float4e2m1",
    computes="fp4",
    roof="fp4",
    quantized=True,
    colour="#123456",
    order=15,
)
"""
PROFILER = """
import json

import pandas as pd

from inferprof.plugins import Profiler
from inferprof.tables import schema


def read(capture):
    return schema.conform(pd.DataFrame(json.loads(capture.read_text())), "my_tracer")


MY_TRACER = Profiler(
    name="my_tracer",
    suffix=".json",
    refuses=lambda case, machine: None,
    command=lambda argv, out: ["my_tracer", str(out), *argv],
    read=read,
    rank=5,
    traces=True,
)
"""
COUNTER = PROFILER.replace("my_tracer", "my_counter").replace("traces=True", "counts=True")
OPTION = """
from inferprof.allowed import Option, whole
from inferprof.plugins import BuilderOption


def arguments(variant, trt):
    return {"max_aux_streams": variant.whole("aux_streams")} if "aux_streams" in variant.options else {}


OPTION = Option("streams beside the main one", whole(0))
AUX_STREAMS = BuilderOption("aux_streams", OPTION, frozenset({"tensorrt"}), arguments)
"""
KERNEL = "sm100_xmma_gemm_e2m1_e2m1_f32"
Add = Callable[..., None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Add:
    """Loads modules as INFERPROF_PLUGINS does."""

    def use(*texts: str) -> None:
        paths = [tmp_path / f"added_{index}.py" for index in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        monkeypatch.setenv(registry.OUTSIDE, os.pathsep.join(map(str, paths)))

    return use


def trace(tool: str) -> list[dict[str, Any]]:
    """One iteration of 1 ms with a kernel of 0.9 ms."""
    whole = {"level": "range", "name": "iteration", "instances": 1, "device": 0}
    amounts = {
        **{"duration_total": 1e6, "duration_median": 1e6, "gpu_busy": 9e5, "kernel_busy": 9e5},
        **{"gpu_idle": 1e5, "idle_launch": 1e5, "idle_copy": 0.0},
    }
    kernel = {"level": "kernel", "name": KERNEL, "range": "iteration", "instances": 1, "device": 0, "launch": 0}
    counted = {"duration_total": 9e5, "sm_throughput": 90.0, "memory_throughput": 9.0}
    if tool == "my_counter":
        said = {"grid": "8x1x1", "block": "128x1x1", "symbol": KERNEL}
        return [
            *({**kernel, "metric": metric, "value": value} for metric, value in counted.items()),
            *({**kernel, "metric": metric, "text": text} for metric, text in said.items()),
        ]
    return [
        *({**whole, "metric": metric, "value": value} for metric, value in amounts.items()),
        {**kernel, "metric": "duration_total", "value": 9e5},
    ]


def watch(results: Results, tool: str, case: str, rows: list[dict[str, Any]]) -> None:
    """A capture, and its table as `inferprof table` makes it."""
    capture = f"{results.machine}/capture/{tool}/{case}.json"
    results.write(capture, json.dumps(rows))
    out = results.root / results.machine / "table" / tool / f"{case}.parquet"
    out.parent.mkdir(parents=True)
    machine = ("--machine", results.machine)
    assert cli.main(["table", tool, str(results.root / capture), *machine, "--out", str(out)]) == 0


def written(results: Results, name: str) -> list[dict[str, str]]:
    """The rows of a table of the report."""
    folder = report.write(results.root, results.study, results.machine).parent
    with (folder / "csv" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_number_format_is_one_module(add: Add, results: Results, tmp_path: Path) -> None:
    add(FORMAT, PROFILER)
    for precision, ms in (("fp16", 2.0), ("made_up", 1.2)):
        results.ok(MODEL.format(precision), ms, gpu=True)
    results.plan()
    watch(results, "my_tracer", MODEL.format("made_up"), trace("my_tracer"))
    (row,) = written(results, "formats")
    assert (row["precision"], row["ran_in"], float(row["as_asked_percent"])) == ("made_up", "fp4 100%", 100)
    assert config.precisions([{"name": "made_up"}]) == {"made_up": {}}
    assert style.colours(["fp16", "made_up"])["made_up"] == "#123456"
    assert list(registry.precisions())[:3] == ["fp32", "made_up", "fp16"]


def test_a_profiler_that_traces_is_one_module_and_its_rank_says_whether_it_speaks(add: Add, results: Results) -> None:
    add(PROFILER)
    case = MODEL.format("fp16")
    results.ok(case, 2.0, gpu=True)
    results.plan()
    watch(results, "my_tracer", case, trace("my_tracer"))
    (row,) = written(results, "waterfall")
    assert (row["tool"], float(row["kernels_ms"])) == ("my_tracer", 0.9)
    assert registry.tracers() == ("my_tracer", "nsys", "kineto")
    assert registry.timing()[0] == "my_tracer"


def test_a_profiler_that_counts_is_one_module(add: Add, results: Results) -> None:
    add(PROFILER, COUNTER)
    case = MODEL.format("fp16")
    results.ok(case, 2.0, gpu=True)
    results.plan()
    for tool in ("my_tracer", "my_counter"):
        watch(results, tool, case, trace(tool))
    (row,) = written(results, "counters")
    assert (row["kernel"], float(row["sm_throughput_percent"])) == (KERNEL, 90)


def test_the_datasheet_of_a_gpu_is_one_row(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with peaks.FILE.open(encoding="utf-8") as file:
        columns = file.readline().strip().split(",")
    row = dict.fromkeys(columns, "") | {"gpu": "Made Up", "names": "Made Up 9000", "memory_gib": "10", "sms": "5"}
    row |= {"fp16": "100", "fp32": "50", "bandwidth_gb_s": "1000", "title": "a datasheet", "url": "https://x.test"}
    path = tmp_path / "peaks.csv"
    path.write_text(f"{peaks.FILE.read_text(encoding='utf-8')}{','.join(row[name] for name in columns)}\n", "utf-8")
    monkeypatch.setattr(peaks, "FILE", path)
    peaks._rows.cache_clear()
    gpu = {"name": "NVIDIA Made Up 9000", "memory_mib": 10 << 10, "sm_count": 5, "used": True}
    results.write(f"{results.machine}/environment.json", {"gpus": [gpu]})
    node = {"name": "/fc", "op": "MatMul", "dtype": "float16", "product": True, "flops": 10**11, "sparse": False}
    sizes = {"read": 10**6, "written": 10**6, "weights": 10**6}
    cost = {"shape": "b8", "inputs": 10**6, "outputs": 10**6, "weights": 10**6, "nodes": [{**node, **sizes}]}
    results.write("onnx/vit/fp16.b8.cost.json", cost)
    results.ok(MODEL.format("fp16"), 2.0, gpu=True)
    results.plan()
    try:
        (shown,) = written(results, "roofline")
    finally:
        peaks._rows.cache_clear()
    assert (float(shown["roof_ms"]), shown["limit"]) == (1.0, "compute")


def test_an_option_of_tensorrts_builder_is_one_module(add: Add, results: Results) -> None:
    entry = {"name": "streams", "aux_streams": 2}
    add(OPTION)
    variant = config.variants([entry])["streams"]
    assert variant.options == {"aux_streams": 2}
    built = tensorrt_build._options(variant, "tensorrt", SimpleNamespace())
    assert built["max_aux_streams"] == 2
    assert "max_aux_streams" not in tensorrt_build._options(Variant(), "tensorrt", SimpleNamespace())
    assert "aux_streams" in registry.options_of(registry.backends()["tensorrt"])
    assert "aux_streams" not in registry.options_of(registry.backends()["tensorrt_rtx"])
    case = "vit/fp16/tensorrt/streams/b8"
    results.ok(case, 2.0, gpu=True)
    results.plan()
    build = {"status": "ok", "reason": None, "seconds": 41.3, "bytes": 12_345_678, "options": variant.options}
    results.write(f"{results.machine}/engine/{case}.build.json", build)
    (row,) = written(results, "engines")
    assert (row["variant"], row["status"]) == ("streams", "ok")
