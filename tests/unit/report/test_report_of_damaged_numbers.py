"""Whatever a document says: a report, a diagnosis and a comparison, or one line that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.unit.documents.test_documents import CONTENTS, JUNK, RECORD, damaged, places
from tests.unit.report.conftest import Results, evidence_of

from inferprof import compare, compare_text
from inferprof.case import Case
from inferprof.diagnosis import run
from inferprof.errors import UserError
from inferprof.report import compose, txt

CASE = Case("minilm", "fp16", "ort_cuda", "graph", "b8_s128")
FILES = {
    "record": f"{{machine}}/benchmark/{CASE}/r0.json",
    "watched": f"{{machine}}/capture/nsys/{CASE}.record.json",
    "trtexec": f"{{machine}}/trtexec/{CASE}.json",
    "diagnosis": f"{{machine}}/diagnosis/{CASE}.json",
    "build": f"{{machine}}/engine/{CASE}.build.json",
    "convert": "onnx/minilm/fp16.convert.json",
    "audit": "onnx/minilm/fp16.audit.json",
    "accuracy": "onnx/minilm/fp16.accuracy.json",
    "partition": "onnx/minilm/fp16.partition.json",
    "cost": "onnx/minilm/fp16.b8_s128.cost.json",
    "environment": "{machine}/environment.json",
    "bandwidth": "{machine}/bandwidth.json",
    "ceilings": "{machine}/ceilings.json",
    "profilers": "reports/sample/profilers.json",
}
"""Where a document of each kind lies."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A case on a GPU with a document of each kind, all out of committed bundles and data."""
    results = Results(tmp_path_factory.mktemp("whole"))
    results.cases.append((str(CASE), "run", ""))
    results.plan()
    contents: dict[Any, Any] = {**CONTENTS, "record": json.loads(RECORD.read_text(encoding="utf-8"))}
    for kind, name in FILES.items():
        content = shortened(contents.get(kind, {"status": "failed", "reason": "not in any bundle"}))
        if kind != "profilers":
            content |= {"machine": results.machine} if "machine" in content else {}
            content |= {"shape": CASE.shape} if "shape" in content else {}
            content |= {"case": dict(zip(contents["record"]["case"], CASE.path.parts, strict=True))}
        results.write(name.format(machine=results.machine), content)
    return results


def shortened(value: Any) -> Any:
    """The same with lists of at most 40 entries."""
    if isinstance(value, dict):
        return {name: shortened(entry) for name, entry in value.items()}
    return [shortened(entry) for entry in value[:40]] if isinstance(value, list) else value


def read_all(study: Results) -> None:
    """What report, diagnose and compare make of the folder."""
    txt.render(compose.compose(evidence_of(study, "fp16/ort_cuda/graph")))
    run.diagnose(study.root, study.machine, CASE, {})
    compare_text.render(compare.compare(study.root, study.root))


def test_the_whole_study_is_read(whole: Results) -> None:
    read_all(whole)


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_document_costs_itself_or_is_one_line(whole: Results, kind: str, data: Any) -> None:
    path: Path = whole.root / FILES[kind].format(machine=whole.machine)
    text = path.read_text(encoding="utf-8")
    content = json.loads(text)
    place = data.draw(st.sampled_from(places(content)))
    change = damaged(content, place, data.draw(JUNK), data.draw(st.booleans()))
    path.write_text(json.dumps(change), encoding="utf-8")
    try:
        read_all(whole)
    except UserError as error:
        assert "\n" not in str(error) and str(path) in str(error)
    finally:
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("kind", [kind for kind in FILES if kind not in ("environment", "bandwidth", "profilers")])
def test_a_failed_document_costs_one_row(whole: Results, kind: str) -> None:
    path: Path = whole.root / FILES[kind].format(machine=whole.machine)
    text = path.read_text(encoding="utf-8")
    head = ("schema", "case", "round", "machine", "protocol", "started", "environment")
    content = {name: value for name, value in json.loads(text).items() if name in head}
    path.write_text(json.dumps(content | {"status": "failed", "reason": "no memory", "stage": "load"}))
    try:
        report = txt.render(compose.compose(evidence_of(whole, "fp16/ort_cuda/graph")))
        run.diagnose(whole.root, whole.machine, CASE, {})
        compare_text.render(compare.compare(whole.root, whole.root))
    finally:
        path.write_text(text, encoding="utf-8")
    assert "Files left out" not in report
    told = ("record", "build", "convert", "audit", "accuracy")
    assert "no memory" in report or kind not in told
