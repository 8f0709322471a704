"""Processes end with their parent, and a killed run's lock is found."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferprof import processes
from inferprof.errors import UserError

CHILD = (
    "from inferprof.processes import die_with_parent; import time\n"
    "die_with_parent(); print('up', flush=True); time.sleep(60)"
)
PARENT = (
    "import subprocess, sys, time\n"
    f"child = subprocess.Popen([sys.executable, '-c', {CHILD!r}], stdout=subprocess.PIPE)\n"
    "child.stdout.readline(); print(child.pid, flush=True); time.sleep(60)\n"
)


def test_a_child_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
)
WITH_JOBS = (
    "import subprocess, sys, time; from pathlib import Path; from inferprof import processes\n"
    "folder = Path(sys.argv[1]); processes.sign_lock(folder)\n"
    "processes.end_with_jobs((folder / processes.LOCKS / '0.input.lock').unlink)\n"
    f"for says in ({STUBBORN!r}, {CHILD!r}):\n"
    "    job = subprocess.Popen([sys.executable, '-c', says], stdout=subprocess.PIPE)\n"
    "    job.stdout.readline(); print(job.pid, flush=True)\n"
    "time.sleep(60)\n"
)


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_ends_its_jobs_first_also_stubborn_ones_and_leaves_no_lock(
    told: signal.Signals, lock: Path, tmp_path: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", WITH_JOBS, tmp_path], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        jobs = [int(parent.stdout.readline()) for _ in range(2)]
        began = time.monotonic()
        parent.send_signal(told)
        assert parent.wait(timeout=10) == 128 + told
    assert time.monotonic() - began < 10
    assert not any(map(alive, jobs))
    assert processes.release_stale_lock(tmp_path) is None and not lock.exists()


def test_what_a_command_says_goes_to_the_log_and_its_exit_code_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    says = "import sys; print('out'); print('err', file=sys.stderr); sys.stdout.flush(); sys.exit(3)"
    assert processes.run_logged([sys.executable, "-c", says], log, 30) == 3
    assert sorted(log.read_text().split()) == ["before", "err", "out"]


def test_a_crash_is_a_negative_exit_code(tmp_path: Path) -> None:
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert processes.run_logged([sys.executable, "-c", crash], tmp_path / "log", 30) == -signal.SIGSEGV


def test_a_command_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(subprocess.TimeoutExpired):
        processes.run_logged([sys.executable, "-c", PARENT], log, 3)
    child = int(log.read_text())
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def test_a_folder_without_a_lock_needs_nothing(tmp_path: Path) -> None:
    assert processes.release_stale_lock(tmp_path) is None


SIGN = (
    "import sys, time; from pathlib import Path; from inferprof.processes import sign_lock\n"
    "sign_lock(Path(sys.argv[1])); print('up', flush=True); time.sleep(60)"
)
RELEASE = (
    "import sys; from pathlib import Path; from inferprof.processes import release_stale_lock\n"
    "print(release_stale_lock(Path(sys.argv[1])))"
)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """Snakemake's lock, which does not say who holds it."""
    path = tmp_path / processes.LOCKS / "0.input.lock"
    path.parent.mkdir(parents=True)
    path.write_text("models/toy.yaml\n", encoding="utf-8")
    return path


@pytest.fixture
def holder(lock: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that signed the lock, alive."""
    with subprocess.Popen([sys.executable, "-c", SIGN, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_lock_that_nobody_signed_stays(lock: Path, tmp_path: Path) -> None:
    done = processes.release_stale_lock(tmp_path)
    assert done is not None and "snakemake --unlock" in done and "\n" not in done
    assert lock.exists()


def test_the_lock_of_a_killed_process_is_removed(lock: Path, tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    done = processes.release_stale_lock(tmp_path)
    assert done is not None and "unlocked" in done
    assert not lock.exists()
    assert processes.release_stale_lock(tmp_path) is None


def test_a_living_process_keeps_its_lock(lock: Path, tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(UserError, match=str(holder.pid)):
        processes.release_stale_lock(tmp_path)
    assert lock.exists()


def test_a_process_that_got_the_number_of_a_dead_one_does_not_hold_its_lock(
    lock: Path, tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    signed(tmp_path, started="1")
    processes.release_stale_lock(tmp_path)
    assert not lock.exists()


@pytest.mark.parametrize(
    "other",
    [{"host": "node2"}, {"boot": "of yesterday"}, {"boot": None}, {"namespace": "pid:[1]"}, {"namespace": None}],
)
def test_of_another_host_boot_or_container_nothing_is_known(
    lock: Path, tmp_path: Path, holder: subprocess.Popen[str], other: dict[str, str | None]
) -> None:
    signed(tmp_path, started="1", **other)
    done = processes.release_stale_lock(tmp_path)
    assert done is not None and "snakemake --unlock" in done and "\n" not in done
    assert lock.exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"pid": "x"}', '{"pid": 1e400}', "[" * 100_000])
def test_a_damaged_signature_is_none(lock: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / processes.HOLDER).write_text(content)
    done = processes.release_stale_lock(tmp_path)
    assert done is not None and "snakemake --unlock" in done
    assert lock.exists()


def test_a_signature_of_another_lock_does_not_count(
    lock: Path, tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.kill()
    holder.wait()
    (lock.parent / "1.output.lock").write_text("of a run that did not sign")
    processes.release_stale_lock(tmp_path)
    assert lock.exists()


@pytest.mark.parametrize("living", [True, False])
def test_a_container_removes_no_lock_of_its_host(
    lock: Path, tmp_path: Path, holder: subprocess.Popen[str], living: bool
) -> None:
    """A second PID namespace, in which the holder's number is nobody's."""
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("unshare is not permitted here")
    if not living:
        holder.kill()
        holder.wait()
    done = subprocess.run([*apart, sys.executable, "-c", RELEASE, tmp_path], capture_output=True, text=True)
    assert "snakemake --unlock" in done.stdout, done.stderr
    assert lock.exists()


def signed(folder: Path, **changed: str | None) -> None:
    """The lock's signature, with these changes."""
    path = folder / processes.HOLDER
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def alive(process: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


def test_what_a_command_says_on_both_streams_comes_in_its_order() -> None:
    script = (
        "import os, sys\nprint('out', flush=True)\nprint('err', file=sys.stderr)\nsys.exit(len(os.environ['WHO']))"
    )
    done = processes.run_merged([sys.executable, "-c", script], {"WHO": "abc"})
    assert (done.returncode, done.stdout) == (3, "out\nerr\n")
