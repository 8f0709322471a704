"""`explain A --against B`: what is compared with what, and that no time is lost on the way."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.conftest import Export
from tests.unit.facts import mentions, naming, states

from inferprof import cli
from inferprof.errors import UserError
from inferprof.explain import against, against_answer, one
from inferprof.explain.against import Difference
from inferprof.explain.answer import MOST_LINES, render_entries
from inferprof.explain.parts import IDLE_WORDS
from inferprof.tables import aligned
from inferprof.tables.aligned import Group, Piece

Engine = Sequence[tuple[str, float, Mapping[str, Any]]]
"""Name, ms and what else the inspector says, layer by layer."""


def compare(a: Path | Sequence[Path], b: Path | Sequence[Path], **options: Any) -> Difference:
    first, second = (one([side] if isinstance(side, Path) else side, **options) for side in (a, b))
    difference = against.compare(first, second, options.get("model"))
    changes = [now - was for _, was, now in against.lines(difference)]
    assert sum(changes) == pytest.approx(difference.b.total - difference.a.total, abs=1e-3)
    assert sum(group.change for group in difference.groups) + sum(
        now - was for was, now in difference.rest.values()
    ) == pytest.approx(difference.change, abs=1e-3)
    lines = render_entries(against.title(difference), against_answer.entries(difference)).splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 100
    return difference


def said(difference: Difference, label: str) -> str:
    return " ".join(entry.text for entry in against_answer.entries(difference) if entry.label == label)


def engine(folder: Path, layers: Engine, dims: Sequence[int] = (1, 8), formats: str = "FP16") -> Path:
    """The files of trtexec for an engine; a layer reads what the one before it wrote."""
    folder.mkdir()
    described, times, before = [], [{"count": 10}], {"Name": "input", "Dimensions": dims}
    for name, ms, more in layers:
        words = f"Row major linear {more.get('format', formats)}"
        output = {"Name": f"{name}_out", "Dimensions": dims, "Format/Datatype": words}
        metadata = "\x1e".join(f"[ONNX Layer: {node}]" for node in more.get("nodes", ()))
        described.append(
            {
                "Name": name,
                "LayerType": more.get("kind", "CaskConvolution"),
                "Inputs": [{"Format/Datatype": words, **before}],
                "Outputs": [output],
                "Origin": more.get("origin", ""),
                "Metadata": metadata,
            }
        )
        times.append({"name": name, "timeMs": 10 * ms, "averageMs": ms, "medianMs": ms, "percentage": 1.0})  # type: ignore[dict-item]
        before = output
    (folder / "e.graph.json").write_text(json.dumps({"Layers": described}))
    path = folder / "e.profile.json"
    path.write_text(json.dumps(times))
    return path


def together(difference: Difference) -> list[tuple[list[str], list[str], str | None]]:
    return [([p.name for p in g.a], [p.name for p in g.b], g.how) for g in difference.groups]


FP16: Engine = [
    ("Reformatting CopyNode for Input Tensor 0 to /a/Conv", 0.1, {"kind": "Reformat", "origin": "REFORMAT"}),
    ("/a/Conv + /a/Relu", 1.0, {"nodes": ["/a/Conv", "/a/Relu"]}),
    ("/b/Conv", 2.0, {"nodes": ["/b/Conv"]}),
    ("/b/Relu", 0.5, {"nodes": ["/b/Relu"]}),
    ("/c/Conv", 3.0, {"nodes": ["/c/Conv"]}),
]
INT8: Engine = [
    ("/a/QuantizeLinear", 0.2, {"kind": "Reformat", "origin": "QDQ", "nodes": ["/a/QuantizeLinear"]}),
    ("/a/w + /a/Conv + /a/Relu", 0.6, {"nodes": ["/a/DequantizeLinear", "/a/Conv", "/a/Relu"], "format": "Int8"}),
    ("/b/w + /b/Conv + /b/Relu", 1.0, {"nodes": ["/b/Conv", "/b/Relu"], "format": "Int8"}),
    ("Reformatting CopyNode for Input Tensor 0 to /c/Conv", 0.3, {"kind": "Reformat", "origin": "REFORMAT"}),
    ("/c/Conv", 3.1, {"nodes": ["/c/Conv"]}),
]


def test_engines_of_two_formats_are_aligned_by_the_nodes_that_their_layers_share(tmp_path: Path) -> None:
    difference = compare(engine(tmp_path / "a", FP16), engine(tmp_path / "b", INT8))
    assert [entry for entry in together(difference) if entry[2]] == [
        (["/a/Conv + /a/Relu"], ["/a/w + /a/Conv + /a/Relu"], "node"),
        (["/b/Conv", "/b/Relu"], ["/b/w + /b/Conv + /b/Relu"], "node"),
        (["/c/Conv"], ["/c/Conv"], "node"),
    ]
    assert difference.change == pytest.approx(-1.4e6)
    formats = said(difference, "formats")
    assert states(formats, "2")
    assert "fp16 → int8" in formats
    assert "1 in A alone" in said(difference, "reformats")
    assert "2 in B alone" in said(difference, "reformats")
    assert aligned.share(difference.groups) == 1


def test_numbers_of_nodes_of_two_exports_are_not_taken_for_one_another(tmp_path: Path) -> None:
    plain: Engine = [(f"Conv_{n}", 1.0 + n, {}) for n in (0, 3, 5, 8)]
    quantized: Engine = [
        (f"w{n} + QuantizeLinear_{n - 1} + Conv_{n}", 1.0 + n, {"format": "Int8"}) for n in (3, 8, 13, 18)
    ]
    difference = compare(engine(tmp_path / "a", plain), engine(tmp_path / "b", quantized))
    assert [(a[0], b[0].rpartition(" ")[2], how) for a, b, how in together(difference)] == [
        ("Conv_0", "Conv_3", "kind"),
        ("Conv_3", "Conv_8", "kind"),
        ("Conv_5", "Conv_13", "kind"),
        ("Conv_8", "Conv_18", "kind"),
    ]


def test_a_region_is_aligned_by_the_nodes_between_its_ends(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    names = ["/a/Conv", "/b/Relu", "/c/Relu", "/d/Conv"]
    values = ["x", "h0", "h1", "h2", "y"]
    nodes = [
        onnx.helper.make_node(
            "Conv" if "Conv" in name else "Relu",
            [values[at], *(["w"] * ("Conv" in name))],
            [values[at + 1]],
            name=name,
        )
        for at, name in enumerate(names)
    ]
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "chain",
        [onnx.helper.make_tensor_value_info(name, float32, [1, 1, 1, 1]) for name in ("x", "w")],
        [onnx.helper.make_tensor_value_info("y", float32, [1, 1, 1, 1])],
    )
    model = tmp_path / "chain.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), model)
    a = engine(tmp_path / "a", [("{ForeignNode[/a/Conv.../d/Conv]}", 4.0, {"kind": "Myelin"})])
    b = engine(tmp_path / "b", [(name, 1.0, {"nodes": [name]}) for name in names])
    assert together(compare(a, b, model=model)) == [(["{ForeignNode[/a/Conv.../d/Conv]}"], names, "node")]
    assert together(compare(a, b))[0] == (["{ForeignNode[/a/Conv.../d/Conv]}"], ["/a/Conv", "/d/Conv"], "node")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ([("/x/Gemm", 1.0, {"kind": "gemm", "nodes": ["/x/Gemm"]})], ("two", "models")),
        (FP16, ("1x8", "4x8")),
    ],
)
def test_what_is_of_two_works_is_refused_in_one_line(other: Engine, message: tuple[str, ...], tmp_path: Path) -> None:
    dims = (4, 8) if other is FP16 else (1, 8)
    with pytest.raises(UserError, match=naming(*message)) as caught:
        compare(engine(tmp_path / "a", FP16), engine(tmp_path / "b", other, dims))
    assert "\n" not in str(caught.value)


def test_eager_against_graph_is_launches(repository: Path, tmp_path: Path) -> None:
    data = repository / "tests/data/nsys"
    difference = compare(data / "h100_torch_eager.sqlite.xz", data / "h100_torch_node_trace.sqlite.xz")
    was, now = difference.rest[IDLE_WORDS["launch"]]
    assert (was, now) == pytest.approx((7792401.0 - 167054.9, 87734.9 - 694.9))
    assert difference.change == pytest.approx(656791.0 - 8391923.0)
    assert aligned.share(difference.groups) == 1
    assert {group.how for group in difference.groups} == {"name"}
    assert difference.settings == {"CUDA graph": ("no", "yes")}
    labels = [entry.label for entry in against_answer.entries(difference)]
    assert labels.index("settings") < labels.index("difference") < labels.index("verdict")


def test_a_graph_that_was_traced_as_a_whole_is_all_the_kernels(repository: Path) -> None:
    data = repository / "tests/data/nsys"
    difference = compare(data / "h100_torch_eager.sqlite.xz", data / "h100_torch_graph_trace.sqlite.xz")
    (group,) = difference.groups
    assert (group.how, len(group.b)) == ("whole", 1)
    assert group.ns[1] == pytest.approx(543032.1)
    assert "CUDA graphs traced" in difference.settings


def test_two_formats_of_the_tensorrt_85_bundle_are_aligned(repository: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(repository / "studies/reference/h200/tensorrt85.zip") as bundle:
        names = [
            next(
                n
                for n in bundle.namelist()
                if n.endswith(f"nsys/bert_tiny_opset16/{p}/tensorrt/default/b1_s128.parquet")
            )
            for p in ("fp32", "fp16")
        ]
        files = [Path(bundle.extract(name, tmp_path)) for name in names]
    difference = compare(*files)
    assert aligned.share(difference.groups) >= 0.95
    assert "fp32 → fp16" in said(difference, "formats")
    assert difference.settings["precision"] == ("fp32", "fp16")


def log(version: str, clock: str, graph: str, throughput: float, compute: float) -> str:
    return f"""&&&& RUNNING TensorRT.trtexec [TensorRT v{version}] # trtexec --onnx=m.onnx
[I] === Inference Options ===
[I] Input inference shape: x=4x1x28x28
[I] Data transfers: Enabled
[I] CUDA Graph: {graph}
[I] === Device Information ===
[I] Selected Device: NVIDIA H100 PCIe
[I] {clock}Compute Clock Rate: 1.755 GHz
[I] === Performance summary ===
[I] Throughput: {throughput} qps
[I] GPU Compute Time: min = {compute} ms, max = {compute} ms, mean = {compute} ms, median = {compute} ms
&&&& PASSED TensorRT.trtexec [TensorRT v{version}] # trtexec --onnx=m.onnx
"""


def test_settings_of_two_logs_come_before_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "8.log").write_text(log("8601", "", "Enabled", 200, 4.9))
    (tmp_path / "10.log").write_text(log("101601", "Application ", "Disabled", 100, 8.0))
    difference = compare(tmp_path / "8.log", tmp_path / "10.log")
    assert difference.settings == {"TensorRT": ("8.6.1", "10.16.1"), "CUDA Graph": ("Enabled", "Disabled")}
    assert {name: now - was for name, (was, now) in difference.rest.items()} == pytest.approx(
        {"kernels": 3.1e6, "waiting": 1.9e6}
    )
    assert difference.change == pytest.approx(5e6)
    assert states(said(difference, "verdict"), "B", "slower", "5 ms")
    assert "one model" not in said(difference, "verdict")  # --onnx=m.onnx in both


def test_logs_of_two_files_do_not_tell_that_both_are_of_one_model(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(log("8601", "", "Enabled", 200, 4.9))
    (tmp_path / "b.log").write_text(log("8601", "", "Enabled", 100, 8.0).replace("m.onnx", "another.onnx"))
    assert "one model" in said(compare(tmp_path / "a.log", tmp_path / "b.log"), "verdict")


def test_a_capture_against_itself_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(log("8601", "", "Enabled", 200, 4.9))
    assert "twice" in said(compare(tmp_path / "a.log", tmp_path / "a.log"), "verdict")


def test_logs_of_two_batches_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(log("8601", "", "Enabled", 200, 4.9))
    (tmp_path / "b.log").write_text(log("8601", "", "Enabled", 200, 4.9).replace("4x1x28x28", "8x1x28x28"))
    assert cli.main(["explain", str(tmp_path / "a.log"), "--against", str(tmp_path / "b.log")]) == 2


def test_what_layers_add_up_to_is_held_against_an_inference(tmp_path: Path) -> None:
    sides = []
    for name, layers, qps in (("a", FP16, 200.0), ("b", INT8, 250.0)):
        profile = engine(tmp_path / name, layers)
        (tmp_path / f"{name}.log").write_text(log("8601", "", "Enabled", qps, 1e3 / qps))
        sides.append([profile, tmp_path / f"{name}.log"])
    difference = compare(*sides)
    assert (difference.a.end_to_end, difference.b.end_to_end) == pytest.approx((5e6, 4e6))
    assert [words in said(difference, "residual") for words in ("+1.6 ms", "+1.2 ms", "−0.4 ms")] == [True] * 3


def test_launches_that_were_counted_are_compared_one_by_one(repository: Path) -> None:
    data = repository / "tests/data/ncu"
    difference = compare(data / "h100_ort_cuda_vit_raw.csv.gz", data / "h100_ort_cuda_vit_details.csv.gz")
    assert len(difference.groups) == 8
    assert all(len(group.a) == len(group.b) == 1 for group in difference.groups)
    assert states(said(difference, "verdict"), "no")


def test_sums_of_several_numbers_of_launches_have_no_faster_side(repository: Path) -> None:
    data = repository / "tests/data/nsys"
    names = [f"h100_torch_{kind}_cuda_gpu_kern_sum.csv" for kind in ("eager", "node_trace")]
    difference = compare(*(data / name for name in names))
    verdict = said(difference, "verdict")
    assert mentions(verdict, "1,891", "2,271", "3.95", "3.87")
    assert not mentions(verdict, "slower") and not mentions(verdict, "faster")


def test_ranges_inside_of_an_iteration_are_compared_each_with_its_own(
    export: Callable[..., Export], tmp_path: Path
) -> None:
    def made(name: str, attention: Sequence[str]) -> Path:
        build = export(name=name)
        for number in range(6):
            begin = 10_000 * number
            build.range("iteration", begin, begin + 9_000)
            build.range("attention", begin + 100, begin + 4_000)
            build.range("mlp", begin + 4_100, begin + 8_000)
            for at, kernel in enumerate(attention):
                start = begin + 200 + 500 * at
                build.kernel(
                    kernel, start + 100, start + 400, build.call("cudaLaunchKernel_v7000", start, start + 50)
                )
            start = begin + 5_000
            build.kernel("gemm", start + 100, start + 900, build.call("cudaLaunchKernel_v7000", start, start + 50))
        return build.done()

    difference = compare(made("a.sqlite", ["gemm", "softmax", "gemm_2"]), made("b.sqlite", ["flash_fwd_kernel"]))
    assert [(g.how, len(g.a), len(g.b), (*g.a, *g.b)[0].place, g.ns) for g in difference.groups] == [
        ("place", 3, 1, "attention", (900, 300)),
        ("name", 1, 1, "mlp", (800, 800)),
    ]


def test_traces_of_two_tools_are_refused(repository: Path) -> None:
    data = repository / "tests/data"
    with pytest.raises(UserError, match=naming("nsys", "kineto")):
        compare(data / "nsys/h100_ort_cuda_vit.sqlite.xz", data / "kineto/h100_ort_cuda_vit.json.gz")


def test_a_trace_and_an_engine_tell_nothing_in_common(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("capture", "both")):
        compare(repository / "tests/data/nsys/h100_torch_eager.sqlite.xz", engine(tmp_path / "a", FP16))


def test_the_report_lists_every_group_and_they_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = engine(tmp_path / "a", FP16), engine(tmp_path / "b", INT8)
    out = tmp_path / "out"
    assert cli.main(["explain", str(a), "--against", str(b), "--out", str(out)]) == 0
    table = pd.read_csv(out / "reports/explain/csv/difference.csv")
    assert table["change_ms"].sum() == pytest.approx(-1.4)
    assert capsys.readouterr().out.startswith("a/e.profile.json against b/e.profile.json")


def pieces(*named: tuple[str, str, float]) -> list[Piece]:
    return [Piece(name, ns, kind) for name, kind, ns in named]


def test_pieces_between_the_same_neighbours_do_the_same_work() -> None:
    a = pieces(("p", "gemm", 50), ("n1", "reduction", 2), ("n2", "elementwise", 3), ("q", "gemm", 50))
    b = pieces(("p", "gemm", 40), ("fused", "normalisation", 4), ("q", "gemm", 40))
    groups = aligned.align(a, b)
    assert [(len(g.a), len(g.b), g.how, g.change) for g in groups] == [
        (1, 1, "name", -10),
        (2, 1, "position", -1),
        (1, 1, "name", -10),
    ]


def test_more_pieces_than_are_put_in_order_are_summed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned, "MOST_IN_ORDER", 3)
    a = pieces(*[("p", "gemm", 1.0)] * 4)
    groups = aligned.align(a, pieces(("p", "gemm", 2.0)))
    assert [group.ns for group in groups] == [(4.0, 2.0)]
    assert isinstance(groups[0], Group)


def kineto(path: Path, kernels: Mapping[str, Sequence[tuple[str, int]]]) -> Path:
    """A trace of five iterations of operators, each with its kernels and their lengths in µs."""
    common = {"ph": "X", "pid": 7, "tid": 7}
    events: list[dict[str, Any]] = []
    for number in range(5):
        begin = at = 1_000 * number
        for operator, launched in kernels.items():
            events.append({**common, "cat": "cpu_op", "name": operator, "ts": at, "dur": 100 * len(launched)})
            for kernel, us in launched:
                ids = {"correlation": len(events)}
                call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 10, "dur": 5, "args": ids}
                gpu = {"device": 0, "stream": 7, **ids}
                events.append({**common, **call})
                events.append({**common, "cat": "kernel", "name": kernel, "ts": at + 30, "dur": us, "args": gpu})
                at += 100
        events.append({**common, "cat": "user_annotation", "name": "iteration", "ts": begin, "dur": 900})
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_traces_of_torch_are_compared_by_operator(tmp_path: Path) -> None:
    plain = kineto(tmp_path / "a.json", {"aten::mm": [("gemm_x", 40)], "aten::gelu": [("mul_k", 10), ("erf_k", 20)]})
    fused = kineto(tmp_path / "b.json", {"aten::mm": [("gemm_x", 30)], "aten::gelu": [("fused_k", 12)]})
    difference = compare(plain, fused)
    assert [((*g.a, *g.b)[0].place, len(g.a), len(g.b), g.ns) for g in difference.groups] == [
        ("aten::gelu", 2, 1, (30_000, 12_000)),
        ("aten::mm", 1, 1, (40_000, 30_000)),
    ]


def on_cpu(path: Path, forwards: int, us: int, step: str = "") -> Path:
    """A trace without a GPU of so many forwards of two operators, and a range around each."""
    common = {"ph": "X", "pid": 7, "tid": 7, "cat": "cpu_op"}
    begins = [1_000 * number for number in range(forwards)]
    events = [{**common, "name": "aten::conv2d", "ts": at, "dur": us} for at in begins]
    events += [{**common, "name": "aten::relu", "ts": at + 500, "dur": 10} for at in begins]
    if step:
        ranges = [
            {"name": f"{step}#{number}" if step == "ProfilerStep" else step, "ts": at, "dur": 600}
            for number, at in enumerate(begins)
        ]
        events += [{**common, **own, "cat": "user_annotation"} for own in ranges]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_captures_of_several_numbers_of_forwards_have_no_faster_side(tmp_path: Path) -> None:
    difference = compare(on_cpu(tmp_path / "a.json", 6, 90), on_cpu(tmp_path / "b.json", 5, 90))
    verdict = said(difference, "verdict")
    assert mentions(verdict, "12", "10")
    assert not mentions(verdict, "slower") and not mentions(verdict, "faster")
    assert mentions(said(difference, "a call"), "0.09 ms")
    slower = compare(on_cpu(tmp_path / "a.json", 6, 90), on_cpu(tmp_path / "b.json", 6, 190))
    assert states(said(slower, "verdict"), "B", "slower", "0.6 ms")


def test_steps_of_a_trace_without_a_gpu_are_compared_each_with_one(tmp_path: Path) -> None:
    a, b = on_cpu(tmp_path / "a.json", 6, 90, "ProfilerStep"), on_cpu(tmp_path / "b.json", 5, 190, "ProfilerStep")
    difference = compare(a, b)
    assert (difference.a.total, difference.b.total) == (600_000, 600_000)
    assert [*difference.rest["aten::conv2d"]] == [90_000, 190_000]
    verdict = said(compare(a, on_cpu(tmp_path / "c.json", 5, 190)), "verdict")  # one of them has no steps
    assert mentions(verdict, "12", "10")
    assert not mentions(verdict, "slower") and not mentions(verdict, "faster")


def test_a_range_around_each_forward_is_an_iteration_and_another_name_is_refused(tmp_path: Path) -> None:
    trace = on_cpu(tmp_path / "a.json", 6, 90, "infer")
    (step,) = one([trace]).captures[0].steps
    assert mentions(step, "6", "0.6 ms", "infer")
    with pytest.raises(UserError, match=naming("nosuch", "infer")) as caught:
        one([trace], iteration="nosuch")
    assert "\n" not in str(caught.value)
