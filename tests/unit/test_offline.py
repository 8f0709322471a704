"""Packing for a machine without network, and installing there: made-up wheels instead of the study's 150."""

from __future__ import annotations

import ast
import dataclasses
import ensurepip
import hashlib
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.unit.facts import facts, mentions, naming, states

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
PART = 2_000_000


@pytest.fixture(scope="module")
def scripts(repository: Path) -> tuple[ModuleType, ModuleType]:
    """offline/pack.py and offline/install.py, which are no part of the package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(repository / "offline"))
        return importlib.import_module("pack"), importlib.import_module("install")


@pytest.fixture
def pack(scripts: tuple[ModuleType, ModuleType]) -> ModuleType:
    return scripts[0]


@pytest.fixture
def install(scripts: tuple[ModuleType, ModuleType]) -> ModuleType:
    return scripts[1]


def wheel(folder: Path, name: str, version: str, tag: str = "py3-none-any") -> None:
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as out:
        for file, content in {**files, f"{info}/RECORD": record}.items():
            out.writestr(file, content)


def packing(
    repository: Path, folder: Path, lock: str, python: str = HERE, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """offline/pack.py on a lock, with the wheels in `folder` and Python's own of pip as the only index."""
    (folder / "lock.txt").write_text(lock)
    for pip in Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl"):
        shutil.copy(pip, folder)
    command = [sys.executable, str(repository / "offline/pack.py"), str(folder / "lock.txt"), "--python", python]
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(
        [*command, "--part", f"{PART // 10**6}M", "--out", str(folder / "offline"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def packed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts with two made-up packages; setuptools is what the machine has."""
    if subprocess.run(["git", "rev-parse"], cwd=repository, capture_output=True).returncode:
        pytest.skip("not a git checkout")
    folder = tmp_path_factory.mktemp("packed")
    wheel(folder, "inferprof_toy_a", "1.0")
    wheel(folder, "inferprof_toy_b", "2.0", "py3-none-manylinux2014_x86_64")
    done = packing(
        repository, folder, "inferprof-toy-a==1.0  # via x\ninferprof-toy-b==2.0\nnever==1 ; python_version < '3'\n"
    )
    assert done.returncode == 0, done.stderr
    return folder / "offline"


@pytest.fixture
def parts(packed: Path, tmp_path: Path) -> Path:
    """A copy of the parts, as it arrives on the machine."""
    return Path(shutil.copytree(packed, tmp_path / "arrived"))


def installing(
    parts: Path, *arguments: str | Path, python: str = sys.executable, offline: bool = False
) -> subprocess.CompletedProcess[str]:
    """`sh install.sh` with this Python as the machine's."""
    command = ["sh", str(parts / "install.sh"), *map(str, arguments)]
    without_network = ["unshare", "--net", "--map-root-user"] if offline else []
    return subprocess.run(
        [*without_network, *command],
        env={**os.environ, "PYTHON": python},
        capture_output=True,
        text=True,
        cwd=parts.parent,
    )


def refused(done: subprocess.CompletedProcess[str], said: str) -> None:
    assert (done.stdout, done.returncode) == ("", 2)
    assert re.fullmatch(rf"install\.sh: [^\n]*{said}[^\n]*\n", done.stderr), done.stderr


# --- packing ---------------------------------------------------------------------------------------------------


def test_the_parts_are_numbered_and_no_larger_than_asked_for(packed: Path) -> None:
    names = sorted(path.name for path in packed.glob("inferprof-offline.*"))
    assert names == [f"inferprof-offline.{number:02d}" for number in range(1, len(names) + 1)]
    sizes = [(packed / name).stat().st_size for name in names]
    assert len(sizes) >= 2 and set(sizes[:-1]) == {PART} and 0 < sizes[-1] <= PART


def test_the_checksums_are_what_sha256sum_reads(packed: Path) -> None:
    lines = [line.split("  ") for line in (packed / "SHA256SUMS").read_text().splitlines()]
    assert {name for _, name in lines} == {path.name for path in packed.iterdir()} - {"SHA256SUMS"}
    assert [digest for digest, _ in lines] == [
        hashlib.sha256((packed / name).read_bytes()).hexdigest() for _, name in lines
    ]


def test_the_lock_is_read_for_the_target_and_not_for_this_python(pack: ModuleType) -> None:
    lock = (
        "numpy==2.4.6 ; python_full_version < '3.12'  # via pandas\n"
        "numpy==2.5.5 ; python_full_version >= '3.12'\n# comment\n-c other.txt\n"
        "pywin32==1 ; sys_platform == 'win32'\ngreenlet==3 ; platform_machine == 'x86_64'\n"
    )
    assert list(pack.pinned(lock, "3.11")) == ["numpy==2.4.6", "greenlet==3"]
    assert list(pack.pinned(lock, "3.13")) == ["numpy==2.5.5", "greenlet==3"]


def test_a_lock_line_of_one_kind_of_machine_is_for_it_alone(pack: ModuleType) -> None:
    lock = "a==1 ; platform_machine == 'x86_64'\nb==1 ; platform_machine == 'aarch64'\nc==1\n"
    assert list(pack.pinned(lock, "3.12", "x86_64")) == ["a==1", "c==1"]
    assert list(pack.pinned(lock, "3.12", "aarch64")) == ["b==1", "c==1"]


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("x-1-cp312-cp312-manylinux_2_28_aarch64.whl", "x86_64"),
        ("x-1-cp38-abi3-manylinux2014_x86_64.whl", "aarch64"),
    ],
)
def test_a_wheel_of_the_other_kind_of_machine_is_not_packed(pack: ModuleType, name: str, machine: str) -> None:
    with pytest.raises(pack.Refused, match=naming("no", "Python", "3.12", "Linux")):
        pack.require_portable(name, "3.12", machine)


def test_parts_of_two_kinds_of_machines_lie_in_one_folder_and_install_chooses(
    repository: Path, tmp_path: Path, install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path, "inferprof_toy_c", "3.0", "py3-none-manylinux_2_28_x86_64")
    wheel(tmp_path, "inferprof_toy_c", "3.0", "py3-none-manylinux_2_34_aarch64")
    done = packing(repository, tmp_path, "inferprof-toy-c==3.0\n", HERE, "--arch", "x86_64", "aarch64")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "offline/install.sh").read_text()
    contents = json.loads(ast.literal_eval(re.findall(r"json\.loads\(('.*')\)", text)[-1]))
    assert [(each["machine"], each["glibc"]) for each in contents] == [("x86_64", "2.28"), ("aarch64", "2.35")]
    for machine, each in zip(("x86_64", "aarch64"), contents, strict=True):
        monkeypatch.setattr(os, "uname", lambda machine=machine: SimpleNamespace(machine=machine))
        chosen = install.chosen(contents)
        assert chosen.machine == machine and [part.name for part in chosen.parts] == [
            part["name"] for part in each["parts"]
        ]
        joined = b"".join((tmp_path / "offline" / part.name).read_bytes() for part in chosen.parts)
        with tarfile.open(fileobj=io.BytesIO(joined)) as archive:
            names = [name for name in archive.getnames() if name.startswith("wheels/inferprof_toy_c")]
        assert len(names) == 1 and names[0].endswith(f"{machine}.whl")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    with pytest.raises(install.Refused, match=naming("Linux", "x86_64", "riscv64")):
        install.check_machine(install.chosen(contents))


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("x-1-py3-none-any.whl", True),
        ("x-1-cp312-cp312-manylinux_2_28_x86_64.whl", True),
        ("x-1-cp38-abi3-manylinux2014_x86_64.whl", True),
        ("x-1-cp312-cp312-linux_x86_64.whl", False),
        ("x-1-cp311-cp311-manylinux_2_28_x86_64.whl", False),
    ],
)
def test_a_wheel_that_was_compiled_here_is_not_packed(pack: ModuleType, name: str, runs: bool) -> None:
    if runs:
        pack.require_portable(name, "3.12")
    else:
        with pytest.raises(pack.Refused, match=naming("no", "Python", "3.12", "Linux")):
            pack.require_portable(name, "3.12")


def test_a_package_that_is_not_to_be_had_is_named_in_one_line(repository: Path, tmp_path: Path) -> None:
    done = packing(repository, tmp_path, "inferprof-toy-nowhere==1.0\n")
    assert done.returncode == 2
    assert mentions(done.stderr, "pip download: ERROR", "inferprof-toy-nowhere==1.0") and done.stderr.count("\n") == 1
    assert not (tmp_path / "offline").exists()


def test_torch_is_packed_where_it_is_asked_for(repository: Path, tmp_path: Path) -> None:
    wheel(tmp_path, "inferprof_toy_torch", "9.0")
    done = packing(repository, tmp_path, "", HERE, "--torch", "inferprof-toy-torch==9.0")
    assert done.returncode == 0, done.stderr
    joined = b"".join(path.read_bytes() for path in sorted((tmp_path / "offline").glob("inferprof-offline.*")))
    with tarfile.open(fileobj=io.BytesIO(joined)) as archive:
        wheels = [name for name in archive.getnames() if name.startswith("wheels/")]
    assert wheels[0] == "wheels/inferprof_toy_torch-9.0-py3-none-any.whl" and wheels[1].startswith("wheels/pip-")
    assert '"torch": "inferprof-toy-torch==9.0"' in (tmp_path / "offline/install.sh").read_text()


@pytest.mark.parametrize("python", ["3.10", "python3", "2.7", "3"])
def test_another_python_than_the_project_runs_on_is_refused(repository: Path, tmp_path: Path, python: str) -> None:
    done = packing(repository, tmp_path, "", python)
    assert done.returncode == 2
    assert states(done.stderr, *facts(f"{python!r}"), "no", "version", "Python", "3.11", "3.12")


# --- arriving --------------------------------------------------------------------------------------------------


def test_lost_parts_are_named(parts: Path, tmp_path: Path) -> None:
    count = len(list(parts.glob("inferprof-offline.*")))
    for number in ("01", "02"):
        (parts / f"inferprof-offline.{number}").unlink()
    refused(
        installing(parts, tmp_path / "new"),
        rf"inferprof-offline\.01, inferprof-offline\.02 of {count} parts not found in \S+: copy again",
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("damage", ["shorter", "flipped"])
def test_a_damaged_part_is_named(parts: Path, tmp_path: Path, damage: str) -> None:
    part = parts / "inferprof-offline.02"
    content = bytearray(part.read_bytes())
    if damage == "shorter":
        content = content[:-1]
    else:
        content[1000] ^= 1
    part.write_bytes(content)
    refused(installing(parts, tmp_path / "new"), r"inferprof-offline\.02 of \d+ parts damaged on the way: copy again")
    assert not (tmp_path / "new").exists()


def test_the_wrong_python_is_told_which_one_is_needed(parts: Path) -> None:
    script = parts / "install.sh"
    script.write_text(script.read_text().replace(f'[ "$found" = "{HERE}" ]', '[ "$found" = "3.99" ]'))
    refused(installing(parts), rf"the wheels are for Python {re.escape(HERE)}, and \S+ is {re.escape(HERE)}: PYTHON=")


def test_a_python_that_is_not_there_is_said_to_be_missing(parts: Path) -> None:
    refused(installing(parts, python="/nowhere/python3"), "and /nowhere/python3 is missing: PYTHON=")


def test_a_folder_with_something_in_it_is_left_alone(parts: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/mine").write_text("x")
    refused(installing(parts, tmp_path / "new"), "is there already and not empty: name another folder")
    assert (tmp_path / "new/mine").exists()


def manifest(install: ModuleType, **changes: Any) -> Any:
    return dataclasses.replace(install.Manifest(HERE, "2.5", "there", "c0ffee", ()), **changes)


def test_an_older_glibc_is_refused(install: ModuleType) -> None:
    with pytest.raises(install.Refused, match=naming("wheels", "2.999", "2")):
        install.check_machine(manifest(install, glibc="2.999"))


def test_a_machine_without_torch_is_told_what_to_do(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "version", lambda name: None)
    with pytest.raises(install.Refused, match=naming("no", "torch", "install", "name", "Python", "pack", "torch")):
        install.check_machine(manifest(install))
    install.check_machine(manifest(install, torch="torch==2.13.0"))


def test_a_full_disk_is_refused(install: ModuleType, tmp_path: Path) -> None:
    huge = manifest(install, parts=(install.Part("x", 10**15, ""),))
    with pytest.raises(install.Refused, match=naming("GB", "4000000.0 GB")):
        install.check_room(huge, tmp_path / "new")


def test_the_parts_are_read_as_one_file(install: ModuleType, tmp_path: Path) -> None:
    for name, content in (("1", b"abc"), ("2", b""), ("3", b"defg")):
        (tmp_path / name).write_bytes(content)
    joined = install.Joined([tmp_path / name for name in "123"])
    assert (joined.read(2), joined.read(5), joined.read(), joined.read()) == (b"ab", b"c", b"defg", b"")


def test_torch_keeps_what_it_was_built_against_and_what_it_needs_otherwise(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As torch 2.11.0+cu130 asks for it."""
    there = {
        **{"torch": "2.11.0+cu130", "setuptools": "81.0.0", "sympy": "1.13.3", "numpy": "2.5.2"},
        **{"cuda-bindings": "13.0.3", "cuda-pathfinder": "1.2.2", "cuda-toolkit": "13.0.2", "nvidia-nvtx": "13.0.85"},
    }
    asks = {
        "torch": [
            *("setuptools<82", "sympy>=1.13.3", "cuda-bindings<14,>=13.0.3; platform_system == 'Linux'"),
            *("cuda-toolkit[nvtx]==13.0.2", "optree; extra == 'optree'"),
        ],
        "cuda-bindings": ["cuda-pathfinder~=1.1"],
        "cuda-toolkit": ["nvidia-nvtx==13.0.85; extra == 'nvtx'", "nvidia-cufft==12; extra == 'cufft'"],
    }
    locked = {
        **{"setuptools": "84.2.1", "sympy": "1.14.0", "numpy": "2.5.5", "rich": "15.0.0", "nvidia-ml-py": "13.6"},
        **{"cuda-bindings": "13.5.0", "cuda-pathfinder": "1.9.1", "nvidia-nvtx": "13.1", "nvidia-cufft": "13"},
    }
    monkeypatch.setattr(install, "version", lambda name: there.get(install.canonical(name)))
    monkeypatch.setattr("importlib.metadata.requires", lambda name: asks.get(install.canonical(name)))
    assert install.kept_packages(locked, tmp_path) == {
        **{"torch": "2.11.0+cu130", "setuptools": "81.0.0", "cuda-bindings": "13.0.3"},
        **{"cuda-pathfinder": "1.2.2", "nvidia-nvtx": "13.0.85"},
    }


def test_what_fails_half_way_is_removed_again(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(manifest: Any, parts: Path, folder: Path) -> None:
        (folder / "half").mkdir(parents=True)
        raise install.Refused("`pip install` exited with 1: no")

    monkeypatch.setattr(install, "install", fails)
    new = tmp_path / "new"
    assert install.main(manifest(install), [str(tmp_path), str(new)]) == 1
    assert facts(capsys.readouterr().err, "install", "pip") == [
        "install.sh",
        "pip install",
        "1",
        "no",
        *facts(f"{new}"),
    ]
    assert not new.exists()


@pytest.mark.slow
def test_one_command_installs_beside_torch_without_network_and_probes(parts: Path, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--net", "--map-root-user", "true"], capture_output=True).returncode:
        pytest.skip("no right to take the network away: unshare --net")
    import importlib.metadata

    torch = importlib.metadata.version("torch")
    new = tmp_path / "new"
    done = installing(parts, new, offline=True)
    assert (done.stderr, done.returncode) == ("", 0)
    assert states(done.stdout, "torch", *facts(f"{torch}"), "ONNX", "Runtime")
    seen = subprocess.run(
        [
            new / ".venv/bin/python",
            "-c",
            "import importlib.metadata, inferprof_toy_a, inferprof_toy_b, inferprof, torch; "
            "print(inferprof_toy_a.VERSION, inferprof_toy_b.VERSION, importlib.metadata.version('torch'), "
            "inferprof.__file__)",
        ],
        capture_output=True,
        text=True,
    )
    assert seen.stdout.split() == ["1.0", "2.0", torch, str(new / "workflow/inferprof/__init__.py")], seen.stderr
    assert json.loads((new / "environment.json").read_text())["machine"]
    assert not (new / "wheels").exists()
    wanted = subprocess.run(["make", "--dry-run", "verify"], cwd=new, capture_output=True, text=True).stdout
    assert "pip" not in wanted
