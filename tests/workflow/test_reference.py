"""The reference in docs/ and the table in README are what this code makes of the measured files that are kept."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path

import pytest
from tests.unit.facts import mentions

from inferprof import bundles, report
from inferprof.errors import UserError

REPOSITORY = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(REPOSITORY / "studies/reference/document.py"))
MAX_BYTES = 15_000_000
MAX_PAGE_BYTES = 3_000_000


@pytest.mark.parametrize("folder", SCRIPT["FOLDERS"], ids=lambda folder: folder.name)
def test_the_page_of_a_gpu_agrees_with_its_bundles(folder: Path, tmp_path: Path) -> None:
    page = REPOSITORY / "docs" / f"reference-{folder.name}.md"
    work = tmp_path / folder.name
    assert page.read_text(encoding="utf-8") == SCRIPT["document"](folder, work), "run `make reference`"
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    rows = set(SCRIPT["boxes"](text, [folder], tmp_path).splitlines())
    assert rows <= set(text.splitlines()), "run `make reference`"
    if folder.name == SCRIPT["README_GPU"]:
        assert text == SCRIPT["readme"](text, work), "run `make reference`"


def test_the_page_of_the_baseline_study_is_light_and_complete(tmp_path: Path) -> None:
    report.write_bundle(REPOSITORY / "studies/reference/h200/baseline.zip", tmp_path / "out")
    folder = tmp_path / "out/reports/baseline"
    page = (folder / "REPORT.html").read_bytes()
    assert 1_000_000 < len(page) < MAX_PAGE_BYTES
    data = json.loads(page.partition(b'id="data">')[2].partition(b"</script>")[0])
    assert all(line["tracks"] for line in data["timelines"])
    assert len(list((folder / "traces").rglob("*.json"))) == len(data["timelines"]) == 5


@pytest.mark.parametrize("folder", SCRIPT["FOLDERS"], ids=lambda folder: folder.name)
def test_the_bundles_of_a_gpu_stay_small(folder: Path) -> None:
    assert 0 < sum(path.stat().st_size for path in folder.glob("*.zip")) <= MAX_BYTES


def test_the_page_of_a_box_is_made_of_the_bundle_that_its_verify_wrote(tmp_path: Path) -> None:
    """With the H200's bundle, as the first user of another box would send his."""
    sent = tmp_path / "verify.bundle.zip"
    shutil.copy(REPOSITORY / "studies/reference/h200/verify.zip", sent)
    folder = SCRIPT["kept"](sent, tmp_path)
    assert (folder.name, [path.name for path in folder.iterdir()]) == ("h200", ["verify.zip"])
    text = SCRIPT["document"](folder, tmp_path / "work" / "h200")
    page = (REPOSITORY / "docs/reference-h200.md").read_text(encoding="utf-8")
    assert text.split("## verify")[1].strip() == page.split("## verify")[1].split("\n## ")[0].strip()
    begin, end = SCRIPT["BOX_MARKS"]
    row = SCRIPT["boxes"](f"before\n{begin}\n{end}\nafter\n", [folder], tmp_path / "work").splitlines()[4]
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        *("NVIDIA H200", "580.159.04", "2026-11-28", "17 pass, 0 fail, 13 not here"),
        "[reference-h200](docs/reference-h200.md#verify)",
    ]


def test_a_gb10s_bundle_makes_a_page_and_a_row_of_its_own(tmp_path: Path) -> None:
    """The H200's bundle as if a GB10 had measured it, without captures; NVML lacks some facts there."""
    h200, gb10, results = "h200-sm90-3fe6ba14", "gb10-sm121-3fe6ba14", tmp_path / "results"
    bundles.unbundle(REPOSITORY / "studies/reference/h200/verify.zip", results)
    for name in ("capture", "table"):
        shutil.rmtree(results / h200 / name)
    (results / h200).rename(results / gb10)
    for path in (file for kind in ("json", "txt", "csv") for file in results.rglob(f"*.{kind}")):
        path.write_text(path.read_text().replace(h200, gb10).replace("NVIDIA H200", "NVIDIA GB10"))
    environment = json.loads((results / gb10 / "environment.json").read_text())
    absent = {"value": None, "reason": "NVML: Not Supported"}
    own = {"name": "NVIDIA GB10", "compute_capability": "12.1", "integrated": True, "memory_mib": absent}
    environment["gpus"] = [{**environment["gpus"][0], **own, "pcie_width": absent}]
    (results / gb10 / "environment.json").write_text(json.dumps({**environment, "machine": gb10}))
    sent = bundles.write(results, "verify", gb10, out=tmp_path / "verify.bundle.zip").path

    folder = SCRIPT["kept"](sent, tmp_path)
    assert folder.name == "gb10"
    text = SCRIPT["document"](folder, tmp_path / "work" / "gb10")
    assert text.startswith("# Reference: GB10\n")
    box = next(line for line in text.splitlines() if line.startswith("NVIDIA GB10, "))
    assert mentions(box, "12.1", "580.159.04", "host's memory")
    begin, end = SCRIPT["BOX_MARKS"]
    row = SCRIPT["boxes"](f"{begin}\n{end}\n", [folder], tmp_path / "work").splitlines()[3]
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        *("NVIDIA GB10", "580.159.04", "2026-11-28", "17 pass, 0 fail, 13 not here"),
        "[reference-gb10](docs/reference-gb10.md#verify)",
    ]


def test_another_bundle_than_that_of_verify_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="vit"):
        SCRIPT["kept"](REPOSITORY / "studies/reference/h100/vit-base.zip", tmp_path)
    assert list(tmp_path.iterdir()) == []
