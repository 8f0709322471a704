"""Bundles: what is in them, what is not, and what is refused. The results are made up: see the folder fixture."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import gzip
import hashlib
import importlib.metadata
import io
import json
import lzma
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tests.unit.facts import facts, mentions, naming

from inferprof import bundles, cli, compare_sides, files, report
from inferprof.bundles import archive
from inferprof.case import Case
from inferprof.errors import UserError

MACHINE = "gpu-9000-sm90-abc"
CASE = Case("vit", "fp16", "ort_cuda", "default", "b8")
REFUSED = Case("vit", "fp8", "ort_cuda", "default", "b8")
TOKEN = "plantedtokenplantedtoken"
HOST = "box17.example.org"
OUTSIDE = "/scratch/alice/models/vit.onnx"

CORPUS = yaml.safe_load((Path(__file__).parents[1] / "data/secrets.yaml").read_text(encoding="utf-8"))
PLANTED = [(entry["text"].format("".join(entry["secret"])), entry["secret"]) for entry in CORPUS["planted"]]

Change = Callable[[dict[str, bytes], dict[str, Any]], None]


def put(path: Path, content: bytes | str | dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1) if isinstance(content, dict) else content
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    """What every file of the folder is full of: a variable's value, the host and a path."""
    monkeypatch.setenv("MY_VARIABLE", TOKEN)
    monkeypatch.setattr("socket.gethostname", lambda: HOST)
    return f"{TOKEN} on {HOST} in {OUTSIDE}"


@pytest.fixture
def results(tmp_path: Path, secret: str, repository: Path) -> Path:
    """A results folder with a file of each kind, secrets in each of them, and what must not be handed on."""
    folder = tmp_path / "results"
    rows = [
        [MACHINE, *dataclasses.astuple(CASE), "run", ""],
        [MACHINE, *dataclasses.astuple(REFUSED), "refused", secret],
    ]
    text = io.StringIO()
    csv.writer(text).writerows([["machine", *(f.name for f in dataclasses.fields(Case)), "outcome", "reason"], *rows])
    record = {
        "schema": 1,
        "case": dataclasses.asdict(CASE),
        "machine": MACHINE,
        "round": 0,
        "status": "failed",
        "boundaries": {},
        "protocol": {},
        "environment": {"git": "c0ffee"},
        "started": "2026-01-02T00:00:00+00:00",
        "reason": secret,
        f"key {TOKEN}": 1.5,
    }
    trace = {"traceEvents": [{"name": secret}], "hostname": "elsewhere"}
    table = pd.DataFrame({"name": ["gemm", secret], "value": [1.0, 2.0]})
    packed = repository / "tests/data/nsys/h100_tensorrt_vit2.sqlite.xz"
    files: dict[str, Any] = {
        "reports/study/cases.csv": text.getvalue(),
        "reports/study/config.json": {"baseline": "fp32/ort_cpu/default", "exclude": [{"reason": secret}]},
        "reports/study/REPORT.txt": "derived",
        f"{MACHINE}/environment.json": {
            "gpus": [],
            "cpu": {"model": "CPU"},
            "packages": {"torch": "2.11", "x": "[redacted] on [redacted] in [redacted]"},
            "x": secret,
        },
        f"{MACHINE}/benchmark/{CASE}/r0.json": record,
        f"{MACHINE}/engine/{CASE}.engine": "weights",
        f"{MACHINE}/engine/{CASE}.build.json": {"status": "ok", "log": secret},
        f"{MACHINE}/capture/nsys/{CASE}.sqlite": lzma.decompress(packed.read_bytes()),
        f"{MACHINE}/capture/nsys/{CASE}.nsys-rep": secret,
        f"{MACHINE}/capture/nsys/{CASE}_cuda_api_sum.csv": f"name\n{secret}\n",
        f"{MACHINE}/capture/kineto/{CASE}.json.gz": gzip.compress(json.dumps(trace).encode()),
        f"{MACHINE}/capture/kineto/{CASE}.record.json": record,
        f"{MACHINE}/capture/ncu/{CASE}.ncu-rep": secret,
        f"{MACHINE}/capture/ncu/{CASE}.settings.json": {"clock_control": "none"},
        f"{MACHINE}/benchmark/vit/fp16/ort_cuda/default/b64/r0.json": record,
        f"{MACHINE}/diagnosis/{CASE}.json": {"verdict": secret},
        f"{MACHINE}/best/vit.json": {"stopped": secret},
        f"{MACHINE}/best/vit.py": f"# {secret}\n",
        f"{MACHINE}/best/vit/step0.json": {"stopped": "waits"},
        f"{MACHINE}/best/bert.json": {"stopped": "another model's"},
        f"{MACHINE}/benchmark/vit/fp16/ort_cuda/cuda_graph=true/b8/r7001.json": {
            **record,
            "case": dataclasses.asdict(CASE) | {"variant": "cuda_graph=true"},
            "round": 7001,
        },
        f"{MACHINE}/benchmark/vit/fp16/ort_cuda/cuda_graph=true/b8/r0.json": record,
        f"{MACHINE}/trtexec/{CASE}.json": {"trtexec": secret},
        "onnx/vit/fp16.onnx": "weights",
        "onnx/vit/fp16.convert.json": {"origin": secret},
        "onnx/vit/fp8.audit.json": {"x": 1},
        "onnx/bert/fp16.convert.json": {"x": 1},
        f"log/{MACHINE}/benchmark/{CASE}/r0.log": f"loading {secret}\nHF_TOKEN=notours123 set\n",
        f"log/{MACHINE}/engine/{CASE}.log": "built\n",
    }
    for name, content in files.items():
        put(folder / name, content)
    (folder / MACHINE / "table/nsys" / CASE.path.parent).mkdir(parents=True)
    table.to_parquet(folder / MACHINE / "table/nsys" / f"{CASE}.parquet")
    return folder


TAKEN = {
    "reports/study/cases.csv",
    "reports/study/config.json",
    f"{MACHINE}/environment.json",
    f"{MACHINE}/benchmark/{CASE}/r0.json",
    f"{MACHINE}/diagnosis/{CASE}.json",
    f"{MACHINE}/best/vit.json",
    f"{MACHINE}/best/vit.py",
    f"{MACHINE}/benchmark/vit/fp16/ort_cuda/cuda_graph=true/b8/r7001.json",
    f"{MACHINE}/trtexec/{CASE}.json",
    f"{MACHINE}/engine/{CASE}.build.json",
    f"{MACHINE}/capture/nsys/{CASE}.sqlite",
    f"{MACHINE}/capture/nsys/{CASE}_cuda_api_sum.csv",
    f"{MACHINE}/capture/kineto/{CASE}.json.gz",
    f"{MACHINE}/capture/kineto/{CASE}.record.json",
    f"{MACHINE}/capture/ncu/{CASE}.settings.json",
    f"{MACHINE}/table/nsys/{CASE}.parquet",
    "onnx/vit/fp16.convert.json",
    "onnx/vit/fp8.audit.json",
    f"log/{MACHINE}/benchmark/{CASE}/r0.log",
    f"log/{MACHINE}/engine/{CASE}.log",
}


def test_a_bundle_says_whose_files_are_not_in_it(results: Path, tmp_path: Path) -> None:
    written = bundles.write(results, "study", MACHINE, out=tmp_path / "x.zip")
    assert mentions(written.render(), "not", CASE.model, "models/")


@pytest.fixture
def bundle(results: Path, tmp_path: Path) -> Path:
    out = tmp_path / "study.zip"
    bundles.write(results, "study", MACHINE, out=out)
    return out


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file's bytes, and those that it holds packed."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        yield path.name, content
        if path.suffix == ".gz":
            yield path.name, gzip.decompress(content)
        if path.suffix == ".parquet":
            yield path.name, pd.read_parquet(path).to_csv().encode()


def test_a_bundle_holds_what_was_measured_and_no_weights_engines_reports_or_tools_reports(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as found:
        assert set(found.namelist()) == {archive.MANIFEST, *TAKEN}


def test_the_manifest_says_what_it_is_of(bundle: Path) -> None:
    manifest = msgspec.to_builtins(bundles.read_manifest(bundle))
    assert set(manifest.pop("files")) == TAKEN
    assert manifest.pop("inferprof")
    assert manifest == {
        "schema": 1,
        "study": "study",
        "machine": MACHINE,
        "baseline": "fp32/ort_cpu/default",
        "git": ["c0ffee"],
        "packages": {"torch": "2.11", "x": "[redacted] on [redacted] in [redacted]"},
        "last_measured": "2026-01-02T00:00:00+00:00",
        "left_out": [],
    }


def test_an_unpacked_bundle_is_diagnosed_and_reported_where_asked(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "write_bundle", lambda bundle, out, cores: bundles.unbundle(bundle, out))
    out = tmp_path / "out"
    assert cli.main(["unbundle", str(bundle), "--out", str(out), "--report"]) == 0
    expected = f"its report, of its cases diagnosed anew:\n{out}/reports/study/REPORT.txt\n"
    assert capsys.readouterr().out.endswith(expected)


def test_no_byte_of_an_unpacked_bundle_tells_a_variable_a_host_or_a_path(bundle: Path, tmp_path: Path) -> None:
    bundles.unbundle(bundle, tmp_path / "out")
    found = [
        (name, word)
        for name, content in contents(tmp_path / "out")
        for word in (TOKEN, HOST, "alice", "notours123", "elsewhere", str(tmp_path))
        if word.encode() in content
    ]
    assert found == []


def test_what_holds_no_secret_keeps_its_bytes(bundle: Path, results: Path, tmp_path: Path) -> None:
    bundles.unbundle(bundle, tmp_path / "out")
    for name in (f"{MACHINE}/capture/ncu/{CASE}.settings.json", f"log/{MACHINE}/engine/{CASE}.log"):
        assert (tmp_path / "out" / name).read_bytes() == (results / name).read_bytes()


def test_a_scrubbed_record_is_the_same_but_for_the_secrets(bundle: Path, tmp_path: Path) -> None:
    bundles.unbundle(bundle, tmp_path / "out")
    record = json.loads((tmp_path / "out" / MACHINE / f"benchmark/{CASE}/r0.json").read_text())
    redacted = "[redacted] on [redacted] in [redacted]"
    assert (record["reason"], record["key [redacted]"], record["case"]["model"]) == (redacted, 1.5, "vit")


def test_a_variable_that_names_the_gpu_or_a_version_is_no_secret(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_NAME", "GPU 9000 80GB")
    monkeypatch.setenv("DRIVER", "580.159.04")
    facts = {
        "gpus": [{"name": "GPU 9000 80GB"}],
        "cpu": {"model": "CPU"},
        "packages": {},
        "driver": {"version": "580.159.04"},
    }
    put(results / MACHINE / "environment.json", facts)
    bundles.write(results, "study", MACHINE, out=tmp_path / "x.zip")
    with zipfile.ZipFile(tmp_path / "x.zip") as found:
        assert json.loads(found.read(f"{MACHINE}/environment.json")) == facts


def test_the_same_results_give_the_same_bytes(bundle: Path, results: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(results, copy, copy_function=shutil.copyfile)
    bundles.write(copy, "study", MACHINE, out=tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()


def test_another_baseline_than_the_configs_is_kept(results: Path, tmp_path: Path) -> None:
    bundles.write(results, "study", MACHINE, "fp16/ort_cuda/default", tmp_path / "x.zip")
    assert bundles.read_manifest(tmp_path / "x.zip").baseline == "fp16/ort_cuda/default"


def test_a_bundle_of_a_program_that_is_not_installed_can_be_read(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", nowhere)
    bundles.write(results, "study", MACHINE, out=tmp_path / "a.zip")
    assert bundles.unbundle(tmp_path / "a.zip", tmp_path / "out").inferprof == "unknown"


def test_of_a_study_on_several_machines_one_is_taken(results: Path, tmp_path: Path) -> None:
    (results / "reports/study").rename(results / "reports/moved")
    (results / "reports/study").mkdir()
    (results / "reports/moved").rename(results / "reports/study" / MACHINE)
    bundles.write(results, "study", MACHINE, out=tmp_path / "x.zip")
    assert bundles.read_manifest(tmp_path / "x.zip").study == f"study/{MACHINE}"


def test_what_is_too_large_loses_its_largest_captures_then_its_logs(
    bundle: Path, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bundle.stat().st_size > 20_000
    arguments = ["bundle", str(results), "--study", "study", "--machine", MACHINE, "--out", str(tmp_path / "x.zip")]
    assert cli.main([*arguments, "--max-size", "20K"]) == 0
    sqlite = f"{MACHINE}/capture/nsys/{CASE}.sqlite"
    assert [facts(text, "out") for text in capsys.readouterr().out.splitlines()[2:]] == [
        ["out", "--max-size", *facts(f"{sqlite}")]
    ]
    assert (tmp_path / "x.zip").stat().st_size <= 20_000
    manifest = bundles.read_manifest(tmp_path / "x.zip")
    assert set(manifest.files) == TAKEN - {sqlite}
    assert [entry.file for entry in manifest.left_out] == [sqlite]


def test_below_records_and_tables_a_bundle_does_not_go(results: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("--max-size", "1000", "without", "capture", "log", "bundle", "bytes")):
        bundles.write(results, "study", MACHINE, out=tmp_path / "x.zip", max_bytes=1000)
    assert list(tmp_path.glob("*x.zip*")) == []


@pytest.mark.parametrize(
    ("study", "machine", "said"),
    [("nope", MACHINE, "no such file"), ("study", "nope", "names no case of the machine nope")],
)
def test_a_study_or_machine_that_is_not_there_is_refused(results: Path, study: str, machine: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        bundles.write(results, study, machine, out=results / "x.zip")


def test_a_study_in_which_nothing_was_measured_is_refused(results: Path) -> None:
    shutil.rmtree(results / MACHINE / "benchmark")
    with pytest.raises(UserError, match=naming("no", "study", str(MACHINE), "nothing", "bundle")):
        bundles.write(results, "study", MACHINE, out=results / "x.zip")


def test_what_verify_said_is_handed_on_where_nothing_was_measured_too(results: Path, tmp_path: Path) -> None:
    put(results / "reports/verify/cases.csv", (results / "reports/study/cases.csv").read_text().splitlines()[0])
    put(results / "verify.json", {"rows": []})
    put(results / "log/verify/nsys.log", f"$ nsys\n{TOKEN}\n")
    bundles.write(results, "verify", MACHINE, out=tmp_path / "x.zip")
    assert set(bundles.read_manifest(tmp_path / "x.zip").files) == {
        *("reports/verify/cases.csv", f"{MACHINE}/environment.json", "verify.json", "log/verify/nsys.log"),
    }


def test_a_file_of_unknown_content_is_not_handed_on(results: Path) -> None:
    put(results / f"{MACHINE}/capture/nsys/{CASE}.csv", b"\x7fELF\0\0")
    written = bundles.write(results, "study", MACHINE, out=results / "x.zip")
    assert written.damaged == (f"{MACHINE}/capture/nsys/{CASE}.csv",)
    with zipfile.ZipFile(results / "x.zip") as bundle:
        assert written.damaged[0] not in bundle.namelist()


# --- what is refused -------------------------------------------------------------------------------------------


def rewritten(bundle: Path, change: Change) -> Path:
    """The bundle, written anew by hand with a change of its files (name → content) and manifest."""
    with zipfile.ZipFile(bundle) as found:
        files = {name: found.read(name) for name in found.namelist() if name != archive.MANIFEST}
        manifest = json.loads(found.read(archive.MANIFEST))
    change(files, manifest)
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr(archive.MANIFEST, json.dumps(manifest))
        for name, content in files.items():
            out.writestr(name, content)
    return bundle


def added(name: str, content: bytes = b"x", *, listed: bool = True) -> Change:
    def change(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
        files[name] = content
        if listed:
            manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    return change


def altered(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    files["onnx/vit/fp8.audit.json"] = b'{"x": 2}'


def lost(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    del files["onnx/vit/fp8.audit.json"]


def of_another_schema(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["schema"] = 2


def with_a_study_outside(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["study"] = "../.."


def shorter(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["files"]["onnx/vit/fp8.audit.json"]["bytes"] = 2


HOSTILE: dict[str, tuple[Change, str]] = {
    "traversal": (added("../evil.txt"), r"holds the name '\.\./evil\.txt', which is no plain path inside a folder"),
    "traversal inside": (added("a/../../evil.txt"), "no plain path"),
    "absolute": (added("/tmp/evil.txt"), "holds the name '/tmp/evil.txt', which is no plain path"),
    "drive": (added("C:/evil.txt"), "no plain path"),
    "backslash": (added("a\\evil.txt"), "no plain path"),
    "long": (added("a" * 300), "no plain path"),
    "deep": (added("/".join("a" * 300)), r"holds the name '(a/)+a? …; nothing was unpacked"),
    "hidden": (added(".bashrc"), "no plain path"),
    "folder": (added("evil/", b""), "no plain path"),
    "file as folder": (added("onnx/vit/fp8.audit.json/x"), "'onnx/vit/fp8.audit.json' as a file and as a folder"),
    "case": (added("ONNX/vit/fp8.audit.json"), "twice"),
    "wrong hash": (altered, r"holds 'onnx/vit/fp8\.audit\.json' in another size or content than its manifest says"),
    "wrong size": (shorter, r"holds 'onnx/vit/fp8\.audit\.json' in another size or content"),
    "lost": (lost, r"lacks 'onnx/vit/fp8\.audit\.json', which its manifest names \(1 missing\)"),
    "unknown": (added("evil.txt", listed=False), r"holds 'evil\.txt', which its manifest does not name"),
    "schema": (of_another_schema, "is a bundle of schema 2; this version reads 1"),
    "study": (with_a_study_outside, r"faulty bundle\.json: study: "),
    "bomb": (added("bomb.txt", bytes(70_000_000)), "would unpack to more than 100 times its size"),
}


@pytest.mark.parametrize(("change", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_or_damaged_bundle_is_refused_and_nothing_is_left(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Change, said: str
) -> None:
    rewritten(bundle, change)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=said) as refused:
        bundles.unbundle(bundle, tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert cli.main(["unbundle", str(bundle), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFDIR])
def test_links_devices_and_folders_are_refused(bundle: Path, tmp_path: Path, kind: int) -> None:
    with zipfile.ZipFile(bundle, "a") as out:
        info = zipfile.ZipInfo("evil")
        info.create_system, info.external_attr = 3, (kind | 0o777) << 16
        out.writestr(info, "/etc/passwd")
    with pytest.raises(UserError, match=naming("evil", "no", "file", "link", "device")):
        bundles.unbundle(bundle, tmp_path / "out")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused(bundle: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle, "a") as out:
        out.writestr("onnx/vit/fp8.audit.json", "{}")
    with pytest.raises(UserError, match=r"holds 'onnx/vit/fp8\.audit\.json' twice"):
        bundles.unbundle(bundle, tmp_path / "out")


def test_a_directory_that_understates_a_size_writes_no_more_than_it_says(bundle: Path, tmp_path: Path) -> None:
    """The sizes that the limits are checked by are the archive's own word."""
    rewritten(bundle, added("bomb.txt", b"0" * 5_000_000))
    content = bytearray(bundle.read_bytes())
    for place in (
        content.rindex(b"bomb.txt") - 22,
        content.index(b"bomb.txt") - 8,
    ):  # uncompressed size: both headers
        assert int.from_bytes(content[place : place + 4], "little") == 5_000_000
        content[place : place + 4] = (10).to_bytes(4, "little")
    bundle.write_bytes(content)
    with pytest.raises(UserError, match=r"bomb\.txt"):
        bundles.unbundle(bundle, tmp_path / "out")


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_half_a_bundle_is_refused(bundle: Path, tmp_path: Path, keep: float) -> None:
    content = bundle.read_bytes()
    bundle.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(UserError, match=naming("no bundle")):
        bundles.unbundle(bundle, tmp_path / "out")


def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(bundle: Path, tmp_path: Path) -> None:
    bundles.unbundle(bundle, tmp_path / "whole")
    whole = dict(contents(tmp_path / "whole"))
    content = bundle.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 50)):
        damaged = tmp_path / "damaged.zip"
        damaged.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        try:
            bundles.unbundle(damaged, tmp_path / "out")
        except UserError:
            assert not (tmp_path / "out").exists()
            continue
        assert dict(contents(tmp_path / "out")) == whole
        shutil.rmtree(tmp_path / "out")


def test_a_folder_that_is_not_empty_is_not_unpacked_into(bundle: Path, results: Path) -> None:
    with pytest.raises(UserError, match=naming("there already", "new folder")):
        bundles.unbundle(bundle, results)


@pytest.mark.parametrize("content", [b"", b"text", None])
def test_what_is_no_bundle_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.zip"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"no bundle|no such file"):
        bundles.unbundle(path, tmp_path / "out")


def named(column: str, value: str) -> Change:
    """A row of cases.csv of the bundle with this name in it."""

    def change(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
        row = {"machine": MACHINE, **dataclasses.asdict(CASE), "outcome": "run", "reason": ""}
        text = io.StringIO()
        writer = csv.DictWriter(text, row)
        writer.writeheader()
        writer.writerows([row, {**row, column: value}])
        added("reports/study/cases.csv", text.getvalue().encode())(files, manifest)

    return change


@pytest.mark.parametrize("column", ["machine", "model", "shape"])
@pytest.mark.parametrize(
    "name",
    [
        *(
            "../../victim",
            "/etc",
            "..",
            ".",
            "",
            "a/b",
            "a\\b",
            "*",
            "v?t",
            "v[i]t",
            ".hidden",
            "nul",
            "COM1.x",
            "a\n",
        ),
        *("a" * 201, "模" * 100, "vit\x1b[31m"),
    ],
)
def test_a_name_in_a_table_that_leads_elsewhere_is_refused_before_anything_is_written(
    bundle: Path, tmp_path: Path, column: str, name: str
) -> None:
    rewritten(bundle, named(column, name))
    before = sorted(tmp_path.rglob("*"))
    for asked in (bundles.unbundle, report.write_bundle):
        with pytest.raises(UserError, match=naming(str(column), "part of a path")) as refused:
            asked(bundle, tmp_path / "new" / "out")
        assert "\n" not in str(refused.value)
        assert sorted(tmp_path.rglob("*")) == before


def test_a_report_that_is_refused_leaves_nothing_and_speaks_of_out(bundle: Path, tmp_path: Path) -> None:
    rewritten(bundle, added("reports/study/config.json", b"{}"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=f"{tmp_path}/out/reports/study/config.json"):
        report.write_bundle(bundle, tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before


UNPACK = (
    "import os, sys; from pathlib import Path; from inferprof import bundles\n"
    "with bundles.unpacked(Path(sys.argv[1]), Path(sys.argv[2])):\n"
    "    print('up', flush=True); sys.stdin.read()"
)


def killed_within(bundle: Path, out: Path) -> None:
    """Unpack in a process that is killed when all is unpacked but not yet at `out`."""
    with subprocess.Popen(
        [sys.executable, "-c", UNPACK, bundle, out], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert list(out.parent.glob(".out-*"))
        process.kill()


def test_a_killed_unbundle_leaves_nothing(bundle: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    killed_within(bundle, place / "out")
    deadline = time.monotonic() + 10
    while list(place.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(place.iterdir()) == []


def test_what_a_killed_unbundle_and_its_watcher_left_is_removed_by_the_next_and_no_living_one(
    bundle: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    left, other = place / f".out-1{files.UNFINISHED}", place / f".outer-1{files.UNFINISHED}"
    for folder in (left, other):
        put(folder / "results" / "x", "x")
    with bundles.unpacked(bundle, place / "out"):
        assert not left.exists()
        (living,) = place.glob(".out-*")
        second = subprocess.run(
            [sys.executable, "-c", UNPACK, bundle, place / "out"], stdin=subprocess.DEVNULL, check=True
        )
        assert (second.returncode, living.exists()) == (0, True)
        shutil.rmtree(place / "out")
    assert sorted(path.name for path in place.iterdir()) == [other.name, "out"]


def test_a_full_disk_names_what_it_could_not_write(bundle: Path, tmp_path: Path) -> None:
    small = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    small += "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    small += "from inferprof import cli\nsys.exit(cli.main())"
    out = tmp_path / "place" / "out"
    command = [sys.executable, "-c", small, "unbundle", str(bundle), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert mentions(done.stderr, f"--out {out}", "File too large")
    assert not out.parent.exists()
    command = [sys.executable, "-c", small, "bundle", str(bundle.parent / "results"), "--study", "study"]
    done = subprocess.run([*command, "--machine", MACHINE, "--out", str(out)], capture_output=True, text=True)
    assert done.returncode == 2
    assert re.fullmatch(r"inferprof: /\S+: File too\b.*\n", done.stderr)


# --- secrets of others -----------------------------------------------------------------------------------------


@pytest.fixture
def planted(results: Path) -> list[str]:
    """Secrets of another machine in every kind of file; what must not survive of each."""
    entries = [(text, pieces) for text, pieces in PLANTED if "\n" not in text]
    texts = [text for text, _ in entries]
    put(results / f"{MACHINE}/trtexec/{CASE}.json", {"texts": texts, "deep": [{"text": text} for text in texts]})
    put(results / f"log/{MACHINE}/engine/{CASE}.log", "\n".join(texts))
    trace = {"traceEvents": [{"name": text, "args": {"x": text}} for text in texts]}
    put(results / f"{MACHINE}/capture/kineto/{CASE}.json.gz", gzip.compress(json.dumps(trace).encode()))
    export = results / f"{MACHINE}/capture/nsys/{CASE}.sqlite"
    with contextlib.closing(sqlite3.connect(export)) as database:
        first = database.execute("SELECT max(id) FROM StringIds").fetchone()[0] + 1
        strings = list(enumerate(texts, first))
        database.executemany("INSERT INTO StringIds (id, value) VALUES (?, ?)", strings)
        for number, text in strings:
            database.execute("INSERT INTO NVTX_EVENTS (start, eventType, text) VALUES (1, 59, ?)", (text,))
            database.execute("INSERT INTO NVTX_EVENTS (start, eventType, textId) VALUES (1, 59, ?)", (number,))
        database.commit()
    table = pa.table({"name": texts, "many": [[text] for text in texts]}, metadata={"note": " ".join(texts)})
    pq.write_table(table, results / f"{MACHINE}/table/nsys/{CASE}.parquet")
    return ["".join(pieces) for _, pieces in entries]


def test_no_carrier_keeps_a_secret_of_another_machine(results: Path, planted: list[str], tmp_path: Path) -> None:
    bundles.write(results, "study", MACHINE, out=tmp_path / "x.zip")
    bundles.unbundle(tmp_path / "x.zip", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / f"{MACHINE}/table/nsys/{CASE}.parquet")
    held = [*contents(tmp_path / "out"), ("metadata", str(table.schema.metadata).encode())]
    assert [(name, word) for name, content in held for word in planted if word.encode() in content] == []
    assert table.num_rows == len(planted)


def test_a_secret_by_its_name_goes_whatever_it_is_in(results: Path, tmp_path: Path) -> None:
    said = {"auth": {"user": "bob1", "deep": ["tiktok"]}, "pin_code": 1234, "password": 12345678, "tokens": 4096}
    put(results / f"{MACHINE}/trtexec/{CASE}.json", {**said, "argv": ["run", "--token", "tok7", "-p", "8080"]})
    bundles.write(results, "study", MACHINE, out=tmp_path / "x.zip")
    with zipfile.ZipFile(tmp_path / "x.zip") as found:
        assert json.loads(found.read(f"{MACHINE}/trtexec/{CASE}.json")) == {
            "auth": {"user": "[redacted]", "deep": ["[redacted]"]},
            "pin_code": 1234,
            "password": "[redacted]",
            "tokens": 4096,
            "argv": ["run", "--token", "[redacted]", "-p", "8080"],
        }


def test_a_bundle_that_still_holds_a_secret_is_refused(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(results / f"log/{MACHINE}/engine/{CASE}.log", "with " + "gh" + "p_" + "a1B2" * 9)
    monkeypatch.setattr("inferprof.secret._STEPS", ())
    with pytest.raises(UserError, match=naming("b8.log", "token")):
        bundles.write(results, "study", MACHINE, out=tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_links_out_of_the_results_folder_is_not_handed_on(results: Path, tmp_path: Path, kind: str) -> None:
    put(tmp_path / "outside" / "b8.log", "private")
    path = results / f"log/{MACHINE}/engine/{CASE}.log"
    shutil.rmtree(path.parent)
    if kind == "folder":
        path.parent.symlink_to(tmp_path / "outside")
    else:
        path.parent.mkdir()
        path.symlink_to(tmp_path / "outside" / "b8.log")
    with pytest.raises(UserError, match=naming("link out of")):
        bundles.write(results, "study", MACHINE, out=tmp_path / "x.zip")


def test_a_report_empties_no_folder_that_is_a_link(results: Path, tmp_path: Path) -> None:
    put(tmp_path / "outside" / "x", "private")
    (results / "reports/study/csv").symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="links to another folder"):
        report._empty(results / "reports/study/csv")
    assert (tmp_path / "outside" / "x").exists()


def test_two_bundles_are_compared(results: Path, bundle: Path, tmp_path: Path) -> None:
    assert [record.machine for record in compare_sides.read(bundle).records] == [MACHINE]
    rewritten(bundle, altered)
    with pytest.raises(UserError, match=naming("another size or content", "manifest")):
        compare_sides.read(bundle)


def test_a_folder_that_cannot_be_made_is_one_line(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=naming("--out", "Not a directory")):
        bundles.unbundle(bundle, bundle / "out")


@pytest.mark.parametrize("kind", ["cut", "climbing"])
def test_a_tar_that_is_damaged_or_climbs_out_is_one_line(results: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "results.tar"
    with tarfile.open(path, "w") as out:
        out.add(results, arcname="../results" if kind == "climbing" else "results")
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:-200_000])
    with pytest.raises(UserError, match=naming("climbs out")):
        compare_sides.read(path)


def test_the_command_line_says_how_to_get_the_report(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["unbundle", str(bundle), "--out", str(out)]) == 0
    assert facts(capsys.readouterr().out, "files", "study") == [
        *facts(f"{out}"),
        str(len(TAKEN)),
        "files",
        "study",
        *facts(MACHINE),
        "inferprof",
        *facts(f"{out}"),
        "--study",
        "study",
        "--machine",
        *facts(MACHINE),
        "--baseline",
        "fp32/ort_cpu/default",
    ]


def test_a_table_that_is_cut_short_is_left_out_and_named(results: Path) -> None:
    path = results / MACHINE / "table/nsys" / f"{CASE}.parquet"
    path.write_bytes(path.read_bytes()[:200])
    written = bundles.write(results, "study", MACHINE)
    assert written.damaged == (path.relative_to(results).as_posix(),) and written.damaged[0] in written.render()


def repacked(bundle: Path, to: Path, top: str, *more: tuple[str, bytes]) -> Path:
    """A bundle that somebody unpacked and packed again, in a folder."""
    with zipfile.ZipFile(bundle) as given, zipfile.ZipFile(to, "w") as archive:
        for info in given.infolist():
            archive.writestr(f"{top}{info.filename}", given.read(info))
        folders = {f"{top}{info.filename.rpartition('/')[0]}/" for info in given.infolist() if "/" in info.filename}
        for name, content in [*((folder, b"") for folder in sorted(folders)), *more]:
            archive.writestr(name, content)
    return to


@pytest.mark.parametrize("top", ["", "my bundle (1)/"])
def test_a_bundle_that_a_desktop_packed_again_is_read(top: str, bundle: Path, tmp_path: Path) -> None:
    noise = (f"__MACOSX/{top}._bundle.json", b"\0"), (f"{top}.DS_Store", b"\0")
    path = repacked(bundle, tmp_path / "again.zip", top, *noise)
    archive.unpack(path, tmp_path / "a")
    archive.unpack(bundle, tmp_path / "b")
    assert facts_of(tmp_path / "a") == facts_of(tmp_path / "b")


def facts_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_folders_around_a_bundle_are_none_of_it(bundle: Path, tmp_path: Path) -> None:
    path = repacked(bundle, tmp_path / "again.zip", "a/", ("b/evil.txt", b"x"))
    with pytest.raises(UserError, match=r"no bundle\.json"):
        archive.unpack(path, tmp_path / "out")
