"""ONNX Runtime: its profile, and its log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from inferprof.errors import UserError
from inferprof.files import text_of
from inferprof.findings import Answer, Finding
from inferprof.readers import ort_log
from inferprof.readers.kind import Capture, Kind, Lack, says
from inferprof.words import counted, ms, spread

if TYPE_CHECKING:
    from inferprof.tables.nodes.providers import OrtProfile

TOOL: Final = "ort_profile"
LOG: Final = "ort_log"
CPU: Final = "CPUExecutionProvider"
SHOWN: Final = 3
CUT: Final = "The profile is cut: its session was killed, or it was copied in part; what is whole of it is told."
LONG: Final = 0.2
"""Ours: operators of a fifth of the time are what to look at."""
_EVENT: Final = re.compile(r'\[\s*\{(?:[^{}]|\{[^{}]*\})*?"cat"\s*:\s*"(?:Session|Node)"')
"""How the list of a profile begins, its keys in any order."""
_PRODUCT: Final = re.compile(
    r"(?i)^(?!Q|\w*Integer).*(?:conv(?!ert)|gemm|matmul|(?<!bi)(?<!tri)linear|attention|(?:^|:|_)(?:b|add|baddb|addb)?mm$)"
)
"""Operators of ONNX and of torch that have a form in int8, and are not in it: products of matrices."""
NSYS: Final = "nsys profile --trace=cuda,nvtx …"
WHY: Final = "SessionOptions.log_severity_level = 0 (verbose), and the log with this command"


def read(path: Path) -> Capture:
    """The nodes by provider, the copies between, and what of it a run takes."""
    from inferprof.readers import ort_events, ort_json
    from inferprof.tables.nodes import providers

    profile = ort_json.read_profile(path, cut=True)
    rows = providers.tidy(profile, TOOL)
    nodes = providers.per_run(rows)
    runs = len(profile.settled().runs)
    kernels = _settled([event for event in ort_events.read(path, cut=True) if event["cat"] == "Kernel"], profile)
    on_gpu = providers.on_gpu(rows)
    all_runs = len(profile.runs)
    first = {0: "", 1: ", the first and only one, in which nodes tune themselves"}.get(
        all_runs, f" of {all_runs}, without the first, in which nodes tune themselves"
    )
    ran = ["ONNX Runtime's profile", f"{counted(runs, 'run') if runs else 'no whole runs'}{first}"]
    return Capture(
        TOOL,
        ran,
        rows=rows,
        steps=_steps(profile.settled().runs),
        parts=_parts(nodes, profile.settled().runs),
        answers=[] if on_gpu else list(_of_cpu(nodes)),
        notes=[*([CUT] if ort_events.is_cut(path) else []), placement(nodes), *_kernels(kernels, runs)],
        lacks=list(_lacks(nodes, on_gpu=on_gpu, kernels=bool(kernels))),
        runtime="ort",
    )


def _settled(kernels: Sequence[Mapping[str, Any]], profile: OrtProfile) -> list[Mapping[str, Any]]:
    """The events of the GPU that are of the runs that count, on the same clock as the nodes."""
    begun = profile.settled().nodes["start"].min() / 1000 if len(profile.runs) > 1 else 0
    return [event for event in kernels if event["ts"] >= begun]


def _of_cpu(nodes: pd.DataFrame) -> Iterator[Answer]:
    """The operators that the CPU computes itself, and those left to it by another provider: of an NPU, or of any that
    is no GPU's, which the checks of a session look at."""
    from inferprof.tables.nodes.providers import by_type, computed_on_cpu

    copied = nodes["op_type"].str.startswith("Memcpy")
    computed, copies = computed_on_cpu(nodes[~copied]), nodes[copied]
    others = nodes[~copied].drop(index=computed.index)
    if len(computed) and len(others):
        most = str(others.groupby("provider")["duration"].sum().idxmax())
        took = float(computed["duration"].sum() + copies["duration"].sum())
        times = {"nodes": float(computed["executions"].sum()), "copies": float(copies["executions"].sum())}
        yield _left_to_cpu(
            f"{most} the CPU has {counted(round(times['nodes']), 'node')}{_few(Counter(computed['op_type']))}, with "
            f"{counted(round(times['copies']), 'copy')}: {ms(took)} of a run",
            times,
            TOOL,
            float(computed["share"].sum() + copies["share"].sum()),
        )
    yield from operators(by_type(computed), TOOL)


def placement(nodes: pd.DataFrame) -> str:
    """`placement: CUDAExecutionProvider 257 nodes, 19.2 ms; CPUExecutionProvider 1 node, 0.01 ms; 2 copies`."""
    from inferprof.tables.nodes.providers import by_provider
    from inferprof.tables.records import rows_of

    table = by_provider(nodes)
    parts = []
    for row in rows_of(table):
        own, provider = row["nodes"] - row["copies"], row["provider"]
        kinds = nodes[(nodes["provider"] == provider) & ~nodes["op_type"].str.startswith("Memcpy")]
        named = _few(Counter(kinds["op_type"])) if provider == CPU and len(table) > 1 else ""
        if own:  # one that only copies has these below
            parts.append(f"{provider} {counted(own, 'node')}{named}, {ms(row['duration'])}")
    copied = nodes[nodes["op_type"].str.startswith("Memcpy")]
    copies = f"; copies {copied['executions'].sum():.0f}, {ms(copied['duration'].sum())}" if len(copied) else ""
    return f"placement a run: {'; '.join(parts)}{copies}"


def _few(counts: Counter[str]) -> str:
    return f" ({', '.join(name for name, _ in counts.most_common(SHOWN))}{', …' if len(counts) > SHOWN else ''})"


def _parts(nodes: pd.DataFrame, runs: pd.Series) -> dict[str, float]:
    """Of a run's mean, by provider, and what is between the nodes."""
    from inferprof.tables.nodes.providers import by_provider
    from inferprof.tables.records import rows_of

    if not len(runs):
        return {}
    copied = nodes["op_type"].str.startswith("Memcpy")
    parts = {
        f"nodes {_whose(row['provider'])}": float(row["duration"]) for row in rows_of(by_provider(nodes[~copied]))
    }
    if copied.any():
        parts["copies between providers"] = float(nodes.loc[copied, "duration"].sum())
    rest = float(runs.mean()) - sum(parts.values())
    return {**parts, "between the nodes": rest} if rest > 0 else parts


def _steps(runs: pd.Series) -> list[str]:
    """How often, how long, and from where to where."""
    return [f"{len(runs)} × {ms(float(runs.mean()))}{spread(runs.tolist())}: a run"] if len(runs) > 1 else []


def _whose(provider: object) -> str:
    return "whose provider is not told" if provider == "not told" else f"of {provider}"


def operators(shares: pd.Series, tool: str) -> Iterator[Answer]:
    """The operators that take most of a run on a CPU, of the shares by name."""
    shares = shares.sort_values(ascending=False, kind="stable")
    if len(shares) and shares.iloc[0] >= LONG:
        then = ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.iloc[1:SHOWN].items())
        takes = f"{shares.index[0]} takes {100 * shares.iloc[0]:.1f} % of the operators' time"
        reason = f"{takes}, then {then}" if then else takes
        threads = "torch.set_num_threads" if tool != TOOL else "intra_op_num_threads"
        narrower = ", int8 where the accuracy allows it," if _PRODUCT.search(str(shares.index[0])) else ""
        nodes = ". csv/all_operators.csv of the report that --out makes names the nodes" if tool == TOOL else ""
        advice = f"more threads ({threads}){narrower} or a GPU{nodes}"
        finding = Finding(
            str(shares.index[0]), "kernels", float(shares.iloc[0]), reason, {}, tool, None, advice, "medium"
        )
        yield Answer("cpu_operators", "engine", "found", findings=(finding,))


def _kernels(kernels: Sequence[object], runs: int) -> list[str]:
    """What the profile's own events of the GPU add up to."""
    if not kernels:
        return []
    times: Counter[str] = Counter()
    for event in kernels:
        if isinstance(event, dict):
            times[str(event["name"])] += int(event["dur"])
    name, longest = times.most_common(1)[0]
    per = max(1, runs)
    whole = sum(times.values())
    return [
        f"kernels by its own events: {len(kernels):,}, {whole / per / 1000:.4g} ms a run; longest {name[:60]} "
        f"({100 * longest / max(1, whole):.1f} %)"
    ]


def _lacks(nodes: pd.DataFrame, *, on_gpu: bool, kernels: bool) -> Iterator[Lack]:
    if not on_gpu:
        yield Lack("how long a run takes without the profile", "the same loop, timed without enable_profiling")
    if on_gpu and not kernels:
        yield Lack("how long the GPU computes and waits: a node's time ends with its launch", NSYS)
    left = nodes[(nodes["provider"] == CPU) & on_gpu]
    if len(left) and left["fallback_reason"].isna().all():
        yield Lack("why nodes are on the CPU", WHY)
    if nodes["provider"].eq("not told").all():
        yield Lack(
            "which provider ran a node: this version does not write it", "a profile of ONNX Runtime 1.0 or newer"
        )


def read_log(path: Path) -> Capture:
    """The placements of each session. Raises UserError for a log that tells none."""
    made = ort_log.sessions(text_of(path))
    if not made:
        raise UserError(
            f"{path} is a log of ONNX Runtime that tells no placement of nodes: set log_severity_level to 0 (verbose)"
        )
    notes = [line for number, session in enumerate(made, 1) for line in _session(session, number, len(made))]
    lacks = [Lack("how long anything takes: a log has no times of nodes", "SessionOptions.enable_profiling = True")]
    placed = [session for session in made if session.nodes]
    if not placed:
        lacks.insert(0, Lack("which nodes are on the CPU", "SessionOptions.log_severity_level = 0"))
    answers = [answer for session in placed for answer in _left(session)]
    ran = ["ONNX Runtime's log", counted(len(made), "session")]
    return Capture(LOG, ran, answers=answers, notes=notes, lacks=lacks, runtime="ort")


def _session(session: ort_log.Placement, number: int, count: int) -> Iterator[str]:
    """The placement in a line, the reasons, then errors and warnings."""
    which = f" of session {number}" if count > 1 else ""
    parts = []
    for provider, nodes in session.nodes.items():
        types = session.types.get(provider, Counter())
        copies = types.get(ort_log.COPY, 0)
        own = Counter({name: count for name, count in types.items() if name != ort_log.COPY})
        named = _few(own) if provider == CPU and len(session.nodes) > 1 and own else ""
        parts.append(f"{provider} {counted(nodes - copies, 'node') if nodes else 'all nodes'}{named}")
    copied = max(session.copies, sum(types.get(ort_log.COPY, 0) for types in session.types.values()))
    if parts:
        yield f"placement{which}: {'; '.join(parts)}; copies {copied}"
    elif copied:
        yield f"copies{which} around nodes that are left to the CPU: {copied}"
    for why, nodes in Counter(session.reasons.values()).most_common():
        yield f"left to the CPU: {counted(nodes, 'node')}, since {why}"
    for text in [*session.errors, *session.warnings][:SHOWN]:
        yield f"says: {text}"


def _left(session: ort_log.Placement) -> Iterator[Answer]:
    """Nodes on the CPU of a session that has another provider."""
    others = [provider for provider in session.nodes if provider != CPU]
    if not others or not session.nodes.get(CPU):
        return
    types = session.types.get(CPU, Counter())
    named = ", ".join(f"{name} {count}" for name, count in types.most_common(SHOWN) if name != ort_log.COPY)
    copies = max(session.copies, sum(own.get(ort_log.COPY, 0) for own in session.types.values()))
    on_purpose = sum("deemed faster" in why for why in session.reasons.values())
    tail = f"; {on_purpose} of them on purpose, for sizes of tensors" if on_purpose else ""
    yield _left_to_cpu(
        f"{others[0]} the CPU has {counted(session.nodes[CPU], 'node')} ({named or 'not named'}), with "
        f"{counted(copies, 'copy')}{tail}",
        {"nodes": float(session.nodes[CPU]), "copies": float(copies)},
        LOG,
    )


def _left_to_cpu(what: str, evidence: dict[str, float], source: str, share: float | None = None) -> Answer:
    advice = "operators that the provider has, another opset, or these nodes at the end of the graph"
    finding = Finding(
        "CPU fallback", "copy", share, f"beside {what}", evidence, source, None, advice, confidence="medium"
    )
    return Answer("fallback", "engine", "found", findings=(finding,))


ORT_PROFILE: Final = Kind(
    name=TOOL,
    title="an ONNX Runtime profile",
    recognises=lambda head: _EVENT.match(head.text) is not None,
    read=read,
    tool=TOOL,
    rank=55,
)
ORT_LOG: Final = Kind(
    name=LOG,
    title="a log of ONNX Runtime",
    recognises=says(ort_log.MARK),
    read=read_log,
    rank=16,
)
