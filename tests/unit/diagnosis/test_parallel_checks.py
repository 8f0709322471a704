"""Checks of a case over several GPUs: each finds what is planted for it, and claims nothing where it is not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.diagnosis.asking import approx, ask
from tests.unit.diagnosis.conftest import CASE, MACHINE, NO_RECORDS, Captured
from tests.unit.made_records import document
from tests.unit.two_gpus import TwoGpus

from inferprof.diagnosis import frames
from inferprof.findings import NEEDS, Documents, Frames
from inferprof.tables import schema

ITERATIONS = 5
LINKS: dict[str, Any] = {
    "method": "made up",
    "ranks": 2,
    "through": {"library": "nccl"},
    "topology": {"not_measured": "made up"},
    "operations": {
        "AllReduce": {
            "by_size": {
                str(size): {"ns": ns, "spread_ns": 0.0, "gb_per_s": size / ns}
                for size, ns in ((1024, 10_000), (65_536, 12_000), (1 << 20, 20_000), (1 << 28, 1_000_000))
            }
        }
    },
}
BEST = (1 << 28) / 1e6


def case_of(gpus: TwoGpus, folder: Path, links: dict[str, Any] | None = LINKS) -> Frames:
    rows = schema.of_case(gpus.table(folder), MACHINE, CASE)
    known = Documents(links=document("links", links) if links else None)
    return frames.of_tables(MACHINE, CASE, frames.peers_of(NO_RECORDS), rows, known)


def sending(size: int, us: float) -> TwoGpus:
    gpus = TwoGpus()
    for _ in range(ITERATIONS):
        with gpus.iteration():
            for _ in range(8):
                gpus.compute(20)
                gpus.all_reduce(us, size=size)
    return gpus


def test_messages_below_half_of_the_links_best_are_too_small_and_the_gain_is_what_is_not_their_bytes(
    tmp_path: Path,
) -> None:
    (finding,) = ask("small_messages", case_of(sending(65_536, 12), tmp_path)).findings
    assert finding.subject == "AllReduce"
    assert finding.evidence["message_bytes"] == 65_536
    assert finding.evidence["link_gb_s"] == approx(65_536 / 12_000)
    beyond = 8 * (12_000 - 65_536 / BEST)
    assert finding.gain is not None and (finding.gain.low_ns, finding.gain.high_ns) == (0.0, approx(beyond, rel=0.01))


def test_large_messages_are_not_too_small(tmp_path: Path) -> None:
    assert ask("small_messages", case_of(sending(1 << 28, 1100), tmp_path)).verdict == "clear"


def test_small_messages_that_cost_little_are_no_finding(tmp_path: Path) -> None:
    gpus = TwoGpus()
    for _ in range(ITERATIONS):
        with gpus.iteration():
            gpus.compute(2000)
            gpus.all_reduce(12, size=65_536)
    assert ask("small_messages", case_of(gpus, tmp_path)).verdict == "clear"


@pytest.mark.parametrize(
    ("links", "lacking"),
    [(None, "links.json"), ({**LINKS, "ranks": 4}, "--gpus 2"), ({**LINKS, "operations": {}}, None)],
)
def test_without_a_measured_link_no_size_is_judged(tmp_path: Path, links: Any, lacking: str | None) -> None:
    answer = ask("small_messages", case_of(sending(65_536, 12), tmp_path, links))
    assert answer.verdict == ("not assessed" if lacking else "clear")
    assert (lacking or "was not measured") in answer.reason


def test_the_bandwidth_of_messages_stands_beside_what_the_link_does_with_them(tmp_path: Path) -> None:
    (finding,) = ask("exposed_communication", case_of(sending(1 << 20, 40), tmp_path)).findings
    assert finding.evidence["AllReduce_bus_gb_s"] == approx((1 << 20) / 40_000, rel=0.01)
    assert finding.evidence["AllReduce_link_gb_s"] == approx((1 << 20) / 20_000, rel=0.01)


def late(*, idle: bool) -> TwoGpus:
    """GPU 1 comes 100 µs late: its launches, or its computation."""
    gpus = TwoGpus()
    for _ in range(ITERATIONS):
        with gpus.iteration():
            for _ in range(4):
                gpus.compute(100)
                if idle:
                    gpus.idle(1, 100)
                else:
                    gpus.compute(100, 1, name="more")
                gpus.all_reduce(20)
    return gpus


def test_a_gpu_that_others_wait_for_is_launch_bound_though_the_busiest_is_not(tmp_path: Path) -> None:
    case = case_of(late(idle=True), tmp_path)
    (finding,) = ask("launch_bound_rank", case).findings
    assert (finding.subject, finding.bottleneck) == ("GPU 1", "launch")
    assert finding.gain is not None and finding.gain.low_ns == 0.0
    assert finding.gain.high_ns == approx(400_000, rel=0.2)
    (waits,) = ask("late_rank", case).findings
    assert waits.subject == "GPU 1" and waits.evidence["waiting_total"] == approx(400_000, rel=0.02)


def test_a_gpu_that_is_late_by_computing_is_not_launch_bound(tmp_path: Path) -> None:
    case = case_of(late(idle=False), tmp_path)
    assert ask("launch_bound_rank", case).verdict == "clear"
    (waits,) = ask("late_rank", case).findings
    assert waits.evidence["waiting_compute"] > 50 * abs(waits.evidence["waiting_idle"])


def overlapped(us: float, *, alone: bool = True) -> TwoGpus:
    """Three products of 100 µs, and beside an all-reduce three of `us`."""
    gpus = TwoGpus()
    for _ in range(ITERATIONS):
        with gpus.iteration():
            for _ in range(3 if alone else 0):
                gpus.compute(100)
            gpus.all_reduce(400, beside=True)
            for _ in range(3):
                gpus.compute(us)
    return gpus


def test_products_that_take_longer_beside_communication_are_slowed_by_the_difference(tmp_path: Path) -> None:
    (finding,) = ask("slowed_by_overlap", case_of(overlapped(130), tmp_path)).findings
    assert (finding.evidence["slowed_ns"], finding.evidence["longer"]) == (approx(90_000), approx(0.3))
    assert finding.gain is not None and (finding.gain.low_ns, finding.gain.high_ns) == (0.0, approx(90_000))
    assert finding.confidence == "low"


@pytest.mark.parametrize("us", [100, 105])
def test_products_that_take_as_long_are_not_slowed(tmp_path: Path, us: float) -> None:
    assert ask("slowed_by_overlap", case_of(overlapped(us), tmp_path)).verdict == "clear"


def test_other_work_of_the_same_kernel_is_no_slow_down_and_no_speed_up(tmp_path: Path) -> None:
    """Half as long beside communication: it does something else."""
    assert ask("slowed_by_overlap", case_of(overlapped(50), tmp_path)).verdict == "not assessed"


def test_nothing_is_said_of_products_that_never_run_alone(tmp_path: Path) -> None:
    assert ask("slowed_by_overlap", case_of(overlapped(130, alone=False), tmp_path)).verdict == "not assessed"


def pipeline(parts: int) -> TwoGpus:
    """Two stages of 400 µs in all, one behind the other for each part of the batch."""
    gpus = TwoGpus()
    for _ in range(ITERATIONS):
        with gpus.iteration():
            gpus.compute(400 / parts, 0)
            for part in range(parts):
                gpus.send(5)
                gpus.compute(400 / parts, *(() if part < parts - 1 else (1,)))
            gpus.send(5)
    return gpus


def test_bubbles_of_a_pipeline_are_what_its_stages_do_not_work(tmp_path: Path) -> None:
    """One part: each stage waits for the other; 8 parts of 50 µs: for one part alone."""
    (finding,) = ask("pipeline_bubbles", case_of(pipeline(1), tmp_path)).findings
    bubbles = [finding.evidence[f"gpu{gpu}_bubble_ns"] for gpu in (0, 1)]
    assert bubbles == [approx(400_000, rel=0.15)] * 2
    assert finding.gain is not None and finding.gain.high_ns == min(bubbles)
    less = ask("pipeline_bubbles", case_of(pipeline(8), tmp_path)).findings[0]
    assert less.evidence["gpu1_bubble_ns"] == approx(50_000, abs=60_000)


def test_what_all_gpus_send_alike_has_no_bubbles_of_a_pipeline(tmp_path: Path) -> None:
    assert ask("pipeline_bubbles", case_of(sending(65_536, 12), tmp_path)).verdict == "not assessed"


def test_stages_that_wait_for_each_other_are_no_late_rank(tmp_path: Path) -> None:
    assert ask("late_rank", case_of(pipeline(1), tmp_path)).verdict == "not assessed"


def peers(alone_ms: float, divided_ms: float) -> pd.DataFrame:
    rows = []
    for variant, ms in (("graph", alone_ms), ("default", divided_ms)):
        row = {**dataclasses.asdict(CASE), "variant": variant}
        for boundary in ("device", "end_to_end"):
            row |= {f"{boundary}_ms": ms, f"{boundary}_low_ms": 0.98 * ms, f"{boundary}_high_ms": 1.02 * ms}
        rows.append(row)
    return pd.DataFrame(rows)


def beside_one_gpu(case: Frames, alone_ms: float, divided_ms: float) -> Frames:
    alone = dataclasses.replace(CASE, variant="graph")
    return dataclasses.replace(case, undivided=alone, peers=peers(alone_ms, divided_ms))


def test_two_gpus_that_are_slower_than_one_are_found_with_the_difference(tmp_path: Path) -> None:
    case = beside_one_gpu(case_of(sending(65_536, 12), tmp_path), 2.66, 4.41)
    answer = ask("slower_than_alone", recorded(case))
    (finding,) = answer.findings
    assert finding.evidence == {"divided_ns": approx(4.41e6), "alone_ns": approx(2.66e6)}
    assert finding.gain is not None
    assert finding.gain.low_ns == approx(0.98 * 4.41e6 - 1.02 * 2.66e6)
    assert finding.gain.high_ns == approx(1.02 * 4.41e6 - 0.98 * 2.66e6)


@pytest.mark.parametrize("divided_ms", [1.5, 2.66, 2.7])
def test_two_gpus_that_are_faster_or_not_told_apart_from_one_are_clear(tmp_path: Path, divided_ms: float) -> None:
    case = beside_one_gpu(case_of(sending(65_536, 12), tmp_path), 2.66, divided_ms)
    assert ask("slower_than_alone", recorded(case)).verdict == "clear"


def recorded(case: Frames) -> Frames:
    """With a record of a case over two GPUs."""
    record = document("record", {"options": {"parallel": {"tensor": 2}}})
    return dataclasses.replace(case, records=pd.DataFrame({"record": [record]}), total=None)


@pytest.mark.parametrize("check", ["small_messages", "launch_bound_rank", "slowed_by_overlap", "pipeline_bubbles"])
def test_a_case_on_one_gpu_is_none_of_theirs(check: str, captured: Captured) -> None:
    answer = ask(check, captured("h100_torch_eager"))
    assert (answer.verdict, answer.reason) == ("not assessed", f"needs {NEEDS['ranks']}")


def test_of_two_h200s_the_second_waits_for_its_launches(captured: Captured) -> None:
    (finding,) = ask("launch_bound_rank", captured("h200x2_tensor_parallel")).findings
    assert finding.subject == "GPU 1"
