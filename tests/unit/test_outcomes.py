"""How a stage ends, and what is said of what came first."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.facts import facts, mentions

from inferprof import forked, outcomes
from inferprof.errors import CaseFailed, SystemRefusal, ToolError, UserError


def failure_in(stage: str, error: BaseException) -> CaseFailed:
    with pytest.raises(CaseFailed) as failed, outcomes.stage(stage):
        raise error
    return failed.value


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CaseFailed("no such operator"), "no such operator"),
        (RuntimeError("the first  line\nand more"), "RuntimeError: the first line and more"),
        (ValueError(), "ValueError"),
        (MemoryError("Unable to allocate 8.00 EiB"), "out of memory on the host: Unable to allocate 8.00 EiB"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory on the host: [Errno 12] Cannot allocate"),
    ],
)
def test_what_a_stage_raises_is_its_reason_in_one_line(error: Exception, reason: str) -> None:
    failed = failure_in("load", error)
    assert str(failed).startswith(reason) and "\n" not in str(failed)
    assert failed.stage == "load"


def test_what_nobody_expected_leaves_its_traceback_in_a_log_alone_and_too_little_memory_none(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure_in("load", ZeroDivisionError())
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv(forked.LIMIT, "10")
    failure_in("load", MemoryError("Unable to allocate 8.00 EiB"))
    assert "Traceback" not in capsys.readouterr().err
    failure_in("load", ZeroDivisionError())
    assert "Traceback" in capsys.readouterr().err


def test_the_innermost_stage_is_named() -> None:
    with pytest.raises(CaseFailed) as failed, outcomes.stage("run"), outcomes.stage("load"):
        raise CaseFailed("no")
    assert failed.value.stage == "load"


def test_a_full_disk_is_no_result_and_names_its_file() -> None:
    with (
        pytest.raises(SystemRefusal, match="No space left"),
        outcomes.stage("convert"),
        Path("/dev/full").open("w") as f,
    ):
        f.write("x")


def test_what_a_user_can_mend_is_refused_by_hand_and_a_result_in_a_study(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError), outcomes.stage("convert"):
        raise UserError("option samples: 0")
    monkeypatch.setenv(forked.LIMIT, "10")
    assert str(failure_in("convert", UserError("option samples: 0"))) == "option samples: 0"


@pytest.mark.parametrize("returncode", [-11, 139])
def test_a_tool_that_a_signal_ended_breaks_its_job_and_one_that_gave_up_is_a_result(
    returncode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(forked.LIMIT, "10")
    with pytest.raises(ToolError) as error, outcomes.stage("capture"):
        raise ToolError(["nsys"], returncode, "")
    assert facts(error.value.summary) == ["nsys", "SIGSEGV"]
    failed = failure_in("capture", ToolError(["/opt/bin/nsys", "profile"], 1, "Collecting\nno permission\n\n"))
    assert mentions(str(failed), "nsys exited with 1", "no permission") and "Collecting" not in str(failed)


# --- clean-up --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def closing(error: Exception | None) -> Iterator[str]:
    """A session whose clean-up raises."""
    try:
        yield "session"
    finally:
        if error:
            raise error


@contextlib.contextmanager
def translating(error: Exception | None) -> Iterator[str]:
    """The same of a runtime that says in its own words what went wrong inside."""
    with closing(error):
        try:
            yield "session"
        except RuntimeError as first:
            raise CaseFailed(f"the runtime: {first}") from None


@pytest.mark.parametrize("manager", [closing, translating])
def test_an_exception_of_the_clean_up_is_a_note_of_the_first_one(manager) -> None:
    with pytest.raises(CaseFailed) as failed, outcomes.opened(manager(OSError("illegal address"))):
        raise CaseFailed("out of memory", "first inference")
    assert (str(failed.value), failed.value.stage) == ("out of memory", "first inference")
    assert failed.value.notes == ["close: OSError: illegal address"]


def test_the_words_of_the_runtime_are_kept_where_the_clean_up_fails_too() -> None:
    with pytest.raises(CaseFailed) as failed, outcomes.opened(translating(OSError("illegal address"))):
        raise RuntimeError("bad shape")
    assert str(failed.value) == "the runtime: bad shape"
    assert failed.value.notes == ["close: OSError: illegal address"]


def test_without_a_failing_clean_up_the_words_of_the_runtime_are_the_reason() -> None:
    with pytest.raises(CaseFailed) as failed, outcomes.opened(translating(None)):
        raise RuntimeError("bad shape")
    assert (str(failed.value), failed.value.notes) == ("the runtime: bad shape", [])


def test_a_clean_up_that_fails_alone_is_the_stage_close() -> None:
    with pytest.raises(CaseFailed) as failed, outcomes.opened(closing(OSError("illegal address"))):
        pass
    assert failed.value.stage == "close"


# --- documents -------------------------------------------------------------------------------------------------


def test_a_product_that_was_not_made_is_empty_and_every_later_stage_gives_the_first_reason(tmp_path: Path) -> None:
    def fail() -> dict[str, str]:
        raise CaseFailed("unknown operator Foo")

    onnx = tmp_path / "int8.onnx"
    outcomes.make_onnx(onnx, fail)
    assert onnx.read_bytes() == b""
    outcomes.record(tmp_path / "int8.audit.json", "audit", dict, onnx)
    outcomes.make(tmp_path / "b1.engine", "build", dict, onnx)
    for name in ("int8.convert.json", "int8.audit.json", "b1.build.json"):
        document = json.loads((tmp_path / name).read_text())
        assert (document["status"], document["reason"]) == ("failed", "unknown operator Foo")
        assert document["stage"] == "convert"


@pytest.mark.parametrize("nonsense", [float("nan"), np.float32(1), "many"])
def test_what_would_be_no_document_fails_its_stage(nonsense: object, tmp_path: Path) -> None:
    onnx = tmp_path / "fp16.onnx"
    onnx.write_bytes(b"graph")
    outcomes.make_onnx(onnx, lambda: {"options": {}, "not_reproducible": nonsense})
    assert json.loads((tmp_path / "fp16.convert.json").read_text())["status"] == "failed"
    assert onnx.read_bytes() == b""


# --- jobs ------------------------------------------------------------------------------------------------------

JOB = """
import ctypes, os, sys, time
from inferprof import processes
processes.go_on_watched({limit})
{work}
"""


@pytest.mark.parametrize(
    ("work", "limit", "code", "last"),
    [
        ("sys.exit(3)", 60, 3, ""),
        ("ctypes.string_at(0)", 60, 1, "inferprof: ended by SIGSEGV; its stack is above"),
        ("os.kill(os.getpid(), 9)", 60, 1, "inferprof: ended by SIGKILL, as a machine does that is out of memory"),
        ("def stuck(): time.sleep(60)\nstuck()", 0.5, 1, "inferprof: not done after 0.5 s, the limit of a job"),
    ],
    ids=["exit code", "crash", "kill", "hang"],
)
def test_a_watched_job_ends_as_it_did_and_its_log_says_how(work: str, limit: float, code: int, last: str) -> None:
    command = [sys.executable, "-c", JOB.format(limit=limit, work=work)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50, env=os.environ)
    lines = done.stderr.splitlines()
    assert done.returncode == code
    assert (lines[-1] if lines else "").startswith(last)
    assert ("stuck" in done.stderr) is (limit < 1)


def test_a_job_over_its_limit_takes_its_children_with_it(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    child = f"import time, pathlib; time.sleep(4); pathlib.Path({str(alive)!r}).touch()"
    work = f"import subprocess\nsubprocess.run([sys.executable, '-c', {child!r}])"
    done = subprocess.run([sys.executable, "-c", JOB.format(limit=0.5, work=work)], check=False, timeout=50)
    assert done.returncode == 1
    time.sleep(3.5)
    assert not alive.exists()


def test_what_became_of_files_is_told_of_each_by_name_and_of_a_stage_where_they_failed(tmp_path: Path) -> None:
    engine, audit, text = tmp_path / "b8.engine", tmp_path / "int8.audit.json", tmp_path / "REPORT.txt"
    engine.write_text("")
    text.write_text("")
    (tmp_path / "b8.build.json").write_text('{"status": "failed", "stage": "build", "reason": "s999 is over s512"}')
    audit.write_text('{"status": "ok"}')
    files = [str(path) for path in (engine, tmp_path / "b8.build.json", audit, text, tmp_path / "absent.json")]
    failed = f"{engine}: failed at build: s999 is over s512"
    assert outcomes.ends(files, named=True) == [failed, f"{audit}: ok"]
    assert outcomes.ends(files, named=False) == [failed]
