"""The models and how each number format was made of them."""

from __future__ import annotations

from collections.abc import Sequence

from inferprof.documents import Convert
from inferprof.report.common import NO_FILE, few, in_mib, onnx_bytes
from inferprof.report.documents import Document
from inferprof.report.evidence import Evidence
from inferprof.report.model import Block, Cell, Column, Table, Text, missing, words
from inferprof.report.section import Section

COLUMNS = (
    Column("model", "model"),
    Column("precision", "precision"),
    Column("made", "how it was made"),
    Column("mib", "MiB", "number"),
    Column("options", "options", hidden=True),
    Column("sha256", "SHA-256", hidden=True),
    Column("file", "file", "path", hidden=True),
)


def build(evidence: Evidence) -> Sequence[Block]:
    """One row per ONNX file, then what is not reproducible."""
    documents = {pair: evidence.documents[(*pair, "convert")] for pair in evidence.variants}
    rows = tuple(tuple(_row(evidence, *pair, document)) for pair, document in documents.items())
    blocks: list[Block] = [Table("models", "", COLUMNS, rows, groups=1)]
    unlike: dict[str, list[str]] = {}
    for (model, precision), document in documents.items():
        for what in (document.content and document.content.not_reproducible) or ():
            unlike.setdefault(what, []).append(f"{model} {precision}")
    blocks += [
        Text(f"{few(names)}: not reproducible to the bit: {what}.", "item", "warn") for what, names in unlike.items()
    ]
    return blocks


def _row(evidence: Evidence, model: str, precision: str, document: Document[Convert]) -> list[Cell]:
    content = document.content
    if content is None:
        lacking = missing(document.lacking)
        return [words(model), words(precision), *[lacking] * (len(COLUMNS) - 3), words(document.file)]
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


SECTION = Section(
    name="models",
    title="Models and number formats",
    place=270,
    build=build,
)
