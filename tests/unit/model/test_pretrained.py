from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.unit.facts import mentions, naming

from inferprof.errors import UserError
from inferprof.model import pretrained
from inferprof.model.model_spec import InputSpec, ModelSpec

REVISION = "c" * 40
HUB = {"repository": "owner/model", "revision": REVISION}


class FakeHub(ModuleType):
    """A hub with a local cache; `reachable` decides whether it answers."""

    def __init__(self, folder: Path, cached: bool, reachable: bool) -> None:
        super().__init__("huggingface_hub")
        self.folder, self.cached, self.reachable = folder, cached, reachable
        self.asked: list[str] = []

    def HfApi(self) -> FakeHub:
        return self

    def model_info(self, repository: str, revision: str, timeout: float) -> None:
        self.asked.append("hub")
        if not self.reachable:
            raise ConnectionError("no route")

    def snapshot_download(self, repository: str, local_files_only: bool, **options: Any) -> str:
        if local_files_only and not self.cached:
            raise FileNotFoundError("not cached")
        return str(self.folder)


def model(folder: Path, weights: bytes = b"weights", tokenizer: bool = True) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    if tokenizer:
        (folder / "tokenizer.json").write_text("{}")
    return folder


def spec(**options: str) -> ModelSpec:
    return ModelSpec("m", Path("models/m.yaml"), "transformers", (InputSpec("x", "int64", ("b",)),), options)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    model(tmp_path / "site" / "carries_a_model" / "model", b"packaged")
    (tmp_path / "site" / "carries_a_model" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    return "carries_a_model"


def hub(monkeypatch: pytest.MonkeyPatch, folder: Path, cached: bool, reachable: bool) -> FakeHub:
    fake = FakeHub(folder, cached, reachable)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    return fake


def test_the_cache_comes_first_and_the_hub_is_not_asked(tmp_path, monkeypatch, package):
    fake = hub(monkeypatch, model(tmp_path / "hub"), cached=True, reachable=True)
    found = pretrained.weights(spec(**HUB, package=package))
    assert found.origin == f"hub owner/model@{REVISION}"
    assert found.weights == [tmp_path / "hub" / "model.safetensors"]
    assert fake.asked == []


def test_weights_come_from_the_hub_before_the_package(tmp_path, monkeypatch, package):
    hub(monkeypatch, model(tmp_path / "hub"), cached=False, reachable=True)
    assert pretrained.weights(spec(**HUB, package=package)).origin == f"hub owner/model@{REVISION}"


def test_without_a_hub_the_package_gives_the_weights(tmp_path, monkeypatch, package):
    hub(monkeypatch, tmp_path, cached=False, reachable=False)
    found = pretrained.weights(spec(**HUB, package=package))
    assert found.origin == "package carries_a_model"
    assert found.weights[0].read_bytes() == b"packaged"


def test_a_snapshot_without_weights_does_not_count(tmp_path, monkeypatch, package):
    (tmp_path / "hub").mkdir()
    hub(monkeypatch, tmp_path / "hub", cached=True, reachable=False)
    assert pretrained.weights(spec(**HUB, package=package)).origin == "package carries_a_model"


def test_the_tokenizer_comes_from_the_package_before_the_hub(tmp_path, monkeypatch, package):
    fake = hub(monkeypatch, model(tmp_path / "hub"), cached=False, reachable=True)
    found = pretrained.tokenizer(spec(**HUB, package=package))
    assert found is not None and found.parent.parent.name == "carries_a_model"
    assert fake.asked == []


def test_a_model_that_names_no_files_has_no_tokenizer():
    assert pretrained.tokenizer(spec()) is None


def test_files_that_cannot_be_had_are_refused_with_what_was_tried(tmp_path, monkeypatch):
    hub(monkeypatch, tmp_path, cached=False, reachable=False)
    with pytest.raises(UserError) as caught:
        pretrained.weights(spec(**HUB, package="not_installed_at_all"))
    assert mentions(
        str(caught.value),
        "model m",
        "cache: FileNotFoundError",
        "hub: ConnectionError",
        "package: not_installed_at_all",
        "package: in models/m.yaml",
    )


def test_other_weights_than_the_pinned_ones_are_refused(package):
    right = hashlib.sha256(b"packaged").hexdigest()
    assert pretrained.weights(spec(package=package, sha256=right)).weights
    with pytest.raises(UserError, match=naming("SHA-256", str(right), "models/m.yaml", "0" * 64)):
        pretrained.weights(spec(package=package, sha256="0" * 64))
