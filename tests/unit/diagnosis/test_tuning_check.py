"""The check of autotuned kernels, on made-up choices of one kernel at several shapes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.diagnosis.asking import approx, ask
from tests.unit.facts import facts, mentions
from tests.unit.made_records import plain
from tests.unit.tuning_records import choice, records_of

from inferprof.case import Case
from inferprof.diagnosis import frames
from inferprof.findings import Answer
from inferprof.tables import schema
from inferprof.tables.records import CASE_KEY, rows_of

Asked = Callable[..., Answer]
MACHINE = "h100"
B64 = ("tuned", "b64", [choice(64, {"small": 20.0, "wide": 30.0})])
B512 = ("tuned", "b512", [choice(512, {"small": 90.0, "wide": 50.0, "large": 60.0})])
REUSED = ("reused", "b512", [choice(512, {"wide": 50.0}, "remembered")])
MISFIT = ("reused_b64", "b512", [choice(512, {"small": 90.0}, "remembered")])


def asked(variant: str, shape: str, *records: Any, **more: Any) -> Answer:
    """What the check says of a case among these records, whose device takes 1 ms."""
    case = Case("stack", "fp16", "torch_eager", variant, shape)
    profiles = pd.DataFrame(columns=list(schema.COLUMNS))
    return ask("tuning", frames.of_tables(MACHINE, case, frames.peers_of(records_of(*records, **more)), profiles))


def test_a_case_without_autotuned_kernels_is_not_assessed() -> None:
    found = asked("plain", "b512", ("plain", "b512", []), B512)
    assert (found.verdict, mentions(found.reason, "needs", "autotuner")) == (
        "not assessed",
        True,
    )


def test_a_choice_that_another_record_beats_is_found_with_what_it_costs() -> None:
    (found,) = asked("reused_b64", "b512", MISFIT, B512, B64).findings
    assert (found.subject, found.bottleneck, found.confidence) == ("gemm_kernel", "kernels", "high")
    assert facts(found.reason, "record", "tuned", "waves") == [
        "M64",
        "N64",
        "K64",
        "w4",
        "s3",
        "another",
        "record",
        "90 µs",
        "M64",
        "N256",
        "K64",
        "w8",
        "s3",
        "50 µs",
        "tuned",
        "b512",
        "64",
        "64",
        "0.25",
        "0.25",
        "waves",
        "12.5 %",
        "12.5 %",
    ]
    assert found.evidence["lost_share"] == approx(4 / 9)
    assert found.gain is not None
    assert (found.gain.low_ns, found.gain.high_ns) == (0.0, approx(4 / 9 * 1e6))


def test_a_choice_that_is_nearly_the_best_is_clear() -> None:
    near = ("reused", "b512", [choice(512, {"large": 52.0}, "one left")])
    found = asked("reused", "b512", near, B512)
    assert found.verdict == "clear"
    assert facts(found.reason) == [
        "gemm_kernel",
        "M128",
        "N128",
        "K64",
        "w4",
        "s3",
        "only",
        "one",
        "52 µs",
        "none",
        "faster",
    ]


def test_choosing_that_fills_the_first_inference_is_found_with_what_reuse_takes() -> None:
    (found,) = asked("tuned", "b512", B512, REUSED).findings
    assert (found.subject, found.bottleneck, found.gain) == ("the first inference", "tuning", None)
    assert facts(found.reason, "kernel") == ["6 s", "75.0 %", "3", "one", "kernel", "4.5 s", "2 s"]


def test_compiling_the_one_choice_that_was_taken_over_is_no_choosing() -> None:
    assert asked("reused", "b512", REUSED, B512, first_s=2.5).verdict == "clear"


def test_choosing_beside_a_longer_first_inference_is_not_found() -> None:
    assert asked("tuned", "b512", B512, first_s=13.0).verdict == "clear"


def test_a_choice_that_moves_with_the_size_is_found_with_what_the_wrong_one_costs() -> None:
    (found,) = asked("tuned", "b64", B64, B512, first_s=100.0).findings
    assert (found.subject, found.bottleneck) == ("gemm_kernel", "tuning")
    assert facts(found.reason) == [
        "M64",
        "N64",
        "K64",
        "w4",
        "s3",
        "best",
        "2",
        "1.8",
        "best",
        "b512",
        "one",
        "1.5",
        "slowest",
        "1.5",
        "best",
    ]


@pytest.mark.parametrize("b512", [{"small": 51.0, "wide": 50.0}, {"wide": 50.0}], ids=["costs nothing", "not tried"])
def test_a_choice_that_costs_nothing_elsewhere_or_nobody_knows_what_is_clear(b512: dict[str, float]) -> None:
    assert asked("tuned", "b64", B64, ("tuned", "b512", [choice(512, b512)]), first_s=100.0).verdict == "clear"


def test_kernels_whose_occupancy_is_not_known_are_compared_by_their_times() -> None:
    unknown = choice(512, {"small": 90.0}, "remembered")
    unknown["trials"][0]["waves"] = None
    (found,) = asked("reused_b64", "b512", ("reused_b64", "b512", [unknown]), B512).findings
    assert facts(found.reason, "tuned")[-3:] == ["50 µs", "tuned", "b512"]


def counted(shape: str, variant: str, **metrics: float) -> pd.DataFrame:
    """What ncu says of a launch of the kernel."""
    rows = [
        {"tool": "ncu", "level": "kernel", "name": "gemm_kernel", "metric": metric, "value": value, "unit": "percent"}
        for metric, value in metrics.items()
    ]
    case = Case("stack", "fp16", "torch_eager", variant, shape)
    return schema.of_case(pd.DataFrame(rows).reindex(columns=list(schema.COLUMNS)), MACHINE, case)


def test_counters_of_both_configurations_say_why_one_is_slower(tmp_path: Path) -> None:
    for row in rows_of(records_of(MISFIT, B512, REUSED)):
        path = tmp_path / MACHINE / "benchmark/stack/fp16/torch_eager" / row["file"]
        path.parent.mkdir(parents=True)
        about = {"case": {key: row[key] for key in CASE_KEY}, "round": 0, "machine": MACHINE, "status": "ok"}
        path.write_text(json.dumps(plain(row["record"]) | about))
    tables = {
        "reused_b64": {"pipe_tensor": 12.0, "l2_hit_rate": 50.4, "dram_throughput": 9.0},
        "reused": {"pipe_tensor": 31.0, "l2_hit_rate": 80.0},
    }
    for variant, metrics in tables.items():
        path = tmp_path / MACHINE / f"table/ncu/stack/fp16/torch_eager/{variant}/b512.parquet"
        path.parent.mkdir(parents=True)
        counted("b512", variant, **metrics).to_parquet(path)
    case = Case("stack", "fp16", "torch_eager", "reused_b64", "b512")
    (found,) = ask("tuning", frames.load(tmp_path, MACHINE, case)).findings
    assert facts(found.reason)[-7:] == ["12.5 %", "12.5 %", "12 %", "31 %", "L2", "50 %", "80 %"]
