"""What the report says of sparse weights: the builder's words, the time of sparse kernels, and the gain."""

from __future__ import annotations

from typing import Any

import pandas as pd
from tests.unit.facts import facts
from tests.unit.report.conftest import evidence_of

from inferprof.case import Case
from inferprof.report.compose import content_of
from inferprof.report.model import Table
from inferprof.report.sections import sparsity
from inferprof.tables import schema

DENSE = "vit_tiny/fp16_sparse/tensorrt/default/b8"
SPARSE = "vit_tiny/fp16_sparse/tensorrt/sparse/b8"
SAID = {"eligible": 39, "picked": 2}


def built(results: Any, case: str, options: dict[str, Any], **facts: Any) -> None:
    results.ok(case, 0.5 if options else 1.0, rounds=3, gpu=True)
    results.write(f"{results.machine}/engine/{case}.build.json", {"options": options, "bytes": 1, **facts})


def table(results: Any) -> Table:
    results.plan()
    section = content_of(sparsity.build, evidence_of(results, None))
    (block,) = section.blocks
    assert isinstance(block, Table)
    return block


def traced(results: Any, case: str) -> None:
    """Two kernels, a quarter of the time in one that is called sparse."""
    rows = [("sm80_xmma_sparse_gemm_f16f16_f16f32_f32", 25.0), ("sm80_xmma_gemm_f16f16_f16f32_f32", 75.0)]
    frame = pd.DataFrame(
        [
            {"level": "kernel", "name": name, "owner": "layer", "instances": 1, "metric": metric, "value": value}
            for name, time in rows
            for metric, value in (("duration_total", time), ("layer_confidence", 1.0))
        ]
    )
    path = results.root / results.machine / "table" / "trt_nodes" / f"{case}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    tidy = schema.conform(frame, "trt_nodes")
    schema.of_case(tidy, results.machine, Case(*case.split("/"))).to_parquet(path)


def test_eligible_picked_time_and_gain_stand_side_by_side(results: Any) -> None:
    built(results, DENSE, {})
    built(results, SPARSE, {"sparsity": True}, sparsity=SAID)
    traced(results, SPARSE)
    (row,) = table(results).rows
    assert [cell.text for cell in row[:8]] == [
        *("vit_tiny", "b8", "fp16_sparse", "tensorrt", "sparse"),
        *("39", "2", "25.0"),
    ]
    assert row[8].text.startswith("2.0") and row[10].text == "faster"
    assert row[11].value == "default"


def test_without_a_trace_or_a_dense_paired_case_the_reason_stands_there(results: Any) -> None:
    built(results, SPARSE, {"sparsity": True, "workspace": 64}, sparsity={"eligible": 3, "picked": None})
    built(results, DENSE, {})
    (row,) = table(results).rows
    assert row[5].text == "3"
    assert [facts(text, "options", "sparsity") for text in [row[place].missing for place in (6, 7, 8)]] == [
        ["not", "not"],
        ["not", "trt_nodes", "not"],
        ["not", "no", "options", "sparsity"],
    ]


def test_studies_without_the_option_have_no_such_section(results: Any) -> None:
    built(results, DENSE, {})
    results.plan()
    found = evidence_of(results, None)
    assert content_of(sparsity.build, found).blocks == ()


def test_what_keeps_products_from_sparse_kernels_is_counted_by_reason_and_listed_by_product(results: Any) -> None:
    built(results, DENSE, {})
    sizes = {"dtype": "float16", "n": 64, "fours": 9, "broken": 0}
    products = [
        {"name": "/a/MatMul", "k": 64, "obstacles": []},
        {"name": "/b/MatMul", "k": 24, "obstacles": ["k: 24 % 32", "24 channels"]},
        {"name": "/c/MatMul", "k": 24, "obstacles": ["k: 24 % 32"]},
    ]
    results.audit("vit_tiny", "fp16_sparse", "float16", sparse=[product | sizes for product in products])
    results.plan()
    reasons, every = content_of(sparsity.build, evidence_of(results, None)).blocks
    assert isinstance(reasons, Table) and isinstance(every, Table)
    assert [[cell.text for cell in row] for row in reasons.rows] == [
        ["vit_tiny", "fp16_sparse", "2", "k: 24 % 32", "/b/MatMul"],
        ["vit_tiny", "fp16_sparse", "1", sparsity.FREE, "/a/MatMul"],
        ["vit_tiny", "fp16_sparse", "1", "24 channels", "/b/MatMul"],
    ]
    assert every.csv_only
    assert [row[2].text for row in every.rows] == ["/a/MatMul", "/b/MatMul", "/c/MatMul"]
    assert [row[4].value for row in every.rows] == [64, 24, 24]
