"""Reads what `ncu` prints on a terminal: its details page as text, of 2021 to 2026, perhaps amid a program's lines.

The numbers are rounded to two decimals there. Rules have no names in it: the section stands in their place. A launch
at the end that lacks what the others have is cut off and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from inferprof.errors import UserError
from inferprof.files import left_out, text_of
from inferprof.readers import ncu_csv
from inferprof.readers.ncu_csv import Row
from inferprof.readers.ncu_launches import Launch

KERNEL: Final = re.compile(
    r"^  (?P<name>\S.*?)(?: (?P<grid>\(\d+, \d+, \d+\))x(?P<block>\(\d+, \d+, \d+\)))?,"
    r"(?: [\d-]+ [\d:.]+,)? Context \d+, Stream (?P<stream>\d+)(?:, Device (?P<device>\d+), CC [\d.]+)?$"
)
SECTION: Final = re.compile(r"^    Section: (?P<title>.+)$", re.MULTILINE)
_DASHES: Final = re.compile(r"^    -+(?: -+){2}$")
_RULE: Final = re.compile(r"^    (?P<kind>OPT|INF|WRN) +(?P<words>.+)$")
_GAIN: Final = re.compile(r"Est\. (?P<local>Local )?Speedup: (?P<percent>[\d.]+)%\s*")


def read(path: Path) -> list[Launch]:
    """The launches, in order. Raises UserError where there is none that is whole.

    A last one that lacks what all others have was cut: it is left out, which stderr says.
    """
    text = text_of(path)
    launches = list(_launches(text.splitlines()))
    names = [{(row["Section Name"], row["Metric Name"]) for row in rows if row["Metric Name"]} for rows in launches]
    if len(names) > 1 and set.intersection(*names[:-1]) - names[-1]:
        last = launches.pop()[0]["Kernel Name"]
        left_out(f"{path}: the last launch, of {last}, in which the text is cut short")
    rows = [row for own in launches for row in own]
    if not rows:
        raise UserError(f"{path}: no kernel of this text has a table: print the details page, `ncu --page details`")
    try:
        return ncu_csv.details(rows)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def _launches(lines: list[str]) -> Iterator[list[Row]]:
    """The rows of each launch, as a CSV of the details page has them."""
    rows: list[Row] = []
    head: Row = {}
    section = ""
    spans: list[tuple[int, int]] = []
    count = 0
    for line in (line.rstrip() for line in lines):
        if match := KERNEL.match(line):
            if rows:
                yield rows
            head = {
                "ID": str(count),
                "Process ID": "",
                "Kernel Name": match["name"],
                "Grid Size": match["grid"] or "",
                "Block Size": match["block"] or "",
                "Stream": match["stream"],
                "Device": match["device"] or "",
            }
            rows, count, spans = [], count + 1, []
        elif not head:
            continue
        elif match := SECTION.match(line):
            section, spans = match["title"], []
        elif _DASHES.match(line):
            spans = [] if spans and rows else [span.span() for span in re.finditer("-+", line)]
        elif match := _RULE.match(line):
            rows.append({**head, "Section Name": section, "Metric Name": "", **_rule(section, match)})
        elif rows and not rows[-1]["Metric Name"] and line.startswith(" " * 10):
            rows[-1]["Rule Description"] = f"{rows[-1]['Rule Description']} {line.strip()}".strip()
        elif spans and line.startswith("    "):
            name, unit, value = (line[begin:end].strip() for begin, end in _wide(spans, line))
            if name and name != "Metric Name":
                rows.append(
                    {**head, "Section Name": section, "Metric Name": name, "Metric Unit": unit, "Metric Value": value}
                )
    if rows:
        yield rows


def _wide(spans: list[tuple[int, int]], line: str) -> list[tuple[int, int]]:
    """Columns from the end of the one before on, the last to the end of the line."""
    ends = [end for _, end in spans]
    return [(spans[0][0], ends[0]), (ends[0], ends[1]), (ends[1], max(ends[2], len(line)))]


def _rule(section: str, match: re.Match[str]) -> Row:
    gain = _GAIN.match(match["words"])
    return {
        "Rule Name": section,
        "Rule Type": match["kind"],
        "Rule Description": match["words"][gain.end() :].strip() if gain else match["words"].strip(),
        "Estimated Speedup": gain["percent"] if gain else "",
        "Estimated Speedup Type": ("local" if gain["local"] else "global") if gain else "",
    }
