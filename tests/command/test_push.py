# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem push` sends profiles to a stand-in for a server, which reads what came."""

from __future__ import annotations

import contextlib
import gzip
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from test_live import DEADLINE, KMEM, Program

from kmem.live import receivers
from kmem.live.metrics import ProcessesCollector
from kmem.live.pprof import read
from kmem.live.push import Profiles
from kmem.live.registry.find import open_process

pytestmark = pytest.mark.alone

LEAK = """
import threading, time
kept = []
def forgotten():
    while True:
        kept.append(bytearray(20000))
        time.sleep(0.002)
threading.Thread(target=forgotten, daemon=True).start()
"""


@dataclass(frozen=True)
class Sent:
    path: str
    query: dict[str, list[str]]
    token: str | None
    parts: dict[str, bytes]


class Standing(ThreadingHTTPServer):
    """Keeps what was sent; answers with the first of its statuses that is left, then with 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sent: list[Sent] = []
        self.statuses: list[int] = []
        self.reply = b""  # the body of each answer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Standing

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/v1"):
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.headers["Content-Type"] == "application/x-protobuf"
            sent = Sent(self.path, {}, self.headers.get("Authorization"), {"message": body})
            self.server.sent.append(sent)
            self.answer(self.server.statuses.pop(0) if self.server.statuses else 200)
            return
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        message = BytesParser().parsebytes(head + body)
        assert message.is_multipart()
        parts = {
            str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True)
            for part in message.get_payload()
        }
        url = urlsplit(self.path)
        token = self.headers.get("Authorization")
        self.server.sent.append(Sent(url.path, parse_qs(url.query), token, parts))
        self.answer(self.server.statuses.pop(0) if self.server.statuses else 200)

    def answer(self, status: int) -> None:
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(self.server.reply)))
        self.end_headers()
        self.wfile.write(self.server.reply)

    def do_GET(self) -> None:
        self.server.sent.append(Sent(self.path, {}, None, {}))
        self.send_error(404)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def standing() -> Iterator[Standing]:
    server = Standing()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def leaking() -> Iterator[Program]:
    with Program(before=LEAK) as running:
        yield running


def push(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [KMEM, "push", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE,
        check=False,
    )


@contextlib.contextmanager
def pushing(*words: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [KMEM, "push", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def interval_of(program: Program) -> int:
    with open_process(program.pid) as registry:
        return registry.number("head", "profile_interval")


def wait_for(standing: Standing, count: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while len(standing.sent) < count:
        assert time.monotonic() < deadline, standing.sent
        time.sleep(0.05)


def test_what_is_sent(standing: Standing, leaking: Program, tmp_path: Path) -> None:
    begun = time.time()
    done = push(
        standing.url + "/",
        *("--process", leaking.pid, "--seconds", 2, "--interval", 4096, "--rounds", 2),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 profiles sent\n", "")
    first, second = standing.sent
    assert first.path == "/ingest" and first.token is None
    query = {name: values[0] for name, values in first.query.items()}
    assert query["format"] == "pprof" and query["spyName"] == "libkmem"
    name, _, labels = query["name"].partition("{")
    assert name.startswith("python") and f"pid={leaking.pid}," in labels and labels[-1] == "}"
    assert begun - 1 <= int(query["from"]) <= int(query["until"]) - 2 <= time.time()
    # The second begins where the first ended.
    assert 0 <= int(second.query["from"][0]) - int(query["until"]) <= 2
    types = json.loads(first.parts["sample_type_config"])
    assert types["inuse_space"]["aggregation"] == "average"
    assert types["alloc_objects"] == {
        "units": "objects",
        "aggregation": "sum",
        "display-name": "alloc_objects",
        "sampled": False,
    }
    file = tmp_path / "sent.pb.gz"
    file.write_bytes(first.parts["profile"])
    saved = read(file)
    assert [kind for kind, _ in saved.types] == list(types)
    functions = {
        line.function for row in saved.rows for frame in row.frames for line in frame.lines
    }
    assert "forgotten" in functions


def test_a_token(standing: Standing, leaking: Program, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    words = ("--process", leaking.pid, "--seconds", 1, "--rounds", 1, "--token-file", file)
    assert push(standing.url, *words).returncode == 0
    assert [sent.token for sent in standing.sent] == ["Bearer 0123456789abcdef"]


def test_failures(standing: Standing, leaking: Program) -> None:
    """A failure is one line; the server is asked again after a pause, and then that is a line."""
    standing.statuses = [503, 302]
    words = ("--process", leaking.pid, "--seconds", 1, "--rounds", 7)
    done = push(standing.url, *words)
    assert done.returncode == 0
    first, again = done.stderr.splitlines()
    assert first == (
        f"kmem: push: {standing.url}: 503 Service Unavailable; profiles are lost until it takes"
        " them"
    )
    lost = 7 - int(done.stdout.split()[0])
    assert again == f"kmem: push: {standing.url}: takes profiles again; {lost} were lost"
    assert 2 < lost < 7
    # A redirect is a failure, too: the token and the heap's content are for the server alone.
    assert all(sent.path == "/ingest" for sent in standing.sent)


def resources_of(sent: Sent) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Attributes of each resource, and its metrics by name."""
    request = ExportMetricsServiceRequest.FromString(sent.parts["message"])
    return [
        (attributes_of(one.resource), {m.name: m for m in one.scope_metrics[0].metrics})
        for one in request.resource_metrics
    ]


def attributes_of(one: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in one.attributes
    }


def test_metrics(standing: Standing, leaking: Program, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef")
    with pushing("--metrics", standing.url, "--every", 1, "--token-file", file) as process:
        wait_for(standing, 2)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=DEADLINE) == ("", "")
    assert {(sent.path, sent.token) for sent in standing.sent} == {
        ("/v1/metrics", "Bearer 0123456789abcdef")
    }
    resources = resources_of(standing.sent[0])
    machine = next(metrics for attributes, metrics in resources if "process.pid" not in attributes)
    assert machine["kmem_processes"].gauge.data_points[0].as_int >= 1
    attributes, metrics = next(one for one in resources if one[0].get("process.pid") == leaking.pid)
    assert attributes["service.name"] == attributes["process.executable.name"]
    assert attributes["service.name"].startswith("python")
    resident = metrics["kmem_process_resident_bytes"]
    assert resident.unit == "By" and resident.gauge.data_points[0].as_int > 1 << 20
    taken = metrics["kmem_cache_taken_objects"]
    assert taken.sum.is_monotonic and taken.sum.aggregation_temporality == 2  # cumulative
    caches = {attributes_of(point)["cache"]: point.as_int for point in taken.sum.data_points}
    assert caches and all(name.startswith(("kmalloc", "kmem")) for name in caches)
    # All metrics that /metrics has, by name, are there.
    families = {family.name for family in ProcessesCollector().collect() if family.samples}
    assert families <= {name for _, of_one in resources for name in of_one}


def test_metrics_that_are_not_taken(standing: Standing) -> None:
    standing.statuses = [400]
    with pushing("--metrics", standing.url, "--every", 1) as process:
        wait_for(standing, 2)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        said, errors = process.communicate(timeout=DEADLINE)
    assert said == ""
    first, again = errors.splitlines()
    assert first == (
        f"kmem: push: {standing.url}: did not take them; metrics are lost until it takes them"
    )
    assert again.startswith(f"kmem: push: {standing.url}: takes metrics again; ")


def test_both(standing: Standing, leaking: Program) -> None:
    words = ("--process", leaking.pid, "--seconds", 1, "--rounds", 1)
    done = push(standing.url, *words, "--metrics", standing.url)
    assert (done.stdout, done.stderr) == ("1 profiles sent\n", "")
    assert {sent.path for sent in standing.sent} == {"/ingest", "/v1/metrics"}


def test_nobody_there(leaking: Program) -> None:
    with Standing() as server:
        url = server.url
    done = push(url, "--process", leaking.pid, "--seconds", 1, "--rounds", 2)
    assert (done.returncode, done.stdout) == (1, "0 profiles sent\n")
    assert (
        done.stderr
        == f"kmem: push: {url}: Connection refused; profiles are lost until it takes them\n"
    )


@pytest.mark.parametrize(
    "answer", [b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
def test_an_answer_that_is_no_http(leaking: Program, answer: bytes) -> None:
    class Speaker(StreamRequestHandler):
        def handle(self) -> None:
            length = 0
            while (line := self.rfile.readline().lower()) != b"\r\n":
                if line.startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            self.rfile.read(length)
            self.wfile.write(answer)

    with TCPServer(("127.0.0.1", 0), Speaker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        done = push(url, "--process", leaking.pid, "--seconds", 1, "--rounds", 1)
        server.shutdown()
    assert (done.returncode, done.stdout) == (1, "0 profiles sent\n")
    assert done.stderr.startswith(f"kmem: push: {url}: expected an answer in HTTP, not ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "begin", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"]
)
def test_an_answer_in_small_pieces(
    begin: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each comes in time, but the answer as a whole does not."""

    class Speaker(StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(begin)
            with contextlib.suppress(OSError):
                for _ in range(50):
                    self.wfile.write(b"a")
                    time.sleep(0.1)

    monkeypatch.setattr(receivers, "ANSWER_SECONDS", 1)
    with TCPServer(("127.0.0.1", 0), Speaker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert Profiles(url, None).post("/ingest", b"body", {}) is None
        server.shutdown()
    expected = f"kmem: push: {url}: timed out; profiles are lost until it takes them\n"
    assert capsys.readouterr().err == expected


def test_a_name_that_no_program_has() -> None:
    done = push("http://127.0.0.1:1", "--name", "nobody*", "--seconds", 1, "--rounds", 1)
    assert (done.returncode, done.stdout) == (1, "0 profiles sent\n")
    assert done.stderr == "kmem: push: no process of yours on libkmem has a name like 'nobody*'\n"


def test_a_signal_ends_it(standing: Standing, leaking: Program) -> None:
    """In the middle of a profile, which is sent; sampling does not go on."""
    words = ("--process", leaking.pid, "--seconds", 600, "--interval", 4096)
    with pushing(standing.url, *words) as process:
        deadline = time.monotonic() + DEADLINE
        while interval_of(leaking) != 4096:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        said, errors = process.communicate(timeout=DEADLINE)
    assert said.endswith(" profiles sent\n") and errors == ""
    assert any(f"pid={leaking.pid}," in sent.query["name"][0] for sent in standing.sent)
    assert interval_of(leaking) == 0


def test_ends_with_its_process(standing: Standing) -> None:
    with (
        Program(before=LEAK) as ending,
        pushing(standing.url, "--process", ending.pid, "--seconds", 1) as process,
    ):
        wait_for(standing, 1)
        ending.popen.kill()
        ending.popen.wait()
        assert process.wait(timeout=DEADLINE) == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["ftp://x"], "push: ftp://x: expected http://HOST:PORT or https://HOST"),
        ([""], "push: '': expected http://HOST:PORT or https://HOST"),
        (["http://x?a=b"], "push: http://x?a=b: expected http://HOST:PORT or https://HOST"),
        ([], "push: expected a URL for profiles, --profiles URL or --metrics URL"),
        (["--profiles", "x"], "push: x: expected http://HOST:PORT or https://HOST"),
        (["--metrics", "x"], "push: x: expected http://HOST:PORT or https://HOST"),
        (["http://["], "push: http://[: expected http://HOST:PORT or https://HOST"),
        (["http://x:y"], "push: http://x:y: expected http://HOST:PORT or https://HOST"),
        (["http://x:65536"], "push: http://x:65536: expected http://HOST:PORT or https://HOST"),
        (["http://x/a b"], "push: http://x/a b: expected http://HOST:PORT or https://HOST"),
        (["http://x/ä"], "push: http://x/ä: expected http://HOST:PORT or https://HOST"),
        (["http://x..y"], "push: http://x..y: expected http://HOST:PORT or https://HOST"),
        (["http://:a@x"], "push: http://:a@x: expected http://HOST:PORT or https://HOST"),
        (["http://x#a"], "push: http://x#a: expected http://HOST:PORT or https://HOST"),
        (["--metrics", "http://x", "--rounds", "1"], "push: --rounds is for profiles; expected a"),
        (["--metrics", "http://x", "--name", "a"], "push: --name is for profiles; expected a URL"),
        (["http://x", "--every", "0"], "push: --every 0: expected 1 to 3600"),
        (["http://x", "--seconds", "0.5"], "push: --seconds 0.5: expected 1 to 3600"),
        (["http://x", "--interval", "7"], "push: --interval 7: expected 1024 to 1099511627776"),
        (["http://x", "--process", "-3"], "push: --process '-3': expected at least 1"),
        (["http://x", "--process", "1"], "push: process 1 does not run on libkmem"),
        (["http://x", "--process", "999999999"], "push: process 999999999: there is none"),
        (["http://x", "--token-file", "/none"], "push: --token-file /none: No such file"),
    ],
)
def test_mistakes(words: list[str], line: str) -> None:
    done = push(*words)
    assert done.returncode in (1, 2) and line in done.stderr and done.stderr.count("\n") == 1
