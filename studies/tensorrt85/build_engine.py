"""Build an engine with TensorRT 8.5: `build_engine.py MODEL.onnx --shape b8 --out OUT.engine`, with Python 3.10.

Not the product's build: 8.5 has weak typing only and lies below the product's floor. It is the last TensorRT whose
libraries are in its wheel on PyPI, so it is the one that can be had anywhere. That a graph is in fp16 or int8 is then
no more than leave to compute in it: which layers do is in the engine's own description.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inferprof.backends.profile import build_facts, profile_of
from inferprof.case import Shape, Variant
from inferprof.files import write_json, written_whole
from inferprof.model import model_spec
from inferprof.plugins import BuildRequest

WORKSPACE_BYTES = 1 << 30


def build(request: BuildRequest, precision: str) -> dict[str, Any]:
    """Write the engine and return the facts of the build. Raises PolygraphyException where TensorRT builds none."""
    import polygraphy
    import tensorrt as trt
    from polygraphy.backend.trt import CreateConfig, Profile, engine_bytes_from_network, network_from_onnx_path

    started = time.perf_counter()
    profile = profile_of(request.spec, request.shape, request.variant)
    ranges = Profile()
    for name, shapes in profile.items():
        ranges.add(name, **shapes)
    config = CreateConfig(
        profiles=[ranges],
        tf32=False,
        fp16=precision == "fp16",
        int8=precision == "int8",
        memory_pool_limits={trt.MemoryPoolType.WORKSPACE: WORKSPACE_BYTES},
        profiling_verbosity=trt.ProfilingVerbosity.DETAILED,
        # Without it 8.5 finds no format for a Flatten of open sizes.
        preview_features=[trt.PreviewFeature.FASTER_DYNAMIC_SHAPES_0805] if request.variant.options else [],
    )
    engine = engine_bytes_from_network(network_from_onnx_path(str(request.onnx)), config=config)
    seconds = time.perf_counter() - started
    with written_whole(request.out) as partial:
        partial.write_bytes(engine)
    versions = {"tensorrt": trt.__version__, "polygraphy": polygraphy.__version__}
    return {**build_facts(request, seconds, profile, versions), "strongly_typed": False}


def main(words: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("onnx", type=Path)
    parser.add_argument("--spec", type=Path, help="models/NAME.yaml (default: the ONNX file describes itself)")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "fp16", "int8"))
    parser.add_argument("--shape", required=True, help="the optimum, such as b8_s128")
    parser.add_argument("--profile", nargs="*", default=[], metavar="SHAPE", help="other shapes that it serves")
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args(words)
    spec = model_spec.load(args.spec or args.onnx)
    variant = Variant("given", {"profile": args.profile} if args.profile else {})
    request = BuildRequest(args.onnx, spec, spec.at(Shape.parse(args.shape)), variant, args.out)
    write_json(args.out.with_suffix(".build.json"), build(request, args.precision))


if __name__ == "__main__":
    main()
