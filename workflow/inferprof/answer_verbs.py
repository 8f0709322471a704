"""Verbs that answer about what ran: each a function, whose first line is its help, and the function of its flags."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from inferprof import arguments, flag_values, flags
from inferprof.case import Shape
from inferprof.errors import UserError
from inferprof.files import write_document, write_text
from inferprof.verbs import say


def explain(args: argparse.Namespace) -> None:
    """Say of any capture, log or profile where the time goes, why, and what to do about it; of two what differs."""
    from inferprof import explain

    asked = (args.iteration, args.model)
    if not args.against:
        cases = explain.explain(args.files, *asked)
        from inferprof.explain import terminal  # what is refused is refused at once, without the report's libraries

        for part in terminal.of_cases(cases, args.out):
            say(part)
        return
    from inferprof.explain import terminal

    both = [*args.files, *args.against]
    a, b = explain.one(args.files, *asked, beside=both), explain.one(args.against, *asked, beside=both)
    for part in terminal.of_difference(a, b, args.model, args.out):
        say(part)


def watch(args: argparse.Namespace) -> int:
    """Run a program of your own under nsys, Kineto or ONNX Runtime's profile, and explain what comes out."""
    from inferprof.explain import terminal, watch

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    graphs: Any = "graph" if args.whole_graphs else "node"
    asked = watch.Asked(command, args.tool, args.bare, graphs, args.iteration, args.model)
    cases, code = watch.watch(asked, args.out)
    for part in terminal.of_cases(cases, args.out):
        say(part)
    return int(code != 0)


def quick(args: argparse.Namespace) -> None:
    """Say of an ONNX file within a minute: latency here, least times on GPUs, formats, what TensorRT leaves out."""
    from inferprof import quick

    for part in quick.answer(quick.asked(args.onnx, args.shape)):
        say(f"{part}\n")


def links(args: argparse.Namespace) -> int:
    """Measure collectives and copies between this machine's GPUs, by size; without a GPU between processes."""
    from inferprof import links, outcomes

    document = outcomes.attempt("links", lambda: links.measure(args.gpus), "links")
    if args.out:
        write_document(args.out, "links", document)
    if document["status"] == "ok":
        say("\n".join(links.lines(document)))
    return outcomes.exit_code(document)


def links_flags(sub: argparse.ArgumentParser) -> None:
    """Between how many GPUs."""
    sub.add_argument("--gpus", type=flag_values.whole(1), metavar="N", help="how many, from 2 on (default all)")
    sub.add_argument("--out", type=Path, metavar="FILE", help="also write the measurements there")


def best(args: argparse.Namespace) -> None:
    """Say which of a model's measured cases is the best for sure, and what to measure or change next."""
    from inferprof.best import trail
    from inferprof.diagnosis.run import plain

    if not (args.config or (args.shape and args.baseline)):
        raise UserError("best needs --shape and --baseline, or --config, which has both")
    if args.config:
        from inferprof.best import search

        study = arguments.planned_study(args)
        result = search.Search(study, args.results, args.model).advance()
        if args.program:
            from inferprof.best import hand_over

            write_text(args.program, hand_over.program(study, args.results, result))
    else:
        result = trail.of_results(args.results, args.machine, args.model, Shape.parse(args.shape), args.baseline)
    write_document(args.out, "trail", plain(result))
    say("\n".join(trail.lines(result)))


def verify(args: argparse.Namespace) -> int:
    """Try here all that inferprof does, in under 10 minutes, and say what to do next. Exit code 1: a row failed."""
    from inferprof import verify

    content = verify.verify(verify.Asked(args.out, tuple(args.only), args.minutes, args.attempt, args.engine))
    in_colours, width = sys.stdout.isatty(), shutil.get_terminal_size().columns
    say(verify.drawn(content, width) if in_colours else verify.render(content), escaped=in_colours)
    return verify.exit_code(content)


def explain_flags(sub: argparse.ArgumentParser) -> None:
    """Files of any profiler or log, and what is an inference in them."""
    sub.add_argument("files", type=Path, nargs="+", metavar="FILE", help="of any kind: docs/explain.md lists them")
    sub.add_argument("--against", type=Path, nargs="+", metavar="FILE", help="files of another run to compare with")
    _explained(sub)


def watch_flags(sub: argparse.ArgumentParser) -> None:
    """A command behind `--`, and what watches it."""
    sub.add_argument(
        "--with",
        dest="tool",
        metavar="TOOL",
        help="nsys (default with nsys and a GPU), or kineto or ort_profile (default otherwise: both)",
    )
    sub.add_argument(
        "--whole-graphs",
        action="store_true",
        help="nsys: trace CUDA graphs as a whole: less overhead, no names of their kernels",
    )
    sub.add_argument("--bare", action="store_true", help="also run it twice without a profiler, for its overhead")
    _explained(sub)
    sub.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the program with its arguments")


def _explained(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--iteration", metavar="RANGE", help="the range around an inference (default: detected)")
    sub.add_argument("--model", type=Path, metavar="ONNX", help="the graph that ran, for its formats and nodes")
    sub.add_argument("--out", type=Path, metavar="FOLDER", help="also write tables and a report there")


def best_flags(sub: argparse.ArgumentParser) -> None:
    """A model in a results folder, and the case to begin with."""
    sub.add_argument("results", type=Path, metavar="RESULTS", help="the results folder")
    sub.add_argument("--machine", required=True, help="slug of the machine: its folder in RESULTS")
    sub.add_argument("--model", required=True, help="the model")
    sub.add_argument("--config", help="config of the study, a file or JSON, for its best, baseline and thresholds")
    sub.add_argument("--models", type=Path, default=Path("models"), help="folder of the models of --config")
    sub.add_argument("--program", type=Path, metavar="FILE", help="with --config: write the best case as a program")
    sub.add_argument("--shape", help="b8, b8_s128")
    sub.add_argument(
        "--baseline",
        type=flag_values.baseline,
        metavar="PRECISION/BACKEND/VARIANT",
        help="the case to begin with",
    )
    flags.out(sub)


def quick_flags(sub: argparse.ArgumentParser) -> None:
    """A graph, and a shape of it."""
    sub.add_argument("onnx", type=Path, metavar="MODEL", help="an ONNX file")
    sub.add_argument("--shape", metavar="SHAPE", help="b8, b8_s128 (default b1, and 128 for what has no size)")
