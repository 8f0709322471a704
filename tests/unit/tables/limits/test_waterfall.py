"""Where the time of a case goes: the parts add up, none is negative, and what no source tells stays unexplained."""

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.facts import facts

from inferprof.case import Case
from inferprof.profilers import kineto, nsys
from inferprof.tables import schema
from inferprof.tables.counters.bounds import BOUNDS
from inferprof.tables.limits import waterfall
from inferprof.tables.limits.waterfall import PARTS, Bare, Watched, fill, split
from inferprof.tables.records import KEY

CASE = Case("vit", "fp16", "ort_cuda", "default", "b64")
ROW = dict(zip(KEY, ["box", *CASE.path.parts], strict=True))
BARE = Bare(end_to_end=1000.0, device=600.0, call=620.0, copies=200.0, staging=100.0, bind=50.0)
SEEN = Watched(kernels=400.0, copies=20.0, launch=90.0, idle_copy=10.0, idle_other=20.0)


def told(parts: dict[Any, Any]) -> dict[str, float]:
    return {part: ns for part, ns in parts.items() if ns}


# --- the three sources -----------------------------------------------------------------------------------------


def test_the_bare_record_alone_tells_copies_from_the_inference():
    parts = split(BARE, None, None)
    # copies 200 + 100, execution 600 + 50 to bind and 20 until the wait returns
    assert told(parts) == {"copy": 300.0, "execution": 670.0, "unexplained": 30.0}
    assert [part for part, ns in parts.items() if ns is None] == [
        *("launch", "idle", "kernels"),
        *("memory", "compute", "latency", "tail"),
    ]


def test_idle_that_the_profile_does_not_show_is_unexplained():
    # device 600 = kernels 400 + copies 20 + a gap of 180, of which the profile shows 90 + 10 + 20
    assert told(split(BARE, SEEN, None)) == {
        "launch": 90.0 + 50.0,
        "copy": 300.0 + 20.0 + 10.0,
        "idle": 20.0 + 20.0,
        "kernels": 400.0,
        "unexplained": 1000.0 - 910.0,
    }


def test_idle_beyond_the_bare_gap_is_the_profilers_and_shrinks_by_cause():
    slow = Watched(kernels=400.0, copies=20.0, launch=540.0, idle_copy=0.0, idle_other=180.0)
    parts = split(BARE, slow, None)
    assert (parts["launch"], parts["idle"]) == (540 / 4 + 50, 180 / 4 + 20)
    assert parts["unexplained"] == 30.0


def test_counters_split_the_kernels_and_leave_what_they_did_not_see():
    parts = split(BARE, SEEN, {"memory": 0.25, "compute": 0.5, "latency": 0.0, "tail": 0.125})
    found = [parts[part] for part in ("memory", "compute", "latency", "tail", "kernels")]
    assert found == [100.0, 200.0, 0.0, 50.0, 50.0]


def test_what_the_host_hides_behind_the_gpu_is_cut_first():
    hidden = Bare(end_to_end=910.0, device=600.0, call=620.0, copies=200.0, staging=100.0, bind=50.0)
    busy = Watched(kernels=600.0, copies=0.0, launch=300.0, idle_copy=0.0, idle_other=0.0)
    assert told(split(hidden, busy, None)) == {"kernels": 600.0, "copy": 300.0, "idle": 10.0}


def test_kernels_that_take_longer_under_the_profiler_take_no_longer_than_the_device():
    cold = Watched(kernels=700.0, copies=5.0, launch=300.0, idle_copy=0.0, idle_other=9.0)
    assert split(BARE, cold, None)["kernels"] == 600.0


def test_claims_are_granted_in_order_in_whole_nanoseconds():
    assert fill(10.5, [("copy", 3.75), ("kernels", 2.0), ("copy", 1.0)]) == {
        "copy": 4.0,
        "kernels": 2.0,
        "unexplained": 4.5,
    }
    assert fill(4.0, [("kernels", 3.0), ("copy", 3.0)]) == {"kernels": 3.0, "copy": 1.0, "unexplained": 0.0}


def test_parts_add_up_exactly_and_none_is_negative_whatever_was_measured():
    random = np.random.default_rng(6)
    for _ in range(2000):
        device, call, copies, staging, bind = random.integers(0, 2 * 10**7, 5) / 2
        total = float(random.integers(0, 2 * int(device + copies + 1))) / 2
        seen = Watched(*(float(x) for x in random.choice([0.0, 1.0], 5) * random.random(5) * 3e7))
        shares = random.dirichlet(np.ones(5))[:4] * random.choice([0.0, 1.0], 4)
        bare = Bare(total, device, call, copies, staging, bind)
        for profile, counters in (
            (None, None),
            (seen, None),
            (seen, dict(zip(BOUNDS, shares, strict=True))),
        ):
            found = [ns for ns in split(bare, profile, counters).values() if ns is not None]
            assert sum(found) == total
            assert min(found) >= 0


# --- from frames -----------------------------------------------------------------------------------------------


def latency(**medians: float) -> pd.DataFrame:
    rows = [
        {**ROW, "boundary": boundary, "median": medians.get(boundary), "not_measured": None if medians else "CPU"}
        for boundary in ("device", "call", "end_to_end")
    ]
    return pd.DataFrame(rows, dtype=object)


def stages(**ms: float | None) -> pd.DataFrame:
    names = ("stage_inputs", "h2d", "bind", "execute", "d2h", "extract")
    return pd.DataFrame([{**ROW, **{f"{name}_ms": ms.get(name) for name in names}}]).astype(
        {f"{name}_ms": float for name in names}
    )


def unpacked(path: Path, folder: Path) -> Path:
    out = folder / path.name.removesuffix(".xz")
    out.write_bytes(lzma.decompress(path.read_bytes()))
    return out


@pytest.fixture(scope="module")
def ort(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """ORT CUDA, ViT-B/16 FP16, batch 8, its ranges renamed to the workload's, its copies put into a stage."""
    folder = tmp_path_factory.mktemp("waterfall")
    frame = nsys.read(unpacked(repository / "tests/data/nsys/h100_ort_cuda_vit.sqlite.xz", folder))
    frame = frame.replace({"range": {"host_run": "iteration"}, "name": {"host_run": "iteration"}})
    copies = frame["level"].eq("memcpy") & frame["range"].eq("iteration")
    return schema.of_case(frame.assign(range=frame["range"].mask(copies, "iteration > stage:h2d")), "box", CASE)


def counters_of(ort: pd.DataFrame, **metrics: float) -> tuple[pd.DataFrame, float]:
    """What ncu would say of the longest launch configuration, and that one's share of the kernel time."""
    configs = ort[ort["level"].eq("launch_config")]
    first = configs[configs["launch"].eq(0)]
    words = first[first["metric"].isin(["grid", "block", "symbol"])]
    numbers = pd.DataFrame(
        [{"metric": key, "value": value} for key, value in {"duration_total": 1.0, **metrics}.items()]
    )
    rows = pd.concat([words[["metric", "text"]], numbers]).assign(
        level="kernel", name=first["name"].iloc[0], launch=0
    )
    totals = configs.loc[configs["metric"].eq("duration_total"), "value"]
    return schema.of_case(schema.conform(rows, "ncu"), "box", CASE), float(totals.iloc[0] / totals.sum())


def one(found: pd.DataFrame) -> dict[str, Any]:
    (row,) = found.to_dict("records")
    return {str(key): value for key, value in row.items()}


MEASURED = latency(device=2_600_000.0, call=2_650_000.0, end_to_end=3_000_000.5)
STAGES = stages(stage_inputs=0.02, h2d=0.25, bind=0.03, execute=2.65, d2h=0.02, extract=0.01)


def test_a_capture_splits_the_device_time_of_a_bare_run(ort):
    assert waterfall.watched(ort) == Watched(
        kernels=2_010_798.5, copies=0.0, launch=2_328_725.6, idle_copy=206_933.8, idle_other=87_091.6
    )
    row = one(waterfall.of_cases(MEASURED, STAGES, ort))
    shrink = (2_600_000 - 2_010_798.5) / (2_328_725.6 + 206_933.8 + 87_091.6)
    assert told({part: row[f"{part}_ns"] for part in PARTS}) == {
        "kernels": 2_010_798.0,
        "launch": int(2_328_725.6 * shrink) + 30_000,
        "copy": 270_000 + 30_000 + int(206_933.8 * shrink),
        "idle": int(87_091.6 * shrink) + 50_000,
        "unexplained": pytest.approx(
            20_000, abs=5
        ),  # 3,000,000 - 2,600,000 - 50,000 - 330,000, and what is below 1 ns
    }
    assert sum(row[f"{part}_ns"] or 0.0 for part in PARTS) == row["total_ns"] == 3_000_000.5
    assert (row["tool"], row["no_timeline"], row["no_counters"]) == ("nsys", None, waterfall.NEEDS_COUNTERS)
    assert row["memory_ns"] is None


def test_a_profile_without_iterations_leaves_the_execution_whole(ort):
    frame = ort[ort["name"] != "iteration"]
    row = one(waterfall.of_cases(MEASURED, STAGES, frame))
    assert row["execution_ns"] == 2_600_000.0 + 30_000 + 50_000
    assert (row["no_timeline"], row["launch_ns"]) == (waterfall.NEEDS_TIMELINE, None)


def test_counters_of_some_kernels_split_their_share_of_the_time(ort):
    ncu, share = counters_of(ort, sm_throughput=90.0, memory_throughput=10.0, tail_waste=25.0)
    row = one(waterfall.of_cases(MEASURED, STAGES, pd.concat([ort, ncu])))
    assert 0.1 < share == pytest.approx(row["counted_share"])
    assert row["compute_ns"] == int(2_010_798 * share * 0.75)
    assert row["tail_ns"] == int(2_010_798 * share * 0.25)
    assert row["kernels_ns"] == 2_010_798 - row["compute_ns"] - row["tail_ns"]
    assert (row["memory_ns"], row["latency_ns"], row["no_counters"]) == (0.0, 0.0, None)


def test_counters_need_the_launches_of_a_timeline(ort):
    ncu, _ = counters_of(ort, sm_throughput=90.0, memory_throughput=10.0)
    without = ort[ort["level"] != "launch_config"]
    row = one(waterfall.of_cases(MEASURED, STAGES, pd.concat([without, ncu])))
    assert (row["memory_ns"], row["no_counters"]) == (None, waterfall.NEEDS_COUNTERS)


def test_of_two_tools_nsys_speaks_for_a_case(ort):
    kineto = ort.assign(tool="kineto", value=ort["value"] * 2)
    assert one(waterfall.of_cases(MEASURED, STAGES, pd.concat([kineto, ort])))["kernels_ns"] == 2_010_798.0
    assert one(waterfall.of_cases(MEASURED, STAGES, kineto))["tool"] == "kineto"


def test_inputs_that_are_on_the_device_from_the_start_take_no_time(ort):
    placed = stages(bind=0.03, execute=2.65, d2h=0.02, extract=0.01)
    with_copies, without = (one(waterfall.of_cases(MEASURED, stages_, ort)) for stages_ in (STAGES, placed))
    assert with_copies["copy_ns"] - without["copy_ns"] == 270_000
    assert without["unexplained_ns"] - with_copies["unexplained_ns"] == 270_000


def test_a_case_on_a_cpu_has_no_waterfall():
    row = one(waterfall.of_cases(latency(), STAGES, pd.DataFrame(columns=list(schema.COLUMNS))))
    assert facts(row["not_measured"], "waterfall") == ["device", "call", "end_to_end", "not", "waterfall", "GPUs"]
    assert row["total_ns"] is None


def test_copies_inside_of_the_inference_are_not_those_of_the_stages(ort):
    assert waterfall.watched(ort).copies == 0.0
    inside = ort.replace({"range": {"iteration > stage:h2d": "iteration > stage:execute"}})
    assert waterfall.watched(inside).copies == pytest.approx((2_410_666 + 18_208) / 10)


def test_of_two_devices_the_one_that_computes_longest_counts(ort):
    idle = ort[ort["device"].notna()].assign(device=1)
    less = idle.assign(value=idle["value"].where(~idle["metric"].str.contains("busy"), idle["value"] / 2))
    row = one(waterfall.of_cases(MEASURED, STAGES, pd.concat([ort, less])))
    assert row["kernels_ns"] == 2_010_798.0


def test_both_tracers_see_the_same_inference(ort, repository):
    """One model on one GPU: kernels agree within a quarter of a percent, launches do not."""
    trace = kineto.read(repository / "tests/data/kineto/h100_ort_cuda_vit.json.gz")
    by_kineto, by_nsys = waterfall.watched(trace), waterfall.watched(ort)
    assert by_kineto.kernels == pytest.approx(by_nsys.kernels, rel=0.0025)
    assert by_kineto.launch > 1.5 * by_nsys.launch
