"""The machines of a study on a cluster: what the jobs of each ask of Slurm, and whether any node can serve that."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferprof.errors import UserError

SINFO = ("sinfo", "--Node", "--noheader", "--format=%N|%R|%c|%f|%G|%T")
"""Node, partition, CPUs, features, generic resources, state: a line per node and partition (sinfo(1))."""
OUT_OF_SERVICE = ("down", "drain", "fail", "error", "inval", "unknown")
"""What the states of nodes that take no jobs begin with."""
EXCLUSIVE = "--exclusive"
"""The node is the job's alone: a job beside it would be measured too."""
RESOURCES = ("gres", "constraint", "slurm_partition", "slurm_extra")
"""What Snakemake's executor for Slurm calls the resources of a job."""

Runner = Callable[..., "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class Request:
    """An entry of `machines:`: where the jobs of a label run. What is None is left to the cluster."""

    label: str
    gres: str | None = None
    """Whole GPUs of a named kind: `gpu:h100:1`."""
    constraint: str | None = None
    partition: str | None = None
    cpus: int | None = None
    nodes: int = 1
    """How many of them a job may have whose case is divided over more GPUs than one has."""
    container: str | None = None
    """The image that `--software-deployment-method apptainer` runs the label's jobs in."""

    @property
    def resources(self) -> dict[str, str | None]:
        """RESOURCES of a job that measures on this machine."""
        values = (self.gres, self.constraint, self.partition, EXCLUSIVE)
        return dict(zip(RESOURCES, values, strict=True))


@dataclass(frozen=True)
class Node:
    """A node in one of its partitions. `gres` maps `gpu:h100` to how many of it there are."""

    name: str
    partition: str
    cpus: int
    features: frozenset[str]
    gres: Mapping[str, int]
    state: str


def requests(
    entries: Iterable[Mapping[str, Any]], counted: Mapping[str, int | None] | None = None
) -> dict[str, Request]:
    """Label → request, of the `machines` of a config. Raises UserError for a label that is given twice.

    `counted` has the CPUs of machines for which the config gives none: what their probes counted.
    """
    by_label: dict[str, Request] = {}
    for entry in entries:
        if entry["label"] in by_label:
            raise UserError(f"config: machines: two are labelled {entry['label']}")
        by_label[entry["label"]] = Request(**{"cpus": (counted or {}).get(entry["label"]), **entry})
    return by_label


def nodes(runner: Runner = subprocess.run) -> list[Node]:
    """The nodes of the cluster. Raises UserError where sinfo does not tell them."""
    try:
        done = runner(SINFO, capture_output=True, text=True)
    except FileNotFoundError:
        raise UserError("there is no sinfo on PATH: run from a host that submits jobs to Slurm") from None
    if done.returncode:
        raise UserError(f"sinfo says: {' '.join(done.stderr.split()) or f'exit code {done.returncode}'}")
    return [_node(line) for line in done.stdout.splitlines() if line.strip()]


def check(asked: Collection[Request], runner: Runner = subprocess.run) -> None:
    """Raise UserError for a request that no node can serve: Slurm would let its jobs wait for ever."""
    if not asked:
        raise UserError(
            "jobs go to other hosts, and the config does not name them; give machines, as docs/slurm.md does"
        )
    available = nodes(runner)
    for request in asked:
        if reason := refuses(request, available):
            raise UserError(f"machine {request.label}: {reason}")


def refuses(request: Request, available: Sequence[Node]) -> str | None:
    """Why no node can serve a request: the first of its wishes that leaves none; None where one can."""
    left, so_far = list(available), "node"
    for wish, met, offers in _wishes(request):
        able = [node for node in left if met(node)]
        if not able:
            offered = sorted({offer for node in left for offer in offers(node)})
            return f"no {so_far} has {wish}; there is: {', '.join(offered) or 'none'}"
        left, so_far = able, f"{so_far} {'and' if 'with' in so_far else 'with'} {wish}"
    if (there := len({node.name for node in left})) < request.nodes:
        return f"{request.nodes} nodes are asked for, and {there} could be: each {so_far}"
    if all(node.state.startswith(OUT_OF_SERVICE) for node in left):
        states = ", ".join(sorted({f"{node.name} is {node.state}" for node in left}))
        return f"every {so_far} is out of service ({states}); wait for one, or leave this machine out"
    return None


Wish = tuple[str, Callable[[Node], bool], Callable[[Node], Iterable[str]]]
"""What is asked for, whether a node has it, and what a node has instead."""


def _wishes(request: Request) -> Iterable[Wish]:
    """The widest wish first, so that a reason speaks of the nodes that might have been meant."""
    if partition := request.partition:
        yield f"partition {partition}", lambda node: node.partition in partition.split(","), lambda n: [n.partition]
    if gres := request.gres:
        kind, count = _gres(gres)
        yield (
            f"gres {gres}",
            lambda node: node.gres.get(kind, 0) >= count,
            lambda node: [f"{name}:{number}" for name, number in node.gres.items()],
        )
    if constraint := request.constraint:
        yield f"feature {constraint}", lambda node: _fits(constraint, node.features), lambda node: node.features
    if cpus := request.cpus:
        yield f"{cpus} CPUs", lambda node: node.cpus >= cpus, lambda node: [str(node.cpus)]


def _fits(constraint: str, features: frozenset[str]) -> bool:
    """Whether a node's features meet `a&b|c`. Of brackets, parentheses and counts only that one word is met."""
    if set(constraint) & set("[]()*"):
        return not features.isdisjoint(re.findall(r"[\w.-]+", constraint))
    return any(features.issuperset(re.split("[&,]", choice)) for choice in constraint.split("|"))


def _node(line: str) -> Node:
    name, partition, cpus, features, gres, state = line.split("|")
    kinds: dict[str, int] = {}
    for part in filter(None, re.sub(r"\(.*?\)", "", gres).split(",")):  # also (null), and (S:0-1): the sockets
        kind, count = _gres(part)
        kinds[kind] = kinds.get(kind, 0) + count
    words = frozenset() if features == "(null)" else frozenset(features.split(","))
    return Node(name, partition, int(cpus.rstrip("+")), words, kinds, state)


def _gres(text: str) -> tuple[str, int]:
    """`gpu:h100:8` → (gpu:h100, 8); without a count it is 1."""
    kind, _, count = text.rpartition(":")
    return (kind, int(count)) if count.isdecimal() and kind else (text, 1)
