# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem push`: profiles of running programs, one after the other, to a server of profiles, and
figures to a server of metrics (push_metrics.py).

A profile is a POST to URL/ingest as Pyroscope's server, and Grafana's Alloy, take it (its "Server
HTTP API"): the query has the program's name with labels, the times and the format; the body is a
form with the pprof file and what its figures are. Or it is one of OpenTelemetry's messages
(otlp_profiles.py). A profile is taken once, also for two servers.
"""

import fnmatch
import gzip
import json
import os
import re
import secrets
import signal
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import typer

from kmem.common.errors import BadUsage, KmemError, SayOnce
from kmem.common.signals import end_as_by_ctrl_c, signals_kept
from kmem.live.profile import check_interval, take
from kmem.live.profile_files import TYPES, Profile, pprof_of
from kmem.live.receivers import Poster
from kmem.live.registry.find import open_process
from kmem.live.registry.layout import RegistryError
from kmem.live.tokens import read_token
from kmem.live.watch import Figures, read_processes

PROFILES_AT_ONCE = 16  # further programs have their turn behind these
SECONDS_LEAST, SECONDS_MOST = 1.0, 3600.0
SERVER_NAMES_LEFT_OUT = re.compile(r"[^\w.-]+", re.ASCII)  # they would end a label or a name


def sample_types() -> str:
    """How the server is to add up the figures: allocated is a sum, in use an amount."""
    return json.dumps(
        {
            name: {
                "units": "bytes" if unit == "bytes" else "objects",
                "aggregation": "average" if name.startswith("inuse") else "sum",
                "display-name": name,
                "sampled": False,
            }
            for name, unit in TYPES
        }
    )


def application(figures: Figures) -> str:
    """The name that the server shows, with labels."""
    labels = {"pid": str(figures.process), "host": socket.gethostname(), "libkmem": figures.release}
    name = SERVER_NAMES_LEFT_OUT.sub("_", figures.command) or "program"
    shown = (f"{key}={SERVER_NAMES_LEFT_OUT.sub('_', value)}" for key, value in labels.items())
    return f"{name}{{{','.join(shown)}}}"


def form(parts: dict[str, tuple[str, bytes]]) -> tuple[str, bytes]:
    """A multipart form of files, by their field: name and content; its type and its bytes."""
    boundary = secrets.token_hex(16)
    body = b""
    for field, (file, content) in parts.items():
        head = f'Content-Disposition: form-data; name="{field}"; filename="{file}"'
        body += f"--{boundary}\r\n{head}\r\n\r\n".encode() + content + b"\r\n"
    return f"multipart/form-data; boundary={boundary}", body + f"--{boundary}--\r\n".encode()


class Profiles(Poster):
    """A server that profiles go to."""

    what = "profiles"

    def send(self, figures: Figures, made: Profile) -> bool:
        """Whether the server has the profile now."""
        raise NotImplementedError


class Ingest(Profiles):
    """Takes profiles as Pyroscope's server does."""

    def send(self, figures: Figures, made: Profile) -> bool:
        if self.rests():
            return False
        begin = made.time_ns / 1e9
        query = {
            "name": application(figures),
            "from": f"{begin:.0f}",
            "until": f"{begin + made.duration_ns / 1e9:.0f}",
            "format": "pprof",
            "spyName": "libkmem",
        }
        kind, body = form(
            {
                "profile": ("profile.pb.gz", pprof_of(made, "live")),
                "sample_type_config": ("config.json", sample_types().encode()),
            }
        )
        answer = self.post(f"/ingest?{urllib.parse.urlencode(query)}", body, {"Content-Type": kind})
        if answer is None:
            return False
        self.succeeded()
        return True


class Otlp(Profiles):
    """Takes profiles by OpenTelemetry's protocol over HTTP."""

    def send(self, figures: Figures, made: Profile) -> bool:
        from kmem.live.otlp_profiles import refusal_of, request_of

        if self.rests():
            return False
        answer = self.post(
            "/v1development/profiles",
            gzip.compress(request_of(figures, made).SerializeToString()),
            {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"},
        )
        if answer is None:
            return False
        if refusal := refusal_of(answer):
            self.failed(refusal)
            return False
        self.succeeded()
        return True


@dataclass(frozen=True)
class Chosen:
    """Which processes are profiled: those that the user may write to, of these."""

    processes: frozenset[int]  # none: all
    pattern: str  # of the program's name

    def find(self, complain: Callable[[str], None]) -> list[Figures]:
        refusals: list[str] = []
        found = read_processes(refusals)
        for refusal in refusals:
            complain(f"push: left out: {refusal}")
        user = os.geteuid()
        return [
            figures
            for figures in found
            if user in (0, figures.user)
            and (not self.processes or figures.process in self.processes)
            and fnmatch.fnmatchcase(figures.command, self.pattern)
        ]

    def why_not(self, process: int) -> str:
        """Why a process is not among those that were found."""
        try:
            with open_process(process, writable=True):
                return f"process {process}: expected a program with --name {self.pattern}"
        except RegistryError as error:
            return str(error)


class Profiler:
    """Takes profiles of the chosen processes and sends them."""

    def __init__(
        self, servers: Sequence[Profiles], chosen: Chosen, seconds: float, interval: int | None
    ) -> None:
        self.servers, self.chosen = servers, chosen
        self.seconds, self.interval = seconds, interval
        self.complain = SayOnce()

    def one(self, figures: Figures, signals: list[int]) -> int:
        """How many servers have a profile of the process now."""
        try:
            made, _ = take(
                figures.process,
                seconds=self.seconds,
                interval=self.interval,
                slices=0,
                growth=False,
                signals=signals,
            )
        except KmemError as error:
            self.complain(f"push: left out: {error}")
            return 0
        return sum(server.send(figures, made) for server in self.servers)

    def run(self, rounds: int, signals: list[int]) -> int:
        """Until a signal comes or so many rounds are done, 0: for ever. How many were sent."""
        sent, begins = 0, True
        with ThreadPoolExecutor(PROFILES_AT_ONCE) as pool:
            while not signals:
                begun = time.monotonic()
                found = self.chosen.find(self.complain)
                missing = self.chosen.processes - {figures.process for figures in found}
                if missing and begins:
                    raise KmemError(f"push: {self.chosen.why_not(min(missing))}")
                if self.chosen.processes and not found:
                    break  # they have ended
                if begins and not found:
                    name = repr(self.chosen.pattern)
                    self.complain(f"push: no process of yours on libkmem has a name like {name}")
                begins = False
                sent += sum(pool.map(lambda figures: self.one(figures, signals), found))
                rounds -= 1
                if not rounds:
                    break
                # Without a process a round takes no time.
                while not (signals or found) and time.monotonic() < begun + 1:
                    time.sleep(0.05)
        return sent


def check_push(
    *,
    for_profiles: bool,
    for_metrics: bool,
    processes: list[int],
    pattern: str,
    seconds: float,
    interval: int | None,
    rounds: int,
    every: float,
) -> None:
    """Refuse options that are out of their range, or are for a server that is not given."""
    if not (for_profiles or for_metrics):
        raise BadUsage("push: expected a URL for profiles, --profiles URL or --metrics URL")
    for name, given in (("seconds", seconds), ("every", every)):
        if not SECONDS_LEAST <= given <= SECONDS_MOST:
            raise BadUsage(
                f"push: --{name} {given:g}: expected {SECONDS_LEAST:g} to {SECONDS_MOST:g}"
            )
    check_interval("push: --interval ", interval)
    if for_profiles:
        return
    for option, is_given in (
        ("process", processes),
        ("name", pattern != "*"),
        ("rounds", rounds),
    ):
        if is_given:
            raise BadUsage(f"push: --{option} is for profiles; expected a URL for them, too")


def push(
    url: str | None,
    *,
    processes: list[int],
    pattern: str,
    seconds: float,
    interval: int | None,
    token_file: Path | None,
    rounds: int,
    profiles: str | None,
    metrics: str | None,
    every: float,
) -> None:
    """Send profiles to URL and to `profiles`, and metrics to another; any may be None."""
    check_push(
        for_profiles=url is not None or profiles is not None,
        for_metrics=metrics is not None,
        processes=processes,
        pattern=pattern,
        seconds=seconds,
        interval=interval,
        rounds=rounds,
        every=every,
    )
    token = None if token_file is None else read_token("push", token_file)
    chosen = Chosen(frozenset(processes), pattern)
    servers: list[Profiles] = []
    if url is not None:
        servers.append(Ingest(url, token))
    if profiles is not None:
        servers.append(Otlp(profiles, token))
    profiler = Profiler(servers, chosen, seconds, interval) if servers else None
    end = threading.Event()
    thread = None
    if metrics is not None:
        from kmem.live.push_metrics import Metrics

        thread = threading.Thread(target=Metrics(metrics, token).run, args=(every, end))

    end_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    sent = 0
    with signals_kept() as signals:
        if thread:
            thread.start()
        try:
            if profiler:
                sent = profiler.run(rounds, signals)
                typer.echo(f"{sent} profiles sent")
            while thread and not profiler and not signals:
                time.sleep(0.05)
        finally:
            end.set()
            if thread:
                thread.join()
    # A number of rounds is for scripts, which read the status.
    if rounds and not sent:
        raise typer.Exit(1)
