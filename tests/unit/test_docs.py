"""The documentation says nothing about the repository that is not so."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from docs import generate

from inferprof import registry
from inferprof.commands import VERBS

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "workflow/inferprof"
DOCUMENTS = [
    *REPOSITORY.glob("*.md"),
    *(REPOSITORY / "docs").rglob("*.md"),
    *(
        path for path in (REPOSITORY / "studies").rglob("*.md") if path.name != "notes.md"
    ),  # parts of docs/reference-*
]
FOLDERS = "workflow|docs|docker|offline|models|requirements|profiles|studies|tests|benchmarks"


@pytest.fixture(params=DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def document(request: pytest.FixtureRequest) -> str:
    """The text of each document."""
    return str(request.param.read_text(encoding="utf-8"))


def targets() -> set[str]:
    """The targets of the Makefile."""
    return set(re.findall(r"^([a-z][a-z-]*):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_every_make_target_that_is_named_exists(document: str) -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", document, re.MULTILINE))
    assert named <= targets()


def commands(document: str, program: str) -> list[list[str]]:
    """The arguments of each command of a program in backticks, in a block, or on an indented line.

    `inferprof verb: …` is a message.
    """
    blocks = re.findall(r"^```\w*\n(.*?)^```", document, re.MULTILINE | re.DOTALL)
    lines = [*"\n".join(blocks).replace("\\\n", " ").splitlines(), *re.findall(r"(?<!`)`([^`\n]+)`", document)]
    lines += re.findall(r"^ {4}(.+)$", document.replace("\\\n", " "), re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines if re.match(rf"{program} (?!\w+:)", line)]


def test_every_verb_that_is_named_exists_and_has_the_flags(document: str) -> None:
    for verb, *arguments in commands(document, "inferprof"):
        assert verb in VERBS or verb in {"VERB", "--version"}, verb
        named = {word.partition("=")[0] for word in itertools.takewhile(lambda word: word != "--", arguments)}
        flags = generate.Flags()
        VERBS.get(verb, (None, lambda _: None))[1](flags)
        flags_of_verb = {row[0].strip("`").split("`")[0].split()[0] for row in flags.rows} | {"--help"}
        assert {word for word in named if word.startswith("-")} <= flags_of_verb, (verb, arguments)


def test_every_target_of_snakemake_that_is_named_exists(document: str) -> None:
    files = [REPOSITORY / "Snakefile", *(REPOSITORY / "workflow/rules").glob("*.smk")]
    rules = re.findall(r"^ *(?:rule|checkpoint) (\w+):", "".join(map(Path.read_text, files)), re.MULTILINE)
    targets = {*rules, *registry.profilers()}
    for arguments in commands(document, "snakemake"):
        values = {value for flag, value in itertools.pairwise(arguments) if flag.startswith("--")}
        assert {word for word in arguments if re.fullmatch(r"[a-z_]+", word)} - values <= targets, arguments


def test_commands_of_a_page_are_seen_wherever_they_stand() -> None:
    page = "`inferprof a --b` and inferprof c\n```\ninferprof d \\\n  --e  # f\n$ g\n```\n\n    inferprof h -- i\n"
    assert commands(page, "inferprof") == [["d", "--e"], ["a", "--b"], ["h", "--", "i"]]


def test_make_help_says_what_every_target_does() -> None:
    command = ["make", "--no-print-directory", "help"]  # or make, which runs these tests, says where it is
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in shown.splitlines() if len(line.split()) > 1} == targets()


def test_every_path_that_is_named_exists(document: str) -> None:
    """A name with a placeholder in capitals (models/NAME.yaml), braces, a star or an ellipsis is a pattern."""
    named = re.findall(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./{{}}*…-]*", document)
    paths = {name.rstrip(".") for name in named if not re.search(r"[A-Z]{4}|[{}*…]", name)}
    assert sorted(path for path in paths if not (REPOSITORY / path).exists()) == []


def test_every_local_link_leads_somewhere(request: pytest.FixtureRequest, document: str) -> None:
    folder = request.node.callspec.params["document"].parent
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", document) if "://" not in link]
    assert [link for link in links if not (folder / link).exists()] == []


def test_every_link_to_a_heading_finds_it(request: pytest.FixtureRequest, document: str) -> None:
    page = request.node.callspec.params["document"]
    links = re.findall(r"(?:\]\(|\]: )([^)\s:#]*)#([^)\s]+)", document)
    pages = {target: (page.parent / target if target else page).read_text(encoding="utf-8") for target, _ in links}
    assert [(target, anchor) for target, anchor in links if anchor not in anchors(pages[target])] == []


def anchors(text: str) -> set[str]:
    """Of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_tables_say_what_the_code_has(document: str) -> None:
    assert generate.page(document) == document, "run `make docs`"


def test_every_table_that_can_be_made_is_in_one_page() -> None:
    marks = [mark for page in DOCUMENTS for mark in generate.MARK.findall(page.read_text(encoding="utf-8"))]
    assert sorted(marks) == sorted(generate.TABLES)


def test_a_table_that_is_out_of_date_is_made_anew() -> None:
    mark = "<!-- `make docs` writes the table of quantizers -->"
    made = generate.page(f"before\n{mark}\n| old |\n{generate.END}\nbehind\n")
    head, dashes, *rows = made.split(f"{mark}\n")[1].split(f"\n{generate.END}")[0].splitlines()
    assert (head, dashes) == ("| Quantizer | Meaning |", "| --- | --- |")
    assert {row.split("`")[1] for row in rows} == set(registry.quantizers())
    assert (made.startswith("before\n"), made.endswith("\nbehind\n"), "old" in made) == (True, True, False)


def test_a_verb_is_listed_with_each_of_its_flags() -> None:
    _, rows = generate.verbs()
    words = [cells[:2] for cells in rows]
    start = words.index(("`audit`", ""))
    assert words[start + 1 : start + 5] == [
        ("", "`ONNX`"),
        ("", "`--precision PRECISION`"),
        ("", "`--spec SPEC`"),
        ("", "`--shape SHAPE`"),
    ]
    assert ("", "`--machine MACHINE`, required") in words
    assert ("", "`--partial`") in words


def test_nobody_is_told_to_run_a_container_with_all_privileges(document: str) -> None:
    assert "--privileged" not in document


def test_the_architecture_names_every_module_and_no_other() -> None:
    text = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
    parts = {path.name if path.suffix else f"{path.name}/" for path in PACKAGE.iterdir()}
    parts -= {"__init__.py", "__pycache__/", "py.typed"}
    named = set(re.findall(r"^\| `([a-z_/]+(?:\.py|\.csv|/))` \|", text, re.MULTILINE))
    inside = {name for name in named if "/" in name.rstrip("/")}
    assert named - inside == parts
    packages = ("model", "measure", "machine")
    files = {f"{package}/{path.name}" for package in packages for path in (PACKAGE / package).glob("[a-z]*.*")}
    assert {name for name in inside if not name.startswith("tables/")} == files


def test_the_architecture_names_every_option_of_a_variant() -> None:
    text = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
    options = {option for backend in registry.backends().values() for option in registry.options_of(backend)}
    assert {option for option in options if f"| `{option}` |" not in text} == set()


def test_every_row_of_the_version_matrix_ran_or_is_declared() -> None:
    text = (REPOSITORY / "docs/versions.md").read_text(encoding="utf-8")
    matrix = text.split("## The matrix")[1].split("\n\n")[1].splitlines()[2:]
    assert len(matrix) >= 3
    assert {row.split("|")[-2].strip() for row in matrix} <= {"*ran*", "*declared*"}


@pytest.mark.parametrize(
    ("package", "heading"),
    [
        ("onnxruntime-gpu", "What ONNX Runtime {} wants"),
        ("nvidia-modelopt", "ModelOpt {}"),
        ("tensorrt-rtx-cu13", "| {} (builds for 12.0) |"),
    ],
)
def test_the_version_matrix_follows_the_lock(package: str, heading: str) -> None:
    lock = (REPOSITORY / "requirements/study.txt").read_text(encoding="utf-8")
    locked = re.search(rf"^{package}==(\S+)", lock, re.MULTILINE)
    assert locked is not None
    assert heading.format(locked.group(1)) in (REPOSITORY / "docs/versions.md").read_text(encoding="utf-8")
