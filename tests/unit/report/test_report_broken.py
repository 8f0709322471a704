from __future__ import annotations

from pathlib import Path

import pytest

from inferprof.case import Case
from inferprof.report import broken

CASE = Case("vit", "fp16", "ort_cuda", "default", "b8")
BENCHMARK = "log/gpu/benchmark/vit/fp16/ort_cuda/default/b8/r0.log"
CONVERSION = "log/onnx/vit/fp16.log"
DONE = "inferprof: Convert vit to fp16: done in 33 s\n"
STEPS = "inferprof: Convert vit to fp16: write the file (3 of 3), 27 s\n"


def reason(results: Path, logs: dict[str, str]) -> str:
    for name, text in logs.items():
        path = results / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return broken.reason(results, "gpu", CASE)


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ({}, broken.NOT_RUN),
        ({CONVERSION: DONE}, broken.NOT_RUN),
        ({CONVERSION: STEPS + DONE}, broken.NOT_RUN),
        ({CONVERSION: "out of disk\n"}, f"no record: the job broke: out of disk (log: {CONVERSION})"),
        ({CONVERSION: DONE, BENCHMARK: "boom\n\n"}, f"no record: the job broke: boom (log: {BENCHMARK})"),
    ],
    ids=["no log", "stopped before it began", "stopped after steps that ended well", "conversion", "benchmark"],
)
def test_the_stage_that_broke_is_named_and_one_that_ended_well_is_not(logs, expected, tmp_path):
    assert reason(tmp_path, logs) == expected
