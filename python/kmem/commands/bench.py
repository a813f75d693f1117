# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench`: measurements of the allocator."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kmem.bench.allocators import Engine
from kmem.commands.options import HtmlFile, JsonFile, WorkloadSeed, can_be_written, file_name
from kmem.common.library_options import check_options
from kmem.common.tree import need_extra

Peers = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="Allocators to compare with, by name; default: all."),
]
# Of commands that let settings of a running program take turns.
Windows = Annotated[int, typer.Option(min=11, help="Windows of each setting.")]
WindowSeconds = Annotated[
    float, typer.Option("--window", help="Length of a window in seconds, 0.1 to 10.")
]
TurnsSeed = Annotated[
    int, typer.Option("--seed", min=0, help="Seed for the order in which the settings take turns.")
]


class Goal(StrEnum):
    """What a search of `kmem bench hunt` looks for."""

    TIME = "time"
    MEMORY = "memory"
    BOTH = "both"


app = typer.Typer(help="Measure the allocator.", no_args_is_help=True)


@app.callback()
def options() -> None:
    """Measure the allocator."""
    # Its figures would be said to be those of options that the library did not take.
    check_options("bench")


@app.command()
def micro(
    peers: Peers = None,
    json_file: JsonFile = None,
    rounds: Annotated[int, typer.Option(min=30, help="Rounds of each allocator.")] = 60,
) -> None:
    """Time single operations of libkmem and other allocators, in interleaved rounds.

    Takes some minutes.
    """
    from kmem.bench.micro import bench_micro

    bench_micro(peers, rounds, json_file)


@app.command()
def bulk(
    engine: Annotated[Engine, typer.Option(help="Back end to measure.")] = Engine.SLUB,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    rounds: Annotated[int, typer.Option(min=30, help="Rounds of each setting.")] = 60,
) -> None:
    """Time bulk calls beside the figures of the mail that brought kfree_bulk.

    Takes some seconds.
    """
    from kmem.lab.bulk import bench_bulk

    bench_bulk(engine, rounds, json_file, html_file)


@app.command(name="profile")
def bench_profile(
    json_file: JsonFile = None,
    rounds: Windows = 80,
    window: WindowSeconds = 0.4,
    seed: TurnsSeed = 1,
) -> None:
    """Measure how much heap-profile sampling slows a running program down. Takes some minutes."""
    from kmem.bench.profile_cost import bench_profile

    bench_profile(rounds, window, seed, json_file)


@app.command(name="guards")
def bench_guards(
    json_file: JsonFile = None,
    rate: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N", help="One guard in so many allocations; may be repeated; default: 1000."
        ),
    ] = None,
    rounds: Windows = 60,
    window: WindowSeconds = 1,
    seed: TurnsSeed = 1,
) -> None:
    """Measure how much sampled guards slow redis down, and their memory. Takes some minutes."""
    from kmem.bench.guards_cost import bench_guards

    bench_guards(rate or [1000], rounds, window, seed, json_file)


@app.command()
def suite(
    peers: Peers = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="PATTERN,...", help="Rows to run, as 'server*,redis'; default: all."),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds of each row; bounds need at least 7.")
    ] = 7,
    scale: Annotated[
        float,
        typer.Option(help="Factor for the work of each row; at 1 a run takes about 0.5 to 3 s."),
    ] = 1,
    seed: WorkloadSeed = 1,
    bound: Annotated[
        float,
        typer.Option(
            min=1, help="List the rows in which libkmem is over this ratio to the row's best."
        ),
    ] = 1.25,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    only_list: Annotated[
        bool,
        typer.Option(
            "--list", help="List the rows and the Debian packages they need; run nothing."
        ),
    ] = False,
) -> None:
    """Run workloads and programs on libkmem and other allocators, in interleaved rounds.

    Prints time, peak memory and memory over time as ratios to the best of each row, with geometric
    means. All rows on all allocators take some hours.
    """
    from kmem.bench.suite import bench_suite, list_rows

    if only_list:
        list_rows(only)
        return
    bench_suite(peers, only, rounds, scale, seed, bound, json_file, html_file)


@app.command()
def hunt(
    points: Annotated[int, typer.Option(min=1, help="Points to draw.")] = 200,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="Seed of the points and of the orders of runs; default: a fresh one, printed.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each point.")] = 3,
    seconds: Annotated[
        float,
        typer.Option(help="Length of a run on glibc's malloc in seconds, 0.005 to 60."),
    ] = 0.25,
    peers: Peers = None,
    threads: Annotated[
        str,
        typer.Option(metavar="MIN-MAX", help="Threads of a point, 1 to 1024."),
    ] = "1-32",
    search: Annotated[
        int,
        typer.Option(
            min=0, help="Further points, each proposed by a search for a peer that is ahead."
        ),
    ] = 0,
    goal: Annotated[
        Goal,
        typer.Option(help="The search looks for a peer ahead in time, in memory, or in both."),
    ] = Goal.BOTH,
    known_set: Annotated[
        str | None,
        typer.Option(
            "--set", metavar="NAME", help="Measure the points of bench/hunt/NAME.txt: regression."
        ),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS|FILE:NUMBER",
            help="Measure one point: its words, or its number in a result file.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all figures to FILE as JSON, after each point; a hunt that FILE holds a "
            "part of goes on.",
            callback=can_be_written,
            parser=file_name,
        ),
    ] = None,
) -> int:
    """Compare libkmem with other allocators on work drawn at random.

    A point is a workload: sizes, lifetimes, threads, hand-over between them. Prints which kinds of
    work libkmem is slow or large at, with words that repeat each point. 200 points on all
    allocators take up to an hour.
    """
    from kmem.bench.hunt import Wanted, bench_hunt

    if search:
        need_extra("tune")
    return bench_hunt(
        Wanted(
            points,
            seed,
            rounds,
            seconds,
            peers,
            threads,
            search,
            goal,
            known_set,
            replay,
            output,
        )
    )


@app.command("start")
def start_up(
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Allocators to compare with besides glibc, by name; default: all.",
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each allocator.")] = 200,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed for the order in which the allocators take turns.")
    ] = 1,
    json_file: JsonFile = None,
) -> None:
    """Time and peak memory of /bin/true on each allocator, less glibc's. Takes some seconds."""
    from kmem.bench.start_up import bench_start

    bench_start(peers, runs, seed, json_file)


@app.command()
def watch(
    rounds: Annotated[
        int,
        typer.Option(min=11, help="Rounds, each with a watched window and two others."),
    ] = 300,
    rate: Annotated[
        float, typer.Option(help="Polls that the reader makes in a second, 1 to 100000.")
    ] = 1000,
    window: Annotated[float, typer.Option(help="Length of a window in seconds, 0.01 to 10.")] = 0.1,
    seed: WorkloadSeed = 1,
    json_file: JsonFile = None,
) -> None:
    """Measure how much a reader on another CPU slows a running program down. Takes some minutes."""
    from kmem.bench.watch import bench_watch

    bench_watch(rounds, rate, window, seed, json_file)


@app.command()
def tails(
    peers: Peers = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="SETTING,...",
            help="Settings to run, of busy, shared, idle and bursts; default: all.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each setting.")] = 7,
    threads: Annotated[
        int, typer.Option(min=2, max=64, help="Threads of the settings shared and bursts.")
    ] = 2,
    scale: Annotated[
        float,
        typer.Option(
            help="Factor for the number of calls, 0.001 to 100; at 1 a run takes 1 to 3 s."
        ),
    ] = 1,
    seed: WorkloadSeed = 1,
    json_file: JsonFile = None,
) -> None:
    """Time single calls of malloc and free, up to the longest, in nanoseconds.

    Prints the median, the 99th, 99.9th and 99.99th percentile and the largest, for threads that are
    always busy and for bursts after 50 ms of sleep. Takes some minutes.
    """
    from kmem.bench.tails import bench_tails

    bench_tails(peers, only, rounds, threads, scale, seed, json_file)


@app.command()
def idle(
    peers: Peers = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each program.")] = 3,
    seconds: Annotated[
        float,
        typer.Option(min=0.1, max=250, help="Seconds of sleep up to the last look."),
    ] = 10,
    seed: WorkloadSeed = 1,
    json_file: JsonFile = None,
) -> None:
    """Show resident memory in MiB of programs that freed most of it and sleep.

    At the peak, after a second and after --seconds. All allocators take a quarter of an hour.
    """
    from kmem.bench.idle import bench_idle

    bench_idle(peers, rounds, seconds, seed, json_file)


@app.command()
def misuse(
    levels: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Levels of libkmem's protection, as default, check=sheaf; none; default: all.",
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Allocators to compare with, by name; none; default: all.",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN,...", help="Cases to run, as 'double-free/*/small'; default: all."
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            min=0, max=100000, help="Runs of each allocator to measure how addresses vary; 0: none."
        ),
    ] = 256,
    each: Annotated[bool, typer.Option("--each", help="Print the outcome of each case.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Misuse the heap in some hundred ways and show which are caught, harmless or missed.

    On libkmem at each level of protection and on other allocators: double and invalid frees, writes
    and reads beyond blocks, uses of freed blocks. Also shows how many bits an attacker has to guess
    of addresses. All allocators take some minutes.
    """
    from kmem.bench.misuse import bench_misuse

    bench_misuse(levels, peers, only, runs, json_file, each=each)
