"""docs/guide.md: each check has one entry, each name is real, and each check finds on its capture what is quoted."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from benchmarks.diagnosis import DATA, LABELS, MACHINE, frames_of
from tests.gpu.faulty_kernels import KERNELS

from inferprof import bundles, registry, report
from inferprof.commands import VERBS
from inferprof.diagnosis import run
from inferprof.files import read_json
from inferprof.findings import Answer, Frames
from inferprof.report import compose, evidence
from inferprof.report.fields import Field
from inferprof.report.model import Column
from inferprof.tables.metrics import METRICS
from inferprof.tables.records import read_cases

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "workflow/inferprof"
TEXT = (REPOSITORY / "docs/guide.md").read_text(encoding="utf-8")
LABELLED = yaml.safe_load(LABELS.read_text(encoding="utf-8"))
LINKS = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", TEXT, re.MULTILINE))
HEAD = re.compile(r"^\*\*(?P<name>.+)\*\* · check \[`(?P<check>\w+)`\]\[checks\] · (?P<seen>.+)\\$", re.MULTILINE)
CAPTURE = re.compile(r'capture \[(?P<label>made kernel `(?P<kernel>\w+)`|[^\]]+)\](?:\[made\])?: "(?P<quote>.+)"')
"""The name of a capture, or of a made kernel, and what the check says of it."""
FOREIGN = re.compile(
    r"cuda[A-Z]\w+|tensor\.item\(\)|TORCH_LOGS=\S+|--\w+|\.ncu-rep|nvidia-smi .+|numactl .+|table\.column"
)
"""Words of CUDA, torch and NVIDIA's tools."""
MEASURED = ("device", "call", "end_to_end")


@dataclass(frozen=True)
class Entry:
    """A bottleneck with a check; `quote` is empty where there is no capture."""

    check: str
    kernel: str | None
    path: Path | None
    quote: str
    body: str


def entries() -> Iterator[Entry]:
    for head in HEAD.finditer(TEXT):
        body = TEXT[head.end() :].split("\n\n")[0]
        seen = CAPTURE.fullmatch(head["seen"])
        if seen is None:
            assert head["seen"] == "no capture yet", head[0]
            yield Entry(head["check"], None, None, "", body)
            continue
        link = LINKS["made"] if seen["kernel"] else LINKS[seen["label"]]
        yield Entry(head["check"], seen["kernel"], (REPOSITORY / "docs" / link).resolve(), seen["quote"], body)


ENTRIES = list(entries())
SEEN = [one for one in ENTRIES if one.path]
UNSEEN = [one for one in ENTRIES if not one.path]
WITHOUT_CHECK = re.findall(r"^- \*\*.+?(?=\n- |\n\n)", TEXT, re.MULTILINE | re.DOTALL)


def holds(labelled: Mapping[str, Any], entry: Entry) -> bool:
    """Whether a label is of the capture that an entry names."""
    if entry.kernel:
        return bool(labelled.get("kernel") == entry.kernel)
    if "bundle" in labelled:
        return entry.path == REPOSITORY / str(labelled["bundle"])
    record = f"records/{MACHINE}/benchmark/{labelled.get('record')}/r0.json"
    return entry.path in [DATA / path for path in (record, *labelled.get("captures", {}).values())]


@functools.cache
def known_of(index: int) -> Frames:
    return frames_of(LABELLED[index])


def answers(entry: Entry) -> Iterator[Answer]:
    """What its check says wherever the capture is labelled with it."""
    for index, labelled in enumerate(LABELLED):
        if entry.check in labelled["found"] and holds(labelled, entry):
            yield run.answer(registry.checks()[entry.check], known_of(index))


def test_every_check_has_one_entry() -> None:
    assert sorted(one.check for one in ENTRIES) == sorted(registry.checks())


@pytest.mark.parametrize("entry", SEEN, ids=lambda one: one.check)
def test_a_check_finds_on_its_capture_what_is_quoted(entry: Entry) -> None:
    said = [finding.reason for answer in answers(entry) for finding in answer.findings]
    assert [reason for reason in said if entry.quote in reason], said


def test_no_labelled_capture_shows_what_is_said_to_have_none() -> None:
    labels = {check for labelled in LABELLED for check in labelled["found"]}
    assert {one.check for one in UNSEEN} & labels == set()


@pytest.mark.slow
@pytest.mark.parametrize("entry", UNSEEN, ids=lambda one: one.check)
def test_a_check_without_a_capture_finds_nothing_in_any(entry: Entry) -> None:
    check = registry.checks()[entry.check]
    found = [one["name"] for index, one in enumerate(LABELLED) if run.answer(check, known_of(index)).findings]
    assert found == []


def test_every_entry_says_where_to_see_it_and_what_to_do() -> None:
    assert [one.check for one in ENTRIES if "See:" not in one.body or "\nDo: " not in one.body] == []


def test_what_has_no_check_says_whether_it_has_a_capture_and_names_no_check() -> None:
    assert len(WITHOUT_CHECK) >= 10
    for bullet in WITHOUT_CHECK:
        assert ("No capture yet" in bullet) != bool(re.search(r"Capture \[", bullet)), bullet
        assert "Do: " in bullet.replace("\n  ", " "), bullet
        assert not set(re.findall(r"`(\w+)`", bullet)) & set(registry.checks()), bullet


def test_bullets_without_a_check_stand_under_words_that_say_so() -> None:
    under = "".join(re.findall(r"^No check yet:\n((?:[- ] .+\n)+)", TEXT, re.MULTILINE))
    assert [bullet for bullet in WITHOUT_CHECK if bullet not in under] == []


def test_every_capture_that_is_named_is_linked_and_every_link_is_used() -> None:
    named = re.findall(r"[Cc]apture \[(?!made )([^\]]+)\]", TEXT)
    assert {*named, "made", "checks"} == set(LINKS)
    assert [link for link in LINKS.values() if not (REPOSITORY / "docs" / link.split("#")[0]).exists()] == []


@functools.cache
def columns() -> dict[str, set[str]]:
    """Table of the report → its columns, by its module and by the report of a bundle."""
    found: dict[str, set[str]] = {}
    for module in modules():
        names = re.findall(r'(?:[Tt]able|table_of|csv_of)\(\s*(?:"(\w+)"|([A-Z]+)\b)', inspect.getsource(module))
        for name, constant in names:
            found.setdefault(name or vars(module)[constant], set()).update(keys(list(vars(module).values())))
    return found


def modules() -> list[ModuleType]:
    """Those that make a report."""
    return [
        importlib.import_module(one.name) for one in pkgutil.walk_packages(report.__path__, f"{report.__name__}.")
    ]


def keys(value: Any) -> Iterator[str]:
    """The keys of all columns in it."""
    if isinstance(value, Column):
        yield value.key
    elif isinstance(value, Field):
        yield value.column.key
    elif isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from keys(one)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The same with what the report of a bundle has."""
    results = tmp_path_factory.mktemp("bundle") / "results"
    manifest = bundles.unbundle(REPOSITORY / "studies/reference/h100/vit-base.zip", results)
    cases = read_cases(results / "reports" / manifest.study / "cases.csv")
    found = evidence.load(results, manifest.study, manifest.machine, cases, "fp16/ort_cuda/default")
    made = compose.compose(found).tables
    return columns() | {table.name: {column.key for column in table.columns} for table in made}


def test_every_name_in_code_is_one_of_ours_or_of_the_makers(tables: dict[str, set[str]]) -> None:
    options = {option for backend in registry.backends().values() for option in registry.options_of(backend)}
    names = {*registry.checks(), *registry.thresholds(), *METRICS, *options, *KERNELS, *MEASURED, *configured()}
    strangers = [
        word
        for word in re.findall(r"`([^`]+)`", TEXT)
        if not (FOREIGN.fullmatch(word) or is_column(word, tables) or is_ours(word) or word.split(":")[0] in names)
    ]
    assert strangers == []


def is_column(word: str, tables: dict[str, set[str]]) -> bool:
    table, _, column = word.removeprefix("csv/").partition(".")
    return (column == "csv" and table in {*tables, "table"}) or column in tables.get(table, ())


def is_ours(word: str) -> bool:
    """A path, or a command whose verb or target there is (make's: test_docs)."""
    program, _, rest = word.partition(" ")
    if program == "inferprof":
        return rest.split()[0] in VERBS
    if program == "snakemake":
        return rest.startswith(
            (
                "--cores 1 benchmarks",
                "--cores 1 report",
                "--cores 1 results/REPORT.txt",
                "--cores 1 --config profilers='[",
            )
        )
    return program == "make" or (REPOSITORY / word).exists()


def configured() -> set[str]:
    """The keys of a config."""
    known = read_json(PACKAGE / "schemas/config.schema.json")["properties"]
    return {*known, *known["protocol"]["properties"]}


def test_every_profiler_of_a_command_exists() -> None:
    named = re.findall(r"profilers='\[([\w, ]+)\]'", TEXT)
    assert {name for names in named for name in names.split(", ")} <= set(registry.profilers())


def test_every_section_that_is_named_is_one_of_the_report() -> None:
    source = "".join(map(inspect.getsource, modules()))
    named = re.findall(r"(?<![*\w])\*([A-Z][^*]+)\*(?!\*)", TEXT)
    assert {name for name in named if f'"{name}"' not in source} == set()
