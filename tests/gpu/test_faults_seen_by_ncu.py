"""Nsight Compute on kernels with one fault each: each fault is seen where it was made, and nowhere else.

Thresholds and reasons: counters.kernel_faults. Between what a fault's number must lie by the way its kernel
was made is beside the kernel.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from tests.gpu import make_ncu_data
from tests.gpu.faulty_kernels import KERNELS, amiss

from inferprof.errors import CaseFailed, UserError
from inferprof.profilers import ncu
from inferprof.tables.counters.kernel_faults import Finding
from inferprof.tables.schema import by_launch

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The raw page of all made kernels, with the report beside it."""
    try:
        return make_ncu_data.capture(tmp_path_factory.mktemp("ncu") / "faults.ncu-rep")
    except (UserError, CaseFailed) as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def findings(page: Path) -> dict[str, list[Finding]]:
    return make_ncu_data.findings(page, make_ncu_data.must_read())


def test_one_launch_of_each_kernel_is_seen(page: Path) -> None:
    assert sorted(by_launch(ncu.read(page))["name"]) == sorted(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_shows_the_fault_that_it_was_made_for_and_no_other(
    name: str, findings: dict[str, list[Finding]]
) -> None:
    assert list(amiss(name, findings[name])) == []


def test_report_and_page_say_the_same(page: Path) -> None:
    """Waves apart, of which the page has two decimals, as of rates and of the cycles that stalls are shares of."""
    pytest.importorskip("ncu_report")
    printed, reported = (
        by_launch(ncu.read(path)).set_index("name").drop(columns=["launch", "waves", "tail_waste"])
        for path in (page, page.with_suffix(".ncu-rep"))
    )
    numbers = [column for column in printed if isinstance(printed[column].iloc[0], float)]
    of_cycles = 100 * 0.005 / reported["warp_cycles_per_instruction"].astype(float).min()
    for column in numbers:
        of_report, of_page = (table[column].loc[printed.index].astype(float) for table in (reported, printed))
        rounding = 1.1 * of_cycles if str(column).startswith("stall_") else 0.01
        pd.testing.assert_series_equal(of_report, of_page, rtol=0.01, atol=rounding + 1e-5 * of_report.max())
