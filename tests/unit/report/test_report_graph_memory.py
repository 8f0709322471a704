"""What the report says of CUDA graphs' memory."""

from __future__ import annotations

from typing import Any

from tests.unit.facts import facts
from tests.unit.graph_records import graphs_of
from tests.unit.report.conftest import evidence_of

from inferprof import report
from inferprof.case import Case
from inferprof.diagnosis import run
from inferprof.report.compose import content_of
from inferprof.report.model import SectionContent, Table, Text
from inferprof.report.sections import graph_memory

CASE = "vit/fp16/torch_eager/private/b16"


def section_of(results: Any) -> SectionContent:
    results.plan()
    return content_of(graph_memory.build, evidence_of(results, None))


def rows(section: SectionContent, name: str) -> list[list[str]]:
    table = next(one for one in section.blocks if isinstance(one, Table) and one.name == name)
    return [[cell.text for cell in row[5:]] for row in table.rows]


def with_graphs(found: dict[str, Any]) -> dict[str, Any]:
    return {"memory": {"host_rss_bytes": 1, "device_bytes": 1, "runtime": {}, "graphs": found}}


def test_a_study_without_graphs_has_no_such_section(results: Any) -> None:
    results.ok(CASE, 8.0, gpu=True)
    assert section_of(results).blocks == ()


def test_all_graphs_and_each_of_them_have_their_memory_and_time(results: Any) -> None:
    results.ok(CASE, 8.0, rounds=2, gpu=True, **with_graphs(graphs_of()))
    section = section_of(results)
    assert rows(section, "graph_memory") == [
        ["private", "ascending", "3", "3", "210", "0.0820", "160", "420", "0.0820", "630", "150.0"]
    ]
    assert rows(section, "graph_worth") == [
        ["1", "8.000", "5.000", "3.000", "30.0", "100", "50.00", "0", "yes"],
        ["4", "8.000", "7.000", "1.000", "120", "8.33", "50.00", "0", "yes"],
        ["16", "8.000", "8.000", "0", "480", "0", "50.00", "0", "yes"],
    ]
    assert [row[:4] for row in rows(section, "graph_curve")] == [
        ["0", "–", "0", "300"],
        ["1", "1", "1", "320"],
        ["2", "4", "2", "400"],
        ["3", "16", "3", "720"],
    ]
    assert rows(section, "graph_pools") == [["1.0", "yes", "2", "210", "210", "0", "210"]]


def test_what_the_check_says_of_each_case_stands_first(results: Any) -> None:
    results.ok(CASE, 8.0, gpu=True, **with_graphs(graphs_of(least=100 << 20)))
    case = Case.from_path(CASE)
    document = run.diagnose(results.root, results.machine, case, {})
    results.write(f"{results.machine}/diagnosis/{CASE}.json", document)
    first, *_ = section_of(results).blocks
    assert isinstance(first, Text)
    assert facts(first.text, "graphs")[:6] == ["fp16/torch_eager/private", "b16", "3", "graphs", "210 MiB", "3"]


def test_what_was_not_measured_keeps_its_reason(results: Any) -> None:
    results.ok(CASE, 8.0, gpu=True, **with_graphs({"not_measured": "no GPU"}))
    results.ok(f"{CASE}4", 8.0, gpu=True, **with_graphs(graphs_of(stopped="CUDA out of memory")))
    said = [block.text for block in section_of(results).blocks if isinstance(block, Text)]
    assert [facts(text, "graphs", "memory") for text in said] == [
        [*facts(CASE), "not", "no", "GPU"],
        [*facts(f"{CASE}4"), "no", "more", "graphs", "CUDA", "memory"],
    ]


def test_the_page_has_the_section_and_its_plot(results: Any) -> None:
    results.ok(CASE, 8.0, gpu=True, **with_graphs(graphs_of()))
    results.plan()
    report.write(results.root, results.study, results.machine, None)
    folder = results.root / "reports" / results.study
    assert "Memory of CUDA graphs" in (folder / "REPORT.txt").read_text()
    assert [path.name for path in (folder / "plots").glob("*graph_memory*")] != []
