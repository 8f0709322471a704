"""The diagnoses of the cases, as several sections quote them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inferprof.documents import Diagnosis
from inferprof.documents.diagnosed import Finding, Verdict
from inferprof.grouping import grouped
from inferprof.report.common import EXAMPLES, by_case, few, name_of
from inferprof.report.evidence import Evidence
from inferprof.tables.records import KEY, key_of, rows_of

Diagnosed = tuple[dict[str, Any], Diagnosis]


def diagnosed(evidence: Evidence) -> list[Diagnosed]:
    """The cases that were diagnosed, by model and shape."""
    documents = {key: document.content for key, document in evidence.diagnoses.items() if document.content}
    rows = [dict(zip(KEY, key, strict=True)) for key in documents]
    ordered = by_case(rows, evidence.order)
    return [(row, documents[key_of(row)]) for row in ordered]


def findings(evidence: Evidence, *checks: str) -> Iterator[tuple[dict[str, Any], Finding]]:
    """What some checks found, each with its case."""
    for case, document in diagnosed(evidence):
        for answer in document.answers or ():
            yield from ((case, finding) for finding in answer.findings if answer.check in checks)


def measured(evidence: Evidence) -> list[Diagnosed]:
    """The same without those that failed: their reasons stand among the failed cases."""
    failed = {key_of(row) for row in rows_of(evidence.of("failed"))}
    return [(case, document) for case, document in diagnosed(evidence) if key_of(case) not in failed]


def sentences(evidence: Evidence, model: str) -> list[str]:
    """The verdicts on a few cases of a model of which nothing was measured bare; one for those that share it."""
    own = [(case, document) for case, document in diagnosed(evidence) if case["model"] == model]
    cases = grouped((sentence_of(document), f"{name_of(case)} {case['shape']}") for case, document in _headlines(own))
    return [f"{few(names)}: {sentence}" for sentence, names in cases.items()]


def verdict_of(document: Diagnosis) -> Verdict:
    """What its answers come to; that of a stage that failed is left out."""
    assert document.verdict is not None
    return document.verdict


def sentence_of(document: Diagnosis) -> str:
    """The verdict in one sentence."""
    return verdict_of(document).sentence


def _headlines(seen: list[Diagnosed]) -> list[Diagnosed]:
    """A few cases of each model, of its first shape; the others are in the table."""
    first: dict[str, list[Diagnosed]] = {}
    for case, document in seen:
        cases = first.setdefault(case["model"], [])
        if len(cases) < EXAMPLES and (not cases or case["shape"] == cases[0][0]["shape"]):
            cases.append((case, document))
    return [pair for cases in first.values() for pair in cases]
