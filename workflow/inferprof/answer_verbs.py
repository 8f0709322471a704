"""Verbs that answer about what ran: each a function, whose first line is its help, and the function of its flags."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, get_args

from inferprof import arguments, config, flag_values, flags, outcomes
from inferprof.case import Shape
from inferprof.documents.serving import PolicyKind, ServingPolicy
from inferprof.errors import UserError
from inferprof.files import write_document, write_text
from inferprof.verbs import say

SHARED: Final = ("precision", "variant", "set", "machine", "probed", "seed")
"""Flags that `inferprof run` has too."""
WIDEST: Final = 120


def explain(args: argparse.Namespace) -> None:
    """Say of any capture, log or profile where the time goes, why, and what to do about it; of two what differs."""
    from inferprof import explain

    asked = (args.iteration, args.model)
    if not args.against:
        _say_cases(explain.explain(args.files, *asked), args.out)
        return
    both = [*args.files, *args.against]
    a, b = explain.one(args.files, *asked, beside=both), explain.one(args.against, *asked, beside=both)
    from inferprof.explain import against, against_answer, answer, page

    difference = against.compare(a, b, args.model)
    say(answer.render_entries(against.title(difference), against_answer.entries(difference), _width(answer.WIDTH)))
    if args.out:
        say(f"inferprof: wrote {page.write_difference(difference, args.out)}")


def watch(args: argparse.Namespace) -> int:
    """Run a program of your own under nsys, Kineto or ONNX Runtime's profile, and explain what comes out."""
    from inferprof.explain import watch

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    graphs: Any = "graph" if args.whole_graphs else "node"
    asked = watch.Asked(command, args.tool, args.bare, graphs, args.iteration, args.model)
    cases, code = watch.watch(asked, args.out)
    _say_cases(cases, args.out)
    return int(code != 0)


def _say_cases(cases: Sequence[Any], out: Path | None) -> None:
    """The answers, then where their report is."""
    from inferprof.explain import answer  # what is refused is refused at once, without the report's libraries

    say("\n\n".join(answer.render(case, _width(answer.WIDTH)) for case in cases))
    if out:
        from inferprof.explain import page

        say(f"inferprof: wrote {page.write(cases, out)}")


def _width(usual: int) -> int:
    """The columns of an answer: those of the terminal, where there is one, up to WIDEST."""
    return min(WIDEST, shutil.get_terminal_size((usual, 25)).columns)


def quick(args: argparse.Namespace) -> int:
    """Say of an ONNX file within a minute: latency here, least times on GPUs, formats, what TensorRT leaves out."""
    from inferprof import quick

    graph = quick.asked(args.onnx, args.shape)
    for part in quick.answer(graph):
        say(f"{part}\n")
    return graph.exit_code


def links(args: argparse.Namespace) -> int:
    """Measure collectives and copies between this machine's GPUs, by size; without a GPU between processes."""
    from inferprof import links

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

        study = arguments.planned_study(args, args.results)
        result = search.Search(study, args.results, args.model).advance()
        if args.program:
            from inferprof.best import hand_over

            write_text(args.program, hand_over.program(study, args.results, result, args.program))
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


def verify_flags(sub: argparse.ArgumentParser) -> None:
    """Where to work, and which rows to try."""
    folder = Path("results/verify")
    sub.add_argument("--out", type=Path, default=folder, metavar="DIR", help=f"folder to work in (default {folder})")
    sub.add_argument("--only", nargs="+", default=[], metavar="ROW", help="these rows, and those that they need")
    sub.add_argument(
        "--minutes", type=flag_values.above_0(), default=10.0, help="time for all rows together (default 10)"
    )
    sub.add_argument("--attempt", action="store_true", help="also try what the machine would refuse")
    sub.add_argument("--engine", type=Path, help="a TensorRT engine of verify's model, instead of building one")


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


def serve(args: argparse.Namespace) -> int:
    """Put a case under load: single requests, batches formed by a policy; what was predicted, and what came."""
    from inferprof.serving import measure

    policy = _policy(args)
    result = measure.measure(_requests(args), policy)
    write_document(args.out, "serving", result)
    say(measure.render(result))
    args.at_once = result["status"] == "failed"
    return outcomes.exit_code(result)


def serve_flags(sub: argparse.ArgumentParser) -> None:
    """The sessions of a server, its policy, and the load."""
    sub.add_argument("backend", metavar="BACKEND", help="a runtime, e.g. ort_cpu")
    sub.add_argument(
        "artifacts", type=Path, nargs="+", metavar="ARTIFACT", help="as for run; one for all shapes, or one each"
    )
    sub.add_argument("--shapes", nargs="+", required=True, metavar="SHAPE", help="batch sizes, a session each: b1 b4")
    flags.of_sessions(sub)
    sub.add_argument("--seed", type=flag_values.whole(0), default=0, help="which inputs and arrivals (default 0)")
    sub.add_argument("--name", default="serve", help="name of the policy (default serve)")
    sub.add_argument("--policy", required=True, choices=get_args(PolicyKind), help="dynamic: batches")
    sub.add_argument("--slo-ms", type=float, required=True, help="the latency objective, ms")
    sub.add_argument("--max-batch", type=int, help="the largest batch of --shapes (default 1)")
    sub.add_argument("--max-delay-ms", type=float, help="how long the first of a batch waits for more (default 0)")
    sub.add_argument("--arrivals", help="poisson (default), constant, gamma:SHAPE, trace:FILE")
    sub.add_argument(
        "--percentile", type=float, help="percentile of latency that must meet the objective (default 99)"
    )
    sub.add_argument("--loads", type=float, nargs="+", help="rates as shares of the capacity (default 0.5 0.8)")
    sub.add_argument("--seconds", type=float, help="seconds of each run (default 10)")
    sub.add_argument("--client-core", action="store_true", help="keep a CPU for the client")
    sub.add_argument("--no-search", action="store_false", dest="search", help="do not search for the highest rate")
    pair: dict[str, Any] = {"type": int, "nargs": 2, "metavar": ("LEAST", "MOST")}
    sub.add_argument("--prompts", **pair, help="tokens of a prompt, of a model with a KV cache")
    sub.add_argument("--new-tokens", **pair, help="tokens of an answer")
    sub.add_argument("--tpot-ms", type=float, help="the objective for each further token, ms")
    sub.add_argument("--budget", type=int, help="tokens of a step of policy continuous (default: as fit)")
    sub.add_argument("--loadgen", nargs="+", help="scenarios of MLPerf LoadGen to run too: Server, MultiStream …")
    flags.out(sub)


def _policy(args: argparse.Namespace) -> ServingPolicy:
    """The policy, the load and the objective: those that are given."""
    given = {name: getattr(args, name, None) for name in ServingPolicy.__struct_fields__}
    return config.serving_entry({name: value for name, value in given.items() if value is not None})


def _requests(args: argparse.Namespace) -> list[Any]:
    """A run of each batch that a server has a session for, in ascending order."""
    if len(args.artifacts) not in (1, len(args.shapes)):
        given = f"{len(args.artifacts)} artifacts for {len(args.shapes)} shapes"
        raise UserError(f"{given}: give one for all of them, or one for each")
    artifacts = dict(zip(args.shapes, args.artifacts * len(args.shapes), strict=False))
    labels = sorted(artifacts, key=lambda label: Shape.parse(label).batch)
    return [_request(args, label, artifacts[label]) for label in labels]


def _request(args: argparse.Namespace, label: str, artifact: Path) -> Any:
    """The run of a batch, with all flags of `inferprof run` that serve lacks as they are by default."""
    run = argparse.ArgumentParser()
    flags.run(run)
    given = run.parse_args(
        [args.backend, str(artifact), "--spec", str(args.spec), "--shape", label, "--out", str(args.out)]
    )
    vars(given).update({name: getattr(args, name) for name in SHARED})
    return arguments.run_request(given)
