"""Factors that say more about the baseline, or the measurement, than about the case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.facts import facts, mentions

from inferprof.case import Case
from inferprof.profilers import ort_profile
from inferprof.tables import schema
from inferprof.tables.limits import speed_up_flags
from inferprof.tables.records import KEY, rows_of

BASELINE = "fp16/ort_cuda/default"
CASE = ("h100", "bert", "fp16", "tensorrt", "default", "b1")
NO_PROFILES = pd.DataFrame(columns=list(schema.COLUMNS))
NO_ROOFLINE = pd.DataFrame(columns=[*KEY, "device_ms", "fused_ms"])


def flag(
    speed_up: float | None,
    profiles: pd.DataFrame = NO_PROFILES,
    roofline: pd.DataFrame = NO_ROOFLINE,
    boundary: str = "device",
) -> str | None:
    row = {**dict(zip(KEY, CASE, strict=True)), "speed_up": speed_up, "boundary": boundary}
    (found,) = rows_of(speed_up_flags.flagged(pd.DataFrame([row]), profiles, roofline, BASELINE))
    answer: str | None = found["flag"]
    return answer


def roofline(device_ms: float, fused_ms: float) -> pd.DataFrame:
    return pd.DataFrame([{**dict(zip(KEY, CASE, strict=True)), "device_ms": device_ms, "fused_ms": fused_ms}])


@pytest.fixture(scope="module")
def sound(repository: Path) -> pd.DataFrame:
    """A session of an H100, as if it were the baseline's: one node falls back, at 6 % of the nodes' time."""
    frame = ort_profile.read(repository / "tests/data/ort_profile/h100_ort_tensorrt_ep.json.gz")
    return schema.of_case(frame, "h100", Case("bert", "fp16", "ort_cuda", "default", "b1"))


@pytest.fixture(scope="module")
def falling_back(sound: pd.DataFrame) -> pd.DataFrame:
    """The same with a node on the CPU that takes 300 times as long."""
    slow = (sound["name"] == "hardmax") & sound["metric"].str.startswith("duration")
    return sound.assign(value=sound["value"].where(~slow, sound["value"] * 300))


def test_a_factor_over_a_baseline_that_falls_back_is_no_speed_up(falling_back: pd.DataFrame) -> None:
    """`CUDA EP 2,793 ms, TensorRT 375 times faster`."""
    assert facts(flag(375.0, falling_back)) == ["1", "Hardmax", "86%"]
    assert flag(1.2, falling_back) == flag(375.0, falling_back)


def test_a_small_fallback_of_the_baseline_does_not_explain_a_factor(sound: pd.DataFrame) -> None:
    assert flag(3.0, sound) is None
    assert flag(375.0, sound) is None


def test_a_baseline_that_nothing_watched_is_to_be_looked_at_first() -> None:
    assert facts(flag(375.0)) == ["one", "GPU", "20×", "ort_profile", "profilers"]
    assert flag(19.9) is None


def test_a_cpu_may_be_any_number_of_times_slower() -> None:
    assert flag(375.0, boundary="end_to_end") is None


def test_a_case_faster_than_its_roof_was_not_measured_right() -> None:
    assert facts(flag(2.0, roofline=roofline(0.5, 1.0)), "roof") == ["faster", "roof", "1 ms"]
    assert flag(2.0, roofline=roofline(1.5, 1.0)) is None


def test_what_is_no_faster_is_not_flagged(falling_back: pd.DataFrame) -> None:
    assert flag(0.9, falling_back) is None
    assert flag(None, falling_back) is None


def test_a_profile_of_another_case_says_nothing_of_the_baseline(falling_back: pd.DataFrame) -> None:
    other: dict[str, Any] = {"shape": "b8"}
    assert flag(5.0, falling_back.assign(**other)) is None


@pytest.mark.parametrize(("speed_up", "flagged"), [(2.0, False), (2.1, True)])
def test_more_than_its_gpus_give_over_the_same_case_on_one_is_in_doubt(speed_up: float, flagged: bool) -> None:
    alone = (*CASE[:2], *BASELINE.split("/"), "b1")
    divided = (*alone[:4], "tp2", "b1")
    options: dict[tuple[str, ...], dict[str, Any]] = {
        alone: {"tf32": True},
        divided: {"tf32": True, "parallel": {"tensor": 2}},
    }
    row = {**dict(zip(KEY, divided, strict=True)), "speed_up": speed_up, "boundary": "device"}
    frame = speed_up_flags.flagged(pd.DataFrame([row]), NO_PROFILES, NO_ROOFLINE, BASELINE, options)
    said = frame["flag"].iloc[0]
    assert mentions(said, "2 GPUs", "doubt") if flagged else said is None
    other = {**options, divided: {"parallel": {"tensor": 2}}}  # the baseline differs in more than its GPUs
    assert (
        speed_up_flags.flagged(pd.DataFrame([row]), NO_PROFILES, NO_ROOFLINE, BASELINE, other)["flag"].iloc[0] is None
    )
