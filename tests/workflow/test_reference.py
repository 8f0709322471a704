"""The reference in docs/ and the table in README are what this code makes of the measured files that are kept."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path

import pytest

from inferprof.errors import UserError
from inferprof.report import bundled

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
    bundled.write(REPOSITORY / "studies/reference/h200/baseline.zip", tmp_path / "out")
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


def test_another_bundle_than_that_of_verify_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="vit"):
        SCRIPT["kept"](REPOSITORY / "studies/reference/h100/vit-base.zip", tmp_path)
    assert list(tmp_path.iterdir()) == []
