"""What a report must not claim: nine things that it once did, each as a kind."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import mentions
from tests.unit.report.conftest import Results, evidence_of, series

from inferprof import compare, report
from inferprof.findings import Gain, Total
from inferprof.report import answers, compose, txt, winner
from inferprof.report.answers import Answer
from inferprof.report.sections import answer as answer_section
from inferprof.report.sections import use
from inferprof.tables import gate, records, tries
from inferprof.tables.limits import tile_trials

MODEL = "vit/fp16/ort_cuda"
BASELINE = "fp16/ort_cuda/default"


def answer_of(results: Results, baseline: str = BASELINE) -> Answer:
    (answer,) = answers.of(evidence_of(results, baseline))
    return answer


def change(results: Results, case: str, **changes: Any) -> None:
    """Change the record of a case's first round; `boundaries` are merged."""
    path = results.root / results.record_path(case, 0)
    record = json.loads(path.read_text(encoding="utf-8"))
    for boundary, entries in changes.pop("boundaries", {}).items():
        record["boundaries"][boundary] |= entries
    path.write_text(json.dumps(record | changes), encoding="utf-8")


def rows_of(folder: Path, table: str) -> list[dict[str, str]]:
    """The rows of a table of a report."""
    return list(csv.DictReader((folder / f"csv/{table}.csv").read_text(encoding="utf-8").splitlines()))


def worth(results: Results) -> list[str]:
    """The cases that the table of break-even names."""
    tables = use.break_even(evidence_of(results, BASELINE))
    return [str(row[5].value) for table in tables for row in table.rows]  # type: ignore[union-attr]


# --- 1 and 2: break-even ---------------------------------------------------------------------------------------


def test_pinned_is_worth_its_start_nowhere_where_it_was_measured_slower(results: Results) -> None:
    results.ok(f"{MODEL}/default/b8", 10.0, gpu=True)
    results.ok(f"{MODEL}/pinned/b8", 11.0, gpu=True, options={"placement": "pinned"})
    results.ok("vit/fp16/torch_compile/default/b8", 5.0, gpu=True)
    change(results, f"{MODEL}/pinned/b8", first={"load_ns": 400_000_000, "first_inference_ns": 20_000_000})
    change(
        results, "vit/fp16/torch_compile/default/b8", first={"load_ns": 30_000_000_000, "first_inference_ns": 10**9}
    )
    results.plan()
    assert worth(results) == [BASELINE, "fp16/torch_compile/default"]


def test_an_engine_built_once_more_is_recommended_nowhere_and_its_builds_are_those_of_all_variants(
    results: Results,
) -> None:
    results.ok("vit/fp16/ort_cpu/default/b8", 100.0)
    for variant, ms, options in (
        ("default", 3.0, {}),
        ("again", 2.0, {"rebuild": 1}),
        ("graph", 2.5, {"cuda_graph": True}),
    ):
        case = f"vit/fp16/tensorrt/{variant}/b8"
        results.ok(case, ms, rounds=3, gpu=True, options=options)
        if variant != "graph":
            seconds = 100.0 if variant == "default" else 7.0  # a timing cache knew the tactics
            built = {"status": "ok", "bytes": 1, "seconds": seconds, "options": options}
            results.write(f"{results.machine}/engine/{case}.build.json", built)
    results.plan()
    evidence = evidence_of(results, "fp16/ort_cpu/default")
    (best,) = winner.find(evidence, "vit")
    assert best.name == "fp16/tensorrt/graph"
    assert "again" not in {row["variant"] for row in winner.ranked(evidence, "vit", "b8")}
    (table,) = use.break_even(evidence)
    rows = [{column.key: cell for column, cell in zip(table.columns, row, strict=True)} for row in table.rows]  # type: ignore[union-attr]
    assert [row["case"].value for row in rows] == ["fp16/ort_cpu/default", "fp16/tensorrt/graph"]
    assert rows[1]["start_s"].value == pytest.approx(100.8, abs=0.1)
    assert (rows[0]["starts"].text, rows[1]["starts"].value) == ("one", 3)


def test_where_both_were_started_several_times_the_change_over_has_an_interval(results: Results) -> None:
    for case, ms, load in ((f"{MODEL}/default/b8", 10.0, 1.0), ("vit/fp16/torch_compile/default/b8", 5.0, 30.0)):
        results.ok(case, ms, rounds=2, gpu=True)
        for round_ in (0, 1):
            path = results.root / results.record_path(case, round_)
            record = json.loads(path.read_text(encoding="utf-8"))
            record["first"] = {"load_ns": load * (1 + 0.2 * round_) * 1e9, "first_inference_ns": 1}
            path.write_text(json.dumps(record), encoding="utf-8")
    results.plan()
    (table,) = use.break_even(evidence_of(results, BASELINE))
    first, low, high = (float(table.rows[1][index].value) for index in (2, 3, 4))  # type: ignore[union-attr, arg-type]
    assert low < first < high
    assert first == pytest.approx(31.9 / 8e-3, rel=0.05)  # 33 s - 1.1 s, and 16 ms - 8 ms of end_to_end


# --- 3: one boundary -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boundary", ["device", "end_to_end"])
def test_every_number_of_an_answer_is_by_its_boundary(results: Results, boundary: str) -> None:
    results.ok(f"{MODEL}/default/b8", 10.0, gpu=True)
    results.ok(f"{MODEL}/graph/b8", 4.0, gpu=True, options={"cuda_graph": True})
    results.write(f"reports/{results.study}/config.json", {"baseline": BASELINE, "answer": {"boundary": boundary}})
    results.plan()
    answer = answer_of(results)
    assert answer.best is not None
    assert f"by {boundary}" in answer.title
    took = 4.0 * (1.0 if boundary == "device" else 1.6)
    assert answer.best.median_ms == pytest.approx(took, rel=0.02)
    assert answer.best.items_per_s == pytest.approx(8 / answer.best.median_ms * 1e3)
    assert answer.best.speed_up["boundary"] == boundary
    folder = report.write(results.root, results.study, results.machine, BASELINE).parent
    rows = rows_of(folder, "fastest")
    assert [(row["boundary"], float(row["median_ms"])) for row in rows] == [(boundary, answer.best.median_ms)]


def test_the_shape_that_is_asked_for_comes_first_and_else_the_largest_that_most_cases_have(results: Results) -> None:
    for shape in ("b1_s16", "b8_s16"):
        results.ok(f"{MODEL}/default/{shape}", 10.0, gpu=True)
        results.ok(f"{MODEL}/graph/{shape}", 8.0, gpu=True)
    results.ok(f"{MODEL}/default/b64_s16", 50.0, gpu=True)
    results.plan()
    assert answer_of(results).shape == "b8_s16"
    results.write(f"reports/{results.study}/config.json", {"baseline": BASELINE, "answer": {"shape": "b1"}})
    assert answer_of(results).shape == "b1_s16"


# --- 4: a batch that is right by device alone ------------------------------------------------------------------


def test_a_batch_that_the_device_likes_is_not_right_where_a_caller_loses(results: Results) -> None:
    import pandas as pd

    results.ok(f"{MODEL}/default/b64", 10.0, gpu=True)
    results.ok(f"{MODEL}/default/b96", 14.0, gpu=True)
    change(results, f"{MODEL}/default/b96", boundaries={"end_to_end": series(40.0, 3)})
    results.plan()
    evidence = evidence_of(results, BASELINE)
    names = dict(
        zip(
            records.KEY,
            (results.machine, *f"{MODEL}/default/b64".split("/")),
            strict=True,
        )
    )
    advice = pd.DataFrame(
        [{**names, "kind": "batch", "now": 64, "then": 96, "suggested_shape": "b96", "predicted_gain": 0.06}]
    )
    (row,) = tile_trials.tried(advice, evidence.latency).to_dict("records")
    assert row["measured_gain"] == pytest.approx(1 - 14 / 15, abs=0.02)
    assert row["caller_gain"] == pytest.approx(1 - 40 / 24, abs=0.03)
    assert row["verdict"] == "a caller loses"


# --- 5 and 6: known-bad measurements ---------------------------------------------------------------------------


STARVED = {"yardstick_ns": [10**6] * 20, "yardstick_cpu_ns": [291_000] * 20, "steal": {"percent": 0.0}}
DRIFTING = [round(4e6 * (1 + index / 400)) for index in range(400)]


def test_what_a_profile_names_is_said_of_a_case_whose_time_is_in_doubt(results: Results) -> None:
    case = f"{MODEL}/default/b8"
    results.ok(case, 20.0, gpu=True)
    change(results, case, boundaries={"end_to_end": {"settled": False}})
    results.plan()
    assert "5 nodes" not in answer_of(results).do_next
    finding = {
        **{"subject": "", "bottleneck": "copy", "share": 0.6, "reason": "5 nodes run on the CPU", "evidence": {}},
        **{
            "gain": {"low_ns": 5e6, "high_ns": 9e6},
            "source": "nsys",
            "advice": "bring them back",
            "confidence": "medium",
        },
    }
    by_the_time_in_doubt = finding | {"reason": "the clock was low", "confidence": "high"}
    both = (by_the_time_in_doubt, finding)
    ranked = [{"check": "fallback", "level": "host", "finding": finding} for finding in both]
    group = {"resource": "copy", "share": 0.6, "gain": None, "findings": ranked}
    verdict = {"sentence": "so", "groups": [group], "cautions": [], "gain": None}
    results.write(f"{results.machine}/diagnosis/{case}.json", {"total": None, "verdict": verdict, "answers": []})
    answer = answer_of(results)
    assert answer.use.startswith("nothing yet")
    assert mentions(answer.do_next, "`budget_s:`", "5 nodes run on the CPU", "bring them back")
    assert "clock" not in answer.do_next


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"host": STARVED}, "waited for a core 70.9%"),
        ({"boundaries": {"end_to_end": {"settled": False}}}, "not settled"),
        ({"boundaries": {"end_to_end": {"samples_ns": DRIFTING}}}, "drifted by"),
    ],
)
def test_a_measurement_in_doubt_is_shown_and_is_no_headline(
    results: Results, changes: dict[str, Any], why: str
) -> None:
    results.ok(f"{MODEL}/default/b8", 20.0, gpu=True)
    results.ok(f"{MODEL}/graph/b8", 4.0, gpu=True)
    results.ok("vit/fp32/ort_cuda/default/b8", 25.0, gpu=True)
    change(results, f"{MODEL}/graph/b8", **changes)
    results.plan()
    evidence = evidence_of(results, BASELINE)
    (best,) = winner.find(evidence, "vit")
    assert best.name == BASELINE
    assert best.doubted is not None and best.doubted["variant"] == "graph"
    answer = answer_of(results)
    (said,) = [part for part in answer.use.split(". ") if "graph" in part]
    assert "in doubt" in said and why in said
    assert answer.use.startswith("nothing yet") and BASELINE in answer.use
    assert "`budget_s:`" in answer.do_next
    (doubt,) = [
        row["doubt"]
        for row in evidence.latency.to_dict("records")
        if row["variant"] == "graph" and row["boundary"] == "end_to_end"
    ]
    assert why in doubt
    by_end_to_end = evidence.speed_ups_by("end_to_end")
    (verdict,) = by_end_to_end.loc[by_end_to_end["variant"] == "graph", "verdict"]
    assert verdict == "undecided"
    folder = report.write(results.root, results.study, results.machine, BASELINE).parent
    text = (folder / "REPORT.txt").read_text(encoding="utf-8")
    assert why in " ".join(text.split())
    assert "graph" in (folder / "csv/end_to_end.csv").read_text(encoding="utf-8")


def test_a_case_in_doubt_that_was_measured_a_little_faster_leaves_the_answer(results: Results) -> None:
    results.ok(f"{MODEL}/default/b8", 20.0, gpu=True)
    results.ok(f"{MODEL}/graph/b8", 18.0, gpu=True)
    change(results, f"{MODEL}/graph/b8", host=STARVED)
    results.plan()
    answer = answer_of(results)
    assert answer.use.startswith(BASELINE)
    assert f"{MODEL}/graph".partition("/")[2] in answer.use


def test_what_was_not_measured_is_in_no_doubt(results: Results) -> None:
    for variant in ("default", "graph", "pinned"):
        results.ok(f"{MODEL}/{variant}/b8", 4.0, gpu=True)
    change(results, f"{MODEL}/graph/b8", boundaries={"end_to_end": {"samples_ns": [4_000_000]}})
    change(results, f"{MODEL}/pinned/b8", host=STARVED)
    results.plan()
    evidence = evidence_of(results, BASELINE)
    doubts = dict(zip(evidence.measured["variant"], evidence.measured["end_to_end_doubt"], strict=True))
    assert (doubts["default"], doubts["graph"]) == (None, None) and "70.9%" in doubts["pinned"]
    text = (report.write(results.root, results.study, results.machine, BASELINE).parent / "REPORT.txt").read_text()
    assert "nan" not in text.split()
    assert "1/3" in "/".join(re.findall(r"\d+", text[text.index("mark *") :])[:2])


def test_where_everything_is_in_doubt_the_answer_is_to_measure_again(results: Results) -> None:
    results.ok(f"{MODEL}/default/b8", 20.0, gpu=True)
    change(results, f"{MODEL}/default/b8", host=STARVED)
    results.plan()
    answer = answer_of(results)
    assert answer.best is None
    assert (BASELINE in answer.use, "70.9%" in answer.use, "n 400" in answer.use) == (True, True, True)
    assert "`budget_s:`" in answer.do_next


def test_the_accuracy_of_each_format_is_said_also_where_every_measurement_is_in_doubt(results: Results) -> None:
    for precision in ("fp32", "fp16", "int8"):
        results.ok(case := f"vit/{precision}/ort_cuda/default/b8", 20.0, gpu=True)
        change(results, case, boundaries={"end_to_end": {"settled": False}})
        results.accuracy("vit", precision, 46.5, "pass")
    results.plan()
    said = [text.text for text in answer_section._accuracies(evidence_of(results, "fp32/ort_cuda/default"))]
    assert [re.findall("fp16|int8", line) for line in said] == [["fp16"], ["int8"]]
    assert all("46.5 dB" in line and "pass" in line for line in said)


@pytest.mark.parametrize(("count", "measured"), [(1, False), (gate.FEWEST - 1, False), (gate.FEWEST, True)])
def test_a_median_needs_five_samples(results: Results, count: int, measured: bool) -> None:
    results.ok(f"{MODEL}/default/b8", 20.0, gpu=True)
    results.ok(f"{MODEL}/graph/b8", 4.0, gpu=True)
    for boundary in ("device", "call", "end_to_end"):
        change(
            results,
            f"{MODEL}/graph/b8",
            boundaries={boundary: {"samples_ns": [4e6 + index for index in range(count)]}},
        )
    results.plan()
    evidence = evidence_of(results, BASELINE)
    (row,) = [row for row in evidence.measured.to_dict("records") if row["variant"] == "graph"]
    assert (row["end_to_end_ms"] == row["end_to_end_ms"]) == measured
    (best,) = winner.find(evidence, "vit")
    assert best.row["variant"] == ("graph" if measured else "default")
    if not measured:
        (reason,) = set(evidence.latency.loc[evidence.latency["variant"] == "graph", "not_measured"])
        assert reason == gate.too_few(count)


# --- 7: no more than all ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("high", "bounded"), [(50.0, 50.0), (100.1, 100.0), (110.9, None), (830.7, None)])
def test_no_gain_is_more_than_all_of_the_time(high: float, bounded: float | None) -> None:
    from inferprof.diagnosis import run

    frames: Any = SimpleNamespace(total=Total(100.0, "end_to_end"))
    gain = run.bounded(frames, Gain(10.0, high))
    assert gain == (None if bounded is None else Gain(10.0, bounded))


# --- 8: what was measured outranks what was predicted ----------------------------------------------------------


@pytest.mark.parametrize(
    ("ms", "outcome", "lost"), [(7.0, "better", False), (10.0, "no difference", True), (13.0, "backfired", True)]
)
def test_a_fix_that_was_tried_is_judged_by_its_interval(
    results: Results, ms: float, outcome: str, lost: bool
) -> None:
    results.ok(f"{MODEL}/default/b64", 10.0, rounds=3, gpu=True)
    results.ok(f"{MODEL}/graph/b64", ms, rounds=3, gpu=True, options={"cuda_graph": True})
    results.plan()
    (tried,) = _tries(results)[f"{MODEL}/default/b64"].values()
    assert (tried.variant, tried.outcome, tried.lost) == ("graph", outcome, lost)


@pytest.mark.parametrize("stage", ["failed", "refused"])
def test_a_fix_whose_variant_failed_or_was_refused_is_lost(results: Results, stage: str) -> None:
    results.ok(f"{MODEL}/default/b64", 10.0, gpu=True)
    results.write(
        f"reports/{results.study}/config.json",
        {"baseline": BASELINE, "variants": [{"name": "default"}, {"name": "graph", "cuda_graph": True}]},
    )
    getattr(results, stage)(f"{MODEL}/graph/b64", "no graph holds a loop")
    if stage == "failed":
        change(results, f"{MODEL}/graph/b64", options={"cuda_graph": True})
    results.plan()
    (tried,) = _tries(results)[f"{MODEL}/default/b64"].values()
    reason = "no graph holds a loop"
    assert (tried.outcome, tried.reason.endswith(reason), tried.lost) == (stage, True, True)


def test_a_fix_in_vain_with_one_runtime_is_not_advised_for_another_at_that_shape(results: Results) -> None:
    results.ok(f"{MODEL}/default/b64", 10.0, rounds=3, gpu=True)
    results.ok(f"{MODEL}/pinned/b64", 12.0, rounds=3, gpu=True, options={"placement": "pinned"})
    results.ok("vit/fp16/torch_compile/default/b64", 9.0, rounds=3, gpu=True)
    results.ok("vit/fp16/torch_compile/default/b8", 9.0, rounds=3, gpu=True)
    results.plan()
    by_case = _tries(results)
    assert by_case["vit/fp16/torch_compile/default/b64"]["placement", "pinned"].lost
    assert "vit/fp16/torch_compile/default/b8" not in by_case


def _tries(results: Results) -> dict[str, Any]:
    from inferprof.diagnosis import frames

    recorded = records.of_model(results.root, results.machine, "vit")
    peers = frames.peers_of(records.read(results.root, recorded))
    refused = frames.refused_of(results.root, results.machine, "vit")
    return {"/".join(key[1:]): own for key, own in tries.of_model(peers, *refused).items() if own}


# --- 9: compare ------------------------------------------------------------------------------------------------


def test_a_study_compared_with_itself_is_the_same_whatever_its_samples(results: Results) -> None:
    results.ok(f"{MODEL}/default/b8", 10.0, gpu=True)
    results.ok(f"{MODEL}/graph/b8", 4.0, rounds=3, gpu=True)
    results.ok(f"{MODEL}/pinned/b8", 4.0, gpu=True)
    change(results, f"{MODEL}/default/b8", host=STARVED)
    change(results, f"{MODEL}/pinned/b8", boundaries={"device": {"samples_ns": [4e6]}})
    comparison = compare.compare(results.root, results.root)
    assert [case.verdict for case in comparison.cases] == ["same"] * 3


# --- the text --------------------------------------------------------------------------------------------------


def test_the_report_of_a_hundred_cases_fits_in_300_lines_and_answers_each_model_in_three(tmp_path: Path) -> None:
    results = _large(tmp_path, models=2, shapes=13, variants=4)
    folder = report.write(results.root, results.study, results.machine, BASELINE).parent
    text = (folder / "REPORT.txt").read_text(encoding="utf-8")
    assert text.count("\n") <= 300
    assert max(map(len, text.splitlines())) <= 100
    head = (folder / "ANSWER.txt").read_text(encoding="utf-8")
    assert head in text.replace("\n\n", "\n")
    assert [head.count(f"\n  {label}") for label in ("Use", "Why", "Next")] == [2, 2, 2]
    assert len(rows_of(folder, "end_to_end")) == 104


def test_the_report_of_a_hundred_models_fits_too_and_says_where_the_other_answers_are(tmp_path: Path) -> None:
    content = compose.compose(evidence_of(_large(tmp_path, models=100, shapes=1, variants=1), BASELINE))
    text = txt.render(content)
    assert text.count("\n") <= 300
    assert "csv/answers.csv" in text
    (table,) = (table for table in content.tables if table.name == "answers")
    assert len(table.rows) == 100


def _large(tmp_path: Path, models: int, shapes: int, variants: int) -> Results:
    """A made-up study."""
    results = Results(tmp_path / "results", machine="h200-0123abcd")
    rng = np.random.default_rng(0)
    for model in range(models):
        for shape in range(shapes):
            for variant in range(variants):
                name = ("default", "graph", "pinned", "both")[variant]
                results.ok(f"model{model}/fp16/ort_cuda/{name}/b{2**shape}", float(2 + 10 * rng.random()), gpu=True)
    results.plan()
    return results
