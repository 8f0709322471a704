"""What each column of a tidy table means, as a check of one case's table, and a table as it was before."""

from __future__ import annotations

import pandas as pd

from inferprof.tables import schema
from inferprof.tables.metrics import METRICS
from inferprof.tables.trace.timeline import KINDS, PATH_SEPARATOR

JOINS = ("ort_nodes", "ort_nodes_kineto", "trt_nodes")
LAUNCHED = ("kernel", "memcpy", "memset", "graph")
NUMBERED = ("kernel", "launch_config", "ncu_rule", "event")
"""Levels whose rows `launch` may tell apart."""


def check_columns(frame: pd.DataFrame) -> None:
    """Raises AssertionError where a column of one case's table means another thing in some of its rows."""
    assert list(frame) == list(schema.COLUMNS)
    assert frame["tool"].nunique() == 1
    assert (frame["value"].isna() != frame["text"].isna()).all()
    assert (frame["unit"] == frame["metric"].map({name: metric.unit for name, metric in METRICS.items()})).all()
    assert set(frame.loc[frame["launch"].notna(), "level"]) <= set(NUMBERED)
    check_ranges(frame)
    check_owners(frame)
    events = frame[frame["level"] == "event"]
    kinds = events[events["metric"] == "event_kind"]
    assert set(kinds["text"]) <= {*KINDS, "api", "range"}
    assert set(kinds["launch"]) == set(events["launch"])


def check_ranges(frame: pd.DataFrame) -> None:
    """`range` is the path of a range of this table; ncu has no rows of ranges."""
    rows = frame[frame["level"] == "range"]
    around = rows["range"].fillna("") + PATH_SEPARATOR
    paths = set((around.where(rows["range"].notna(), "") + rows["name"]).unique())
    if frame["tool"].iloc[0] == "ncu":
        assert set(frame.loc[frame["range"].notna(), "level"]) <= {"kernel"}
    else:
        assert set(frame["range"].dropna()) <= paths


def check_owners(frame: pd.DataFrame) -> None:
    """`owner` is a node or layer of this table (of a launch), provider and type (of a node), a kernel (of a rule)."""
    tool, owned = frame["tool"].iloc[0], frame[frame["owner"].notna()]
    assert set(owned["level"]) <= {"op", "ncu_rule", *(LAUNCHED if tool in JOINS else ())}
    nodes = owned[owned["level"] == "op"]
    assert nodes["owner"].str.fullmatch(r"\w+ExecutionProvider > \w+").all()
    assert set(owned.loc[owned["level"] == "ncu_rule", "owner"]) <= set(frame.loc[frame["level"] == "kernel", "name"])
    launches = owned.loc[owned["level"].isin(LAUNCHED), "owner"]
    if tool == "trt_nodes":
        layers = set(frame.loc[frame["level"] == "layer", "name"])
        assert set(launches.str.split(PATH_SEPARATOR, n=1, regex=False).str[0]) <= layers
    else:
        assert set(launches) <= set(nodes["owner"] + PATH_SEPARATOR + nodes["name"])


def earlier(frame: pd.DataFrame) -> pd.DataFrame:
    """The table as it was written before `range` and `owner`; joins told the owner of a launch and no range."""
    events = frame["level"] == "event"
    kinds = frame[frame["metric"] == "event_kind"].set_index("launch")["text"]
    parent = frame["owner"].fillna(frame["range"]).mask(events, frame["launch"].map(kinds))
    if frame["tool"].iloc[0] in JOINS:
        parent = parent.where(~frame["level"].isin(LAUNCHED) | frame["owner"].notna())
    return frame.assign(parent=parent).drop(columns=["range", "owner"])[frame["metric"] != "event_kind"]
