# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Scripts that are ended by a signal take with them what they started and made."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL]
SECONDS = 60

# A program in Python that imports scripts; its argument is the folder that it may use.
HEAD = f"""
import signal, sys, tempfile, types
from pathlib import Path
sys.path[:0] = ["{ROOT}/scripts", "{ROOT}/tests/booted"]
folder, nap = Path(sys.argv[1]), sys.argv[2]
import ending
"""
TREE = (
    HEAD
    + """
import releases
ending.exceptions_for_signals()
with tempfile.TemporaryDirectory(dir=folder / "made"), ending.setting(folder / "value", "2", "1"):
    script = f"sleep {nap} & (setsid sleep {nap} &) ; echo began; wait"
    releases.run_in(folder / "tree", script, folder / "log")
"""
)
MACHINE = """
import record_kernels as module
ending.exceptions_for_signals()
module.CACHE = folder
module.Release = lambda *_: types.SimpleNamespace(kernel=lambda _: Path("/dev/null"))
module.emulator = lambda *_: ["sh", "-c", f"echo began >{folder}/log; exec sleep {nap}", "sh"]
with tempfile.TemporaryDirectory(dir=folder / "made"):
    machine = module.Machine("6.1", 4)
    machine.folder.mkdir(parents=True)
    module.boot(machine, Path("/dev/null"), folder / "out", "", 1000)
"""
BOOTED = """
import run as module
ending.exceptions_for_signals()
module.CACHE = folder
module.emulator = lambda *_: ["sh", "-c", f"echo began >{folder}/log; exec sleep {nap}", "sh"]
with tempfile.TemporaryDirectory(dir=folder / "made"):
    module.boot(module.MACHINES[0], Path("/dev/null"), Path("/dev/null"), "name", False)
"""
STEP = """
import run_tests as module
ending.exceptions_for_signals()
with tempfile.TemporaryDirectory(dir=folder / "made"):
    module.run(["sh", "-c", f"echo began >{folder}/log; exec sleep {nap}"])
"""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def runs(nap: str) -> bool:
    """Whether a process sleeps for so long, under whatever process ids."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"sleep") and nap.encode() in words:
            return True
    return False


@pytest.fixture
def nap() -> str:
    """Seconds that no other process sleeps for."""
    return f"1000.{random.randrange(10**9):09}"


@pytest.fixture
def folder(tmp_path: Path, nap: str) -> Iterator[Path]:
    (tmp_path / "made").mkdir()
    (tmp_path / "log").touch()
    (tmp_path / "value").write_text("1\n")
    yield tmp_path
    assert not runs(nap)


def end_one(program: str, folder: Path, nap: str, number: signal.Signals) -> None:
    """Runs a program until it says that it began, and ends it."""
    command = [sys.executable, "-c", program, folder, nap]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            wait_until(lambda: "began" in (folder / "log").read_text(), "nothing began")
            wait_until(lambda: runs(nap), "nothing sleeps")
            process.send_signal(number)
            status = process.wait(SECONDS)
        finally:
            process.kill()
    expected = -number if number == signal.SIGKILL else 128 + number
    assert status == expected
    wait_until(lambda: not runs(nap), "it goes on")
    if number != signal.SIGKILL:
        assert list((folder / "made").iterdir()) == []


def make_tree(tree: Path) -> None:
    """A root with a shell and two programs."""
    for name in ("dev/shm", "proc", "sys", "bin"):
        (tree / name).mkdir(parents=True)
    for name in ("sh", "sleep", "setsid"):
        program = Path(shutil.which(name) or name).resolve()
        shutil.copy(program, tree / "bin" / name)
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
        for library in re.findall(r"/\S+", listed.stdout):
            place = tree / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_tree_of_a_release(folder: Path, nap: str, number: signal.Signals) -> None:
    if os.geteuid() != 0:
        pytest.skip("entering a tree needs root")
    make_tree(folder / "tree")
    end_one(TREE, folder, nap, number)
    wait_until(lambda: (folder / "value").read_text() == "1\n", "the setting is not put back")
    assert str(folder) not in Path("/proc/mounts").read_text()


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("program", [MACHINE, BOOTED, STEP], ids=["recorded", "booted", "step"])
def test_a_program(program: str, folder: Path, nap: str, number: signal.Signals) -> None:
    end_one(HEAD + program, folder, nap, number)


def test_status_of_a_script_in_a_tree(tmp_path: Path) -> None:
    """Which has shared memory and process ids of its own."""
    if os.geteuid() != 0:
        pytest.skip("entering a tree needs root")
    make_tree(tmp_path / "tree")
    program = (
        HEAD + 'import releases\nsys.exit(releases.run_in(folder / "tree", nap, folder / "log"))'
    )
    script = 'for name in /dev/shm/* /proc/[0-9]*; do echo "$name"; done; exit 7'
    command = [sys.executable, "-c", program, tmp_path, script]
    assert subprocess.run(command, check=False).returncode == 7
    found = (tmp_path / "log").read_text().split()
    assert found[0] == "/dev/shm/*"
    assert "/proc/1" in found
    assert len(found) < 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_shell_script(tmp_path: Path, number: signal.Signals) -> None:
    """Its temporary folder goes, although the shell's trap for its exit knows no signals."""
    if not (ROOT / "build" / "src" / "libkmem-malloc.so").exists():
        pytest.skip("build/ has no libraries")
    (tmp_path / "made").mkdir()
    tool = tmp_path / "abidw"
    tool.write_text(f"#!/bin/sh\necho began >{tmp_path}/log\nexec sleep 1000\n")
    tool.chmod(0o755)
    (tmp_path / "log").touch()
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path / "made"),
    }
    with subprocess.Popen(
        [ROOT / "scripts" / "abi", "check"], env=environment, start_new_session=True
    ) as process:
        wait_until(lambda: "began" in (tmp_path / "log").read_text(), "nothing began")
        assert list((tmp_path / "made").iterdir()) != []
        os.killpg(process.pid, number)
        assert process.wait(SECONDS) == 2
    assert list((tmp_path / "made").iterdir()) == []


@pytest.mark.parametrize("number", SIGNALS)
def test_setting_of_huge_pages(folder: Path, nap: str, number: signal.Signals) -> None:
    """It stands while the command runs, and what the file had is there again afterwards."""
    file = folder / "enabled"
    file.write_text("always [never] madvise\n")
    program = f"""{HEAD}
import huge_pages
huge_pages.FILE = folder / "enabled"
sys.argv[1:] = ["always", "sh", "-c", f"cp {{folder}}/enabled {{folder}}/seen;"
                f"echo began >{{folder}}/log; exec sleep {{nap}}"]
ending.exceptions_for_signals()
sys.exit(huge_pages.main())
"""
    end_one(program, folder, nap, number)
    assert (folder / "seen").read_text() == "always"
    wait_until(lambda: file.read_text() == "never\n", "the setting is not put back")


def test_status_of_a_command_in_huge_pages(tmp_path: Path) -> None:
    (tmp_path / "enabled").write_text("always [never] madvise\n")
    head = f"{HEAD}import huge_pages\n"
    for place, status in ((tmp_path / "enabled", 7), (tmp_path / "missing", 77)):
        call = f'huge_pages.FILE = Path("{place}")\nsys.argv[1:] = ["always", "sh", "-c", "exit 7"]'
        command = [sys.executable, "-c", f"{head}{call}\nsys.exit(huge_pages.main())"]
        done = subprocess.run([*command, tmp_path, "0"], capture_output=True, check=False)
        assert done.returncode == status


def test_scripts_that_make_or_start_something() -> None:
    """Each of them unwinds its blocks when it is ended."""
    wanted = re.compile(r"TemporaryDirectory|Popen|ending\.(run|started)")
    files = [
        path
        for folder in ("scripts", "tests/booted", "tests/mutants", "tests/explore")
        for path in sorted((ROOT / folder).glob("*.py"))
        if path.name not in ("ending.py", "guest.py")
    ]
    main = 'if __name__ == "__main__":\n'
    missing = [
        path.name
        for path in files
        if wanted.search(text := path.read_text())
        and main in text
        and f"{main}    ending.exceptions_for_signals()\n" not in text
    ]
    assert missing == []
