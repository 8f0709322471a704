"""`inferprof explain`: files as people have them, an answer each, and a report of them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.facts import facts, mentions, naming, states

from inferprof import cli
from inferprof.errors import UserError
from inferprof.explain import answer, explain, page
from inferprof.explain.foreign import Foreign
from inferprof.explain.parts import IDLE_WORDS, parts_of
from inferprof.readers.kinds import ort

KERNELS = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    "75.0,3000,3,1000.0,1000.0,1000,1000,0.0,gemm\n25.0,1000,1,1000.0,1000.0,1000,1000,0.0,softmax\n"
)
SHOWN = [("gemm", 3000.0), ("softmax", 1000.0)]


def kernels(case: Foreign) -> list[tuple[str, float]]:
    rows = case.rows[case.rows["level"].eq("kernel") & case.rows["metric"].eq("duration_total")]
    return list(zip(rows["name"], rows["value"], strict=True))


def zipped(content: bytes, name: str = "../../kernels.csv") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, content)
    return out.getvalue()


def tarred(content: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo("/etc/kernels.csv")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress, zipped, tarred])
def test_a_packed_file_is_answered_as_the_file_itself(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "any.name"
    path.write_bytes(pack(KERNELS.encode()))
    (case,) = explain([path])
    assert kernels(case) == SHOWN
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_packed_export_is_answered(repository: Path) -> None:
    (case,) = explain([repository / "tests/data/nsys/h100_torch_eager.sqlite.xz"])
    assert case.choice is not None
    assert (case.choice.by, case.choice.count) == ("iteration", 10)
    assert case.verdict.groups[0].findings[0].check == "cuda_graph"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lzma.compress(KERNELS.encode() * 9)[:60], "cut short or damaged"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:9\n", "git lfs pull"),
        (b"ptrt\0\0\0\0engine", "trtexec --loadEngine"),
        (gzip.compress(b"NVIDIA Tegra Profiler Report 1.\n", mtime=0), "nsys export"),
        (b"", "is empty"),
        (b"kernel,ms\n", "not a capture"),
        (b'{"schema": 1, "case": {}}', "inferprof report"),
        (zipped(b"{}", "bundle.json"), "inferprof unbundle"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(
    content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "given"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        explain([path])
    assert str(path) in str(caught.value)
    assert "inferprof-explain-" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_binary_report_is_exported_by_nsys_where_it_is_installed(
    captured: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nsys = tmp_path / "nsys"
    made = captured("h100_torch_eager")
    nsys.write_text(
        f'#!/bin/sh\nfor word; do case $word in --output=*) cp {made} "${{word#--output=}}";; esac; done\n'
    )
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    report = tmp_path / "server.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 2025")
    (case,) = explain([report])
    assert (case.names, case.captures[0].tool) == (["server.nsys-rep"], "nsys")


def test_files_of_different_kinds_are_of_one_program(repository: Path) -> None:
    data = repository / "tests/data"
    files = [data / "nsys/h100_ort_cuda_vit.sqlite.xz", data / "ncu/h100_ort_cuda_vit_raw.csv.gz"]
    (case,) = explain(files, "device_run")
    assert {capture.tool for capture in case.captures} == {"nsys", "ncu"}
    given = {entry.check: entry.verdict for entry in case.answers}
    assert given["bound"] == "found"
    assert given["launch_bound"] == "found"


def test_runs_of_two_runtimes_without_a_gpu_are_answered_each_by_itself(shared: Path) -> None:
    trace = shared / "real/kineto/hta_rank_non_gpu.json.gz"
    profile = shared / "real/ort_profile/excerpt_ort_2024_thread_scheduling_stats.json"
    apart = [parts_of(explain([file])[0]) for file in (trace, profile)]
    assert [parts_of(case) for case in explain([trace, profile])] == apart


def test_a_range_of_a_file_without_ranges_is_refused_in_one_line(shared: Path) -> None:
    profile = shared / "real/ort_profile/excerpt_ort_2024_thread_scheduling_stats.json"
    with pytest.raises(UserError, match=naming("--iteration", "nosuch", "ranges")):
        explain([profile], "nosuch")


def test_several_of_a_kind_are_answered_one_by_one(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(KERNELS)
    cases = explain([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert [case.names for case in cases] == [["a.csv"], ["b.csv"]]


def test_layers_and_their_times_are_joined(repository: Path) -> None:
    folder = repository / "tests/data/trt_layers"
    profile = next(folder.glob("*vit2*.profile.json"))
    (case,) = explain([profile, profile.with_name(profile.name.replace(".profile.", ".graph."))])
    metrics = set(case.rows["metric"])
    assert {"layer_type", "duration_mean"} <= metrics
    assert facts(next(note for note in case.captures[0].notes if note.startswith("opaque")))[:2] == ["1", "5"]


def test_layers_have_shares_of_the_median_of_inferences_that_no_layer_was_timed_in(shared: Path) -> None:
    folder = shared / "real/trt_json"
    files = [folder / f"trt10_trtexec_alexnet_fp16.{name}" for name in ("profile.json", "timing.json.gz")]
    (case,) = explain(files)
    assert case.total is not None and case.total.ns == pytest.approx(495_605, rel=1e-4)
    assert sum(case.captures[0].parts.values()) == pytest.approx(case.total.ns)
    assert mentions(" ".join(answer.render(case).split()), "CaskConvolution", "0.524 ms", "1.06 times the median")
    apart = explain([folder / "trt7_jetson_resnet50_int8_exportProfile_concatenated.json", files[1]])
    assert len(apart) == 2  # 0.5 ms are of no inference whose layers take 7 ms


@pytest.mark.parametrize(
    ("name", "has"),
    [
        *((name, True) for name in ("Conv", "FusedMatMul", "Gemm", "aten::addmm", "aten::mkldnn_convolution")),
        *((name, False) for name in ("GridSample", "QLinearConv", "MatMulInteger", "aten::upsample_bilinear2d")),
    ],
)
def test_int8_is_advised_of_operators_that_have_it(name: str, has: bool) -> None:
    (answered,) = ort.operators(pd.Series({name: 0.9, "Relu": 0.1}), ort.TOOL)
    assert ("int8" in answered.findings[0].advice) == has


def test_of_a_profile_the_longest_operator_is_said_once(shared: Path) -> None:
    (case,) = explain([shared / "real/ort_profile/excerpt_ort_2024_thread_scheduling_stats.json"])
    assert [entry.check for entry in case.answers].count("cpu_operators") == 1


def test_formats_have_no_line_where_nothing_tells_any(tmp_path: Path) -> None:
    layer = {"name": "node_conv2d", "timeMs": 10.0, "averageMs": 1.0, "medianMs": 1.0, "percentage": 100.0}
    (tmp_path / "a.profile.json").write_text(json.dumps([{"count": 10}, layer]))
    (case,) = explain([tmp_path / "a.profile.json"])
    assert "formats" not in [entry.label for entry in answer.entries(case)]


def test_the_range_that_is_asked_for_counts(repository: Path) -> None:
    path = repository / "tests/data/nsys/h100_ort_cuda_vit.sqlite.xz"
    (case,) = explain([path], "device_run")
    assert case.choice is not None and case.choice.by == "device_run"
    with pytest.raises(UserError, match="no range nosuch"):
        explain([path], "nosuch")


def test_the_cause_is_the_same_with_ranges_and_without(repository: Path, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "bare.sqlite"
    path.write_bytes(lzma.decompress((repository / "tests/data/nsys/h100_ort_cuda_vit.sqlite.xz").read_bytes()))
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM NVTX_EVENTS")
    database.close()
    (case,) = explain([path])
    assert case.choice is not None and case.choice.by == "period"
    assert case.verdict.groups[0].resource == "launch"
    (ranged,) = explain([repository / "tests/data/nsys/h100_ort_cuda_vit.sqlite.xz"], "device_run")
    parts, wanted = parts_of(case), parts_of(ranged)
    assert parts is not None and wanted is not None
    waiting = IDLE_WORDS["launch"]
    assert parts[2][waiting] / parts[1] == pytest.approx(wanted[2][waiting] / wanted[1], abs=0.03)
    assert parts[1] == pytest.approx(wanted[1], rel=0.02)


def test_without_the_calls_that_launched_its_work_a_capture_has_no_iterations(
    repository: Path, tmp_path: Path
) -> None:
    import sqlite3

    path = tmp_path / "untied.sqlite"
    path.write_bytes(lzma.decompress((repository / "tests/data/nsys/h100_torch_eager.sqlite.xz").read_bytes()))
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME")
    database.close()
    (case,) = explain([path])
    parts = parts_of(case)
    assert case.choice is not None and case.choice.by is None and parts is not None
    assert parts[0] == "the whole capture"  # not one of its ranges called iteration
    assert parts[2]["kernels"] == 7_460_568  # the sum that SQL gives
    assert any("--trace=cuda" in lack.command for lack in case.lacks)
    assert "--iteration" not in answer.render(case)
    with pytest.raises(UserError, match=naming("--iteration", "iteration", "--trace=cuda,nvtx")):
        explain([path], "iteration")


def test_a_report_has_the_answer_and_the_tables_behind_it(repository: Path, tmp_path: Path) -> None:
    data = repository / "tests/data"
    cases = explain([data / "nsys/h100_torch_eager.sqlite.xz", data / "nsys/h100_torch_node_trace.sqlite.xz"])
    written = page.write(cases, tmp_path / "out")
    text = written.read_text(encoding="utf-8")
    assert written == tmp_path / "out/reports/explain/REPORT.txt"
    assert "h100_torch_eager.sqlite" in text and "unknown" not in text
    assert (written.parent / "REPORT.html").stat().st_size > 10_000
    where = pd.read_csv(written.parent / "csv/where.csv")
    assert where.groupby("case")["percent"].sum().tolist() == pytest.approx([100, 100])
    assert len(list((tmp_path / "out").rglob("*.parquet"))) == 2
    assert max(map(len, text.splitlines())) <= 100
    page.write(cases, tmp_path / "out")  # again, over what is there


def test_the_verb_prints_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(KERNELS)
    assert cli.main(["explain", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "kernels.csv"
    assert len(lines) <= answer.MOST_LINES
    assert cli.main(["explain", str(tmp_path / "nothing")]) == 2


def test_two_reports_of_one_file_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "kernels.csv").write_text(KERNELS)
    cases = explain([tmp_path / "one/kernels.csv", tmp_path / "two/kernels.csv"])
    page.write(cases, tmp_path / "out")
    listed = pd.read_csv(tmp_path / "out/reports/explain/cases.csv")
    assert listed["model"].tolist() == ["one_kernels", "two_kernels"]


def test_a_binary_report_that_nsys_cannot_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys = tmp_path / "nsys"
    nsys.write_text("#!/bin/sh\necho 'report is of a newer version'; exit 3\n")
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    report = tmp_path / "server.qdrep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 1.")
    with pytest.raises(UserError, match=naming("server.qdrep", "newer")):
        explain([report])


def test_the_graph_of_the_model_names_the_nodes_of_kernels(repository: Path) -> None:
    data = repository / "tests/data"
    (case,) = explain([data / "nsys/h100_ort_tensorrt_ep.sqlite.xz"], None, data / "models/planted_fallback.onnx")
    (owned,) = [capture for capture in case.captures if not capture.ran]
    assert [facts(note)[0] for note in owned.notes][1] == "ONNX"
    assert facts(case.graph[0])[:3] == ["planted_fallback.onnx", "float32", "100.0%"]
    assert len(answer.render(case).splitlines()) <= answer.MOST_LINES


def test_layers_of_another_engine_are_said_not_to_fit(repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"Layers": [{"Name": "unheard_of", "LayerType": "gemm", "Inputs": [], "Outputs": []}]}')
    (case,) = explain([repository / "tests/data/nsys/h100_tensorrt_vit2.sqlite.xz", path])
    notes = [note for capture in case.captures for note in capture.notes]
    assert any("do not fit" in note for note in notes)


def test_what_is_refused_is_refused_without_the_reports_libraries(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from inferprof import cli\n"
        "code = cli.main(['explain', sys.argv[1]])\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(code, 'pandas' in sys.modules, used.ru_utime + used.ru_stime)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "nothing")], capture_output=True, text=True, check=True
    )
    code, imported, seconds = done.stdout.split()
    assert (code, imported) == ("2", "False")
    assert float(seconds) < 1  # 0.25 on the machine that it was written on; the limit is of loaded ones


def test_a_graph_that_was_traced_as_a_whole_has_its_say(repository: Path) -> None:
    (case,) = explain([repository / "tests/data/nsys/h100_torch_graph_trace.sqlite.xz"])
    assert case.verdict.groups[0].findings[0].finding.subject == "CUDA graph 1"
    assert "--cuda-graph-trace=node" in answer.render(case)


def test_several_gpus_and_processes_have_their_say(shared: Path) -> None:
    (case,) = explain([shared / "captures/h200x2-tensor-parallel/nsys.sqlite.xz"])
    text = answer.render(case)
    assert states(text, "GPU", "0") and states(text, "GPU", "1")
    assert "2 GPUs · 2 processes" in text


def test_what_another_process_computes_is_a_part_of_its_own(shared: Path) -> None:
    (case,) = explain([shared / "faults/captures/nsys-ranges/two_processes.sqlite"], "infer")
    parts = parts_of(case)
    assert parts is not None
    assert parts[2][IDLE_WORDS["other_process"]] / parts[1] == pytest.approx(0.7)


def test_kernels_of_one_name_are_told_apart_by_the_arguments_of_their_template(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    text = KERNELS.replace("gemm", '"void unary<float, (int)4, OP_Sin<float>>(const float *)"')
    path.write_text(text.replace("softmax", '"void unary<float, (int)4, OP_Cos<float>>(const float *)"'))
    (case,) = explain([path])
    shown = answer.render(case)
    assert "OP_Sin" in shown and "OP_Cos" in shown


def test_what_a_desktop_adds_to_an_archive_is_no_capture(shared: Path, tmp_path: Path) -> None:
    trace = shared / "real/kineto/hta_triton_example.json.gz"
    packed = tmp_path / "a.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(trace, f"mine/{trace.name}")
        archive.writestr(f"__MACOSX/mine/._{trace.name}", b"\0\5\26\7")
        archive.writestr("mine/.DS_Store", b"\0\0\0\1Bud1")
    assert len(explain([packed])) == 1


def test_a_graph_that_is_not_the_one_of_the_profile_is_doubted(tmp_path: Path) -> None:
    named = _product(tmp_path / "named.onnx", "proj", "Gelu")
    other, unnamed = (
        _product(tmp_path / "other.onnx", "head", "Relu"),
        _product(tmp_path / "unnamed.onnx", "", "Relu"),
    )
    for ran in (named, unnamed):
        profile = _profile(ran)
        assert len(explain([profile], model=ran)[0].graph) == 1
        _, doubt = explain([profile], model=other)[0].graph
        assert states(doubt, "none", "2", "nodes", "ran", "other.onnx")


def test_a_graph_that_a_provider_compiled_is_not_doubted(repository: Path, tmp_path: Path) -> None:
    other = _product(tmp_path / "other.onnx", "head", "Relu")
    profile = repository / "tests" / "data" / "ort_profile" / "h100_ort_tensorrt_ep.json.gz"
    assert len(explain([profile], model=other)[0].graph) == 1


def test_a_folder_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming(tmp_path.name, "folder", "capture", "files")):
        explain([tmp_path])


def _product(path: Path, name: str, activation: str) -> Path:
    """A product and an activation behind it; name: of the nodes, with what they are behind it."""
    import onnx
    from onnx import helper

    value = [helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, [8, 8]) for each in "xwy"]
    names = [f"{name}/product", f"{name}/activation"] if name else ["", ""]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], names[0]),
        helper.make_node(activation, ["p"], ["y"], names[1]),
    ]
    graph = helper.make_graph(nodes, "g", value[:2], value[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def _profile(model: Path) -> Path:
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(model.with_suffix(""))
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    for _ in range(3):
        session.run(None, {name: np.ones((8, 8), np.float32) for name in "xw"})
    return Path(session.end_profiling())
