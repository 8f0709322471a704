"""What the report says of profiles: rows as the readers of nsys give them from real captures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from inferprof.case import Case
from inferprof.profilers import nsys
from inferprof.report import evidence
from inferprof.report.model import Section, Table
from inferprof.report.sections import timeline
from inferprof.tables import schema

EAGER = "vit_tiny/fp16/torch_eager/default/b1"
GRAPH = "vit_tiny/fp16/torch_eager/graph/b1"
ORT = "vit_tiny/fp16/ort_cuda/default/b1"


def load(results: Any) -> evidence.Evidence:
    cases = evidence.read_cases(results.root / "reports" / results.study / "cases.csv")
    return evidence.load(results.root, results.study, results.machine, cases, "fp32/ort_cuda/default")


def profile(results: Any, case: str, frame: pd.DataFrame) -> None:
    """Write a profile of a case, as `inferprof table` does."""
    path = results.root / results.machine / "table" / "nsys" / f"{case}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    schema.of_case(frame, results.machine, Case(*case.split("/"))).to_parquet(path)


def table_of(section: Section, name: str) -> list[list[str]]:
    table = next(block for block in section.blocks if isinstance(block, Table) and block.name == name)
    return [[cell.text for cell in row] for row in table.rows]


@pytest.fixture
def eager(captured: Callable[[str], Path]) -> pd.DataFrame:
    """Every kernel lies in a range `iteration`, as in the captures of a study; others ran before."""
    return nsys.read(captured("h100_torch_eager"))


@pytest.fixture
def ort(captured: Callable[[str], Path]) -> pd.DataFrame:
    """ONNX Runtime, its iterations renamed to what the workload calls them, with a stage inside."""
    frame = nsys.read(captured("h100_ort_cuda_vit"))
    return frame.replace({"parent": {"device_run": "iteration > stage:execute"}, "name": {"device_run": "iteration"}})


@pytest.fixture
def study(results):
    """Three GPU cases of a model at one shape, planned and measured."""
    for case in (EAGER, ORT, GRAPH):
        results.ok(case, 1.0, gpu=True)
    results.plan()
    return results


def test_kernels_inside_of_iterations_are_listed_by_their_share(study, eager):
    profile(study, EAGER, eager)
    rows = [row[6:] for row in table_of(timeline.section(load(study)), "kernels")]
    assert [(row[0], row[1], row[2][:40]) for row in rows] == [
        ("19.5", "25", "at::native::<unnamed>::vectorized_layer_"),
        ("17.7", "24", "nvjet_sm90_hsh_64x64_64x13_1x4_h_bz_bias"),
        ("14.9", "12", "cudnn_generated_fort_native_sdpa_sm90_fl"),
        ("11.4", "1", "implicit_convolve_sgemm<__half, __half, "),
        ("10.0", "12", "nvjet_sm90_hsh_128x72_64x8_1x2_h_bz_bias"),
    ]


def test_an_iteration_is_shares_of_its_duration_and_calls(study, ort):
    profile(study, ORT, ort)
    assert [row[5:] for row in table_of(timeline.section(load(study)), "timeline")] == [
        ["nsys", "37.4", "55.7", "0.1", "0.0", "6.8", "259", "4"]
    ]
