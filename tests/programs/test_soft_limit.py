# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Option soft_limit: memory comes back before a limit is met.

c/pinned.c holds 306 MB where nothing trims its heap, and 185 if all that it frees goes back. Groups
of the kernel are used where the machine lets the test make them, and elsewhere files of our own
stand in for the kernel's. No page goes back by the clock.
"""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Build

MB = 1_000_000
BY_LIMIT = "reclaim_thread=off,purge_delay=3600000"
WHOLE, NEEDED = 280 * MB, 215 * MB
V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


@pytest.fixture
def pinned(build: Build) -> Path:
    return build("pinned", "pinned.c", flags=("-pthread",))


def most_resident(library: Path, options: str, *command: str | Path) -> int:
    environment = os.environ | {"LD_PRELOAD": str(library), "KMEM_OPTIONS": options}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0 and done.stderr == "", (done.returncode, done.stderr)
    return int(done.stdout)


@pytest.mark.parametrize("threads", [0, 4])
@pytest.mark.parametrize("slots", ["auto", "locked"])
def test_size(library: Path, pinned: Path, slots: str, threads: int) -> None:
    base = f"slots={slots},{BY_LIMIT}"
    assert most_resident(library, base, pinned, str(threads)) > WHOLE
    assert most_resident(library, f"{base},soft_limit=190M", pinned, str(threads)) < NEEDED


def test_a_limit_below_what_is_in_use(library: Path, pinned: Path) -> None:
    """Trims keep a distance, so the program ends, and the figures tell how many there were."""
    assert most_resident(library, "soft_limit=1M", pinned) < NEEDED
    code = (
        "import ctypes; held = [bytes(5000) for _ in range(20000)];"
        "libc = ctypes.CDLL(None); libc.fdopen.restype = ctypes.c_void_p;"
        "libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b'w')));"
        "libc.fflush(None)"
    )
    environment = {"LD_PRELOAD": str(library), "KMEM_OPTIONS": "soft_limit=1M"}
    environment |= {"PYTHONMALLOC": "malloc"}
    said = subprocess.run(
        ["/usr/bin/python3", "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r'<softlimit bytes="(\d+)" trims="(\d+)" given="(\d+)"/>', said)
    assert found, said
    assert int(found[1]) == 1 << 20
    # In front of each trim the heap has grown by 1/32 of the limit, or a pause went by.
    grown = 160 << 20  # what the program holds at most
    assert 1 <= int(found[2]) <= (grown + int(found[3])) / (1 << 15) + 100


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with 200 MB of memory."""
    unified = (V2 / "cgroup.controllers").exists()
    parent = V2 if unified else V1
    folder = parent / f"kmem-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.max" if unified else "memory.limit_in_bytes")).write_text("200M")
        (folder / ("memory.swap.max" if unified else "memory.swappiness")).write_text("0")
    except OSError as error:
        if folder.exists():
            folder.rmdir()
        pytest.skip(f"no group can be made under {parent}: {error}")
    yield folder
    folder.rmdir()


def in_group(group: Path, library: Path, options: str, program: Path) -> int:
    script = f"echo $$ >{shlex.quote(str(group))}/cgroup.procs; exec {shlex.quote(str(program))}"
    environment = os.environ | {"LD_PRELOAD": str(library), "KMEM_OPTIONS": options}
    return subprocess.run(
        ["sh", "-c", script], env=environment, stdout=subprocess.DEVNULL, check=False
    ).returncode


def test_a_group_of_the_kernels(group: Path, library: Path, pinned: Path) -> None:
    """The kernel ends the program without the option, and need not with it."""
    assert in_group(group, library, BY_LIMIT, pinned) == -signal.SIGKILL
    assert in_group(group, library, f"{BY_LIMIT},soft_limit=auto", pinned) == 0


def stand_in(folder: Path, files: dict[str, str]) -> list[str]:
    """A command in front of another, which then has these files in the place of the kernel's."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    script = (
        f"mount --bind {shlex.quote(str(folder))} /sys/fs/cgroup &&"
        f" mount --bind {shlex.quote(str(folder / 'cgroup'))} /proc/$$/cgroup &&"
        ' exec "$@"'
    )
    words = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    command = [*words, "sh", "-c", script, "sh"]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"files cannot stand in for the kernel's: {tried.stderr.strip()}")
    return command


FULL = {"memory.max": "200000000", "memory.current": "190000000", "memory.stat": "anon 1\n"}
OF_V1 = {"memory.limit_in_bytes": "200000000", "memory.usage_in_bytes": "190000000"}
CASES = {
    "v2": ({"cgroup": "0::/", **FULL}, True),
    "v2, high below max": (
        {"cgroup": "0::/", **FULL, "memory.max": "max", "memory.high": "199000000"},
        True,
    ),
    "v2, the parent's limit": (
        {"cgroup": "0::/a/b", "a/b/memory.max": "max", "a/b/memory.current": "5"}
        | {f"a/{name}": text for name, text in FULL.items()},
        True,
    ),
    "v2, files that are not in use": (
        {"cgroup": "0::/", **FULL, "memory.stat": "anon 1\nfile 2\ninactive_file 100000000\n"},
        False,
    ),
    "v2, room": ({"cgroup": "0::/", **FULL, "memory.current": "100000000"}, False),
    "v2, pressure": (
        {
            "cgroup": "0::/",
            **FULL,
            "memory.current": "100000000",
            "memory.pressure": "some avg10=25.31 avg60=0.00 avg300=0.00 total=9\n",
        },
        True,
    ),
    "v2, no limit": ({"cgroup": "0::/", **FULL, "memory.max": "max"}, False),
    "v1": (
        {"cgroup": "4:memory:/x\n1:cpu:/\n"}
        | {f"memory/x/{name}": text for name, text in OF_V1.items()},
        True,
    ),
    "v1, no limit": (
        {"cgroup": "4:memory:/\n", "memory/memory.limit_in_bytes": "9223372036854771712"}
        | {"memory/memory.usage_in_bytes": "9000000000"},
        False,
    ),
    "nothing": ({"cgroup": "nonsense\n"}, False),
}


@pytest.mark.parametrize("case", CASES)
def test_files_in_the_place_of_the_kernels(
    tmp_path: Path, library: Path, pinned: Path, case: str
) -> None:
    files, trims = CASES[case]
    command = stand_in(tmp_path / "files", files)
    options = f"{BY_LIMIT},soft_limit=auto"
    most = most_resident(library, options, *command, pinned)
    assert most < NEEDED if trims else most > WHOLE
