# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A signal that comes while the command starts a program ends both."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kmem.common import spread
from kmem.common.errors import KmemError
from kmem.common.signals import killed_by_errors
from kmem.importing.sources import converted
from kmem.importing.text import run_tool

SLEEP = ["sleep", "600"]
NUMBERS = [signal.SIGINT, signal.SIGTERM]


def convert(_: Path) -> None:
    with converted(Path("recording"), "sleep", "coreutils", SLEEP[1:], subprocess.DEVNULL):
        pass


def read_endless(folder: Path) -> None:
    with Path("/dev/zero").open("rb", buffering=0) as text:
        run_tool(folder / "out", folder / "out", ["0", "4096", "test"], text)


WAYS: dict[str, Callable[[Path], Any]] = {
    "import": read_endless,
    "import of a packed file": convert,
    "replay": lambda _: spread.here.run(SLEEP),
}


@pytest.fixture(params=NUMBERS)
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that ends this program by KeyboardInterrupt, as it does the command."""
    before = signal.signal(request.param, signal.default_int_handler)
    yield request.param
    assert signal.signal(request.param, before) == signal.default_int_handler


@pytest.mark.parametrize("way", WAYS)
def test_signal_at_the_start_of_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, way: str
) -> None:
    """The program went on, as nobody knew its number yet."""
    programs = []

    class Interrupted(subprocess.Popen[Any]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            programs.append(self)
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            WAYS[way](tmp_path)
    assert [program.returncode for program in programs] == [-signal.SIGKILL]


def test_a_program_on_another_thread() -> None:
    """Only the main thread may have handlers."""
    found: list[int] = []

    def start() -> None:
        with (
            pytest.raises(KmemError),
            killed_by_errors(lambda: subprocess.Popen(SLEEP)) as program,
        ):
            raise KmemError("an error")
        found.append(program.returncode)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert found == [-signal.SIGKILL]
