"""Of a capture: matrix products in fp32 on CUDA cores, where the GPU's tensor cores could take them in TF32.

A study says itself which format it asks for; of a capture nobody does, and fp32 may be an oversight. Sources: TF32
from compute capability 8.0 on and its 10 bits of mantissa (CUDA C++ Programming Guide, *Alternate Floating Point*);
eight times the FLOPs of fp32 on an A100, and less on any other GPU of peaks.csv.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inferprof import registry
from inferprof.case import REFERENCE
from inferprof.diagnosis.kernel_time import of_kernels
from inferprof.diagnosis.times import percent
from inferprof.errors import UserError
from inferprof.findings import Answer, Finding, Frames, Gain
from inferprof.readers.kind import Capture
from inferprof.tables.nodes import kernel_formats

FIRST: Final = 8
"""The major number of the first compute capability with TF32."""
TIMES: Final = 8.0
"""How many times as fast TF32 is at most."""
LEAST: Final = 0.1
"""Ours: of the kernels' time; below it there is little to gain."""
ADVICE: Final = (
    "Allow TF32, which has 10 bits of mantissa, and compare the outputs: torch.set_float32_matmul_precision('high'), "
    "`use_tf32` of ONNX Runtime's CUDA provider, BuilderFlag.TF32 of TensorRT."
)


def answer(own: Frames, captures: Sequence[Capture]) -> Answer | None:
    """The finding, in an answer of its own; None where there is nothing to say, or the GPU may have no TF32."""
    majors = [capture.compute_major for capture in captures if capture.compute_major is not None]
    if not majors or min(majors) < FIRST:
        return None
    for tool in registry.timing():
        rows = own.of_tool(tool)
        if not kernel_formats.tells(rows):
            continue
        try:
            kernels = kernel_formats.of_case(rows)
        except UserError:
            continue
        in_fp32 = kernels.loc[kernels["matrix"] & kernels["dtype"].eq(REFERENCE), "duration_ns"].sum()
        share = float(in_fp32 / kernels["duration_ns"].sum())
        return _found(own, tool, share) if share >= LEAST else None
    return None


def _found(own: Frames, tool: str, share: float) -> Answer:
    time = of_kernels(own, share)
    finding = Finding(
        subject=REFERENCE,
        bottleneck="compute",
        share=own.share(time),
        reason=f"matrix products in fp32 take {percent(share)} of the kernels' time on CUDA cores. This GPU's tensor "
        "cores take them as TF32.",
        evidence={"fp32_share": share},
        source=tool,
        gain=None if time is None else Gain(0.0, time * (1 - 1 / TIMES)),
        advice=ADVICE,
        confidence="medium",
    )
    return Answer("tf32", "engine", "found", findings=(finding,))
