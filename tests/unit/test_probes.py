# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The static probes as built: their names, how many arguments each has and in what form, and that
one fires, where the system lets others look (docs/probes.md)."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = [ROOT / "build" / "src" / name for name in ("libkmem.so", "libkmem-malloc.so")]
ARGUMENTS = {
    "refill": 3,
    "drain": 3,
    "slab_alloc": 4,
    "slab_free": 4,
    "large_alloc": 2,
    "large_free": 2,
    "pages_commit": 2,
    "pages_purge": 3,
    "reclaim": 2,
    "soft_limit": 3,
}
# Of provider otel_memory.
SAMPLES = {"alloc": 3, "free": 3}
# A size, negative if signed, and an operand of the assembler: constant, register or memory.
FORM = re.compile(r"-?[1248]@\S+")


def has_header() -> bool:
    found = subprocess.run(
        ["cc", "-E", "-x", "c", "-"], input="#include <sys/sdt.h>", capture_output=True, text=True
    )
    return found.returncode == 0


def probes(library: Path, provider: str = "libkmem") -> list[tuple[str, list[str]]]:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is missing (Debian package binutils)")
    if not library.exists():
        pytest.skip(f"{library} is not built")
    if not has_header():
        pytest.skip("sys/sdt.h is missing (Debian package systemtap-sdt-dev)")
    text = subprocess.run(
        ["readelf", "--wide", "--notes", library], capture_output=True, text=True, check=True
    ).stdout
    found = re.findall(
        rf"Provider: {provider}\s+Name: (\w+)\s+Location: .*\s+Arguments: ?(.*)", text
    )
    # An operand of memory may hold blanks in no form that gcc and clang write for x86-64.
    return [(name, arguments.split()) for name, arguments in found]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.name)
def test_notes(library: Path) -> None:
    for provider, expected in {"libkmem": ARGUMENTS, "otel_memory": SAMPLES}.items():
        found = probes(library, provider)
        assert {name for name, _ in found} == set(expected)
        for name, arguments in found:
            assert len(arguments) == expected[name], (name, arguments)
            assert all(FORM.fullmatch(argument) for argument in arguments), name


def test_documented() -> None:
    text = (ROOT / "docs" / "probes.md").read_text()
    for name in ARGUMENTS:
        assert f"| `{name}` |" in text


def run_on(library: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    subprocess.run(["/bin/ls", "-lR", "/usr/include"], capture_output=True, env=environment)


def test_fires_under_bpftrace() -> None:
    library = LIBRARIES[1]
    probes(library)
    if shutil.which("bpftrace") is None:
        pytest.skip("bpftrace is missing (Debian package bpftrace)")
    script = (
        'BEGIN { printf("ready\\n"); }'
        f" usdt:{library}:libkmem:refill"
        ' { printf("%s %d %d\\n", str(arg0), (uint32)arg1, (uint32)arg2); }'
    )
    with subprocess.Popen(
        ["bpftrace", "-e", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as tracer:
        assert tracer.stdout is not None
        said = []
        for line in tracer.stdout:
            said.append(line)
            if line == "ready\n":
                break
        else:
            pytest.skip(f"bpftrace cannot attach here: {''.join(said[-1:]).strip()}")
        run_on(library)
        tracer.send_signal(signal.SIGINT)
        text = tracer.stdout.read()
    lines = re.findall(r"^k?malloc-\d+ (\d+) (\d+)$", text, re.M)
    assert lines, text[-2000:]
    assert all(0 < int(objects) <= 65535 and int(stride) >= 8 for objects, stride in lines)


def test_fires_under_gdb() -> None:
    library = LIBRARIES[1]
    probes(library)
    if shutil.which("gdb") is None:
        pytest.skip("gdb is missing (Debian package gdb)")
    commands = [
        f"set environment LD_PRELOAD={library}",
        "set breakpoint pending on",
        "set startup-with-shell off",
        "break -probe-stap libkmem:refill",
        "run",
        'printf "refill %s %d %d\\n", (char *)$_probe_arg0, $_probe_arg1, $_probe_arg2',
        "kill",
    ]
    options = [word for command in commands for word in ("-ex", command)]
    done = subprocess.run(
        ["gdb", "-q", "-nx", "-batch", *options, "/bin/ls"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "Starting program" not in done.stdout and "ptrace" in done.stderr:
        pytest.skip(f"gdb cannot trace here: {done.stderr.strip().splitlines()[-1]}")
    match = re.search(r"^refill k?malloc-\d+ (\d+) (\d+)$", done.stdout, re.M)
    assert match, done.stdout + done.stderr
    assert 0 < int(match[1]) <= 65535 and int(match[2]) >= 8
