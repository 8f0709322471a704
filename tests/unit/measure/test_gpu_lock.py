from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from tests.unit.facts import facts

from inferprof.measure.gpu_lock import gpu_lock


def hold(folder: Path, taken: Event, release: Event) -> None:
    with gpu_lock("GPU-1", "vit/fp16", folder):
        taken.set()
        release.wait(60)


def holder(folder: Path) -> tuple[multiprocessing.context.SpawnProcess, Event]:
    context = multiprocessing.get_context("spawn")
    taken, release = context.Event(), context.Event()
    process = context.Process(target=hold, args=(folder, taken, release))
    process.start()
    assert taken.wait(60)
    return process, release


def test_the_second_waits_and_says_for_whom(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process, release = holder(tmp_path)
    with caplog.at_level(logging.WARNING):
        threading.Timer(0.3, release.set).start()
        started = time.monotonic()
        with gpu_lock("GPU-1", "vit/fp32", tmp_path):
            assert time.monotonic() - started >= 0.25
    process.join(60)
    assert [facts(text) for text in caplog.messages] == [["GPU", "GPU-1", *facts(f"{process.pid}"), "vit/fp16"]]


def test_jobs_that_measure_nothing_share_a_gpu_and_a_measurement_waits_for_them(tmp_path: Path) -> None:
    with gpu_lock("GPU-1", "vit/fp16", tmp_path, shared=True):
        with gpu_lock("GPU-1", "vit/fp32", tmp_path, shared=True):
            pass
        context = multiprocessing.get_context("spawn")
        taken, release = context.Event(), context.Event()
        process = context.Process(target=hold, args=(tmp_path, taken, release))
        process.start()
        assert not taken.wait(1.5)
    assert taken.wait(60)
    release.set()
    process.join(60)


def test_another_gpu_is_free(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process, release = holder(tmp_path)
    with gpu_lock("GPU-2", "vit/fp32", tmp_path):
        assert caplog.messages == []
    release.set()
    process.join(60)


def test_a_killed_holder_leaves_the_gpu_free(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process, _ = holder(tmp_path)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    with gpu_lock("GPU-1", "vit/fp32", tmp_path):
        assert caplog.messages == []
