"""What each verb of the command line does: one function per verb, whose first line is its help."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from functools import partial
from pathlib import Path

from inferprof import arguments, documents, escape, outcomes, processes, progress, registry
from inferprof.case import Case, Shape
from inferprof.errors import CaseFailed, UserError
from inferprof.files import write_document, write_text, written_whole


def probe(args: argparse.Namespace) -> None:
    """Write what this machine is and what is installed on it."""
    from inferprof.machine import environment, hardware

    write_document(args.out, "environment", environment.probe(hardware.detect(args.label)))


def bandwidth(args: argparse.Namespace) -> None:
    """Measure the link and the memory of this machine's GPU (about 3 s): from it the floor of every copy."""
    from inferprof.devices import bandwidth
    from inferprof.devices.cuda import CudaDevice
    from inferprof.machine import hardware
    from inferprof.measure import device_lock

    gpu = hardware.detect_gpu()
    with device_lock.hold([gpu] if gpu else [], "bandwidth"):
        write_document(args.out, "bandwidth", bandwidth.measure(CudaDevice()))


def ceilings(args: argparse.Namespace) -> None:
    """Measure how fast this machine's GPU, or without one its CPU, multiplies matrices and reads memory (10 s)."""
    from inferprof.devices import ceilings, cpu_ceilings
    from inferprof.devices.cuda import CudaDevice
    from inferprof.machine import hardware
    from inferprof.measure import device_lock

    gpu = hardware.detect_gpu()
    with device_lock.hold([gpu] if gpu else [], "ceilings"):
        write_document(args.out, "ceilings", ceilings.measure(CudaDevice()) if gpu else cpu_ceilings.measure())


def cases(args: argparse.Namespace) -> None:
    """Say how many cases of a study run and why others are refused; --out has each."""
    from inferprof import planning, study
    from inferprof.machine import elsewhere

    if args.target is None:
        planned = arguments.planned_study(args)
    else:
        planned = study.plan(arguments.read_config(args.config), args.models, elsewhere.equipped(args.target))
        say(f"assumed: {elsewhere.ASSUMED}")
    if not args.for_report:
        every = planned.planned
        runs = sum(case.outcome == "run" for case in every)
        say(f"{runs} of {len(every)} cases would run; refused: {planning.reasons_of(every) or 'none'}")
    if args.out:
        write_text(args.out, study.cases_csv(planned))
    if args.out and args.for_report:
        write_document(args.out.with_name("config.json"), "config", planned.config)
        write_document(args.out.with_name("profilers.json"), "profilers", planned.refused_profilers())


def build(args: argparse.Namespace) -> int:
    """Build an engine. A graph that the runtime refuses is a result: an empty engine and its reason."""
    from inferprof.backends import refusals
    from inferprof.plugins import BuildRequest

    backend = registry.look_up("backend", args.backend, registry.backends())
    if backend.build is None:
        raise UserError(f"{backend.name} builds no engine; it loads the {backend.artifact} as it is")
    arguments.require_files(args.onnx)
    spec, shape, variant = arguments.fitting_spec(args), Shape.parse(args.shape), arguments.variant_of(args)
    request = BuildRequest(args.onnx, spec, shape, variant, args.out, target=args.target)
    with progress.task(f"Build {spec.name} {shape} with {backend.name}", ("read the graph", "build the engine")):
        facts = outcomes.make(args.out, "build", partial(refusals.built, backend.build, request), args.onnx)
    return outcomes.exit_code(facts)


def run(args: argparse.Namespace) -> int:
    """Measure one case in this process and write its record."""
    from inferprof import workload

    record = workload.run(arguments.run_request(args))
    write_document(args.out, "watched" if args.profiled else "record", record)
    # After a fault of the GPU, libraries were seen to crash while they are unloaded; the record is whole by now.
    args.at_once = record["status"] == "failed"
    return outcomes.exit_code(record)


def compile_ahead(args: argparse.Namespace) -> None:
    """Run a case once, for what its runtime compiles: its measurements then find that on disk."""
    from inferprof import workload

    write_document(args.out, "build", workload.compile_ahead(arguments.run_request(args)))


def trtexec(args: argparse.Namespace) -> int:
    """Let trtexec measure an engine too, every switch spelled out, and say how far it is from a run's `device`."""
    from inferprof import trtexec

    spec, record = arguments.spec_of(args), documents.read(args.record, "record")
    result = outcomes.record(args.out, "trtexec", lambda: trtexec.measure(args.engine, spec, record), args.engine)
    if result.get("status") != "failed":
        say(trtexec.render(result))
    return outcomes.exit_code(result)


def capture(args: argparse.Namespace) -> int:
    """Run a command (inferprof run …) under a profiler and keep what it saw, or the reason where it refuses."""
    from inferprof import profilers

    profiler = registry.look_up("profiler", args.profiler, registry.profilers())
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    return outcomes.exit_code(profilers.capture_or_reason(profiler, command, args.out, args.timeline, args.record))


def table(args: argparse.Namespace) -> int:
    """Turn a capture into rows of the tidy table."""
    from inferprof import profilers
    from inferprof.tables import schema

    profiler = registry.look_up("profiler", args.tool, registry.profilers())
    case = Case.of_capture(args.capture.absolute())
    reason = None
    try:
        with outcomes.stage("table"):
            frame = schema.of_case(profilers.read(profiler, args.capture, args.iteration), args.machine, case)
    except CaseFailed as error:
        reason = outcomes.said(error)
        frame = schema.of_case(schema.not_measured(str(error), args.tool), args.machine, case)
    with written_whole(args.out) as partial:
        frame.to_parquet(partial)
    return outcomes.exit_code(reason)


def formats(args: argparse.Namespace) -> int:
    """Say in which number formats a case really computed. Exit code 1 below --at-least."""
    from inferprof.tables import schema
    from inferprof.tables.nodes import kernel_formats, precision_truth, trt_layers

    frame = schema.read_table(args.table)
    asked = args.asked or next(iter(frame["precision"].dropna()), None)
    if asked is None:
        raise UserError(f"{args.table} does not say what number format was asked for: give --asked")
    kernels = kernel_formats.of_case(frame, schema.read_table(args.ncu) if args.ncu else None)
    say(precision_truth.render(kernels, asked, trt_layers.layers_of(frame)))
    share = precision_truth.share_as_asked(kernels, asked)
    return int(args.at_least is not None and (share is None or share < args.at_least))


def diagnose(args: argparse.Namespace) -> None:
    """Say why a case is as fast as it is: what each check found in its measurements and profiles, and the verdict."""
    from inferprof.diagnosis import run

    thresholds = arguments.thresholds_of(args)
    if args.model:
        count = run.diagnose_model(args.results, args.machine, args.model, thresholds, args.out)
        say(f"{count} cases of {args.model} diagnosed")
        return
    result = run.diagnose(args.results, args.machine, args.case, thresholds)
    write_document(args.out, "diagnosis", result)
    say(result["verdict"]["sentence"])


def report(args: argparse.Namespace) -> None:
    """Write REPORT.txt, REPORT.html, plots/, traces/ and csv/ of a study."""
    from inferprof import report

    if args.so_far:
        several = len(args.machine) > 1
        for machine in args.machine:
            study = f"{args.study}/{machine}" if several else args.study
            written = report.write_so_far(args.results, study, machine, args.baseline, args.so_far, args.processes)
            say(f"inferprof: wrote {written}")
            _say_answer(written)
        return
    if len(args.machine) > 1:
        written = report.write_machines(args.results, args.study, args.machine, args.baseline)
    elif args.partial:
        written = report.write_partial(args.results, args.study, args.machine[0], args.baseline)
    else:
        written = report.write(args.results, args.study, args.machine[0], args.baseline, args.processes, args.plots)
    say(f"inferprof: wrote {written}")
    _say_answer(written)


def select(args: argparse.Namespace) -> None:
    """Choose by the first round which cases get further rounds and captures, and have processes ready for them."""
    from inferprof import forked, report, selection
    from inferprof.report import select

    evidence = report.read(args.results, args.study, args.machine, args.baseline)
    selection.write(args.out, choices := select.choices(evidence))
    forked.start_ahead(select.further_runs(evidence, choices))
    say(f"inferprof: wrote {args.out}")


def compare(args: argparse.Namespace) -> int:
    """Compare two studies. Exit code 1: a case of B is slower, failed, missing or inaccurate; 3: one probably is."""
    from inferprof import compare, compare_text

    asked = {field.name: getattr(args, field.name) for field in dataclasses.fields(compare.Asked)}
    comparison = compare.compare(args.a, args.b, compare.Asked(**asked))
    say(compare_text.render(comparison))
    return compare.exit_code(comparison)


def bundle(args: argparse.Namespace) -> None:
    """Write a study's measured files as one archive to hand on: scrubbed, hashed, without weights and engines."""
    from inferprof import bundles

    say(bundles.write(args.results, args.study, args.machine, args.baseline, args.out, args.max_size).render())


def unbundle(args: argparse.Namespace) -> None:
    """Unpack a bundle as a new results folder; one that is damaged or hostile is refused."""
    from inferprof import bundles

    if args.report:
        from inferprof import report

        manifest = report.write_bundle(args.bundle, args.out, len(os.sched_getaffinity(0)))
    else:
        manifest = bundles.unbundle(args.bundle, args.out)
    say(bundles.render(manifest, args.out, reported=args.report))
    if args.report:
        _say_answer(args.out / "reports" / manifest.study / "REPORT.txt")


def unlock(args: argparse.Namespace) -> None:
    """Remove the lock that a killed Snakemake left in this folder; a live one keeps it."""
    if done := processes.release_stale_lock(Path.cwd()):
        print(escape.text(f"inferprof: {done}"), file=sys.stderr)


def _say_answer(written: Path) -> None:
    """The answers of a report last, where a reader of a terminal looks."""
    from inferprof.report import ANSWER, PARTIAL

    if written.name != PARTIAL and (path := written.with_name(ANSWER)).exists():
        say(path.read_text(encoding="utf-8").rstrip())


def say(text: str, *, escaped: bool = False) -> None:
    """Print, harmless to a terminal, at once: a reader that is gone is found out here, not at the process's end."""
    with processes.reader_may_leave():
        print(text if escaped else escape.text(text), flush=True)
