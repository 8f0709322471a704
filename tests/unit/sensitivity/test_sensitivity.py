"""Which node loses the accuracy: planted faults are found first, with their causes, in a bounded number of passes."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from scipy.stats import spearmanr
from tests.unit.planted import TOY_INT8, WIDTH, Residual, quantized, request

from inferprof import documents, sensitivity
from inferprof.errors import CaseFailed, UserError
from inferprof.model import accuracy
from inferprof.plugins import Precision
from inferprof.precisions.fp16 import FP16
from inferprof.precisions.int4 import INT4
from inferprof.precisions.int8 import INT8
from inferprof.precisions.mxfp8 import MXFP8
from inferprof.precisions.nvfp4 import NVFP4
from inferprof.sensitivity import measure, shares, switches


def analysed(model: Any, precision: Precision, tmp_path: Path) -> dict[str, Any]:
    """The document, as it is written."""
    result = sensitivity.analyse(request(model, tmp_path), precision, 16)
    documents.decode(json.dumps(result).encode(), "sensitivity")
    return result


def test_a_layer_scaled_by_1000_is_found_first_in_half_precision_with_the_value_that_overflows(
    tmp_path: Path,
) -> None:
    graph = Residual(3)
    graph.block(name="scaled", scale=1000 * 100)
    graph.block()
    result = analysed(graph.model(), FP16, tmp_path)
    first = result["units"][0]
    assert first["overflow"]
    assert "overflow" in first["cause"]
    reached = re.search(r"reaches ([\d,]+), over", first["cause"])
    assert reached is not None
    assert int(reached[1].replace(",", "")) > 65504
    assert first["name"] == "scaled"


def test_a_layer_scaled_by_1000_is_found_first_in_int8_since_its_errors_outweigh_the_others(tmp_path: Path) -> None:
    graph = Residual(3)
    graph.block(name="scaled", scale=1000)
    result = analysed(graph.model(), TOY_INT8, tmp_path)
    assert result["units"][0]["name"] == "scaled"
    assert "large" in result["units"][0]["cause"]


def test_a_layer_with_an_outlier_channel_is_found_first_with_the_channel(tmp_path: Path) -> None:
    graph = Residual(3)
    gain = np.ones(WIDTH)
    gain[5] = 300
    stretched = graph.node("Mul", graph.last, graph.constant(gain))
    weight = graph.weights[graph.weight(0.3)] / gain[:, None]
    product = graph.node("MatMul", stretched, graph.constant(weight), name="outlier")
    graph.last = graph.node("Add", graph.last, product)
    graph.block()
    result = analysed(graph.model(), TOY_INT8, tmp_path)
    first = result["units"][0]
    assert first["name"] == "outlier"
    assert "channel 5 " in first["cause"]


def test_a_normalization_in_pieces_is_found_first_as_such(tmp_path: Path) -> None:
    graph = Residual(3)
    large = graph.node("Mul", graph.last, graph.constant(400))
    mean = graph.node("ReduceMean", large, axes=[-1])
    centred = graph.node("Sub", large, mean)
    square = graph.node("Pow", centred, graph.constant(2), name="square")
    variance = graph.node("Add", graph.node("ReduceMean", square, axes=[-1]), graph.constant(1e-5))
    graph.last = graph.node("Div", centred, graph.node("Sqrt", variance))
    graph.block()
    first = analysed(graph.model(), FP16, tmp_path)["units"][0]
    assert first["name"] == "square"
    assert first["cause"].startswith("normalization in pieces")
    assert "overflow" in first["cause"]


def test_scores_of_attention_that_overflow_are_found_first_with_their_value(tmp_path: Path) -> None:
    graph = Residual(2)
    graph.attention(gain=300)
    graph.block()
    first = analysed(graph.model(), FP16, tmp_path)["units"][0]
    assert first["name"] == "scores"
    assert first["overflow"]
    assert first["cause"].startswith("overflow: the result")


def test_a_product_whose_weight_is_too_small_for_half_precision_is_found_first(tmp_path: Path) -> None:
    graph = Residual(2)
    tiny = graph.node("MatMul", graph.last, graph.weight(1e-7), name="tiny")
    larger = graph.node("Mul", tiny, graph.constant(1e4))
    graph.last = graph.node("Add", graph.last, graph.node("Mul", larger, graph.constant(1e3)))
    graph.block()
    units = analysed(graph.model(), FP16, tmp_path)["units"]
    assert units[0]["name"] == "tiny"
    assert units[0]["cause"].startswith("underflow: ")
    assert sum("underflow" in (unit["cause"] or "") for unit in units) == 2  # and the Mul that reads it


def test_shares_of_which_most_round_to_0_are_found_first_as_the_range_of_a_softmax(tmp_path: Path) -> None:
    graph = Residual(2)
    shares = graph.node("Softmax", graph.node("Mul", graph.last, graph.constant(8)), axis=-1)
    product = graph.node("MatMul", shares, graph.weight(60), name="values")
    graph.last = graph.node("Add", graph.last, product)
    graph.block()
    first = analysed(graph.model(), TOY_INT8, tmp_path)["units"][0]
    assert first["name"] == "values"
    assert first["cause"].startswith("softmax range: ")


def test_an_outlier_channel_of_an_image_is_found_first(tmp_path: Path) -> None:
    graph = Residual(1)
    image = graph.node("Reshape", graph.last, graph.integers([0, 4, 4, 8]))
    gain = np.ones((1, 4, 1, 1))
    gain[0, 2] = 400
    stretched = graph.node("Mul", image, graph.constant(gain))
    weight = graph.random.normal(size=(4, 4, 1, 1)) / gain
    seen = graph.node("Conv", stretched, graph.constant(weight), name="image")
    graph.last = graph.node("Add", graph.last, graph.node("Reshape", seen, graph.integers([0, 4, WIDTH])))
    graph.block()
    first = analysed(graph.model(), TOY_INT8, tmp_path)["units"][0]
    assert first["name"] == "image"
    assert "channel 2 " in first["cause"]


def test_an_outlier_dimension_of_the_queries_is_found_by_its_place_in_the_head(tmp_path: Path) -> None:
    graph = Residual(0)
    graph.attention()
    at = next(name for name, array in graph.weights.items() if array.ndim == 2)
    graph.weights[at] = graph.weights[at].copy()
    graph.weights[at][:, [5, 21]] *= 4000  # dimension 5 of both heads
    graph.block()
    causes = {unit["name"]: unit["cause"] for unit in analysed(graph.model(), TOY_INT8, tmp_path)["units"]}
    assert "channel 5 of input 0" in causes["scores"]


@pytest.mark.parametrize("column", [False, True])
def test_a_weight_that_one_scale_cannot_hold_is_found_first(column: bool, tmp_path: Path) -> None:
    graph = Residual(2)
    name = graph.weight(0.3)
    graph.weights[name][:, 0 if column else slice(None)][0] = 40
    graph.last = graph.node("Add", graph.last, graph.node("MatMul", graph.last, name, name="uneven"))
    graph.block()
    first = analysed(graph.model(), TOY_INT8, tmp_path)["units"][0]
    assert first["name"] == "uneven"
    assert "channel 0 " in first["cause"]


def test_a_scale_that_was_calibrated_too_small_is_found_first(tmp_path: Path) -> None:
    def too_small(asked: Any) -> dict[str, Any]:
        quantized(asked)
        model = onnx.load(asked.out)
        for weight in model.graph.initializer:
            if weight.name == "clipped.0.scale":
                weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) / 10, weight.name))
        onnx.save(model, asked.out)
        return {}

    graph = Residual(2)
    graph.block(name="clipped")
    graph.block()
    result = analysed(graph.model(), dataclasses.replace(TOY_INT8, convert=too_small), tmp_path)
    assert result["units"][0]["name"] == "clipped"
    assert result["units"][0]["cause"].startswith("scale too small: input 0")


@pytest.mark.parametrize("blocks", [1, 4, 16, 30])
def test_the_ranking_takes_no_more_passes_than_2_sqrt_n_and_agrees_with_trying_each(
    blocks: int, tmp_path: Path
) -> None:
    graph = Residual(0)
    for _ in range(blocks):
        graph.last = graph.node(
            "Add", graph.last, graph.node("MatMul", graph.last, graph.weight(10 ** graph.random.uniform(-2, 0)))
        )
    asked = request(graph.model(), tmp_path)
    prepared = sensitivity.prepare(asked, TOY_INT8)
    feeds, more = sensitivity.to_rank(asked.spec, len(prepared.units), None)
    switched = measure.Switched(prepared.model, prepared.units, feeds)
    losses = measure.rank(switched, more)
    assert len(prepared.units) == blocks
    assert losses.passes <= max(2 * math.sqrt(blocks), measure.STATED + 1)
    full = [switched.losses({number}).mean() for number in range(blocks)]
    if blocks > 4:
        assert spearmanr(losses.alone, full).statistic >= 0.9


def switched_of(blocks: int, tmp_path: Path, samples: int) -> tuple[Any, measure.Switched]:
    asked = request(Residual(blocks).model(), tmp_path)
    prepared = sensitivity.prepare(asked, TOY_INT8)
    feeds = sensitivity.single_samples(asked.spec, samples, 1)
    return asked.spec, measure.Switched(prepared.model, prepared.units, feeds)


def test_a_ranking_that_cannot_reproduce_itself_doubles_its_samples_within_the_budget_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, switched = switched_of(12, tmp_path, 16)
    monkeypatch.setattr(measure, "AGAIN", 1.1)
    losses = measure.rank(switched, lambda there: sensitivity.single_samples(spec, 2 * there, 1)[there:])
    assert len(switched.samples) == len(losses.joint) == 16 * 2**measure.DOUBLED
    assert losses.passes <= measure.budget(len(switched.units))
    assert not losses.reproduces


def test_a_ranking_ends_where_the_data_have_no_more_samples(tmp_path: Path) -> None:
    _, switched = switched_of(12, tmp_path, 16)
    losses = measure.rank(switched, lambda there: [])
    assert len(switched.samples) == len(losses.joint) == 16


def test_no_sample_is_taken_twice_to_choose_how_many(tmp_path: Path) -> None:
    asked = request(Residual(3).model(), tmp_path)
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(14, 4, WIDTH)).astype(np.float32))
    inputs = (dataclasses.replace(asked.spec.inputs[0], data="file:x.npz"),)
    spec = dataclasses.replace(asked.spec, inputs=inputs)
    feeds, more = sensitivity.to_rank(spec, 3, None)
    assert len(feeds) == 7  # the half of the rows that calibrates
    assert more is not None and more(7) == []
    assert len(sensitivity.to_rank(spec, 3, 20)[0]) == 20  # as asked for


def test_units_that_few_samples_cannot_tell_are_ties() -> None:
    losses = measure.Losses(
        np.ones(2),
        np.ones(2),
        np.array([0.3, 0.1]),
        np.ones(4),
        4,
        3,
        left_out_error=np.full(2, 0.05),
        left_out_samples=4,
    )
    assert losses.told.tolist() == [True, False]  # 3.18 standard errors of 4 samples, not 1.96
    assert not dataclasses.replace(losses, left_out_error=None, left_out_samples=1).told.any()
    assert (measure.is_told(-0.3, 0.1), measure.is_told(0.1, 0.1), measure.is_told(0.3, None)) == (True, False, False)


def difference(scale: float = 1.0, outputs: tuple[str, ...] = ("difference", "first")) -> Any:
    """Two equal products, and what is left of the one when the other is taken from it: always 0."""
    graph = Residual(0)
    weight = graph.weight(scale)
    first, second = (graph.node("MatMul", graph.last, weight, name=name) for name in ("first", "second"))
    tensors = {"first": first, "difference": graph.node("Sub", first, second, name="difference")}
    graph.last = tensors[outputs[-1]]
    model = graph.model()
    for name in outputs[:-1]:
        value = onnx.helper.make_tensor_value_info(tensors[name], onnx.TensorProto.FLOAT, ["b", 4, WIDTH])
        model.graph.output.append(value)
    return model


def test_an_output_that_is_always_0_tells_of_no_overflow(tmp_path: Path) -> None:
    result = analysed(difference(), FP16, tmp_path)
    assert {unit["name"] for unit in result["units"]} >= {"first", "second"}
    assert not any(unit["overflow"] for unit in result["units"])
    losses = {unit["name"]: unit["alone_db"] for unit in result["units"]}
    assert losses["second"] is None and losses["first"] > 40


def test_an_output_that_is_0_on_one_sample_is_measured_by_its_power_on_the_others() -> None:
    zero = np.zeros(4)
    assert measure.ratio(zero + 0.1, zero, 4.0) == pytest.approx(0.01)
    assert measure.ratio(zero + 0.1, zero, 0.0) == 0
    assert measure.ratio(zero + np.inf, zero, 4.0) == math.inf


@pytest.mark.parametrize(("scale", "outputs"), [(1.0, ("difference",)), (math.nan, ("first",))])
def test_a_graph_whose_outputs_are_0_or_no_numbers_has_nothing_to_lose(
    scale: float, outputs: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(CaseFailed, match="0 or not finite"):
        analysed(difference(scale, outputs), FP16, tmp_path)


def test_no_ranking_takes_more_passes_than_it_says_it_may(tmp_path: Path) -> None:
    for blocks in (1, 2, 3):
        spent = analysed(Residual(blocks).model(), TOY_INT8, tmp_path)["evaluations"]
        assert spent["ranking"] <= spent["allowed"]


def test_all_switches_on_are_the_quantized_graph_and_all_off_the_float_one(tmp_path: Path) -> None:
    asked = request(Residual(4).model(), tmp_path)
    quantized(asked)
    model = onnx.load(asked.out)
    units = switches.quantized_units(model)
    session = accuracy.session(switches.switchable(model, units))
    sample = {"x": np.random.default_rng(3).normal(size=(2, 4, WIDTH)).astype(np.float32)}
    for graph, on in ((model, True), (onnx.load(asked.onnx), False)):
        chosen = {switches.switch(number): np.array(on) for number in range(len(units))}
        expected = accuracy.session(graph).run(None, sample)[0]
        np.testing.assert_array_equal(session.run(None, sample | chosen)[0], expected)


def test_leaving_units_out_ends_with_the_fewest_that_meet_the_tolerance(tmp_path: Path) -> None:
    graph = Residual(6)
    graph.block(name="scaled", scale=1000)
    strict = dataclasses.replace(TOY_INT8, tolerance=dataclasses.replace(INT8.tolerance, passes=60.0))
    result = analysed(graph.model(), strict, tmp_path)
    met = [entry["left_out"] for entry in result["tried"] if entry["meets"]]
    missed = [entry["left_out"] for entry in result["tried"] if not entry["meets"]]
    assert min(met) - 1 in {*missed, 0}
    assert result["exclude"][0] == "scaled"
    assert len(result["exclude"]) == min(met)
    assert result["evaluations"]["total"] == result["evaluations"]["ranking"] + len(result["tried"]) + 1


def test_a_format_of_which_no_node_can_be_left_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="int8"):
        sensitivity.analyse(request(Residual(1).model(), tmp_path), INT4, 4)


@pytest.mark.parametrize("precision", [TOY_INT8, FP16, MXFP8, NVFP4])
@pytest.mark.parametrize("kind", ["of no products", "of halves"])
def test_a_graph_of_which_nothing_can_lose_accuracy_is_refused(
    kind: str, precision: Precision, tmp_path: Path
) -> None:
    graph = Residual(1 if kind == "of halves" else 0)
    graph.last = graph.node("Transpose", graph.node("Transpose", graph.last, perm=[1, 0, 2]), perm=[1, 0, 2])
    asked = request(graph.model(), tmp_path)
    if kind == "of halves":
        model = onnx.load(asked.onnx)
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        for weight in model.graph.initializer:
            halved = onnx.numpy_helper.to_array(weight).astype(np.float16)
            weight.CopyFrom(onnx.numpy_helper.from_array(halved, weight.name))
        onnx.save(model, asked.onnx)
    with pytest.raises((UserError, CaseFailed), match="half precision" if kind == "of halves" else "no"):
        sensitivity.analyse(asked, precision, 4)


def test_a_unit_left_out_takes_its_own_errors_away_and_leaves_those_of_the_others(tmp_path: Path) -> None:
    asked = request(Residual(6).model(), tmp_path)
    prepared = sensitivity.prepare(asked, TOY_INT8)
    feeds = sensitivity.single_samples(asked.spec, 24, 1)
    switched = measure.Switched(prepared.model, prepared.units, feeds)
    every = frozenset(range(len(prepared.units)))
    held = np.array([switched.left_out(index, sorted(every))[1] for index in range(len(feeds))])
    live = np.array(
        [[switched.loss(index, every - {number}) for number in sorted(every)] for index in range(len(feeds))]
    )
    joint = np.array([switched.left_out(index, ())[0] for index in range(len(feeds))])
    np.testing.assert_allclose(joint, switched.losses(every), rtol=1e-5)
    last = [(joint[:, None] - rest).std(axis=0) for rest in (held, live)]
    assert last[0][0] < last[1][0]  # the first unit, behind which live errors are drawn anew
    np.testing.assert_allclose(held[:, -1], live[:, -1], rtol=1e-3)  # behind the last one there are none


@pytest.mark.parametrize(("noise", "follows"), [(1e-4, "without"), (10.0, "alone")])
def test_what_goes_is_drawn_towards_the_loss_alone_as_far_as_it_is_noise(noise: float, follows: str) -> None:
    alone, without = np.array([0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3])
    losses = measure.Losses(
        alone, alone, without, np.ones(4), 4, 3, left_out_error=np.full(3, noise), left_out_samples=4
    )
    expected = {"alone": alone, "without": without}[follows]
    np.testing.assert_allclose(losses.left_out, expected, atol=1e-3)


def test_one_sample_that_loses_much_more_than_the_others_does_not_rank_the_units() -> None:
    joint = np.array([1e-3] * 7 + [10.0])
    rest = np.stack([joint * 0.5, joint * ([1.0] * 7 + [0.1])])
    usual = np.broadcast_to(joint, rest.shape)
    first, second = shares.gone(rest, usual)
    assert first == pytest.approx(0.5) and second == pytest.approx(1 - 0.1 ** (1 / 8))
    assert 1 - rest[1].mean() / joint.mean() > 0.8  # what the mean loss said of the second
    error = shares.error_of(rest, usual)
    assert error is not None and error[1] == pytest.approx(np.log(10) / 8)
    losses = measure.Losses(
        rest[:, 0], rest[:, 0], np.array([first, second]), joint, 8, 3, left_out_error=error, left_out_samples=8
    )
    assert losses.told.tolist() == [True, False]


def test_a_tie_is_told_in_logarithms_on_both_sides_of_0() -> None:
    log = np.array([0.2, 0.1, -0.1, -0.2])  # 3.18 standard errors of 4 samples are 0.159
    without = -np.expm1(-log)
    losses = measure.Losses(log, log, without, np.ones(4), 4, 3, left_out_error=np.full(4, 0.05), left_out_samples=4)
    assert losses.told.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("rest", "joint", "share"),
    [
        ([0.0, 0.0], [0.01, 0.01], 1.0),  # nothing else loses
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([np.inf, np.inf], [np.inf, np.inf], 0.0),  # another overflows too
        ([0.01, np.inf], [np.inf, np.inf], 1.0),  # the one that overflows on a sample
        ([0.01, 0.01], [0.0, 0.0], None),
    ],
)
def test_losses_of_0_and_overflows_have_a_part_that_goes(
    rest: list[float], joint: list[float], share: float | None
) -> None:
    found = shares.gone(np.array([rest]), np.array([joint]))[0]
    assert np.isfinite(found)
    assert found == pytest.approx(share) if share is not None else found < 0


def test_losses_of_bytes_and_truth_values_are_those_of_numbers() -> None:
    white, truth = np.array([200, 100], np.uint8), np.array([True, False])
    signal = measure.power(white)
    assert signal == 200**2 + 100**2
    assert measure.ratio(np.array([199, 103], np.uint8), white, signal) == (1 + 9) / signal
    assert measure.ratio(~truth, truth, measure.power(truth)) == 2
