"""What the report says of cases under load."""

from __future__ import annotations

from typing import Any

from tests.unit.facts import mentions
from tests.unit.report.conftest import evidence_of
from tests.unit.serving_records import content_of as content
from tests.unit.serving_records import load

from inferprof import report
from inferprof.case import Case
from inferprof.diagnosis import run
from inferprof.report.compose import content_of
from inferprof.report.model import SectionContent, Table, Text
from inferprof.report.sections import serving

CASE = "vit/fp32/ort_cpu/default/b8"


def serve(results: Any, name: str, case: str = CASE, **more: Any) -> None:
    results.write(f"{results.machine}/serving/{name}/{case}.json", content(name, case, results.machine, **more))


def policy_of(name: str, **given: Any) -> dict[str, Any]:
    asked = {"name": name, "policy": "dynamic", "max_batch": 8, "max_delay_ms": 50, "slo_ms": 60}
    return asked | given


def section_of(results: Any) -> SectionContent:
    results.plan()
    return content_of(serving.build, evidence_of(results, None))


def table_of(section: SectionContent, name: str) -> Table:
    return next(block for block in section.blocks if isinstance(block, Table) and block.name == name)


def shown(table: Table) -> list[list[str]]:
    return [[row[index].text for index in table.shown] for row in table.rows]


def answer(results: Any, check: str, case: str = CASE) -> dict[str, Any]:
    results.plan()
    document = run.diagnose(results.root, results.machine, Case.from_path(case), {})
    results.write(f"{results.machine}/diagnosis/{case}.json", document)
    (result,) = [each for each in document["answers"] if each["check"] == check]
    return dict(result)


def test_a_study_without_load_has_no_such_section(results: Any) -> None:
    results.ok(CASE, 10.0)
    assert section_of(results).blocks == ()


def test_what_was_predicted_stands_beside_what_came(results: Any) -> None:
    results.ok(CASE, 10.0)
    serve(results, "slow")
    head = ["vit", "fp32/ort_cpu/default", "slow", "400"]
    cells = ["0.500", "12.00", "11.50", "60.00", "58.00", "+5", "2.000"]
    assert shown(table_of(section_of(results), "serving")) == [[*head, *cells]]
    cells = ["5.000", "7.000", "2.67", "75.0", "0.1000", "0.300", "4,000"]
    assert shown(table_of(section_of(results), "serving_server")) == [[*head, *cells]]


def test_each_prediction_has_its_verdict_and_what_differs_most(results: Any) -> None:
    results.ok(CASE, 10.0)
    foreseen = {"latency": {"mean": 11.5e6, "p99": 50e6}, "utilization": 0.7, "mean_batch": 2.6}
    far = foreseen | {"intervals": {"mean": [10e6, 13e6], "p99": [40e6, 55e6]}}
    near = foreseen | {"latency": {"mean": 10e6, "p99": 58e6}, "intervals": {"mean": [9e6, 13e6]}}
    serve(results, "slow", loads=[load(predicted=far), load(predicted=near, rate=500.0)])
    section = section_of(results)
    rows = shown(table_of(section, "serving_gaps"))
    assert [row[4:11] for row in rows] == [
        ["mean", "12.00", "9.000", "11.50", "10.00", "13.00", "11.90"],
        ["p99", "60.00", "40.00", "50.00", "40.00", "55.00", "59.00"],
        ["mean", "12.00", "9.000", "10.00", "9.000", "13.00", "11.90"],
        ["p99", "60.00", "40.00", "58.00", "–", "–", "59.00"],
    ]
    assert [row[11] for row in rows] == ["yes", "no", "interval", "yes"]
    assert mentions(rows[1][12], "services", "+7 %")
    texts = [block.text for block in section.blocks if isinstance(block, Text)]
    assert any(
        mentions(text, "4 predictions", "2 are within", "1 more", "beyond both 1", "services") for text in texts
    )


def test_a_refused_rate_is_marked_and_says_why(results: Any) -> None:
    results.ok(CASE, 10.0)
    refused = {"rate": 960.0, "share": 1.2, "refused": "unstable, not measured: beyond 800/s"}
    serve(results, "slow", loads=[refused])
    section = section_of(results)
    row = shown(table_of(section, "serving"))[0]
    assert row[3:5] == ["960*", "1.20"] and set(row[5:]) == {"–"}
    assert any(mentions(block.text, "slow", "960", "unstable") for block in section.blocks if isinstance(block, Text))


def test_the_highest_rate_has_its_bracket_and_what_was_predicted(results: Any) -> None:
    results.ok(CASE, 10.0)
    highest = {
        "rate": 500.0,
        "high": 508.0,
        "low": 490.0,
        "change": 0.12,
        "predicted": 512.0,
        "ended": "bracketed",
        "probes": [],
    }
    serve(results, "slow", highest=highest)
    table = table_of(section_of(results), "serving_highest")
    cells = ["p99 ≤ 60 ms", "500.0", "490.0", "508.0", "12.00", "512.0", "800.0", "0", "bracketed"]
    assert shown(table) == [["vit", "fp32/ort_cpu/default", "slow", *cells]]


def test_the_winner_turns_from_single_requests_to_batches_as_the_rate_grows(results: Any) -> None:
    results.ok(CASE, 10.0)
    results.ok("vit/fp32/ort_cpu/default/b1", 3.0)
    serve(results, "slow")
    serve(results, "single", "vit/fp32/ort_cpu/default/b1")
    rows = shown(table_of(section_of(results), "serving_policies"))
    assert [row[2] for row in rows] == ["80.0", "240", "400", "560", "720"]
    assert [row[3] for row in rows] == ["single", "single", "slow", "slow", "slow"]
    assert rows[-1][-1] == "single –"


def test_one_line_says_which_policy_to_use_up_to_which_rate_and_which_delay_to_set(results: Any) -> None:
    results.ok(CASE, 10.0)
    results.ok("vit/fp32/ort_cpu/default/b1", 3.0)
    serve(results, "slow", loads=[load(), load(rate=600.0, advised_delay_ns=0.0)])
    serve(results, "single", "vit/fp32/ort_cpu/default/b1")
    (line,) = [block.text for block in section_of(results).blocks if isinstance(block, Text) and "use" in block.text]
    assert mentions(line, "vit fp32/ort_cpu/default", "p99", "single to 240", "slow from 400")
    assert mentions(line, "max_batch 8", "max_delay_ms to 2.00 at 400/s", "0 at 600/s")


def test_a_policy_that_is_best_at_every_rate_and_a_rate_that_none_carries_are_said_so(results: Any) -> None:
    results.ok(CASE, 10.0)
    serve(results, "slow")
    serve(results, "slower", policy=policy_of("slower", max_delay_ms=90))
    texts = [block.text for block in section_of(results).blocks if isinstance(block, Text)]
    assert any(mentions(text, "use slow at every rate") for text in texts)


def test_loadgen_stands_beside_our_clock_and_where_it_lacks_says_why(results: Any) -> None:
    results.ok(CASE, 10.0)
    own = {"mean": {"value_ns": 5e6}, "p90": {"value_ns": 8e6}}
    summary = {"Mean latency (ns)": "5100000", "90.00 percentile latency (ns)": "8200000", "Result is": "VALID"}
    runs = [
        {"scenario": "Server", "summary": summary, "own": own, "requests": 100, "per_second": 50.0},
        {"scenario": "Offline", "not_measured": "LoadGen is not installed"},
    ]
    serve(results, "slow", loadgen=runs)
    table = table_of(section_of(results), "serving_loadgen")
    assert [row[3:] for row in shown(table)] == [
        ["Server", "100", "50.0", "5.000", "5.100", "8.000", "8.200", "VALID"],
        ["Offline", *["–"] * 7],
    ]
    assert "LoadGen is not installed" in " ".join(table.footnotes)


def test_the_report_has_the_section_and_its_plot(results: Any) -> None:
    results.ok(CASE, 10.0)
    results.ok("vit/fp32/ort_cpu/default/b1", 3.0)
    serve(results, "slow")
    results.plan()
    written = report.write(results.root, results.study, results.machine, None, 1)
    assert "Under load" in written.read_text(encoding="utf-8")
    assert (written.parent / "plots" / "serving-vit.svg").exists()


# --- the checks ------------------------------------------------------------------------------------------------


def test_a_delay_that_is_too_long_is_found_with_bounds_of_what_a_shorter_one_gains(results: Any) -> None:
    results.ok(CASE, 10.0)
    serve(results, "slow")
    (finding,) = answer(results, "batch_delay")["findings"]
    assert (finding["subject"], finding["bottleneck"], finding["gain"]) == ("slow", "capacity", None)
    assert mentions(finding["reason"], "50 ms", "too long", "p99", "60 ms", "30 ms", "2 ms")
    assert finding["evidence"]["gain_high_ns"] == 30e6
    assert finding["evidence"]["gain_low_ns"] == 50e6 - 1.1 * 30e6
    texts = [block.text for block in section_of(results).blocks if isinstance(block, Text)]
    assert any(mentions(text, "slow", "max_delay_ms: 2") for text in texts)


def test_a_delay_that_is_too_short_is_found_too_and_one_that_is_right_is_not(results: Any) -> None:
    results.ok(CASE, 10.0)
    serve(results, "slow", loads=[load(advised_delay_ns=80e6)])
    assert mentions(answer(results, "batch_delay")["findings"][0]["reason"], "too short")
    serve(results, "slow", loads=[load(advised_ns=55e6)])
    assert answer(results, "batch_delay")["verdict"] == "clear"
    serve(results, "slow", loads=[load(advised_delay_ns=50e6)])  # it is set, whatever is predicted of it
    assert answer(results, "batch_delay")["verdict"] == "clear"


def test_a_run_that_was_refused_advises_no_delay(results: Any) -> None:
    results.ok(CASE, 10.0)
    serve(results, "slow", loads=[load(refused="the client sent late")])
    said = answer(results, "batch_delay")
    assert said["verdict"] == "not assessed"
    assert mentions(said["reason"], "needs", "not refused")


def test_a_cap_below_saturation_is_found_by_a_larger_measured_batch(results: Any) -> None:
    small = "vit/fp32/ort_cpu/default/b2"
    results.ok(small, 4.0)
    results.ok(CASE, 10.0)
    serve(results, "capped", small)
    (finding,) = answer(results, "batch_cap", small)["findings"]
    assert finding["evidence"]["larger_batch"] == 8
    assert 250 < finding["evidence"]["gain_high_per_s"] < 350
    serve(results, "slow")
    assert mentions(answer(results, "batch_cap")["reason"], "needs", "larger batch")


def test_a_rate_beyond_the_capacity_is_found(results: Any) -> None:
    results.ok(CASE, 10.0)
    serve(results, "slow", loads=[{"rate": 960.0, "share": 1.2, "refused": "unstable, not measured: beyond 800/s"}])
    (finding,) = answer(results, "serving_rate")["findings"]
    assert finding["evidence"] == {"rate": 960.0, "capacity": 800.0, "excess_per_s": 160.0}
    serve(results, "slow")
    assert answer(results, "serving_rate")["verdict"] == "clear"


def test_a_case_that_nobody_put_under_load_is_not_assessed(results: Any) -> None:
    results.ok(CASE, 10.0)
    for check in ("batch_delay", "batch_cap", "serving_rate"):
        assert mentions(answer(results, check)["reason"], "needs", "under load", "`serving:`")


def test_what_loadgens_summary_says_that_is_no_number_is_missing(results: Any) -> None:
    results.ok(CASE, 10.0)
    for said in ("\u00b2", "nan", "-1", "1.2.3", ""):
        summary = {"Mean latency (ns)": said, "Result is": "INVALID"}
        serve(results, "slow", loadgen=[{"scenario": "Server", "summary": summary, "requests": 5}])
        (row,) = shown(table_of(section_of(results), "serving_loadgen"))
        assert row[7] == "–" and row[-1] == "INVALID"


def test_a_search_that_could_not_tell_is_no_rate_that_is_too_high(results: Any) -> None:
    results.ok(CASE, 10.0)
    quantile = {"value_ns": 9e7, "low_ns": 8e7}
    late = load(refused="the client sent late: 9 ms")
    for loads, refused, verdict in (([late], late["refused"], "not assessed"), (None, None, "found")):
        probe = {"rate": 80.0, "meets": False, "latency": quantile, "refused": refused}
        highest = {"not_measured": "no rate is known", "probes": [probe]}
        serve(results, "slow", loads=loads, highest=highest)
        assert answer(results, "serving_rate")["verdict"] == verdict
