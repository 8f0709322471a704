from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from tests.unit.facts import facts

from inferprof.machine.hardware import Gpu
from inferprof.measure import device_lock


def gpu(uuid: str) -> Gpu:
    return Gpu("a GPU", (9, 0), None, uuid, "580")


def hold(folder: Path, uuids: Sequence[str], taken: Event, release: Event) -> None:
    with device_lock.hold([gpu(uuid) for uuid in uuids], "vit/fp16", folder):
        taken.set()
        release.wait(60)


def start(folder: Path, *uuids: str) -> tuple[multiprocessing.context.SpawnProcess, Event, Event]:
    """A process that holds these GPUs, or the CPU; when it does; and what has it let go."""
    context = multiprocessing.get_context("spawn")
    taken, release = context.Event(), context.Event()
    process = context.Process(target=hold, args=(folder, uuids, taken, release))
    process.start()
    return process, taken, release


def holder(folder: Path, *uuids: str) -> tuple[multiprocessing.context.SpawnProcess, Event]:
    process, taken, release = start(folder, *uuids)
    assert taken.wait(60)
    return process, release


def test_the_second_waits_and_says_for_whom(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process, release = holder(tmp_path, "GPU-1")
    with caplog.at_level(logging.WARNING):
        threading.Timer(0.3, release.set).start()
        started = time.monotonic()
        with device_lock.hold([gpu("GPU-1")], "vit/fp32", tmp_path):
            assert time.monotonic() - started >= 0.25
    process.join(60)
    assert [facts(text) for text in caplog.messages] == [["GPU", "GPU-1", *facts(f"{process.pid}"), "vit/fp16"]]


def test_jobs_that_measure_nothing_share_a_gpu_and_a_measurement_waits_for_them(tmp_path: Path) -> None:
    with device_lock.hold([gpu("GPU-1")], "vit/fp16", tmp_path, shared=True):
        with device_lock.hold([gpu("GPU-1")], "vit/fp32", tmp_path, shared=True):
            pass
        process, taken, release = start(tmp_path, "GPU-1")
        assert not taken.wait(1.5)
    assert taken.wait(60)
    release.set()
    process.join(60)


def test_another_gpu_is_free(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process, release = holder(tmp_path, "GPU-1")
    with device_lock.hold([gpu("GPU-2")], "vit/fp32", tmp_path):
        assert caplog.messages == []
    release.set()
    process.join(60)


def test_a_killed_holder_leaves_the_gpu_free(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process, _ = holder(tmp_path, "GPU-1")
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    with device_lock.hold([gpu("GPU-1")], "vit/fp32", tmp_path):
        assert caplog.messages == []


def test_a_measurement_on_the_cpu_waits_for_another_and_says_for_whom(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process, release = holder(tmp_path)
    threading.Timer(0.3, release.set).start()
    with device_lock.hold([], "vit/fp32", tmp_path):
        assert release.is_set()
    process.join(60)
    assert [facts(text) for text in caplog.messages] == [["CPU", *facts(f"{process.pid}"), "vit/fp16"]]


@pytest.mark.parametrize(("ours", "others"), [([], ["GPU-1"]), (["GPU-1"], [])])
def test_none_is_measured_on_a_gpu_beside_a_measurement_on_the_cpu(
    tmp_path: Path, ours: Sequence[str], others: Sequence[str]
) -> None:
    with device_lock.hold([gpu(uuid) for uuid in ours], "vit/fp32", tmp_path):
        process, taken, release = start(tmp_path, *others)
        assert not taken.wait(1.5)
    assert taken.wait(60)
    release.set()
    process.join(60)
