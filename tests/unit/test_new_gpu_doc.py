"""docs/new-gpu.md: each command says where it ran, if anywhere; each symptom of verify is in its table."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.verify.conftest import blackwell as blackwell

from inferprof import commands, registry
from inferprof.machine.hardware import Machine
from inferprof.verify.rows import BACKENDS, GUIDE, ROWS, SYMPTOMS, Symptom
from inferprof.verify.site import Site, case_of

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = (REPOSITORY / GUIDE).read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
UNPROVEN = [block for block in BLOCKS if block.startswith("# unproven")]
RUN = [block for block in BLOCKS if block.startswith("# run: ")]
COMMANDS = [line for block in RUN for line in block.splitlines()[1:]]


def table(head: str) -> list[list[str]]:
    """The rows of the table with this first column, as cells."""
    lines = TEXT.split(f"| {head} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0][:40])
def test_every_block_is_a_script_that_bash_can_read(block: str) -> None:
    done = subprocess.run(["bash", "-n", "-c", block], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_fenced_block_is_one_of_these() -> None:
    assert TEXT.count("```") == 2 * len(BLOCKS) == 2 * len(RUN + UNPROVEN)
    assert len(UNPROVEN) >= 4 and len(COMMANDS) >= 6


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("make ")])
def test_a_make_command_says_what_it_would_do(command: str) -> None:
    done = subprocess.run(["make", "--dry-run", *shlex.split(command)[1:]], cwd=REPOSITORY, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_make_verify_is_the_verb_and_nothing_behind_it() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "verify"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "inferprof verify"


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("inferprof ")])
def test_a_verb_has_these_flags_and_rows(command: str) -> None:
    args = commands.parser().parse_args(shlex.split(command)[1:])
    assert set(getattr(args, "only", ())) <= {row.name for row in ROWS}


def test_the_probe_runs_as_it_is_written(tmp_path: Path) -> None:
    (command,) = (line for line in COMMANDS if line.startswith("inferprof probe"))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "workflow")}
    argv = [sys.executable, "-m", *shlex.split(command)]
    subprocess.run(argv, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert (tmp_path / "environment.json").is_file()


def test_no_command_is_of_another_kind() -> None:
    assert {line.split()[0] for line in COMMANDS} == {"make", "inferprof"}


def test_containers_are_run_as_the_container_s_own_page_says() -> None:
    container = (REPOSITORY / "docs/container.md").read_text(encoding="utf-8")
    runs = [block for block in UNPROVEN if "docker run --rm --init" in block]
    start = container.index('docker run --rm --init --gpus all --user "$(id -u)')
    flags = container[start : container.index("\n```", start)]
    assert len(runs) == 2
    assert all(flags in block for block in runs)


@pytest.mark.parametrize("box", table("Box"), ids=lambda box: box[0])
def test_what_a_box_lacks_is_what_its_compute_capability_refuses(box: list[str], blackwell: Machine) -> None:
    """Backends and number formats, on a machine that lacks nothing else."""
    _, capability, _, _, flavours, lacks, _ = box
    major, _, minor = capability.partition(".")
    assert blackwell.gpu is not None
    gpu = replace(blackwell.gpu, compute_capability=(int(major), int(minor)))
    site = Site(Path(), replace(blackwell, gpu=gpu), Path(), lambda *_: 0, lambda: 0.0, "")
    refused = [name for name in BACKENDS if site.refusal(case_of(name)) is not None]
    names = [] if lacks == "none" else lacks.split(", ")
    assert sorted(refused) == sorted(names)
    assert flavours == ("TensorRT alone" if "tensorrt_rtx" in names else "both flavours")
    formats = [name for name in registry.precisions() if site.refusal(case_of("tensorrt", name)) is not None]
    assert formats == []


def test_every_row_of_verify_is_in_its_table() -> None:
    names = [row.name for row in ROWS]
    told: set[str] = set()
    for cell, *_ in table("rows"):
        listed = re.findall(r"`(\w+)`", cell)
        span = names[names.index(listed[0]) : names.index(listed[-1]) + 1]
        told |= set(span) if "…" in cell else set(listed)
    assert told == set(names)


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.said.pattern)
def test_every_symptom_that_verify_knows_is_in_the_table(symptom: Symptom) -> None:
    assert [cells for cells in table("Symptom") if symptom.said.search(cells[0].replace("`", ""))]


def test_every_symptom_has_a_cause_and_something_to_do() -> None:
    rows = table("Symptom")
    assert len(rows) >= 20
    assert all(len(cells) == 3 and all(cells) for cells in rows)


def test_every_source_that_is_named_is_listed() -> None:
    body, sources = TEXT.split("## Sources")
    named = {int(number) for number in re.findall(r"\[(\d)\]", body)}
    assert named == {int(number) for number in re.findall(r"^(\d)\. ", sources, re.MULTILINE)}
