"""What can be known of the image without a build; `make test-image` builds it on a stand-in."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pathspec
import pytest
from tests.unit.facts import facts, states

CONSTRAINT = """# comment
numpy==2.1.0
torch==2.10.0a0+b558c986e8.nv25.11
scipy>=1.10,<1.16
PyYAML
"""
LOCK = """# This file is resolved
numpy==2.4.6 ; python_full_version >= '3.8'  # via pandas
numpy==1.0.0 ; python_full_version < '3.8'   # via pandas
scipy==1.17.1             # via -r study.in
pyyaml==6.0.4             # via snakemake
rich==15.0.0              # via -r study.in
onnxruntime-gpu==1.31.1   # via -r study.in
nvidia-modelopt==0.47.0   # via -r study.in
"""


@pytest.fixture(scope="module")
def dockerfile(repository: Path) -> str:
    """The Dockerfile with its continued lines joined."""
    return (repository / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


@pytest.fixture(scope="module")
def script(repository: Path) -> ModuleType:
    """docker/image_requirements.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("image_requirements", repository / "docker/image_requirements.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copied(dockerfile: str) -> list[str]:
    """The sources of all COPY lines."""
    lines = re.findall(r"^COPY (.+)$", dockerfile, re.MULTILINE)
    return [source for line in lines for source in shlex.split(line)[:-1] if not source.startswith("--")]


def reaches_the_builder(repository: Path, path: Path) -> bool:
    """Whether .dockerignore lets a file through: the last pattern that matches decides."""
    spec = pathspec.PathSpec.from_lines("gitignore", (repository / ".dockerignore").read_text().splitlines())
    return not spec.match_file(path.relative_to(repository).as_posix())


def test_every_copied_path_exists_and_reaches_the_builder(repository: Path, dockerfile: str) -> None:
    for source in copied(dockerfile):
        path = repository / source
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        assert any(reaches_the_builder(repository, file) for file in files), source


def test_the_image_holds_every_file_that_the_workflow_reads(repository: Path, dockerfile: str) -> None:
    snakefile = (repository / "Snakefile").read_text(encoding="utf-8")
    read = re.findall(r'^(?:include|configfile|report): "(.+)"$', snakefile, re.MULTILINE)
    assert len(read) >= 3
    missing = [path for path in read if not any(Path(path).is_relative_to(source) for source in copied(dockerfile))]
    assert missing == []


@pytest.mark.parametrize(
    "name", ["models/vit.onnx", "models/deep/vit.onnx", "models/vit.onnx.data", "results/a.json"]
)
def test_weights_and_results_stay_out_of_the_image(repository: Path, name: str) -> None:
    assert not reaches_the_builder(repository, repository / name)


def test_the_default_tag_is_a_row_of_the_version_matrix(repository: Path, dockerfile: str) -> None:
    tag = re.search(r"^ARG NGC_TAG=(\S+)$", dockerfile, re.MULTILINE)
    assert tag is not None
    assert "\nARG BASE=nvcr.io/nvidia/pytorch:${NGC_TAG}\nFROM ${BASE}\n" in dockerfile
    assert states((repository / "docs/versions.md").read_text(encoding="utf-8"), *facts(f"{tag.group(1)}"), "default")


def test_the_package_is_installed_plainly(dockerfile: str) -> None:
    assert "--no-deps ." in dockerfile
    assert "--editable" not in dockerfile and " -e " not in dockerfile


def test_caches_are_written_only_after_the_build(dockerfile: str) -> None:
    """A cache folder that root made during the build would be closed to the calling user."""
    assert dockerfile.index("ENV HOME=/cache") > dockerfile.index("mkdir --mode=1777 /cache")
    assert re.findall(r"\nRUN (\w+)", dockerfile[dockerfile.index("ENV HOME=/cache") :]) == ["echo"]
    assert "mkdir --mode=1777 /cache" in dockerfile


def test_hadolint_has_nothing_to_say(repository: Path) -> None:
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, "--no-color", repository / "Dockerfile"], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


def test_what_the_image_holds_or_constrains_wins_over_the_lock(script: ModuleType) -> None:
    held = {"numpy": "2.1.0", "nvidia-modelopt": "0.37.0", "torch": "2.10.0a0", "pyyaml": "6.0.4"}
    install, kept = script.select(LOCK, CONSTRAINT, held)
    assert install == ["scipy<1.16,>=1.10", "rich==15.0.0", "onnxruntime-gpu==1.31.1"]
    assert kept == ["numpy 2.1.0, not 2.4.6", "nvidia-modelopt 0.37.0, not 0.47.0"]


def test_onnx_runtime_is_ours_unless_the_image_constrains_it(script: ModuleType) -> None:
    lock, held = "onnxruntime-gpu==1.31.1\n", {"onnxruntime-gpu": "1.22.0"}
    assert script.select(lock, "", held) == (["onnxruntime-gpu==1.31.1"], [])
    constrained = script.select(lock, "onnxruntime_gpu==1.22.0\n", held)
    assert constrained == ([], ["onnxruntime-gpu 1.22.0, not 1.31.1"])


def test_an_empty_image_gets_the_whole_lock(repository: Path, script: ModuleType) -> None:
    lock = (repository / "requirements/study.txt").read_text(encoding="utf-8")
    install, kept = script.select(lock, "", {})
    names = {line.split("==")[0] for line in install}
    assert {"snakemake", "onnxruntime-gpu", "numpy", "polygraphy"} <= names
    assert (len(install), kept) == (len(names), [])


def test_the_script_passes_over_an_image_without_a_constraint_file(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("no-such-package==1.2.3\npytest==0.0.1\n")
    script = str(repository / "docker/image_requirements.py")
    command = [sys.executable, script, str(tmp_path / "lock.txt"), "--constraint", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "no-such-package==1.2.3\n"
    assert facts(done.stderr) == [*facts(f"{pytest.__version__}"), "not", "0.0.1"]


NEEDS = "numpy>=2\npandas>=3\nsnakemake>=9.27,<10\nonnxruntime-gpu==1.31.1\nrich\n"


@pytest.mark.parametrize(
    ("constraint", "held", "named"),
    [
        ("numpy==1.26.4\n", {"numpy": "1.26.4"}, ["numpy 1.26.4", "numpy>=2"]),
        ("", {"numpy": "1.26.4"}, ["numpy 1.26.4", "numpy>=2"]),
        ("pandas==2.2.3\n", {}, ["pandas==2.2.3", "pandas>=3"]),
        ("pandas<3\n", {}, ["pandas<3", "pandas>=3"]),
        ("pandas==2.2.3\n", {"pandas": "2.2.3"}, ["pandas 2.2.3", "pandas>=3"]),
        ("snakemake>=7,<9\n", {}, ["snakemake<9,>=7", "snakemake<10,>=9.27"]),
    ],
)
def test_an_image_outside_of_a_range_that_the_study_needs_is_refused(
    script: ModuleType, constraint: str, held: dict[str, str], named: list[str]
) -> None:
    (reason,) = script.contradictions(NEEDS, constraint, held)
    assert [text in reason for text in named] == [True, True]


@pytest.mark.parametrize(
    ("constraint", "held"),
    [
        ("numpy==2.1.0\nonnxruntime-gpu==1.22.0\n", {"numpy": "2.1.0", "onnxruntime-gpu": "1.22.0"}),
        ("pandas>2\nsnakemake<9.30\nrich==1\n", {}),
        ("", {"pandas": "2.2.3"}),
    ],
)
def test_an_image_inside_of_the_ranges_and_beside_our_pins_is_taken(
    script: ModuleType, constraint: str, held: dict[str, str]
) -> None:
    assert script.contradictions(NEEDS, constraint, held) == []


def test_the_lock_lies_in_the_ranges(repository: Path, script: ModuleType) -> None:
    needs = (repository / "requirements/study.in").read_text(encoding="utf-8")
    lock = (repository / "requirements/study.txt").read_text(encoding="utf-8")
    locked = {
        script.canonicalize_name(line.name): str(line.specifier).removeprefix("==")
        for line in script.requirements(lock)
    }
    ranges = [line for line in script.requirements(needs) if line.specifier and "==" not in str(line.specifier)]
    assert [line.name for line in ranges if line.specifier.contains(locked[line.name])] == [
        line.name for line in ranges
    ]
    assert len(ranges) >= 3


def test_an_older_python_is_refused_in_one_line(repository: Path) -> None:
    script = repository / "docker/image_requirements.py"
    older = f"import runpy, sys; sys.version_info = (3, 10, 12); runpy.run_path({str(script)!r})"
    done = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert all(part in done.stderr for part in ("image refused", "3.10,", "3.11"))


def test_an_image_without_packaging_is_refused_in_one_line(repository: Path, tmp_path: Path) -> None:
    script, lock = repository / "docker/image_requirements.py", repository / "requirements/study.txt"
    done = subprocess.run([sys.executable, "-S", script, lock], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "image refused" in done.stderr and "packaging" in done.stderr


def test_the_bill_is_a_cyclonedx_document_with_each_package_once(repository: Path) -> None:
    done = subprocess.run([sys.executable, repository / "docker/bill.py"], capture_output=True, text=True, check=True)
    bill = json.loads(done.stdout)
    names = [part["purl"] for part in bill["components"] if part["purl"].startswith("pkg:pypi/")]
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert len(names) == len(set(names)) and f"pkg:pypi/pytest@{pytest.__version__}" in names
