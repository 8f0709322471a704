"""Building engines with TensorRT and TensorRT-RTX through Polygraphy: always strongly typed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from inferprof import progress, registry
from inferprof.backends.profile import Profile, build_facts, profile_of
from inferprof.backends.tensorrt_runtime import Flavour, MessageLog, load, message_log
from inferprof.case import Variant
from inferprof.errors import CaseFailed, UserError
from inferprof.files import written_whole
from inferprof.plugins import BuildRequest
from inferprof.readers import trt_listing
from inferprof.tables.nodes.trt_engine import Layer

_SPARSITY = {
    "eligible": (r"Found (\d+) layer\(s\) eligible", r"eligible for sparse math: ?(.*)"),
    "picked": (r"Chose (\d+) layer\(s\) using", r"picked sparse implementation for layers: ?(.*)"),
}


def build(request: BuildRequest, flavour: Flavour) -> dict[str, Any]:
    """Write the engine and return the facts of the build.

    Raises CaseFailed with the parser's or builder's own message where the graph is not supported.
    """
    if request.target and flavour == "tensorrt":
        raise UserError("tensorrt builds for the GPU of this machine only; leave the target out, or use tensorrt_rtx")
    trt = polygraphy_with(flavour)
    log = message_log(trt)
    started = time.perf_counter()
    progress.step("read the graph")
    builder, network = _parsed(request.onnx, trt, log)
    profile = profile_of(request.spec, request.shape, request.variant)
    progress.step("build the engine")
    with _quiet():
        engine = _serialized(builder, network, _config(request, profile, flavour, trt), _timing_cache(request), log)
    seconds = time.perf_counter() - started
    with written_whole(request.out) as partial:
        partial.write_bytes(engine)
    versions = {flavour: trt.__version__, "polygraphy": sys.modules["polygraphy"].__version__}
    facts = build_facts(request, seconds, profile, versions)
    sparsity = {"sparsity": sparsity_of(log.sparsity)} if request.variant.flag("sparsity") else {}
    layers = [_described(layer) for layer in trt_listing.layers_of(log.layers)]
    return {**facts, "strongly_typed": True, "warnings": log.warnings, **sparsity, "layers": layers}


def _described(layer: Layer) -> dict[str, Any]:
    """A layer as the document of a build has it: tensors by their sizes and formats alone."""
    whole = dataclasses.asdict(layer)
    sides = {side: [{"dims": t["dims"], "dtype": t["dtype"]} for t in whole[side]] for side in ("inputs", "outputs")}
    return {**{name: whole[name] for name in ("name", "kind", "nodes", "tactic", "weights")}, **sides}


def polygraphy_with(flavour: Flavour) -> Any:
    """TensorRT's module, with Polygraphy set to it. Polygraphy decides at import, hence one flavour a process."""
    wanted = flavour == "tensorrt_rtx"
    os.environ["POLYGRAPHY_USE_TENSORRT_RTX"] = str(int(wanted))
    trt = load(flavour)
    from polygraphy import config

    if wanted != config.USE_TENSORRT_RTX:
        raise UserError(
            f"Polygraphy is already set to the other TensorRT; build with {flavour} in a process of its own"
        )
    return trt


def _parsed(onnx: Path, trt: Any, log: MessageLog) -> tuple[Any, Any]:
    """Builder and network of an ONNX file. The parser's errors name the node that it could not take."""
    builder = trt.Builder(log)
    typed = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)  # TensorRT 11 knows nothing else
    network = builder.create_network(0 if typed is None else 1 << int(typed))
    trt.init_libnvinfer_plugins(log, "")
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(onnx)):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        raise CaseFailed("; ".join(_parser_error(error) for error in errors) or f"{onnx} is not an ONNX file")
    return builder, network


def _parser_error(error: Any) -> str:
    """`node /0/Det (Det): UNSUPPORTED_NODE in checkDet: …`; the description alone may be as terse as "false"."""
    where = f"{error.code().name} in {error.func()}"
    return f"node {error.node_name()} ({error.node_operator()}): {where}: {' '.join(error.desc().split())}"


def _config(request: BuildRequest, profile: Profile, flavour: Flavour, trt: Any) -> Any:
    """Polygraphy's CreateConfig of the variant's builder options, aimed at the target GPU."""
    from polygraphy.backend.trt import CreateConfig, PostprocessConfig
    from polygraphy.backend.trt import Profile as TrtProfile

    ranges = TrtProfile()
    for name, shapes in profile.items():
        ranges.add(name, **shapes)
    config = CreateConfig(
        profiles=[ranges], load_timing_cache=_existing(request), **_options(request.variant, flavour, trt)
    )
    if request.target is None:
        return config
    capability = getattr(trt.ComputeCapability, "SM{}{}".format(*request.target), None)
    if capability is None:
        capabilities = ", ".join(name for name in trt.ComputeCapability.__members__ if name.startswith("SM"))
        raise UserError(
            "target {}.{} is not one that TensorRT-RTX builds for: {}".format(*request.target, capabilities)
        )

    def aim(builder: Any, network: Any, config: Any) -> None:
        config.num_compute_capabilities = 1
        config.set_compute_capability(capability, 0)

    return PostprocessConfig(config, aim)


def _options(variant: Variant, flavour: Flavour, trt: Any) -> dict[str, Any]:
    """CreateConfig's arguments, by the options that this builder understands."""
    arguments: dict[str, Any] = {}
    for option in registry.builder_options(flavour).values():
        arguments |= option.arguments(variant, trt)
    return arguments


def _timing_cache(request: BuildRequest) -> Path | None:
    """The file of measured tactics that the build reads and adds to."""
    option = request.variant.options.get("timing_cache")
    return Path(str(option)) if option else None


def _existing(request: BuildRequest) -> str | None:
    cache = _timing_cache(request)
    return str(cache) if cache and cache.exists() else None


def _serialized(builder: Any, network: Any, config: Any, cache: Path | None, log: MessageLog) -> bytes:
    """The engine. Raises CaseFailed with the builder's errors."""
    from polygraphy.backend.trt import EngineBytesFromNetwork
    from polygraphy.exception import PolygraphyException

    if cache:
        cache.parent.mkdir(parents=True, exist_ok=True)
    save = str(cache) if cache else None
    try:
        engine = EngineBytesFromNetwork((builder, network, None), config=config, save_timing_cache=save)()
    except PolygraphyException as error:
        raise CaseFailed("; ".join(log.errors) or str(error)) from None
    return bytes(engine)


def sparsity_of(messages: Sequence[str]) -> dict[str, int | None]:
    """How many layers could run on sparse weights and how many the builder let: the last that it said of each.

    `Found 39 layer(s) eligible to use sparse tactics` and `Chose 2 layer(s) using sparse tactics` since TensorRT 8.6;
    before, lists behind `Layers eligible for sparse math:` and `picked sparse implementation for layers:`. None where
    it said nothing.
    """
    return {what: _last_count(messages, *patterns) for what, patterns in _SPARSITY.items()}


def _last_count(messages: Sequence[str], counted: str, listed: str) -> int | None:
    for message in reversed(messages):
        if match := re.search(counted, message):
            return int(match.group(1))
        if match := re.search(listed, message):
            return len([name for name in match.group(1).split(", ") if name])
    return None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Polygraphy's own progress out of the log, and its use of calls that TensorRT-RTX has deprecated."""
    from polygraphy.logger import G_LOGGER

    with G_LOGGER.verbosity(G_LOGGER.ERROR), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
