"""What the house style promises, counted."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferprof import registry
from inferprof.readers.kind import Kind
from inferprof.report.section import sections

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "workflow/inferprof"
MODULES = sorted(PACKAGE.rglob("*.py"))
MODULE_LINES = 350
FUNCTION_LINES = 60
RULE_LINES = 25
COMPREHENSION_FORS = 2

CORE = (
    *("case", "errors", "files", "documents", "measure.timing", "workload", "backends"),
    *("plugins", "registry", "model.model_spec", "machine.hardware", "devices", "stats", "verify"),
)
"""Modules that an interpreter with NumPy, msgspec and nothing else must be able to import."""

SPELLS_NAMES = {
    **dict.fromkeys(
        ("backends/ort_session.py", "model/model_spec.py", "model/operators.py"),
        "int8 as a type of ONNX and of NumPy",
    ),
    **dict.fromkeys(
        ("devices/ceilings.py", "machine/peaks.py", "tables/roofs.py"),
        "what GPUs multiply in: kinds of ceilings.json and columns of peaks.csv, which a format names as its roof",
    ),
    **dict.fromkeys(
        ("tables/limits/speed_ceiling.py", "report/sections/speed_ceiling.py"),
        "the steps down to the roofs fp8 and fp4",
    ),
    **dict.fromkeys(
        (
            *("tables/counters/kernel_faults.py", "readers/ncu_metrics.py"),
            *("tables/nodes/kernel_formats.py", "tables/nodes/trt_engine.py", "tables/trace/kernel_class.py"),
        ),
        "how tools spell what a kernel computes in, which a format names as what it computes in",
    ),
    "backends/torch.py": "torch's own types, which its modules are cast to",
    "backends/torch_quantize.py": "the types that torchao's kernels multiply with quantized weights",
    "case.py": "REFERENCE, which the others are made from",
    "machine/environment.py": "commands on PATH",
    "machine/hardware.py": "commands on PATH",
    "tables/schema.py": "the tools of tables of before `range` and `owner`: a closed list",
    "verify/rows.py": "a trial per tool, each with its own advice",
    "verify/trials.py": "the same",
    "run_request.py": "TF32 rounds as FP16 does",
}
"""Modules that spell the name of a number format or of a profiler, and why."""

IMPORT_WITH_NUMPY_ALONE = """
import importlib, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "numpy", "msgspec", "inferprof"}:
            raise ImportError(f"{name} is neither standard library, NumPy nor msgspec")

sys.meta_path.insert(0, Refuse())
for name in sys.argv[1:]:
    importlib.import_module(f"inferprof.{name}")
from inferprof import documents, registry
registry.backends()
for kind in documents.TYPES:
    try:
        documents.decode(b"{}", kind)
    except ValueError:
        pass
print(*(module.__file__ for name, module in sys.modules.items() if name.startswith("inferprof")))
"""


def where(path: Path, node: ast.AST) -> str:
    """`file:line`, as an editor understands it."""
    return f"{path.relative_to(REPOSITORY)}:{getattr(node, 'lineno', 1)}"


def tracked() -> list[Path]:
    """The files that git knows."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [path for name in done.stdout.split("\0") if name and (path := REPOSITORY / name).is_file()]


def rules(text: str) -> Iterator[tuple[str, int]]:
    """First line and number of lines of each rule: it ends before the next line that is not indented deeper."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if not (head := re.match(r"(\s*)(?:rule|checkpoint)\b.*:$", line)):
            continue
        end = start + 1
        while end < len(lines) and (not lines[end] or lines[end].startswith(head.group(1) + " ")):
            end += 1
        yield line.strip(), len("\n".join(lines[start:end]).rstrip().splitlines())


def test_no_module_is_longer_than_a_sitting() -> None:
    lengths = {str(path.relative_to(REPOSITORY)): len(path.read_text().splitlines()) for path in MODULES}
    assert {path: lines for path, lines in lengths.items() if lines > MODULE_LINES} == {}


def test_no_function_is_longer_than_a_page() -> None:
    functions = [
        (where(path, node), node.name, node.end_lineno - node.lineno + 1)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    assert [function for function in functions if function[2] > FUNCTION_LINES] == []


def test_nan_is_tested_by_name() -> None:
    compared = [
        (where(path, node), ast.unparse(node))
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare) and ast.dump(node.left) in map(ast.dump, node.comparators)
    ]
    assert compared == []


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def depth_of(node: ast.AST) -> int:
    """How many `for`s of comprehensions are one inside of the other."""
    own = len(node.generators) if isinstance(node, COMPREHENSIONS) else 0
    return own + max(map(depth_of, ast.iter_child_nodes(node)), default=0)


def test_comprehensions_are_at_most_two_deep() -> None:
    parsed = [(path, ast.walk(ast.parse(path.read_text(encoding="utf-8")))) for path in MODULES]
    every = [(path, node) for path, nodes in parsed for node in nodes if isinstance(node, COMPREHENSIONS)]
    assert [where(path, node) for path, node in every if depth_of(node) > COMPREHENSION_FORS] == []


def test_the_counter_of_fors_counts() -> None:
    assert depth_of(ast.parse("[x for y in z for x in y if any(w for w in x)]")) == 3
    assert depth_of(ast.parse("[(sum(v for v in y), max(v for v in y)) for y in z]")) == 2


def test_no_cache_depends_on_the_order_of_calls() -> None:
    """What follows from frames or evidence is kept with them (`once.py`), not by the last few of them."""
    few = re.compile(r"lru_cache\(maxsize=\d\b")
    assert [str(path.relative_to(REPOSITORY)) for path in MODULES if few.search(path.read_text("utf-8"))] == []


def names_of(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The functions, classes and constants of a module, with what defines them."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from ((one.id, node) for one in ast.walk(target) if isinstance(one, ast.Name))


def words_of(node: ast.AST) -> Counter[str]:
    """How often names are used in it: read, as an attribute, or imported."""
    words: Counter[str] = Counter()
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            words[part.id] += 1
        elif isinstance(part, ast.Attribute):
            words[part.attr] += 1
        elif isinstance(part, ast.ImportFrom):
            words.update(alias.name for alias in part.names)
    return words


def test_nothing_at_the_level_of_a_module_is_unused() -> None:
    """By the package, its workflow or its scripts: tests alone are no use. Plug-ins are used by their registry."""
    scripts = [*(REPOSITORY / "studies").rglob("*.py"), *(REPOSITORY / "benchmarks").rglob("*.py")]
    parsed = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (*MODULES, *scripts)}
    uses = sum((words_of(tree) for tree in parsed.values()), Counter[str]())
    for path in (REPOSITORY / "Snakefile", *(REPOSITORY / "workflow/rules").glob("*.smk")):
        uses.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    kinds = ("backends", "quantizers", "precisions", "profilers", "plots", "checks", "thresholds")
    plugins = {id(plugin) for kind in kinds for plugin in getattr(registry, kind)().values()}
    plugins |= {id(section) for section in sections().values()}
    plugins |= {id(kind) for kind in registry.constants("inferprof.readers.kinds", Kind).values()}
    plugins |= {id(option) for option in registry.builder_options("tensorrt").values()}
    unused = []
    for path in MODULES:
        name_of = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for name, node in names_of(parsed[path]):
            own = words_of(node)[name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else 0
            within = words_of(parsed[path]) if name.startswith("_") else uses  # others may have a namesake
            if within[name] > own or name.startswith("__"):
                continue
            if id(getattr(importlib.import_module(name_of), name, None)) not in plugins:
                unused.append((where(path, node), name))
    assert unused == []


def test_a_plug_in_is_named_in_its_own_folder_alone() -> None:
    """What the package knows of a number format or of a profiler is a field of it, no name in a list elsewhere."""
    names = {*registry.precisions(), *registry.profilers()}
    spelled: dict[str, set[str]] = {}
    for path in MODULES:
        if path.parent.name in ("precisions", "profilers", "kinds"):  # a kind says whose captures it is of
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if strings := names & {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}:
            spelled[str(path.relative_to(PACKAGE))] = strings
    assert {path: strings for path, strings in spelled.items() if path not in SPELLS_NAMES} == {}
    assert set(SPELLS_NAMES) - set(spelled) == set()


def test_only_the_command_line_prints() -> None:
    prints = [
        where(path, node)
        for path in MODULES
        if path not in (PACKAGE / "commands.py", PACKAGE / "verbs.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert prints == []


def test_no_rule_is_longer_than_twenty_five_lines() -> None:
    files = sorted((REPOSITORY / "workflow/rules").glob("*.smk"))
    found = [(file.name, *rule) for file in files for rule in rules(file.read_text(encoding="utf-8"))]
    assert len(found) >= 5
    assert [rule for rule in found if rule[2] > RULE_LINES] == []


def test_the_rule_counter_counts() -> None:
    text = (
        "for x in y:\n\n    rule:\n        name:\n            x\n\n\n    rule b:\n        input:\n\nrule c:\n    a\nz"
    )
    assert list(rules(text)) == [("rule:", 3), ("rule b:", 2), ("rule c:", 2)]


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    pattern = re.compile(rf"/(?:root|home/\w+|Users/\w+)/|{re.escape(str(REPOSITORY))}\b")
    found = []
    for path in tracked():
        content = path.read_bytes()
        if b"\0" not in content and (match := pattern.search(content.decode("utf-8", "replace"))):
            found.append((str(path.relative_to(REPOSITORY)), match.group()))
    assert found == []


def test_the_core_needs_numpy_alone() -> None:
    command = [sys.executable, "-c", IMPORT_WITH_NUMPY_ALONE, *CORE]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(PACKAGE.parent)})
    assert (done.stderr, done.returncode) == ("", 0)


def test_the_core_is_written_for_python_3_10() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", IMPORT_WITH_NUMPY_ALONE, *CORE],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(PACKAGE.parent)},
    ).stdout.split()
    assert len(loaded) > len(CORE)
    done = subprocess.run(["vermin", "-t=3.10-", "--violations", *loaded], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_name_that_python_3_10_has_not_is_seen(tmp_path: Path) -> None:
    newer = tmp_path / "newer.py"
    newer.write_text("from typing import Self\n")
    done = subprocess.run(["vermin", "-t=3.10-", "--violations", str(newer)], capture_output=True, text=True)
    assert done.returncode == 1


def test_every_verb_has_help_and_describes_itself(capsys: pytest.CaptureFixture[str]) -> None:
    from inferprof import cli

    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])
    assert stopped.value.code == 0
    listed = capsys.readouterr().out
    verbs = re.findall(r"^    ([a-z]+) ", listed, re.MULTILINE)
    assert len(verbs) >= 10
    for verb in verbs:
        assert re.search(rf"^    {verb}\s+[A-Z]", listed, re.MULTILINE), f"{verb} has no help"
        with pytest.raises(SystemExit) as stopped:
            cli.main([verb, "--help"])
        assert stopped.value.code == 0
        assert f"inferprof {verb}" in capsys.readouterr().out


def test_unit_tests_mirror_the_package() -> None:
    tests = REPOSITORY / "tests/unit"
    folders = {path.parent.relative_to(tests) for path in tests.glob("**/test_*.py")}
    beside = {Path("models")}
    assert {str(folder) for folder in folders - beside if not (PACKAGE / folder).is_dir()} == set()


def test_every_name_that_the_workflow_imports_of_the_package_is_there() -> None:
    files = [REPOSITORY / "Snakefile", *(REPOSITORY / "workflow/rules").glob("*.smk")]
    imports = [
        (module, name.partition(" as ")[0].strip())
        for file in files
        for module, inside, plain in re.findall(
            r"^ *from (inferprof[\w.]*) import (?:\(([^)]*)\)|(.*))", file.read_text(encoding="utf-8"), re.MULTILINE
        )
        for name in (inside or plain.partition("#")[0]).split(",")
        if name.strip()
    ]
    assert len(imports) > 20
    for module, name in imports:
        assert hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}"), name
