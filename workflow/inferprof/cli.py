"""The command line: one verb per stage. Arguments are read here and nowhere else.

Exit codes: 0 done (also when the measured case failed: the record says so), 1 a job broke or the gate of `compare`
failed, 2 the user can mend it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inferprof import arguments, escape, flags, outcomes, processes, progress, registry
from inferprof.case import Case, Shape
from inferprof.errors import CaseFailed, ToolError, UserError, mendable
from inferprof.files import read_document, write_document, write_text, written_whole


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Returns the exit code.

    A job of a study is watched by a process of its own, which says how it ended where it cannot say so itself.
    """
    args = _parser().parse_args(argv)
    if argv is None and (limit := outcomes.job_limit_s()):
        processes.go_on_watched(limit)
    try:
        return _run_verb(args)
    finally:
        with processes.reader_may_leave():
            sys.stdout.flush()
        if argv is None and getattr(args, "at_once", False):
            processes.end_at_once()


def _run_verb(args: argparse.Namespace) -> int:
    """The exit code of a verb; what a user can mend, and what broke, in one line."""
    processes.die_with_parent()
    # CUDA counts the fastest GPU first unless told otherwise; NVML, which says which GPU this is, counts by PCI bus.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    try:
        registry.load_outside(os.environ.get(registry.OUTSIDE, ""))
        with progress.displayed(), mendable():
            return int(args.verb(args) or 0)
    except (UserError, ToolError, CaseFailed) as error:
        print(escape.text(f"inferprof: {error}"), file=sys.stderr)
        if isinstance(error, ToolError):  # the last line of a log is what a report quotes
            print(escape.line(f"inferprof: {error.summary}"), file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1


# --- verbs -----------------------------------------------------------------------------------------------------


def _probe(args: argparse.Namespace) -> None:
    """Write what this machine is and what is installed on it."""
    from inferprof.machine import environment, hardware

    write_document(args.out, "environment", environment.probe(hardware.detect(args.label)))


def _bandwidth(args: argparse.Namespace) -> None:
    """Measure the link and the memory of this machine's GPU (about 3 s): from it the floor of every copy."""
    from inferprof.devices import bandwidth
    from inferprof.devices.cuda import CudaDevice

    write_document(args.out, "bandwidth", bandwidth.measure(CudaDevice()))


def _ceilings(args: argparse.Namespace) -> None:
    """Measure how fast this machine's GPU multiplies matrices of each type and reads its memory (about 10 s)."""
    from inferprof.devices import ceilings
    from inferprof.devices.cuda import CudaDevice

    write_document(args.out, "ceilings", ceilings.measure(CudaDevice()))


def _cases(args: argparse.Namespace) -> None:
    """Write the cases of a study, which run and which are refused; beside it its config and refused profilers."""
    from inferprof import study

    planned = arguments.planned_study(args)
    write_text(args.out, study.cases_csv(planned))
    write_document(args.out.with_name("config.json"), "config", planned.config)
    write_document(args.out.with_name("profilers.json"), "profilers", planned.refused_profilers())


def _export(args: argparse.Namespace) -> None:
    """Write a model as fp32 ONNX, and facts about the export beside it."""
    from inferprof.model import export

    spec = arguments.spec_of(args)
    outcomes.make_onnx(args.out, lambda: export.export(spec, args.out))


def _quantize(args: argparse.Namespace) -> None:
    """Convert a model to a number format, and write facts about the conversion beside it."""
    from inferprof import precisions

    precision = registry.look_up("precision", args.precision, registry.precisions())
    arguments.require_files(args.onnx)
    request = arguments.convert_request(args, args.onnx, args.out)
    outcomes.make_onnx(args.out, lambda: precisions.convert(precision, request), args.onnx)


def _audit(args: argparse.Namespace) -> None:
    """Say what an ONNX graph really computes in."""
    from inferprof.model import audit

    arguments.require_files(args.onnx)
    if args.precision:
        registry.look_up("precision", args.precision, registry.precisions())
    _, shape = arguments.asked_shape(args)
    if args.out:
        outcomes.record(args.out, "audit", lambda: audit.audit(args.onnx, args.precision, shape), args.onnx)
    else:
        _say(audit.render(audit.audit(args.onnx, args.precision, shape)))


def _partition(args: argparse.Namespace) -> None:
    """Say which nodes of an ONNX graph TensorRT would take and which would fall back, and why; needs no GPU."""
    from inferprof.backends import tensorrt_partition

    arguments.require_files(args.onnx)
    spec, shape = arguments.asked_shape(args)
    shapes = {item.name: item.shape(shape) for item in spec.inputs} if spec else None

    def partition() -> dict[str, Any]:
        return {**tensorrt_partition.partition(args.onnx, shapes), "shape": str(shape) if shape else None}

    if args.out:
        outcomes.record(args.out, "partition", partition, args.onnx)
    else:
        _say(tensorrt_partition.render(partition()))


def _cost(args: argparse.Namespace) -> None:
    """Count the FLOPs and bytes of each node of an ONNX graph at a shape."""
    from inferprof.model import cost

    arguments.require_files(args.onnx)
    shape = arguments.spec_of(args).at(Shape.parse(args.shape))
    outcomes.record(args.out, "cost", lambda: cost.cost(args.onnx, shape), args.onnx)


def _expect(args: argparse.Namespace) -> None:
    """Compute on the CPU the outputs that each run of a graph, or of a model without one, must agree with."""
    from inferprof.model import data, expected, export

    arguments.require_files(args.onnx)
    spec = arguments.spec_of(args)
    shape = spec.at(Shape.parse(args.shape))
    try:
        with outcomes.stage("expect"):
            outcomes.require_made(args.onnx)
            export.expect(args.onnx, spec, data.feeds(spec, shape, 1, args.seed)[0], args.out)
    except CaseFailed as error:
        expected.write_reason(f"{error.stage}: {error}", args.out)


def _accuracy(args: argparse.Namespace) -> None:
    """Compare a converted graph with the fp32 graph on real inputs."""
    from inferprof.model import accuracy, samples

    precision = registry.look_up("precision", args.precision, registry.precisions())
    arguments.require_files(args.onnx, args.reference)
    request = arguments.convert_request(args, args.reference, args.onnx)
    outcomes.record(
        args.out,
        "accuracy",
        lambda: accuracy.measure(request, precision, samples.feeds, args.samples, args.seed),
        args.reference,
        args.onnx,
    )


def _build(args: argparse.Namespace) -> None:
    """Build an engine. A graph that the runtime refuses is a result: an empty engine and its reason."""
    from inferprof.plugins import BuildRequest

    backend = registry.look_up("backend", args.backend, registry.backends())
    if backend.build is None:
        raise UserError(f"{backend.name} builds no engine; it loads the {backend.artifact} as it is")
    arguments.require_files(args.onnx)
    request = BuildRequest(
        args.onnx,
        arguments.spec_of(args),
        Shape.parse(args.shape),
        arguments.variant_of(args),
        args.out,
        target=args.target,
    )
    build = backend.build
    title = f"Build {request.spec.name} {request.shape} with {backend.name}"
    with progress.task(title, ("read the graph", "build the engine")):
        outcomes.make(args.out, "build", lambda: {"status": "ok", "reason": None, **build(request)}, args.onnx)


def _run(args: argparse.Namespace) -> None:
    """Measure one case in this process and write its record."""
    from inferprof import workload

    record = workload.run(arguments.run_request(args))
    write_document(args.out, "watched" if args.profiled else "record", record)
    # After a fault of the GPU, libraries were seen to crash while they are unloaded; the record is whole by now.
    args.at_once = record["status"] == "failed"


def _trtexec(args: argparse.Namespace) -> None:
    """Let trtexec measure an engine too, every switch spelled out, and say how far it is from a run's `device`."""
    from inferprof import trtexec

    spec, record = arguments.spec_of(args), read_document(args.record, "record")
    result = outcomes.record(args.out, "trtexec", lambda: trtexec.measure(args.engine, spec, record), args.engine)
    if result.get("status") != "failed":
        _say(trtexec.render(result))


def _capture(args: argparse.Namespace) -> None:
    """Run a command (inferprof run …) under a profiler and keep what it saw, or the reason where it refuses."""
    from inferprof import profilers

    profiler = registry.look_up("profiler", args.profiler, registry.profilers())
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    profilers.capture_or_reason(profiler, command, args.out, args.timeline, args.record)


def _table(args: argparse.Namespace) -> None:
    """Turn a capture into rows of the tidy table."""
    from inferprof import profilers
    from inferprof.tables import schema
    from inferprof.tables.trace.kernel_compare import as_iterations

    profiler = registry.look_up("profiler", args.tool, registry.profilers())
    try:
        with outcomes.stage("table"):
            rows = as_iterations(profilers.read(profiler, args.capture), args.iteration)
    except CaseFailed as error:
        rows = schema.not_measured(str(error), args.tool)
    frame = schema.of_case(rows, args.machine, Case.of_capture(args.capture.absolute()))
    with written_whole(args.out) as partial:
        frame.to_parquet(partial)


def _formats(args: argparse.Namespace) -> int:
    """Say in which number formats a case really computed. Exit code 1 below --at-least."""
    from inferprof.tables import schema
    from inferprof.tables.nodes import kernel_formats, precision_truth
    from inferprof.tables.nodes.trt_layers import layers_of

    frame = schema.read_table(args.table)
    asked = args.asked or next(iter(frame["precision"].dropna()), None)
    if asked is None:
        raise UserError(f"{args.table} does not say what number format was asked for: give --asked")
    kernels = kernel_formats.of_case(frame, schema.read_table(args.ncu) if args.ncu else None)
    _say("\n".join([precision_truth.render(kernels, asked), *precision_truth.remarks(kernels, layers_of(frame))]))
    share = precision_truth.share_as_asked(kernels, asked)
    return int(args.at_least is not None and (share is None or share < args.at_least))


def _diagnose(args: argparse.Namespace) -> None:
    """Say why a case is as fast as it is: what each check found in its measurements and profiles, and the verdict."""
    from inferprof.diagnosis import run

    thresholds = arguments.thresholds_of(args)
    if args.model:
        count = run.diagnose_model(args.results, args.machine, args.model, thresholds, args.out)
        _say(f"{count} cases of {args.model} diagnosed")
        return
    result = run.diagnose(args.results, args.machine, args.case, thresholds)
    write_document(args.out, "diagnosis", result)
    _say(result["verdict"]["sentence"])


def _report(args: argparse.Namespace) -> None:
    """Write REPORT.txt, REPORT.html, plots/ and csv/ of a study."""
    from inferprof import report

    if len(args.machine) > 1:
        written = report.write_machines(args.results, args.study, args.machine, args.baseline)
    elif args.partial:
        written = report.write_partial(args.results, args.study, args.machine[0], args.baseline)
    else:
        written = report.write(args.results, args.study, args.machine[0], args.baseline, args.processes)
    _say(f"inferprof: wrote {written}")


def _compare(args: argparse.Namespace) -> int:
    """Compare two studies case by case. Exit code 1 where a case of B is slower, failed or missing."""
    from inferprof import compare, compare_text

    comparison = compare.compare(args.a, args.b, args.threshold, allow_missing=args.allow_missing)
    _say(compare_text.render(comparison))
    return compare.exit_code(comparison)


def _bundle(args: argparse.Namespace) -> None:
    """Write a study's measured files as one archive to hand on: scrubbed, hashed, without weights and engines."""
    from inferprof import bundles

    _say(bundles.write(args.results, args.study, args.machine, args.baseline, args.out, args.max_size).render())


def _unbundle(args: argparse.Namespace) -> None:
    """Unpack a bundle as a new results folder; one that is damaged or hostile is refused."""
    from inferprof import bundles
    from inferprof.report import bundled

    manifest = (bundled.write if args.report else bundles.unbundle)(args.bundle, args.out)
    _say(bundles.render(manifest, args.out, reported=args.report))


def _verify(args: argparse.Namespace) -> int:
    """Try here all that inferprof does, in under 10 minutes, and say what to do next. Exit code 1: a row failed."""
    from inferprof import verify

    content = verify.verify(verify.Asked(args.out, tuple(args.only), args.minutes, args.attempt, args.engine))
    in_colours, width = sys.stdout.isatty(), shutil.get_terminal_size().columns
    _say(verify.drawn(content, width) if in_colours else verify.render(content), escaped=in_colours)
    return verify.exit_code(content)


def _unlock(args: argparse.Namespace) -> None:
    """Remove the lock that a killed Snakemake left in this folder; a live one keeps it."""
    if done := processes.release_stale_lock(Path.cwd()):
        print(escape.text(f"inferprof: {done}"), file=sys.stderr)


# --- what verbs share ------------------------------------------------------------------------------------------


def _say(text: str, *, escaped: bool = False) -> None:
    """Print, harmless to a terminal, at once: a reader that is gone is found out here, not at the process's end."""
    with processes.reader_may_leave():
        print(text if escaped else escape.text(text), flush=True)


def _parser() -> argparse.ArgumentParser:
    """Every verb with its flags; the first line of the verb's docstring is its help."""
    parser = argparse.ArgumentParser(prog="inferprof", description="GPU inference performance studies.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for name, (function, add_flags) in _VERBS.items():
        sub = verbs.add_parser(name, help=function.__doc__, description=function.__doc__)
        sub.set_defaults(verb=function)
        add_flags(sub)
    return parser


_VERBS: dict[str, tuple[Any, Any]] = {
    "probe": (_probe, flags.probe),
    "bandwidth": (_bandwidth, flags.out),
    "ceilings": (_ceilings, flags.out),
    "cases": (_cases, flags.cases),
    "export": (_export, flags.export),
    "quantize": (_quantize, flags.quantize),
    "audit": (_audit, flags.audit),
    "partition": (_partition, flags.partition),
    "cost": (_cost, flags.cost),
    "expect": (_expect, flags.expect),
    "accuracy": (_accuracy, flags.accuracy),
    "build": (_build, flags.build),
    "run": (_run, flags.run),
    "trtexec": (_trtexec, flags.trtexec),
    "capture": (_capture, flags.capture),
    "table": (_table, flags.table),
    "formats": (_formats, flags.formats),
    "diagnose": (_diagnose, flags.diagnose),
    "report": (_report, flags.report),
    "compare": (_compare, flags.compare),
    "bundle": (_bundle, flags.bundle),
    "unbundle": (_unbundle, flags.unbundle),
    "verify": (_verify, flags.verify),
    "unlock": (_unlock, flags.none),
}
"""Verb → what it does, and what adds its flags."""
