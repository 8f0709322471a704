"""Formats with a scale per block: what each product loses in them, and mixes of them with others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml
from tests.unit.planted import TOY_INT8, Residual, request

pytest.importorskip("modelopt")

from inferprof import precisions, registry, sensitivity
from inferprof.errors import UserError
from inferprof.model import accuracy
from inferprof.plugins import ConvertRequest
from inferprof.sensitivity import measure

FORMATS = ["mxfp8", "nvfp4"]


@pytest.fixture(autouse=True)
def toy_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    formats = registry.precisions() | {"int8": TOY_INT8}
    monkeypatch.setattr(registry, "precisions", lambda: formats)


def scaled(times: float = 1000) -> Any:
    """Four products, of which one's errors are `times` as large, and attention."""
    graph = Residual(2)
    graph.attention()
    graph.block(name="scaled", scale=times)
    return graph.model()


def converted(name: str, tmp_path: Path, **options: Any) -> tuple[dict[str, Any], Any, ConvertRequest]:
    given = request(scaled(100 if name in FORMATS else 1000), tmp_path)  # AutoCast keeps larger results in float32
    asked = ConvertRequest(given.onnx, given.spec, options, tmp_path / f"{name}.onnx")
    return precisions.convert(registry.precisions()[name], asked), onnx.load(asked.out), asked


@pytest.mark.parametrize("name", FORMATS)
def test_all_products_in_blocks_lose_what_the_converted_graph_loses(name: str, tmp_path: Path) -> None:
    _, _, asked = converted(name, tmp_path, attention=True)
    prepared = sensitivity.prepare(asked, registry.precisions()[name])
    feeds = sensitivity.single_samples(asked.spec, 16, 1)
    switched = measure.Switched(prepared.model, prepared.units, feeds)
    joint = measure.db(float(switched.losses(range(len(prepared.units))).mean()))
    written, plain = (accuracy.joined(accuracy.run_graph(path, feeds)[0])["y"] for path in (asked.out, asked.onnx))
    assert joint == pytest.approx(accuracy.distance(plain, written)["sqnr_db"], abs=0.7)


@pytest.mark.parametrize("name", FORMATS)
def test_the_product_of_the_largest_errors_is_first(name: str, tmp_path: Path) -> None:
    result = sensitivity.analyse(request(scaled(), tmp_path), registry.precisions()[name], 16)
    assert result["units"][0]["name"] == "scaled"
    assert "large results" in result["units"][0]["cause"]
    assert result["evaluations"]["ranking"] <= result["evaluations"]["allowed"]


@pytest.mark.parametrize("others", [["int8"], ["mxfp8"]])
def test_each_product_is_written_in_the_format_that_was_chosen_for_it(others: list[str], tmp_path: Path) -> None:
    formats = ["nvfp4", *others, "fp16"]
    facts, graph, asked = converted("mixed", tmp_path, formats=formats, tolerance=21.0, gpu="B200", samples=16)
    chosen = {name: [*nodes] for name, nodes in facts["chosen"].items()}
    assert {*chosen} == {"nvfp4", *others}
    assert "scaled" not in chosen["nvfp4"]
    ops = Counter(node.op_type for node in graph.graph.node)
    fp4 = [node for node in graph.graph.node if node.name in chosen["nvfp4"]]
    assert ops["TRT_FP4DynamicQuantize"] == len({node.input[0] for node in fp4})
    assert ops["QuantizeLinear"] == 2 * len(chosen.get("int8", ()))
    assert bool(ops["TRT_MXFP8DynamicQuantize"]) == ("mxfp8" in others)
    assert facts["held_out"]["sqnr_db"] == pytest.approx(facts["front"][-1]["sqnr_db"], abs=6)
    (kept,) = yaml.safe_load(asked.out.with_suffix(".yaml").read_text())
    del kept["name"]
    _, same, _ = converted("mixed", tmp_path, **kept)
    assert [*map(str, same.graph.node)] == [*map(str, graph.graph.node)]


def test_blocks_without_half_precision_around_them_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="those in blocks"):
        converted("mixed", tmp_path, formats=["nvfp4", "int8"])
