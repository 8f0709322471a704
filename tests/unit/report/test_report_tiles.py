"""What the report says of tiles, of better sizes, and of those that were tried."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import facts
from tests.unit.report.conftest import evidence_of

from inferprof.case import Case
from inferprof.profilers import nsys
from inferprof.report.compose import content_of
from inferprof.report.model import SectionContent, Table, Text
from inferprof.report.sections import tiles
from inferprof.tables import schema
from inferprof.tables.limits.tile_advice import NEEDS_TIMELINE

MODEL = "vit_base/fp16/ort_cuda/default"


def section_of(results: Any) -> SectionContent:
    return content_of(tiles.build, evidence_of(results, None))


def named(section: SectionContent, name: str) -> Table:
    return next(block for block in section.blocks if isinstance(block, Table) and block.name == name)


def shown(table: Table) -> list[list[str]]:
    return [[row[index].text for index in table.shown][5:] for row in table.rows]


def product(name: str, m: int, n: int, k: int, count: int = 1) -> dict[str, Any]:
    sizes = {"m": m, "n": n, "k": k, "count": count, "batch_in": "m" if count == 1 else "count"}
    return {
        "name": name,
        "op": "MatMul",
        "dtype": "float16",
        "product": True,
        "gemm": sizes,
        "flops": 2 * m * n * k,
    } | {
        "read": 1,
        "written": 1,
        "weights": 1,
    }


def graph(results: Any, batch: int, layers: int = 12) -> None:
    """The cost of a ViT-B/16 without patches and head."""
    rows = batch * 197
    nodes = [
        one
        for layer in range(layers)
        for one in (
            product(f"{layer}/qkv", rows, 2304, 768),
            product(f"{layer}/qk", 197, 197, 64, batch * 12),
            product(f"{layer}/av", 197, 64, 197, batch * 12),
            product(f"{layer}/proj", rows, 768, 768),
            product(f"{layer}/fc1", rows, 3072, 768),
            product(f"{layer}/fc2", rows, 768, 3072),
        )
    ]
    content = {"shape": f"b{batch}", "inputs": 1, "outputs": 1, "weights": 1, "nodes": nodes}
    results.write(f"onnx/vit_base/fp16.b{batch}.cost.json", content)


@pytest.fixture
def study(results):
    """Batch 8, whose device time is 2.6 ms, and batch 64 with no timeline."""
    results.ok(f"{MODEL}/b8", 2.6, gpu=True)
    results.ok(f"{MODEL}/b64", 20.0, gpu=True)
    results.plan()
    gpu = {"name": "H100", "compute_capability": "9.0", "sm_count": 132, "used": True}
    results.write(f"{results.machine}/environment.json", {"gpus": [gpu]})
    for batch in (8, 64):
        graph(results, batch)
    return results


@pytest.fixture
def traced(study, captured: Callable[[str], Path]):
    frame = nsys.read(captured("h100_ort_cuda_vit"))
    frame = frame.replace({"range": {"host_run": "iteration"}, "name": {"host_run": "iteration"}})
    path = study.root / study.machine / "table" / "nsys" / f"{MODEL}/b8.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    schema.of_case(frame, study.machine, Case.from_path(f"{MODEL}/b8")).to_parquet(path)
    return study


def test_a_case_with_a_timeline_shows_what_its_tiles_use_and_others_are_named(traced):
    section = section_of(traced)
    (row,) = named(section, "tiles").rows
    share = (169.0 + 131.3 + 135.6 + 131.3 + 244.2 + 161.9) / 2600  # µs of 12 launches each, of the device's 2.6 ms
    assert row[1].text == "b8"
    assert float(row[5].value or 0) == pytest.approx(100 * share, abs=1)
    assert row[6].text == "100.0"
    used, padding, last_wave = (float(cell.value or 0) for cell in row[7:])
    assert used < 100 - max(padding, last_wave)
    (text,) = (block.text for block in section.blocks if isinstance(block, Text))
    assert facts(text) == ["1", "2", f"{MODEL}/b64", "not", *facts(NEEDS_TIMELINE)]


def test_suggestions_stand_by_what_they_promise_and_those_that_cannot_be_predicted_last(traced):
    rows = shown(named(section_of(traced), "tile_advice"))
    assert facts(next(row[0] for row in rows if row[3] == "–")) == ["197", "200"]
    assert all(float(row[3]) <= float(row[1]) for row in rows if row[3] != "–")


def test_a_suggestion_that_was_measured_too_is_judged(traced):
    advised = [row[0].split() for row in shown(named(section_of(traced), "tile_advice"))]
    batch = next(int(change[-1]) for change in advised if change[:2] == ["batch", "64"])
    graph(traced, batch)
    traced.ok(f"{MODEL}/b{batch}", 20.0 * batch / 64 * 0.5, gpu=True)
    traced.plan()
    section = section_of(traced)
    (row,) = shown(named(section, "tile_advice_tried"))
    assert row[0] == f"b{batch}"
    assert row[1] == "–"  # b64 has no timeline: nothing was promised
    assert float(row[2]) == pytest.approx(50, abs=1)
    assert row[6] == "undecided"


def test_every_product_is_in_the_csv_with_its_tile(traced):
    table = named(section_of(traced), "products")
    assert table.csv_only
    titles = [column.key for column in table.columns]
    (fc1,) = (row for row in table.rows if row[1].text == "b8" and row[titles.index("n")].value == 3072)
    assert fc1[titles.index("tile")].text == "256x144x64"
    assert fc1[titles.index("efficiency_percent")].value == pytest.approx(100 * 1576 / 1584)


def test_a_study_without_counted_graphs_has_no_section(results):
    results.ok(f"{MODEL}/b8", 2.6, gpu=True)
    results.plan()
    assert section_of(results).blocks == ()
