"""Lists that would grow with the number of cases are cut: a few names, how many there are, and where the rest is."""

from typing import Any

import pytest
from tests.unit.facts import facts, mentions
from tests.unit.report.conftest import evidence_of

from inferprof.report import compose, html, txt
from inferprof.report.common import enumerated, few
from inferprof.report.model import Report, Text


def composed(results: Any) -> Report:
    found = evidence_of(results, "fp32/ort_cpu/default")
    return compose.compose(found)


def texts_of(report: Report, title: str) -> list[str]:
    section = next(section for section in report.sections if section.title == title)
    return [block.text for block in section.blocks if isinstance(block, Text)]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 of 40 (n0)"),
        (4, "4 of 40 (n0, n1, n2, n3)"),
        (37, "37 of 40 (n0, n1, n2, n3 and 33 more; x.csv)"),
        (40, "all 40"),
    ],
)
def test_of_many_names_four_are_given_with_the_share(count, text):
    assert enumerated([f"n{index}" for index in range(count)], 40, "x.csv") == text


def test_a_name_that_occurs_twice_counts_once():
    assert few(["a", "b", "a"]) == "a, b"


def test_of_unsettled_latencies_four_are_named(results):
    for batch in range(1, 7):
        results.ok(f"vit/fp32/ort_cpu/default/b{batch}", 10.0)
        path = results.root / results.record_path(f"vit/fp32/ort_cpu/default/b{batch}", 0)
        path.write_text(path.read_text().replace('"settled": true', '"settled": false', 1))
    results.plan()
    (doubt,) = [text for text in texts_of(composed(results), "Latency") if "settled" in text]
    names = ", ".join(f"vit/fp32/ort_cpu/default/b{batch} call" for batch in range(1, 5))
    assert facts(doubt, "latency", "settled") == [
        "latency",
        "not",
        "settled",
        "6",
        "12",
        *facts(f"{names}"),
        "2",
        "more",
        "all",
        "CSV",
    ]


def test_engines_that_failed_with_the_same_message_share_it(results):
    for batch in range(1, 7):
        results.refused(f"vit/fp32/tensorrt/default/b{batch}", "no GPU")
        path = f"{results.machine}/engine/vit/fp32/tensorrt/default/b{batch}.build.json"
        results.write(path, {"status": "failed", "reason": "no kernel"})
    results.plan()
    items = [text for text in texts_of(composed(results), "Engines") if text.endswith(": no kernel")]
    assert len(items) == 1
    assert facts(items[0])[-4:] == ["vit/fp32/tensorrt/default/b4", "2", "more", "no"]


def test_files_are_counted_by_the_pattern_of_their_path_and_listed_in_the_csv(cpu_study):
    tables = {table.name: table for table in composed(cpu_study).tables}
    kinds = {row[0].text: row[1].value for row in tables["kinds_of_files"].rows}
    assert (
        kinds[
            f"{cpu_study.machine}/benchmark/{{model}}/{{precision}}/{{backend}}/{{variant}}/{{shape}}/r{{round}}.json"
        ]
        == 13
    )
    assert kinds["onnx/{model}/{precision}.{convert,audit,accuracy}.json"] == 10
    assert tables["files"].csv_only
    files = [row[0].text for row in tables["files"].rows]
    assert len(files) == sum(int(count or 0) for count in kinds.values())
    assert [file for file in files if not (cpu_study.root / file).exists()] == []


def test_a_profiler_that_watched_nothing_is_named_with_the_reason(cpu_study):
    cpu_study.write(f"reports/{cpu_study.study}/profilers.json", {"nsys": "nsys is not on PATH", "kineto": "no GPU"})
    assert [facts(text, "case", "traced") for text in texts_of(composed(cpu_study), "Timeline")] == [
        ["case", "traced"],
        ["nsys", "no", "case", "nsys", "not", "PATH"],
        ["kineto", "no", "case", "no", "GPU"],
    ]


def test_of_many_failures_twenty_are_on_the_page_and_all_in_the_csv(results):
    for batch in range(1, 24):
        results.failed(f"vit/fp32/ort_cpu/default/b{batch}", "out of memory")
    results.plan()
    report = composed(results)
    (table,) = (table for table in report.tables if table.name == "failed")
    assert (len(table.page), len(table.rows)) == (20, 23)
    for written in (txt.render(report), html.render(report)):
        assert written.count("out of memory") == 20 + 1  # the answer has the most frequent reason
        assert mentions(written, "3 more rows in", "csv/failed.csv")
