# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem push`: profiles of running programs, one after the other, to a server of profiles.

Each is a POST to URL/ingest as Pyroscope's server, and Grafana's Alloy, take it (its "Server HTTP
API"): the query has the program's name with labels, the times and the format; the body is a form
with the pprof file and what its figures are.
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

from kmem.common.errors import BadUsage, KmemError, say
from kmem.common.signals import end_as_by_ctrl_c
from kmem.live.profile import LEAST, MOST, signals_kept, take
from kmem.live.profile_files import TYPES, Profile, pprof_of
from kmem.live.registry.find import read_each
from kmem.live.tokens import read_token
from kmem.live.watch import Figures, read_figures

PROFILES_AT_ONCE = 16  # further programs have their turn behind these
SECONDS_LEAST, SECONDS_MOST = 1.0, 3600.0
ANSWER_SECONDS = 10
PAUSE_LEAST, PAUSE_MOST = 2.0, 300.0  # seconds, behind a failure
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


class Server:
    """Where profiles go. After a failure it is left alone for a while, which doubles."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise BadUsage(f"push: {url}: expected http://HOST:PORT or https://HOST")
        self.url = url.rstrip("/")
        self.token = token
        self.opener = urllib.request.build_opener(NoRedirects)
        self.lock = threading.Lock()
        self.pause = 0.0
        self.until = 0.0
        self.lost = 0  # profiles, since the last that was taken

    def send(self, figures: Figures, made: Profile) -> bool:
        """Whether the server has the profile now."""
        with self.lock:
            if time.monotonic() < self.until:
                self.lost += 1
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

    def failed(self, reason: str) -> None:
        with self.lock:
            first = not self.lost
            self.lost += 1
            self.pause = min(max(2 * self.pause, PAUSE_LEAST), PAUSE_MOST)
            self.until = time.monotonic() + self.pause
        if first:
            say(f"push: {self.url}: {reason}; profiles are lost until it takes them")

    def succeeded(self) -> None:
        with self.lock:
            lost, self.lost, self.pause, self.until = self.lost, 0, 0.0, 0.0
        if lost:
            say(f"push: {self.url}: takes profiles again; {lost} were lost")


@dataclass(frozen=True)
class Chosen:
    """Which processes are profiled: those that the user may write to, of these."""

    processes: frozenset[int]  # none: all
    pattern: str  # of the program's name

    def find(self, complain: Callable[[str], None]) -> list[Figures]:
        refusals: list[str] = []
        found = {figures.process: figures for figures in read_each(read_figures, refusals)}
        for refusal in refusals:
            complain(f"push: left out: {refusal}")
        user = os.geteuid()
        return [
            figures
            for _, figures in sorted(found.items())
            if user in (0, figures.user)
            and (not self.processes or figures.process in self.processes)
            and fnmatch.fnmatchcase(figures.command, self.pattern)
        ]


def push(
    url: str,
    *,
    processes: list[int],
    pattern: str,
    seconds: float,
    interval: int,
    token_file: Path | None,
    rounds: int,
) -> None:
    """Profile and send until a signal comes, or for so many rounds; 0: for ever."""
    if not SECONDS_LEAST <= seconds <= SECONDS_MOST:
        raise BadUsage(
            f"push: --seconds {seconds:g}: expected {SECONDS_LEAST:g} to {SECONDS_MOST:g}"
        )
    if not LEAST <= interval <= MOST:
        raise BadUsage(f"push: --interval {interval}: expected {LEAST} to {MOST} bytes")
    server = Server(url, None if token_file is None else read_token("push", token_file))
    chosen = Chosen(frozenset(processes), pattern)
    said: set[str] = set()

    def complain(line: str) -> None:
        if line not in said and len(said) < 1000:
            said.add(line)
            say(line)

    def one(figures: Figures, signals: list[int]) -> bool:
        try:
            made, _ = take(
                figures.process,
                seconds=seconds,
                interval=interval,
                slices=0,
                growth=False,
                signals=signals,
            )
        except KmemError as error:
            complain(f"push: left out: {error}")
            return False
        return server.send(figures, made)

    end_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    sent, begins = 0, True
    with signals_kept() as signals, ThreadPoolExecutor(PROFILES_AT_ONCE) as pool:
        while not signals:
            begun = time.monotonic()
            found = chosen.find(complain)
            missing = set(processes) - {figures.process for figures in found}
            if missing and begins:
                raise KmemError(f"push: process {min(missing)}: expected one of yours on libkmem")
            if processes and not found:
                break  # they have ended
            begins = False
            sent += sum(pool.map(lambda figures: one(figures, signals), found))
            rounds -= 1
            if not rounds:
                break
            # Without a process a round takes no time.
            while not signals and time.monotonic() < begun + min(seconds, 1 if not found else 0):
                time.sleep(0.05)
    typer.echo(f"{sent} profiles sent")
