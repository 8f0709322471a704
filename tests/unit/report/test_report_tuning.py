"""What the report says of autotuned kernels."""

from __future__ import annotations

from typing import Any

from tests.unit.report.conftest import evidence_of
from tests.unit.tuning_records import choice

from inferprof.report.compose import content_of
from inferprof.report.model import SectionContent, Table
from inferprof.report.sections import tuning

CASE = "stack/fp16/torch_eager/{}/{}"
B64 = [choice(64, {"small": 20.0, "wide": 30.0, "large": None})]
B512 = [choice(512, {"small": 90.0, "wide": 50.0, "large": 60.0})]


def section_of(results: Any, **cases: list[dict[str, Any]]) -> SectionContent:
    """The section of cases by variant_shape, each of 10 ms, whose first inference took 8 s."""
    for name, found in cases.items():
        first = {"load_ns": 1, "first_inference_ns": 8_000_000_000}
        results.ok(CASE.format(*name.rsplit("_", 1)), 10.0, gpu=True, tuning=found, first=first)
    results.plan()
    return content_of(tuning.build, evidence_of(results))


def rows(section: SectionContent, name: str) -> list[list[str]]:
    table = next(one for one in section.blocks if isinstance(one, Table) and one.name == name)
    return [[cell.text for cell in row] for row in table.rows]


def test_a_study_without_autotuned_kernels_has_no_such_section(results: Any) -> None:
    assert section_of(results, plain_b1=[]).blocks == ()


def test_each_choice_has_what_it_took_and_what_the_others_cost(results: Any) -> None:
    reused = [choice(512, {"wide": 50.0}, "remembered")]
    section = section_of(results, tuned_b64=B64, tuned_b512=B512, reused_b512=reused)
    key = "M=64 N=4096 K=4096 dtypes=['torch.float16']"
    b64, b512, again = (row[5:] for row in rows(section, "tuning"))
    assert b64 == [
        *("gemm_kernel", key, "tried", "M64 N64 K64 w4 s3", "20.0", "5", "1"),
        *("3", "6.00", "4.50", "75 %", "1.50×", "1.50×", "1.50×"),
    ]
    assert rows(section, "tuning_cost")[0][7:] == b64[-7:]
    assert b512[2:5] == ["tried", "M64 N256 K64 w8 s3", "50.0"]
    assert again[2] == "remembered" and again[-3:] == ["–", "–", "–"]


def test_every_configuration_is_in_the_csv_and_the_fastest_among_several_on_the_page(results: Any) -> None:
    reused = [choice(512, {"wide": 50.0}, "remembered")]
    section = section_of(results, tuned_b64=B64, reused_b512=reused)
    names = ["M64 N64 K64 w4 s3", "M64 N256 K64 w8 s3", "M128 N128 K64 w4 s3"]
    assert [row[7] for row in rows(section, "tuning_fastest")] == names
    every = rows(section, "tuning_trials")
    assert [row[7] for row in every] == [*names, "M64 N256 K64 w8 s3"]
    facts = ["20.0", "1.00", "yes", "64", "0.250", "12.5", "2", "4", "168", "0", "64.0", "2.00", "1.50", "1"]
    assert every[0][8:] == facts
    assert every[2][8:11] == ["–", "–", "no"]


def test_the_best_choice_at_one_shape_is_compared_with_the_best_at_another(results: Any) -> None:
    found = rows(section_of(results, tuned_b64=B64, tuned_b512=B512), "tuning_elsewhere")
    assert [(row[1], row[6], row[8], row[9]) for row in found] == [
        ("b64", "M64 N64 K64 w4 s3", "b512", "1.80"),
        ("b512", "M64 N256 K64 w8 s3", "b64", "1.50"),
    ]


def test_what_a_case_chose_is_shown_though_it_failed_afterwards(results: Any) -> None:
    failed = {"status": "failed", "reason": "self-check", "first": {"first_inference_ns": 8_000_000_000}}
    results.ok(CASE.format("tuned", "b64"), 10.0, gpu=True, tuning=B64, **failed)
    assert rows(section_of(results), "tuning")[0][7:9] == ["tried", "M64 N64 K64 w4 s3"]
