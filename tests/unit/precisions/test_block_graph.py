"""MXFP8 and NVFP4 of ONNX graphs: what a CPU makes of TensorRT's operators, stored weights, and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("modelopt")

from inferprof import precisions, registry  # noqa: E402
from inferprof.case import Shape, Variant  # noqa: E402
from inferprof.errors import CaseFailed  # noqa: E402
from inferprof.model import accuracy, audit, block_emulation  # noqa: E402
from inferprof.model.model_spec import InputSpec, ModelSpec  # noqa: E402
from inferprof.plugins import BuildRequest, ConvertRequest  # noqa: E402
from inferprof.precisions import block_kernels  # noqa: E402

helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
FORMATS = ["mxfp8", "nvfp4"]
HARD = [0.0, 1e-30, 0.25, 0.75, 1.75, 5.0, 6.0, 448.0, 449.0, -448.5, 2.0**-10, 2.0**9]
"""Ties, edges of ranges, powers of two."""


def samples(*shape: int) -> np.ndarray[Any, Any]:
    """Values over many magnitudes, block by block, with a block of zeros and the hard ones."""
    random = np.random.default_rng(0)
    values = random.normal(size=shape) * np.exp2(random.integers(-12, 6, size=(*shape[:-1], 1)))
    values[0, 0, :32], values[0, 1, : len(HARD)] = 0.0, HARD
    return np.asarray(values.astype(np.float32))


def quantized_and_back(name: str, axis: int, reach: float) -> Any:
    """x → TensorRT's dynamic quantizer and dequantizer along an axis → y."""
    how = {"axis": axis, "block_size": 32 if name == "mxfp8" else 16}
    whole = onnx.numpy_helper.from_array(np.float32(reach / (6 * 448)), "whole")
    if name == "mxfp8":
        nodes = [
            helper.make_node("TRT_MXFP8DynamicQuantize", ["x"], ["q", "s"], domain="trt", output_dtype=17, **how),
            helper.make_node("TRT_MXFP8DequantizeLinear", ["q", "s"], ["y"], domain="trt", output_dtype=1, **how),
        ]
    else:
        nodes = [
            helper.make_node(
                "TRT_FP4DynamicQuantize", ["x", "whole"], ["q", "s"], domain="trt", scale_type=17, **how
            ),
            helper.make_node("DequantizeLinear", ["s", "whole"], ["scale"]),
            helper.make_node("DequantizeLinear", ["q", "scale"], ["y"], **how),
        ]
    values = [helper.make_tensor_value_info(each, FLOAT, ["a", "b", "c"]) for each in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [whole])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("trt", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("name", FORMATS)
def test_a_cpu_computes_what_modelopts_kernels_do(name: str, axis: int) -> None:
    x = samples(2, 64, 96)
    turned = torch.from_numpy(np.ascontiguousarray(np.swapaxes(x, -1, axis)))
    reach = float(np.abs(x).max())
    kernel = block_kernels.mxfp8(turned) if name == "mxfp8" else block_kernels.nvfp4(turned, torch.tensor(reach))
    standard = block_emulation.in_standard_operators(quantized_and_back(name, axis, reach))
    (y,) = accuracy.session(standard).run(None, {"x": x})
    expected = np.swapaxes(kernel.numpy(), -1, axis)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("name", FORMATS)
def test_a_stored_weight_is_what_modelopts_kernels_make_of_it(name: str) -> None:
    weight = samples(2, 64, 96)[1]
    if name == "mxfp8":
        stored, exponents = block_kernels.mxfp8_weight(weight, 32)
        steps, expected = np.exp2(exponents.astype(np.float32) - 127), block_kernels.mxfp8(torch.from_numpy(weight))
    else:
        stored, scales, whole = block_kernels.nvfp4_weight(weight, 16)
        steps = scales.astype(np.float32) * whole
        reach = torch.tensor(float(np.abs(weight).max()))
        expected = block_kernels.nvfp4(torch.from_numpy(weight), reach)
    values = stored.astype(np.float32) * np.repeat(steps, weight.shape[-1] // steps.shape[-1], axis=-1)
    np.testing.assert_array_equal(values, expected.numpy())


HEADS, HEAD, WIDTH = 4, 32, 128


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    """A user's file: x [b, s, 128] → attention of 4 heads → 128 → 40 → 24."""
    random = np.random.default_rng(0)
    weights = {name: random.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5 for name in ("q", "k", "v", "o")}
    weights |= {"narrow": random.normal(size=(WIDTH, 40)) / 11, "last": random.normal(size=(24, 40)) / 6}
    nodes = []

    def node(op: str, inputs: list[str], out: str, **more: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [out], out, **more))
        return out

    for name, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        split = node("Reshape", [node("MatMul", ["x", name], f"{name}/product"), "heads"], f"{name}/heads")
        node("Transpose", [split], f"{name}/turned", perm=perm)
    scores = node("Mul", [node("MatMul", ["q/turned", "k/turned"], "scores"), "root"], "scaled")
    mixed = node("MatMul", [node("Softmax", [scores], "shares"), "v/turned"], "values")
    back = node("Reshape", [node("Transpose", [mixed], "joined", perm=(0, 2, 1, 3)), "whole"], "flat")
    node("MatMul", [node("MatMul", [back, "o"], "o/product"), "narrow"], "narrow/product")
    node("Reshape", ["narrow/product", "rows"], "rows/reshaped")
    node("Gemm", ["rows/reshaped", "last"], "y", transB=1)
    stored = [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    shapes = {"heads": [0, 0, HEADS, HEAD], "whole": [0, 0, WIDTH], "rows": [-1, 40]}
    stored += [onnx.numpy_helper.from_array(np.array(shape, np.int64), name) for name, shape in shapes.items()]
    stored.append(onnx.numpy_helper.from_array(np.float32(HEAD**-0.5), "root"))
    x = helper.make_tensor_value_info("x", FLOAT, ["b", "s", WIDTH])
    y = helper.make_tensor_value_info("y", FLOAT, ["rows", 24])
    graph = helper.make_graph(nodes, "attention", [x], [y], stored)
    path = tmp_path_factory.mktemp("blocks") / "attention.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    inputs = (InputSpec("x", "float32", ("b", "s", WIDTH), data="normal"),)
    return ModelSpec(
        "attention", path.with_suffix(".yaml"), "onnx", inputs, options={"onnx": path.name}, sizes={"s": 16}
    )


def converted(name: str, spec: ModelSpec, folder: Path, **options: Any) -> tuple[dict[str, Any], ConvertRequest]:
    request = ConvertRequest(spec.path.with_suffix(".onnx"), spec, options, folder / f"{name}.onnx")
    return precisions.convert(registry.precisions()[name], request), request


@pytest.mark.filterwarnings("ignore")  # ModelOpt's
@pytest.mark.parametrize("name", FORMATS)
def test_a_users_file_and_attention_are_put_into_blocks_and_what_is_left_says_why(
    name: str, attention: ModelSpec, tmp_path: Path
) -> None:
    facts, request = converted(name, attention, tmp_path, attention=True)
    assert [entry.partition(":")[0] for entry in facts["left_in_fp16"]] == ["values", "y"]
    found = audit.audit(request.out, name, Shape.parse("b2_s16"))
    products = {entry["name"] for entry in found["high_precision"]}
    assert products == {"values", "y"}
    feeds = [{"x": np.random.default_rng(1).normal(size=(2, 16, WIDTH)).astype(np.float32)}]
    (exact,), (rounded,) = (accuracy.run_graph(path, feeds)[0] for path in (request.onnx, request.out))
    error = float(((exact["y"] - rounded["y"]) ** 2).sum() / (exact["y"] ** 2).sum())
    assert {"mxfp8": 20, "nvfp4": 10}[name] < -10 * np.log10(error) < 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMATS)
def test_tensorrt_rtx_builds_what_attention_is_in_blocks_in(name: str, attention: ModelSpec, tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx")
    _, request = converted(name, attention, tmp_path, attention=True)
    build = registry.backends()["tensorrt_rtx"].build
    assert build is not None
    out = tmp_path / "x.engine"
    build(BuildRequest(request.out, attention, Shape.parse("b2_s16"), Variant(), out, target=(12, 0)))
    assert out.stat().st_size > 10_000


def toy(folder: Path) -> ModelSpec:
    """y = x · w, of a reduction of 8."""
    values = [helper.make_tensor_value_info(n, FLOAT, ["b", size]) for n, size in (("x", 8), ("y", 4))]
    weight = onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    product = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    graph = helper.make_graph([product], "toy", values[:1], values[1:], [weight])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "toy.onnx"
    )
    inputs = (InputSpec("x", "float32", ("b", 8), data="normal"),)
    return ModelSpec("toy", folder / "toy.yaml", "onnx", inputs, options={"onnx": "toy.onnx"})


@pytest.mark.filterwarnings("ignore")
def test_a_graph_that_no_block_fits_is_a_failed_conversion_with_the_product(tmp_path: Path) -> None:
    with pytest.raises(CaseFailed) as failed:
        converted("nvfp4", toy(tmp_path), tmp_path)
    assert "product: " in str(failed.value) and "16" in str(failed.value)
