# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Windows of benchmarks that steer a running program: an idle program, one that ends, its load."""

import os
import re
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from kmem.bench.guards_cost import Server
from kmem.bench.watched import windows_in_turn
from kmem.common.errors import KmemError


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/usr/bin/sleep", "1000"]) as process:
        yield process
        process.kill()


def test_each_round_has_a_window_of_each_setting(process: subprocess.Popen[bytes]) -> None:
    order: list[int] = []

    def window(setting: int) -> tuple[float, float]:
        order.append(setting)
        return 10.0 + setting, float(len(order))

    taken = windows_in_turn("it", process, (0, 5, 7), 20, 1, window)
    assert list(taken) == [0, 5, 7]
    for setting, windows in taken.items():
        assert [throughput for throughput, _ in windows] == [10.0 + setting] * 20
    rounds = [tuple(order[i : i + 3]) for i in range(0, 60, 3)]
    assert all(sorted(of_round) == [0, 5, 7] for of_round in rounds)
    assert len(Counter(rounds)) > 3
    # The second figure belongs to its window.
    for i, setting in enumerate(order):
        assert taken[setting][i // 3][1] == i + 1


def test_a_round_with_an_idle_window_is_taken_again(process: subprocess.Popen[bytes]) -> None:
    windows = iter([(7.0, 1.0), (0.0, 1.0), *[(9.0, 2.0)] * 4])
    taken = windows_in_turn("it", process, (0, 1), 2, 1, lambda _: next(windows))
    assert taken == {0: [(9.0, 2.0)] * 2, 1: [(9.0, 2.0)] * 2}


def test_a_program_that_never_runs(process: subprocess.Popen[bytes]) -> None:
    with pytest.raises(KmemError, match=r"^it did nothing in a window of 3 rounds: expected an"):
        windows_in_turn("it", process, (0, 1), 2, 1, lambda _: (0.0, 1.0))


def test_a_program_that_ends(process: subprocess.Popen[bytes]) -> None:
    def window(_: int) -> tuple[float, float]:
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return 0.0, 0.0

    with pytest.raises(KmemError, match=f"^it ended with status {-signal.SIGKILL}$"):
        windows_in_turn("it", process, (0, 1), 2, 1, window)


@pytest.mark.parametrize("answers", [b"", b"# Stats\r\n"])
def test_a_server_that_closes_its_connection(answers: bytes) -> None:
    """It is asked for its count, and the question ends, after half an answer, too."""
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def serve() -> None:
            theirs.recv(100)
            theirs.sendall(answers)
            theirs.close()

        served = threading.Thread(target=serve)
        served.start()
        server = Server(None, None, ours)  # type: ignore[arg-type]
        with pytest.raises(KmemError, match=re.escape("bench guards: the connection to redis: ")):
            server.commands()
        served.join()
