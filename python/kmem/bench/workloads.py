# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The workloads of the benchmark suite: programs of bench/workloads with their arguments.

The head of each source file describes the program's work, sizes, lifetimes and peak memory.
"""

from dataclasses import dataclass
from pathlib import Path

from kmem.common.tree import BUILD

PROGRAMS = BUILD / "bench" / "workloads"


@dataclass(frozen=True)
class Workload:
    """A row: a program, how it is called, and the kind of work that it stands for."""

    name: str
    program: str
    stands_for: str
    words: tuple[str, ...] = ()  # arguments of this program alone
    threads_per_cpu: int = 1  # 0: a single thread, however many CPUs

    def command(self, cpus: int, scale: float = 1, seed: int = 1) -> list[str]:
        """The program and its arguments on a machine of `cpus` CPUs.

        `scale` multiplies the work (1 takes one to three seconds on glibc and two CPUs), `seed`
        chooses the random numbers. The printed line depends on the arguments alone and not on the
        allocator.
        """
        threads = max(1, self.threads_per_cpu * cpus)
        program: Path = PROGRAMS / self.program
        return [str(program), f"threads={threads}", f"scale={scale}", f"seed={seed}", *self.words]


WORKLOADS = (
    Workload(
        "short-lived",
        "short_lived",
        "calls that make a few small objects and free them before they return",
    ),
    Workload(
        "pareto", "pareto", "an index of 400,000 live objects, most small, replaced at random"
    ),
    Workload(
        "server sized",
        "server",
        "objects outlive the thread that made them; delete knows the size",
        ("delete=sized",),
    ),
    Workload(
        "server unsized",
        "server",
        "objects outlive the thread that made them; delete looks the size up",
        ("delete=unsized",),
    ),
    Workload(
        "server sized x4",
        "server",
        "the same with four times as many threads as CPUs, sized delete",
        ("delete=sized",),
        threads_per_cpu=4,
    ),
    Workload(
        "server unsized x4",
        "server",
        "the same with four times as many threads as CPUs, unsized delete",
        ("delete=unsized",),
        threads_per_cpu=4,
    ),
    *(
        Workload(
            f"batch {order}",
            "batches",
            f"one thread builds 4,096 objects and frees them {how}",
            (f"order={order}", "handed=no"),
            threads_per_cpu=0,
        )
        for order, how in (
            ("forward", "in order"),
            ("reverse", "newest first"),
            ("random", "at random"),
        )
    ),
    *(
        Workload(
            f"handed {order}",
            "batches",
            f"threads build 4,096 objects, the next thread frees them {how}",
            (f"order={order}", "handed=yes"),
        )
        for order, how in (
            ("forward", "in order"),
            ("reverse", "newest first"),
            ("random", "at random"),
        )
    ),
    Workload("pipeline", "pipeline", "half of the threads only allocate, half only free"),
    Workload(
        "sharing active",
        "false_sharing",
        "threads write to small objects that each allocated itself",
        ("mode=active",),
    ),
    Workload(
        "sharing passive",
        "false_sharing",
        "threads write to small objects after freeing one that another thread gave them",
        ("mode=passive",),
    ),
    Workload(
        "thread per request",
        "thread_per_request",
        "a new thread for each request, its reply freed by another",
    ),
    Workload("large blocks", "large_blocks", "blocks of 64 KiB to 25 MiB, every page written"),
    Workload(
        "sparse buffers",
        "sparse_buffers",
        "buffers of 128 KiB of which 4 KiB are written, between small blocks",
        ("buffer=131072",),
        threads_per_cpu=0,
    ),
    Workload(
        "sparse buffers 300k",
        "sparse_buffers",
        "the same with buffers of 300,000 bytes",
        ("buffer=300000",),
        threads_per_cpu=0,
    ),
    Workload(
        "sparse buffers 32k",
        "sparse_buffers",
        "the same with buffers of 32 KiB",
        ("buffer=32768",),
        threads_per_cpu=0,
    ),
    Workload("growing", "growing", "arrays that are appended to and grow by realloc"),
    Workload(
        "phases",
        "phases",
        "one power-of-two size a phase, and survivors that stay for 16 phases",
    ),
    Workload("mixed", "mixed", "16 bytes to 32 KiB at random, replaced at random"),
)
