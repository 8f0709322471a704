"""What Nsight Compute saw of single kernel launches, whichever file told it, as rows of the tidy table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pandas as pd

from inferprof.readers import ncu_metrics
from inferprof.tables.records import frame_of
from inferprof.tables.schema import conform

Scope = Literal["kernel", "unit"]
"""What an estimated speed-up is of: the kernel's run time (`global` in ncu), or one unit's efficiency (`local`)."""
SCOPES: Final[Mapping[str, Scope]] = {"global": "kernel", "local": "unit"}
KEPT: Final = (
    "level",
    "name",
    "range",
    "owner",
    "device",
    "stream",
    "launch",
    "instances",
    "metric",
    "value",
    "text",
)


@dataclass(frozen=True)
class RuleResult:
    """What one of NVIDIA's rules says of a launch. `speed_up`: percent that it expects to be gained."""

    rule: str
    kind: str
    message: str
    speed_up: float | None = None
    scope: Scope | None = None


@dataclass(frozen=True)
class Launch:
    """One profiled launch. `raw`: ncu's metrics by name in base units (ns, byte, Hz, %), of those in WANTED.

    `grid` and `block` are `x,y,z`, empty in files of 2021 and before. `symbol` is the mangled name and `path` the
    NVTX ranges around the launch; None where the file does not tell them.
    """

    number: int
    name: str
    grid: str
    block: str
    device: int | None
    stream: int | None
    raw: Mapping[str, float]
    rules: Sequence[RuleResult] = field(default=())
    symbol: str | None = None
    path: str | None = None


def rows(launches: Iterable[Launch], tool: str) -> pd.DataFrame:
    """Level kernel: a row per launch and metric. Level ncu_rule: `name` is the rule, `owner` the kernel."""
    found = [row for launch in launches for row in (*_kernel(launch), *_rules(launch))]
    return conform(frame_of(found, list(KEPT)), tool)


def _kernel(launch: Launch) -> Iterable[dict[str, Any]]:
    place = {
        "level": "kernel",
        "name": launch.name,
        "range": launch.path,
        "device": launch.device,
        "stream": launch.stream,
        "launch": launch.number,
        "instances": 1,
    }
    words = {"grid": launch.grid or None, "block": launch.block or None, "symbol": launch.symbol}
    for metric, content in {**words, **ncu_metrics.ours(launch.raw)}.items():
        if content is not None:
            yield {**place, "metric": metric, "text" if isinstance(content, str) else "value": content}


def _rules(launch: Launch) -> Iterable[dict[str, Any]]:
    """A rule that speaks several times of a launch gets a number behind its name."""
    seen: Counter[str] = Counter()
    for result in launch.rules:
        seen[result.rule] += 1
        number = f" {seen[result.rule]}" if seen[result.rule] > 1 else ""
        place = {
            "level": "ncu_rule",
            "name": f"{result.rule}{number}",
            "owner": launch.name,
            "device": launch.device,
            "launch": launch.number,
            "instances": 1,
        }
        yield {**place, "metric": "rule_kind", "text": result.kind}
        yield {**place, "metric": "rule_message", "text": result.message}
        if result.speed_up is not None and result.scope:
            yield {**place, "metric": f"rule_speed_up_{result.scope}", "value": result.speed_up}
