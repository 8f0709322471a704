"""Transfer: what it costs to bring inputs to the GPU and outputs back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal

import numpy as np
from msgspec.structs import replace

from inferprof import registry
from inferprof.case import HOST_CAST
from inferprof.diagnosis.times import RECORDS, Time, copying, link_copies, percent, stages
from inferprof.documents.machine import GpuFacts
from inferprof.documents.record import Array
from inferprof.findings import Change, Clear, Confidence, Finding, Frames, Gain, NotAssessed, Threshold
from inferprof.model.operators import bits
from inferprof.plugins import check
from inferprof.tables import roofs
from inferprof.tables.trace.api_kind import PAGEABLE
from inferprof.units import MEGA, NS_PER_MS
from inferprof.words import ms

COPY_SHARE = Threshold("copy_share", 0.05, "share of the total", "ours: below it no change of the copies shows")
FAR_OVER_FLOOR = Threshold(
    "far_over_floor", 1.5, "times the link's floor", "ours: half as much again is beyond a link's jitter"
)
NO_COPY: Final = (
    "Make no copy: this GPU reads the host's memory where it lies (variant with `placement: mapped`), "
    "at best filled there by the caller."
)
MAPPED: Final = Change("variant", {"placement": "mapped"})
HALF_BITS: Final = 16
HOST_COPY_GB_PER_S: Final = 5.0
"""Ours: one core's memcpy on a server, at the lower end, where bandwidth.json does not have this host's own (h2h)."""
MEMCPY: Final = (2.5, 0.4)
"""Ours: what copying inputs into page-locked memory costs at most and at least, times a plain memcpy of them. Of 7
tries on H200s it cost 0.6 to 2.2 times that."""
HANDLING_NS: Final = 20_000
"""Ours: what Python needs for an array whatever its size, at the upper end; no conversion is read from less."""
OVER_MEMCPY = Threshold(
    "over_memcpy",
    2.5,
    "times a plain memcpy",
    "ours: mere copies into page-locked memory took up to 2.2 times a memcpy; a conversion computes, too",
)


@check("pageable_copies", "Copies from pageable memory", "transfer", ("gpu",), by="variant")
def _pageable(frames: Frames) -> list[Finding] | Clear:
    """Copies from and to memory that is not page-locked: the driver copies it piece by piece into its own first.

    Gain of a variant that copies its inputs into page-locked memory itself: the stages less what the link needs for
    so many bytes (limits.copies.floors), less MEMCPY times a memcpy of them; where that may be a loss, the gain is
    that of a caller who fills page-locked memory in place of the arrays: 0 to the first difference. Where the host
    makes that memcpy already: at most stage_inputs, by the same caller. A GPU that shares the host's memory needs no
    copy from page-locked arrays either.
    """
    pageable = _is_pageable(frames)
    if not pageable and not _copies_within_one_memory(frames):
        return _staged(frames)
    time = copying(frames)
    share = frames.share(time.ns)
    most, moved = _beyond_floor(frames, time)
    reason = f"copies from and to it take {time.ms} ({percent(share)})."
    if moved and most < time.ns:
        reason += f" The link needs {ms(time.ns - most)} for {moved / MEGA:.3g} MB."
    evidence = {"copy_ns": time.ns, "bytes": moved, "beyond_floor_ns": most}
    memcpy = _memcpy_ns(frames, moved)
    low, high = (most - times * memcpy if moved else 0.0 for times in MEMCPY)
    evidence |= {"variant_low_ns": low, "variant_high_ns": high} if moved else {}
    if share is None or share < frames.limit(COPY_SHARE):
        return Clear(reason, evidence, Gain(low, high) if moved else None)
    subject = "pageable memory" if pageable else "page-locked memory"
    if _gpu(frames).reads_host_memory:
        gain = Gain(0.0, time.ns)
        finding = Finding(subject, "copy", share, reason, evidence, time.source, gain, NO_COPY, "low")
        return [replace(finding, change=MAPPED)]
    pays = low > 0
    gain = Gain(low, high) if pays else Gain(0.0, most)
    advice = (
        "Copy inputs into page-locked memory first: a variant with `placement: pinned`."
        if pays
        else "Let the caller write its inputs straight into page-locked memory. Copying them there may cost as much "
        "as it saves."
    )
    finding = Finding(subject, "copy", share, reason, evidence, time.source, gain, advice, time.confidence)
    return [replace(finding, change=Change("variant", {"placement": "pinned"}))]


def _gpu(frames: Frames) -> GpuFacts:
    """The GPU in use, or one that nothing is known of."""
    return roofs.gpu_in_use(frames.documents.environment) or roofs.NO_GPU


def _copies_within_one_memory(frames: Frames) -> bool:
    """Whether arrays that are page-locked are copied all the same, by a GPU whose memory is the host's."""
    return _gpu(frames).integrated is True and len(frames.records) > 0 and frames.record.placement == "pinned"


def _staged(frames: Frames) -> list[Finding] | Clear:
    """What the host copies into page-locked memory before the link sees it, unless it is a conversion."""
    took = stages(frames, "stage_inputs")
    share = frames.share(took or 0.0) or 0.0
    if took is None or share < frames.limit(COPY_SHARE) or isinstance(_host_conversion.run(frames), list):
        return Clear("inputs and outputs lie in page-locked memory or on the device")
    reason = (
        f"the host copies inputs into page-locked memory for {ms(took)} ({percent(share)}) before each inference."
    )
    advice = "Let the caller write its inputs straight into page-locked memory."
    evidence = {"stage_inputs_ns": took}
    return [Finding("staging", "copy", share, reason, evidence, RECORDS, Gain(0.0, took), advice, "high")]


def _memcpy_ns(frames: Frames, moved: float) -> float:
    """What one thread of the host takes to copy so many bytes into page-locked memory; between the measured sizes on
    a straight line of logarithms, since small arrays lie in caches."""
    measured = frames.documents.bandwidth and frames.documents.bandwidth.h2h
    if not measured:
        return moved / HOST_COPY_GB_PER_S
    sizes = {float(size): float(took) for size, took in measured.by_size.items() if took and float(size)}
    if len(sizes) > 1 and min(sizes) <= moved <= max(sizes):
        curve = np.log(sorted(sizes.items()))
        return float(np.exp(np.interp(np.log(moved), curve[:, 0], curve[:, 1])))
    return moved / measured.gb_per_s


def _is_pageable(frames: Frames) -> bool:
    """By the record's placement, else by what the profile's copies touch. Raises NotAssessed where neither tells."""
    if len(frames.records):
        return frames.record.placement == PAGEABLE
    if frames.tool is None:
        raise NotAssessed("a bare run, or a timeline of the case's iterations")
    names = link_copies(frames)["name"]
    if len(names) and not names.str.contains(" ").any():
        raise NotAssessed("the kind of host memory that copies touch, which this tool does not tell")
    return bool(names.str.contains(PAGEABLE).any())


def _beyond_floor(frames: Frames, time: Time) -> tuple[float, float]:
    """ns of the copies beyond the link's floor, all of them where that is not known, and the bytes copied or 0."""
    if not len(frames.floors):
        return time.ns, 0.0
    row = frames.floors.iloc[0]
    floor = sum(_known(row[f"{direction}_floor_ms"]) for direction in ("h2d", "d2h")) * NS_PER_MS
    return max(0.0, time.ns - floor), _known(row["h2d_bytes"]) + _known(row["d2h_bytes"])


@check("copy_over_floor", "Copies far over the link's floor", "transfer", ("gpu", "record", "bandwidth"))
def _over_floor(frames: Frames) -> list[Finding] | Clear:
    """A direction whose stage takes far longer than the link needs. Gain: at most what is beyond the floor."""
    if not len(frames.floors):
        raise NotAssessed("the stages h2d and d2h of a bare run")
    change = Change("variant", {"placement": "pinned"}) if _is_pageable(frames) else None
    advice = "Make one copy per direction, from page-locked memory that stays allocated."
    if _gpu(frames).reads_host_memory:
        advice, change = NO_COPY, MAPPED
    row = frames.floors.iloc[0]
    findings, reasons = [], []
    for direction in ("h2d", "d2h"):
        took, floor = float(row[f"{direction}_ms"]), float(row[f"{direction}_floor_ms"])
        if math.isnan(took) or math.isnan(floor) or not floor:
            continue
        beyond = max(0.0, took - floor) * NS_PER_MS
        reason = f"it takes {took:.3g} ms, {took / floor:.1f} times the link's floor of {floor:.3g} ms."
        reasons.append(reason)
        if took >= frames.limit(FAR_OVER_FLOOR) * floor and (frames.share(beyond) or 0.0) >= frames.limit(COPY_SHARE):
            evidence = {f"{direction}_ns": took * NS_PER_MS, "floor_ns": floor * NS_PER_MS}
            if change and not math.isnan(row[f"{direction}_bytes"]):  # the variant fills that memory first
                memcpy = _memcpy_ns(frames, float(row[f"{direction}_bytes"]))
                evidence["variant_low_ns"], evidence["variant_high_ns"] = (
                    beyond - times * memcpy for times in MEMCPY
                )
            findings.append(
                Finding(
                    direction,
                    "copy",
                    frames.share(beyond),
                    reason,
                    evidence,
                    RECORDS,
                    Gain(0.0, beyond),
                    advice,
                    "high",
                    change=change,
                )
            )
    if not reasons:
        raise NotAssessed("the bytes of inputs and outputs in the record")
    return findings or Clear(" ".join(reasons))


@check("host_conversion", "Inputs are converted on the host", "transfer", ("record",))
def _host_conversion(frames: Frames) -> list[Finding] | Clear:
    """Inputs are converted on the host: the variant says so (host_cast), or preparing them takes far longer than a
    memcpy, so that they are converted, gathered or transposed.

    Gain: at most stage_inputs less the copy into page-locked memory that a `pinned` case needs all the same, by a
    caller that writes inputs as the model wants them.
    """
    inputs = _arrays(frames, "inputs")
    took, moved = stages(frames, "stage_inputs"), _bytes(inputs)
    if frames.stages.empty:
        raise NotAssessed("the stages of a bare run")
    if took is None:
        return Clear("inputs are not prepared on the host")
    cast = frames.record.options.get(HOST_CAST)
    if not moved:
        return Clear("the inputs are empty")
    memcpy = _memcpy_ns(frames, moved)
    share = frames.share(took)
    reason = f"preparing inputs takes {ms(took)} ({percent(share)}), {took / memcpy:.3g} times a memcpy of them."
    evidence = {"stage_inputs_ns": took, "bytes": moved, "memcpy_ns": memcpy}
    slow = took >= frames.limit(OVER_MEMCPY) * memcpy + HANDLING_NS * len(inputs)
    if (share or 0.0) < frames.limit(COPY_SHARE) or not (cast or slow):
        return Clear(reason, evidence)
    gain = Gain(0.0, took - memcpy if frames.record.placement == "pinned" else took)
    advice = "Make inputs contiguous and in the model's number format from the start, or convert them on the GPU."
    subject = f"{cast} cast on the host" if cast else "inputs prepared on the host"
    confidence: Confidence = "high" if cast else "low"
    return [Finding(subject, "copy", share, reason, evidence, RECORDS, gain, advice, confidence)]


def _half_bytes(precision: str) -> int | None:
    """What an input needs in the format that the graph computes in, where that is half precision."""
    described = registry.precisions().get(precision)
    if described is None or described.quantized or bits(described.storage) != HALF_BITS:
        return None
    return HALF_BITS // 8


@check("wide_inputs", "Inputs are wider than the graph", "transfer", ("gpu", "record"), by="model")
def _wide_inputs(frames: Frames) -> list[Finding] | Clear:
    """Float inputs cross the link in more bytes than the graph computes in. Gain: that part of h2d at most."""
    width = _half_bytes(frames.case.precision)
    if width is None:
        return Clear(f"{frames.case.precision} says nothing about narrower inputs")
    inputs = _arrays(frames, "inputs")
    wide = {
        name: array for name, array in inputs.items() if _is_float(array) and np.dtype(array.dtype).itemsize > width
    }
    saved = sum(_bytes({name: array}) * (1 - width / np.dtype(array.dtype).itemsize) for name, array in wide.items())
    time = copying(frames, "h2d")
    gain = time.ns * saved / _bytes(inputs) if saved else 0.0
    share = frames.share(gain)
    reason = (
        f"{', '.join(wide) or 'no input'} could cross the link in fewer bytes. That is {ms(gain)} ({percent(share)}) "
        "at most."
    )
    evidence = {"h2d_ns": time.ns, "bytes": _bytes(inputs), "bytes_saved": saved}
    if (share or 0.0) < frames.limit(COPY_SHARE):
        return Clear(reason, evidence)
    advice = "Send inputs in half precision, or as bytes that the graph itself scales."
    return [Finding("", "copy", share, reason, evidence, RECORDS, Gain(0.0, gain), advice, "low")]


@check("unused_outputs", "Outputs are fetched that nobody may read", "transfer", ("gpu", "record"), by="model")
def _unused_outputs(frames: Frames) -> list[Finding] | Clear:
    """Which outputs a caller reads is not in any measurement: what each costs to fetch is.

    Gain: from nothing to the share of d2h and extract, by bytes, that all but the smallest output have.
    """
    outputs = _arrays(frames, "outputs")
    if len(outputs) < 2:
        return Clear("the model has one output")
    took = stages(frames, "d2h", "extract")
    if took is None:
        raise NotAssessed("the stages d2h and extract of a bare run")
    share = frames.share(took)
    reason = f"fetching {len(outputs)} outputs takes {ms(took)} ({percent(share)})."
    if (share or 0.0) < frames.limit(COPY_SHARE):
        return Clear(reason, {"fetch_ns": took})
    sizes = {name: _bytes({name: array}) for name, array in outputs.items()}
    *large, _ = sorted(sizes, key=lambda name: -sizes[name])
    total = sum(sizes.values())
    return [
        Finding(
            name,
            "copy",
            frames.share(took * sizes[name] / total),
            f"{reason} It has {100 * sizes[name] / total:.0f} % of the bytes.",
            {"fetch_ns": took, "bytes": sizes[name]},
            RECORDS,
            Gain(0.0, took * sizes[name] / total),
            f"If nobody reads {name}, remove it from the graph's outputs or leave it on the device.",
            "low",
        )
        for name in large
    ]


def _arrays(frames: Frames, kind: Literal["inputs", "outputs"]) -> Mapping[str, Array]:
    arrays = frames.record.inputs if kind == "inputs" else frames.record.outputs
    if not arrays:
        raise NotAssessed(f"shapes and types of the {kind} in the record")
    return arrays


def _bytes(arrays: Mapping[str, Array]) -> float:
    return float(sum(np.prod(array.shape) * np.dtype(array.dtype).itemsize for array in arrays.values()))


def _is_float(array: Array) -> bool:
    return bool(np.dtype(array.dtype).kind == "f")


def _known(value: float) -> float:
    """0 for what was not measured."""
    return 0.0 if math.isnan(value) else float(value)
