# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tests that run on a booted machine: which, with what options, with which files."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PROGRAMS = ROOT / "tests" / "programs"

DROP_IN = "/tests/lib/libkmem-malloc.so"
ABORT = 6  # of children in which a test makes a mistake on purpose

# With rseq the library says if it does not get them, and then the test fails.
SETTINGS = {
    "slub": "slots=rseq",
    "slab": "engine=slab,slots=rseq",
    "slob": "engine=slob,slots=auto",
    "locked": "slots=locked",
}
PAGES = r"deferred|large|metadata|page|runs|system|zones"
# Tests of the build: those of the engines and slots that an emulated machine has the time for. Not
# rcu, whose attacks without grace periods have to succeed in their time, and do not there.
CHOSEN = re.compile(
    r"stress|inlined|(attack|vfork) .*"
    r"|(cache|group|kmalloc|malloc|mempool|percpu|reclaim)( engine=\w+)?"
    rf"|{PAGES}"
)
# Few of the programs.
SHORT = re.compile(r"(vfork in [03]|vfork, then|sandbox, f|python).*slub|dash|make|rules")
# Those that depend on how a pair is stored, and those that depend on the size of a page.
OF_SEQUENCES = re.compile(
    SHORT.pattern + r"|attack (inlined |bulk )?(sequences.*|drain.*|fork)|inlined|percpu|stress"
)
OF_PAGES = re.compile(SHORT.pattern + f"|{PAGES}|cache|kmalloc|malloc|percpu|reclaim|stress")
OPERATIONS = {"stress": 200_000, "attack": 100_000}


@dataclass(frozen=True)
class Test:
    """What guest.py runs; its head says when that passes."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    ends: str = ""  # its standard output
    silent: bool = True  # on standard error
    signals: tuple[int, ...] = ()  # that processes may end by
    seconds: int = 900

    def described(self) -> dict[str, Any]:
        return asdict(self)


def compile_program(compiler: str, name: str, folder: Path, files: dict[str, Path]) -> str:
    """Returns its place on the machine."""
    made = folder / name
    if not made.exists():
        source = PROGRAMS / "c" / f"{name}.c"
        subprocess.run(
            [compiler, "-std=gnu17", "-O2", "-g", "-pthread", "-w", "-o", made, source], check=True
        )
    files[f"bin/{name}"] = made
    return f"/tests/bin/{name}"


def programs(place: dict[str, str]) -> Iterator[tuple[str, list[str], str]]:
    """Name, command, and the end of its output."""
    for threads in ("0", "3", "8"):
        for rights in ("told", "untold"):
            command = [place["vforks_at_once"], threads, rights]
            yield f"vfork in {threads} threads, {rights}", command, "ok\n"
    yield "vfork, then allocate", [place["vfork_allocates"]], "ok\n"
    yield "fork beside threads", [place["fork_threads"]], "ok\n"
    for way, state in (("filter", "used"), ("rights", "new"), ("unseen", "used")):
        yield f"sandbox, {way}, {state}", [place["sandboxed"], way, state], "ok\n"
    yield "sandbox of all threads", [place["sandboxed_threads"]], "ok\n"
    python = (
        "import subprocess\n"
        "for _ in range(20): subprocess.run(['/bin/true'], cwd='/', check=True)\n"
        "print('ok')"
    )
    yield "python subprocess", ["python3", "-c", python], "ok\n"


def long_programs(place: dict[str, str]) -> Iterator[tuple[str, list[str], str]]:
    """Those that take so long that they run with one setting only."""
    yield "vfork beside threads", [place["vfork_beside_threads"]], "ok\n"
    yield "spawn beside threads", [place["spawn_threads"]], "ok\n"
    shell = "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done; echo $i"
    yield "dash", ["dash", "-c", shell], "300\n"
    yield "make", ["make", "-s", "-j4", "-f", "/tests/Makefile"], "36"


def preloaded(compiler: str, folder: Path, files: dict[str, Path]) -> Iterator[Test]:
    """Programs on the drop-in."""
    names = ["vforks_at_once", "vfork_beside_threads", "vfork_allocates", "vfork_first"]
    names += ["spawn_threads", "fork_threads", "sandboxed", "sandboxed_threads", "follow_rseq"]
    place = {name: compile_program(compiler, name, folder, files) for name in names}
    files["Makefile"] = HERE / "inputs" / "Makefile"
    environment = {"LD_PRELOAD": DROP_IN}
    assigned = [f"LD_PRELOAD={DROP_IN}", f"KMEM_OPTIONS={SETTINGS['slub']}"]
    for rights in ("told", "untold"):
        command = [place["follow_rseq"], "env", *assigned, place["vforks_at_once"], "3", rights]
        yield Test(f"rules of rseq, {rights}", command, {}, "ok\n", silent=False)
    for setting, options in SETTINGS.items():
        chosen = {**environment, "KMEM_OPTIONS": options}
        for name, command, ends in programs(place):
            yield Test(f"{name} ({setting})", command, chosen, ends)
    for name, command, ends in long_programs(place):
        yield Test(f"{name} (default)", command, environment, ends)
    yield Test("vfork starts the heap", [place["vfork_first"]], environment, "ok\n")
    own = {"GLIBC_TUNABLES": "glibc.pthread.rseq=0", "KMEM_OPTIONS": SETTINGS["slub"]}
    own |= environment
    yield Test("vfork, libc without rseq", [place["vforks_at_once"], "3", "untold"], own, "ok\n")


def built(build: Path, files: dict[str, Path]) -> Iterator[Test]:
    """Tests of the build."""
    meson = [Path(sys.executable).parent / "meson", "introspect", "--tests", build]
    listed = subprocess.run(meson, capture_output=True, text=True, check=True).stdout
    for test in json.loads(listed):
        if not CHOSEN.fullmatch(test["name"]):
            continue
        kind = test["name"].split()[0]
        command = []
        for argument in test["cmd"]:
            program = build / argument  # the whole path, or relative to the build
            if program.is_file():
                name = f"bin/{program.name}"
                files[name] = program
                argument = f"/tests/{name}"
            command.append(re.sub("^ops=.*", f"ops={OPERATIONS.get(kind)}", argument))
        environment = {**test["env"], "LD_LIBRARY_PATH": "/tests/lib"}
        yield Test(test["name"], command, environment, silent=False, signals=(ABORT,))


def tests_of(
    build: Path,
    compiler: str,
    folder: Path,
    files: dict[str, Path],
    only: re.Pattern[str] | None,
) -> list[Test]:
    """Compiles programs into the folder, and adds what has to be on the machine to the files."""
    tests = list(preloaded(compiler, folder, files))
    if only is not SHORT:
        tests += built(build, files)
    return [test for test in tests if only is None or only.match(test.name)]
