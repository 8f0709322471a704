"""A small model in every number format: the same bytes twice, honest graphs, accuracy, and an engine for 12.0."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the warnings are ModelOpt's and torch's
pytest.importorskip("modelopt")

from inferprof import precisions, registry  # noqa: E402
from inferprof.case import Shape, Variant  # noqa: E402
from inferprof.documents.engine import EngineLayer  # noqa: E402
from inferprof.model import accuracy, audit, model_spec, onnx_reader, samples  # noqa: E402
from inferprof.plugins import BuildRequest, ConvertRequest  # noqa: E402
from inferprof.tables.nodes import engine_layers  # noqa: E402

DENSE = ["fp32", "fp16", "bf16", "int8", "fp8", "int4", "mxfp8", "nvfp4"]
SPARSE = ["fp16_sparse", "int8_sparse", "fp8_sparse", "nvfp4_sparse"]
FORMATS = [*DENSE, *SPARSE]
BUILT = {
    **{name: name for name in ("fp32", "fp16", "bf16", "int8", "fp8")},
    "nvfp4": "fp4",
    # TensorRT-RTX 1.7.1 takes these back to FP16 in the kernel of the product: they save memory and its bandwidth.
    "int4": "fp16",
    "mxfp8": "fp16",
}
"""Format → what the builder lists that its products read."""
B8 = Shape.parse("b8")
CONVERT_ALL = """
import json, pathlib, sys
from inferprof import precisions, registry
from inferprof.model import export, model_spec
from inferprof.plugins import ConvertRequest
spec, out = model_spec.load(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2])
export.export(spec, out / "exported.onnx")
facts = {}
for name in sys.argv[3:]:
    request = ConvertRequest(out / "exported.onnx", spec, {}, out / f"{name}.onnx")
    facts[name] = precisions.convert(registry.precisions()[name], request)
(out / "facts.json").write_text(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def toy(repository: Path) -> Path:
    return repository / "tests/data/models/toy_block.yaml"


@pytest.fixture(scope="module")
def folders(toy: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The formats, converted by two processes whose sets and dictionaries are hashed differently."""
    made = []
    for seed in ("1", "2"):
        folder = tmp_path_factory.mktemp(f"seed{seed}")
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(repository / "workflow")}
        command = [sys.executable, "-c", CONVERT_ALL, str(toy), str(folder), *FORMATS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout == ""
        made.append(folder)
    return made


def request(toy: Path, folder: Path, name: str) -> ConvertRequest:
    options = registry.precisions()[name].options
    return ConvertRequest(folder / "exported.onnx", model_spec.load(toy), options, folder / f"{name}.onnx")


def facts(folders: list[Path], name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folders[0] / "facts.json").read_text())[name]
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_config_and_seed_give_the_same_bytes(name: str, folders: list[Path]) -> None:
    first, second = ((folder / f"{name}.onnx").read_bytes() for folder in folders)
    assert first == second
    assert facts(folders, name)["not_reproducible"] == []


@pytest.mark.parametrize(
    ("name", "dtype", "left"),
    [
        ("fp32", "float32", 0),
        ("fp16", "float16", 0),
        ("bf16", "bfloat16", 0),
        ("int8", "int8", 3),  # attention's two products, and the head, which ModelOpt finds too small
        ("fp16_sparse", "float16", 0),
        ("int8_sparse", "int8", 3),
        ("int4", "float16", 0),
        ("mxfp8", "float8e4m3fn", 4),  # the convolution, the head, and attention's two products
        ("nvfp4", "float4e2m1", 4),
        ("nvfp4_sparse", "float4e2m1", 4),
    ],
)
def test_the_graph_computes_in_the_format_that_it_claims(
    name: str, dtype: str, left: int, folders: list[Path]
) -> None:
    found = audit.audit(folders[0] / f"{name}.onnx", name, B8)
    assert next(iter(found["macs_share"])) == dtype
    assert len(found["high_precision"]) == left


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"attention": True}, ["/head/Gemm"]),
        ({"exclude": ["/out/.*"]}, ["/MatMul", "/MatMul_1", "/head/Gemm", "/out/MatMul"]),
    ],
    ids=["attention", "exclude"],
)
def test_int8_quantizes_what_its_options_say(
    options: dict[str, Any], left: list[str], toy: Path, folders: list[Path], tmp_path: Path
) -> None:
    exported, spec = folders[0] / "exported.onnx", model_spec.load(toy)
    precisions.convert(
        registry.precisions()["int8"], ConvertRequest(exported, spec, {"samples": 8, **options}, tmp_path / "x.onnx")
    )
    found = audit.audit(tmp_path / "x.onnx", "int8", B8)
    assert sorted(entry["name"] for entry in found["high_precision"]) == left


@pytest.mark.parametrize("name", FORMATS)
def test_inputs_and_outputs_are_those_of_the_fp32_graph(name: str, folders: list[Path]) -> None:
    import onnx

    graphs = [onnx.load(folders[0] / file).graph for file in ("exported.onnx", f"{name}.onnx")]
    interfaces = [
        [(value.name, value.type.tensor_type.elem_type) for value in (*graph.input, *graph.output)]
        for graph in graphs
    ]
    assert interfaces[0] == interfaces[1]


@pytest.mark.parametrize("name", SPARSE)
def test_every_four_weights_of_the_written_graph_have_two_zeros(name: str, folders: list[Path]) -> None:
    rows = audit.audit(folders[0] / f"{name}.onnx", name, B8)["sparse"]
    proof = facts(folders, name)["proof"]
    assert proof == {"products": len(rows), "fours": sum(row["fours"] for row in rows), "broken": 0}
    assert len(rows) == 4
    pairs = [row["name"] for row in rows if "4-bit kernels want zeros in pairs of neighbours" in row["obstacles"]]
    assert pairs == []


@pytest.mark.parametrize("name", ["int8_sparse", "fp8_sparse"])
def test_no_result_of_a_sparse_8_bit_product_is_left_unquantized(name: str, folders: list[Path]) -> None:
    from inferprof.model import sparsity, typed_graph

    graph = typed_graph.analyse(onnx_reader.read(folders[0] / f"{name}.onnx", external=True), {})
    assert sparsity.unquantized_results(graph) == []
    assert facts(folders, name)["results_quantized"] > 0


def test_a_reduction_that_no_block_of_4_bit_weights_fits_is_padded_and_named(folders: list[Path]) -> None:
    assert facts(folders, "int4")["left"] == []
    assert "/head/Gemm" in facts(folders, "int4")["padded"]


def test_layers_that_no_block_fits_are_left_and_named(folders: list[Path]) -> None:
    assert facts(folders, "mxfp8")["left_in_fp16"] == ["model.head"]
    assert facts(folders, "nvfp4")["left_in_fp16"] == ["model.head"]
    assert facts(folders, "nvfp4")["calibration_samples"] == 32


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("fp32", "onnxruntime cpu"),
        ("fp16", "onnxruntime cpu, half-precision results rounded node by node"),
        ("bf16", "onnxruntime cpu, half-precision results rounded node by node"),
        ("int8", "onnxruntime cpu"),
        ("int4", "onnxruntime cpu, half-precision results rounded node by node"),
        ("fp8", "onnxruntime cpu, half-precision results rounded node by node"),
        ("mxfp8", "onnxruntime cpu, half-precision results rounded node by node"),
        ("nvfp4", "onnxruntime cpu, half-precision results rounded node by node"),
    ],
)
def test_accuracy_is_within_the_formats_tolerance(name: str, source: str, toy: Path, folders: list[Path]) -> None:
    precision = registry.precisions()[name]
    found = accuracy.measure(request(toy, folders[0], name), precision, samples.feeds, 32, seed=0)
    assert (found["outcome"], found["samples"]) == ("pass", 32)
    assert found["from"].partition(" (")[0] == source
    assert found["agreement"]["kind"] == "top-1"


def test_fewer_bits_are_less_accurate(toy: Path, folders: list[Path]) -> None:
    names = ["fp16", "bf16", "fp8", "nvfp4"]
    found = [
        accuracy.measure(request(toy, folders[0], name), registry.precisions()[name], samples.feeds, 16, seed=0)
        for name in names
    ]
    distances = [record["outputs"]["output"]["sqnr_db"] for record in found]
    assert distances == sorted(distances, reverse=True)


@pytest.mark.parametrize("capability", [(12, 0), (12, 1)])
@pytest.mark.parametrize("name", FORMATS)
def test_tensorrt_rtx_builds_an_engine_ahead_of_time_with_no_gpu(
    name: str, capability: tuple[int, int], toy: Path, folders: list[Path], tmp_path: Path
) -> None:
    pytest.importorskip("tensorrt_rtx")
    build = registry.backends()["tensorrt_rtx"].build
    assert build is not None
    onnx, out = folders[0] / f"{name}.onnx", tmp_path / "x.engine"
    facts = build(BuildRequest(onnx, model_spec.load(toy), B8, Variant(), out, target=capability))
    assert out.stat().st_size > 10_000
    kernels = engine_layers.of_build(msgspec.convert(facts["layers"], list[EngineLayer]))
    assert BUILT[name.removesuffix("_sparse")] in set(kernels.loc[kernels["matrix"], "dtype"])
