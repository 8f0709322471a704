"""Runs the benchmarks of scale and prints them in one table beside the last committed one (docs/performance.md).

    python benchmarks/table.py [--only timeline] [--small] [--write]

Before each one a plain reference is timed, the same for all: SQLite of Python's standard library groups a million
rows. `× reference` is what stays the same on a faster or a busier machine. --write puts the table into the document.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from own_process import run_command

HERE: Final = Path(__file__).parent
DOCUMENT: Final = HERE.parent / "docs" / "performance.md"
SIZES: Final[Mapping[str, tuple[str, str, str]]] = {
    "timeline": ("--kernels", "5000000", "2000"),
    "explain": ("--megabytes", "600", "5"),
    "report": ("--cases", "500", "4"),
    "dag": ("--cases", "2000", "40"),
}
"""Benchmark → its flag of size, that of a whole run and the smallest."""
REFERENCE: Final = """
import sqlite3
connection = sqlite3.connect(":memory:")
connection.execute("CREATE TABLE kernels (name INTEGER, start INTEGER, end INTEGER)")
rows = ((i % 200, 1000 * i, 1000 * i + i % 977) for i in range(1_000_000))
connection.executemany("INSERT INTO kernels VALUES (?, ?, ?)", rows)
connection.execute("SELECT name, COUNT(*), SUM(end - start) FROM kernels GROUP BY name").fetchall()
"""
TOOK: Final = re.compile(r"\s*(.+?):?(?: in)? ([\d.]+) s \(([\d.]+) s of CPU time\), (\d+) MiB")
HEAD: Final = ("what", "seconds", "CPU s", "MiB", "× reference")
COMMITTED: Final = re.compile(
    r"^\| (?P<what>[^|]+?) \| (?P<seconds>[\d.]+) \|.*\| (?P<ratio>[\d.]+) \|$", re.MULTILINE
)


@dataclass(frozen=True)
class Row:
    """What a benchmark printed of a step, and how many times as long as the reference its CPU time is."""

    what: str
    seconds: str
    cpu: str
    mib: str
    ratio: float

    def cells(self) -> tuple[str, ...]:
        """As in the document."""
        return self.what, self.seconds, self.cpu, self.mib, f"{self.ratio:.2f}"


def rows(name: str, size: str, folder: Path) -> Iterator[Row]:
    """The steps of a benchmark, behind a run of the reference."""
    reference = run_command([sys.executable, "-c", REFERENCE], folder)
    script = [sys.executable, str(HERE / f"{name}_scale.py"), SIZES[name][0], size, "--folder", str(folder)]
    for line in run_command(["sh", "-c", '"$@" || [ $? = 1 ]', "sh", *script], folder).output.splitlines():
        if match := TOOK.match(line):
            what, seconds, cpu, mib = match.groups()
            yield Row(f"{name}: {' '.join(what.split())}", seconds, cpu, mib, float(cpu) / reference.cpu)


def main() -> None:
    """Run, print, and write where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SIZES, help="one of them")
    parser.add_argument("--small", action="store_true", help="in their smallest sizes")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    args = parser.parse_args()
    text = DOCUMENT.read_text(encoding="utf-8")
    before = {match["what"]: match for match in COMMITTED.finditer(text)}
    lines = [HEAD, ("---",) * len(HEAD)]
    print(f"{'':60} {'seconds':>8} {'MiB':>6} {'× reference':>11}   last: {'seconds':>8} {'× reference':>11}")
    for name in [args.only] if args.only else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            for row in rows(name, SIZES[name][1 + args.small], Path(folder)):
                last = before.get(row.what)
                beside = f"{last['seconds']:>8} {last['ratio']:>11}" if last else f"{'-':>8} {'-':>11}"
                print(f"{row.what:60} {row.seconds:>8} {row.mib:>6} {row.ratio:11.2f}         {beside}", flush=True)
                lines.append(row.cells())
    if args.write:
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        begin, end = "<!-- benchmarks -->\n", "\n<!-- end -->"
        head, _, rest = text.partition(begin)
        DOCUMENT.write_text(head + begin + table + end + rest.partition(end)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
