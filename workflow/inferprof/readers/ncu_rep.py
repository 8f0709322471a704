"""Reads the report of Nsight Compute, `.ncu-rep`, with NVIDIA's package `ncu_report`: no Nsight is needed for it."""

from __future__ import annotations

import contextlib
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from inferprof.errors import UserError
from inferprof.readers.ncu_launches import SCOPES, Launch, RuleResult
from inferprof.readers.ncu_metrics import WANTED, scale_of
from inferprof.tables.trace.timeline import PATH_SEPARATOR

MAGIC: Final = b"NVR\0"
PAYLOAD_SIZE: Final = 5
_SIZE: Final = struct.Struct("<I")
AXES: Final = ("x", "y", "z")
_LINK: Final = re.compile(
    r"@(?:url:(?P<text>[^:@]+):[^@]*|(?:section|sass):[^:@]*:(?P<place>[^@]*)|source:[^@]*:(?P<line>[^:@]*))@"
)
"""Links in messages of rules: to a page, a section, an address or a line, each with its text."""


def read(path: Path) -> list[Launch]:
    """The profiled launches, in their order. Raises UserError where the file is damaged or holds none."""
    try:
        import ncu_report
    except ImportError as error:
        raise UserError(
            f"{path} is read with NVIDIA's package ncu-report ({error}): `pip install ncu-report`, "
            "or read what `ncu --import X.ncu-rep --csv --page raw` writes"
        ) from None
    if not _is_whole(path.read_bytes()):
        raise UserError(f"{path} is cut short: copy it again, or profile again")
    context = ncu_report.load_report(str(path))
    if not context.num_ranges():  # also how the package says that it could not read the file
        raise UserError(
            f"{path} holds no profiled kernel, or is damaged or of a newer ncu than the package ncu-report"
        )
    return launches(context, ncu_report)


def _is_whole(content: bytes) -> bool:
    """Whether the last block of a report is there to its end, as far as blocks are as they were since 2020.

    Behind magic and header follow blocks: a size, a message of that size, and what its field PAYLOAD_SIZE says.
    """
    end = len(MAGIC)
    payload: int | None = 0
    while payload is not None and end < len(content):
        start = end + _SIZE.size
        if start > len(content):
            return False
        end = start + int(_SIZE.unpack_from(content, end)[0])
        if end > len(content):
            return False
        payload = 0 if start == len(MAGIC) + _SIZE.size else _payload(content[start:end])
        end += payload or 0
    return payload is None or end == len(content)


def _payload(message: bytes) -> int | None:
    """The number in a message's field PAYLOAD_SIZE; None where it has none, or is no message of Protocol Buffers."""
    place = 0
    with contextlib.suppress(IndexError):
        while place < len(message):
            key, place = _varint(message, place)
            number, kind = key >> 3, key & 7
            if kind not in (0, 2):
                return None
            value, place = _varint(message, place)
            if number == PAYLOAD_SIZE:
                return value
            place += value if kind == 2 else 0
    return None


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits to a byte, the lowest first, and the place behind it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def launches(context: Any, package: Any) -> list[Launch]:
    """The launches of an open report (IContext); `package` gives the names of ncu_report's enumerations."""
    actions = [action for part in context for action in part]
    return [_launch(number, action, package) for number, action in enumerate(actions)]


def _launch(number: int, action: Any, package: Any) -> Launch:
    names = set(action.metric_names())

    def whole(name: str) -> int | None:
        return int(action.metric_by_name(name).value()) if name in names else None

    return Launch(
        number=number,
        name=action.name(package.IAction.NameBase_DEMANGLED),
        grid=",".join(str(whole(f"launch__grid_dim_{axis}") or 1) for axis in AXES),
        block=",".join(str(whole(f"launch__block_dim_{axis}") or 1) for axis in AXES),
        device=whole("launch__device_id"),
        stream=whole("launch__stream_id"),
        raw=dict(_numbers(action, names & WANTED)),
        rules=tuple(_rules(action, package)),
        symbol=action.name(package.IAction.NameBase_MANGLED) or None,
        path=_path(action.nvtx_state()),
    )


def _numbers(action: Any, names: set[str]) -> Iterator[tuple[str, float]]:
    """(name, value in base units) of the metrics that have one."""
    for name in sorted(names):
        metric = action.metric_by_name(name)
        value = metric.value()
        if isinstance(value, int | float) and not math.isnan(value):
            yield name, float(value) * scale_of(metric.unit())


def _rules(action: Any, package: Any) -> Iterator[RuleResult]:
    kinds = {
        package.MsgType.OPTIMIZATION: "optimization",
        package.MsgType.WARNING: "warning",
        package.MsgType.OK: "information",
        package.MsgType.NONE: "information",
    }
    scopes = {package.SpeedupType.GLOBAL: SCOPES["global"], package.SpeedupType.LOCAL: SCOPES["local"]}
    for result in action.rule_results():
        if not result.has_rule_message():
            continue
        message = result.rule_message()
        if message["type"] not in kinds:  # a rule that failed
            continue
        gain = result.speedup_estimation() if result.has_speedup_estimation() else {}
        yield RuleResult(
            rule=result.rule_identifier(),
            kind=kinds[message["type"]],
            message=_LINK.sub(lambda link: str(link[link.lastgroup or 0]), message["message"]),
            speed_up=gain.get("speedup"),
            scope=scopes.get(gain.get("type")),
        )


def _path(state: Any) -> str | None:
    """The push-pop ranges around a launch, outermost first, of the first domain that has any."""
    if state is None:
        return None
    for domain in state.domains():
        if ranges := state.domain_by_id(domain).push_pop_ranges():
            return PATH_SEPARATOR.join(ranges)
    return None
