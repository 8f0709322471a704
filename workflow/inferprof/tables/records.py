"""Benchmark records as frames: what `inferprof run` wrote, one row per record, boundary, stage, check or throughput.

All frames carry the columns of KEY, `round` and `file` (relative to the results folder): they are joined on KEY,
never on position. `read` gives the records; the other functions take those of them that are ok (`checks`: all) apart.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferprof import documents
from inferprof.case import OF_DUELS, STAGES, Case, require_plain
from inferprof.documents import NOT_OURS
from inferprof.documents.record import Array, Boundary, First, Memory, Record, Stage
from inferprof.errors import UserError
from inferprof.grouping import grouped
from inferprof.plugins import BOUNDARIES

if TYPE_CHECKING:
    import pandas as pd

CASE_KEY = ["model", "precision", "backend", "variant", "shape"]
KEY = ["machine", *CASE_KEY]
CASES_COLUMNS = [*KEY, "outcome", "reason"]
DAMAGED = "damaged"
"""The status of a file that can't be read as a record."""
OUTCOMES = ("run", "refused", "failed")
"""What a study plans with a case; failed: nothing could be planned of its model, whose files are damaged."""
NO_YARDSTICK = "the case was measured by a version without the yardstick"
NO_BOUNDARY = Boundary(not_measured="the record does not have this boundary")
NO_STAGE = Stage(not_measured="the record does not have this stage")
RECORD_KEY = [*KEY, "round", "file"]
Row = dict[str, Any]
Key = tuple[str, ...]
"""The values of KEY: a case on a machine."""
Options = Mapping[Key, Mapping[str, Any]]
"""The options of each case's variant, by name."""


def read_cases(path: Path) -> pd.DataFrame:
    """Read cases.csv; all columns are text. Raises UserError where it is missing or not what the study wrote."""
    import pandas as pd

    try:
        cases = pd.read_csv(path, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        reports = next((folder for folder in path.parents if folder.name == "reports"), path.parent)
        studies = [folder.parent.relative_to(reports).as_posix() for folder in sorted(reports.rglob(path.name))]
        exist = f"; studies here: {', '.join(studies)}" if studies else ""
        raise UserError(f"{path}: no such file; the study writes it before anything runs{exist}") from None
    except ValueError as error:
        raise UserError(f"{path} is not CSV: {error}; {NOT_OURS}") from None
    if lacking := [column for column in CASES_COLUMNS if column not in cases.columns]:
        raise UserError(f"{path}: lacks the columns {', '.join(lacking)}; it has {', '.join(cases.columns)}")
    if (unlike := cases[~cases["outcome"].isin(OUTCOMES) | cases["reason"].isna()]).size:
        line = int(unlike.index[0]) + 2
        raise UserError(
            f"{path}: line {line}: cut short, or its outcome is none of {', '.join(OUTCOMES)}; {NOT_OURS}"
        )
    try:
        for column in KEY:
            require_plain(column, *cases[column].unique())
    except UserError as error:
        raise UserError(f"{path}: {error}; {NOT_OURS}") from None
    return cases.astype(object)


def paths(results: Path, machine: str, case: Case) -> list[Path]:
    """The records of a case, in the order of their rounds; those of duels, which are for one boundary, left out.

    Last come files that were copied beside them (`r0 (copy).json`), which nobody can read as a record.
    """
    folder = results / machine / "benchmark" / case.path
    files = (path for path in folder.glob("r*.json") if not _of_duel(path))
    return sorted(files, key=lambda path: int(path.stem[1:]) if path.stem[1:].isdecimal() else OF_DUELS)


def _of_duel(file: Path) -> bool:
    number = file.stem[1:]
    return number.isdecimal() and int(number) >= OF_DUELS


def read(results: Path, cases: pd.DataFrame) -> pd.DataFrame:
    """One row per record of the cases that were to run.

    Columns: KEY, `round`, `file`, `status` (ok | failed | DAMAGED), `reason`, and `record` itself. A file that is no
    record of this case and round is DAMAGED: it has no `record`, the `reason` says what is wrong with it, and it
    takes no other one with it.
    """
    planned = cases[cases["outcome"] == "run"]
    keys = [(machine, Case(*names)) for machine, *names in planned[KEY].itertuples(index=False, name=None)]
    rows = [_row(results, path, *key) for key in keys for path in paths(results, *key)]
    return frame_of(rows, [*RECORD_KEY, "status", "reason", "record"])


def sound(rows: pd.DataFrame) -> pd.DataFrame:
    """Those of the rows of `read` that have a record."""
    return rows[rows["status"].ne(DAMAGED)]


def of_folder(benchmark: Path) -> tuple[list[Record], dict[str, list[str]]]:
    """The records under a `benchmark`, whatever the name of its folder, but for those of duels; and case → what is
    wrong with its files that can't be read as one.

    Raises UserError for several machines.
    """
    records: list[Record] = []
    damaged: defaultdict[str, list[str]] = defaultdict(list)
    for file in sorted(benchmark.glob(f"{'*/' * len(CASE_KEY)}r*.json")):
        if _of_duel(file):
            continue
        try:
            records.append(documents.read(file, "record", benchmark.parent))
        except UserError as error:
            damaged[file.parent.relative_to(benchmark).as_posix()].append(str(error))
    if len(machines := sorted({record.machine for record in records})) > 1:
        raise UserError(f"{benchmark.parent} holds records of several machines: {', '.join(machines)}")
    return records, dict(damaged)


def of_model(results: Path, machine: str, model: str) -> pd.DataFrame:
    """The cases of a model (`*`: of all) that have a record, as `read` wants them: KEY, `outcome` and `reason`.

    A record of a duel is none: a search's candidates have no other, and no study asks for them.
    """
    if model != "*":
        require_plain("model", model)
    folder = results / machine / "benchmark"
    cases = dict.fromkeys(
        Case.from_path(path.parent.relative_to(folder).as_posix())
        for path in sorted(folder.glob(f"{model}/*/*/*/*/r*.json"))
        if not _of_duel(path)
    )
    rows = [{"machine": machine, **dataclasses.asdict(case), "outcome": "run", "reason": ""} for case in cases]
    return frame_of(rows, [*KEY, "outcome", "reason"])


def exploded(*columns: str) -> Callable[[Callable[[Record], Iterator[Row]]], Callable[[pd.DataFrame], pd.DataFrame]]:
    """What gives the rows of a record becomes what gives those of all records, with the records' own columns."""

    def of_records(rows_in: Callable[[Record], Iterator[Row]]) -> Callable[[pd.DataFrame], pd.DataFrame]:
        def frame(records: pd.DataFrame) -> pd.DataFrame:
            rows = [
                {**dict(zip(RECORD_KEY, values, strict=True)), **row}
                for *values, record in records[[*RECORD_KEY, "record"]].itertuples(index=False, name=None)
                for row in rows_in(record)
            ]
            return frame_of(rows, [*RECORD_KEY, *columns])

        return frame

    return of_records


@exploded("boundary", "samples", "stopped_by", "settled", "not_measured")
def boundaries(record: Record) -> Iterator[Row]:
    """One row per round and boundary: `samples` (ns), `stopped_by`, `settled`.

    A boundary that was not measured keeps its row, with the reason in `not_measured` and no samples.
    """
    import numpy as np

    for boundary in BOUNDARIES:
        entry = getattr(record.boundaries, boundary, None) or NO_BOUNDARY
        if entry.samples_ns is not None:
            samples = np.asarray(entry.samples_ns, dtype=np.float64)
            facts = {"stopped_by": entry.stopped_by, "settled": entry.settled}
            yield {"boundary": boundary, "samples": samples, "not_measured": None, **facts}
        else:
            yield {"boundary": boundary, "samples": None, "not_measured": entry.not_measured}


@exploded("stage", "samples", "not_measured")
def stages(record: Record) -> Iterator[Row]:
    """One row per round and stage of end_to_end: `samples` (ns), or `not_measured` with the reason."""
    import numpy as np

    for stage in STAGES:
        entry = record.stages.get(stage, NO_STAGE)
        samples = None if entry.samples_ns is None else np.asarray(entry.samples_ns, dtype=np.float64)
        yield {"stage": stage, "samples": samples, "not_measured": entry.not_measured}


@exploded("check", "passed", "detail")
def checks(record: Record) -> Iterator[Row]:
    """One row per round and self-check: `check`, `passed`, `detail`; `passed` is None where it could not be made."""
    for name, check in record.checks.items():
        detail = check.not_measured if check.detail is None else check.detail
        yield {"check": name, "passed": check.passed, "detail": detail}


@exploded("mode", "inferences_per_s", "overlap", "not_measured")
def throughput(record: Record) -> Iterator[Row]:
    """One row per round and mode (back_to_back, pipelined): inferences per second, or `not_measured`.

    `inferences_per_s` = inferences / seconds; the batch is not multiplied in. `overlap`: see timing.add_pipelined.
    """
    for mode, entry in record.throughput.items():
        if entry.inferences is None or entry.seconds is None:
            yield {"mode": mode, "not_measured": entry.not_measured}
        else:
            rate = entry.inferences / entry.seconds
            yield {"mode": mode, "inferences_per_s": rate, "overlap": entry.overlap}


@exploded("load_ns", "first_inference_ns", "host_rss_bytes", "device_bytes")
def resources(record: Record) -> Iterator[Row]:
    """One row per record: first use (ns) and memory (bytes); None is "not measured"."""
    first, memory = record.first or First(), record.memory or Memory()
    starts = {"load_ns": first.load_ns, "first_inference_ns": first.first_inference_ns}
    yield {**starts, "host_rss_bytes": memory.host_rss_bytes, "device_bytes": memory.device_bytes}


def first_rounds(frame: pd.DataFrame) -> pd.DataFrame:
    """The row of each case's first round, of a frame with a row per record."""
    return frame.sort_values("round", kind="stable").drop_duplicates(KEY)


@exploded("took", "on_cpu", "not_measured", "steal_percent", "no_steal")
def hosts(record: Record) -> Iterator[Row]:
    """One row per record: the yardstick's readings, `took` and of that `on_cpu` (ns), or why there are none in
    `not_measured`; `steal_percent`, or why it is not known in `no_steal`."""
    host = record.host
    if host is None:
        yield {"not_measured": NO_YARDSTICK, "no_steal": NO_YARDSTICK}
        return
    stolen = {"steal_percent": host.steal.percent, "no_steal": host.steal.not_measured}
    yield {"took": host.yardstick_ns, "on_cpu": host.yardstick_cpu_ns, **stolen}


@exploded("h2d_bytes", "d2h_bytes")
def traffic(record: Record) -> Iterator[Row]:
    """One row per record: `h2d_bytes` of its inputs and `d2h_bytes` of its outputs; None where it lists none."""
    yield {"h2d_bytes": _bytes_of(record.inputs), "d2h_bytes": _bytes_of(record.outputs)}


def key_of(row: Mapping[str, Any]) -> Key:
    """The machine and the case of a row."""
    return tuple(row[name] for name in KEY)


def options_of(records: pd.DataFrame) -> Options:
    """As the records have them."""
    return {key_of(row): row["record"].options for row in rows_of(records)}


def paired_without(option: str, options: Options) -> dict[Key, list[Key]]:
    """Each case that has an option → the cases that are the same but lack it, in the order of `options`.

    The same: of one machine, model, precision, backend and shape, with equal other options whatever the variants are
    called. A case that has no paired case has no entry. An option that is given counts, also at its default.
    """
    lacking = grouped(
        ((_but_variant(key), but_for(option, given)), key) for key, given in options.items() if option not in given
    )
    return {
        key: lacking[same]
        for key, given in options.items()
        if option in given and (same := (_but_variant(key), but_for(option, given))) in lacking
    }


def but_for(option: str, given: Mapping[str, Any]) -> str:
    """A variant's options as text, without one: equal where variants differ in nothing else."""
    return json.dumps({name: value for name, value in given.items() if name != option}, sort_keys=True)


def _but_variant(key: Key) -> Key:
    return tuple(value for name, value in zip(KEY, key, strict=True) if name != "variant")


def rows_of(frame: pd.DataFrame) -> list[Row]:
    """The rows of a frame as mappings from column to value, as DataFrame.to_dict has them in thrice the time."""
    names = [str(name) for name in frame]
    columns = [_values(column) for _, column in frame.items()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pd.Series) -> list[Any]:
    """Those of a column, NumPy's numbers as Python's."""
    import numpy as np

    if isinstance(column.dtype, np.dtype) and column.dtype != object:
        plain: list[Any] = column.tolist()
        return plain
    return [value.item() if isinstance(value, np.generic) else value for value in column.to_numpy(object)]


def frame_of(rows: list[Row], columns: list[str]) -> pd.DataFrame:
    """A frame of Python objects: None stays None, samples stay arrays."""
    import pandas as pd

    frame = pd.DataFrame(rows, columns=columns, dtype=object)
    return frame.where(frame.notna(), None)


def _row(results: Path, path: Path, machine: str, case: Case) -> Row:
    number, file = path.stem[1:], path.relative_to(results).as_posix()
    row: Row = {**dict(zip(KEY, [machine, *case.path.parts], strict=True)), "file": file}
    try:
        record: Record = documents.read(path, "record", results)
    except UserError as error:
        reason = str(error).replace(str(path), file)
        return row | {"round": int(number) if number.isdecimal() else None, "status": DAMAGED, "reason": reason}
    return row | {"round": int(number), "status": record.status, "reason": record.failure, "record": record}


def _bytes_of(arrays: Mapping[str, Array]) -> int | None:
    import numpy as np

    if not arrays:
        return None
    sizes: list[int] = [math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in arrays.values()]
    return sum(sizes)
