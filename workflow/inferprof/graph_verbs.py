"""Verbs about ONNX graphs: made, converted, looked into, and judged; each a function whose first line is its help."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from inferprof import arguments, outcomes, registry
from inferprof.case import Shape
from inferprof.errors import CaseFailed, UserError
from inferprof.verbs import say


def export(args: argparse.Namespace) -> int:
    """Write a model as fp32 ONNX, and facts about the export beside it."""
    from inferprof.model import export

    spec = arguments.spec_of(args)
    return outcomes.exit_code(outcomes.make_onnx(args.out, lambda: export.export(spec, args.out)))


def quantize(args: argparse.Namespace) -> int:
    """Convert a model to a number format, and write facts about the conversion beside it."""
    from inferprof import precisions

    precision = registry.look_up("precision", args.precision, registry.precisions())
    arguments.require_files(args.onnx)
    request = arguments.convert_request(args, args.onnx, args.out)
    return outcomes.exit_code(outcomes.make_onnx(args.out, lambda: precisions.convert(precision, request), args.onnx))


def audit(args: argparse.Namespace) -> int:
    """Say what an ONNX graph really computes in."""
    from inferprof.model import audit

    arguments.require_files(args.onnx)
    if args.precision:
        registry.look_up("precision", args.precision, registry.precisions())
    spec, shape = arguments.asked_shape(args)
    result = outcomes.record(
        args.out, "audit", lambda: audit.audit(args.onnx, args.precision, shape, spec), args.onnx
    )
    return _answered(args, result, audit.render)


def partition(args: argparse.Namespace) -> int:
    """Say which nodes of an ONNX graph TensorRT would take and which would fall back, and why; needs no GPU."""
    from inferprof.backends import tensorrt_partition

    arguments.require_files(args.onnx)
    spec, shape = arguments.asked_shape(args)
    shapes = {item.name: item.shape(shape) for item in spec.inputs} if spec else None

    def partition() -> dict[str, Any]:
        return {**tensorrt_partition.partition(args.onnx, shapes), "shape": str(shape) if shape else None}

    result = outcomes.record(args.out, "partition", partition, args.onnx)
    return _answered(args, result, tensorrt_partition.render)


def cost(args: argparse.Namespace) -> int:
    """Count the FLOPs and bytes of each node of an ONNX graph at a shape."""
    from inferprof.model import cost, graph_text

    arguments.require_files(args.onnx)
    args.spec = args.spec or args.onnx
    spec = arguments.fitting_spec(args)
    shape = spec.at(Shape.parse(args.shape))
    result = outcomes.record(args.out, "cost", lambda: cost.cost(args.onnx, shape, spec), args.onnx)
    return _answered(args, result, graph_text.of_cost)


def expect(args: argparse.Namespace) -> int:
    """Compute the outputs that each run of a graph or model must agree with; with --samples those of its formats."""
    from inferprof.model import data, expected, export, samples

    arguments.require_files(args.onnx)
    spec = arguments.fitting_spec(args)
    shape = spec.at(Shape.parse(args.shape)) if args.shape else None
    try:
        with outcomes.stage("expect"):
            outcomes.require_made(args.onnx)
            if args.samples:
                sized = spec.sized(shape) if shape else spec
                expected.write_samples(args.onnx, samples.feeds(sized, args.samples, args.seed), args.out)
            elif shape:
                export.expect(args.onnx, spec, shape, data.feeds(spec, shape, 1, args.seed)[0], args.out)
            else:
                raise UserError("expect: --shape says of which inputs, or --samples of how many")
    except CaseFailed as error:
        expected.write_reason(f"{error.stage}: {error}", args.out)
        return outcomes.exit_code(outcomes.said(error))
    return 0


def accuracy(args: argparse.Namespace) -> int:
    """Compare a converted graph with the fp32 graph on real inputs."""
    from inferprof.model import accuracy, expected, graph_text, samples

    precision = registry.look_up("precision", args.precision, registry.precisions())
    arguments.require_files(args.onnx, args.reference)
    request = arguments.convert_request(args, args.reference, args.onnx)
    arguments.check_inputs(request.spec, args.reference)
    result = outcomes.record(
        args.out,
        "accuracy",
        lambda: accuracy.measure(request, precision, samples.feeds, args.samples, args.seed, expected.of_samples),
        args.reference,
        args.onnx,
    )
    return _answered(args, result, graph_text.of_accuracy)


def sensitivity(args: argparse.Namespace) -> int:
    """Say which nodes of a graph lose the accuracy in a number format, why, and which to leave out; needs no GPU."""
    from inferprof import sensitivity
    from inferprof.sensitivity import answer

    precision = registry.look_up("precision", args.precision, registry.precisions())
    arguments.require_files(args.onnx)
    request = arguments.convert_request(args, args.onnx, args.onnx)
    result = outcomes.record(
        args.out, "sensitivity", lambda: sensitivity.analyse(request, precision, args.samples), args.onnx
    )
    if result.get("status") != "failed":
        say(answer.render(result))
    return outcomes.exit_code(result)


def _answered(args: argparse.Namespace, result: Mapping[str, Any], render: Callable[[Mapping[str, Any]], str]) -> int:
    """Say an answer that goes to no file. Returns the verb's exit code."""
    if not args.out and result.get("status") != "failed":
        say(render(result))
    return outcomes.exit_code(result)
