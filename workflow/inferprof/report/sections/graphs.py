"""What each ONNX graph really computes in, and what to do about it: from the audits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from inferprof.documents import Audit
from inferprof.report.common import optional
from inferprof.report.documents import Document
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, words
from inferprof.report.numbers import mebibytes
from inferprof.report.section import Section

COLUMNS = (
    Column("model", "model"),
    Column("precision", "precision"),
    Column("macs_by_type", "MACs by type"),
    Column("weights_by_type", "weights by type, MiB"),
    Column("casts", "Cast", "number"),
    Column("quantizers", "Q", "number"),
    Column("dequantizers", "DQ", "number"),
    Column("left_behind", "wider products", "number"),
    Column("softmax", "Softmax"),
    Column("normalization", "Norm"),
    Column("shape", "shape", hidden=True),
    Column("macs", "MACs", "number", hidden=True),
    Column("left_behind_names", "wider products", hidden=True),
    Column("file", "file", "path", hidden=True),
)


def build(evidence: Evidence) -> Sequence[Block]:
    """One row per ONNX file, then the advice; advice that several formats or models share stands once."""
    documents = {pair: evidence.documents[(*pair, "audit")] for pair in evidence.variants}
    rows = tuple(tuple(_row(*pair, document)) for pair, document in documents.items())
    note = (
        "Wider products: matrix products and convolutions that compute in more bits than the format promises. "
        "Types under a thousandth of the whole are left out."
    )
    shared: dict[tuple[str, str], list[str]] = {}
    for (model, precision), document in documents.items():
        for line in (document.content and document.content.advice) or ():
            shared.setdefault((model, line), []).append(precision)
    alike: dict[tuple[str, str], list[str]] = {}
    for (model, line), precisions in shared.items():
        alike.setdefault((", ".join(precisions), line), []).append(model)
    advice = [
        Text(f"{', '.join(models)} {precisions}: {line}", "item") for (precisions, line), models in alike.items()
    ]
    blocks: list[Block] = [Table("audit", "", COLUMNS, rows, note, groups=1)]
    return (*blocks, *([Text("Advice:")] if advice else []), *advice)


def _row(model: str, precision: str, document: Document[Audit]) -> list[Cell]:
    content = document.content
    if content is None:
        lacking = missing(document.lacking)
        return [words(model), words(precision), *[lacking] * (len(COLUMNS) - 3), words(document.file)]
    left = content.high_precision or []
    lie = any(product.with_weight for product in left)
    return [
        words(model),
        words(precision),
        words(_joined(content.macs_share, lambda share: f"{share:.1%}") or "not known"),
        words(_joined(content.weight_bytes, mebibytes)),
        *(optional(count, str) for count in (content.casts, content.quantizers, content.dequantizers)),
        Cell(str(len(left)), len(left), "warn" if lie else None),
        words(_joined(content.softmax, str) or "none"),
        words(_joined(content.normalization, str) or "none"),
        words(content.shape or "every symbol 1"),
        optional(content.macs, str),
        words(", ".join(product.name for product in left)),
        words(document.file),
    ]


def _joined(parts: Mapping[str, float] | None, write: Callable[[float], str]) -> str:
    """`float16 98.2%, float32 1.8%`: types with a thousandth of the whole or more."""
    parts = parts or {}
    total = sum(parts.values())
    return ", ".join(f"{name} {write(value)}" for name, value in parts.items() if value >= total / 1000)


SECTION = Section(
    name="graphs",
    title="What the graphs compute in",
    place=290,
    build=build,
)
