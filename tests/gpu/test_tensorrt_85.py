"""Our TensorRT Session and the TensorRT provider on a real GPU, with the versions that can be had anywhere.

Needs Python 3.10 with tensorrt 8.5.3.1 and onnxruntime-gpu 1.14.1; skipped elsewhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import states

from inferprof import registry, run_request, workload
from inferprof.backends import ort_tensorrt
from inferprof.case import Case, Shape, Variant
from inferprof.measure import iterations, timing
from inferprof.model import model_spec
from inferprof.plugins import BuildRequest, OpenRequest

# Warnings stay warnings: these are old versions of libraries.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
trt = pytest.importorskip("tensorrt")
if not trt.__version__.startswith("8.5."):
    pytest.skip(f"TensorRT {trt.__version__}, not 8.5", allow_module_level=True)

KEPT_ENGINE = "INFERPROF_TENSORRT85_ENGINE"
"""Environment variable: a file that keeps the engine from one run of these tests to the next."""
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def engine(
    convolutions: Path, build_engine: Callable[[Path, Path], None], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The convolutions, built for batches 1 to 8."""
    path = Path(os.environ.get(KEPT_ENGINE) or tmp_path_factory.mktemp("engines") / "convolutions.engine")
    if not path.exists():
        build_engine(convolutions, path)
    return path


def record_of(backend: str, model: Path, artifact: Path, label: str, **changes: Any) -> dict[str, Any]:
    spec = model_spec.load(model)
    request = run_request.RunRequest(
        case=Case(spec.name, "fp32", backend, "v", label),
        artifact=artifact,
        spec=spec,
        variant=Variant("v", {}),
        machine="gpu-test",
        protocol=timing.Protocol(budget_s=0.3),
    )
    return workload.run(replace(request, **changes))


@pytest.mark.parametrize("label", ["b1", "b4", "b8"])
@pytest.mark.parametrize("graph", [False, True])
def test_the_session_agrees_with_onnx_runtime(
    label, graph, convolutions, engine, bare, opening, feeds_of, expected, infer
):
    request: OpenRequest = opening(bare(convolutions), label, engine, cuda_graph=graph)
    feeds = feeds_of(request)
    with registry.backends()["tensorrt"].open(request) as session:
        outputs = infer(session, request.device, feeds, graph)
        assert session.memory()["context_bytes"] >= 0
    np.testing.assert_allclose(
        outputs["y"], expected(convolutions, request, feeds)["y"], rtol=TOLERANCE, atol=TOLERANCE
    )


@pytest.mark.parametrize("options", [{}, {"cuda_graph": True}])
def test_the_record_is_complete(options, convolutions, engine):
    record = record_of("tensorrt", convolutions, engine, "b4", variant=Variant("v", options))
    assert (record["status"], record["reason"]) == ("ok", None)
    assert all(len(entry["samples_ns"]) > 0 for entry in record["boundaries"].values())
    assert all(check["passed"] for check in record["checks"].values())
    assert record["memory"]["runtime"]["context_bytes"] >= 0
    assert record["memory"]["device_bytes"] > 0


def test_a_shape_outside_of_the_profile_is_a_failed_case(convolutions, engine):
    record = record_of("tensorrt", convolutions, engine, "b9")
    assert record["status"] == "failed"
    assert states(record["reason"], "9", "3", "32", "32", "1", "3", "32", "32", "8", "3", "32", "32")


@pytest.mark.parametrize("damage", ["truncated", "another version", "no engine at all"])
def test_an_engine_that_does_not_load_is_a_failed_case_in_tensorrts_words(damage, convolutions, engine, tmp_path):
    content = bytearray(engine.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "another version":
        content[4:24] = bytes(255 - byte for byte in content[4:24])
    else:
        content = bytearray(b"not an engine" * 100)
    (tmp_path / "broken.engine").write_bytes(content)
    record = record_of("tensorrt", convolutions, tmp_path / "broken.engine", "b4")
    assert record["status"] == "failed"
    assert record["reason"].startswith(f"TensorRT {trt.__version__} refuses broken.engine: ")
    assert "no reason given" not in record["reason"]


def test_the_native_profile_holds_layers_and_their_times(convolutions, engine, tmp_path):
    path = tmp_path / "b4.profile.json"
    profiling = run_request.Profiling(iterations=5, native=path)
    assert record_of("tensorrt", convolutions, engine, "b4", profiling=profiling)["status"] == "ok"
    content = json.loads(path.read_text())
    layers = json.loads((tmp_path / "b4.graph.json").read_text())["Layers"]
    # Ten warm-ups and five iterations, of which the first inference does not count.
    assert content[0] == {"count": iterations.WARM_UPS + 5 - 1}
    assert {row["name"] for row in content[1:]} <= {layer["Name"] for layer in layers}
    times = [row["medianMs"] for row in content[1:]]
    assert min(times) >= 0 and sum(times) > 0  # a layer that only renames a tensor takes no time
    # Of the shapes that ran: a dynamic engine tells no format by itself.
    formats = {tensor["Format/Datatype"] for layer in layers for tensor in layer["Inputs"]}
    assert not any("dynamic" in text for text in formats)


@pytest.fixture(scope="module")
def planted(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A graph with one operator that TensorRT lacks, and the archive that our build makes of it: two engines."""
    folder = tmp_path_factory.mktemp("planted")
    model = folder / "planted_fallback.onnx"
    model.write_bytes((repository / "tests/data/models" / model.name).read_bytes())
    spec = model_spec.load(model)
    shape = spec.resolve(Shape.parse("b1"))
    assert shape is not None
    facts = ort_tensorrt.build(BuildRequest(model, spec, shape, Variant("v", {}), folder / "planted.engine"))
    assert facts["engines"] == 2
    return model, folder / "planted.engine"


@pytest.fixture
def staged(planted: tuple[Path, Path], tmp_path: Path) -> Path:
    """The archive as a folder: the graph, and `cache` with its engines."""
    ort_tensorrt.unpack(planted[1], tmp_path / "staged")
    return tmp_path / "staged"


def test_the_tensorrt_provider_runs_its_cached_engines(planted, bare, opening, feeds_of, expected, infer):
    model, archive = planted
    request: OpenRequest = opening(bare(model), "b1", archive)
    feeds = feeds_of(request)
    with registry.backends()["ort_tensorrt"].open(request) as session:
        outputs = infer(session, request.device, feeds)
    np.testing.assert_allclose(outputs["y"], expected(model, request, feeds)["y"], rtol=TOLERANCE, atol=TOLERANCE)


def test_the_tensorrt_provider_fills_its_record(planted):
    model, archive = planted
    record = record_of("ort_tensorrt", model, archive, "b1")
    assert (record["status"], record["reason"]) == ("ok", None)
    assert len(record["boundaries"]["end_to_end"]["samples_ns"]) > 0


@pytest.mark.parametrize("damage", ["of another graph", "cut short", "overwritten"])
def test_a_cache_that_does_not_fit_is_a_failed_case(damage, staged, tmp_path):
    for engine in (staged / "cache").glob("*.engine"):
        content = engine.read_bytes()
        if damage == "of another graph":
            engine.rename(engine.with_name("other" + engine.name))
        else:
            engine.write_bytes(content[: len(content) // 2] if damage == "cut short" else b"x" * len(content))
    ort_tensorrt.pack(staged, tmp_path / "broken.engine")
    record = record_of("ort_tensorrt", staged / "planted_fallback.onnx", tmp_path / "broken.engine", "b1")
    assert record["status"] == "failed"
    assert "engine" in record["reason"]
