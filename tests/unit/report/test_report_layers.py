"""What the report says of an engine's layers and of number formats: rows as the readers give them from a capture."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.facts import facts, states
from tests.unit.report.conftest import evidence_of

from inferprof.case import Case
from inferprof.profilers import trt_layers, trt_nodes
from inferprof.report import evidence, figures, html
from inferprof.report.compose import content_of
from inferprof.report.model import Figure, Outline, Report, SectionContent, Table, Text
from inferprof.report.sections import formats, layers
from inferprof.report.txt import render
from inferprof.tables import schema

ENGINE = "vit_tiny/fp16/tensorrt/default/b8"
REGION = "{ForeignNode[b.0.n1.b...(Unnamed Layer* 229) [ElementWise]]}"


@pytest.fixture(scope="module")
def frames(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Our capture of TensorRT 8.5, by both tools."""
    path = tmp_path_factory.mktemp("capture") / "b8.sqlite"
    path.write_bytes(lzma.decompress((repository / "tests/data/nsys/h100_tensorrt_vit2.sqlite.xz").read_bytes()))
    for part in ("graph", "profile"):
        source = repository / f"tests/data/trt_layers/h100_tensorrt_vit2.{part}.json"
        shutil.copy(source, path.with_suffix(f".{part}.json"))
    return {"trt_nodes": trt_nodes.read(path), "trt_layers": trt_layers.read(path.with_suffix(".profile.json"))}


def study(results: Any, frames: dict[str, pd.DataFrame], case: str = ENGINE) -> evidence.Evidence:
    """A case that these tools watched."""
    results.ok(case, 0.4, gpu=True)
    results.plan()
    for tool, frame in frames.items():
        path = results.root / results.machine / "table" / tool / f"{case}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        schema.of_case(frame, results.machine, Case(*case.split("/"))).to_parquet(path)
    return evidence_of(results, None)


def table_of(section: SectionContent, name: str) -> Table:
    return next(block for block in section.blocks if isinstance(block, Table) and block.name == name)


def shown(section: SectionContent, name: str) -> list[list[str]]:
    """What the page has behind the case's columns."""
    table = table_of(section, name)
    return [[row[index].text for index in table.shown if index >= 5] for row in table.rows]


def test_layers_stand_by_the_time_of_their_kernels_with_reformats_flagged(results: Any, frames: Any) -> None:
    section = content_of(layers.build, study(results, frames))
    assert shown(section, "layers") == [
        ["72.9", "227", "179", "{ForeignNode[b.0.n1…229) [ElementWise]]}", ""],
        ["23.3", "72.9", "57.2", "/p/Conv", ""],
        ["2.8", "22.0", "6.95", "Input Tensor 0 to /p/Conv", "reformat"],
        ["0.5", "20.4", "1.24", "Output Tensor 0 to …229) [ElementWise]]}", "reformat"],
        ["0.4", "19.9", "1.01", "[HostToDeviceCopy 0]", ""],
    ]
    flagged = [row[-1].mark for row in table_of(section, "layers").rows]
    assert flagged == [None, None, "warn", "warn", None]


def test_attributed_and_unattributed_shares_are_always_there(results: Any, frames: Any) -> None:
    section = content_of(layers.build, study(results, frames))
    assert shown(section, "layer_shares") == [["245", "100.0", "23.3", "0.0", "3.3"]]


def test_each_layer_opens_into_its_kernels(results: Any, frames: Any) -> None:
    section = content_of(layers.build, study(results, frames))
    outline = next(block for block in section.blocks if isinstance(block, Outline))
    (case,) = outline.entries
    assert (case.text, case.figure) == (ENGINE, "5 layers")
    region, conv = case.inside[:2]
    assert (region.text, region.figure) == (f"{REGION} (Myelin)", "72.9 %")
    assert len(region.inside) == 10
    assert region.inside[0].text.endswith("_fused20_kernel × 2") and region.inside[0].figure == "38.7 µs"
    assert conv.inside[0].text.startswith("/p/Conv (1): sm80_xmma_fprop")
    kernels = table_of(section, "layer_kernels").rows
    assert len(kernels) == 20
    assert [cell.value for cell in kernels[0][5:9]] == ["/p/Conv", "/p/Conv", 1.0, pytest.approx(57.1562)]


def test_the_page_has_what_opens_and_the_text_says_where_it_is(results: Any, frames: Any) -> None:
    report = Report("r", "m", (content_of(layers.build, study(results, frames)),))
    page = html.render(report)
    assert page.count("<details>") == 6
    assert "<summary>/p/Conv (CaskConvolution)" in page and '<summary class="warn">Reformatting' in page
    assert states(render(report), "kernels", "REPORT.html")


def test_without_a_trace_only_the_layers_are_timed(results: Any, frames: Any) -> None:
    section = content_of(layers.build, study(results, {"trt_layers": frames["trt_layers"]}))
    assert [row[:3] for row in shown(section, "layers")][:2] == [["62.7", "227", "–"], ["20.1", "72.9", "–"]]
    assert [facts(text) for text in table_of(section, "layers").footnotes] == [["not", "trt_nodes", "not"]]
    assert [block.name for block in section.blocks if isinstance(block, Table)] == ["layers", "all_layers"]


def test_nodes_of_a_layer_are_named(results: Any, shared: Path) -> None:
    frame = trt_layers.read(shared / "real/trt_json/trt10_trtexec_alexnet_fp16.profile.json")
    section = content_of(layers.build, study(results, {"trt_layers": frame}))
    outline = next(block for block in section.blocks if isinstance(block, Outline))
    first = outline.entries[0].inside[0]
    assert facts(first.text, "gemm") == ["/classifier/classifier_1/Gemm_myl9_2", "gemm", "fp16", "fp32", "fp16"]
    made_of = "made of /classifier/classifier.1/Gemm, /classifier/classifier.2/Relu"
    assert [(entry.text, entry.figure) for entry in first.inside] == [(made_of, "2 ONNX nodes")]


def test_studies_without_engines_have_no_such_section(results: Any) -> None:
    assert content_of(layers.build, study(results, {})).blocks == ()


# --- number formats --------------------------------------------------------------------------------------------


def test_products_ran_as_asked_and_conversions_have_their_cost(results: Any, frames: Any) -> None:
    section = content_of(formats.build, study(results, frames))
    assert shown(section, "formats") == [["100.0", "fp16 100%", "0", "8.19", "0", "3.3"]]


def test_a_format_that_did_not_run_is_marked_and_its_kernels_listed(results: Any, frames: Any) -> None:
    section = content_of(formats.build, study(results, frames, "vit_tiny/fp8/tensorrt/default/b8"))
    (row,) = table_of(section, "formats").rows
    assert (row[6].text, row[6].mark) == ("0.0", "warn")
    wrong = table_of(section, "other_formats").rows
    assert len(wrong) == 8
    assert [cell.text for cell in wrong[0][5:9]] == ["30.1", "fp16", "name", "/p/Conv"]


def test_a_format_of_ones_own_is_not_judged(results: Any, frames: Any) -> None:
    section = content_of(formats.build, study(results, frames, "vit_tiny/mine/tensorrt/default/b8"))
    (row,) = table_of(section, "formats").rows
    assert (row[6].value, row[6].mark) == (None, None)
    assert facts(row[6].missing, "format", "compute") == ["not", "format", "compute", "not"]


def test_counters_of_the_same_case_decide(results: Any, frames: Any) -> None:
    names = frames["trt_nodes"].query("level == 'kernel'")["name"].drop_duplicates()
    rows = pd.DataFrame({"level": "kernel", "name": names, "metric": "tensor_ops_int8", "value": 8.0})
    counted = schema.conform(rows, "ncu")
    section = content_of(formats.build, study(results, {**frames, "ncu": counted}))
    assert shown(section, "formats")[0][:2] == ["0.0", "int8 100%"]


def test_timed_layers_are_enough(results: Any, shared: Path) -> None:
    frame = trt_layers.read(shared / "real/trt_json/trt8_trex_mobilenet_qat.profile.json")
    section = content_of(formats.build, study(results, {"trt_layers": frame}, "vit_tiny/int8/tensorrt/default/b8"))
    assert shown(section, "formats") == [["100.0", "int8 100%", "0", "4.10", "78.0", "17.5"]]


def test_a_study_without_kernels_and_layers_has_no_such_section(results: Any) -> None:
    assert content_of(formats.build, study(results, {})).blocks == ()


# --- the engine's graph ----------------------------------------------------------------------------------------


def test_the_largest_batch_of_each_engine_is_drawn(results: Any, shared: Path, tmp_path: Path) -> None:
    frame = trt_layers.read(shared / "real/trt_json/trt10_trtexec_alexnet_fp16.profile.json")
    study(results, {"trt_layers": frame}, "vit_tiny/fp16/tensorrt/default/b1")
    section = figures.draw(study(results, {"trt_layers": frame}), tmp_path)()
    (graph,) = [block for block in section.blocks if isinstance(block, Figure) and block.title.startswith("Engine")]
    assert graph.title == "Engine: vit_tiny/fp16/tensorrt b8"
    assert (tmp_path / "engine-vit_tiny-fp16-tensorrt.svg").exists()
    assert "/features/features.2/MaxPool  1.0 %" in graph.svg


def test_an_engine_of_more_layers_than_can_be_read_says_so(results: Any, shared: Path, tmp_path: Path) -> None:
    frame = trt_layers.read(shared / "real/trt_json/trt_detr_layer_names_only_exportLayerInfo.json")
    section = figures.draw(study(results, {"trt_layers": frame}), tmp_path)()
    said = [block.text for block in section.blocks if isinstance(block, Text) and block.text.startswith("Engine")]
    assert [facts(text, "layers") for text in said] == [
        ["vit_tiny/fp16/tensorrt", "b8", "not", "840", "layers", "2", "240"]
    ]
