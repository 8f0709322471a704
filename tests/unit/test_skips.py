"""A skip that nobody listed is a failure, whoever skips: a test, a fixture or a module."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
SKIPS = yaml.safe_load((REPOSITORY / "tests/skips.yaml").read_text(encoding="utf-8"))
PATTERNS = [pattern for skip in SKIPS for pattern in skip["tests"]]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("def test_a(): pytest.skip('for nothing')", "1 failed"),
        ("@pytest.mark.skip(reason='for nothing')\ndef test_a(): pass", "1 error"),
        ("pytest.importorskip('nowhere_to_be_found')", "1 error"),
        ("def test_a(): pytest.skip('none of chromium is installed')", "1 skipped"),
        ("def test_b(): pytest.skip('none of chromium is installed')", "1 failed"),
        ("@pytest.mark.xfail(reason='a fault')\ndef test_b(): assert False", "1 xfailed"),
    ],
)
def test_a_skip_passes_only_where_it_is_listed(tmp_path: Path, code: str, outcome: str) -> None:
    conftest = (REPOSITORY / "tests/conftest.py").read_text(encoding="utf-8")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/conftest.py").write_text(conftest, encoding="utf-8")
    (tmp_path / "tests/skips.yaml").write_text("[{reason: none of*, tests: ['tests/test_it.py::test_a']}]")
    (tmp_path / "tests/test_it.py").write_text(f"import pytest\n{code}\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert re.findall(r"\d (?:failed|errors?|skipped|xfailed|passed)", done.stdout.splitlines()[-1]) == [outcome]


def test_every_listed_skip_has_a_reason_and_says_why() -> None:
    assert [skip for skip in SKIPS if not (skip["reason"] and skip["why"] and skip["tests"])] == []


def test_every_listed_test_exists() -> None:
    def exists(pattern: str) -> bool:
        path, _, name = pattern.partition("::")
        if "*" in path:
            return any(REPOSITORY.glob(path))
        text = (REPOSITORY / path).read_text(encoding="utf-8") if (REPOSITORY / path).is_file() else ""
        return bool(text) and (name == "*" or f"def {name.split('::')[-1]}(" in text)

    assert [pattern for pattern in PATTERNS if not exists(pattern)] == []
