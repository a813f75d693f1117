# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs programs with subprocess in several threads while other threads build objects."""

import os
import subprocess
import sys
import threading

STARTERS = 3
ROUNDS = 12

stop = threading.Event()
failures: list[str] = []


def build_objects() -> None:
    while not stop.is_set():
        table = {f"key {i}": [str(j) * (j % 40) for j in range(i % 50)] for i in range(200)}
        if sum(len(row) for row in table.values()) != sum(i % 50 for i in range(200)):
            failures.append("a table of this thread changed")


def expect(actual: str, expected: str) -> None:
    if actual != expected:
        failures.append(f"{actual!r} instead of {expected!r}")


def start_programs(number: int) -> None:
    for round_ in range(ROUNDS):
        text = f"{number}-{round_}"
        # No arguments that need fork: CPython uses vfork.
        done = subprocess.run(["/bin/echo", text], capture_output=True, text=True, check=True)
        expect(done.stdout, text + "\n")
        # A function to run before exec: CPython uses fork.
        done = subprocess.run(
            ["/bin/cat"],
            input=text * 1000,
            capture_output=True,
            text=True,
            check=True,
            preexec_fn=lambda: sorted(str(i) for i in range(100)),
        )
        expect(done.stdout, text * 1000)
        expect(subprocess.getoutput(f"expr {round_} + 1"), str(round_ + 1))
    if number == 0 and os.system("exit 3") != 3 << 8:
        failures.append("os.system lost the exit status")


def main() -> None:
    builders = [threading.Thread(target=build_objects) for _ in range(2)]
    starters = [threading.Thread(target=start_programs, args=(i,)) for i in range(STARTERS)]
    for thread in builders + starters:
        thread.start()
    for thread in starters:
        thread.join()
    stop.set()
    for thread in builders:
        thread.join()
    print("\n".join(failures) or "ok")
    sys.exit(bool(failures))


main()
