"""Results with files that inferprof did not write: left out of a report by name, or one line and exit code 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.report.conftest import evidence_of

from inferprof import cli, files
from inferprof.report.common import path_of
from inferprof.report.documents import Reader
from inferprof.tables.records import rows_of

CASE = "vit_tiny/fp32/ort_cpu/default/b1"
DAMAGE = {
    "{}": "{}",
    "list": "[]",
    "word": '"x"',
    "null": "null",
    "half": '{"schema": 1, "ca',
    "empty": "",
    "binary": "\0",
}
LEFT_OUT = (
    "onnx/vit_tiny/fp16.convert.json",
    "onnx/vit_tiny/fp16.audit.json",
    "onnx/vit_tiny/fp16.accuracy.json",
    "onnx/vit_tiny/fp16.partition.json",
    "onnx/vit_tiny/fp32.b1.cost.json",
    "{machine}/environment.json",
    "{machine}/bandwidth.json",
    "{machine}/ceilings.json",
    f"{{machine}}/diagnosis/{CASE}.json",
    f"{{machine}}/trtexec/{CASE}.json",
    f"{{machine}}/capture/nsys/{CASE}.record.json",
    "aot-sm120/engine/vit_tiny/fp32/tensorrt_rtx/default/b8.build.json",
    "reports/{study}/profilers.json",
)
FREE = ("convert.json", "record.json", "profilers.json")
"""Nothing in them must be there, so that {} is none the less one."""
ADVICE = "not what inferprof writes: move it away and run the study again"


def run(study: Any, *verb: str) -> int:
    return cli.main([*verb, str(study.root), "--study", study.study, "--machine", study.machine])


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_report_names_what_it_leaves_out(cpu_study: Any, damage: str) -> None:
    names = [name.format(machine=cpu_study.machine, study=cpu_study.study) for name in LEFT_OUT]
    for name in names:
        cpu_study.write(name, DAMAGE[damage])
    assert run(cpu_study, "report", "--partial") == 0
    text = (cpu_study.root / "reports" / cpu_study.study / "REPORT.partial.txt").read_text(encoding="utf-8")
    said = " ".join(text[text.index("Files left out") :].split())
    expected = [name for name in names if damage != "{}" or not name.endswith(FREE)]
    assert [name for name in names if f"{name}: " in said or f"{name} is not JSON" in said] == expected
    assert said.count(ADVICE) >= len(expected)
    assert str(cpu_study.root) not in said


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("verb", [("report", "--partial"), ("bundle",)], ids=["report", "bundle"])
def test_without_what_all_rests_on_there_is_one_line(
    cpu_study: Any, capsys: pytest.CaptureFixture[str], verb: tuple[str, ...], damage: str
) -> None:
    path = cpu_study.root / "reports" / cpu_study.study / "cases.csv"
    path.write_text(DAMAGE[damage], encoding="utf-8")
    assert run(cpu_study, *verb) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith(f"inferprof: {path}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "top level: "),
        ("[]", "top level: "),
        (
            '{"outcome": "pass", "reason": 7, "outputs": {}, "tolerance": {"passes_db": 1, "warns_db": 1}}',
            "reason: ",
        ),
    ],
)
def test_what_is_wrong_with_a_document_is_said_with_its_place(cpu_study: Any, content: str, message: str) -> None:
    cpu_study.write("onnx/x/fp16.accuracy.json", content)
    reader = Reader(cpu_study.root, None)  # type: ignore[arg-type]
    found = reader.read(cpu_study.root / "onnx/x/fp16.accuracy.json", "accuracy")
    assert found.content is None
    assert found.lacking.startswith(f"onnx/x/fp16.accuracy.json: {message}") and found.lacking.endswith(ADVICE)
    assert reader.damaged == [found]


def test_a_line_of_cases_that_is_cut_short_is_named(cpu_study: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path: Path = cpu_study.root / "reports" / cpu_study.study / "cases.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:3], lines[3][:30]]), encoding="utf-8")
    assert run(cpu_study, "report", "--partial") == 2
    said = f"inferprof: {path}: line 4: cut short, or its outcome is none of run, refused, failed; {ADVICE}\n"
    assert capsys.readouterr().err == said


def damage_records(study: Any, content: str) -> list[str]:
    """The paths below the results of the records of a case, all of which are damaged."""
    paths = sorted((study.root / study.machine / "benchmark" / CASE).glob("r*.json"))
    for path in paths:
        path.write_text(content, encoding="utf-8")
    return [path.relative_to(study.root).as_posix() for path in paths]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_costs_its_case_alone(
    cpu_study: Any, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    measured = {path_of(row) for row in rows_of(evidence_of(cpu_study).measured)}
    names = damage_records(cpu_study, DAMAGE[damage])
    files.left_out.cache_clear()
    assert run(cpu_study, "report") == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith(f"inferprof: left out: {name}") for line, name in zip(lines, names, strict=True)]
    assert all(line.endswith(ADVICE) for line in lines)
    evidence = evidence_of(cpu_study)
    assert {path_of(row) for row in rows_of(evidence.measured)} == measured - {CASE}
    (broken,) = evidence.of("broken")["reason"]
    assert all(name in broken for name in names)
    text = (cpu_study.root / "reports" / cpu_study.study / "REPORT.txt").read_text(encoding="utf-8")
    assert " ".join(text.split()).count(names[0]) >= 2  # left out, and why its case is not there


def test_a_bundle_is_made_without_a_damaged_record_and_says_so(
    cpu_study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *_ = damage_records(cpu_study, DAMAGE["half"])
    assert run(cpu_study, "bundle", "--out", str(tmp_path / "x.zip")) == 0
    assert f"read: {name}" in capsys.readouterr().out
    assert cli.main(["unbundle", str(tmp_path / "x.zip"), "--out", str(tmp_path / "x"), "--report"]) == 0
    assert not (tmp_path / "x" / name).exists()


def test_a_model_that_nothing_could_be_planned_of_is_reported_with_the_reason(cpu_study: Any) -> None:
    cpu_study.cases.append(("cut/fp32/ort_cpu/default/b1", "failed", "models/cut.onnx is not readable"))
    cpu_study.plan()
    assert run(cpu_study, "report") == 0
    text = (cpu_study.root / "reports" / cpu_study.study / "REPORT.txt").read_text(encoding="utf-8")
    said = " ".join(text[text.index("\nFailed cases") :].split())
    assert "models/cut.onnx is not readable" in said
    document = evidence_of(cpu_study).documents["cut", "fp32", "convert"]
    assert document.lacking == "models/cut.onnx is not readable"


def test_a_damaged_table_costs_itself_alone(cpu_study: Any) -> None:
    name = f"{cpu_study.machine}/table/kineto/{CASE}.parquet"
    cpu_study.write(name, "no table")
    evidence = evidence_of(cpu_study)
    assert [document.file for document in evidence.damaged] == [name]
    assert len(evidence.measured)


@pytest.mark.parametrize("samples", ["[1, 2, null]", '["1"]', "[]", '{"0": 1}'])
def test_samples_are_numbers(cpu_study: Any, capsys: pytest.CaptureFixture[str], samples: str) -> None:
    path = cpu_study.root / cpu_study.machine / "benchmark" / CASE / "r0.json"
    record = cpu_study.record(CASE, 0)
    record["boundaries"] = {"call": {"samples_ns": "SAMPLES"}}
    cpu_study.write(f"{cpu_study.machine}/benchmark/{CASE}/r0.json", record)
    path.write_text(path.read_text(encoding="utf-8").replace('"SAMPLES"', samples), encoding="utf-8")
    assert run(cpu_study, "report", "--partial") == 0
    assert f"{CASE}/r0.json: boundaries.call.samples_ns" in capsys.readouterr().err
