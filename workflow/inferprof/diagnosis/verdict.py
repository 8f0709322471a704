"""The answers about a case in one sentence and a ranked list, in which the same time is counted once.

Findings that eat the same resource overlap, so they stand in one group: a GPU that waits for launches is one stretch
of time, whether it is a loop, a host that is busy elsewhere, or a missing CUDA graph. Of a group with the resource's
time C (Shares.times, or the largest finding's where that is not known), and of its findings' gains [low, high]:

high   min(C, max(highest `high` of findings about the whole case, Σ over subjects of the highest `high` of each))
low    min(high, highest `low`), since no two of them are known to be of different time

Resources are different time, so that gains of groups add up, to no more than the total. A finding ranks by the time
that it may gain at most, or has where no gain is known, times TRUST: a measured 1.7 ms stands before a rule of
thumb's "up to 3 ms". In a group a finding with a subject, a cause, stands before one about the whole case, the
symptom, from CAUSE of it on. What the study tried counts as it was measured: a fix in vain is no finding any more.
What changes nothing but finds out more stands behind all that acts, and gains nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args

from msgspec.structs import replace

from inferprof import registry
from inferprof.diagnosis import ranks
from inferprof.diagnosis.kernel_time import kernels_ns
from inferprof.diagnosis.ranks import Work
from inferprof.diagnosis.times import iteration, on_gpu, percent
from inferprof.documents.diagnosed import Group, Ranked, Resource, Verdict
from inferprof.findings import END_TO_END, OF_OTHERS, Answer, Bottleneck, Confidence, Finding, Frames, Gain, Total
from inferprof.grouping import grouped
from inferprof.tables.nodes.providers import by_type, per_run
from inferprof.tables.schema import of_first
from inferprof.words import counted, ms, ms_range

RESOURCES: Final[Mapping[Bottleneck, Resource]] = {
    "launch": "launch",
    "idle": "idle",
    "copy": "copy",
    **dict.fromkeys(("memory", "compute", "latency", "tail", "kernels"), "kernels"),
}
"""Bottleneck → whose time it is; `measurement` and `capacity` are nobody's."""
WORDS: Final[Mapping[Resource, str]] = {
    "launch": "waiting for the host's launches",
    "idle": "a GPU that waits for something else",
    "copy": "copies",
    "kernels": "kernels",
    "execution": "execution",
}
"""What the time of each resource goes to."""
NOTICED: Final = 0.05
"""Ours: from this share on a resource is in the sentence."""
CAUSE: Final = 0.5
"""Ours: a cause that explains half of a symptom is what to work on."""
LONGEST: Final = 3
"""Types of operators of a case on a CPU that its sentence names."""
TRUST: Final[Mapping[Confidence, float]] = {"high": 1.0, "medium": 1.0, "low": 0.25}
"""Ours: how much of a finding's time counts for its rank. What is low rests on a rule of thumb."""


def of_case(frames: Frames, answers: Sequence[Answer]) -> Verdict:
    """The verdict on a case from the answers of all checks about it; of one that failed, why."""
    if frames.failure:
        return Verdict(f"It failed: {frames.failure.rstrip('.')}.", (), None, ())
    longest = "" if on_gpu(frames) else _operators(frames)
    return judge(answers, frames.total, times_of(frames), longest, ranks.own_work(frames))


def times_of(frames: Frames) -> dict[Resource, float]:
    """How long each resource takes in the total, ns, as far as the waterfall, a profile or a CPU's stages tell."""
    if not on_gpu(frames):
        return _by_stages(frames)
    if frames.total is not None and frames.tool and frames.waterfall.get("total_ns") is None:
        return _by_timeline(frames)
    parts: dict[Resource, float | None] = {
        "launch": frames.waterfall.get("launch_ns"),
        "idle": frames.waterfall.get("idle_ns"),
        "copy": frames.waterfall.get("copy_ns"),
        "kernels": kernels_ns(frames),
        "execution": frames.waterfall.get("execution_ns"),
    }
    return {resource: float(time) for resource, time in parts.items() if time is not None}


def _by_timeline(frames: Frames) -> dict[Resource, float]:
    """Of a case that nothing measured without a profiler: what its busiest GPU does, in parts that add up to its
    iteration."""
    seen = iteration(frames)
    if frames.total is None or frames.total.of == END_TO_END or "gpu_busy" not in seen:
        return {"kernels": seen["kernel_busy"]} if "kernel_busy" in seen else {}
    launch, copy = seen["idle_launch"], seen["gpu_busy"] - seen["kernel_busy"] + seen["idle_copy"]
    return {
        "launch": launch,
        "idle": seen["gpu_idle"] - launch - seen["idle_copy"],
        "copy": copy,
        "kernels": seen["kernel_busy"],
    }


def _by_stages(frames: Frames) -> dict[Resource, float]:
    """Of a case on a CPU, which has no waterfall: its stages, as shares of their sum."""
    if frames.total is None or frames.stages.empty:
        return {}
    medians = frames.stages.filter(regex="_ms$").iloc[0].dropna()
    if not medians.sum():
        return {}
    execution = float(medians.reindex([f"{stage}_ms" for stage in ("bind", "execute")]).sum() / medians.sum())
    return {"execution": frames.total.ns * execution, "copy": frames.total.ns * (1 - execution)}


def _operators(frames: Frames) -> str:
    """`MatMul 61.2 %, Gemm 8.1 %`: the longest operators of a case on a CPU; empty without a profile of them."""
    profile = of_first(frames.profiles, registry.sessions())
    if profile.empty:
        return ""
    shares = by_type(per_run(profile))
    longest = ", ".join(f"{name} {percent(share)}" for name, share in shares.head(LONGEST).items())
    return f"Longest operators by {profile['tool'].iloc[0]}: {longest} of the operators' time."


def judge(
    answers: Sequence[Answer],
    total: Total | None,
    times: Mapping[Resource, float],
    operators: str = "",
    work: Work | None = None,
) -> Verdict:
    """The same from the answers, what shares are of, and, where they are known, the resources' times in ns, the
    longest operators in words, and the work of several GPUs."""
    every = [
        Ranked(answer.check, answer.level, as_measured(finding))
        for answer in answers
        for finding in answer.findings
        if finding.tried is None or not finding.tried.lost
    ]
    cautions = tuple(caution for caution in every if caution.finding.bottleneck not in RESOURCES)
    by_resource = grouped(
        (_resource(entry.finding.bottleneck, times), entry) for entry in every if entry not in cautions
    )
    groups = [_group(resource, own, total, times.get(resource)) for resource, own in by_resource.items()]
    groups.sort(key=lambda group: (not group.findings[0].finding.acts, -_rank_of(group, total)))
    where = " ".join(part for part in (_where(groups, total, times), operators) if part)
    shares = {} if total is None else {name: share for share, name in noticed(groups, total, times)}
    sentence = _sentence(groups, answers, total, where)
    return Verdict(sentence, tuple(groups), _sum(groups, total, work or Work()), cautions, shares)


def as_measured(finding: Finding) -> Finding:
    """A finding with the gain that its advice was measured to have, or none where it only finds out more."""
    if not finding.acts:
        return replace(finding, gain=None)
    tried = finding.tried
    if tried is None or tried.outcome != "better" or tried.low_ns is None or tried.high_ns is None:
        return finding
    measured = Gain(max(0.0, tried.low_ns), tried.high_ns)
    return replace(
        finding, gain=measured, confidence="high", advice=f"Use the variant `{tried.variant}` of this study."
    )


def _resource(bottleneck: Bottleneck, times: Mapping[Resource, float]) -> Resource:
    """Whose time it is; where nothing tells kernels from waits between them, that of both."""
    resource = RESOURCES[bottleneck]
    return "execution" if resource == "kernels" and times.get("execution") else resource


# --- groups ----------------------------------------------------------------------------------------------------


def _group(resource: Resource, own: Sequence[Ranked], total: Total | None, time: float | None) -> Group:
    shares = [entry.finding.share for entry in own if entry.finding.share is not None]
    measured = time / total.ns if time is not None and total is not None else None
    share = min(1.0, max([*shares, *([measured] if measured is not None else [])])) if shares or measured else None
    limit = None if total is None or share is None else share * total.ns
    return Group(resource, share, _together([entry.finding for entry in own], limit), _ordered(own, total))


def _together(findings: Iterable[Finding], limit: float | None) -> Gain | None:
    """The gain of all findings of a group; None where no bound of any is known."""
    gains = grouped((finding.subject, finding.gain) for finding in findings if finding.gain is not None)
    if not gains:
        return None
    whole = max((gain.high_ns for gain in gains.get("", ())), default=0.0)
    parts = sum(max(gain.high_ns for gain in own) for subject, own in gains.items() if subject)
    high = max(whole, parts) if limit is None else min(limit, max(whole, parts))
    return Gain(min(high, max(gain.low_ns for own in gains.values() for gain in own)), high)


def _sum(groups: Sequence[Group], total: Total | None, work: Work) -> Gain | None:
    """What all groups gain together, of no more than the total. Of several GPUs one waits in its kernels while
    another waits for launches: of all such time no more than what the one with most to do leaves."""
    gains = [group.gain for group in groups if group.gain]
    if not gains:
        return None
    kernels = max((group.gain.high_ns for group in groups if group.gain and group.resource == "kernels"), default=0.0)
    room = float("inf") if total is None else total.ns
    if total is not None:
        room = min(room, max(0.0, total.ns - work.least) + max(0.0, kernels - work.waits))
    return Gain(min(room, sum(gain.low_ns for gain in gains)), min(room, sum(gain.high_ns for gain in gains)))


def _ordered(own: Sequence[Ranked], total: Total | None) -> tuple[Ranked, ...]:
    """By what each may gain, the surer first where that is equal; causes before the symptom that they explain."""
    sure = get_args(Confidence)
    ranked = sorted(
        own,
        key=lambda entry: (
            not entry.finding.acts,
            -_weight(entry.finding, total),
            -_low(entry.finding),
            sure.index(entry.finding.confidence),
        ),
    )
    acting = [entry for entry in own if entry.finding.acts]
    symptom = max((_weight(entry.finding, total) for entry in acting if not entry.finding.subject), default=0.0)
    causes = [
        entry
        for entry in ranked
        if entry.finding.acts and entry.finding.subject and _weight(entry.finding, total) >= CAUSE * symptom
    ]
    return (*causes, *(entry for entry in ranked if entry not in causes))


def _weight(finding: Finding, total: Total | None) -> float:
    """What a finding ranks by: the share of the total that it may gain at most, or that it has, times TRUST."""
    share = finding.share or 0.0
    if finding.gain is not None and total is not None:
        share = finding.gain.high_ns / total.ns
    return TRUST[finding.confidence] * share


def _low(finding: Finding) -> float:
    return finding.gain.low_ns if finding.gain else 0.0


def _rank_of(group: Group, total: Total | None) -> float:
    return max(_weight(entry.finding, total) for entry in group.findings)


# --- the sentence ----------------------------------------------------------------------------------------------


def _sentence(groups: Sequence[Group], answers: Sequence[Answer], total: Total | None, where: str) -> str:
    """Where the time goes, the first cause, and what to do with its gain; or how much was looked at in vain."""
    if not groups:
        return " ".join(part for part in (where, _nothing(answers)) if part)
    finding = groups[0].findings[0].finding
    return " ".join(part for part in (where, cause_in_words(finding), to_do_in_words(finding, total)) if part)


def cause_in_words(finding: Finding) -> str:
    """`Cause: pageable memory: copies take 4.98 ms (32.7 %).`"""
    return f"Cause: {finding.subject}: {finding.reason}" if finding.subject else capital(finding.reason)


def to_do_in_words(finding: Finding, total: Total | None) -> str:
    """`To do: … It saves 2.04 ms to 2.33 ms (40.0 % to 46.0 %).`"""
    if not finding.acts:
        return f"To find out more: {finding.advice}"
    thumb = " This is a rule of thumb." if finding.gain and finding.confidence == "low" else ""
    return f"To do: {finding.advice} {gain_in_words(finding.gain, total)}{thumb}"


def capital(text: str) -> str:
    """Text as a sentence begins; a name such as b8 stays."""
    return text if text[1:2].isdigit() else f"{text[:1].upper()}{text[1:]}"


def _nothing(answers: Sequence[Answer]) -> str:
    """That nothing was found: near the roof little can be; else, where most checks could not be assessed, that this
    says little, and what lacks most."""
    near = next((answer.reason for answer in answers if answer.check == "roof" and answer.verdict == "clear"), "")
    if near:
        return f"It is near its roofline. {capital(near)}. To do: Less work, or a narrower format."
    asked = [answer for answer in answers if answer.reason not in OF_OTHERS]
    clear = sum(answer.verdict == "clear" for answer in asked)
    lacking = Counter(answer.reason for answer in asked if answer.verdict == "not assessed")
    if lacking.total() <= clear:
        are = "is" if clear == 1 else "are"
        return f"No check found a cause: {counted(clear, 'check')} {are} clear, {lacking.total()} not assessed."
    reason, _ = lacking.most_common(1)[0]
    want = reason.removeprefix("needs ")
    return f"No cause is known: {lacking.total()} of {len(asked)} checks were not assessed. Most need {want}."


def _where(groups: Sequence[Group], total: Total | None, times: Mapping[Resource, float]) -> str:
    """`Of end_to_end (18.4 ms) 63.0 % is execution, 36.5 % is copies.`: what is NOTICED; empty without a total."""
    if total is None:
        return ""
    words = ", ".join(f"{percent(share)} is {WORDS[name]}" for share, name in noticed(groups, total, times))
    return f"Of {total.of} ({ms(total.ns)}) {words}." if words else f"It takes {ms(total.ns)} ({total.of})."


def noticed(groups: Sequence[Group], total: Total, times: Mapping[Resource, float]) -> list[tuple[float, Resource]]:
    """The shares of the resources that are NOTICED, the largest first, but one that is all."""
    shares = {resource: time / total.ns for resource, time in times.items()}
    if not times.get("execution"):  # a finding may be about more than the resource that it is listed with
        shares = {group.resource: group.share for group in groups if group.share is not None} | shares
    else:  # the rest of what the copies leave, with all of these in it
        shares = {name: share for name, share in shares.items() if name in ("execution", "copy")}
    return sorted(((share, name) for name, share in shares.items() if NOTICED <= share < 1), reverse=True)


def gain_in_words(gain: Gain | None, total: Total | None) -> str:
    """`It saves 2.04 ms to 2.33 ms (40.0 % to 46.0 %).`, or that no bound is known."""
    if gain is None:
        return "What it saves is not known."
    bounds = [gain.high_ns] if gain.low_ns in (0.0, gain.high_ns) else [gain.low_ns, gain.high_ns]
    words = ms(gain.high_ns) if len(bounds) == 1 else ms_range(*bounds)
    shares = "" if total is None else f" ({' to '.join(percent(bound / total.ns) for bound in bounds)})"
    return f"It saves {'' if gain.low_ns else 'at most '}{words}{shares}."
