"""What the report says of profiles: rows as the readers of nsys give them from real captures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.facts import facts, mentions, states
from tests.unit.report.conftest import evidence_of

from inferprof.case import Case
from inferprof.profilers import nsys
from inferprof.report import evidence
from inferprof.report.compose import content_of
from inferprof.report.model import SectionContent, Table, Text
from inferprof.report.profiled import Profile
from inferprof.report.sections import kernels, timeline
from inferprof.tables import schema
from inferprof.tables.records import KEY

EAGER = "vit_tiny/fp16/torch_eager/default/b1"
GRAPH = "vit_tiny/fp16/torch_eager/graph/b1"
ORT = "vit_tiny/fp16/ort_cuda/default/b1"


def load(results: Any) -> evidence.Evidence:
    return evidence_of(results, "fp32/ort_cuda/default")


def profile(results: Any, case: str, frame: pd.DataFrame, tool: str = "nsys") -> None:
    """Write a profile of a case, as `inferprof table` does."""
    path = results.root / results.machine / "table" / tool / f"{case}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    schema.of_case(frame.assign(tool=tool), results.machine, Case(*case.split("/"))).to_parquet(path)


def tables_of(section: SectionContent) -> list[Table]:
    return [block for block in section.blocks if isinstance(block, Table)]


def table_of(section: SectionContent, name: str) -> list[list[str]]:
    table = next(table for table in tables_of(section) if table.name == name)
    return [[cell.text for cell in row] for row in table.rows]


def text_of(section: SectionContent) -> str:
    return "\n".join(block.text for block in section.blocks if isinstance(block, Text))


@pytest.fixture
def eager(captured: Callable[[str], Path]) -> pd.DataFrame:
    """Every kernel lies in a range `iteration`, as in the captures of a study; others ran before."""
    return nsys.read(captured("h100_torch_eager"))


@pytest.fixture
def ort(captured: Callable[[str], Path]) -> pd.DataFrame:
    """ONNX Runtime, its ranges renamed to the workload's, with a stage inside."""
    frame = nsys.read(captured("h100_ort_cuda_vit"))
    return frame.replace({"range": {"host_run": "iteration > stage:execute"}, "name": {"host_run": "iteration"}})


@pytest.fixture
def study(results):
    """Three GPU cases of a model at one shape: 1 ms of device time and 1.6 ms end to end."""
    for case in (EAGER, ORT, GRAPH):
        results.ok(case, 1.0, gpu=True)
    results.plan()
    return results


def test_kernels_inside_of_iterations_are_listed_by_their_share(study, eager):
    profile(study, EAGER, eager)
    rows = [row[6:] for row in table_of(content_of(kernels.kernels, load(study)), "kernels")]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("19.5", "25", "at::native::<unnamed>::vectoriz…"),
        ("17.7", "24", "nvjet_sm90_hsh_64x64_64x13_1x4_…"),
        ("14.9", "12", "cudnn_generated_fort_native_sdp…"),
    ]


def total(rows, column: int) -> float:
    return float(sum(row[column].value for row in rows))


def test_the_csv_has_every_kernel_of_an_iteration_by_its_whole_name(study, eager):
    profile(study, EAGER, eager)
    (table,) = (one for one in tables_of(content_of(kernels.kernels, load(study))) if one.name == "all_kernels")
    assert table.csv_only
    assert len(table.rows) == 11
    assert total(table.rows, 6) == pytest.approx(100)
    assert total(table.rows, 7) == 126  # those of an iteration: see test_kernel_compare
    assert max(len(str(row[9].value)) for row in table.rows) > 200


def test_kernel_time_by_class_says_what_no_rule_knows(study, eager):
    odd = eager.assign(name=eager["name"].where(~eager["name"].str.startswith("cudnn_gen"), "xyz"))
    profile(study, EAGER, odd)
    (row,) = table_of(content_of(kernels.kernels, load(study)), "kernel_classes")
    assert row[7:9] == ["gemm 38%, normalisation 19%, elementwise 15%", "14.9"]


def test_a_graph_that_was_not_traced_kernel_by_kernel_is_named(study, eager, captured):
    profile(study, EAGER, eager)
    profile(study, GRAPH, nsys.read(captured("h100_torch_graph_trace")))
    section = content_of(kernels.kernels, load(study))
    assert len(table_of(section, "kernel_classes")) == 1
    assert mentions(text_of(section), "No single kernel", GRAPH)


def test_of_two_tools_that_saw_a_case_the_preferred_one_speaks_of_its_kernels(study, eager):
    profile(study, EAGER, eager, "kineto")
    profile(study, EAGER, eager, "nsys")
    found = load(study)
    assert [row[5] for row in table_of(content_of(kernels.kernels, found), "kernel_classes")] == ["nsys"]
    assert [row[5] for row in table_of(content_of(timeline.build, found), "timeline")] == ["kineto", "nsys"]


def test_an_iteration_is_shares_of_its_duration_and_calls_beside_the_slow_down(study, ort):
    profile(study, ORT, ort)
    found = load(study)
    (entry,) = found.overheads.to_dict("records")
    latency = found.latency.set_index(["backend", "variant", "boundary"])["median"]
    assert entry["profiled_ns"] == 5_042_202.5
    assert entry["slow_down"] == 5_042_202.5 / latency["ort_cuda", "default", "end_to_end"]
    (row,) = table_of(content_of(timeline.build, found), "timeline")
    assert row[5:] == ["nsys", "0", f"{entry['slow_down']:.2f}×", "45.4", "46.9", "0.0", "4.2", "3.5", "261", "2"]


def test_each_device_of_a_capture_has_a_row_of_its_own(study, export):
    made = export()
    made.range("iteration", 0, 1000)
    made.kernel("a", 100, 900, made.call("cudaLaunchKernel", 0, 50), device=0)
    made.kernel("b", 300, 500, made.call("cudaLaunchKernel", 60, 260), device=1)
    profile(study, ORT, nsys.read(made.done()))
    section = content_of(timeline.build, load(study))
    (table,) = (one for one in tables_of(section) if one.name == "timeline")
    assert [table.columns[index].title for index in table.shown][5:9] == ["GPU", "× bare", "busy", "host"]
    # Device 0 waits 100 ns for its launch and has nothing to do for the last 100; device 1 300 and 500.
    assert [[row[6].text, *(cell.text for cell in row[8:13])] for row in table.rows] == [
        ["0", "80.0", "10.0", "0.0", "0.0", "10.0"],
        ["1", "20.0", "30.0", "0.0", "0.0", "50.0"],
    ]
    assert [row[13].text for row in table.rows] == ["1", "1"]


def test_the_only_device_of_a_report_needs_no_column(study, ort):
    profile(study, ORT, ort)
    (table,) = (one for one in tables_of(content_of(timeline.build, load(study))) if one.name == "timeline")
    assert "GPU" not in [table.columns[index].title for index in table.shown]


def test_copies_whose_bytes_are_not_told_have_no_bandwidth(study, ort):
    profile(study, ORT, ort[~ort["metric"].isin(["bytes_total", "bandwidth"])])
    (table,) = (one for one in tables_of(content_of(timeline.build, load(study))) if one.name == "copies")
    assert [[cell.text for cell in row[6:11]] for row in table.rows] == [
        ["HtoD", "pageable", "1", "–", "–"],
        ["DtoH", "pageable", "1", "–", "–"],
    ]
    assert facts(table.footnotes[0], "bytes") == ["not", "not", "bytes", "copy"]


def test_a_slow_down_that_was_not_measured_has_its_reason(results, ort):
    results.failed(ORT, "CUDA out of memory")
    results.plan()
    profile(results, ORT, ort)
    found = load(results)
    (table,) = (one for one in tables_of(content_of(timeline.build, found)) if one.name == "timeline")
    assert [facts(text) for text in table.footnotes] == [["not", "end_to_end", "not", "without"]]
    (classes, *_) = tables_of(content_of(kernels.kernels, found))
    assert states(classes.note, "nsys", "not", "end_to_end", "not", "without")


def test_copies_of_an_iteration_stand_against_the_link(study, ort):
    profile(study, ORT, ort)
    curve = {"gb_per_s": 50.0, "latency_ns": 2000.0, "by_size": {}}
    link = {"pinned": curve, "pageable": curve}
    content = {"method": "sample", "h2d": link, "d2h": link, "d2d": {**curve, "gb_per_s": 3000.0}}
    study.write(f"{study.machine}/bandwidth.json", content)
    # 24,084,480 and 160,000 bytes in 10 iterations
    assert [row[6:] for row in table_of(content_of(timeline.build, load(study)), "copies")] == [
        ["HtoD", "pageable", "1", "2.41", "9.99", "20", "50.0"],
        ["DtoH", "pageable", "1", "0.0160", "8.79", "18", "50.0"],
    ]


def test_without_a_measured_bandwidth_the_copies_say_so(study, ort):
    profile(study, ORT, ort)
    (table,) = (one for one in tables_of(content_of(timeline.build, load(study))) if one.name == "copies")
    assert table.footnotes == (f"not measured: no {study.machine}/bandwidth.json",)
    assert "as long as bare" in table.note


def test_two_runtimes_are_compared_by_class_with_new_and_gone_kernels(study, eager, ort):
    profile(study, EAGER, eager)
    profile(study, ORT, ort)
    section = content_of(kernels.kernel_pairs, load(study))
    assert table_of(section, "kernel_pairs") == [
        ["vit_tiny", "b1", "default", "fp16/ort_cuda", "fp16/torch_eager", "0.247×", "gemm -39%", "11", "21"]
    ]
    by_class = table_of(section, "kernel_pairs_by_class")
    assert by_class[0][5:] == ["gemm", "73", "49", "0.9784", "0.1897", "-0.7887"]
    by_name = table_of(section, "kernel_pairs_by_name")
    assert {row[7] for row in by_name} == {"new", "gone"}


def test_pairs_differ_in_the_format_or_the_runtime_alone_and_start_from_the_reference(study):
    def one(case: str, tool: str = "nsys") -> Profile:
        return Profile(dict(zip(KEY, ["box", *case.split("/")], strict=True)), tool, pd.DataFrame())

    def case(precision: str, backend: str, variant: str = "default", shape: str = "b1") -> str:
        return f"vit/{precision}/{backend}/{variant}/{shape}"

    wanted = [
        case("fp32", "ort_cuda"),
        case("fp16", "ort_cuda"),
        case("fp16", "tensorrt"),
        case("fp16", "torch_eager"),
    ]
    wanted.append(case("fp16", "torch_eager", "fp8"))
    unlike = [case("fp16", "ort_cuda", "graph"), case("fp16", "ort_cuda", shape="b8")]
    profiles = [*(one(name) for name in wanted + unlike), one(case("fp32", "tensorrt"), "kineto")]
    eager, quantized = (("box", *case("fp16", "torch_eager", variant).split("/")) for variant in ("default", "fp8"))
    pairs = kernels.pairs(profiles, {quantized: [eager]})
    assert [tuple("/".join(list(side.case.values())[2:5]) for side in pair) for pair in pairs] == [
        ("fp32/ort_cuda/default", "fp16/ort_cuda/default"),
        ("fp16/ort_cuda/default", "fp16/tensorrt/default"),
        ("fp16/ort_cuda/default", "fp16/torch_eager/default"),
        ("fp16/torch_eager/default", "fp16/torch_eager/fp8"),
    ]


def test_quantized_weights_are_held_against_plain_ones(results, eager):
    for variant, options, times in (("default", {}, 1), ("fp8", {"quantize": "float8_weight_only"}, 3)):
        results.ok(f"vit/fp16/torch_eager/{variant}/b1", 1.0, gpu=True, options=options)
        profile(results, f"vit/fp16/torch_eager/{variant}/b1", eager.assign(value=eager["value"] * times))
    results.plan()
    ((*_, variant, before, after, ratio, _, _, _),) = table_of(
        content_of(kernels.kernel_pairs, load(results)), "kernel_pairs"
    )
    assert (variant, before, after) == ("default", "fp16/torch_eager/default", "fp16/torch_eager/fp8")
    assert ratio == "3.00×"


def test_only_the_pairs_that_changed_most_are_on_the_page(results, eager):
    for batch in range(1, 10):
        for precision, share in (("fp32", 1.0), ("fp16", 1 - batch / 20)):
            case = f"vit/{precision}/ort_cuda/default/b{batch}"
            results.ok(case, 1.0, gpu=True)
            slower = eager["level"].eq("kernel") & eager["metric"].eq("duration_total")
            profile(results, case, eager.assign(value=eager["value"].where(~slower, eager["value"] * share)))
    results.plan()
    (table, *_) = tables_of(content_of(kernels.kernel_pairs, load(results)))
    assert [row[5].text for row in table.page] == [f"{1 - batch / 20:.3f}×" for batch in range(9, 1, -1)]
    assert len(table.rows) == 9
    assert states(table.remark, "1", "more", "csv/kernel_pairs.csv")
