"""Build an engine with TensorRT 8.5, for our tests: `make_tensorrt85_engine.py MODEL.onnx OUT.engine`.

Not product code: 8.5 has weak typing only and lies below the product's floor. It is the last TensorRT whose
libraries are in its wheel on PyPI (Python 3.10), so it is the one that can be had anywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path

BATCHES = (1, 4, 8)
"""Minimum, optimum and maximum of the profile."""


def build(model: Path, out: Path) -> None:
    """An fp32 engine without TF32, for BATCHES. Raises RuntimeError with the parser's first message."""
    import tensorrt as trt

    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(model)):
        raise RuntimeError(parser.get_error(0).desc())
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 28)
    config.clear_flag(trt.BuilderFlag.TF32)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        profile.set_shape(tensor.name, *((batch, *tuple(tensor.shape)[1:]) for batch in BATCHES))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("TensorRT built no engine; see its log")
    out.write_bytes(plan)


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
