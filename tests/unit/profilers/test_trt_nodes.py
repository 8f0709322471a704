"""nsys and TensorRT's layers of one process: the command, and the table of both files."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path

import onnx
import pytest
from tests.unit.columns import earlier
from tests.unit.facts import facts, naming

from inferprof.case import Case
from inferprof.errors import UserError
from inferprof.machine.hardware import Machine
from inferprof.profilers import capturing, trt_nodes
from inferprof.tables import schema
from inferprof.tables.nodes import attribution, trt_kernels
from inferprof.tables.nodes.trt_layers import layers_of
from inferprof.tables.trace.kernel_compare import of_iterations

CASE = Case("vit", "fp16", "tensorrt", "default", "b8")


@pytest.fixture
def capture(repository: Path, tmp_path: Path) -> Path:
    """Our capture of TensorRT 8.5, as a capture of this profiler lies."""
    path = tmp_path / "b8.sqlite"
    path.write_bytes(lzma.decompress((repository / "tests/data/nsys/h100_tensorrt_vit2.sqlite.xz").read_bytes()))
    shutil.copy(repository / "tests/data/trt_layers/h100_tensorrt_vit2.graph.json", tmp_path / "b8.graph.json")
    return path


def test_the_run_is_watched_by_nsys_and_told_to_describe_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "executable", lambda name, product: name)
    argv = trt_nodes.command(["inferprof", "run"], Path("c/b8.sqlite"))
    assert argv[:2] == ["nsys", "profile"]
    assert argv[-4:] == ["inferprof", "run", "--native-profile", "c/b8.profile.json"]


def test_ranges_and_owners_are_apart_and_iterations_are_told_also_of_a_table_of_before(capture: Path) -> None:
    frame = trt_nodes.read(capture)
    kernels = frame[(frame["level"] == "kernel") & (frame["metric"] == "duration_total")]
    assert kernels["range"].notna().all()
    table = capture.with_suffix(".parquet")
    earlier(frame).to_parquet(table)
    before = schema.read_table(table)
    assert before.loc[before["level"] == "kernel", "range"].isna().all()
    assert of_iterations(before)["owner"].tolist() == of_iterations(frame)["owner"].tolist()


def test_the_table_has_layers_and_kernels_with_their_owners(capture: Path) -> None:
    frame = trt_nodes.read(capture)
    assert set(frame["tool"]) == {"trt_nodes"}
    assert len(layers_of(frame)) == 5
    conv = frame[(frame["owner"] == "/p/Conv > /p/Conv") & (frame["metric"] == "duration_total")]
    assert conv[["level", "instances", "value"]].to_numpy().tolist() == [["kernel", 10, 571_562.0]]
    shares = attribution.shares(trt_kernels.attributed(frame))
    assert shares["attributed_ns"].to_dict() == {"layer": 2_451_209, "op": 571_562}


def test_copies_have_no_confidence(capture: Path) -> None:
    frame = trt_nodes.read(capture)
    assert set(frame.loc[frame["metric"] == "layer_confidence", "level"]) == {"kernel"}
    assert (frame["level"] == "memcpy").any()


def test_without_layers_the_ranges_of_the_trace_tell_them(capture: Path) -> None:
    with_layers = trt_kernels.attributed(trt_nodes.read(capture))
    capture.with_name("b8.graph.json").unlink()
    frame = trt_nodes.read(capture)
    assert layers_of(frame) == ()
    assert trt_kernels.attributed(frame).equals(with_layers)


def test_the_models_onnx_beside_the_trace_tells_the_nodes_of_a_region(capture: Path) -> None:
    names = ("softmax", "next")
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"], "/p/Conv"),
        *(
            onnx.helper.make_node("Softmax", [before], [name], name)
            for before, name in zip(("c", *names), names, strict=False)
        ),
    ]
    fed = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 1, 1]) for name in ("x", "w")]
    graph = onnx.helper.make_graph(nodes, "g", fed, [])
    onnx.save(onnx.helper.make_model(graph), capture.with_suffix(".onnx"))
    owned = attribution.by_owner(trt_kernels.attributed(trt_nodes.read(capture)), "op", at_least=0.8)
    assert list(zip(owned["owner"].fillna("nobody's"), owned["instances"], strict=True)) == [
        ("nobody's", 240),
        ("/p/Conv", 10),
        ("softmax", 10),
        ("next", 10),
    ]


def test_layers_of_another_engine_beside_the_trace_are_refused(capture: Path) -> None:
    capture.with_name("b8.graph.json").write_text(json.dumps({"Layers": ["Conv_0 + Relu_1", "MaxPool_2"]}))
    with pytest.raises(UserError, match=naming("4 of the 4 layers", "not", "the 2")):
        trt_nodes.read(capture)


def test_another_file_is_refused_with_the_tool_that_reads_it(capture: Path) -> None:
    with pytest.raises(UserError, match=naming("inferprof table trt_layers")):
        trt_nodes.read(capture.with_name("b8.graph.json"))


def test_what_either_tool_lacks_is_the_reason() -> None:
    machine = Machine(gpu=None)
    other = Case("vit", "fp16", "ort_cuda", "default", "b8")
    assert facts(trt_nodes.TRT_NODES.refuses(other, machine)) == ["trt_nodes", "ort_cuda", "no"]
    assert facts(trt_nodes.TRT_NODES.refuses(CASE, machine)) == ["trt_nodes", "no", "GPU"]
