"""The Dockerfile built on a stand-in for NVIDIA's image, and the study in it: `make test-image`.

What no stand-in can prove: CUDA, TensorRT, the Nsight tools, and what NVIDIA's image really holds.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from tests.image.conftest import REVISION, USER, VERSION
from tests.image.engine import PIP, Engine

SMALL = [
    *("--config", "models=[minilm]", "precisions=[fp32]", "backends=[ort_cpu]", "shapes=[b1]", "profilers=[]"),
    *("target=[]", "variants=[{name: default}]"),
]
"""A study of one case."""
LAST = "benchmark/vit_tiny/fp32/torch_eager/default/b8/r0.json"
"""The record that the run which is told to end has not yet measured again."""
SYS_ADMIN = 21


def test_the_labels_say_what_it_was_built_from(engine: Engine, base: str, image: str) -> None:
    labels = engine.inspect(image)["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == VERSION
    assert labels["org.opencontainers.image.revision"] == REVISION
    assert labels["org.opencontainers.image.base.name"] == base


def test_what_the_base_pins_stays_and_is_named(engine: Engine, image: str) -> None:
    log = (engine.folder / "build.log").read_text()
    assert "kept from the image: numpy 2.1.0, not " in log
    done = engine.run([], image, "python3", "-c", "import numpy, torch, onnxruntime; print(numpy.__version__)")
    assert done.returncode == 0 and done.stdout.split()[-1] == "2.1.0", done.stdout


def test_the_bill_lists_the_packages_of_the_system_and_of_python(engine: Engine, image: str) -> None:
    done = engine.run(["--entrypoint=cat"], image, "/usr/share/inferprof/bill.json")
    bill = json.loads(done.stdout)
    packages = {part["purl"].split("@")[0]: part["version"] for part in bill["components"]}
    assert bill["bomFormat"] == "CycloneDX"
    assert packages["pkg:pypi/onnxruntime-gpu"] == "1.31.1" and packages["pkg:pypi/numpy"] == "2.1.0"
    assert packages["pkg:pypi/inferprof"] == VERSION and "pkg:deb/debian/git" in packages
    engine.note(f"bill: {len(packages)} packages")


def test_no_cache_and_nothing_of_the_building_machine_is_in_it(engine: Engine, image: str) -> None:
    paths = [PIP, "/etc/pip.conf", "/root", "/tmp", "/var/cache/apt/archives"]
    done = engine.run(["--entrypoint=find"], image, *paths, "-type", "f", "-size", "+0", "-not", "-name", ".*rc")
    left = [line for line in done.stdout.splitlines() if line.startswith("/") and not line.endswith("/.profile")]
    assert left == []
    facts = json.dumps(engine.inspect(image))
    assert not re.search(r"certificates\.pem|pip\.conf|PIP_(CERT|INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS)", facts)


def test_the_default_study_runs_and_its_files_are_the_users(studied: Path) -> None:
    assert (studied / "REPORT.txt").stat().st_size > 1000
    records = [json.loads(path.read_text()) for path in studied.glob("cpu-*/benchmark/**/r0.json")]
    assert len(records) >= 12
    assert {record.get("reason") for record in records if record["status"] != "ok"} == set()
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in studied.rglob("*")}
    assert owners == {(USER, USER)}


def test_a_second_start_has_nothing_to_do(engine: Engine, image: str, mounts: list[str], studied: Path) -> None:
    before = (studied / "REPORT.txt").stat().st_mtime_ns
    with engine.step("second start, caches filled"):
        done = engine.run(mounts, image)
    assert done.returncode == 0 and "Nothing to be done" in done.stdout, done.stdout[-2000:]
    assert (studied / "REPORT.txt").stat().st_mtime_ns == before


def test_without_the_mount_it_runs_its_own_copy(engine: Engine, image: str) -> None:
    report = "snakemake --cores 1 results/REPORT.txt " + " ".join(f"'{word}'" for word in SMALL)
    read = "import json, glob; r = json.load(open(glob.glob('results/*/benchmark/**/r0.json', recursive=True)[0]))"
    words = ["sh", "-c", f"{report} && python3 -c \"{read}; print(r['status'], r['environment']['git'])\""]
    with engine.step("one case without the mount"):
        done = engine.run(["--init", f"--user={USER}:{USER}"], image, *words)
    assert done.returncode == 0, done.stdout[-3000:]
    assert done.stdout.split()[-2:] == ["ok", REVISION]


@pytest.mark.parametrize("init", [True, False], ids=["behind an init", "as process 1"])
def test_told_to_end_it_ends_within_10_s_and_loses_no_measured_file(
    engine: Engine, image: str, mounts: list[str], studied: Path, init: bool
) -> None:
    (record,) = studied.glob(f"cpu-*/{LAST}")
    before = {path: path.read_bytes() for path in studied.glob("cpu-*/benchmark/**/r0.json") if path != record}
    record.unlink()
    options = ["--name=told", *(mounts if init else mounts[1:])]
    command = engine.command(options, image, ["snakemake", "--cores", "1", str(record.relative_to(studied.parent))])
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as container:
        assert container.stdout is not None
        said = ""
        while "rule benchmark" not in said and "Measure " not in said:
            said += container.stdout.readline()
        time.sleep(5)
        began = time.monotonic()
        engine.signal("told", "TERM")
        rest, _ = container.communicate(timeout=30)
        seconds = time.monotonic() - began
    engine.note(f"SIGTERM {'behind an init' if init else 'to process 1'}: ended after {seconds:.1f} s")
    assert seconds < 10, rest[-2000:]
    assert container.returncode == 143, rest[-2000:]
    assert {path: path.read_bytes() for path in before} == before
    assert not record.exists()
    again = engine.run(mounts, image)
    assert again.returncode == 0 and record.exists(), again.stdout[-2000:]
    assert {path: path.read_bytes() for path in before} == before


def test_verify_passes_or_says_what_is_not_here(engine: Engine, image: str, mounts: list[str], studied: Path) -> None:
    with engine.step("inferprof verify"):
        done = engine.run(mounts, image, "inferprof", "verify")
    assert done.returncode == 0, done.stdout[-4000:]
    rows = json.loads((studied / "verify/verify.json").read_text())["rows"]
    outcomes = [row["outcome"] for row in rows]
    assert "fail" not in outcomes and {"probe", "ort_cpu"} <= {r["name"] for r in rows if r["outcome"] == "pass"}
    assert (studied / "verify/verify.bundle.zip").exists()
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in ("pass", "fail", "not here"))
    engine.note(f"verify: {counts}")


def test_as_root_sys_admin_is_all_that_is_added(engine: Engine, image: str, mounts: list[str], studied: Path) -> None:
    options = [word for word in mounts if not word.startswith("--user")]
    words = ["sh", "-c", "inferprof probe --out /cache/probe.json && grep CapEff /proc/self/status && id -u"]
    plain = engine.run([*options, "--user=0:0"], image, *words)
    admin = engine.run([*options, "--user=0:0", "--cap-add=SYS_ADMIN"], image, *words)
    assert plain.returncode == admin.returncode == 0, plain.stdout + admin.stdout
    rights = [int(re.findall(r"CapEff:\s*(\w+)", done.stdout)[0], 16) for done in (plain, admin)]
    assert rights[1] ^ rights[0] == 1 << SYS_ADMIN
    done = engine.run([*options, "--user=0:0", "--cap-add=SYS_ADMIN"], image)
    # A case that the test of SIGTERM measured once more leaves the report to be written anew.
    whole = re.search(r"Nothing to be done|\(100%\) done", done.stdout)
    assert done.returncode == 0 and whole, done.stdout[-2000:]


def test_a_base_that_contradicts_the_study_is_refused_in_one_line_and_named_by_its_digest(
    engine: Engine, base: str, clone: Path, tmp_path: Path
) -> None:
    (tmp_path / "Containerfile").write_text(f"FROM {base}\nRUN echo pandas==2.2.3 >> /etc/pip/constraint.txt\n")
    assert engine.build("nvcr.io/nvidia/pytorch:contradicts", tmp_path).returncode == 0
    digest = engine.inspect("nvcr.io/nvidia/pytorch:contradicts")["Digest"]
    done = engine.build("refused", clone, f"--build-arg=BASE=nvcr.io/nvidia/pytorch@{digest}")
    lines = [line for line in done.stdout.splitlines() if "image refused" in line]
    assert done.returncode != 0 and len(lines) == 1
    assert "pandas==2.2.3" in lines[0] and "pandas>=3" in lines[0]
    assert "Traceback" not in done.stdout and os.linesep not in lines[0]
