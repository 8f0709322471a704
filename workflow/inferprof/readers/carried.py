"""Text as the tool wrote it, out of what carried it: containers, orchestrators, CI and journals put something in
front of each line, one around the other; forums, editors and PowerShell change its characters.

Only what is in front of nearly all lines is taken off, with one blank behind it, so that what a tool itself writes
there stays.
"""

from __future__ import annotations

import codecs
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from inferprof.files import text_of
from inferprof.readers.kind import HEAD_BYTES

MOST: Final = 0.8
"""Ours: of the lines that hold anything, how many begin alike."""
DEEPEST: Final = 4
SAMPLE: Final = 500
"""Lines that tell."""
_CONTROL: Final = re.compile("\x1b(?:\\[[\\d;?]*[A-Za-z]|\\][^\x07]*\x07)")
"""Colours and other orders to a terminal."""
_ENTITY: Final = re.compile(r"&(?:quot|apos|lt|gt|amp|nbsp|#39);")
_TAG: Final = re.compile(r"</?(?:pre|code|span|div|p|samp|details|summary|br)\b[^>\n]*>")
"""How web pages write text."""
_FENCED: Final = re.compile(
    r"^(?P<fence>```|~~~)\w*[ \t]*\r?\n(?P<inside>\s*(?:\{|\[\s*[\[{\"]).*?)(?:^(?P=fence)|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""JSON between the fences of Markdown; tables and logs are found amid other lines."""
_LINE_END: Final = re.compile("\r*\n|\r")
"""Also doubled, as text that was converted twice has it. TensorRT's names hold what else str.splitlines splits at."""
_INDENTED: Final = re.compile(r" {4}|\t")
"""How Markdown marks code without fences."""
_DAY: Final = r"\d{4}-\d\d-\d\d"
_TIME: Final = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_ZONE: Final = r"(?:Z|[+-]\d\d:?\d\d)"
CARRIERS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_DAY}T{_TIME}{_ZONE} (?:stdout|stderr) [FP]",  # containerd, CRI-O
        rf"{_DAY}T{_TIME}{_ZONE} \d\d[OE][ +]",  # GitLab
        rf"{_DAY}T{_TIME}{_ZONE}? [\w.-]+ [\w.@-]+(?:\[\d+\])?:",  # journalctl -o short-iso
        rf"\[?{_DAY}T{_TIME}{_ZONE}?\]?",  # docker --timestamps, GitHub, Jenkins
        rf"\[?{_DAY} {_TIME}{_ZONE}?\]?(?! \[[VIWEF]:onnxruntime)(?= |$)",  # ts, and not ONNX Runtime's own
        rf"[A-Z][a-z]{{2}} [ \d]\d {_TIME} (?:[\w.-]+ [\w.@-]+(?:\[\d+\])?:)?",  # journald, syslog, ts
        rf"{_TIME}(?: (?= )| *$)",  # Jenkins, of its classic timestamps
        r"[\w./-]+ +\|",  # docker compose
        r"\[pod/[\w./-]+\]",  # kubectl logs --prefix
        r"\[\d+,\d+\](?:<std(?:out|err)>)?:",  # mpirun --tag-output
        r"\[(?:default|rank)\d+\]:",  # torchrun
        r" *\d+[:\t]",  # srun --label, grep -n, cat -n
        r"(?:- )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?: -(?= )|:[\w.]+:)",  # Python's logging
        r"\[(?:DEBUG|INFO|WARNING|ERROR)\](?= )",  # what others make of it
        r">",  # quoted mail
        rf"[^\t]+\t[^\t]+\t\ufeff?(?={_DAY}T)",  # gh run view --log
    )
)
"""What stands in front of a line, by who puts it there."""


def plain(path: Path, folder: Path) -> Path:
    """The file, or where something carried its lines a file of the same name in the folder without that.

    Raises UserError where it cannot be read."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    encoding = "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    text = head.decode(encoding, errors="replace")
    if "\0" in text.rstrip("\0") or not (encoding == "utf-16" or _is_carried(text)):
        return path
    lines = _lines(text_of(path, encoding))
    for _ in range(DEEPEST):
        if _is_all_indented(lines[:SAMPLE]):
            lines = [_INDENTED.sub("", line, count=1) for line in lines]
        elif carrier := _carrier(lines[:SAMPLE]):
            lines = _without(lines, carrier)
        else:
            break
    inside = folder / f"{len(list(folder.iterdir()))}"
    inside.mkdir()
    out = inside / path.name
    out.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return out


def _without(lines: Sequence[str], carrier: re.Pattern[str]) -> list[str]:
    """The lines without what carried them, and without the blank behind it, where it has one."""
    ends = [match.end() if (match := carrier.match(line)) else None for line in lines]
    carried = [line[end:] for line, end in zip(lines, ends, strict=True) if end is not None]
    blank = int(all(rest.startswith(" ") for rest in carried if rest))
    return [line if end is None else line[end + blank :] for line, end in zip(lines, ends, strict=True)]


def _is_carried(text: str) -> bool:
    """Whether the beginning of a file is not as its tool wrote it."""
    lines = _LINE_END.split(text)
    sample = lines[:SAMPLE]
    return (
        any(sign in text for sign in ("\x1b", "\xa0", "\r\r\n"))
        or ("\r" in text and "\n" not in text)
        or any(pattern.search(text) for pattern in (_ENTITY, _TAG, _FENCED))
        or _of_docker(lines)
        or _is_all_indented(sample)
        or _is_double_spaced(sample)
        or _carrier(sample) is not None
    )


def _is_all_indented(lines: Sequence[str]) -> bool:
    held = [line for line in lines if line.strip()]
    return len(held) > 1 and all(map(_INDENTED.match, held))


def _is_double_spaced(lines: Sequence[str]) -> bool:
    """Whether each second line is empty, and no other one inside."""
    return len(lines) > 6 and not any(map(str.strip, lines[1::2])) and sum(map(bool, lines[::2])) > len(lines) / 4


def _lines(text: str) -> list[str]:
    """The lines without colours and marks of web pages, those of Docker's json-file out of their JSON."""
    text = text.replace("\xa0", " ")
    if _TAG.search(text) or _ENTITY.search(text):
        # A quote inside of a string of JSON or CSV stays what it is.
        text = _TAG.sub("", text.replace("&quot;", '"') if '"' not in text else text)
        text = _ENTITY.sub(lambda entity: entity[0] if entity[0] == "&quot;" else html.unescape(entity[0]), text)
    if fenced := _FENCED.search(text):
        text = fenced["inside"]
    raw = _LINE_END.split(text)
    if _of_docker(raw):
        raw = "".join(_said(line) for line in raw).splitlines()
    if _is_double_spaced(raw[:SAMPLE]):
        raw = raw[::2]
    return [_CONTROL.sub("", line) for line in raw]


def _of_docker(lines: Sequence[str]) -> bool:
    """Whether the lines are those of Docker's json-file: an object each."""
    return bool(lines) and lines[0].startswith('{"log":"')


def _said(line: str) -> str:
    try:
        entry: Any = json.loads(line)
    except ValueError:
        return ""
    return str(entry.get("log", "")) if isinstance(entry, dict) else ""


def _carrier(lines: Sequence[str]) -> re.Pattern[str] | None:
    """What nearly all lines begin with."""
    held = [line for line in lines if line.strip()]
    if len(held) < 2:
        return None
    counts = ((sum(carrier.match(line) is not None for line in held), carrier) for carrier in CARRIERS)
    return next((carrier for count, carrier in counts if count >= MOST * len(held)), None)
