"""The arguments of a verb as what its function takes: specs, variants, requests. Nothing is read from elsewhere."""

from __future__ import annotations

import argparse
import functools
import json
import math
from pathlib import Path
from typing import Any

from inferprof import outcomes, registry
from inferprof.allowed import check
from inferprof.case import Case, Shape, Variant
from inferprof.config import check_names
from inferprof.errors import UserError, no_file
from inferprof.yaml_file import read_yaml


def read_config(text: str) -> Any:
    """A config given as JSON, or as the path of a YAML file."""
    if not text.startswith("{"):
        return read_yaml(Path(text))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"--config is not JSON: {error}") from None


def planned_study(args: argparse.Namespace, results: Path = Path("results")) -> Any:
    """The study of a config on one of its machines, by default the first. results: where their probes are."""
    from inferprof import study

    studies = study.from_config(read_config(args.config), args.models, results)
    chosen = next((planned for planned in studies if args.machine in (None, planned.machine.slug)), None)
    if chosen is None or not chosen.probed:
        machines = ", ".join(planned.machine.slug for planned in studies)
        raise UserError(f"--machine {args.machine}: not one of {machines}, or not probed yet")
    return chosen


def thresholds_of(args: argparse.Namespace) -> dict[str, float]:
    """The thresholds that are given. Raises UserError for one that does not exist or is no number."""
    given = dict(args.set)
    check_names("thresholds", given, registry.thresholds())
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise UserError(f"--set {name}={value}: a threshold is a number of at least 0")
    return given


def require_files(*paths: Path) -> None:
    """Refuse inputs that are not there: libraries make a crash of a missing file, or even a result."""
    for path in paths:
        if not path.is_file():
            raise no_file(path)


def spec_of(args: argparse.Namespace) -> Any:
    """The description of the model."""
    from inferprof.model import model_spec

    return model_spec.load(args.spec)


def fitting_spec(args: argparse.Namespace) -> Any:
    """The description of the model of the graph `args.onnx`. Raises UserError for that of another one."""
    spec = spec_of(args)
    check_inputs(spec, args.onnx)
    return spec


def check_inputs(spec: Any, onnx: Path) -> None:
    """Raises UserError where a graph is of another model than a description.

    A study pairs them itself: that is looked at where a verb is used by hand.
    """
    from inferprof.model import onnx_graph, onnx_reader

    if outcomes.job_limit_s() is not None or onnx.suffix != ".onnx" or not onnx.stat().st_size:
        return
    has = [value.name for value in onnx_graph.inputs(onnx_reader.outline(onnx))]
    if foreign := [item.name for item in spec.inputs if item.name not in has]:
        names = f"{', '.join(foreign)} of {spec.path} {'is no input' if len(foreign) == 1 else 'are no inputs'}"
        raise UserError(f"{names} of {onnx}, which has {', '.join(has)}: give the spec of that model")


def asked_shape(args: argparse.Namespace) -> tuple[Any, Shape | None]:
    """The spec and the shape of a verb that needs neither; for a shape alone, the inputs are those of the graph."""
    if args.shape:
        args.spec = args.spec or args.onnx
    model = fitting_spec(args) if args.spec else None
    return model, model.at(Shape.parse(args.shape or "b1")) if model else None


def variant_of(args: argparse.Namespace) -> Variant:
    """The variant. An option that the backend would ignore is refused: the result would not be what was asked for."""
    backend = registry.look_up("backend", args.backend, registry.backends())
    variant = Variant(args.variant, dict(args.set))
    check(f"backend {backend.name}", variant.options, registry.allowed_of(backend))
    return variant


def convert_request(args: argparse.Namespace, onnx: Path, out: Path) -> Any:
    """What a number format needs, with its options as they are given."""
    from inferprof.plugins import ConvertRequest

    precision = registry.look_up("precision", args.precision, registry.precisions())
    registry.check_precision(precision, dict(args.set))
    spec = fitting_spec(args)
    if args.shape:
        spec = spec.sized(spec.at(Shape.parse(args.shape)))
    return ConvertRequest(onnx, spec, {**precision.options, **dict(args.set)}, out)


def run_request(args: argparse.Namespace) -> Any:
    """One case in one round, measured or for a profiler."""
    from inferprof import run_request
    from inferprof.machine import hardware
    from inferprof.measure import timing

    require_files(args.artifact, *filter(None, [args.reference, args.tuned]))
    if probed := args.probed or _environment_of(args.machine, args.out):
        hardware.check_probed(probed, hardware.detect())
    spec = spec_of(args)
    return run_request.RunRequest(
        case=Case(spec.name, args.precision, args.backend, args.variant, args.shape),
        artifact=args.artifact,
        spec=spec,
        variant=variant_of(args),
        machine=args.machine or hardware.detect().slug,
        round=args.round,
        protocol=timing.Protocol(
            budget_s=args.budget,
            interval=args.interval,
            first_pass=args.first_pass,
            only=args.only,
            quiet_core=args.quiet_core,
        ),
        seed=args.seed,
        reference=args.reference,
        tuned=args.tuned,
        profiling=profiling_of(args),
        hosts=args.hosts,
    )


def _environment_of(machine: str | None, out: Path) -> Path | None:
    """What was probed of the machine in whose folder `out` lies, if anything: no other one may measure into it."""
    places = (folder / "environment.json" for folder in out.absolute().parents if folder.name == machine)
    return next((path for path in places if path.exists()), None)


def profiling_of(args: argparse.Namespace) -> Any:
    """How a profiled run is watched; None for a measurement."""
    if args.profiled is None:
        if args.kineto or args.native_profile or args.modules:
            raise UserError(
                "--kineto, --modules and --native-profile watch a run of --profiled N iterations; give N too"
            )
        return None
    from inferprof import run_request

    if args.modules and not args.kineto:
        raise UserError("--modules names ranges in a trace of --kineto; give that too")
    if not args.kineto:
        return run_request.Profiling(args.profiled, args.native_profile)
    from inferprof.profilers import kineto, torch_nodes

    recorder = functools.partial(torch_nodes.record if args.modules else kineto.record, args.kineto)
    return run_request.Profiling(args.profiled, args.native_profile, recorder, kineto.named_range, args.modules)
