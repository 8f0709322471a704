"""Nsight Compute's own report: a real one, and what it does not hold by stand-ins with the package's interface."""

from __future__ import annotations

import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.facts import facts

from inferprof.errors import UserError
from inferprof.profilers import ncu
from inferprof.readers import ncu_launches, ncu_rep
from inferprof.readers.ncu_launches import RuleResult
from inferprof.tables.schema import by_launch

ncu_report = pytest.importorskip("ncu_report")


@dataclass
class StandInMetric:
    """IMetric, as far as it is used."""

    content: Any
    unit_name: str = ""

    def value(self) -> Any:
        return self.content

    def unit(self) -> str:
        return self.unit_name


@dataclass
class StandInRule:
    """IRuleResult, as far as it is used."""

    identifier: str
    kind: Any
    message: str | None
    gain: dict[str, Any] | None = None

    def rule_identifier(self) -> str:
        return self.identifier

    def has_rule_message(self) -> bool:
        return self.message is not None

    def rule_message(self) -> dict[str, Any]:
        return {"title": "a title", "message": self.message, "type": self.kind}

    def has_speedup_estimation(self) -> bool:
        return self.gain is not None

    def speedup_estimation(self) -> dict[str, Any] | None:
        return self.gain


@dataclass
class StandInState:
    """INvtxState and INvtxDomainInfo, as far as they are used."""

    ranges: Mapping[int, Sequence[str]]

    def domains(self) -> tuple[int, ...]:
        return tuple(self.ranges)

    def domain_by_id(self, domain: int) -> StandInDomain:
        return StandInDomain(self.ranges[domain])


@dataclass
class StandInDomain:
    names: Sequence[str]

    def push_pop_ranges(self) -> tuple[str, ...]:
        return tuple(self.names)


@dataclass
class StandInAction:
    """IAction, as far as it is used."""

    metrics: dict[str, StandInMetric]
    rules: list[StandInRule] = field(default_factory=list)
    state: StandInState | None = None

    def name(self, base: int) -> str:
        bases = ncu_report.IAction
        return {bases.NameBase_DEMANGLED: "void gemm<float>(float *)", bases.NameBase_MANGLED: "_Z4gemmIfEvPT_"}[base]

    def metric_names(self) -> tuple[str, ...]:
        return tuple(self.metrics)

    def metric_by_name(self, name: str) -> StandInMetric:
        return self.metrics[name]

    def rule_results(self) -> list[StandInRule]:
        return self.rules

    def nvtx_state(self) -> StandInState | None:
        return self.state


KINDS, SPEED_UPS = ncu_report.MsgType, ncu_report.SpeedupType
ACTION = StandInAction(
    metrics={
        "launch__grid_dim_x": StandInMetric(4),
        "launch__grid_dim_y": StandInMetric(2),
        "launch__block_dim_x": StandInMetric(128),
        "launch__device_id": StandInMetric(0),
        "launch__stream_id": StandInMetric(13),
        "gpu__time_duration.sum": StandInMetric(5.5, "us"),
        "launch__shared_mem_per_block": StandInMetric(1024, "byte/block"),
        "launch__registers_per_thread": StandInMetric(None),
        "launch__func_cache_config": StandInMetric("CachePreferNone"),
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": StandInMetric(float("nan"), "%"),
        "not_of_ours": StandInMetric(1.0),
    },
    rules=[
        StandInRule("Slow", KINDS.OPTIMIZATION, "do this", {"type": SPEED_UPS.GLOBAL, "speedup": 12.5}),
        StandInRule("Unit", KINDS.WARNING, "look", {"type": SPEED_UPS.LOCAL, "speedup": 40.0}),
        StandInRule("Fine", KINDS.OK, "all is well"),
        StandInRule("Silent", KINDS.OK, None),
        StandInRule("Broken", KINDS.ERROR, "Traceback"),
    ],
    state=StandInState({0: (), 1: ("iteration", "stage:execute")}),
)


def test_names_sizes_and_ranges_of_a_launch() -> None:
    (launch,) = ncu_rep.launches([[ACTION]], ncu_report)
    assert (launch.name, launch.symbol) == ("void gemm<float>(float *)", "_Z4gemmIfEvPT_")
    assert (launch.grid, launch.block) == ("4,2,1", "128,1,1")
    assert (launch.device, launch.stream, launch.path) == (0, 13, "iteration > stage:execute")


def test_values_are_in_base_units_and_what_has_none_is_left_out() -> None:
    (launch,) = ncu_rep.launches([[ACTION]], ncu_report)
    assert launch.raw == {"gpu__time_duration.sum": 5500.0, "launch__shared_mem_per_block": 1024.0}


def test_rules_keep_their_kind_and_what_their_speed_up_is_of() -> None:
    (launch,) = ncu_rep.launches([[ACTION]], ncu_report)
    assert launch.rules == (
        RuleResult("Slow", "optimization", "do this", 12.5, "kernel"),
        RuleResult("Unit", "warning", "look", 40.0, "unit"),
        RuleResult("Fine", "information", "all is well"),
    )


def test_launches_of_all_ranges_are_numbered_through() -> None:
    launches = ncu_rep.launches([[ACTION, ACTION], [StandInAction({})]], ncu_report)
    assert [launch.number for launch in launches] == [0, 1, 2]
    assert launches[2].device is None and launches[2].path is None
    rows = ncu_launches.rows(launches, "ncu")
    assert by_launch(rows)["launch"].tolist() == [0, 1, 2]
    assert set(rows.loc[rows["level"] == "kernel", "range"].dropna()) == {"iteration > stage:execute"}


@pytest.fixture(scope="module")
def report(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NVIDIA's NVTX example on a GPU of 46 SMs (8.6) under ncu 2022.3; from streamlit-ncu-rep-viewer 0.1.0 (MIT)."""
    path = tmp_path_factory.mktemp("reports") / "manual_nvtx.ncu-rep"
    path.write_bytes(lzma.decompress((repository / "tests/data/ncu/manual_nvtx.ncu-rep.xz").read_bytes()))
    return path


def test_the_launches_of_a_real_report(report: Path) -> None:
    launches = ncu_rep.read(report)
    assert [(launch.name, launch.symbol, launch.path, launch.stream) for launch in launches] == [
        ("init_data_kernel(int, double *)", "_Z16init_data_kerneliPd", "run_test > init_data", 14),
        ("daxpy_kernel(int, double, double *, double *)", "_Z12daxpy_kernelidPdS_", "run_test > daxpy", 7),
        (
            "check_results_kernel(int, double, double *)",
            "_Z20check_results_kernelidPd",
            "run_test > check_results",
            7,
        ),
    ]
    assert {(launch.grid, launch.block, launch.device) for launch in launches} == {("16384,1,1", "256,1,1", 0)}


def test_the_metrics_of_a_real_report(report: Path) -> None:
    wide = by_launch(ncu.read(report))
    assert wide["duration_total"].tolist() == [84480, 249216, 88512]
    first = wide.iloc[0]
    assert (first["sms"], first["registers"], first["shared_memory"], first["replay_passes"]) == (46, 16, 1024, 12)
    assert first["sm_clock"] == pytest.approx(1464.107875631313)
    assert first["dram_throughput"] == pytest.approx(88.19625453309156)
    assert first["occupancy_limiter"] == "warps"
    assert first["waves"] == pytest.approx(16384 / (46 * 6))
    assert "branch_efficiency" not in wide.columns or pd.isna(first["branch_efficiency"])


def test_the_rules_of_a_real_report_are_without_the_links_of_its_viewer(report: Path) -> None:
    bound = next(result for result in ncu_rep.read(report)[0].rules if result.rule == "SOLBottleneck")
    assert facts(bound.message)[-4:] == ["DRAM", "Memory", "Workload", "Analysis"]
    assert (bound.kind, bound.speed_up) == ("information", None)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("See the @url:Best Practices Guide:https://docs.nvidia.com/x#y@ now.", "See the Best Practices Guide now."),
        ("at @sass:0x7f:this load@", "at this load"),
        ("at @source:/a/b.cu:12:line 12@", "at line 12"),
        ("mail a@b.c", "mail a@b.c"),
    ],
)
def test_links_leave_their_text(said: str, shown: str) -> None:
    action = StandInAction({}, [StandInRule("R", KINDS.OK, said)])
    (launch,) = ncu_rep.launches([[action]], ncu_report)
    assert launch.rules[0].message == shown


def test_a_damaged_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(b"NVR\0\x10\0cut")
    with pytest.raises(UserError, match="is cut short"):
        ncu_rep.read(path)
