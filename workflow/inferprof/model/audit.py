"""What an ONNX graph really computes in: products and weights by type, Casts, odd sizes, and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inferprof import registry
from inferprof.case import REFERENCE, Shape
from inferprof.model import (
    contrib,
    half_overflow,
    onnx_graph,
    onnx_reader,
    quantizers,
    sparsity,
    typed_graph,
    validity,
)
from inferprof.model.model_spec import ModelSpec, input_shapes
from inferprof.model.operators import (
    COLLECTIVE,
    DEQUANTIZERS,
    QUANTIZERS,
    STANDARD_DOMAINS,
    bits,
    collectives_of,
    dtype_name,
    is_foreign,
    is_unknown,
    nbytes,
)
from inferprof.model.products import Product, one_branch, products_of, too_small
from inferprof.model.typed_graph import TypedGraph
from inferprof.words import NAMED, counted, some

NORMALIZATIONS = (
    *("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization", "GroupNormalization"),
    "SkipLayerNormalization",
)
WHO_KNOWS = {
    "trt": "runs in TensorRT only",
    "com.microsoft": "runs in ONNX Runtime only",
    "ai.onnx.ml": "runs on the CPU in ONNX Runtime",
}
"""The runtimes that know the operators of a domain outside the standard."""
WORTH_SAYING = 0.001
"""Share of the weights' bytes from which on those in a wider type are spoken of."""


def audit(onnx: Path, precision: str | None, shape: Shape | None, spec: ModelSpec | None = None) -> dict[str, Any]:
    """The content of .audit.json. `precision` is what the graph claims to be in; a claim that is not true is flagged.

    Multiply-accumulates are counted at `shape` of the model that `spec` describes, of which symbols may have other
    names; without a shape every symbolic dimension counts as 1.
    """
    model = onnx_reader.read(onnx, external=True)
    sizes = shape.as_dict() if shape else {}
    shapes = input_shapes(spec, shape) if spec and shape else {}
    whole = typed_graph.analyse(model, sizes, shapes)
    graph, branches = one_branch(whole)
    products = products_of(graph)
    counts = Counter(node.op_type for node in graph.nodes)
    result = {
        "precision": precision,
        "shape": shape.label if shape else None,
        "macs": sum(product.macs for product in products),
        "macs_share": _shares(products),
        "products_of_unknown_size": [product.name for product in products if not product.sized],
        "products_in_loops_of_unknown_length": {
            product.name: product.macs_once for product in products if product.macs_once and not product.macs
        },
        "branches": branches,
        "assumed_sizes": [*graph.assumed] if shape else [],
        "no_opset": validity.lacks_opset(model),
        "weight_bytes": _weight_bytes(graph),
        "casts": counts["Cast"],
        "quantizers": sum(counts[name] for name in QUANTIZERS),
        "dequantizers": sum(counts[name] for name in DEQUANTIZERS),
        "softmax": _types_of(("Softmax",), graph),
        "normalization": _types_of(NORMALIZATIONS, graph),
        "normalization_in_pieces": half_overflow.normalizations(graph),
        "not_tensorrt_int8": quantizers.not_tensorrt_int8(graph),
        "quantized_nodes": onnx_graph.quantized_nodes(model),
        "in_bodies": onnx_graph.in_bodies(model.graph),
        "uncounted_domains": sorted({n.domain for n in graph.nodes if _is_uncounted(n)}),
        "foreign_domains": _domains(graph.nodes),
        "high_precision": _left_behind(products, precision),
        "collectives": dict(Counter(operation for operation, _ in collectives_of(graph.nodes))),
        "ranks": max((ranks for _, ranks in collectives_of(graph.nodes)), default=1),
        "unaligned": unaligned(products),
        "sparse": sparsity.products(graph),
    }
    unsized = result["products_of_unknown_size"]
    small = None if graph.assumed and not shape else too_small(graph)
    why = small or (typed_graph.contradiction(model, sizes, shapes) if unsized else None)
    said = [f"at these sizes a node of the graph cannot run: {why}"] if why else []
    return {**result, "advice": [*said, *advice(result, products, impossible=bool(why))]}


def _is_uncounted(node: Any) -> bool:
    """Whether a node may compute products that nobody here knows."""
    return (is_foreign(node) and not contrib.is_counted(node)) or is_unknown(node)


def _domains(nodes: Iterable[Any]) -> dict[str, list[str]]:
    """Domains of operators outside the ONNX standard → their operators; plug-ins' have none, or ONNX's."""
    by_domain: dict[str, set[str]] = {}
    for node in nodes:
        if node.domain not in STANDARD_DOMAINS or is_unknown(node):
            by_domain.setdefault(node.domain, set()).add(node.op_type.rpartition("::")[2])
    return {domain: sorted(operators) for domain, operators in sorted(by_domain.items())}


# --- products --------------------------------------------------------------------------------------------------


def _shares(products: Sequence[Product]) -> dict[str, float]:
    """Type → share of the multiply-accumulates that are known, largest first; empty where none is."""
    total = sum(product.macs for product in products)
    if not total:
        return {}
    macs: Counter[str] = Counter()
    for product in products:
        macs[product.dtype] += product.macs
    return {dtype: count / total for dtype, count in macs.most_common()}


def _declared(precision: str | None) -> str:
    """The type that a number format's products are in; empty where none is claimed that a plug-in describes."""
    described = registry.precisions().get(precision or "")
    return described.storage if described else ""


def _left_behind(products: Sequence[Product], precision: str | None) -> list[dict[str, Any]]:
    """The products that compute in more bits than the declared format, the largest first."""
    if not (declared := _declared(precision)):
        return []
    total = sum(product.macs for product in products) or 1
    wide = [product for product in products if bits(product.dtype) > bits(declared)]
    return [
        {"name": p.name, "dtype": p.dtype, "macs_share": p.macs / total, "with_weight": p.with_weight}
        for p in sorted(wide, key=lambda p: -p.macs)
    ]


def unaligned(products: Sequence[Product]) -> list[dict[str, Any]]:
    """The sizes of products that are no multiple of 16 (of 32 for 8-bit and 4-bit types), with the padded size.

    Tensor cores work on tiles of 32 bytes or more. The m of a product with a weight is left out: there the batch
    and the sequence are one dimension. So is a size of 1.
    """
    by_size: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for product in products:
        multiple = 32 if bits(product.dtype) <= 8 else 16
        for role, size in product.sizes.items():
            if size > 1 and size % multiple and not (role == "m" and product.with_weight):
                by_size.setdefault((size, multiple), []).append((role, product.name))
    return [
        {
            "size": size,
            "multiple": multiple,
            "padded": -(-size // multiple) * multiple,
            "roles": sorted({role for role, _ in uses}),
            "products": len({name for _, name in uses}),
            "example": uses[0][1],
        }
        for (size, multiple), uses in sorted(by_size.items())
    ]


# --- the rest of the graph -------------------------------------------------------------------------------------


def _weight_bytes(graph: TypedGraph) -> dict[str, int]:
    """Type → bytes of the weights; two 4-bit values share a byte."""
    sizes: Counter[str] = Counter()
    for weight in graph.weights.values():
        dtype = dtype_name(weight.data_type)
        sizes[dtype] += nbytes(dtype, weight.dims)
    return dict(sizes.most_common())


def _types_of(operators: Sequence[str], graph: TypedGraph) -> dict[str, int]:
    """Type of the first input → how many nodes of these operators take it."""
    return dict(
        Counter(
            graph.types.get(node.input[0], "unknown")
            for node in graph.nodes
            if node.op_type in operators and node.input
        )
    )


# --- advice ----------------------------------------------------------------------------------------------------


def advice(result: Mapping[str, Any], products: Sequence[Product], *, impossible: bool = False) -> list[str]:
    """What to do about it, one line each, the costliest first. impossible: a node of the graph cannot run."""
    lines = _claims(result) + _uncounted(result, products, impossible=impossible)
    for weighted, what in ((True, "products with weights"), (False, "products of two activations")):
        left = [entry for entry in result["high_precision"] if entry["with_weight"] is weighted]
        if left:
            share = sum(entry["macs_share"] for entry in left)
            total = sum(product.with_weight is weighted for product in products)
            names = some([f"{entry['name']} ({entry['dtype']})" for entry in left])
            lines.append(
                f"{len(left)} of {total} {what} ({share:.1%} of the MACs) are not in {result['precision']}: {names}"
            )
    lines += _wide_weights(result)
    lines += sparsity.advice(result.get("sparse", ()))
    lines += _padded(result["unaligned"])
    if result["precision"] != REFERENCE and _declared(result["precision"]):
        lines += [
            f"{count} {kind} in float32: Casts around them move data twice as wide"
            for kind in ("softmax", "normalization")
            if (count := result[kind].get("float32")) and result["casts"] >= count
        ]
    if pieces := result.get("normalization_in_pieces"):
        lines.append(
            f"{len(pieces)} normalization{'s' * (len(pieces) > 1)} in pieces in float16: a square overflows from 256 "
            f"on (256² is over 65,504): {some(pieces)}; export with opset 17 or later, which has it as one node, "
            "LayerNormalization, or keep these nodes in float32"
        )
    if collectives := result.get("collectives"):
        each = ", ".join(f"{count} {operation}" for operation, count in collectives.items())
        lines.append(
            f"{each} between {result['ranks']} GPUs ({COLLECTIVE}): TensorRT 10.16 or newer runs it, a process per "
            "GPU; MACs and weights here are of one of them"
        )
    return lines + [
        f"{WHO_KNOWS.get(domain, 'runs only where its operators are known')}: "
        f"{domain or 'ai.onnx'} ({', '.join(operators)})"
        f"{', whose products count as nothing here' if domain in result.get('uncounted_domains', ()) else ''}"
        for domain, operators in result["foreign_domains"].items()
    ]


def _claims(result: Mapping[str, Any]) -> list[str]:
    """What a graph isn't that it says it is."""
    lines = []
    if result.get("no_opset"):
        lines.append("the file names no opset, so its operators are taken for those of the newest; export it again")
    quantized = result.get("quantized_nodes")
    described = registry.precisions().get(result["precision"])
    if quantized and described and not described.quantized:
        baseline = f"no {REFERENCE} baseline" if result["precision"] == REFERENCE else f"not {result['precision']}"
        lines.append(f"it is quantized already, {baseline}: {counted(len(quantized), 'node')} ({some(quantized)})")
    if (bodies := result.get("in_bodies")) and described and described.quantized:
        nodes = f"{counted(sum(bodies.values()), 'node')} in the bodies of {some([*bodies])}"
        lines.append(f"{nodes} are not in {result['precision']}: quantizers don't look into bodies")
    if other := result.get("not_tensorrt_int8"):
        kinds = "; ".join(dict.fromkeys(other.values()))
        lines.append(
            f"{len(other)} quantizers are not TensorRT's int8, which is signed with a zero point of 0 ({kinds}): "
            f"{some([*other])}; quantize again, symmetric"
        )
    return lines


def _uncounted(result: Mapping[str, Any], products: Sequence[Product], *, impossible: bool) -> list[str]:
    """What the multiply-accumulates leave out, or take for granted."""
    lines = []
    if unsized := result.get("products_of_unknown_size"):
        unknown = "".join(f", or that operators of {domain} make" for domain in result.get("uncounted_domains", ()))
        sizes = "no sizes for that reason" if impossible else f"sizes that only a run tells{unknown}"
        lines.append(
            f"{len(unsized)} of {len(products)} products have {sizes}, and count in no share: {some(unsized)}"
        )
    if looped := result.get("products_in_loops_of_unknown_length"):
        lines.append(
            f"{len(looped)} of {len(products)} products are in loops whose length only a run tells, and count in no "
            f"share: {sum(looped.values()):,} MACs a step ({some([*looped])})"
        )
    if branches := result.get("branches"):
        macs = [
            f"{branch['node']} ({', '.join(f'{name} {n:,}' for name, n in branch['macs'].items())})"
            for branch in branches
        ]
        lines.append(
            f"which branch of {len(branches)} If runs, only a run tells; that of more MACs is counted: {some(macs)}"
        )
    if assumed := result.get("assumed_sizes"):
        lines.append(f"counted as 1, since the shape gives no size to them: {some(assumed)}")
    return lines


def _padded(unaligned: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each size; one for all where they are many, as in a convolutional network."""
    if len(unaligned) > NAMED:
        common = sorted(unaligned, key=lambda entry: -entry["products"])
        sizes = [f"{entry['size']} to {entry['padded']} in {entry['products']}" for entry in common]
        return [f"{len(unaligned)} sizes are no multiple of 16 (of 32 in 8 bits) and padded: {some(sizes)} products"]
    return [
        f"size {entry['size']} ({', '.join(entry['roles'])} of {entry['products']} products, e.g. "
        f"{entry['example']}) is no multiple of {entry['multiple']}: padded to {entry['padded']}, "
        f"{1 - entry['size'] / entry['padded']:.1%} of the tile is wasted"
        for entry in unaligned
    ]


def _wide_weights(result: Mapping[str, Any]) -> list[str]:
    """Weights of more bits than a half-precision graph declares. Quantizers may take float weights, so not theirs."""
    declared = _declared(result["precision"])
    floats = {name: size for name, size in result["weight_bytes"].items() if name.startswith(("float", "bfloat"))}
    wide = {name: size for name, size in floats.items() if bits(name) > bits(declared)}
    if bits(declared) != 16 or not wide:
        return []
    share = sum(wide.values()) / sum(floats.values())
    if share < WORTH_SAYING:
        return []
    return [f"{share:.1%} of the weights' bytes are in {', '.join(wide)} in this {result['precision']} graph"]


def _macs(result: Mapping[str, Any]) -> str:
    """Those that are counted; where none is though there are products, not known."""
    left_out = result.get("products_of_unknown_size") or result.get("products_in_loops_of_unknown_length")
    return "not known" if left_out and not result["macs"] else f"{result['macs']:,}"


def _size(count: int) -> str:
    """Bytes in MiB, fewer than make a hundredth of one in KiB."""
    return f"{count / 2**20:.2f} MiB" if count >= 0.01 * 2**20 else f"{count / 2**10:.3g} KiB"


def render(result: Mapping[str, Any]) -> str:
    """The audit as text for the screen."""
    weights = result["weight_bytes"]
    noticed = {name: size for name, size in weights.items() if size >= WORTH_SAYING * sum(weights.values())}
    rows = [
        ("declared", result["precision"] or "nothing"),
        ("shape", result["shape"] or "every symbol 1"),
        ("MACs", _macs(result)),
        ("MACs by type", ", ".join(f"{n} {share:.1%}" for n, share in result["macs_share"].items()) or "not known"),
        ("weights", ", ".join(f"{name} {_size(size)}" for name, size in noticed.items()) or "none"),
        ("nodes", f"{result['casts']} Cast, {result['quantizers']} quantize, {result['dequantizers']} dequantize"),
        ("softmax", ", ".join(f"{count} {name}" for name, count in result["softmax"].items()) or "none"),
        ("normalization", ", ".join(f"{count} {name}" for name, count in result["normalization"].items()) or "none"),
    ]
    return "\n".join([*(f"{label:14} {text}" for label, text in rows), *(f"* {line}" for line in result["advice"])])
