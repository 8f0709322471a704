"""The roofline of a study: from which roofs, how far, and what is missing."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from tests.unit.facts import facts, mentions, states
from tests.unit.report.conftest import evidence_of

from inferprof.case import Case
from inferprof.report import evidence, plot_frame
from inferprof.report.compose import content_of
from inferprof.report.model import SectionContent, Table, Text
from inferprof.report.sections import answer, roofline
from inferprof.tables import schema

CASE = "vit/fp16/ort_cuda/default/b8"
GPU = {"name": "NVIDIA H100 80GB HBM3", "memory_mib": 81559, "sm_count": 132, "used": True}
CEILINGS = {
    "method": "sample",
    "gemm": {
        "fp16": {"flops_per_s": 700e12, "by_size": {"4096": 2e5}},
        "fp32": {"flops_per_s": 50e12, "by_size": {"4096": 2e6}},
        "fp4": {"not_measured": "compute capability 9.0: fp4 needs 10.0"},
    },
    "memory": {"read": {"bytes_per_s": 3.0e12}, "triad": {"bytes_per_s": 2.9e12}},
}


def cost(flops: int = 7 * 10**11, weights: int = 3 * 10**8) -> dict[str, Any]:
    sizes = {"read": 10**6, "written": 10**6, "weights": weights}
    product = {"name": "/fc", "op": "MatMul", "dtype": "float16", "product": True, "flops": flops, **sizes}
    product["sparse"] = False
    magic = {"name": "/magic", "op": "Magic", "dtype": "float16", "product": False, "flops": None}
    return {
        "shape": "b8",
        "inputs": 1000,
        "outputs": 1000,
        "weights": weights,
        "nodes": [product, {**magic, "read": 3 * 10**6, "written": None, "weights": 0}],
    }


def load(results: Any) -> evidence.Evidence:
    results.plan()
    return evidence_of(results, None)


def tables(section: SectionContent) -> dict[str, Table]:
    return {block.name: block for block in section.blocks if isinstance(block, Table)}


def cells(table: Table) -> list[dict[str, Any]]:
    return [{column.key: cell.text for column, cell in zip(table.columns, row, strict=True)} for row in table.rows]


@pytest.fixture
def gpu(results):
    """A results folder of an H100 with one case of 2 ms."""
    results.write(f"{results.machine}/environment.json", {"gpus": [GPU]})
    samples = {"samples_ns": [2e6] * 30, "warmup": 1, "settled": True, "stopped_by": "count", "interval": 0.0}
    boundaries = dict.fromkeys(("device", "call", "end_to_end"), samples)
    results.ok(CASE, 2.0, gpu=True, boundaries=boundaries)
    return results


def test_a_case_is_held_against_the_measured_roof(gpu):
    gpu.write(f"{gpu.machine}/ceilings.json", CEILINGS)
    gpu.write("onnx/vit/fp16.b8.cost.json", cost())
    found = tables(content_of(roofline.build, load(gpu)))
    (row,) = cells(found["roofline"])
    assert {key: row[key] for key in ("gflop", "mb", "flop_per_byte", "roof_ms", "limit", "device_ms")} == {
        "gflop": "700",
        "mb": "300",
        "flop_per_byte": "2,333",
        "roof_ms": "1.00",
        "limit": "compute",
        "device_ms": "2.00",
    }
    assert (row["times_roof"], row["source"], row["uncounted"]) == ("2.00×", "measured", "1")
    assert row["tflop_per_s"] == "350"
    assert mentions(found["roofline"].note, "measured here: fp16, memory.")


def test_without_ceilings_the_datasheet_counts_and_the_report_says_so(gpu):
    gpu.write("onnx/vit/fp16.b8.cost.json", cost(flops=10**9))
    found = tables(content_of(roofline.build, load(gpu)))
    (row,) = cells(found["roofline"])
    assert (row["limit"], row["roof_ms"], row["source"]) == ("memory", "0.0895", "datasheet")
    roofs = {row["what"]: (row["measured"][0], row["datasheet"]) for row in cells(found["roofs"])}
    assert roofs["fp16 TFLOP/s"] == ("–", "989")
    assert roofs["memory GB/s"] == ("–", "3,352")
    assert states(found["roofs"].note, "NVIDIA", "H100", "Tensor", "Core", "GPU", "Architecture")


def test_measured_and_promised_stand_side_by_side(gpu):
    gpu.write(f"{gpu.machine}/ceilings.json", CEILINGS)
    gpu.write("onnx/vit/fp16.b8.cost.json", cost())
    roofs = {row["what"]: row for row in cells(tables(content_of(roofline.build, load(gpu)))["roofs"])}
    assert roofs["fp16 TFLOP/s"] | {"what": ""} == {
        "what": "",
        "measured": "700",
        "datasheet": "989",
        "percent": "71",
    }
    assert (roofs["memory GB/s"]["measured"], roofs["memory GB/s"]["percent"]) == ("3,000", "89")
    assert roofs["fp8 TFLOP/s"]["measured"] == "–"


def test_bytes_that_fit_in_the_l2_are_no_limit_and_it_says_so(gpu):
    gpu.write("onnx/vit/fp16.b8.cost.json", cost(flops=10**9, weights=10**7))
    (row,) = cells(tables(content_of(roofline.build, load(gpu)))["roofline"])
    assert row["limit"] == "L2"


def test_a_case_that_is_faster_than_its_roof_is_called_out(gpu):
    gpu.write("onnx/vit/fp16.b8.cost.json", cost(flops=3 * 10**12))
    section = content_of(roofline.build, load(gpu))
    (row,) = tables(section)["roofline"].rows
    assert [(cell.text, cell.mark) for cell in row if cell.mark] == [("0.660×", "warn")]
    (text,) = (block for block in section.blocks if isinstance(block, Text))
    assert facts(text.text, "compute")[:5] == ["1", "1", "vit/fp16/ort_cuda/default/b8", "kernels", "compute"]


def test_an_unknown_gpu_has_no_roof_but_a_reason(gpu):
    gpu.write(f"{gpu.machine}/environment.json", {"gpus": [{**GPU, "name": "NVIDIA Something New"}]})
    gpu.write("onnx/vit/fp16.b8.cost.json", cost())
    section = content_of(roofline.build, load(gpu))
    table = tables(section)["roofline"]
    assert [facts(text, "bandwidth", "measured") for text in table.footnotes] == [
        ["not", "measured", "GPU", "bandwidth", "measured"]
    ]
    assert cells(table)[0]["gflop"] == "700"
    texts = [block.text for block in section.blocks if isinstance(block, Text)]
    assert [facts(text) for text in texts] == [["none", "GPU"]]


@pytest.mark.parametrize(
    ("name", "memory_mib", "said"),
    [("NVIDIA GeForce RTX 3090", 24_576, True), ("NVIDIA GeForce RTX 5090", 32_607, False)],
)
def test_a_datasheet_that_was_not_checked_twice_is_said_to_be_so(gpu, name: str, memory_mib: int, said: bool):
    environment = {"gpus": [{"name": name, "memory_mib": memory_mib, "used": True}]}
    gpu.write(f"{gpu.machine}/environment.json", environment)
    gpu.write("onnx/vit/fp16.b8.cost.json", cost())
    (note,) = (table.note for key, table in tables(content_of(roofline.build, load(gpu))).items() if key == "roofs")
    assert note.startswith("Datasheet: NVIDIA ")
    assert mentions(note, "not all", "second source") == said


def test_a_graph_that_was_not_counted_names_the_file(gpu):
    table = tables(content_of(roofline.build, load(gpu)))["roofline"]
    assert [facts(text, "measured") for text in table.footnotes] == [
        ["not", "measured", "no", "onnx/vit/fp16.b8.cost.json"]
    ]


def test_every_operator_is_in_a_csv(gpu):
    gpu.write(f"{gpu.machine}/ceilings.json", CEILINGS)
    gpu.write("onnx/vit/fp16.b8.cost.json", cost())
    table = tables(content_of(roofline.build, load(gpu)))["roofline_operators"]
    assert table.csv_only
    rows = cells(table)
    assert [(row["node"], row["operator"], row["kind"], row["limit"]) for row in rows] == [
        ("/fc", "MatMul", "fp16", "compute"),
        ("/magic", "Magic", "fp32", "–"),
    ]
    assert (rows[0]["roof_us"], rows[1]["flop"]) == ("1,000", "–")


def traced(results: Any, tool: str, rows: list[dict[str, Any]]) -> None:
    """Write a table of the case by a tool."""
    frame = schema.of_case(schema.conform(pd.DataFrame(rows), tool), results.machine, Case.from_path(CASE))
    path = results.root / results.machine / "table" / tool / f"{CASE}.parquet"
    path.parent.mkdir(parents=True)
    frame.to_parquet(path)


def test_the_nodes_that_lose_most_and_the_longest_counted_kernels_stand_beside_their_roofs(gpu):
    gpu.write(f"{gpu.machine}/ceilings.json", CEILINGS)
    gpu.write("onnx/vit/fp16.b8.cost.json", cost())
    kernel = {"level": "kernel", "metric": "duration_total", "instances": 1}
    owned = {"name": "gemm", "owner": "CUDAExecutionProvider > MatMul > /fc", "value": 1_500_000.0}
    foreign = {"name": "memcpy", "owner": "CUDAExecutionProvider > Cast > /made_up", "value": 9.0}
    traced(gpu, "ort_nodes", [{**kernel, **owned}, {**kernel, **foreign}])
    counters = {"duration_total": 1.4e6, "dram_bytes_read": 2e8, "dram_bytes_written": 1e8, "tensor_ops_fp16": 7e11}
    launch = {"level": "kernel", "name": "gemm", "launch": 4, "instances": 1}
    traced(gpu, "ncu", [{**launch, "metric": metric, "value": value} for metric, value in counters.items()])
    found = tables(content_of(roofline.build, load(gpu)))
    (node,) = cells(found["node_roofline"])
    assert [node[key] for key in ("lost_us", "us", "roof_us", "times_roof", "limit", "operator", "node")] == [
        *("500", "1,500", "1,000", "1.50×", "compute", "MatMul", "/fc")
    ]
    (kernel_row,) = cells(found["kernel_roofline"])
    assert [kernel_row[key] for key in ("launch", "gflop", "mb", "us", "roof_us", "times_roof", "limit")] == [
        *("4", "700", "300", "1,400", "1,000", "1.40×", "compute")
    ]
    assert len(found["all_node_roofline"].rows) == len(found["all_kernel_roofline"].rows) == 1


def test_the_answer_says_how_far_the_fastest_case_is_from_its_roof(gpu):
    gpu.write(f"{gpu.machine}/ceilings.json", CEILINGS)
    gpu.write("onnx/vit/fp16.b8.cost.json", cost())
    tables = [block for block in content_of(answer.build, load(gpu)).blocks if isinstance(block, Table)]
    fastest = next(table for table in tables if table.name == "fastest")
    assert [row["times_roof"] for row in cells(fastest)] == ["2.00×"]


def test_on_a_cpu_it_says_that_nothing_ran_on_a_gpu(results):
    results.ok("vit/fp32/ort_cpu/default/b8", 1.0)
    section = content_of(roofline.build, load(results))
    assert [block.text for block in section.blocks if isinstance(block, Text)] == [roofline.NO_DEVICE]


def test_the_plots_get_what_each_case_reaches(gpu):
    gpu.write(f"{gpu.machine}/ceilings.json", CEILINGS)
    gpu.write("onnx/vit/fp16.b8.cost.json", cost())
    frame = plot_frame.of(load(gpu))
    assert (frame["peak_flops"][0], frame["bandwidth"][0]) == (pytest.approx(700e12), 3.0e12)
    assert frame["flops"][0] / frame["device_ms"][0] * 1e3 == pytest.approx(350e12)
