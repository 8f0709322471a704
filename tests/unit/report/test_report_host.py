"""What the section on latency says of the host's own speed."""

from typing import Any

import pytest
from tests.unit.facts import facts
from tests.unit.report.conftest import evidence_of

from inferprof.case import Case
from inferprof.diagnosis import run
from inferprof.report import compose, txt
from inferprof.report.model import Table, Text

STEADY, SLOWED = [1_000_000] * 24, [1_000_000] * 14 + [1_500_000] * 10


def host(on_cpu: list[int], steal: float | None = 0.0, waited: int = 0) -> dict[str, Any]:
    told = {"not_measured": "no /proc/stat"} if steal is None else {"percent": steal}
    return {"yardstick_ns": [ns + waited for ns in on_cpu], "yardstick_cpu_ns": on_cpu, "steal": told}


def case(batch: int) -> str:
    return f"vit/fp32/ort_cpu/default/b{batch}"


@pytest.fixture
def latency(results):
    """Writes the study and gives the blocks of the section, and the whole text."""

    def of() -> tuple[list[Any], str]:
        results.plan()
        report = compose.compose(evidence_of(results, None))
        section = next(one for one in report.sections if one.title == "Latency")
        return list(section.blocks), txt.render(report)

    return of


def table_of(blocks: list[Any]) -> Table:
    return next(one for one in blocks if isinstance(one, Table) and one.name == "host")


def warnings_of(blocks: list[Any]) -> list[str]:
    return [one.text for one in blocks if isinstance(one, Text) and one.mark == "warn"]


def test_cases_during_which_the_host_varied_are_counted_and_named(results, latency):
    results.ok(case(1), 10.0, host=host(SLOWED, steal=2.5))
    results.ok(case(2), 20.0, host=host(STEADY))
    results.ok(case(4), 40.0, host=host(STEADY))
    blocks, text = latency()
    assert [facts(text) for text in warnings_of(blocks)] == [["1.50", "launches", "1", "3", *facts(f"{case(1)}")]]
    table = table_of(blocks)
    cells = {column.key: cell.text for column, cell in zip(table.columns, table.rows[0], strict=True)}
    assert (cells["spread"], cells["yardstick_ms"], cells["steal_percent"]) == ("1.50", "1.000", "2.5")
    assert cells["readings"] == "24"
    assert "host ×" in text


def test_a_thread_that_waited_for_its_core_is_told_apart(results, latency):
    results.ok(case(1), 10.0, host=host(STEADY, waited=1_000_000))
    results.ok(case(2), 20.0, host=host(STEADY))
    blocks, _ = latency()
    assert [facts(text) for text in warnings_of(blocks)] == [["50 %", "1", "2", *facts(f"{case(1)}")]]
    cells = {column.key: row for column, row in zip(table_of(blocks).columns, table_of(blocks).rows[0], strict=True)}
    assert (cells["spread"].text, cells["waited_percent"].value) == ("1.00", 50.0)


def test_of_a_steady_host_the_table_is_in_the_csv_alone(results, latency):
    results.ok(case(1), 10.0, host=host(STEADY))
    results.ok(case(2), 20.0, host=host([1_020_000] * 24))
    blocks, text = latency()
    assert (table_of(blocks).csv_only, warnings_of(blocks)) == (True, [])
    assert "csv/host.csv" in text


def test_a_host_that_was_slower_for_whole_cases_is_told_between_them(results, latency):
    results.ok(case(1), 10.0, host=host(STEADY))
    results.ok(case(2), 20.0, host=host([1_450_000] * 24))
    (warning,) = warnings_of(latency()[0])
    assert facts(warning) == [
        "1.45",
        *facts(f"{case(1)}"),
        "1.000 ms",
        *facts(f"{case(2)}"),
        "1.450 ms",
        "launches",
        "no",
    ]


def test_few_readings_and_no_steal_are_missing_with_their_reasons(results, latency):
    results.ok(case(1), 10.0, host=host(STEADY[:3], steal=None))
    (row,) = table_of(latency()[0]).rows
    by_key = dict(zip(("spread", "yardstick_ms", "waited_percent", "steal_percent"), row[5:9], strict=True))
    assert facts(by_key["spread"].missing, "readings", "spread") == ["not", "3", "readings", "spread", "10"]
    assert by_key["yardstick_ms"].value == 1.0
    assert by_key["steal_percent"].missing == "not measured: no /proc/stat"


def test_records_of_a_version_without_it_say_that_it_was_not_measured(results, latency):
    results.ok(case(1), 10.0)
    blocks, _ = latency()
    said = [one.text for one in blocks if isinstance(one, Text) and "own speed" in one.text]
    assert [facts(text) for text in said] == [["not", "without"]]
    assert not [one for one in blocks if isinstance(one, Table) and one.name == "host"]


def test_the_configs_threshold_holds_for_the_report_too(results, latency):
    results.ok(case(1), 10.0, gpu=True, host=host(SLOWED))
    document = run.diagnose(results.root, results.machine, Case.from_path(case(1)), {"host_spread": 2.0})
    results.write(f"{results.machine}/diagnosis/{case(1)}.json", document)
    assert warnings_of(latency()[0]) == []
