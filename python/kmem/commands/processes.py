# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Commands that see and steer running processes."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kmem.commands.options import (
    AsJson,
    Pid,
    SampleInterval,
    file_name,
    process_or_file,
)
from kmem.common.errors import BadUsage

app = typer.Typer()


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the command line has the option, be it with the default's value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@app.command()
def ps(as_json: AsJson = False) -> None:
    """List the processes that run on libkmem: your own, or as root everybody's."""
    from kmem.live.tables import show_processes

    show_processes(as_json=as_json)


@app.command()
def info(
    process: Pid,
    cache: Annotated[
        str | None, typer.Argument(metavar="CACHE", help="Show only the cache of this name.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the slab table of a running process, in the format of /proc/slabinfo.

    An active object is an object that the back end handed out, to the program or to a per-CPU
    sheaf.
    """
    from kmem.live.tables import show_info

    show_info(process, cache, as_json=as_json)


# With this setting -1 is a value and no unknown option, so the message can say which values an
# attribute takes.
@app.command(context_settings={"ignore_unknown_options": True})
def attr(
    process: Pid,
    name: Annotated[
        str,
        typer.Argument(
            metavar="CACHE/NAME", help="Cache and attribute, as kmalloc-64/cpu_partial."
        ),
    ],
    value: Annotated[
        str | None,
        typer.Argument(metavar="VALUE", help="Value to write; without it the attribute is read."),
    ] = None,
    effective: Annotated[
        bool,
        typer.Option(
            "--effective",
            help="Read the value in force, which may differ from the requested value.",
        ),
    ] = False,
) -> None:
    """Read or write an attribute of a cache in a running process (docs/attributes.md).

    kmem info PID lists the caches, and a wrong NAME the attributes. A written value is in force
    from the process's next refill or drain on, which is when it takes objects from slabs or gives
    some back.
    """
    from kmem.live.attributes import read_attribute, write_attribute

    if value is None:
        read_attribute(process, name, in_force=effective)
    elif effective:
        raise BadUsage("attr: --effective is for reading")
    else:
        write_attribute(process, name, value)


@app.command()
def trim(process: Pid) -> None:
    """Make a running process give back the memory that it does not use.

    Prints the bytes that came back, or "pending" after two seconds: the process then sleeps, and
    trims when it next takes memory from its slabs. kmem explain PID predicts what would come back.
    """
    from kmem.live.trim import trim

    trim(process)


@app.command()
def guards(
    process: Annotated[int | None, typer.Argument(metavar="PID", min=1, help="Process id.")] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Faults of all processes: your own, or as root everybody's."),
    ] = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the faults of ended processes for another look."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the faults that sampled guards have found (docs/debugging.md).

    Processes that have ended, or that a fault has ended, are listed once. Start a program with
    `kmem run --guards`, or write attribute guard_sampling while it runs.
    """
    from kmem.live.guards import show_guards

    if (process is None) == (not everything):
        raise BadUsage("guards: expected a process id, or --all")
    show_guards(process, as_json=as_json, keep=keep)


@app.command()
def symbolize(
    log: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Log with reports; default or -: standard input.",
            parser=file_name,
        ),
    ] = None,
) -> None:
    """Print a log with functions, files and lines in the library's reports (docs/debugging.md).

    Places of code, PATH+0xOFFSET, become functions, those that were inlined first; all else stays
    as it is: PROGRAM 2>&1 | kmem symbolize. Programs and libraries are read from their paths, debug
    files by their build ids.
    """
    from kmem.live.reports import symbolize_file

    symbolize_file(log)


@app.command()
def profile(
    context: typer.Context,
    source: Annotated[
        Any,
        typer.Argument(
            metavar="PID|FILE",
            help="Process id, or a NAME.pb.gz that an earlier profile wrote.",
            parser=process_or_file,
        ),
    ],
    outputs: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write: NAME.html for a flame graph as a page, NAME.svg for a picture of "
            "it, NAME.pb.gz for pprof, NAME.collapsed for stacks as lines, NAME.speedscope.json "
            "for speedscope; may be repeated. Without it a table of the largest call sites is "
            "printed.",
            parser=file_name,
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            min=0,
            max=86400,
            help="Seconds to profile, up to a day; Ctrl-C ends the profile earlier.",
        ),
    ] = 10,
    interval: SampleInterval = None,
    view: Annotated[
        Literal["live", "rate"],
        typer.Option(
            help="Figure of the table and the flame graph: live for bytes in use, rate for bytes "
            "allocated meanwhile."
        ),
    ] = "live",
    base: Annotated[
        Path | None,
        typer.Option(
            "--base",
            metavar="FILE",
            help="Subtract the profile in this NAME.pb.gz: what grew and what shrank since.",
            parser=file_name,
        ),
    ] = None,
    growth: Annotated[
        bool,
        typer.Option(
            "--growth",
            help="Profile twice for --seconds each, and subtract the first: what grows.",
        ),
    ] = False,
    by: Annotated[
        Literal["site", "thread"],
        typer.Option(
            help="What the table adds up: the bytes of call sites, or of the threads that "
            "allocated them. With thread, files have the thread as outermost frame of each stack."
        ),
    ] = "site",
    slices: Annotated[
        int,
        typer.Option(
            "--slices",
            metavar="PERCENT",
            min=0,
            max=50,
            help="Share of the time, 0 to 50 percent, in which sheaves serve no calls. Allocated "
            "bytes are then estimated from that time, which also shows call sites that "
            "sheaves would hide.",
        ),
    ] = 0,
) -> None:
    """Profile the heap of a running process by samples (docs/profiles.md).

    Memory in use counts objects allocated since this profile began, and those that earlier profiles
    of the process have sampled. Start a program with the option profile_interval=BYTES to sample it
    from the beginning. The table then has bytes by age, and the call sites that look like leaks.
    --growth finds a leak in any running program.
    """
    from kmem.live.profile import profile

    if isinstance(source, Path):
        for name in ("seconds", "interval", "slices"):
            if is_given(context, name):
                raise BadUsage(
                    f"--{name} {context.params[name]:.15g}: expected a process; {source} was"
                    " sampled when it was written"
                )
    profile(
        source,
        seconds=seconds,
        interval=interval,
        slices=slices,
        outputs=outputs or [],
        view=view,
        base=base,
        growth=growth,
        by=by,
    )


@app.command()
def top(
    process: Annotated[
        int | None,
        typer.Argument(metavar="PID", min=1, help="Process id; default: choose from a list."),
    ] = None,
    delay: Annotated[
        float,
        typer.Option(
            "--delay", "-d", metavar="SECONDS", help="Seconds between two looks, 0.1 to 3600."
        ),
    ] = 1.0,
    sort: Annotated[
        str,
        typer.Option(
            "--sort",
            "-s",
            metavar="KEY",
            help="Sort caches by this column; the letters are listed above.",
        ),
    ] = "c",
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            "-o",
            help="Print a table of a single look and end; it has no growth and no rates.",
        ),
    ] = False,
) -> None:
    """Watch the caches of a running process, or all processes on libkmem.

    Sizes are in bytes, K, M and G are powers of 1024; ? says what columns mean. Keys sort: c size,
    g growth, w waste, o objects, a active objects, u use, s object size, l slabs, v active slabs, b
    objects per slab, p pages per slab, n name. Enter shows a cache's attributes, or a process's
    caches; Escape goes back, q ends.
    """
    from kmem.live.top import show_top

    show_top(process, delay=delay, order=sort, once=once)


@app.command()
def serve(
    port: Annotated[
        int, typer.Option("--port", help="TCP port, up to 65535; 0 takes any free port.")
    ] = 9745,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="SECONDS", help="Seconds between two looks, 0.1 to 3600."
        ),
    ] = 1.0,
    allow_writes: Annotated[
        bool,
        typer.Option("--allow-writes", help="Let the page change attributes and take profiles."),
    ] = False,
    caches: Annotated[
        int,
        typer.Option(
            "--caches",
            metavar="N",
            help="Caches of each process in the metrics, the largest, 1 to 200; the others are "
            "added up.",
        ),
    ] = 25,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="ADDRESS",
            help="IPv4 address to listen on; one that others can reach needs --token-file.",
        ),
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with a token of 16 characters or more, which every request then needs: as "
            "Authorization: Bearer, or in the page's address behind #token=.",
            parser=file_name,
        ),
    ] = None,
) -> None:
    """Serve Prometheus metrics and a page with live charts, on this machine without --listen.

    Every user of the machine can read them, unless there is a token file. To change attributes and
    to take profiles, open the printed address, which contains a token. docs/watching.md says what
    the metrics mean, and has rules for alerts. Ctrl-C ends it.
    """
    from kmem.live.serve import show_service

    show_service(
        port,
        interval,
        allow_writes=allow_writes,
        caches=caches,
        listen=listen,
        token_file=token_file,
    )


@app.command()
def push(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="A server that takes profiles as Pyroscope does, like http://127.0.0.1:4040.",
        ),
    ] = None,
    processes: Annotated[
        list[int] | None,
        typer.Option(
            "--process",
            metavar="PID",
            min=1,
            help="Process to profile; may be repeated. Default: all of yours on libkmem.",
        ),
    ] = None,
    pattern: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="PATTERN",
            help="Only programs with such a name, as 'python3*'.",
        ),
    ] = "*",
    seconds: Annotated[
        float, typer.Option("--seconds", help="Seconds of each profile, 1 to 3600.")
    ] = 60,
    interval: SampleInterval = None,
    rounds: Annotated[
        int,
        typer.Option("--rounds", min=0, help="Profiles of each process; 0: until Ctrl-C."),
    ] = 0,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with a token of 16 characters or more, sent as Authorization: Bearer.",
            parser=file_name,
        ),
    ] = None,
    profiles: Annotated[
        str | None,
        typer.Option(
            "--profiles",
            metavar="URL",
            help="A server that takes profiles by OTLP over HTTP, like http://127.0.0.1:4318.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="URL",
            help="A server that takes metrics by OTLP over HTTP, like http://127.0.0.1:4318: the "
            "figures of `kmem serve`'s /metrics.",
        ),
    ] = None,
    every: Annotated[
        float, typer.Option("--every", help="Seconds between two times of metrics, 1 to 3600.")
    ] = 15,
) -> None:
    """Send heap profiles and figures of running programs to servers (docs/profiles.md).

    Profiles are shown as Pyroscope shows others: bytes and objects in use, and allocated meanwhile,
    by program, process and host. What a server does not take is lost, with a line, and the server
    is asked again after a pause.
    """
    from kmem.live.push import push as push_profiles

    push_profiles(
        url,
        processes=processes or [],
        pattern=pattern,
        seconds=seconds,
        interval=interval,
        token_file=token_file,
        rounds=rounds,
        profiles=profiles,
        metrics=metrics,
        every=every,
    )
