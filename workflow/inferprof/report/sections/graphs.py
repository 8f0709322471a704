"""The models, how each number format was made of them, and what each ONNX graph really computes in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from inferprof.documents import Audit, Convert
from inferprof.grouping import grouped
from inferprof.report.common import NO_FILE, few, in_mib, onnx_bytes, optional
from inferprof.report.documents import Document
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, words
from inferprof.report.numbers import mebibytes
from inferprof.report.section import section

MODEL_COLUMNS = (
    Column("model", "model"),
    Column("precision", "precision"),
    Column("made", "how it was made"),
    Column("mib", "MiB", "number"),
    Column("options", "options", hidden=True),
    Column("sha256", "SHA-256", hidden=True),
    Column("file", "file", "path", hidden=True),
)


@section("models", "Models and number formats", place=270)
def models(evidence: Evidence) -> Sequence[Block]:
    """One row per ONNX file, then what is not reproducible."""
    documents = {pair: evidence.documents[(*pair, "convert")] for pair in evidence.variants}
    rows = tuple(tuple(_model(evidence, *pair, document)) for pair, document in documents.items())
    blocks: list[Block] = [Table("models", "", MODEL_COLUMNS, rows, groups=1)]
    unlike = grouped(
        (what, f"{model} {precision}")
        for (model, precision), document in documents.items()
        for what in (document.content and document.content.not_reproducible) or ()
    )
    blocks += [
        Text(f"{few(names)}: not reproducible to the bit: {what}.", "item", "warn") for what, names in unlike.items()
    ]
    return blocks


def _model(evidence: Evidence, model: str, precision: str, document: Document[Convert]) -> list[Cell]:
    content = document.content
    if content is None:
        lacking = missing(document.lacking)
        return [words(model), words(precision), *[lacking] * (len(MODEL_COLUMNS) - 3), words(document.file)]
    options = ", ".join(f"{name}={value}" for name, value in content.options.items())
    return [
        words(model),
        words(precision),
        words(_how(content)),
        in_mib(onnx_bytes(evidence, model, precision), NO_FILE),
        words(options),
        words(content.sha256 or ""),
        words(document.file),
    ]


def _how(content: Convert) -> str:
    """The conversion's method; of an export where the weights come from."""
    parts = (content.method, content.architecture, content.origin)
    return ", ".join(part for part in parts if part) or "not recorded"


AUDIT_COLUMNS = (
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


@section("graphs", "What the graphs compute in", place=290)
def graphs(evidence: Evidence) -> Sequence[Block]:
    """One row per ONNX file, then the advice; advice that several formats or models share stands once."""
    documents = {pair: evidence.documents[(*pair, "audit")] for pair in evidence.variants}
    rows = tuple(tuple(_audit(*pair, document)) for pair, document in documents.items())
    note = (
        "Wider products: matrix products and convolutions that compute in more bits than the format promises. "
        "Types under a thousandth of the whole are left out."
    )
    shared = grouped(
        ((model, line), precision)
        for (model, precision), document in documents.items()
        for line in (document.content and document.content.advice) or ()
    )
    alike = grouped(((", ".join(precisions), line), model) for (model, line), precisions in shared.items())
    advice = [
        Text(f"{', '.join(models)} {precisions}: {line}", "item") for (precisions, line), models in alike.items()
    ]
    blocks: list[Block] = [Table("audit", "", AUDIT_COLUMNS, rows, note, groups=1)]
    return (*blocks, *([Text("Advice:")] if advice else []), *advice)


def _audit(model: str, precision: str, document: Document[Audit]) -> list[Cell]:
    content = document.content
    if content is None:
        lacking = missing(document.lacking)
        return [words(model), words(precision), *[lacking] * (len(AUDIT_COLUMNS) - 3), words(document.file)]
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
