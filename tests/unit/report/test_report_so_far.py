"""A report while the study runs: what is still to come is neither refused nor failed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.unit.facts import mentions
from tests.unit.report.conftest import Results

from inferprof import report


def so_far(results: Results) -> str:
    results.plan()
    written = report.write_so_far(results.root, results.study, results.machine, "fp32/ort_cpu/default", "first")
    assert written == Path(results.root, "reports", results.study, "REPORT.first.txt")
    return " ".join(written.read_text(encoding="utf-8").split())


def test_cases_to_come_are_counted_as_such_and_not_as_refused(results: Results) -> None:
    results.ok("vit/fp32/ort_cpu/default/b8", 10.0)
    results.broken("vit/int8/ort_cpu/default/b8")
    results.broken("bert/fp32/ort_cpu/default/b8")
    results.refused("vit/fp32/ort_cpu/graph/b8", "ort_cpu has no option cuda_graph")
    text = so_far(results)
    assert mentions(text, "4 cases", "1 measured", "2 to come", "1 refused")
    assert mentions(text, "1 of 3 cases")


def test_a_model_whose_cases_are_all_to_come_has_an_answer_that_waits(results: Results) -> None:
    results.ok("vit/fp32/ort_cpu/default/b8", 10.0)
    results.broken("bert/fp32/ort_cpu/default/b8")
    results.broken("bert/fp16/ort_cpu/default/b8")
    results.refused("minilm/fp32/ort_cpu/graph/b8", "ort_cpu has no option cuda_graph")
    results.broken("minilm/fp32/ort_cpu/default/b8")
    text = so_far(results)
    answers = text.partition("Answer ------ ")[2]
    assert answers.count("Use nothing yet.") == 2
    assert mentions(answers, "1 case of it", "2 cases of it")
    assert "refused and failed" not in answers
    assert "Use fp32/ort_cpu/default, 10" in answers


def test_one_round_so_far_is_not_said_to_be_all_that_there_will_be(results: Results) -> None:
    results.ok("vit/fp32/ort_cpu/default/b8", 10.0)
    text = so_far(results)
    assert "R = 1" not in text
    assert "first round" in text


def test_the_page_and_the_tables_that_it_names_are_there_until_those_of_a_whole_report_are(results: Results) -> None:
    results.ok("vit/fp32/ort_cpu/default/b8", 10.0)
    results.broken("bert/fp32/ort_cpu/default/b8")
    named = set(re.findall(r"csv/\w+\.csv", so_far(results)))
    folder = results.root / "reports" / results.study
    assert named and all((folder / name).exists() for name in named)
    assert "SO FAR" in (folder / "REPORT.html").read_text(encoding="utf-8")
    (folder / "REPORT.txt").write_text("whole", encoding="utf-8")
    (folder / "REPORT.html").write_text("whole", encoding="utf-8")
    so_far(results)
    assert (folder / "REPORT.html").read_text(encoding="utf-8") == "whole"


def now(results: Results) -> Path:
    return report.write_so_far(results.root, results.study, results.machine, "fp32/ort_cpu/default", report.NOW)


def test_the_report_by_now_waits_for_nothing_not_even_the_list_of_cases(results: Results) -> None:
    assert "0 cases: none." in now(results).read_text(encoding="utf-8")
    results.ok("vit/fp32/ort_cpu/default/b8", 10.0)
    written = now(results)
    assert written.name == "REPORT.now.txt"
    assert "Use   fp32/ort_cpu/default" in written.with_name(report.ANSWER).read_text(encoding="utf-8")


def test_the_report_by_now_of_a_study_that_is_done_is_its_report(results: Results) -> None:
    results.ok("vit/fp32/ort_cpu/default/b8", 10.0)
    results.plan()
    done = report.write(results.root, results.study, results.machine)
    assert now(results) == done
    results.broken("vit/fp16/ort_cpu/default/b8")
    results.plan()
    os.utime(done.with_name("cases.csv"), ns=(done.stat().st_mtime_ns + 1,) * 2)
    assert now(results).name == "REPORT.now.txt"
