"""The answer: who is the fastest, by what, and at which cost."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.facts import facts, mentions, states
from tests.unit.report.conftest import evidence_of

from inferprof import report
from inferprof.case import Case
from inferprof.profilers import ort_profile
from inferprof.report import answers, evidence, winner
from inferprof.report.compose import content_of
from inferprof.report.model import Card, SectionContent, Table, Text
from inferprof.report.sections import answer, speed_up
from inferprof.tables import schema


def load(results, baseline: str = "fp32/ort_cpu/default") -> evidence.Evidence:
    return evidence_of(results, baseline)


def text_of(section: SectionContent) -> str:
    lines: list[str] = []
    for block in section.blocks:
        if isinstance(block, Card):
            lines += [block.title, *(text for _, text in block.lines)]
        elif isinstance(block, Text):
            lines.append(block.text)
    return "\n".join(lines)


def test_cpu_cases_are_ranked_by_end_to_end(cpu_study):
    first = winner.find(load(cpu_study), "vit_tiny")[0]
    assert (first.shape, first.boundary, first.name) == ("b1", "end_to_end", "int8/ort_cpu/default")


def test_a_faster_case_whose_accuracy_fails_is_passed_over_and_named(cpu_study):
    found = load(cpu_study)
    first = winner.find(found, "minilm")[0]
    assert first.name == "fp32/ort_cpu/default"
    assert first.rejected is not None and first.rejected["precision"] == "int8"
    assert states(text_of(content_of(answer.build, found)), "int8/ort_cpu/default", "faster", "b1_s128", "b8_s128")


def test_every_shape_has_one_winner_by_one_boundary(gpu_study):
    winners = winner.find(load(gpu_study), "vit_tiny")
    assert [(w.shape, w.boundary) for w in winners] == [(shape, "end_to_end") for shape in ("b1", "b8", "b64")]


def test_a_gpu_against_a_cpu_baseline_is_compared_by_end_to_end(gpu_study):
    rows = load(gpu_study, "fp32/ort_cpu/default").speed_ups
    assert set(rows["boundary"]) == {"end_to_end"}


def test_a_baseline_that_ran_nowhere_is_one_sentence_and_no_table_of_dashes(cpu_study):
    section = content_of(speed_up.build, load(cpu_study, "fp32/ort_cuda/default"))
    assert facts(text_of(section)) == ["fp32/ort_cuda/default", "not"]
    assert len(section.blocks) == 1


def test_where_nothing_ran_nobody_says_that_the_baseline_did(results):
    results.refused("vit/fp16/tensorrt/graph/b1", "no GPU")
    results.plan()
    assert text_of(content_of(speed_up.build, load(results, "fp16/tensorrt/graph"))) == "No case was measured."


def test_a_gpu_against_a_gpu_baseline_is_compared_by_device(gpu_study):
    rows = load(gpu_study, "fp32/ort_cuda/default").speed_ups
    by_backend = rows.groupby("backend")["boundary"].unique()
    assert list(by_backend["ort_cuda"]) == ["device"]
    assert list(by_backend["ort_cpu"]) == ["end_to_end"]


def test_a_case_that_is_no_slower_by_a_verdict_is_a_tie(results):
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    results.ok("vit/fp16/ort_cpu/default/b1", 10.05)
    results.ok("vit/bf16/ort_cpu/default/b1", 20.0)
    results.plan()
    first = winner.find(load(results), "vit")[0]
    assert len(first.ties) == 1
    assert "bf16/ort_cpu/default" not in first.ties


def test_one_round_is_said_to_be_one(cpu_study, gpu_study):
    assert mentions(text_of(content_of(answer.build, load(cpu_study))), "One round", "R = 1")
    assert "One round only" not in text_of(content_of(answer.build, load(gpu_study)))


def test_random_weights_are_numerical_fidelity_only(cpu_study):
    text = text_of(content_of(answer.build, load(cpu_study)))
    assert states(text, "SQNR", "34.0 dB", "0.999870", "warn", "only")


def test_a_baseline_that_was_not_measured_is_said_so(cpu_study):
    found = load(cpu_study, "fp32/ort_cuda/default")
    assert mentions(
        text_of(content_of(answer.build, found)), "Speed-up not known", "fp32/ort_cuda/default", "not measured"
    )


def test_a_study_without_measurements_says_so_for_each_model(results):
    results.refused("vit/fp32/ort_cuda/default/b1", "no GPU")
    results.plan()
    text = text_of(content_of(answer.build, load(results)))
    assert mentions(text, "vit", "nothing", "no case")
    assert "1 case: 1 refused." in text


@pytest.mark.parametrize(("backend", "said"), [("ort_cuda", True), ("ort_cpu", False)])
def test_a_report_without_a_gpu_says_what_it_does_not_answer(results, backend, said):
    results.ok("vit/fp32/ort_cpu/default/b1", 1.0)
    results.refused(f"vit/fp16/{backend}/default/b1", "no GPU")
    results.plan()
    blocks = content_of(answer.build, load(results)).blocks
    assert any(getattr(block, "text", "").startswith("Not answered here") for block in blocks) == said


def test_where_all_cases_of_a_model_failed_the_answer_has_the_reason(results):
    for variant in ("default", "graph"):
        results.failed(f"vit/fp32/ort_cuda/{variant}/b1", "ModuleNotFoundError: No module named 'nothere'")
    results.refused("vit/fp8/ort_cpu/default/b1", "needs a GPU")
    results.ok("minilm/fp32/ort_cpu/default/b1", 1.0)
    results.plan()
    text = text_of(content_of(answer.build, load(results)))
    assert mentions(text, "2 of 3 cases", "nothere") and not mentions(text, "needs a GPU")


def test_a_failed_round_makes_the_case_failed_and_takes_it_out_of_the_ranking(results):
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0, rounds=2)
    results.ok("vit/int8/ort_cpu/default/b1", 5.0, rounds=2)
    bad = results.record("vit/int8/ort_cpu/default/b1", 1) | {"status": "failed", "reason": "all NaN"}
    results.write(results.record_path("vit/int8/ort_cpu/default/b1", 1), bad)
    results.plan()
    found = load(results)
    assert winner.find(found, "vit")[0].name == "fp32/ort_cpu/default"
    failed = found.of("failed")
    assert list(failed["reason"]) == ["all NaN"]
    assert isinstance(found.latency, pd.DataFrame) and set(found.latency["precision"]) == {"fp32"}


def test_how_far_builds_of_a_recommended_engine_differ_is_said(results):
    for variant, ms, options in (("default", 1.2, {}), ("again", 1.0, {"rebuild": 1})):
        case = f"vit/fp32/tensorrt/{variant}/b8"
        results.ok(case, ms, rounds=3, gpu=True)
        results.write(f"{results.machine}/engine/{case}.build.json", {"status": "ok", "bytes": 1, "options": options})
    results.plan()
    assert states(
        text_of(content_of(answer.build, load(results))),
        "vit/b8/fp32/tensorrt",
        "2",
        "one",
        "20 %",
        "device",
        "Engines",
    )


def test_a_factor_over_a_baseline_that_falls_back_is_flagged_and_no_speed_up(results: Any, repository: Path) -> None:
    baseline = "bert/fp16/ort_cuda/default/b1"
    results.ok(baseline, 2793.0, gpu=True)
    results.ok("bert/fp16/tensorrt/default/b1", 7.45, gpu=True)
    results.plan()
    frame = ort_profile.read(repository / "tests/data/ort_profile/h100_ort_tensorrt_ep.json.gz")
    slow = (frame["name"] == "hardmax") & frame["metric"].str.startswith("duration")
    frame = frame.assign(value=frame["value"].where(~slow, frame["value"] * 300))
    path = results.root / results.machine / f"table/ort_profile/{baseline}.parquet"
    path.parent.mkdir(parents=True)
    schema.of_case(frame, results.machine, Case.from_path(baseline)).to_parquet(path)
    report.write(results.root, results.study, results.machine, "fp16/ort_cuda/default")
    folder = results.root / "reports" / results.study
    text = " ".join((folder / "REPORT.txt").read_text().split())
    assert mentions(text, "speed-up", "falls back", "1 of its nodes", "Hardmax")
    assert "fast as the baseline" not in text
    (row,) = (folder / "csv/speed_up.csv").read_text().splitlines()[1:]
    assert ",flagged,the baseline falls back: " in row


def test_what_the_config_leaves_out_is_not_counted_as_refused(results: Any) -> None:
    results.ok("vit/fp16/ort_cuda/default/b1", 1.0, gpu=True)
    results.refused("vit/fp16/tensorrt/default/b1", "TensorRT is not installed")
    for variant in ("graph", "pinned"):
        results.refused(f"vit/fp16/ort_cuda/{variant}/b1", "excluded by the config: not of interest")
    results.plan()
    assert states(text_of(content_of(answer.build, load(results))), "4", "1", "2", "excluded", "1", "refused")


def test_medians_that_are_hardly_known_are_counted_in_the_answer(results: Any) -> None:
    results.ok("vit/fp16/ort_cuda/default/b1", 1.0, gpu=True)
    results.ok("vit/fp32/ort_cuda/default/b1", 2.0, gpu=True)
    results.plan()
    assert not mentions(text_of(content_of(answer.build, load(results))), "no better than")
    path = results.root / results.record_path("vit/fp32/ort_cuda/default/b1", 0)
    record = json.loads(path.read_text(encoding="utf-8"))
    record["boundaries"]["device"]["samples_ns"] = [1e6, 2e6, 3e6] * 3
    path.write_text(json.dumps(record), encoding="utf-8")
    told = text_of(content_of(answer.build, load(results)))
    assert states(told, "1", "2", "no", "±10 %", "no", "Latency")


def test_a_case_far_slower_by_its_median_is_a_tie_where_noise_leaves_it_undecided(results: Any) -> None:
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    results.ok("vit/fp16/ort_cpu/default/b1", 15.0)
    results.plan()
    assert winner.find(load(results), "vit")[0].ties == ()
    path = results.root / results.record_path("vit/fp16/ort_cpu/default/b1", 0)
    record = json.loads(path.read_text(encoding="utf-8"))
    record["boundaries"]["end_to_end"]["samples_ns"] = [9e6, 15e6, 40e6] * 3
    path.write_text(json.dumps(record), encoding="utf-8")
    assert winner.find(load(results), "vit")[0].ties == ("fp16/ort_cpu/default",)


def test_samples_far_above_all_of_the_fastest_need_no_interval_to_be_told_apart(results: Any) -> None:
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    results.ok("vit/fp16/ort_cpu/default/b1", 500.0)
    results.plan()
    path = results.root / results.record_path("vit/fp16/ort_cpu/default/b1", 0)
    record = json.loads(path.read_text(encoding="utf-8"))
    far = [500e6, 505e6, 510e6, 515e6]
    for samples, ties in (([*far, 520e6], ()), ([12e6, *far], ("fp16/ort_cpu/default",))):
        record["boundaries"]["end_to_end"]["samples_ns"] = samples
        path.write_text(json.dumps(record), encoding="utf-8")
        assert winner.find(load(results), "vit")[0].ties == ties


def test_each_other_shape_has_a_line_of_what_to_use_there(results: Any) -> None:
    times = {"b1": (10.0, 5.0), "b2": (10.0, 20.0), "b4": (10.0, 10.05), "b8": (80.0, 40.0)}
    for shape, (fp32, fp16) in times.items():
        results.ok(f"vit/fp32/ort_cpu/default/{shape}", fp32)
        results.ok(f"vit/fp16/ort_cpu/default/{shape}", fp16)
    results.refused("vit/fp32/ort_cpu/default/b16", "out of memory")
    results.accuracy("vit", "fp16", 60.0, "pass")
    results.plan()
    (found,) = answers.of(load(results))
    assert found.shape == "b8"
    lines = dict(found.others)
    assert [*lines] == ["b1", "b2", "b4"]
    assert mentions(lines["b1"], "fp16/ort_cpu/default", "×", "±")
    assert mentions(lines["b2"], "fp32/ort_cpu/default", "the baseline")
    assert mentions(lines["b4"], "not distinguishable from")
    assert "×" not in lines["b4"]
    assert [label for label, _ in found.card.lines] == ["Use", "Why", "Next", "Also", "", ""]


def test_a_shape_with_nothing_to_recommend_says_why_in_its_line(results: Any) -> None:
    results.ok("vit/fp32/ort_cpu/default/b8", 10.0)
    results.ok("vit/int8/ort_cpu/default/b1", 1.0)
    results.accuracy("vit", "int8", 3.0, "fail")
    results.plan()
    (found,) = answers.of(load(results))
    assert (found.shape, [shape for shape, _ in found.others]) == ("b8", ["b1"])
    assert mentions(found.others[0][1], "nothing", "accuracy")


def test_a_card_has_six_other_shapes_and_the_csv_all(results: Any) -> None:
    for batch in range(1, 10):
        results.ok(f"vit/fp32/ort_cpu/default/b{batch}", float(batch))
    results.plan()
    found = load(results)
    (told,) = answers.of(found)
    assert len(told.card.lines) == 3 + answers.OTHERS + 1
    assert mentions(told.card.lines[-1][1], "2 more", "csv/answers.csv")
    (table,) = [block for block in answer.build.build(found) if isinstance(block, Table) and block.name == "answers"]
    assert {row[1].value for row in table.rows} == {f"b{batch}" for batch in range(1, 10)}


def noisy(results: Any, case: str, samples: list[float]) -> None:
    path = results.root / results.record_path(case, 0)
    record = json.loads(path.read_text(encoding="utf-8"))
    record["boundaries"]["end_to_end"]["samples_ns"] = samples
    path.write_text(json.dumps(record), encoding="utf-8")


def test_a_ratio_known_no_better_than_to_itself_is_not_printed_and_stays_in_the_csv(results: Any) -> None:
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    results.ok("vit/fp16/ort_cpu/default/b1", 9.0)
    results.plan()
    noisy(results, "vit/fp32/ort_cpu/default/b1", [2e6, 10e6, 90e6] * 3)
    found = load(results)
    (row,) = next(b for b in content_of(speed_up.build, found).blocks if isinstance(b, Table)).rows
    times, spread = row[6], row[7]
    assert (times.text, spread.text, bool(times.missing)) == ("–", "", True)
    assert times.value and str(spread.value).endswith("%")
    (best,) = winner.find(found, "vit")
    assert winner.speed_up_cells(best, "fp32/ort_cpu/default")[0].text == "–"
    (told,) = answers.of(found)
    assert "×" not in told.use


def test_a_baseline_in_doubt_of_which_every_sample_is_ten_times_as_long_leaves_the_speed_up(results: Any) -> None:
    results.ok("vit/fp32/ort_cpu/default/b1", 10.0)
    results.ok("vit/fp16/ort_cpu/default/b1", 1.0)
    results.plan()
    drifting = [1 + index / 400 for index in range(400)]
    for least, known in ((30e6, True), (5e6, False)):
        noisy(results, "vit/fp32/ort_cpu/default/b1", [least * step for step in drifting])
        (best,) = winner.find(load(results), "vit")
        times, _ = winner.speed_up_cells(best, "fp32/ort_cpu/default")
        (told,) = answers.of(load(results))
        assert (times.missing is None, "×" in times.text, "×" in told.use) == (known, known, known)
