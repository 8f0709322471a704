"""Files that are whole or not there: whatever stands at their path."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from inferprof.errors import SystemRefusal, as_user_error
from inferprof.files import write_text, written_whole


def test_a_link_stays_one_and_its_file_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "elsewhere/target.json", tmp_path / "link.json"
    link.symlink_to(target)
    for text in ("first", "second"):
        write_text(link, text)
        assert link.is_symlink() and target.read_text(encoding="utf-8") == text
    assert [path.name for path in target.parent.iterdir()] == ["target.json"]


def test_a_pipe_or_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    write_text(pipe, "through")
    reader.join(10)
    assert read == ["through"] and stat.S_ISFIFO(pipe.stat().st_mode)
    with written_whole(Path("/dev/null")) as path:
        assert path == Path("/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("name", ["", ".", "folder", "n" * 300, "link/x.json"])
def test_a_path_that_no_file_can_have_is_one_line_with_that_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("link").symlink_to("nowhere")
    with pytest.raises(SystemRefusal) as refused, as_user_error():
        write_text(Path(name), "x")
    assert ".partial" not in str(refused.value) and "\n" not in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link"]


def test_a_folder_that_takes_no_file_is_named_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: Path, *args: object, **kwargs: object) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    monkeypatch.setattr(Path, "write_text", refuses)
    with pytest.raises(SystemRefusal, match=r"x\.json: nothing"), as_user_error():
        write_text(tmp_path / "x.json", "x")
