"""How far a number format's outputs are from fp32, on real inputs, and whether that is within its tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inferprof import processes, progress
from inferprof.errors import CaseFailed
from inferprof.model import block_emulation, data, emulation, onnx_graph, quantizers, references, validity
from inferprof.model.model_spec import ModelSpec
from inferprof.model.operators import DEQUANTIZERS, QUANTIZERS
from inferprof.plugins import ConvertRequest, Feeds, Precision, Tolerance
from inferprof.units import GIB

Array = np.ndarray[Any, Any]
Draw = Callable[[ModelSpec, int, int], list[Feeds]]
"""(model, number of samples, seed) → batches of real inputs: samples.feeds."""
Expect = Callable[[Path, Sequence[Feeds]], Mapping[str, Array]]
"""(reference, batches) → outputs over all samples, by name: of_samples, or out of what was computed before."""
STEPS = ("read samples", "run fp32", "run the format")
NEIGHBOURS = 10
"""How many nearest neighbours of each sentence are compared."""
DISTANCES = ("cosine_mean", "cosine_min", "sqnr_db", "max_abs_error", "max_abs_expected")
ON_WEIGHTS = emulation.MOVES | DEQUANTIZERS | frozenset(("Cast", *QUANTIZERS))
"""What stands between a stored weight and the node that computes with it."""
IN_ORT = "onnxruntime cpu"
IN_ORT_ROUNDED = "onnxruntime cpu, half-precision results rounded node by node"


@dataclass(frozen=True)
class Outputs:
    """Outputs over all samples, by name (samples first), and what computed them."""

    arrays: Mapping[str, Array]
    source: str


class NotMeasured(Exception):
    """No runtime here could compute the outputs; the message says why."""


def of_samples(reference: Path, batches: Sequence[Feeds]) -> Mapping[str, Array]:
    """The outputs of an ONNX file over batches of samples. Raises NotMeasured."""
    return joined(run_graph(reference, batches)[0])


def measure(
    request: ConvertRequest, precision: Precision, draw: Draw, count: int, seed: int, expect: Expect = of_samples
) -> dict[str, Any]:
    """Compare `request.out` with fp32 on `count` samples that `draw` gives; the content of .accuracy.json.

    `expect` gives the outputs of fp32 by `request.onnx`. `outcome` is pass, warn, fail or not measured, and `reason`
    says what decided it: the worst output. Raises UserError where the input data are unusable.
    """
    spec = request.spec
    record = {"precision": precision.name, "seed": seed, **data.origin(spec)}
    with progress.task(f"Accuracy of {spec.name} in {precision.name}", STEPS):
        progress.step("read samples")
        batches = draw(spec, count, seed)
        try:
            progress.step("run fp32")
            expected = Outputs(expect(request.onnx, batches), IN_ORT)
            progress.step("run the format")
            outputs, source = run_graph(request.out, batches)
            actual = Outputs(joined(outputs), source)
        except NotMeasured as error:
            return {**record, "outcome": "not measured", "reason": str(error)}
        compared = compare(expected, actual, batches, spec, precision.tolerance)
        return {**record, **compared, **quantizers.nothing_quantized(request.out, precision, compared)}


# --- running ---------------------------------------------------------------------------------------------------


def run_graph(path: Path, batches: Sequence[Feeds]) -> tuple[list[dict[str, Array]], str]:
    """Outputs of an ONNX file for each batch, computed as the graph is written, and how they were computed.

    Graph optimisations are off: they would merge Q/DQ pairs into integer kernels that saturate on CPUs without VNNI,
    and ONNX Runtime has no kernels for some of the FP8 nodes that they make. Raises NotMeasured.
    """
    try:
        content, source = _runnable(path)
        loaded = session(content)
        outputs: list[dict[str, Array]] = []
        for batch in progress.counted(batches, "batch"):
            outputs.append(_run(loaded, batch))
            if len(outputs) == 1:
                _fit(outputs[0], len(batches))
        return outputs, source
    except Exception as error:  # onnxruntime's exceptions share no base class
        raise NotMeasured(f"{path.name}: {' '.join(str(error).split())}") from error


def _fit(outputs: Mapping[str, Array], batches: int) -> None:
    """Raises MemoryError where the outputs of all batches, of two graphs and joined, are more than the memory."""
    wanted, most = batches * sum(array.nbytes for array in outputs.values()), processes.memory()
    if 4 * wanted > most:
        raise MemoryError(
            f"the outputs of {batches:,} batches of samples are {wanted / GIB:.1f} GiB, more than a "
            f"quarter of this machine's {most / GIB:.1f} GiB; ask for fewer samples"
        )


def session(model: Any) -> Any:
    """ONNX Runtime on the CPU for a graph as it is written: a path, bytes, or an onnx.ModelProto."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    content = model if isinstance(model, str | bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _runnable(path: Path) -> tuple[str | bytes, str]:
    """What to give to ONNX Runtime, and how that computes: the file itself, or its float32 emulation."""
    import onnx

    model, source = onnx.load(path), IN_ORT
    if blocks := block_emulation.uses_blocks(model):
        model = block_emulation.in_standard_operators(model)
    if emulation.uses_half(model):
        model, source = emulation.rounded_in_float32(model), IN_ORT_ROUNDED
    elif not blocks and (not onnx_graph.quantized_nodes(model) or model.ByteSize() > validity.MAX_BYTES):
        return str(path), source
    return with_ready_weights(model).SerializeToString(), source


def with_ready_weights(model: Any) -> Any:
    """The model, changed in place, with its weights as they are computed with: rounded once, not at each run.

    Left as it is where it would be too large for a file.
    """
    import onnx

    graph = model.graph
    constant = {weight.name for weight in graph.initializer} - {value.name for value in graph.input}
    ready, rest = [], []
    for node in graph.node:
        if node.op_type in ON_WEIGHTS and node.input and constant.issuperset(filter(None, node.input)):
            constant |= {*node.output}
            ready.append(node)
        else:
            rest.append(node)
    kept = onnx.helper.make_graph(rest, "rest", [], graph.output)
    names = sorted(onnx_graph.read_by_any(kept) & {name for node in ready for name in node.output})
    arrays = of_weights(model, ready, names) if names else {}
    if model.ByteSize() + sum(array.nbytes for array in arrays.values()) <= validity.MAX_BYTES:
        onnx_graph.replace_nodes(model, rest)
        graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
        onnx_graph.drop_unread_weights(graph)
    return model


def of_weights(model: Any, nodes: Sequence[Any], names: Sequence[str]) -> dict[str, Array]:
    """The tensors `names` that `nodes` make of nothing but a model's weights."""
    import onnx

    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    graph = onnx.helper.make_graph(nodes, "weights", [], outputs, model.graph.initializer)
    onnx_graph.drop_unread_weights(graph)
    whole = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return dict(zip(names, session(whole).run([*names], {}), strict=True))


def _run(session: Any, batch: Feeds) -> dict[str, Array]:
    """One batch; a half-precision input of a user's graph is float32 in its emulation."""
    float32 = {item.name for item in session.get_inputs() if item.type == "tensor(float)"}
    feeds = {name: array.astype(np.float32) if name in float32 else array for name, array in batch.items()}
    names = [item.name for item in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, feeds), strict=True))
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
            raise NotMeasured(f"output {name} is no tensor of numbers, so nothing can be compared with it")
    return outputs


def joined(batches: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """The batches of each output, one behind the other."""
    return {name: _joined([batch[name] for batch in batches]) for name in batches[0]}


def _joined(parts: Sequence[Array]) -> Array:
    """One output of all batches; flat where its size is another in each, as that of NonZero."""
    arrays = [np.atleast_1d(part) for part in parts]
    if len({array.shape[1:] for array in arrays}) > 1:
        arrays = [array.ravel() for array in arrays]
    return np.concatenate(arrays)


# --- comparing -------------------------------------------------------------------------------------------------


def compare(
    expected: Outputs, actual: Outputs, batches: Sequence[Feeds], spec: ModelSpec, tolerance: Tolerance
) -> dict[str, Any]:
    """Distances of every output, agreement of decisions, collapse, and the outcome."""
    if missing := [name for name in expected.arrays if name not in actual.arrays]:
        raise CaseFailed(f"the converted graph has no output {', '.join(missing)}: {', '.join(actual.arrays)}")
    outputs = {name: distance(array, actual.arrays[name]) for name, array in expected.arrays.items()}
    collapsed = [
        f"output {name}: {why}"
        for name, array in expected.arrays.items()
        if (why := collapse(array, actual.arrays[name]))
    ]
    outcome, reason = judge({name: value["sqnr_db"] for name, value in outputs.items()}, collapsed, tolerance)
    outcome, reason = references.cautioned(outcome, reason, expected.arrays)
    return {
        "outcome": outcome,
        "reason": reason,
        "from": actual.source,
        "samples": len(next(iter(expected.arrays.values()))),
        "tolerance": {"passes_db": tolerance.passes, "warns_db": tolerance.warns, "reason": tolerance.reason},
        "collapse": collapsed,
        "outputs": outputs,
        "agreement": None if collapsed else agreement(expected, actual, batches, spec),
    }


def distance(expected: Array, actual: Array) -> dict[str, Any]:
    """Cosine (mean and worst over samples), SQNR in dB over all values, largest absolute error.

    Of an empty output, or one of another shape, nothing is told but that two empty ones are the same.
    Values that are NaN or infinite are left out: `collapse` finds them.
    SQNR = 10 log10(Σ expected² / Σ (expected − actual)²). None stands for "not finite": an SQNR of None with a
    `max_abs_error` of 0 is an identical output.
    """
    a, b = (np.atleast_1d(array).astype(np.float64) for array in (expected, actual))
    if a.shape != b.shape or not a.size:
        same = a.shape == b.shape
        return dict.fromkeys(DISTANCES) | {"max_abs_error": 0.0 if same else None}
    both_finite = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(both_finite, a, 0.0), np.where(both_finite, b, 0.0)
    rows_a, rows_b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(rows_a, axis=1) * np.linalg.norm(rows_b, axis=1)
        cosines = np.where(norms > 0, (rows_a * rows_b).sum(axis=1) / norms, np.nan)
        sqnr = 10 * np.log10((a**2).sum() / ((a - b) ** 2).sum())
        worst = np.abs(a - b).max()
    return {
        "cosine_mean": finite(cosines.mean()),
        "cosine_min": finite(cosines.min()),
        "sqnr_db": finite(sqnr),
        "max_abs_error": finite(worst),
        "max_abs_expected": finite(np.abs(a).max()),
    }


def finite(value: float) -> float | None:
    """The number, or None for what JSON cannot hold."""
    return float(value) if math.isfinite(value) else None


def collapse(expected: Array, actual: Array) -> str | None:
    """Why an output is no result at all (another shape, NaN, overflow, constant), or None."""
    if actual.shape != expected.shape:
        return f"shape {list(actual.shape)}, not {list(expected.shape)}"
    if not actual.size:
        return None
    expected, actual = np.atleast_1d(expected), np.atleast_1d(actual)
    if not (was_finite := np.isfinite(expected)).any():
        return "fp32 itself gives no finite value"
    if np.isnan(actual).all():
        return "all NaN"
    if nans := int((np.isnan(actual) & ~np.isnan(expected)).sum()):
        return f"NaN in {nans} of {actual.size} values"
    if overflows := int((np.isinf(actual) & was_finite).sum()):
        return f"overflow: infinite in {overflows} of {actual.size} values"
    if np.ptp(actual.astype(np.float64)) == 0 and np.ptp(expected.astype(np.float64)) > 0:
        return f"constant: every value is {actual.flat[0]:g}"
    if len(actual) > 1 and (actual == actual[0]).all() and not (expected == expected[0]).all():
        return "constant: the same for every sample"
    return None


def judge(sqnr_db: Mapping[str, float | None], collapsed: Sequence[str], tolerance: Tolerance) -> tuple[str, str]:
    """Outcome and reason. An SQNR of None without a collapse means an output identical to the expected one."""
    if collapsed:
        return "fail", "; ".join(collapsed)
    values = {name: value for name, value in sqnr_db.items() if value is not None}
    if not values:
        return "pass", "identical"
    name = min(values, key=lambda key: values[key])
    worst = values[name]
    described = f"output {name}: SQNR {worst:.1f} dB"
    if worst >= tolerance.passes:
        return "pass", f"{described}, at least {tolerance.passes:g} dB"
    if worst >= tolerance.warns:
        return "warn", f"{described}, under {tolerance.passes:g} dB ({tolerance.reason})"
    return "fail", f"{described}, under {tolerance.warns:g} dB ({tolerance.reason})"


def agreement(expected: Outputs, actual: Outputs, batches: Sequence[Feeds], spec: ModelSpec) -> dict[str, Any] | None:
    """Whether the decisions drawn from the first output are the same; None for a task without any.

    Similarities need two samples or more.
    """
    name = next(iter(expected.arrays))
    a, b = expected.arrays[name], actual.arrays[name]
    if spec.task == "classification":
        same = a.reshape(-1, a.shape[-1]).argmax(axis=1) == b.reshape(-1, b.shape[-1]).argmax(axis=1)
        return {"kind": "top-1", "share": float(same.mean()), "of": len(same)}
    if spec.task == "embedding" and len(a) > 1:
        return ranking(*(embeddings(array, batches, spec) for array in (a, b)))
    return None


def embeddings(array: Array, batches: Sequence[Feeds], spec: ModelSpec) -> Array:
    """One unit vector a sample: token states (sample, token, channel) are pooled as the model's `pooling` says."""
    if array.ndim == 3 and spec.options.get("pooling") == "cls":
        array = array[:, 0]
    elif array.ndim == 3:
        masks = [item.name for item in spec.inputs if item.data == "token_mask"]
        weights = joined(batches)[masks[0]][..., None] if masks else np.ones((*array.shape[:2], 1))
        array = (array * weights).sum(axis=1) / weights.sum(axis=1)
    unit: Array = array / np.linalg.norm(array, axis=1, keepdims=True)
    return unit


def ranking(expected: Array, actual: Array) -> dict[str, Any]:
    """Spearman's rho over the similarities of all pairs of unit vectors, and the nearest neighbours in common."""
    from scipy.stats import spearmanr

    similar_a, similar_b = expected @ expected.T, actual @ actual.T
    pairs = np.triu_indices(len(expected), k=1)
    nearest = min(NEIGHBOURS, len(expected) - 1)
    shared = [
        len(set(_nearest(row_a, index, nearest)) & set(_nearest(row_b, index, nearest))) / nearest
        for index, (row_a, row_b) in enumerate(zip(similar_a, similar_b, strict=True))
    ]
    return {
        "kind": "similarity ranking",
        "spearman": finite(spearmanr(similar_a[pairs], similar_b[pairs]).statistic),
        "shared_neighbours": float(np.mean(shared)),
        "neighbours": nearest,
        "of": len(expected),
    }


def _nearest(row: Array, own: int, count: int) -> list[int]:
    """The `count` most similar others, most similar first; ties by index."""
    order = np.argsort(-row, kind="stable")
    return [int(index) for index in order if index != own][:count]
