from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import naming

from inferprof.backends import ort
from inferprof.backends.ort_session import create
from inferprof.device import Buffer
from inferprof.errors import CaseFailed
from inferprof.plugins import OpenRequest

pytest.importorskip("onnxruntime")

Array = np.ndarray[Any, Any]
Opening = Callable[..., OpenRequest]
Host = Callable[[Array], Buffer]


def test_the_cpu_gives_the_product(matmul: Path, opening: Opening, host: Host, x: Array, weight: Array) -> None:
    with ort.open_cpu(opening(matmul)) as session:
        session.bind({"x": host(x)})
        session.enqueue()
        (y,) = session.outputs().values()
        np.testing.assert_array_equal(y.array, x @ weight)


def test_outputs_lie_at_fixed_addresses_from_bind_on(matmul: Path, opening: Opening, host: Host, x: Array) -> None:
    with ort.open_cpu(opening(matmul)) as session:
        session.bind({"x": host(x)})
        before = session.outputs()["y"]
        session.enqueue()
        session.bind({"x": host(x)})
        session.enqueue()
        assert session.outputs()["y"].ptr == before.ptr
        assert before.shape == (2, 3)


def test_a_second_array_at_another_address_is_read(matmul: Path, opening: Opening, host: Host, x: Array) -> None:
    with ort.open_cpu(opening(matmul)) as session:
        session.bind({"x": host(x)})
        session.bind({"x": host(np.zeros_like(x))})
        session.enqueue()
        np.testing.assert_array_equal(session.outputs()["y"].array, np.zeros((2, 3)))


def test_an_output_whose_size_only_a_run_tells_is_bound_too(
    small_model: Callable[..., Path], opening: Opening, host: Host, x: Array
) -> None:
    model = small_model([("NonZero", ["x"], ["y"], {})], [("y", "INT64", [2, "found"])])
    with ort.open_cpu(opening(model)) as session:
        session.bind({"x": host(x)})
        session.enqueue()
        np.testing.assert_array_equal(session.outputs()["y"].array, np.nonzero(x))


def test_another_address_of_the_same_shape_costs_no_inference(
    small_model: Callable[..., Path], opening: Opening, host: Host, x: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model([("NonZero", ["x"], ["y"], {})], [("y", "INT64", [2, "found"])])
    with ort.open_cpu(opening(model)) as session:
        inferences: list[Any] = []
        run = session._run

        def counted(options: Any) -> None:
            inferences.append(options)
            run(options)

        monkeypatch.setattr(session, "_run", counted)
        for array in (x, x.copy(), x[:1].copy()):
            session.bind({"x": host(array)})
        assert len(inferences) == 2  # for each shape one, which tells the output's size
        session.enqueue()
        np.testing.assert_array_equal(session.outputs()["y"].array, np.nonzero(x[:1]))


def test_dimensions_without_a_name_are_not_taken_for_one_another(
    tmp_path: Path, opening: Opening, host: Host
) -> None:
    import onnx

    helper, double = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Concat", ["x", "x"], ["y"], axis=1), helper.make_node("Mul", ["y", "s"], ["z"])],
        "unnamed",
        [helper.make_tensor_value_info("x", double, [2, None]), helper.make_tensor_value_info("s", double, [])],
        [helper.make_tensor_value_info("z", double, [2, None])],
    )
    path = tmp_path / "unnamed.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    path.with_suffix(".yaml").write_text(
        "source: onnx\nonnx: unnamed.onnx\ninputs:\n"
        "  - {name: x, dtype: float32, dims: [2, b]}\n  - {name: s, dtype: float32, dims: []}\n"
    )
    with ort.open_cpu(replace(opening(path.with_suffix(".yaml")), artifact=path)) as session:
        session.bind({"x": host(np.ones((2, 3), np.float32)), "s": host(np.array(5, np.float32))})
        session.enqueue()
        np.testing.assert_array_equal(session.outputs()["z"].array, np.full((2, 6), 5))


@pytest.mark.parametrize("declared", [["b"], ["b", "b", "b"], [1, 4], ["seqlen", "b", 4]])
def test_outputs_that_the_file_declares_in_another_shape_are_what_it_gives(
    declared: list[int | str], small_model: Callable[..., Path], opening: Opening, host: Host, x: Array
) -> None:
    model = small_model([("Exp", ["x"], ["y"], {})], [("y", "FLOAT", declared)])
    with ort.open_cpu(opening(model)) as session:
        for array in (x, x.copy(), x[:1].copy()):
            session.bind({"x": host(array)})
            for _ in range(2):
                session.enqueue()
                np.testing.assert_allclose(np.array(session.outputs()["y"].array), np.exp(array), rtol=1e-5)


def test_a_shape_that_the_graph_rejects_is_a_failed_case(matmul: Path, opening: Opening, host: Host) -> None:
    with ort.open_cpu(opening(matmul)) as session:
        session.bind({"x": host(np.zeros((2, 5), np.float32))})
        with pytest.raises(CaseFailed, match=naming("ONNX", "Runtime", "x")):
            session.enqueue()


def test_a_broken_file_is_a_failed_case(matmul: Path, opening: Opening) -> None:
    request = opening(matmul)
    matmul.write_bytes(matmul.read_bytes()[:40])
    with pytest.raises(CaseFailed, match=r"ONNX Runtime: .*small\.onnx failed"), ort.open_cpu(request):
        pass


def test_an_output_that_is_no_tensor_is_a_failed_case_with_what_to_do(
    small_model: Callable[..., Path], opening: Opening, host: Host, x: Array
) -> None:
    import onnx

    model = small_model([("SequenceConstruct", ["x", "x"], ["y"], {})], [("y", "FLOAT", ["b", 4])])
    made = onnx.load(model)
    element = onnx.helper.make_tensor_type_proto(1, ["b", 4])
    made.graph.output[0].type.CopyFrom(onnx.helper.make_sequence_type_proto(element))
    onnx.save(made, model)
    with pytest.raises(CaseFailed, match=naming("y", "seq", "without")), ort.open_cpu(opening(model)) as session:
        session.bind({"x": host(x)})


def test_an_output_that_numpy_has_no_type_for_is_a_failed_case(
    small_model: Callable[..., Path], opening: Opening, host: Host, x: Array
) -> None:
    model = small_model([("Cast", ["x"], ["y"], {"to": 16})], [("y", "BFLOAT16", ["b", 4])])
    with pytest.raises(CaseFailed, match=r"y is a tensor\(bfloat16\)"), ort.open_cpu(opening(model)) as session:
        session.bind({"x": host(x)})


def test_a_session_that_silently_fell_back_is_refused(matmul: Path) -> None:
    import onnxruntime

    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU, so nothing falls back")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with pytest.raises(CaseFailed, match=naming("CUDAExecutionProvider", "CPUExecutionProvider")):
        create(matmul, options, [("CUDAExecutionProvider", {}), ort.CPU])


def test_the_native_profile_holds_the_nodes(
    matmul: Path, opening: Opening, host: Host, x: Array, tmp_path: Path
) -> None:
    path = tmp_path / "profiles" / "ort.json"
    with ort.open_cpu(opening(matmul, native_profile=path)) as session:
        session.bind({"x": host(x)})
        session.enqueue()
    names = {event["name"] for event in json.loads(path.read_text())}
    assert "node_y_kernel_time" in names
    assert [file.name for file in path.parent.iterdir()] == ["ort.json"]


def test_the_cpu_captures_no_graph(matmul: Path, opening: Opening) -> None:
    with ort.open_cpu(opening(matmul)) as session:
        assert session.capture_graph() is False


def test_tf32_is_off_unless_asked_for() -> None:
    class Device:
        stream = 7

    off = {"user_compute_stream": "7", "use_tf32": "0", "enable_cuda_graph": "0"}
    on = {"user_compute_stream": "7", "use_tf32": "1", "enable_cuda_graph": "1"}
    assert ort.cuda_provider(Device(), graph=False, tf32=False) == ("CUDAExecutionProvider", off)  # type: ignore[arg-type]
    assert ort.cuda_provider(Device(), graph=True, tf32=True) == ("CUDAExecutionProvider", on)  # type: ignore[arg-type]
