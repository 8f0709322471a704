"""What a graph costs, and how accurate it is, as text for the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from inferprof.documents.graph import Accuracy, Agreement, Cost, Distance, Node
from inferprof.units import MIB
from inferprof.words import counted, figure

SHOWN: Final = 3
UNIT: Final = {1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k"}


def of_cost(result: Mapping[str, Any]) -> str:
    """FLOPs and bytes of a graph at its shape, and the nodes with most of the FLOPs."""
    cost = msgspec.convert(result, Cost)
    nodes = cost.nodes or []
    products = [node for node in nodes if node.product]
    most = sorted((node for node in nodes if node.flops), key=lambda node: -(node.flops or 0))[:SHOWN]
    total = sum(node.flops or 0 for node in nodes)
    return _table(
        (
            ("shape", cost.shape or "not known"),
            ("FLOPs", _sum(nodes, lambda node: node.flops, _flops, f" in {counted(len(nodes), 'node')}")),
            ("products", _sum(products, lambda node: node.flops, _flops, f" in {len(products)}")),
            ("weights read", _mib(cost.in_weights)),
            ("moved once", f"{_mib(cost.moved)}: weights, inputs and outputs, the least that an inference moves"),
            ("unfused", _sum(nodes, _moved, _mib, ": each node reads its inputs and writes its outputs")),
            ("most FLOPs", ", ".join(f"{node.name} ({node.op}) {(node.flops or 0) / total:.1%}" for node in most)),
        )
    )


def of_accuracy(result: Mapping[str, Any]) -> str:
    """The outcome with its reason, the distance of each output, and how many decisions are the same."""
    accuracy = msgspec.convert(result, Accuracy)
    agreement = accuracy.agreement
    outputs = (accuracy.outputs or {}).items()
    return _table(
        (
            (accuracy.outcome or "not measured", accuracy.reason or ""),
            *((name, _distance(output)) for name, output in outputs),
            *([(agreement.kind, _agreement(agreement))] if agreement else []),
            *([("random inputs", _of_random(accuracy.random_inputs))] if accuracy.random_inputs else []),
            *([("computed by", accuracy.source)] if accuracy.source else []),
        )
    )


def _of_random(inputs: Sequence[str]) -> str:
    return f"{', '.join(inputs)}: no data that a model was trained on; name yours with `data:` in its description"


def _distance(output: Distance) -> str:
    if output.sqnr_db is None:
        return "identical" if output.max_abs_error == 0 else "no number: values are not finite"
    varied = "" if output.variation_db is None else f", {output.variation_db:.1f} dB below what varies over samples"
    return f"SQNR {output.sqnr_db:.1f} dB, largest error {output.max_abs_error:.3g}{varied}"


def _agreement(agreement: Agreement) -> str:
    of = "" if agreement.of is None else f" of {counted(agreement.of, 'sample')}"
    if agreement.share is not None:
        return f"the same in {agreement.share:.1%}{of}"
    spearman = "" if agreement.spearman is None else f", Spearman {agreement.spearman:.3f}"
    shared = "" if agreement.shared_neighbours is None else f"{agreement.shared_neighbours:.1%} of neighbours shared"
    return f"{shared}{spearman}{of}".removeprefix(", ")


def _table(rows: Iterable[tuple[str, str]]) -> str:
    rows = [(label, text) for label, text in rows if text]
    width = max(len(label) for label, _ in rows) + 2
    return "\n".join(f"{label:{width}}{text}" for label, text in rows)


def _moved(node: Node) -> int | None:
    return None if node.operands is None or node.written is None else node.operands + node.written


def _sum(nodes: Sequence[Node], of: Callable[[Node], int | None], said: Callable[[int], str], what: str) -> str:
    """The sum of what is known and what it is, and of which operators it is not known."""
    unknown = [node.op for node in nodes if of(node) is None]
    operators = list(dict.fromkeys(unknown))
    names = f"{', '.join(operators[:SHOWN])}{' …' * (len(operators) > SHOWN)}"
    without = f"; not known of {counted(len(unknown), 'node')} ({names})" if unknown else ""
    return f"{said(sum(of(node) or 0 for node in nodes))}{what}{without}"


def _flops(value: float) -> str:
    size, prefix = next(((size, prefix) for size, prefix in UNIT.items() if value >= size), (1.0, ""))
    return f"{figure(value / size)} {prefix}FLOP"


def _mib(value: int | None) -> str:
    return "not known" if value is None else f"{value / MIB:.2f} MiB"
