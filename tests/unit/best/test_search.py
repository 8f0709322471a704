"""The search for the best case, with a machine that answers at once."""

from __future__ import annotations

import datetime
import itertools
import math
import statistics
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.unit import made_records
from tests.unit.facts import mentions, naming
from tests.unit.report.conftest import Results

from inferprof import documents, study
from inferprof.best import hand_over, search, space
from inferprof.case import LAST_DUELS, OF_DUELS, Case, Variant
from inferprof.diagnosis import frames, run
from inferprof.errors import UserError
from inferprof.machine.hardware import Gpu, Machine

BASELINE = "fp32/ort_cpu/default"
BOX = "cpu-sample-0123abcd"
RUN_S = 4
Speed = Callable[[Case], float]
"""A case → its latency in ms."""


def planned(repository: Path, **best: Any) -> study.Study:
    """A study of vit_tiny at b1 on a CPU of two threads."""
    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    keys = {"models": ["vit_tiny"], "backends": ["ort_cpu", "torch_eager", "ort_cuda"], "shapes": ["b1"]}
    given = {"budget_min": 1000, **best}
    machine = Machine(gpu=None, packages={"onnxruntime-gpu": "1.31.1", "torch": "2.11.0"}, label=BOX, threads=2)
    return study.plan({**content, **keys, "profilers": [], "best": given}, repository / "models", machine)


@pytest.fixture(autouse=True)
def advice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No diagnosis, which takes a second for each incumbent, unless a test is about it."""
    if "diagnosed" not in request.keywords:
        monkeypatch.setattr(frames, "load", lambda *_: None)
        monkeypatch.setattr(run, "answers", lambda _: [])


class Box:
    """Measures what is asked for."""

    def __init__(self, root: Path, speed: Speed, spread: float = 0.005, seed: int = 0) -> None:
        self.results, self.speed, self.spread, self.seed = Results(root), speed, spread, seed
        self.accuracies = {"fp16": "pass", "int8": "fail"}
        self.host: Callable[[Case, int], float] = lambda case, number: 1.0
        self.measured = 0
        self.operators: tuple[str, ...] = ("Conv", "MatMul", "Softmax", "Erf")

    def make(self, file: str) -> None:
        path = Path(file).relative_to(self.results.root)
        if path.parts[0] == "onnx":
            precision, *_, suffix = path.name.split(".")
            if suffix == "npz":
                self.results.write(str(path), {})
                return
            if path.name.endswith(".cost.json"):
                nodes = [{**made_records.NODE, "op": operator} for operator in self.operators]
                self.results.write(str(path), {**made_records.LEAST["cost"], "nodes": nodes})
                return
            self.results.accuracy("vit_tiny", precision, 10.0, self.accuracies[precision])
            return
        case, number = Case.from_path(path.parent.as_posix()), int(path.stem[1:])
        rng = np.random.default_rng([self.seed, zlib.crc32(path.as_posix().encode())])
        started = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=RUN_S)
        record = self.results.record(str(case), 0) | {"round": number, "started": started.isoformat()}
        ms = self.speed(case) * math.exp(rng.normal(0, self.spread)) * self.host(case, number)
        samples = 1e6 * ms * np.exp(rng.normal(0, 0.01, 100))
        readings = [round(1e6 * self.host(case, number))] * 8
        record["host"] = {"yardstick_ns": readings, "yardstick_cpu_ns": readings, "steal": {"percent": 0.0}}
        record["boundaries"] = {"end_to_end": {"samples_ns": [round(s) for s in samples]}}
        record["inputs"] = {"pixel_values": {"shape": [1, 3, 224, 224], "dtype": "float32"}}
        self.results.write(str(path), record)
        self.measured += 1

    def search(self, of: study.Study) -> documents.Trail:
        """The search to its end."""
        for _ in range(100):
            trail = search.Search(of, self.results.root, "vit_tiny").advance()
            if trail.ended:
                return trail
            assert trail.asked
            for file in trail.asked:
                self.make(file)
        raise AssertionError("the search does not end")


def two_wins(case: Case) -> float:
    """Two options of ONNX Runtime gain on their own and together; torch is slower."""
    ms = 10.0 if case.backend == "ort_cpu" else 14.0
    ms *= 0.8 if "threads=1" in case.variant else 1.0
    return ms * (0.85 if "spinning=false" in case.variant else 1.0)


def test_an_option_for_operators_that_the_graph_lacks_is_not_measured(repository: Path, tmp_path: Path) -> None:
    box = Box(tmp_path, lambda case: 10.0)
    box.operators = ("MatMul",)
    trail = box.search(planned(repository))
    of_gelu = [step for step in trail.steps if "gelu_approximation" in step.candidate]
    assert of_gelu and all((step.decision, step.rounds) == ("dropped", 0) for step in of_gelu)
    assert all("no Erf or Gelu" in step.reason for step in of_gelu)
    assert not list(tmp_path.glob("**/*gelu_approximation*/**/r*.json"))
    assert list(tmp_path.glob("**/*spinning=false*/**/r*.json"))


def test_what_surely_saves_much_is_taken_before_other_options_are_measured(repository: Path, tmp_path: Path) -> None:
    box = Box(tmp_path, lambda case: 5.0 if "one" in case.variant or "threads=1" in case.variant else 10.0)
    of = planned(repository)
    content = {**of.config, "variants": [{"name": "default"}, {"name": "one", "threads": 1}]}
    trail = box.search(study.plan(content, repository / "models", of.machine))
    kept = [step.candidate for step in trail.steps if step.decision == "kept"]
    assert kept == ["fp32/ort_cpu/one"]
    assert not list(tmp_path.glob("**/ort_cpu/spinning=false/**/r*.json"))
    assert list(tmp_path.glob("**/ort_cpu/spinning=false+threads=1/**/r*.json"))


def test_two_gains_end_in_one_case_that_new_rounds_confirm(repository: Path, tmp_path: Path) -> None:
    box = Box(tmp_path, two_wins)
    trail = box.search(planned(repository))
    assert trail.best == "fp32/ort_cpu/spinning=false+threads=1"
    assert trail.options == {"spinning": False, "threads": 1}
    assert [s.candidate for s in trail.steps if s.decision == "kept"] == [trail.best]
    last = trail.steps[-1]
    assert (last.incumbent, last.candidate, last.decision) == (BASELINE, trail.best, "confirmed")
    assert last.gain == pytest.approx(1 - 0.8 * 0.85, abs=0.02)
    assert trail.low_ns is not None and trail.high_ns is not None
    assert trail.low_ns < 6.8e6 < trail.high_ns < 7.2e6
    assert trail.ended == "nothing promises more"


def test_a_format_comes_first_and_then_all_options_at_once_that_gain_in_it(repository: Path, tmp_path: Path) -> None:
    def half_wins(case: Case) -> float:
        arena = 0.9 if "arena=false" in case.variant and case.precision == "fp16" else 1.0
        return two_wins(case) * arena * (0.5 if case.precision == "fp16" else 1.0)

    trail = Box(tmp_path, half_wins).search(planned(repository))
    assert [s.candidate for s in trail.steps if s.decision == "kept"] == [
        "fp16/ort_cpu/default",
        "fp16/ort_cpu/arena=false+spinning=false+threads=1",
    ]
    assert not [s for s in trail.steps if s.rounds and s.candidate.startswith("fp32/ort_cpu")]


def test_another_runtime_is_looked_at_with_options_of_its_own(repository: Path, tmp_path: Path) -> None:
    def torch_alone(case: Case) -> float:
        ms = 10.0 if case.backend == "ort_cpu" else 13.0
        return ms * (0.6 if case.backend == "torch_eager" and "memory_format" in case.variant else 1.0)

    trail = Box(tmp_path, torch_alone).search(planned(repository))
    assert trail.best == "fp32/torch_eager/memory_format=channels_last"
    assert trail.steps[-1].decision == "confirmed"


def test_gains_that_do_not_go_together_are_still_tried_each_by_itself(repository: Path, tmp_path: Path) -> None:
    def rivals(case: Case) -> float:
        both = {"arena=false", "spinning=false"} <= {*case.variant.split("+")}
        return two_wins(case) * (0.9 if "arena=false" in case.variant else 1.0) * (1.5 if both else 1.0)

    trail = Box(tmp_path, rivals).search(planned(repository))
    assert (trail.best, trail.steps[-1].decision) == ("fp32/ort_cpu/spinning=false+threads=1", "confirmed")


def test_an_inaccurate_format_and_what_the_machine_lacks_are_dropped_unmeasured(
    repository: Path, tmp_path: Path
) -> None:
    def quick_int8(case: Case) -> float:
        return 1.0 if case.precision == "int8" else 10.0

    trail = Box(tmp_path, quick_int8).search(planned(repository))
    steps = {step.candidate: step for step in trail.steps}
    for candidate, reason in (("int8/ort_cpu/default", "accuracy"), ("fp32/ort_cuda/default", "refused")):
        assert (steps[candidate].decision, steps[candidate].rounds) == ("dropped", 0)
        assert steps[candidate].reason.partition(":")[0] == reason
    assert trail.best == BASELINE
    assert not list(tmp_path.glob("**/benchmark/vit_tiny/int8/**/*.json"))


def test_it_goes_on_where_it_was_interrupted_and_measures_nothing_twice(repository: Path, tmp_path: Path) -> None:
    box, of = Box(tmp_path, two_wins), planned(repository)
    whole = Box(tmp_path / "whole", two_wins).search(of)
    for _ in range(3):
        for file in search.Search(of, box.results.root, "vit_tiny").advance().asked[:3]:
            box.make(file)
    trail = box.search(of)
    assert (trail.best, trail.ended) == (whole.best, whole.ended)
    assert box.measured == len(list(tmp_path.glob(f"{BOX}/benchmark/**/r*.json")))
    again = search.Search(of, box.results.root, "vit_tiny").advance()
    assert (again.ended, again.asked, again.steps) == (trail.ended, [], trail.steps)


def test_it_stops_within_its_budget_and_says_so(repository: Path, tmp_path: Path) -> None:
    box, minutes = Box(tmp_path, two_wins), 2.5
    trail = box.search(planned(repository, budget_min=minutes))
    assert trail.ended == "budget"
    assert trail.spent_s is not None and trail.spent_s <= 60 * minutes + 2
    assert box.measured <= 60 * minutes / RUN_S


def test_where_time_is_scarce_two_rounds_tell_first_what_the_others_will_take(
    repository: Path, tmp_path: Path
) -> None:
    box, of = Box(tmp_path, two_wins), planned(repository, budget_min=1.2)
    for file in search.Search(of, tmp_path, "vit_tiny").advance().asked:
        box.make(file)
    assert len(search.Search(of, tmp_path, "vit_tiny").advance().asked) == 2


def test_what_gains_nothing_costs_few_rounds_and_none_on_top_of_a_winner(repository: Path, tmp_path: Path) -> None:
    def one_wins(case: Case) -> float:
        ms = 10.0 if case.backend == "ort_cpu" else 14.0
        return ms * (0.7 if "threads=1" in case.variant else 1.0)

    box = Box(tmp_path, one_wins)
    trail = box.search(planned(repository))
    candidates = {step.candidate for step in trail.steps if step.rounds}
    assert trail.best == "fp32/ort_cpu/threads=1"
    duels = [step for step in trail.steps if step.decision in ("kept", "confirmed")]
    assert [step.rounds for step in duels] == [4, 4]
    # whole rounds of two incumbents, two duels, and beside each incumbent 3 rounds of each candidate at most
    assert box.measured <= 2 + 2 * 2 * 4 + 2 * 3 * (1 + len(candidates))


def test_gains_below_the_tolerance_are_left(repository: Path, tmp_path: Path) -> None:
    def small(case: Case) -> float:
        return 9.6 if "spinning=false" in case.variant else 10.0 if case.variant == "default" else 13.0

    trail = Box(tmp_path, small, spread=0.001).search(planned(repository, tolerance=0.2))
    assert (trail.ended, trail.best) == ("tolerance", BASELINE)


def test_copies_of_the_baseline_are_not_taken_for_better(repository: Path, tmp_path: Path) -> None:
    kept = 0
    for seed in range(2):
        box = Box(tmp_path / str(seed), lambda case: 10.0, spread=0.02, seed=seed)
        kept += sum(step.decision == "kept" for step in box.search(planned(repository)).steps)
    assert kept == 0


def test_a_case_whose_job_broke_is_dropped_and_one_that_was_interrupted_is_asked_for_again(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    box, of = Box(Path("results"), two_wins), planned(repository)
    for file in search.Search(of, Path("results"), "vit_tiny").advance().asked:  # the baseline, and what formats lose
        box.make(file)
    wanted = search.Search(of, Path("results"), "vit_tiny").advance().asked
    broken, interrupted = [file for file in wanted if BASELINE not in file][:2]
    for file, line in (
        (broken, "inferprof: ended by SIGSEGV; its stack is above"),
        (interrupted, "inferprof: Measure x: load (1 of 5), 3 s"),
    ):
        log = Path("results/log", *Path(file).parts[1:]).with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(line + "\n", encoding="utf-8")
    asked = search.Search(of, Path("results"), "vit_tiny").advance().asked
    assert set(wanted) - set(asked) == {broken}
    trail = box.search(of)
    dropped = {step.candidate for step in trail.steps if step.decision == "dropped"}
    assert "/".join(Path(broken).parts[-5:-2]) in dropped


def test_what_the_host_slowed_down_on_a_gpu_is_measured_again_before_it_is_judged(
    repository: Path, tmp_path: Path
) -> None:
    def slowed_once(case: Case, number: int) -> float:
        return 2.0 if case.variant == "tf32=true" and number % OF_DUELS == 1 and number < LAST_DUELS else 1.0

    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    keys = {
        "models": ["vit_tiny"],
        "backends": ["ort_cuda"],
        "precisions": ["fp32"],
        "shapes": ["b1"],
        "profilers": [],
    }
    gpu = Gpu("NVIDIA H200", (9, 0), None, "GPU-1", "580.1")
    machine = Machine(gpu=gpu, packages={"onnxruntime-gpu": "1.31.1"}, label=BOX, threads=2)
    given = {**content, **keys, "baseline": "fp32/ort_cuda/default", "best": {"budget_min": 1000}}
    box = Box(tmp_path, lambda case: 7.0 if "tf32" in case.variant else 10.0)
    box.host = slowed_once
    trail = box.search(study.plan(given, repository / "models", machine))
    assert (trail.best, trail.steps[-1].decision) == ("fp32/ort_cuda/tf32=true", "confirmed")


def test_a_baseline_that_cannot_run_is_the_users_to_mend(repository: Path, tmp_path: Path) -> None:
    of = planned(repository)
    of.config["baseline"] = "fp32/ort_cuda/default"  # type: ignore[index]
    with pytest.raises(UserError, match=naming("fp32/ort_cuda/default", "no GPU")):
        search.Search(of, tmp_path, "vit_tiny").advance()


def test_per_item_a_larger_batch_is_a_change_and_its_time_counts_by_the_item(
    repository: Path, tmp_path: Path
) -> None:
    def by_batch(case: Case) -> float:
        return {"b1": 10.0, "b8": 40.0, "b64": 640.0}[case.shape]

    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    keys = {"models": ["vit_tiny"], "backends": ["ort_cpu"], "precisions": ["fp32"], "profilers": []}
    machine = Machine(gpu=None, packages={"onnxruntime-gpu": "1.31.1"}, label=BOX, threads=2)
    given = {**content, **keys, "shapes": ["b1", "b8", "b64"], "best": {"budget_min": 1000, "per": "item"}}
    of = study.plan(given, repository / "models", machine)
    trail = Box(tmp_path, by_batch).search(of)
    assert (trail.best, trail.per) == (f"{BASELINE}/b8", "item")
    assert trail.steps[-1].decision == "confirmed" and trail.steps[-1].gain == pytest.approx(0.5, abs=0.02)
    assert trail.median_ns == pytest.approx(5e6, rel=0.05)
    assert "for each of 8 items" in hand_over.program(of, tmp_path, trail, tmp_path / "p.py")
    call = study.plan({**given, "best": {"budget_min": 1000}}, repository / "models", machine)
    begin = space.baseline(call, "vit_tiny", "b1")
    assert {spot.case.shape for spot in space.neighbours(call, begin, [])} == {"b1"}


def test_what_the_baseline_began_with_is_a_change_to_take_back(repository: Path, tmp_path: Path) -> None:
    content = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))
    variants = [{"name": "default"}, {"name": "lean", "arena": False, "memory_pattern": False}]
    keys = {"models": ["vit_tiny"], "backends": ["ort_cpu"], "shapes": ["b1"], "profilers": [], "variants": variants}
    machine = Machine(gpu=None, packages={"onnxruntime-gpu": "1.31.1"}, label=BOX, threads=2)
    given = {**content, **keys, "baseline": "fp32/ort_cpu/lean", "precisions": ["fp32"]}
    of = study.plan(given, repository / "models", machine)
    begin = space.baseline(of, "vit_tiny", "b1")
    names = {spot.case.variant for spot in space.neighbours(of, begin, [])}
    assert {"memory_pattern=false", "arena=false"} <= names
    won = space.Spot(begin.case, Variant.spelled({"spinning": False, "threads": 1}), "b1")
    assert not {spot.case.variant for spot in space.neighbours(of, won, [])} & {"spinning=false", "threads=1"}


def test_the_program_has_the_winners_settings_and_imports_nothing_of_ours(repository: Path, tmp_path: Path) -> None:
    box, of = Box(tmp_path, two_wins), planned(repository)
    trail = box.search(of)
    text = hand_over.program(of, tmp_path, trail, tmp_path / BOX / "best/vit_tiny.py")
    compile(text, "vit_tiny.py", "exec")
    assert "import inferprof" not in text and "from inferprof" not in text
    assert "options.intra_op_num_threads = 1\n" in text
    assert 'options.add_session_config_entry("session.intra_op.allow_spinning", "0")' in text
    assert 'Path(__file__).resolve().parent / "../../onnx/vit_tiny/fp32.onnx"' in text


def test_without_a_search_the_program_has_the_median_of_all_rounds_of_the_study(
    repository: Path, tmp_path: Path
) -> None:
    box, of = Box(tmp_path, lambda _: 5.0, spread=0.2), planned(repository)
    search_of = search.Search(of, tmp_path, "vit_tiny")
    with pytest.raises(UserError, match=naming("--program", "vit_tiny", "not measured")):
        hand_over.program(of, tmp_path, search_of.advance(), tmp_path / "p.py")
    rounds = search_of.rounds
    for number in range(3):
        box.make(rounds.file(search_of.baseline, number))
    trail = search.Search(of, tmp_path, "vit_tiny").advance()
    samples = [rounds.samples(search_of.baseline, number) for number in range(3)]
    assert trail.ended is None and trail.median_ns == statistics.median(itertools.chain(*samples))
    assert abs(trail.median_ns - statistics.median(samples[0])) > 1e4
    text = hand_over.program(of, tmp_path, trail, tmp_path / "p.py")
    assert mentions(text, "not chosen by a search", f"{trail.median_ns / 1e6:.4g} ms")
