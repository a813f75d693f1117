# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs tests.json on a booted kernel, as its only work, and writes a line for each on the console.

    ok NAME (SECONDS s)
    not ok NAME: WHAT (SECONDS s), and behind it what the test printed
    done PASSED FAILED

A test passes if its status is 0, its output ends as it has to, it is silent on standard error if
it has to be, and the kernel has reported no signal that ended a process, but those that it may.
"""

import ctypes
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

FATAL = re.compile(r"(\S+): potentially unexpected fatal signal (\d+)")
REPORT_CHARACTERS = 3000


def read_kernel_log(log: int) -> str:
    """What the kernel has logged since the last call."""
    records = []
    while True:
        try:
            records.append(os.read(log, 8192).decode(errors="replace").partition(";")[2])
        except BlockingIOError:
            return "".join(records)
        except OSError:  # records were overwritten meanwhile
            records.append("(lost)\n")


def judge(test: dict[str, Any], status: int, stdout: str, stderr: str, logged: str) -> str:
    """What is wrong, or nothing."""
    if status:
        return f"ended by signal {-status}" if status < 0 else f"status {status}"
    if test["silent"] and stderr:
        return "wrote to standard error"
    if not stdout.endswith(test["ends"]):
        return f"its output does not end with {test['ends']!r}"
    for process, signal in FATAL.findall(logged):
        if int(signal) not in test["signals"]:
            return f"the kernel ended {process} by signal {signal}"
    return ""


def run(test: dict[str, Any], log: int) -> bool:
    began = time.monotonic()
    process = subprocess.Popen(
        test["command"],
        env={
            "PATH": "/usr/bin:/usr/sbin",
            "HOME": "/tmp",
            "LC_ALL": "C.UTF-8",
            "WATCHDOG_SECONDS": str(test["seconds"]),
            **test["environment"],
        },
        cwd="/tmp",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=test["seconds"])
        wrong = judge(test, process.returncode, stdout, stderr, logged := read_kernel_log(log))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        stdout, stderr = process.communicate()
        wrong, logged = f"not finished after {test['seconds']} s", read_kernel_log(log)
    taken = f"({time.monotonic() - began:.1f} s)"
    if not wrong:
        print(f"ok {test['name']} {taken}", flush=True)
        return True
    print(f"not ok {test['name']}: {wrong} {taken}")
    for text in (stdout, stderr, logged):
        for line in text[-REPORT_CHARACTERS:].splitlines():
            print(f"  | {line}")
    print(end="", flush=True)
    return False


def describe() -> str:
    """Where the tests run: what restartable sequences depend on."""
    libc = ctypes.CDLL(None)
    libc.getauxval.restype = ctypes.c_ulong
    registered = ctypes.c_uint.in_dll(libc, "__rseq_size").value
    features = int(libc.getauxval(27))  # AT_RSEQ_FEATURE_SIZE
    processor = Path("/proc/cpuinfo").read_text()
    whole_pairs = os.uname().machine == "x86_64" or "uscat" in processor
    return (
        f"Linux {os.uname().release} {os.uname().machine}, {os.cpu_count()} CPUs, "
        f"pages of {os.sysconf('SC_PAGE_SIZE') >> 10} KiB, "
        f"glibc {os.confstr('CS_GNU_LIBC_VERSION').split()[1]}, __rseq_size {registered}, "
        f"AT_RSEQ_FEATURE_SIZE {features}, "
        f"{'' if whole_pairs else 'no '}whole stores of 16 bytes"
    )


def main() -> None:
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)
    tests = json.loads(Path("/tests/tests.json").read_text())
    print(f"\nhere {describe()}", flush=True)
    results = [run(test, log) for test in tests]
    print(f"done {sum(results)} {len(results) - sum(results)}", flush=True)


main()
