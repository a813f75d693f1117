# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem push`: profiles of running programs, one after the other, to a server of profiles, and
figures to a server of metrics (push_metrics.py).

Each profile is a POST to URL/ingest as Pyroscope's server, and Grafana's Alloy, take it (its
"Server HTTP API"): the query has the program's name with labels, the times and the format; the body
is a form with the pprof file and what its figures are.
"""

import fnmatch
import json
import os
import re
import secrets
import signal
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import typer

from kmem.common.errors import BadUsage, KmemError, SayOnce
from kmem.common.signals import end_as_by_ctrl_c
from kmem.live.profile import LEAST, MOST, signals_kept, take
from kmem.live.profile_files import TYPES, Profile, pprof_of
from kmem.live.receivers import ANSWER_SECONDS, Receiver
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


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """The token is for the server that was named."""

    def redirect_request(self, *_: object) -> None:
        return None


class Profiles(Receiver):
    """Where profiles go."""

    what = "profiles"

    def __init__(self, url: str, token: str | None) -> None:
        super().__init__(url)
        self.token = token
        self.opener = urllib.request.build_opener(NoRedirects)

    def send(self, figures: Figures, made: Profile) -> bool:
        """Whether the server has the profile now."""
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
        request = urllib.request.Request(
            f"{self.url}/ingest?{urllib.parse.urlencode(query)}",
            data=body,
            headers={"Content-Type": kind, "User-Agent": "libkmem"},
            method="POST",
        )
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with self.opener.open(request, timeout=ANSWER_SECONDS) as answer:
                answer.read(1 << 16)
        except urllib.error.HTTPError as error:
            self.failed(f"{error.code} {error.reason}")
        except OSError as error:
            self.failed(str(getattr(error, "reason", error)))
        except ValueError as error:  # what an answer may hold that is no HTTP
            self.failed(str(error))
        else:
            self.succeeded()
            return True
        return False


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


class Profiler:
    """Takes profiles of the chosen processes and sends them."""

    def __init__(self, server: Profiles, chosen: Chosen, seconds: float, interval: int) -> None:
        self.server, self.chosen = server, chosen
        self.seconds, self.interval = seconds, interval
        self.complain = SayOnce()

    def one(self, figures: Figures, signals: list[int]) -> bool:
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
            return False
        return self.server.send(figures, made)

    def run(self, rounds: int, signals: list[int]) -> int:
        """Until a signal comes or so many rounds are done, 0: for ever. How many were sent."""
        sent, begins = 0, True
        with ThreadPoolExecutor(PROFILES_AT_ONCE) as pool:
            while not signals:
                begun = time.monotonic()
                found = self.chosen.find(self.complain)
                missing = self.chosen.processes - {figures.process for figures in found}
                if missing and begins:
                    one = min(missing)
                    raise KmemError(f"push: process {one}: expected one of yours on libkmem")
                if self.chosen.processes and not found:
                    break  # they have ended
                begins = False
                sent += sum(pool.map(lambda figures: self.one(figures, signals), found))
                rounds -= 1
                if not rounds:
                    break
                # Without a process a round takes no time.
                while not (signals or found) and time.monotonic() < begun + 1:
                    time.sleep(0.05)
        return sent


def push(
    url: str | None,
    *,
    processes: list[int],
    pattern: str,
    seconds: float,
    interval: int,
    token_file: Path | None,
    rounds: int,
    metrics: str | None,
    every: float,
) -> None:
    """Send profiles to URL and metrics to another, either of which may be None."""
    if url is None and metrics is None:
        raise BadUsage("push: expected a URL for profiles, --metrics URL, or both")
    if not SECONDS_LEAST <= seconds <= SECONDS_MOST:
        raise BadUsage(
            f"push: --seconds {seconds:g}: expected {SECONDS_LEAST:g} to {SECONDS_MOST:g}"
        )
    if not SECONDS_LEAST <= every <= SECONDS_MOST:
        raise BadUsage(f"push: --every {every:g}: expected {SECONDS_LEAST:g} to {SECONDS_MOST:g}")
    if not LEAST <= interval <= MOST:
        raise BadUsage(f"push: --interval {interval}: expected {LEAST} to {MOST} bytes")
    token = None if token_file is None else read_token("push", token_file)
    chosen = Chosen(frozenset(processes), pattern)
    profiler = None if url is None else Profiler(Profiles(url, token), chosen, seconds, interval)
    end = threading.Event()
    thread = None
    if metrics is not None:
        from kmem.live.push_metrics import Metrics

        thread = threading.Thread(target=Metrics(metrics, token).run, args=(every, end))

    end_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    with signals_kept() as signals:
        if thread:
            thread.start()
        try:
            if profiler:
                typer.echo(f"{profiler.run(rounds, signals)} profiles sent")
            while thread and not profiler and not signals:
                time.sleep(0.05)
        finally:
            end.set()
            if thread:
                thread.join()
