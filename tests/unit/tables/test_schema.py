"""One meaning per column: every table of every committed bundle, and every reader's."""

from __future__ import annotations

import lzma
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.columns import check_columns, earlier

from inferprof.profilers import kineto, ncu, nsys, ort_profile, torch_nodes, trt_layers, trt_nodes
from inferprof.tables import schema
from inferprof.tables.nodes import kernel_formats

BUNDLES = sorted(Path(__file__).parents[3].glob("studies/**/*.zip"))
DATA = Path(__file__).parents[2] / "data"


def committed() -> Iterator[tuple[str, bytes]]:
    for bundle in BUNDLES:
        with zipfile.ZipFile(bundle) as archive:
            for name in archive.namelist():
                if name.endswith(".parquet"):
                    yield f"{bundle.parent.name}/{bundle.name}:{name}", archive.read(name)


TABLES = dict(committed())


def unpacked(source: str, path: Path) -> Path:
    path.write_bytes(lzma.decompress((DATA / source).read_bytes()))
    return path


def nsys_frame(folder: Path) -> pd.DataFrame:
    return nsys.read(unpacked("nsys/h100_torch_node_trace.sqlite.xz", folder / "a.sqlite"))


def trt_nodes_frame(folder: Path) -> pd.DataFrame:
    path = unpacked("nsys/h100_tensorrt_vit2.sqlite.xz", folder / "a.sqlite")
    shutil.copy(DATA / "trt_layers/h100_tensorrt_vit2.graph.json", folder / "a.graph.json")
    return trt_nodes.read(path)


READERS = {
    "nsys": nsys_frame,
    "nsys stats": lambda folder: nsys.read(DATA / "nsys/h100_ort_cuda_vit_cuda_gpu_kern_sum.csv"),
    "kineto": lambda folder: kineto.read(DATA / "kineto/h100_ort_cuda_vit.json.gz"),
    "ncu details": lambda folder: ncu.read(DATA / "ncu/h100_ort_cuda_vit_details.csv.gz"),
    "ncu raw": lambda folder: ncu.read(DATA / "ncu/h100_ort_cuda_vit_raw.csv.gz"),
    "ncu report": lambda folder: ncu.read(unpacked("ncu/manual_nvtx.ncu-rep.xz", folder / "a.ncu-rep")),
    "ort_profile": lambda folder: ort_profile.read(DATA / "ort_profile/h100_ort_cuda_vit.json.gz"),
    "torch_nodes": lambda folder: torch_nodes.read(DATA / "kineto/h100_ort_cuda_vit.json.gz"),
    "trt_layers": lambda folder: trt_layers.read(DATA / "trt_layers/h100_tensorrt_vit2.profile.json"),
    "trt_nodes": trt_nodes_frame,
}


@pytest.mark.parametrize("table", TABLES)
def test_each_column_of_a_committed_table_has_one_meaning(table: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(TABLES[table])
    check_columns(schema.read_table(path))


@pytest.mark.parametrize("reader", READERS)
def test_each_column_of_a_reader_has_one_meaning(reader: str, tmp_path: Path) -> None:
    frame = READERS[reader](tmp_path)
    check_columns(frame)
    frame.to_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(schema.read_table(tmp_path / "a.parquet"), frame)


@pytest.mark.parametrize("reader", ["nsys", "ncu details", "ort_profile", "torch_nodes"])
def test_a_table_of_before_is_read_as_one_of_today(reader: str, tmp_path: Path) -> None:
    frame = READERS[reader](tmp_path)
    frame.loc[frame["level"].eq("event"), ["range", "owner"]] = None  # events had neither
    earlier(frame).to_parquet(tmp_path / "a.parquet")
    order = [name for name in schema.COLUMNS if name not in ("value", "text")]
    for read in (schema.read_table, schema.read_earlier):
        again = read(tmp_path / "a.parquet")[list(schema.COLUMNS)]
        pd.testing.assert_frame_equal(
            again.sort_values(order, kind="stable", ignore_index=True),
            frame.sort_values(order, kind="stable", ignore_index=True),
        )


@pytest.mark.parametrize("table", [name for name in TABLES if "/trt_nodes/" in name or "/ort_nodes/" in name])
def test_every_committed_join_tells_formats(table: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(TABLES[table])
    assert kernel_formats.tells(schema.read_table(path))
