"""What the report says of nodes on the CPU, of partitions and of loops, and of the kernels of nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.facts import facts
from tests.unit.report.conftest import evidence_of

from inferprof.case import Case
from inferprof.profilers import nsys, ort_profile, torch_nodes
from inferprof.report import evidence
from inferprof.report.compose import content_of
from inferprof.report.model import Outline, Report, SectionContent, Table, Text
from inferprof.report.sections import fallback, nodes
from inferprof.report.txt import render
from inferprof.tables import schema

TENSORRT = "planted/fp32/ort_tensorrt/default/b4"
CUDA = "vit_base/fp16/ort_cuda/default/b8"
PARTITION = {
    "by": "TensorRT-RTX 1.7.1.116",
    "dynamic": {"not_measured": "all sizes of the graph are fixed"},
    "static": {"nodes": 9, "taken": 9, "subgraphs": [9], "left": [], "edges": 0, "edge_bytes": 0},
    "looped": ["cumsum"],
}


def load(results: Any) -> evidence.Evidence:
    return evidence_of(results, "fp32/ort_cpu/default")


def watch(results: Any, tool: str, case: str, frame: pd.DataFrame) -> None:
    path = results.root / results.machine / "table" / tool / f"{case}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    schema.of_case(frame, results.machine, Case(*case.split("/"))).to_parquet(path)


def rows_of(section: SectionContent, name: str, first: int = 5) -> list[list[str]]:
    table = next(block for block in section.blocks if isinstance(block, Table) and block.name == name)
    return [[row[i].text for i in table.shown if i >= first] for row in table.rows]


def items_of(section: SectionContent) -> list[str]:
    return [block.text for block in section.blocks if isinstance(block, Text)]


@pytest.fixture(scope="module")
def traced(captured: Callable[[str], Path]) -> pd.DataFrame:
    return nsys.read(captured("h100_ort_tensorrt_ep"))


@pytest.fixture
def study(results: Any, repository: Path, traced: pd.DataFrame) -> Any:
    folder = repository / "tests/data/ort_profile"
    for case in (TENSORRT, CUDA):
        results.ok(case, 1.0, gpu=True)
    results.plan()
    watch(results, "ort_profile", TENSORRT, ort_profile.read(folder / "h100_ort_tensorrt_ep.json.gz"))
    watch(results, "ort_profile", CUDA, ort_profile.read(folder / "h100_ort_cuda_vit.json.gz"))
    watch(results, "nsys", TENSORRT, traced)
    results.write("onnx/planted/fp32.partition.json", PARTITION)
    return results


def test_the_fallback_and_the_worse_loop_beside_it_are_found(study: Any) -> None:
    assert [
        facts(text, "cumsum", "hardmax", "kernel", "planted", "why")
        for text in items_of(content_of(fallback.build, load(study)))
    ] == [
        [
            "planted",
            "fp32/ort_tensorrt/default",
            "b4",
            "hardmax",
            "CPU",
            "2",
            "copies",
            "ONNX",
            "Runtime",
            "not",
            "why",
            "21.2",
            "28.9 µs",
        ],
        [
            "planted",
            "fp32/ort_tensorrt/default",
            "b4",
            "cumsum",
            "8",
            "8",
            "kernels",
            "__myl_bb4_…",
            "1.09 µs",
            "69.9 µs",
            "63%",
            "kernel",
            "458 µs",
            "more",
        ],
    ]


def test_what_onnx_runtime_does_not_tell_the_parser_may(study: Any) -> None:
    left = {"node": "hardmax", "op_type": "Hardmax", "why": "operator", "words": "not among the operators"}
    static = {"nodes": 9, "taken": 8, "subgraphs": [7, 1], "left": [left], "edges": 2, "edge_bytes": 512}
    study.write("onnx/planted/fp32.partition.json", {**PARTITION, "static": static})
    assert rows_of(content_of(fallback.build, load(study)), "fallbacks")[0] == [
        "operator",
        "hardmax",
        "2",
        "21.2",
        "28.9",
    ]


def test_fallbacks_have_their_copies_and_both_bounds_and_those_on_purpose_are_one_row(study: Any) -> None:
    assert rows_of(content_of(fallback.build, load(study)), "fallbacks") == [
        ["not told", "hardmax", "2", "21.2", "28.9"],
        ["on purpose", "61 nodes", "0", "0", "1,070"],
    ]


def test_a_loop_has_the_name_of_the_only_node_that_may_be_it(study: Any) -> None:
    section = content_of(fallback.build, load(study))
    assert rows_of(section, "kernel_loops") == [["cumsum", "8", "64", "1.09", "69.9", "63.4"]]
    study.write("onnx/planted/fp32.partition.json", {**PARTITION, "looped": ["cumsum", "lstm"]})
    assert rows_of(content_of(fallback.build, load(study)), "kernel_loops")[0][0] == "one of cumsum, lstm"


def test_a_partition_says_what_is_left_and_why_at_open_and_at_fixed_sizes(study: Any) -> None:
    left = {"node": "/eye", "op_type": "EyeLike", "why": "dynamic shape", "words": "does not work"}
    dynamic = {"nodes": 9, "taken": 8, "subgraphs": [3, 5], "left": [left], "edges": 2, "edge_bytes": None}
    study.write("onnx/planted/fp32.partition.json", {**PARTITION, "dynamic": dynamic})
    assert rows_of(content_of(fallback.build, load(study)), "partitions", first=0) == [
        ["planted", "fp32", "9", "8 in 2 engines", "9 in 1 engine", "EyeLike: dynamic shape", "cumsum"]
    ]


def test_it_fits_a_page_of_text(study: Any) -> None:
    found = load(study)
    text = render(Report("t", "s", (content_of(fallback.build, found), content_of(nodes.build, found))))
    assert max(map(len, text.splitlines())) <= 100


def test_without_profiles_and_partitions_there_is_no_section(results: Any) -> None:
    results.ok(CUDA, 1.0)
    results.plan()
    assert content_of(fallback.build, load(results)).blocks == ()
    assert content_of(nodes.build, load(results)).blocks == ()


# --- kernels of nodes ------------------------------------------------------------------------------------------


@pytest.fixture
def joined(results: Any) -> Any:
    """Two runs: 8 of 10 µs in a MatMul, 1 in a Softmax, 1 nobody's."""
    kernels: list[tuple[str, str | None, int, int]] = [
        ("gemm", "CUDAExecutionProvider > MatMul > /l/mm", 16_000, 4),
        ("softmax", "CUDAExecutionProvider > Softmax > /l/sm", 2_000, 2),
        ("memset", None, 2_000, 2),
    ]
    rows = [
        {"level": "kernel", "name": n, "owner": p, "metric": "duration_total", "value": v, "instances": i}
        for n, p, v, i in kernels
    ]
    run = {"level": "range", "name": "iteration", "metric": "duration_total", "value": 30_000, "instances": 2}
    results.ok(CUDA, 1.0, gpu=True)
    results.plan()
    watch(results, "ort_nodes", CUDA, schema.conform(pd.DataFrame([*rows, {"owner": np.nan, **run}]), "ort_nodes"))
    return results


def test_the_shares_of_one_node_and_of_nobody_are_always_there(joined: Any) -> None:
    (row,) = rows_of(content_of(nodes.build, load(joined)), "node_shares", first=6)
    assert row == ["0.01000", "nodes", "90.0", "10.0"]


def test_nodes_come_by_kernel_time_and_what_is_nobodys_in_the_csv(joined: Any) -> None:
    section = content_of(nodes.build, load(joined))
    assert rows_of(section, "nodes") == [["80.0", "2", "MatMul", "/l/mm"], ["10.0", "1", "Softmax", "/l/sm"]]
    assert rows_of(section, "all_nodes")[-1] == ["10.0", "1", "nobody's", ""]
    assert rows_of(section, "node_kernels")[0] == ["node", "/l/mm", "gemm", "80.0", "2", "–", "–", "–"]


def test_each_node_opens_into_its_kernels(joined: Any) -> None:
    section = content_of(nodes.build, load(joined))
    (outline,) = (block for block in section.blocks if isinstance(block, Outline))
    (case,) = outline.entries
    assert (case.text, case.figure) == (f"{CUDA} (ort_nodes)", "2 nodes")
    assert [(owner.text, owner.figure) for owner in case.inside] == [("/l/mm", "80.0 %"), ("/l/sm", "10.0 %")]
    assert [(kernel.text, kernel.figure) for kernel in case.inside[0].inside] == [("gemm × 2", "0.008000 ms")]


def test_the_kernels_of_a_node_have_ncus_counters_where_one_of_its_name_was_counted(joined: Any) -> None:
    rows = [
        {"level": "kernel", "name": f"void ns::{name}<float>(float*)", "launch": i, "metric": metric, "value": value}
        for i, name in enumerate(("gemm", "softmax", "softmax"))
        for metric, value in (("pipe_tensor", 42.4), ("dram_throughput", 9.6))
    ]
    watch(joined, "ncu", CUDA, schema.conform(pd.DataFrame(rows).assign(instances=1), "ncu"))
    section = content_of(nodes.build, load(joined))
    kernels = {row[2]: row[5:] for row in rows_of(section, "node_kernels")}
    assert kernels == {"gemm": ["42.40", "–", "9.600"], "softmax": ["–", "–", "–"]}
    (outline,) = (block for block in section.blocks if isinstance(block, Outline))
    assert facts(outline.entries[0].inside[0].inside[0].text, "gemm") == ["gemm", "2", "42 %", "DRAM", "10 %"]


def test_torchs_operators_and_modules_are_owners_too(results: Any, shared: Path) -> None:
    case = "bert/fp16/torch_eager/default/b1"
    results.ok(case, 1.0, gpu=True)
    results.plan()
    frame = torch_nodes.read(shared / "real/kineto/tracelens_mi300_bert_small.json.gz")
    watch(results, "torch_nodes", case, frame)
    section = content_of(nodes.build, load(results))
    assert rows_of(section, "node_shares", first=6) == [
        ["0.3883", "nodes", "100.0", "0.0"],
        ["0.3883", "modules", "100.0", "0.0"],
    ]
    shown = rows_of(section, "nodes")
    assert shown[0] == ["44.8", "26", "", "aten::linear > aten::addmm"]
    assert len(shown) == 10
