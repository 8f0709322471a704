from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.facts import facts
from tests.unit.tuning_records import choice
from tests.unit.tuning_records import records_of as of

from inferprof.tables.records import rows_of
from inferprof.tables.tuning import best_known, choices, config_name, elsewhere, running, trials

B64 = ("tuned", "b64", [choice(64, {"small": 20.0, "wide": 30.0, "large": None})])
B512 = ("tuned", "b512", [choice(512, {"small": 90.0, "wide": 50.0, "large": 60.0})])


def test_each_trial_is_compared_with_the_fastest_of_its_choice() -> None:
    found = trials(of(B64))
    assert [facts(text) for text in found["config"].tolist()] == [
        ["M64", "N64", "K64", "w4", "s3"],
        ["M64", "N256", "K64", "w8", "s3"],
        ["M128", "N128", "K64", "w4", "s3"],
    ]
    assert found["median_ns"].tolist() == [20_000.0, 30_000.0, None]
    assert found["relative"].tolist() == [1.0, 1.5, None]
    assert found["won"].tolist() == [True, False, False]
    assert found["waves"].tolist() == [0.25, 0.25, None]


def test_a_choice_says_what_it_took_and_what_the_others_cost() -> None:
    (row,) = rows_of(choices(of(B512)))
    assert facts(row["config"]) == ["M64", "N256", "K64", "w8", "s3"]
    assert (row["source"], row["offered"], row["tried"], row["failed"]) == ("tried", 5, 3, 0)
    assert (row["seconds"], row["compile_s"], row["compiled"], row["first_share"]) == (6.0, 4.5, 3, 0.75)
    assert (row["second"], row["typical"], row["worst"]) == (1.2, 1.2, 1.8)


def test_what_did_not_run_counts_as_failed_and_costs_nothing_else() -> None:
    (row,) = rows_of(choices(of(B64)))
    assert (row["tried"], row["failed"], row["worst"]) == (3, 1, 1.5)


def test_a_choice_of_one_has_no_others() -> None:
    (row,) = rows_of(choices(of(("reused", "b512", [choice(512, {"small": 90.0}, "remembered")]))))
    assert (row["median_ns"], row["second"], row["typical"], row["worst"]) == (90_000.0, None, None, None)


def test_records_without_tuning_have_no_choices() -> None:
    assert choices(of(("plain", "b1", []))).empty
    assert trials(of(("plain", "b1", []))).empty


def test_a_winner_costs_more_at_another_shape_and_it_is_said_how_much() -> None:
    found = rows_of(elsewhere(trials(of(B64, B512))))
    assert [(row["shape"], row["config"], row["at_shape"], row["relative"]) for row in found] == [
        ("b64", "M64 N64 K64 w4 s3", "b512", 1.8),
        ("b512", "M64 N256 K64 w8 s3", "b64", 1.5),
    ]


def test_of_several_choices_at_one_size_the_first_counts() -> None:
    again = ("shipped", "b512", [choice(512, {"small": 80.0, "wide": 50.0})])
    found = rows_of(elsewhere(trials(of(B64, B512, again))))
    assert [(row["variant"], row["shape"], row["at_variant"], row["relative"]) for row in found] == [
        ("tuned", "b64", "tuned", 1.8),
        ("tuned", "b512", "tuned", 1.5),
        ("shipped", "b512", "tuned", 1.5),
    ]


def test_a_winner_that_was_not_tried_elsewhere_costs_nobody_knows_what() -> None:
    b512 = ("tuned", "b512", [choice(512, {"wide": 50.0, "large": 40.0})])
    costs = {row["shape"]: row["relative"] for row in rows_of(elsewhere(trials(of(B64, b512))))}
    assert costs == {"b64": None, "b512": None}


def test_the_best_known_trial_may_be_anybodys_and_those_that_run_it_are_known() -> None:
    reused = ("reused", "b512", [choice(512, {"wide": 49.0}, "remembered")])
    found = trials(of(B64, B512, reused))
    key = json.dumps(B512[2][0]["key"])
    best = best_known(found, "gemm_kernel", key)
    assert best is not None
    assert (best["variant"], best["median_ns"]) == ("reused", 49_000.0)
    assert [row["variant"] for row in running(found, best)] == ["tuned", "reused"]
    assert best_known(found, "other_kernel", key) is None


@pytest.mark.parametrize(
    "other",
    [
        choice(512, {"small": 1.0, "wide": 2.0}, kernel="other_kernel"),
        choice(512, {"small": 1.0, "wide": 2.0}, key={"M": 512, "N": 14336, "K": 4096, "dtypes": ["torch.float16"]}),
        choice(512, {"small": 1.0}, "remembered"),
    ],
    ids=["another kernel", "another layer", "not chosen among several"],
)
def test_only_choices_of_one_kernel_that_differ_in_the_size_are_compared(other: dict[str, Any]) -> None:
    assert elsewhere(trials(of(B64, ("tuned", "b512", [other])))).empty


def test_a_configuration_is_named_by_what_does_not_go_without_saying() -> None:
    config = {"BLOCK_SIZE_M": 16, "SPLIT_K": 4, "GROUP_SIZE_M": 8, "A_load_order": 2, "EVEN_N": True}
    assert facts(config_name({**config, "num_warps": 4, "num_stages": 5, "num_ctas": 1})) == [
        "M16",
        "split4",
        "g8",
        "a2",
        "w4",
        "s5",
    ]
    assert config_name({"NUM_STAGES": 4, "num_stages": 2}) == "NUM_STAGES=4 s2"
    assert config_name({"BLOCK": 1024, "maxnreg": 64}) == "BLOCK=1024 maxnreg=64"
