"""A machine that is not at hand: what a study would run and refuse there, before anybody rents or buys it."""

from __future__ import annotations

from typing import Final

from inferprof.machine.hardware import PACKAGES, TOOLS, Gpu, Machine, detect_packages

IMAGE: Final = {"tensorrt": "10.14.1", "onnxruntime-gpu": "1.31.1"}
"""What matters of the versions in the default image: docs/versions.md."""
ASSUMED: Final = (
    f"one GPU with memory enough, an x86_64 CPU, every package, tool and permission of the image, TensorRT "
    f"{IMAGE['tensorrt'].split('.')[0]}"
)
"""What is taken for granted of it."""


def equipped(capability: tuple[int, int]) -> Machine:
    """A machine with a GPU of a compute capability, and with all that a study can make use of."""
    gpu = Gpu(f"GPU of compute capability {capability[0]}.{capability[1]}", capability, None, "", "not known")
    return Machine(
        gpu=gpu,
        packages=dict.fromkeys(PACKAGES, "1.0") | detect_packages() | IMAGE,
        tools={tool: tool for tool in TOOLS},
        nvinfer=frozenset({int(IMAGE["tensorrt"].split(".")[0])}),
        label=f"assumed-{gpu.sm}",
        gpus=1,
    )
