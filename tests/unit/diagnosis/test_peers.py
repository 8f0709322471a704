"""The rows of two measured cases, and the boundary by which they are compared."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd
import pytest

from inferprof.case import Case
from inferprof.diagnosis.times import compared_by, peer_of

CASE = Case("vit", "fp16", "ort_cuda", "default", "b8")
CPU = dataclasses.replace(CASE, precision="int8", backend="ort_cpu")
NAN = float("nan")


def row(case: Case, device_ms: float) -> dict[str, Any]:
    return {"machine": "m", **dataclasses.asdict(case), "device_ms": device_ms, "end_to_end_ms": 9.0}


PEERS = pd.DataFrame([row(CPU, NAN), row(CASE, 2.0)])


def test_the_row_of_a_case_is_found_by_all_of_its_names() -> None:
    found = peer_of(PEERS, CASE)
    assert found is not None and found["device_ms"] == 2.0


@pytest.mark.parametrize("name", ["model", "precision", "backend", "variant", "shape"])
def test_a_case_that_differs_in_one_name_was_not_measured(name: str) -> None:
    assert peer_of(PEERS, dataclasses.replace(CASE, **{name: "other"})) is None


def test_two_cases_are_compared_on_the_device_where_both_ran_on_one() -> None:
    on_gpu, on_cpu = row(CASE, 2.0), row(CPU, NAN)
    assert compared_by(on_gpu, on_gpu) == "device"
    assert {compared_by(on_gpu, on_cpu), compared_by(on_cpu, on_gpu), compared_by(on_cpu, on_cpu)} == {"end_to_end"}
