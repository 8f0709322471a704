"""The reference in docs/ and the table in README are what this code makes of the measured files that are kept."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(REPOSITORY / "studies/reference/document.py"))
MAX_BYTES = 15_000_000


@pytest.mark.parametrize("folder", SCRIPT["FOLDERS"], ids=lambda folder: folder.name)
def test_the_page_of_a_gpu_agrees_with_its_bundles(folder: Path, tmp_path: Path) -> None:
    page = REPOSITORY / "docs" / f"reference-{folder.name}.md"
    assert page.read_text(encoding="utf-8") == SCRIPT["document"](folder, tmp_path), "run `make reference`"
    if folder.name == SCRIPT["README_GPU"]:
        text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
        assert text == SCRIPT["readme"](text, tmp_path), "run `make reference`"


@pytest.mark.parametrize("folder", SCRIPT["FOLDERS"], ids=lambda folder: folder.name)
def test_the_bundles_of_a_gpu_stay_small(folder: Path) -> None:
    assert 0 < sum(path.stat().st_size for path in folder.glob("*.zip")) <= MAX_BYTES
