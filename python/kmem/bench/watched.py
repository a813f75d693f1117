# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Programs that run for as long as something is measured on them, and their registries."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from kmem.bench.allocators import preloadable
from kmem.bench.timed import clean_environment
from kmem.common.errors import KmemError
from kmem.common.tree import LIBRARY
from kmem.live.registry.file import Registry
from kmem.live.registry.find import open_process
from kmem.live.registry.layout import RegistryError

WARM_SECONDS = 1.0  # until caches and heap have reached their size
Window = tuple[float, float]  # the program's throughput in it, and a figure of the benchmark's own


def is_running(process: int) -> bool:
    """Whether the child runs; an ended child stays to be waited for."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


@contextlib.contextmanager
def watched(
    what: str,
    command: Sequence[str],
    cpu: int,
    *,
    environment: Mapping[str, str] | None = None,
    writable: bool = False,
) -> Iterator[tuple[subprocess.Popen[bytes], Registry]]:
    """A program that does not end, on libkmem and on this CPU alone, once it has warmed up.

    `what` begins the text of errors; `environment` is added to the caller's.
    """
    ours = {"LD_PRELOAD": preloadable(LIBRARY), "KMEM_OPTIONS": "registry=on"}
    # The program would not end by itself: this tool ends it with this process, even if that is
    # killed.
    with_us = ["/usr/bin/setpriv", "--pdeathsig", "KILL"]
    process = subprocess.Popen(
        [*with_us, "/usr/bin/taskset", "--cpu-list", str(cpu), *command],
        env=clean_environment() | ours | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        time.sleep(WARM_SECONDS)
        if not is_running(process.pid):
            raise KmemError(f"{what} ended with status {process.wait()}")
        with open_process(process.pid, writable=writable) as registry:
            yield process, registry
    except RegistryError as error:
        raise KmemError(f"{what}: {error}") from None
    finally:
        process.kill()
        process.wait()


def windows_in_turn(
    what: str,
    process: subprocess.Popen[bytes],
    settings: Sequence[int],
    rounds: int,
    seed: int,
    window: Callable[[int], Window],
) -> dict[int, list[Window]]:
    """A window of each setting in each round, in a newly drawn order.

    A round is taken again if the program did nothing in one of its windows: the machine's other
    work kept it from running. `what` begins the text of errors.
    """
    taken: dict[int, list[Window]] = {setting: [] for setting in settings}
    draw = np.random.default_rng(seed)
    done = lost = 0
    while done < rounds:
        of_round = {int(setting): window(int(setting)) for setting in draw.permutation(settings)}
        if not is_running(process.pid):
            raise KmemError(f"{what} ended with status {process.wait()}")
        if all(throughput for throughput, _ in of_round.values()):
            done += 1
            for setting, figures in of_round.items():
                taken[setting].append(figures)
            continue
        lost += 1
        if lost > rounds:
            raise KmemError(
                f"{what} did nothing in a window of {lost} rounds:"
                " expected an idle CPU, or a longer --window"
            )
    return taken
