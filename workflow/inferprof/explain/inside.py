"""Records inside a program that knows nothing of it: Kineto around torch, ONNX Runtime's profile of each session.

`watch` puts a copy of this file on the program's PYTHONPATH as `sitecustomize`, which Python imports at its start. It
needs the standard library alone, acts when torch or onnxruntime is imported, and writes when the program ends.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.machinery
import importlib.util
import os
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("INFERPROF_WATCH_FOLDER", "")
MODULES = os.environ.get("INFERPROF_WATCH_MODULES", "").split(",")


class _After:
    """A finder of modules that calls a function behind the first import of each of some modules."""

    def __init__(self, calls: dict[str, Callable[[Any], None]]) -> None:
        self.calls = calls

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec that the other finders have, with the call behind its execution; None for all other modules."""
        call = self.calls.pop(name, None)
        spec = importlib.util.find_spec(name) if call else None
        if call is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_call(module: Any) -> None:
            execute(module)
            with contextlib.suppress(Exception):  # the program is not ours to break
                call(module)

        spec.loader.exec_module = execute_and_call  # type: ignore[method-assign]
        return spec


def record_torch(torch: Any) -> None:
    """Record with Kineto from here to the program's end, or until the program records itself."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    recorded = profile(activities=activities)
    start, process = profile.start, os.getpid()

    def stop() -> None:
        profile.start = start
        atexit.unregister(stop)
        if os.getpid() == process:
            with _timed():
                recorded.stop()
                recorded.export_chrome_trace(str(Path(FOLDER, f"torch_{process}.json")))

    def start_after_ours(self: Any) -> None:
        stop()
        start(self)

    recorded.start()
    profile.start = start_after_ours  # two at once are an error
    atexit.register(stop)


def record_sessions(onnxruntime: Any) -> None:
    """Let each session that does not profile itself write a profile."""
    session = onnxruntime.InferenceSession
    make = session.__init__
    made: list[Any] = []

    def make_profiled(self: Any, model: Any, sess_options: Any = None, *args: Any, **options: Any) -> None:
        sess_options = sess_options or onnxruntime.SessionOptions()
        # One object may be the options of several sessions.
        ours = sess_options.profile_file_prefix.startswith(FOLDER)
        if ours or not sess_options.enable_profiling:
            sess_options.enable_profiling = True
            sess_options.profile_file_prefix = str(Path(FOLDER, f"onnxruntime_{os.getpid()}_{len(made)}"))
            made.append(weakref.ref(self))
        make(self, model, sess_options, *args, **options)

    def end() -> None:
        with _timed():
            for reference in made:
                with contextlib.suppress(Exception):
                    reference().end_profiling()

    session.__init__ = make_profiled
    atexit.register(end)


@contextlib.contextmanager
def _timed() -> Any:
    """Note how long it takes to write what was recorded: the program itself is done by then."""
    begin = time.perf_counter()
    with contextlib.suppress(Exception):
        yield
    with Path(FOLDER, f"{os.getpid()}.seconds").open("a", encoding="ascii") as file:
        file.write(f"{time.perf_counter() - begin}\n")


def _hand_on() -> None:
    """Import the `sitecustomize` that this one stands in front of, as if it had not been there."""
    here = Path(__file__).parent
    sys.path[:] = [folder for folder in sys.path if Path(folder or ".") != here]
    if (spec := importlib.machinery.PathFinder.find_spec(__name__, sys.path)) and spec.loader:
        sys.modules[__name__] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize" and FOLDER:
    recorders = {"torch": record_torch, "onnxruntime": record_sessions}
    sys.meta_path.insert(0, _After({module: recorders[module] for module in MODULES}))
    _hand_on()
