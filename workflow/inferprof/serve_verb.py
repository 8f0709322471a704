"""The verb serve: a case under load."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final, get_args

from inferprof import arguments, config, flag_values, flags, outcomes
from inferprof.case import REFERENCE, Shape
from inferprof.documents.serving import PolicyKind, ServingPolicy
from inferprof.errors import UserError
from inferprof.files import write_document
from inferprof.verbs import say

SHARED: Final = ("precision", "variant", "set", "machine", "probed", "seed")
"""Flags that `inferprof run` has too."""


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
    sub.add_argument("--spec", type=Path, required=True, help="models/NAME.yaml, or a bare models/NAME.onnx")
    sub.add_argument("--precision", default=REFERENCE, help="the number format of ARTIFACT (default fp32)")
    sub.add_argument("--shapes", nargs="+", required=True, metavar="SHAPE", help="batch sizes, a session each: b1 b4")
    sub.add_argument("--variant", default="default", help="name of the set of options (default default)")
    sub.add_argument(
        "--set",
        type=flag_values.option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the variant",
    )
    sub.add_argument("--machine", help="slug to record (default: this machine's)")
    sub.add_argument("--probed", type=Path, metavar="FILE", help="environment.json that this machine must match")
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
