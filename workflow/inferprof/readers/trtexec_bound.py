"""What bounds a run of trtexec, by its own numbers: the host's launches, copies, the GPU's work, or waits.

trtexec keeps two inferences in flight, so that copies and launches of the next one may hide behind the work of this
one: what an inference takes is then the time between two of them, which the throughput tells, and not the latency.
Thresholds are trtexec's own (sampleReporting.cpp), where it has one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from msgspec.structs import replace

from inferprof.findings import Answer, Bottleneck, Finding, Gain, Level, Total
from inferprof.readers.kind import Capture, Lack
from inferprof.readers.trtexec_log import TrtexecRun, joined
from inferprof.units import NS_PER_MS
from inferprof.words import ms

TOOL: Final = "trtexec"
BOUND: Final = 0.8
"""trtexec's own: launches or copies of this share of the GPU's time may bound the throughput."""
NOTICED: Final = 0.05
"""Ours: from this share on copies are worth a line."""
WAITING: Final = 0.1
"""Ours: from this share of its time on a GPU that waits is worth a finding."""
GPU_TIME, ENQUEUE, H2D, D2H, LATENCY = "GPU Compute Time", "Enqueue Time", "H2D Latency", "D2H Latency", "Latency"
DEFAULTS: Final[Mapping[str, tuple[str, str]]] = {
    "Data transfers": ("Enabled", "Disabled"),
    "Spin-wait": ("Disabled", "Enabled"),
    "CUDA Graph": ("Disabled", "Enabled"),
}
"""Settings whose defaults are the opposite since TensorRT 11: up to 10, since 11. See inferprof.trtexec."""
ALIKE: Final = 3.0
"""Ours: layers that are timed one by one may take so many times as long as the inference that they are of."""
TIMED_ALONE: Final = Lack(
    "how long an inference takes without timing each layer, and what the GPU waits for",
    "nsys profile --trace=cuda,nvtx trtexec --loadEngine=…",
)
_SHARED: Final[Mapping[str, Sequence[str]]] = {
    "GPU": ("Selected Device",),
    "clock": ("Compute Clock Rate", "Application Compute Clock Rate"),
    "memory clock": ("Memory Clock Rate", "Application Memory Clock Rate"),
    "streams": ("Streams", "Inference Streams"),
}
"""What a setting is called here, and what versions of trtexec call it."""
_OF_NO_TERM: Final = re.compile(
    r"(?i)device id|uuid|^device \d|engine|file|cache|export|^inputs$|duration|iterations|idle time|sleep|profiling|"
    r"build shape|calibration|format$|tactic|multiprocessor|^sms$|capability|memory per|global memory|bus width|"
    r"available|timing$|max batch|verbosity|build only"
)
"""Settings that say where something lies or how long was measured."""
SWITCHES: Final[Mapping[str, tuple[str, str]]] = {
    "Data transfers": ("--noDataTransfers", "--includeDataTransfers"),
    "Spin-wait": ("--useSpinWait", "--noSpinWait"),
    "CUDA Graph": ("--useCudaGraph", "--noCudaGraph"),
}
"""The switch that leaves the default, of 10 and of 11."""


def capture(run: TrtexecRun, ran: Sequence[str], notes: Sequence[str] = ()) -> Capture:
    """What a run that came to its end says of itself."""
    total, parts = where(run)
    return Capture(
        TOOL,
        ran,
        total=total,
        parts=parts,
        answers=[answer for answer in answers(run, total) if answer.findings],
        notes=[*notes, *_settings(run), *joined(run.warnings)],
        lacks=lacks(run),
        runtime="tensorrt",
        settings=_terms(run),
        model=model_of(run),
    )


def model_of(run: TrtexecRun) -> str | None:
    """The name of the file that it was given."""
    named = re.search(r"--(?:onnx|loadEngine|deploy|uff)=(\S+)", run.command or "")
    file = run.option("Model", "Load engine", "Prototxt") or (named and named[1])
    return PurePath(file).name if file else None


def _terms(run: TrtexecRun) -> dict[str, str]:
    """The settings that a time depends on, by names that all versions share; the others by their own."""
    terms = {
        name: value
        for section in ("Build Options", "Inference Options", "Device Information")
        for name, value in run.options.get(section, {}).items()
        if value and not _OF_NO_TERM.search(name)
    }
    if run.version:
        terms["TensorRT"] = ".".join(map(str, run.version))
    for name, names in _SHARED.items():
        if value := next((terms.pop(older) for older in names if older in terms), None):
            terms[name] = value
    for shape in [name for name in terms if name.startswith("Input inference shape")]:
        sizes = re.findall(r"(?:=|:)(\d+(?:x\d+)*)", terms.pop(shape))
        terms |= {"shapes": " ".join(sizes)} if sizes else {}
    return terms


def query_ns(run: TrtexecRun) -> float | None:
    """The time between two inferences; None where several streams run at once, or nothing tells."""
    return _between(run) if _streams(run) == "1" else None


def _between(run: TrtexecRun) -> float | None:
    batch = run.option("Batch") or ""
    # With an implicit batch, up to TensorRT 8, the throughput counts its items.
    return (int(batch) if batch.isdecimal() else 1) / run.throughput * 1e9 if run.throughput else None


def where(run: TrtexecRun) -> tuple[Total | None, dict[str, float]]:
    """What shares are of, and the parts that add up to it."""
    compute, query = run.of(GPU_TIME, "mean", "median"), query_ns(run)
    if compute is None:
        return None, {}
    busy = compute * NS_PER_MS
    if query is not None and query >= busy * (1 - NOTICED):
        busy = min(busy, query)
        return Total(query, "an inference by trtexec's throughput"), {_work(run): busy, "waiting": query - busy}
    copies = sum(run.of(name, "mean", "median") or 0.0 for name in (H2D, D2H)) * NS_PER_MS
    if H2D not in run.summary and (latency := run.of(LATENCY, "mean", "median")):
        copies = max(
            0.0, latency * NS_PER_MS - busy
        )  # 7, and lines of averages: a latency is both copies and the work
    parts = {_work(run): busy, "copies": copies}
    of = "trtexec's latency" if {LATENCY, H2D} & run.summary.keys() else "the GPU's time of an inference"
    total = Total(busy + copies, of) if busy + copies else None
    return total, {name: ns for name, ns in parts.items() if ns}


def _dla(run: TrtexecRun) -> str | None:
    """The DLA core that it ran on, which trtexec counts as the GPU's time."""
    return run.option("DLACore") or None


def _work(run: TrtexecRun) -> str:
    return "computing on the DLA, and on the GPU what that left" if _dla(run) else "kernels"


def answers(run: TrtexecRun, total: Total | None) -> Iterator[Answer]:
    """What bounds it, what copies cost, and what makes its numbers doubtful."""
    if total is None:
        return
    yield _answer("trtexec_bound", "host", _bound(run, total))
    yield _answer("trtexec_copies", "transfer", _copies(run, total))
    yield _answer("trtexec_unstable", "environment", _unstable(run))


def _answer(check: str, level: Level, findings: Sequence[Finding]) -> Answer:
    return Answer(check, level, "found" if findings else "clear", findings=tuple(findings))


def _bound(run: TrtexecRun, total: Total) -> list[Finding]:
    compute, enqueue = run.of(GPU_TIME, "median", "mean") or 0.0, run.of(ENQUEUE, "median", "mean") or 0.0
    mean = run.of(GPU_TIME, "mean", "median") or compute
    idle = max(0.0, total.ns - mean * NS_PER_MS)
    evidence = {"gpu_compute_ms": compute, "enqueue_ms": enqueue, "idle_ns": idle}
    by_copies = next((name for name in (H2D, D2H) if (run.of(name, "median", "mean") or 0.0) > BOUND * compute), None)
    waits = "throughput" in total.of and idle / total.ns >= NOTICED  # else a full queue holds the host up
    if enqueue > BOUND * compute and waits and not _graph(run):
        pace = (
            "the host, not the GPU, sets the pace"
            if enqueue >= compute
            else f"near it, so that the host may set the pace (trtexec's own threshold: {100 * BOUND:.0f} %)"
        )
        reason = (
            f"launching takes the host {enqueue:.3g} ms an inference where the GPU computes {compute:.3g} ms: {pace}"
        )
        advice = f"one launch in place of many: a CUDA graph ({_switch(run, 'CUDA Graph')}), or a larger batch"
        return [_finding("launch", idle / total.ns, reason, evidence, Gain(0.0, idle), advice)]
    if by_copies and (waits or "latency" in total.of):
        took = run.of(by_copies, "median", "mean") or 0.0
        way = "inputs to" if by_copies == H2D else "outputs from"
        reason = f"copying {way} the GPU takes {took:.3g} ms an inference, computing {compute:.3g} ms"
        advice = "keep them on the GPU, or copy less (narrower types, page-locked memory)"
        copied = took * NS_PER_MS
        return [_finding("copy", min(1.0, copied / total.ns), reason, evidence, _at_most(copied, run, total), advice)]
    if "throughput" in total.of and idle / total.ns >= WAITING:
        reason = (
            f"of {total.ns / NS_PER_MS:.3g} ms between two inferences the GPU computes {mean:.3g} ms "
            f"({100 * (1 - idle / total.ns):.0f} %); launching takes the host {enqueue:.3g} ms, the rest are waits"
        )
        wanted = [_switch(run, name) for name in ("Spin-wait", "CUDA Graph") if run.option(name) == "Disabled"]
        advice = f"{' and '.join(wanted)}; or a larger batch" if wanted else "a larger batch, or several streams"
        return [_finding("idle", idle / total.ns, reason, evidence, Gain(0.0, idle), advice)]
    share = min(1.0, mean * NS_PER_MS / total.ns)
    said = f"{mean:.3g} ms an inference, {100 * share:.0f} % of the time"
    reason = f"the GPU computes {said}: its kernels set the pace"
    advice = "see which layers take it; a narrower number format, or less work"
    if enqueue > BOUND * compute and not _graph(run):
        reason += f"; launching takes the host as long ({enqueue:.3g} ms), so that it may wait in between"
        advice = f"try a CUDA graph ({_switch(run, 'CUDA Graph')}) first; then {advice}"
    if dla := _dla(run):
        reason = f"DLA core {dla}, and the GPU for what that left, compute {said}: they set the pace"
        advice = f"see which layers went to the GPU (trtexec --verbose lists them); {advice.partition('; ')[2]}"
    return [replace(_finding("kernels", share, reason, evidence, None, advice), subject=_longest(run))]


def _longest(run: TrtexecRun) -> str:
    """The layer that takes longest, where the log has their times."""
    return max(run.layers, key=lambda layer: layer.mean).name if run.layers else ""


def _copies(run: TrtexecRun, total: Total) -> list[Finding]:
    """Copies that are a noticeable part of the latency of one inference."""
    there, back = (run.of(name, "mean", "median") or 0.0 for name in (H2D, D2H))
    latency = run.of(LATENCY, "mean", "median") or 0.0
    compute = run.of(GPU_TIME, "median", "mean") or 0.0
    if (
        not latency
        or D2H not in run.summary
        or (there + back) / latency < NOTICED
        or max(there, back) > BOUND * compute
    ):
        return []
    copied = (there + back) * NS_PER_MS
    reason = (
        f"copies are {100 * (there + back) / latency:.0f} % of the latency of one inference ({there:.3g} ms to the "
        f"GPU, {back:.3g} ms back of {latency:.3g} ms)"
    )
    advice = "keep inputs and outputs on the GPU where the program allows it; --noDataTransfers times without them"
    evidence = {"h2d_ms": there, "d2h_ms": back, "latency_ms": latency}
    share = min(1.0, copied / total.ns) if "latency" in total.of else None
    gain = _at_most(copied, run, total)
    return [replace(_finding("copy", share, reason, evidence, gain, advice), subject="copies")]


def _at_most(copied: float, run: TrtexecRun, total: Total) -> Gain:
    """What copying less saves, ns: no more than there is beside the kernels, since the rest hides behind these."""
    return Gain(0.0, min(copied, total.ns - where(run)[1].get(_work(run), 0.0)))


def _unstable(run: TrtexecRun) -> list[Finding]:
    said = next((text for text in joined(run.warnings) if "is unstable" in text), None)
    if said is None:
        return []
    reason = said.partition(". ")[0].rstrip(".")
    advice = (
        "lock the clocks (nvidia-smi --lock-gpu-clocks), use a GPU that nobody else uses, and a longer --duration"
    )
    return [_finding("measurement", None, reason, {}, None, advice)]


def _finding(
    bottleneck: Bottleneck,
    share: float | None,
    reason: str,
    evidence: Mapping[str, float],
    gain: Gain | None,
    advice: str,
) -> Finding:
    return Finding("", bottleneck, share, reason, evidence, TOOL, gain, advice, "medium")


def _graph(run: TrtexecRun) -> bool:
    return run.option("CUDA Graph") == "Enabled"


def _switch(run: TrtexecRun, setting: str) -> str:
    """What switches it on: since 11 it is so unless the other switch is given."""
    to_leave, to_forbid = SWITCHES[setting]
    newest = run.version is not None and run.version[0] >= 11
    return f"without {to_forbid}" if newest else to_leave


def _settings(run: TrtexecRun) -> list[str]:
    """How it was timed, where TensorRT 10 and 11 would do so differently."""
    given = {name: run.option(name) for name in DEFAULTS}
    if not any(given.values()):
        return _at_once(run)
    newest = run.version is not None and run.version[0] >= 11
    usual = {name: sides[1 if newest else 0] for name, sides in DEFAULTS.items()}
    said = ", ".join(f"{name.lower()} {value.lower()}" for name, value in given.items() if value)
    left = [name for name, value in given.items() if value == usual[name]]
    other = "up to 10" if newest else "since 11"
    tail = (
        f"; of {'these' if len(left) == len(given) else ', '.join(left).lower()} TensorRT's default is the opposite "
        f"{other}: compare across the two only with each switch spelled out"
        if left
        else ""
    )
    return [*_at_once(run), f"timed with {said}{tail}"]


def _at_once(run: TrtexecRun) -> list[str]:
    """What several streams do to the times of one inference."""
    between = _between(run)
    if between is None or _streams(run) == "1":
        return []
    return [
        f"{_streams(run)} streams at once: {ms(between)} between two inferences; the GPU's time of one holds "
        "what it waits for the others"
    ]


def _streams(run: TrtexecRun) -> str:
    return run.option("Inference Streams", "Streams") or "1"


def lacks(run: TrtexecRun) -> list[Lack]:
    """What no log tells, and what would."""
    if not run.layers:
        return [
            Lack(
                "which layers take the time",
                f"{TOOL} … --dumpProfile --separateProfileRun --profilingVerbosity=detailed --dumpLayerInfo",
            )
        ]
    return [
        Lack("which kernels a layer runs, and what the GPU waits for", f"nsys profile --trace=cuda,nvtx {TOOL} …")
    ]


def beside(layers: Capture, inferences: Capture, listed: float, median: float) -> Capture | None:
    """The layers of an engine, as shares of the median of its inferences (ns), and what bounds these, as one capture.

    listed: what the layers take when they are timed one by one. None where that and the median are so far apart that
    they can't be of one engine.
    """
    if not listed or not 1 / ALIKE <= listed / median <= ALIKE:
        return None
    note = f"timed one by one the layers take {ms(listed)}, {listed / median:.2f} times the median that shares are of"
    return dataclasses.replace(
        layers,
        ran=inferences.ran,
        total=Total(median, "the median of GPU compute, split as the layers' times are"),
        answers=[*layers.answers, *(answer for answer in inferences.answers if not _of_kernels(answer))],
        notes=[note, *inferences.notes, *layers.notes],
        lacks=[lack for lack in layers.lacks if lack != TIMED_ALONE],
    )


def _of_kernels(answer: Answer) -> bool:
    """Whether an answer says no more than that the kernels set the pace, of which layers tell more."""
    return all(finding.bottleneck in ("kernels", "compute") for finding in answer.findings)
