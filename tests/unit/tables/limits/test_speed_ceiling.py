"""How fast a case could be, and what became of such predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.facts import facts
from tests.unit.made_records import node

from inferprof.case import Case
from inferprof.documents import Cost
from inferprof.profilers import nsys
from inferprof.tables import join, records, schema, summary
from inferprof.tables.limits import copies, speed_ceiling
from inferprof.tables.limits.waterfall import NEEDS_TIMELINE, PARTS, of_cases
from inferprof.tables.records import KEY, Options, rows_of
from inferprof.tables.roofs import Roof, Roofs

CASE = ("h100", "vit", "fp16", "ort_cuda", "default", "b8")
GRAPH = ("h100", "vit", "fp16", "ort_cuda", "graph", "b8")
PINNED = ("h100", "vit", "fp16", "ort_cuda", "pinned", "b8")
FP8 = ("h100", "vit", "fp8", "ort_cuda", "default", "b8")
ROOFS = Roofs(
    {"fp16": Roof(100.0, "measured"), "fp8": Roof(200.0, "measured"), "fp32": Roof(10.0, "measured")},
    Roof(1.0, "measured"),
)
OPTIONS: Options = {
    CASE: {},
    GRAPH: {"cuda_graph": True},
    PINNED: {"placement": "pinned"},
    FP8: {},
}


def graph(flops: int | None, read: int, weights: int, written: int, dtype: str = "float16") -> Cost:
    """A graph of one product."""
    product = node(flops=flops, read=read, weights=weights, written=written, dtype=dtype)
    return Cost(inputs=0, outputs=0, weights=weights, nodes=[product])


def case(key: tuple[str, ...], **more: Any) -> dict[str, Any]:
    return {**dict(zip(KEY, key, strict=True)), **more}


def waterfall(**parts: float | None) -> pd.DataFrame:
    ns = {f"{part}_ns": parts.get(part, 0.0) for part in PARTS}
    return pd.DataFrame([case(CASE, total_ns=1000.0, not_measured=None, **ns)])


def profile() -> pd.DataFrame:
    """One iteration: 75 ns in a GEMM and 25 in a GELU."""
    kernel = {"level": "kernel", "range": "iteration", "metric": "duration_total", "instances": 1}
    rows = [
        {**kernel, "name": "sm90_xmma_gemm_f16f16", "value": 75.0},
        {**kernel, "name": "gelu_kernel", "value": 25.0},
        {"level": "range", "name": "iteration", "metric": "duration_total", "value": 200.0, "instances": 1},
        {"level": "range", "name": "iteration", "metric": "kernel_busy", "value": 100.0, "instances": 1, "device": 0},
    ]
    frame = schema.conform(pd.DataFrame(rows), "nsys")
    return frame.assign(**dict(zip(KEY, CASE, strict=True)))


def steps(found: pd.DataFrame) -> dict[str, float | None]:
    return dict(zip(found["step"], found["gain_ns"], strict=True))


def test_each_step_takes_its_part_of_the_waterfall_away() -> None:
    cost = graph(1000, 1, 1, 1)
    parts = waterfall(launch=300.0, copy=200.0, idle=100.0, kernels=400.0)
    found = speed_ceiling.of_cases(parts, profile(), {("vit", "fp16", "b8"): cost}, ROOFS, OPTIONS)
    assert steps(found) == {"launches": 300.0, "copies": 200.0, "gaps": 100.0, "fp8": 0.75 * 400 / 2, "fp4": None}
    assert found["left_ns"].to_list() == [700.0, 500.0, 400.0, 250.0, 250.0]
    assert found["speed_up"].to_list() == [1000 / 700, 2.0, 2.5, 4.0, 4.0]
    assert facts(found["not_known"].iloc[-1], "compute", "measured") == [
        "no",
        "GPU",
        "fp4",
        "no",
        "measured",
        "compute",
        "10.0",
    ]


def test_without_a_timeline_only_the_copies_are_known() -> None:
    found = speed_ceiling.of_cases(
        waterfall(launch=None, idle=None, kernels=None, copy=200.0, execution=800.0), profile().head(0), {}, ROOFS, {}
    )
    assert steps(found) == {"launches": None, "copies": 200.0, "gaps": None, "fp8": None, "fp4": None}
    assert found["not_known"].to_list() == [NEEDS_TIMELINE, None, NEEDS_TIMELINE, *[speed_ceiling.NO_COST] * 2]


def test_a_product_that_memory_bounds_gains_by_narrower_operands_alone() -> None:
    rest, why = speed_ceiling.narrowed(graph(1, 40, 40, 20), ROOFS, "fp8")
    assert (rest, why) == (0.6, None)


def test_products_that_are_narrow_already_gain_nothing() -> None:
    rest, _ = speed_ceiling.narrowed(graph(1000, 1, 1, 1, "float8e4m3fn"), ROOFS, "fp8")
    assert rest == 1.0


def test_products_of_unknown_size_are_not_guessed_at() -> None:
    rest, why = speed_ceiling.narrowed(graph(None, 1, 1, 1), ROOFS, "fp8")
    assert rest is None
    assert facts(why, "product") == ["FLOPs", "product", "not"]


def boundaries(**medians: float) -> pd.DataFrame:
    keys = {"default": CASE, "graph": GRAPH, "pinned": PINNED, "fp8": FP8}
    rows = [
        case(
            keys[name],
            boundary="end_to_end",
            round=round_,
            samples=ns * (1 + 0.001 * np.random.default_rng(round_).standard_normal(200)),
            not_measured=None,
        )
        for name, ns in medians.items()
        for round_ in range(3)
    ]
    return pd.DataFrame(rows)


def compared(options: Options = OPTIONS, **medians: float) -> list[dict[str, Any]]:
    ceilings = pd.DataFrame([case(CASE, step="launches", gain_ns=300.0), case(CASE, step="fp8", gain_ns=150.0)])
    stages = pd.DataFrame([case(CASE, stage_inputs_ms=1e-5, h2d_ms=1e-4)])
    floors = pd.DataFrame([case(CASE, h2d_ms=1e-4, h2d_floor_ms=4e-5, d2h_ms=3e-5, d2h_floor_ms=float("nan"))])
    return rows_of(speed_ceiling.achieved(boundaries(**medians), ceilings, stages, floors, options))


def test_a_graph_is_held_against_what_free_launches_would_gain() -> None:
    (row,) = compared(default=1000.0, graph=750.0)
    assert (row["change"], row["other"], row["predicted_ns"], row["verdict"]) == (
        "graph",
        "fp16/ort_cuda/graph",
        300.0,
        "faster",
    )
    assert row["achieved_ns"] == pytest.approx(250.0, rel=0.01)
    assert row["low_ns"] <= row["achieved_ns"] <= row["high_ns"]


def test_on_an_h100_a_graph_gained_what_its_launches_took_and_a_little_more(repository: Path, captured: Any) -> None:
    data, machine = repository / "tests/data/records", "h100-80gb-hbm3-sm90-93fb0a94"
    found = records.read(data, records.of_model(data, machine, "minilm"))
    before, after = (f"minilm/fp16/ort_cuda/{variant}/b8_s128" for variant in ("default", "graph"))
    measured, stages = records.boundaries(found), join.stage_medians(records.stages(found))
    profile = schema.of_case(nsys.read(captured("h100_ort_cuda_minilm")), machine, Case.from_path(before))
    parts = of_cases(summary.latency(measured), stages, profile)
    options: dict[tuple[Any, ...], dict[str, Any]] = {(machine, *after.split("/")): {"cuda_graph": True}}
    ceilings = speed_ceiling.of_cases(parts, profile, {}, ROOFS, options)
    floors = copies.floors(stages, records.traffic(found), None)
    (row,) = rows_of(speed_ceiling.achieved(measured, ceilings, stages, floors, options))
    assert (row["change"], row["other"]) == ("graph", "fp16/ort_cuda/graph")
    assert row["predicted_ns"] / row["achieved_ns"] == pytest.approx(0.9, abs=0.05)


def test_page_locked_inputs_are_held_against_the_links_floor() -> None:
    (row,) = compared(default=1000.0, pinned=940.0)
    assert row["change"] == "pinned"
    assert row["predicted_ns"] == pytest.approx(60.0)


def test_a_narrower_format_is_held_against_its_step() -> None:
    (row,) = compared(default=1000.0, fp8=1100.0)
    assert (row["change"], row["predicted_ns"], row["verdict"]) == ("fp8", 150.0, "slower")
    assert row["achieved_ns"] < 0


def test_cases_that_differ_in_two_things_are_no_pair() -> None:
    assert compared(graph=700.0, pinned=900.0) == []


def test_a_variant_that_gives_a_default_is_the_one_that_does_not() -> None:
    given = {**OPTIONS, CASE: {"placement": "pageable", "cuda_graph": False}}
    assert [row["change"] for row in compared(given, default=1000.0, graph=750.0, pinned=940.0)] == [
        "graph",
        "pinned",
    ]
