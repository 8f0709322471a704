"""The probe on a machine that has a GPU."""

from __future__ import annotations

import json

import pytest

from inferprof.machine import environment, hardware

pytestmark = pytest.mark.gpu


def test_the_gpu_in_use_is_described_and_its_sms_are_counted():
    machine = hardware.detect()
    assert machine.gpu is not None
    facts = environment.probe(machine)
    (used,) = [gpu for gpu in facts["gpus"] if gpu["used"]]
    assert used["name"] == machine.gpu.name
    if machine.gpu.mig:
        pytest.skip("a MIG instance tells only its name")
    major, minor = machine.gpu.compute_capability
    assert used["compute_capability"] == f"{major}.{minor}"
    assert isinstance(used["sm_count"], int) and used["sm_count"] > 0
    assert used["clock_sm_max_mhz"] > 0
    assert facts["driver"]["version"] == machine.gpu.driver
    assert machine.gpu.uuid not in json.dumps(facts)
