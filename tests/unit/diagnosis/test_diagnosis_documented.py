"""docs/diagnosis.md lists the checks and thresholds that there are, as they are."""

from __future__ import annotations

from pathlib import Path

from inferprof import registry
from inferprof.findings import NEEDS


def rows(text: str, heading: str) -> list[str]:
    """The rows of the table under a heading."""
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| `")]


def test_every_check_is_listed_with_what_it_needs(repository: Path) -> None:
    checks = sorted(registry.checks().values(), key=lambda check: check.level)
    others = {"case": "", "model": ", the model's other cases"}
    expected = [
        f"| `{check.name}` | {check.level} | {check.title} | {', '.join(check.needs)}{others[check.scope]} "
        f"| {check.by} |"
        for check in checks
    ]
    assert sorted(rows((repository / "docs/diagnosis.md").read_text(encoding="utf-8"), "Checks")) == sorted(expected)


def test_every_threshold_is_listed_with_its_value_and_source(repository: Path) -> None:
    expected = [
        f"| `{one.name}` | {one.value:g} {one.unit} | {one.source} |" for one in registry.thresholds().values()
    ]
    assert rows((repository / "docs/diagnosis.md").read_text(encoding="utf-8"), "Thresholds") == expected


def test_every_need_is_explained(repository: Path) -> None:
    text = (repository / "docs/diagnosis.md").read_text(encoding="utf-8")
    assert [f"| `{need}` | {meaning} |" for need, meaning in NEEDS.items()] == rows(text, "What a check may need")
