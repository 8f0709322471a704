"""The diagnoses of the cases, as several sections quote them."""

from __future__ import annotations

from typing import Any

from inferprof.report.common import EXAMPLES, by_case, name_of
from inferprof.report.documents import Document
from inferprof.report.evidence import Evidence
from inferprof.tables.records import KEY, key_of, rows_of

Diagnosis = tuple[dict[str, Any], Document]


def diagnosed(evidence: Evidence) -> list[Diagnosis]:
    """The cases that were diagnosed, by model and shape."""
    documents = {key: document for key, document in evidence.diagnoses.items() if document.content is not None}
    rows = [dict(zip(KEY, key, strict=True)) for key in documents]
    ordered = by_case(rows, evidence.order)
    return [(row, documents[key_of(row)]) for row in ordered]


def measured(evidence: Evidence) -> list[Diagnosis]:
    """The same without those that failed: their reasons stand among the failed cases."""
    failed = {key_of(row) for row in rows_of(evidence.of("failed"))}
    return [(case, document) for case, document in diagnosed(evidence) if key_of(case) not in failed]


def sentences(evidence: Evidence, model: str) -> list[str]:
    """The verdicts on a few cases of a model of which nothing was measured bare."""
    own = [(case, document) for case, document in diagnosed(evidence) if case["model"] == model]
    return [f"{name_of(case)} {case['shape']}: {sentence_of(document)}" for case, document in _headlines(own)]


def sentence_of(document: Document) -> str:
    """The verdict in one sentence."""
    return str(document.get("verdict")["sentence"])


def _headlines(seen: list[Diagnosis]) -> list[Diagnosis]:
    """A few cases of each model, of its first shape; the others are in the table."""
    first: dict[str, list[Diagnosis]] = {}
    for case, document in seen:
        cases = first.setdefault(case["model"], [])
        if len(cases) < EXAMPLES and (not cases or case["shape"] == cases[0][0]["shape"]):
            cases.append((case, document))
    return [pair for cases in first.values() for pair in cases]
