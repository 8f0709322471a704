"""What is said of two captures of one work, in order: on what terms, how much, from where, how sure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from inferprof.diagnosis.kernel_time import short
from inferprof.diagnosis.times import percent
from inferprof.explain.against import Difference, lines
from inferprof.explain.answer import Entry
from inferprof.explain.foreign import Foreign
from inferprof.explain.parts import IDLE_WORDS
from inferprof.explain.sides import COUNTED, Side, calls_differ
from inferprof.tables import aligned
from inferprof.units import NS_PER_US
from inferprof.words import counted, figure, ms

LEAST: Final = 0.01
"""Ours: of the larger total, a change that is worth a line."""
EQUAL: Final = 0.03
"""Ours: of the first total, what one capture of each does not tell from noise."""
SHOWN: Final = 3
NAMED: Final = ("node", "place", "name", "whole")
"""How groups are aligned that have names in common."""
MUCH: Final = 0.1
"""Ours: of the time, what names in common tell that both are of one model."""
WAITS: Final = IDLE_WORDS["launch"]
SETTINGS_SHOWN: Final = 8
STEPS_TELL: Final = "A schedule with profiler.step() behind each inference of both tells"
HOW_WORDS: Final[Mapping[str, str]] = {
    "node": "ONNX node",
    "place": "range",
    "name": "name and order",
    "kind": "kind and order",
    "position": "what stands between",
    "whole": "the graph as a whole",
}


def entries(difference: Difference) -> list[Entry]:
    """The answer, in order: on what terms, how much, from where, how sure."""
    a, b = difference.a, difference.b
    made = [Entry("A", " · ".join(_ran(a.case))), Entry("B", " · ".join(_ran(b.case)))]
    made += _of_settings(difference)
    if calls_differ(a, b):
        return [*made, *_calls(a, b), Entry("verdict", verdict(difference))]
    change = difference.change
    made.append(
        Entry(
            "difference",
            f"{a.of}: {ms(a.total)} → {ms(b.total)}, {_signed(change)} (B takes {_times(b.total / a.total)} A's)",
        )
    )
    made += _from(difference)
    made += _one_sided(difference)
    made += _formats(difference)
    made += _aligned(difference)
    made.append(Entry("residual", _residual(difference)))
    made.append(Entry("verdict", verdict(difference)))
    return made


def _ran(case: Foreign) -> list[str]:
    return [", ".join(case.names), *dict.fromkeys(piece for capture in case.captures for piece in capture.ran)]


def _of_settings(difference: Difference) -> Iterator[Entry]:
    differ = [f"{name} {was} → {now}" for name, (was, now) in difference.settings.items()]
    if differ:
        rest = f"; and {len(differ) - SETTINGS_SHOWN} more" if len(differ) > SETTINGS_SHOWN else ""
        yield Entry("settings", f"differ: {'; '.join(differ[:SETTINGS_SHOWN])}{rest}")
    else:
        yield Entry("settings", "the same, as far as both files tell them", 3)


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 1000 else f"{ratio:.3g} times"


def _signed(ns: float) -> str:
    size = f"{figure(abs(ns))} ns" if abs(ns) < NS_PER_US else ms(abs(ns))
    return size if size == "0 ns" else f"{'−' if ns < 0 else '+'}{size}"


def _from(difference: Difference) -> Iterator[Entry]:
    """What it comes from, the largest first, and what is left, so that all adds up."""
    kinds: dict[str, float] = {}
    for group in difference.groups:
        kind = f"{(*group.a, *group.b)[0].kind}"
        kinds[kind] = kinds.get(kind, 0.0) + group.change
    parts = {**kinds, **{name: now - was for name, (was, now) in difference.rest.items()}}
    least = LEAST * max(difference.a.total, difference.b.total)
    shown = {name: ns for name, ns in sorted(parts.items(), key=lambda part: -abs(part[1])) if abs(ns) >= least}
    left = difference.change - sum(shown.values())
    listed = [f"{name} {_signed(ns)}" for name, ns in shown.items()]
    listed += [f"all else {_signed(left)}"] if abs(left) >= 1 or not listed else []
    yield Entry("from", f"{', '.join(listed)}; the sum is {_signed(difference.change)}")
    both = [group for group in difference.groups if group.how]
    if len(both) > 1:
        changes = [(name, now - was) for name, was, now in lines(replace(difference, groups=both, rest={}))]
        for title, sign in (("slower", 1), ("faster", -1)):
            most = sorted((c for c in changes if sign * c[1] > 0), key=lambda c: -abs(c[1]))[:SHOWN]
            if most and abs(most[0][1]) >= least / 2:
                yield Entry(title, "; ".join(f"{name} {_signed(ns)}" for name, ns in most), 1)


def _one_sided(difference: Difference) -> Iterator[Entry]:
    """What only one side has: conversions apart."""
    for title, on_a in (("gone", True), ("new", False)):
        groups = [group for group in difference.groups if group.how is None and bool(group.a) == on_a]
        computing = [group for group in groups if not group.converts]
        converting = [group for group in groups if group.converts]
        for what, chosen in ((title, computing), ("reformats", converting)):
            if not chosen:
                continue
            summed = sum(sum(group.ns) for group in chosen)
            names = "; ".join(
                f"{short((*g.a, *g.b)[0].name)} {ms(sum(g.ns))}"
                for g in sorted(chosen, key=lambda g: -sum(g.ns))[:SHOWN]
            )
            side = "A" if on_a else "B"
            yield Entry(
                what, f"{len(chosen)} in {side} alone, {ms(summed)}: {names}", 1 if what != "reformats" else 2
            )


def _formats(difference: Difference) -> Iterator[Entry]:
    changed: dict[str, list[float]] = {}
    for group in difference.groups:
        was, now = group.formats
        if group.how and was and now and was != now:
            entry = changed.setdefault(f"{was} → {now}", [0.0, 0.0, 0.0])
            entry[:] = [entry[0] + 1, entry[1] + group.ns[0], entry[2] + group.ns[1]]
    if changed:
        listed = (
            f"{name}: {counted(count, 'group')}, {ms(was)} → {ms(now)}"
            for name, (count, was, now) in sorted(changed.items(), key=lambda item: -item[1][1])[:SHOWN]
        )
        yield Entry("formats", "; ".join(listed), 1)


def _aligned(difference: Difference) -> Iterator[Entry]:
    if not difference.groups:
        return
    whole = sum(sum(group.ns) for group in difference.groups if group.how or not group.converts)
    by_how: dict[str, float] = {}
    for group in difference.groups:
        if group.how:
            by_how[group.how] = by_how.get(group.how, 0.0) + sum(group.ns) / whole
    words = {"node": "kernel and launch"} if difference.basis == COUNTED else HOW_WORDS
    ordered = sorted(by_how.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{percent(part)} by {words[how]}" for how, part in ordered)
    yield Entry("aligned", f"{percent(aligned.share(difference.groups))} of the time of {difference.basis}: {listed}")


def _residual(difference: Difference) -> str:
    """What the parts say of an inference from end to end."""
    a, b = difference.a, difference.b
    if a.end_to_end and b.end_to_end:
        left = [side.total - (side.end_to_end or 0.0) for side in (a, b)]
        return (
            f"an inference takes {ms(a.end_to_end)} → {ms(b.end_to_end)} ({_signed(b.end_to_end - a.end_to_end)}); "
            f"the sums of the layers are off by {_signed(left[0])} and {_signed(left[1])}, so that "
            f"{_signed(left[1] - left[0])} of the difference is none of an inference"
        )
    if a.of == "the layers, timed one by one":
        return (
            "not told: layers' sums are no inference, each holds what timing it costs; a log of trtexec or "
            "--exportTimes of both, given beside them, tells"
        )
    if a.of == "an iteration under a profiler":
        return "0: the parts are all of an iteration; what the profiler costs is in both"
    return f"0: the parts are all of {a.of}"


def verdict(difference: Difference) -> str:
    """Which is faster, from where, and what stands against saying so of the software alone."""
    a, b, change = difference.a, difference.b, difference.change
    parts = {name: now - was for name, (was, now) in difference.rest.items()}
    if not any(parts.values()) and not any(group.change for group in difference.groups):
        return "A and B are alike to the last digit: is it one capture, given twice?"
    if calls_differ(a, b):
        return f"not told: {_by_call(a, b)}"
    if abs(change) < EQUAL * a.total:
        return f"no difference that one capture of each tells from noise (below {percent(EQUAL)})"
    for group in difference.groups:
        parts[(*group.a, *group.b)[0].kind] = parts.get((*group.a, *group.b)[0].kind, 0.0) + group.change
    name, most = max(parts.items(), key=lambda part: part[1] if change > 0 else -part[1])
    doubt = ""
    if name == WAITS and "CUDA graph" in difference.settings:
        doubt = ", which the CUDA graph changes"
    elif "GPU" in difference.settings:
        doubt = "; not of the software alone: the GPUs differ"
    elif difference.settings:
        doubt = f"; besides, settings differ ({', '.join(list(difference.settings)[:SHOWN])})"
    if not _of_one_model(difference):
        doubt += "; nothing in the files tells that both are of one model"
    return f"B is {'slower' if change > 0 else 'faster'} by {ms(abs(change))}, of it {name} {_signed(most)}{doubt}"


def _calls(a: Side, b: Side) -> Iterator[Entry]:
    """What a call of the longest takes, of sums that are not of one number of calls."""
    sums = [f"{ms(side.total)} in {sum(side.calls.values()):,.0f} calls" for side in (a, b)]
    yield Entry("sums", f"{a.of}: {' → '.join(sums)}, which are not of one number of inferences")
    sides, times = (a, b), (a.times(), b.times())
    both = [name for name in times[0] if name in a.calls and name in times[1] and name in b.calls]
    longest = sorted(both, key=lambda name: -times[0][name] - times[1][name])[:SHOWN]
    listed = [
        f"{short(name)} {' → '.join(_each(name, *of) for of in zip(sides, times, strict=True))}" for name in longest
    ]
    if listed:
        yield Entry("a call", "; ".join(listed), 1)


def _each(name: str, side: Side, times: Mapping[str, float]) -> str:
    """What a call of a name takes on a side, and how many there are."""
    return f"{ms(times[name] / side.calls[name])} ({side.calls[name]:,.0f} calls)"


def _by_call(a: Side, b: Side) -> str:
    """What sums over several numbers of calls tell."""
    each = [figure(side.each / NS_PER_US) for side in (a, b)]
    what, tells = ("launch", "`nsys export --type sqlite` of both tells") if a.pieces else ("call", STEPS_TELL)
    counts = [f"{sum(side.calls.values()):,.0f}" for side in (a, b)]
    return (
        f"A is the sum of {counts[0]} {what}{'es' if a.pieces else 's'} and B of {counts[1]}, and nothing tells of "
        f"how many inferences both are; a {what} takes {each[0]} → {each[1]} µs. {tells}"
    )


def _of_one_model(difference: Difference) -> bool:
    """Whether nodes, ranges or kernels of the same names are in both, for much of the time; or that of a file."""
    models = [side.case.model for side in (difference.a, difference.b)]
    if models[0] and models[0] == models[1]:
        return True
    named = sum(sum(group.ns) for group in difference.groups if group.how in NAMED)
    return named >= MUCH * sum(sum(group.ns) for group in difference.groups) > 0
