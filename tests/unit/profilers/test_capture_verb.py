"""`inferprof capture PROFILER --out FILE -- COMMAND`: flags on both sides of the dashes stay where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from inferprof import cli, profilers
from inferprof.plugins import Profiler


@pytest.mark.parametrize("out_first", [True, False])
def test_the_command_is_what_stands_behind_the_dashes(out_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, list[str], Path]] = []

    def capture(
        profiler: Profiler, argv: Sequence[str], out: Path, timeline: Path | None, record: Path | None
    ) -> None:
        seen.append((profiler.name, list(argv), out))

    monkeypatch.setattr(profilers, "capture_or_reason", capture)
    head = ["--out", "c.sqlite", "nsys"] if out_first else ["nsys", "--out", "c.sqlite"]
    run = ["inferprof", "run", "ort_cuda", "m.onnx", "--spec", "m.yaml", "--out", "record.json"]
    assert not cli.main(["capture", *head, "--", *run])
    assert seen == [("nsys", run, Path("c.sqlite"))]
