"""Plug-ins: found in the folder of their kind, and in the files that INFERPROF_PLUGINS names."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from inferprof import config as configs
from inferprof import contract, diagnosis, plugins, registry
from inferprof.errors import UserError
from inferprof.report.section import sections
from inferprof.tables import roofs
from inferprof.tables.trace import kernel_class

CHECK = """
from inferprof.findings import Clear, Threshold
from inferprof.plugins import Check

LIMIT = Threshold("made_up_limit", 1.0, "%", "ours")


def run(frames):
    return Clear("nothing")


ASKED = Check(name={name!r}, title="Made up", level="host", needs=(), run=run)
"""

RECEIVE = """
import os, pickle, sys
from inferprof import registry
registry.load_outside(os.environ[registry.OUTSIDE])
print(pickle.load(sys.stdin.buffer)(None).reason)
"""


def file_of(folder: Path, name: str, text: str = CHECK) -> Path:
    """A Python file with a check of that name."""
    path = folder / f"{name}.py"
    path.write_text(text.format(name=name))
    return path


def use(monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
    monkeypatch.setenv(registry.OUTSIDE, os.pathsep.join(str(file) for file in files))


def test_files_outside_the_package_add_plug_ins_of_each_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, limits = registry.checks(), registry.thresholds()
    use(monkeypatch, file_of(tmp_path, "made_up"))
    assert set(registry.checks()) - set(before) == {"made_up"}
    assert set(registry.thresholds()) - set(limits) == {"made_up_limit"}
    monkeypatch.delenv(registry.OUTSIDE)
    assert registry.checks() == before


def test_a_module_in_the_folder_of_a_package_is_all_that_a_plug_in_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_of(tmp_path, "in_the_folder")
    monkeypatch.setattr(diagnosis, "__path__", [*diagnosis.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "inferprof.diagnosis.in_the_folder", raising=False)
    assert "in_the_folder" in registry.checks()


def test_several_files_may_have_one_name_in_different_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    first = file_of(tmp_path, "first")
    second = file_of(tmp_path, "second").rename(tmp_path / "a/first.py")
    use(monkeypatch, first, second)
    assert {"first", "second"} <= set(registry.checks())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("absent", None),
        ("broken", "import nowhere_at_all"),
        ("unfinished", "def f(:"),
        ("leaving", "raise SystemExit(0)"),
        ("of_lines", "raise ValueError('one\\ntwo')"),
        ("without_any", "CHECK = 'a check'"),
        ("launch_bound", CHECK),
    ],
)
def test_a_file_that_cannot_be_used_is_the_users_to_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | None
) -> None:
    path = tmp_path / f"{name}.py" if text is None else file_of(tmp_path, name, text)
    use(monkeypatch, path)
    with pytest.raises(UserError, match=name) as refused:
        registry.checks()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("level", "'cpu'", "'transfer'"),
        ("needs", "'gpu'", "'timeline'"),
        ("needs", "('gpus',)", "'ranks'"),
        ("run", "None", "a function"),
        ("run", "lambda: []", "Callable[[Frames]"),
        ("run", "lambda frames, more: []", "Callable[[Frames]"),
        ("name", "'a|b'", "letters, digits"),
        ("title", "3", "str"),
    ],
)
def test_a_plug_in_whose_field_is_wrong_is_refused_by_its_name_with_what_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, value: str, allowed: str
) -> None:
    path = file_of(tmp_path, "wrong", CHECK + f"object.__setattr__(ASKED, {field!r}, {value})\n")
    use(monkeypatch, path)
    for kind in (registry.checks, registry.backends):  # also by a verb that asks for no check
        with pytest.raises(UserError) as refused:
            kind()
        assert all(part in str(refused.value) for part in (str(path), "Check ASKED", field, allowed))


def test_every_plug_in_of_the_package_is_as_declared() -> None:
    kinds = (registry.backends, registry.quantizers, registry.precisions, registry.profilers, registry.plots)
    every = [one for kind in (*kinds, sections, registry.checks, registry.thresholds) for one in kind().values()]
    assert len(every) > 200 and not any(map(contract.broken, every))


def test_a_function_of_such_a_file_reaches_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, file_of(tmp_path, "sent"))
    run = registry.checks()["sent"].run
    done = subprocess.run([sys.executable, "-c", RECEIVE], input=pickle.dumps(run), capture_output=True, check=True)
    assert done.stdout.decode().strip() == "nothing"


def test_every_kind_of_plug_in_has_some() -> None:
    kinds = (registry.backends, registry.quantizers, registry.precisions, registry.profilers, registry.plots)
    assert all(kind() for kind in (*kinds, sections, registry.checks, registry.thresholds))
    assert all(isinstance(backend, plugins.Backend) for backend in registry.backends().values())


def test_the_profilers_that_tell_the_same_stand_in_the_order_in_which_they_speak() -> None:
    assert registry.tracers() == ("nsys", "kineto")
    assert registry.counters() == ("ncu",)
    assert registry.sessions() == ("ort_nodes", "ort_nodes_kineto", "ort_profile")
    assert registry.joining("layer") == ("trt_nodes",)
    assert registry.joining("node", "module") == ("ort_nodes", "ort_nodes_kineto", "torch_nodes")
    joins = ("trt_nodes", "ort_nodes", "ort_nodes_kineto", "torch_nodes")
    assert registry.timing() == (*joins, "nsys", "kineto", "trt_layers")


def test_a_number_format_names_ceilings_types_and_formats_of_kernels_that_exist() -> None:
    formats = registry.precisions().values()
    assert {described.storage for described in formats} <= set(roofs.KINDS)
    assert all(roofs.KINDS[described.storage] == described.roof for described in formats)
    assert {described.computes for described in formats} <= set(get_args(kernel_class.DType))
    assert [described.name for described in formats if described.plain] == ["fp16", "bf16"]


BACKEND = """
from inferprof.allowed import YES_NO, Option
from inferprof.backends.ort import ORT_CPU
from dataclasses import replace

{name} = replace(ORT_CPU, name="{name}", options={{"made_up": Option("does nothing", YES_NO)}})
"""


def test_an_option_of_a_backend_is_declared_in_the_backends_module_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, file_of(tmp_path, "mine", BACKEND))
    assert registry.options_of(registry.backends()["mine"]).keys() == {"made_up"}
    variant = configs.variants([{"name": "tried", "made_up": True}])["tried"]
    assert variant.options == {"made_up": True}
