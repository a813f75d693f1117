# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem serve`: its metrics, its figures as JSON, what it refuses, and its page in a browser."""

import contextlib
import json
import operator
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kmem_command import KMEM, ROOT
from prometheus_client.parser import text_string_to_metric_families
from test_live import DEADLINE, Program, assert_refused, keys_of, kmem, value, wait_until

from kmem.live.metrics import CACHES, CACHES_MOST, OTHER, PROCESSES_MOST, ProcessesCollector
from kmem.live.registry.caches import Cache
from kmem.live.registry.find import open_process
from kmem.live.registry.heap import read_heap
from kmem.live.sampler import ProcessTrack
from kmem.live.serve import host_names
from kmem.live.watch import Figures, read_figures

pytestmark = pytest.mark.alone


@dataclass
class Server:
    popen: subprocess.Popen[str]
    address: str
    token: str | None

    def ask(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        body: object = None,
        method: str | None = None,
    ) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def get(self, path: str) -> dict:
        status, body = self.ask(path)
        assert status == 200, body
        return json.loads(body)

    def metrics(self) -> dict[tuple[str, str, str], float]:
        """Values by name, process and cache."""
        status, body = self.ask("metrics")
        assert status == 200
        return {
            (
                sample.name,
                sample.labels.get("pid", ""),
                sample.labels.get("cache", ""),
            ): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }


def serve(*options: str) -> Iterator[Server]:
    command = [KMEM, "serve", "--port", "0", "--interval", "0.2", "--caches", "200"]
    command += options
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as popen:
        assert popen.stdout is not None
        match = re.fullmatch(
            r"page +(http://127\.0\.0\.1:\d+/)(?:#token=(\S+))?\n", popen.stdout.readline()
        )
        assert match is not None
        yield Server(popen, match[1], match[2])
        popen.terminate()
        _, errors = popen.communicate(timeout=DEADLINE)
        assert (popen.returncode, errors) == (0, "")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    yield from serve()


@pytest.fixture(scope="module")
def writable() -> Iterator[Server]:
    yield from serve("--allow-writes")


@pytest.fixture
def program() -> Iterator[Program]:
    with Program() as running:
        running.do("some = take(mine, 5000)")
        yield running


def until_read(server: Server, program: Program) -> dict:
    """The process as the server shows it, after a look that began now."""
    path = f"api/processes/{program.pid}"
    wait_until(lambda: server.ask(path)[0] == 200)
    before = server.get(path)["times"][-1]
    wait_until(lambda: server.get(path)["times"][-1] > before + 0.2)
    return server.get(path)


def test_metrics_are_the_slab_table(server: Server, program: Program) -> None:
    metrics = server.metrics()
    pid = str(program.pid)
    rows = json.loads(value("info", program.pid, "--json"))["caches"]
    assert len(rows) > 10
    for row in rows:
        for name, field in {
            "kmem_cache_objects": "num_objs",
            "kmem_cache_active_objects": "active_objs",
            "kmem_cache_slabs": "num_slabs",
        }.items():
            assert metrics[name, pid, row["name"]] == row[field]
        slab_bytes = row["num_slabs"] * row["pagesperslab"] * 4096
        assert metrics["kmem_cache_slab_bytes", pid, row["name"]] == slab_bytes
    assert metrics["kmem_cache_taken_objects_total", pid, "mine"] >= 5000
    assert metrics["kmem_processes", "", ""] >= 1
    assert metrics["kmem_heap_held_bytes", pid, ""] > 1 << 20
    assert metrics["kmem_process_resident_bytes", pid, ""] > 1 << 20


def test_metrics_by_name(server: Server) -> None:
    """Prometheus's clients take only the wanted metrics of a scrape: of ours there were none."""
    status, body = server.ask("metrics?name[]=kmem_processes&name[]=kmem_refusals")
    lines = body.decode().splitlines()
    names = [line.split()[0] for line in lines if not line.startswith("#")]
    assert status == 200 and sorted(names) == ["kmem_processes", "kmem_refusals"]


def test_figures_as_json(server: Server, program: Program) -> None:
    document = until_read(server, program)
    mine = next(cache for cache in document["caches"] if cache["name"] == "mine")
    assert mine["table"]["num_objs"] == mine["objects"] >= mine["active_objects"] >= 5000
    assert mine["attributes"]["values"]["slab_size"] == 104
    assert mine["history"]["slab"][-1] == mine["slab_bytes"]
    assert len(document["times"]) == len(document["history"]["slab"])
    assert 0 < document["fast_path"]["share"] < 1
    assert document["fast_path"]["why"] is None
    assert mine["history"]["fast"][-1] == mine["fast_calls"] > mine["slow_calls"] > 0
    listed = server.get("api/processes")
    assert listed["writable"] is False
    assert program.pid in [row["pid"] for row in listed["processes"]]


def test_the_documents_have_every_key(server: Server, program: Program) -> None:
    document = until_read(server, program)
    for cache in document["caches"]:
        del cache["attributes"]["values"], cache["attributes"]["writable"], cache["table"]
    keys = keys_of([document, server.get("api/processes")])
    text = (ROOT / "docs" / "watching.md").read_text(encoding="utf-8")
    assert not [key for key in sorted(keys) if f"`{key}`" not in text]


def test_ended_and_unknown_processes(server: Server) -> None:
    with Program() as program:
        until_read(server, program)
        program.popen.kill()
        program.popen.wait()
        path = f"api/processes/{program.pid}"
        wait_until(lambda: server.ask(path)[0] == 409)
        assert "there is none" in json.loads(server.ask(path)[1])["error"]
    for path, status in {
        f"api/processes/{os.getppid()}": 409,
        "api/processes/x": 404,
        "api/processes/1/2/3/4": 404,
        "../pyproject.toml": 404,
        "page/page.js": 404,
    }.items():
        answer = server.ask(path)
        assert answer[0] == status
        assert json.loads(answer[1])["error"]


def test_another_program_of_the_number(server: Server, program: Program) -> None:
    """Its history begins anew."""
    until_read(server, program)
    assert program.popen.stdin is not None
    program.popen.stdin.write(
        "os.execve('/usr/bin/tail', ['tail', '-f', '/dev/null'], os.environ)\n"
    )
    program.popen.stdin.flush()
    path = f"api/processes/{program.pid}"

    def is_tail() -> bool:
        status, body = server.ask(path)
        return status == 200 and json.loads(body)["command"] == "tail"

    wait_until(is_tail)
    assert not any(cache["name"] == "mine" for cache in server.get(path)["caches"])


def test_other_pages_are_refused(server: Server) -> None:
    port = server.address.rpartition(":")[2].rstrip("/")
    for headers in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{port}"},  # not the host that is asked
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ):
        for path in ("", "metrics", "api/processes"):
            assert server.ask(path, headers)[0] == 403, headers
    assert server.ask("", {"Host": f"localhost:{port}"})[0] == 200
    assert server.ask("", {"Origin": f"http://127.0.0.1:{port}"})[0] == 200


def test_only_loopback(server: Server) -> None:
    """Every address that it listens at is 127.0.0.1."""
    port = int(server.address.rpartition(":")[2].rstrip("/"))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                found.append(local.partition(":")[0])
    assert found == ["0100007F"]


def change(
    server: Server, program: Program, name: str, new: str, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    mine = next(cache for cache in until_read(server, program)["caches"] if cache["name"] == "mine")
    status, body = server.ask(
        f"api/processes/{program.pid}/attributes",
        {"X-Kmem-Token": server.token or ""} if headers is None else headers,
        {"birth": mine["birth"], "name": name, "value": new},
    )
    return status, json.loads(body).get("error", "")


def test_changes_need_the_flag(server: Server, program: Program) -> None:
    before = value("attr", program.pid, "mine/cpu_partial")
    assert change(server, program, "cpu_partial", "7") == (
        403,
        "changes need kmem serve --allow-writes",
    )
    assert value("attr", program.pid, "mine/cpu_partial") == before


def test_changes_need_the_token(writable: Server, program: Program) -> None:
    before = value("attr", program.pid, "mine/cpu_partial")
    assert writable.token is not None
    origin = {"X-Kmem-Token": writable.token, "Origin": "http://evil.example"}
    for headers in ({}, {"X-Kmem-Token": "x"}, {"X-Kmem-Token": writable.token + "x"}, origin):
        assert change(writable, program, "cpu_partial", "7", headers)[0] == 403
    assert value("attr", program.pid, "mine/cpu_partial") == before
    assert change(writable, program, "cpu_partial", "7") == (200, "")
    assert value("attr", program.pid, "mine/cpu_partial") == "7\n"
    # The token is nowhere in what the server says.
    for path in ("", "page.js", "table.js", "metrics", "api/processes"):
        assert writable.token.encode() not in writable.ask(path)[1]


@pytest.mark.parametrize(
    ("name", "new", "status", "words"),
    [
        ("cpu_partial", "x", 409, "expected a number from 0"),
        ("remote_node_defrag_ratio", "101", 409, "0 to 100"),
        ("order", "1", 400, "one can write"),
        ("nothing", "1", 400, "one can write"),
    ],
)
def test_wrong_changes(
    writable: Server, program: Program, name: str, new: str, status: int, words: str
) -> None:
    answer = change(writable, program, name, new)
    assert answer[0] == status
    assert words in answer[1]


def connect(server: Server) -> socket.socket:
    port = int(server.address.rpartition(":")[2].rstrip("/"))
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)


def request(server: Server, *lines: str) -> bytes:
    host = server.address.removeprefix("http://").rstrip("/")
    return "\r\n".join([*lines, f"Host: {host}", "", ""]).encode()


def exchange(server: Server, sent: bytes) -> bytes:
    with connect(server) as client:
        client.sendall(sent)
        return b"".join(iter(lambda: client.recv(4096), b""))


def raw_change(server: Server, program: Program, body: bytes, length: str | None = None) -> bytes:
    head = request(
        server,
        f"POST /api/processes/{program.pid}/attributes HTTP/1.1",
        f"X-Kmem-Token: {server.token}",
        f"Content-Length: {len(body) if length is None else length}",
    )
    return exchange(server, head + body)


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/processes", "/nothing"])
def test_the_head_of_an_answer(server: Server, path: str) -> None:
    """As those ask for who only look whether there is somebody; the figures may differ."""
    asked, got = (
        exchange(server, request(server, f"{m} {path} HTTP/1.1")) for m in ("HEAD", "GET")
    )
    (head, body), (expected, content) = (one.split(b"\r\n\r\n", 1) for one in (asked, got))
    assert body == b""
    assert content
    changing = re.compile(rb"(Date|Content-Length): [^\r]+")
    assert changing.sub(rb"\1", head) == changing.sub(rb"\1", expected)
    assert re.search(rb"Content-Length: [1-9]", head)


def test_clients_that_go_away(server: Server) -> None:
    """They are no news: the server's standard error is looked at when it ends."""
    whole = request(server, "GET /metrics HTTP/1.1")
    for part in (b"", whole[:9], whole):
        for _ in range(5):
            with connect(server) as client:
                # Closed at once, with what is on the way.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(part)
    assert server.ask("metrics")[0] == 200


def test_clients_that_say_nothing(writable: Server, program: Program) -> None:
    with connect(writable) as silent:
        answer = raw_change(writable, program, b"{", "2")
        assert answer.startswith(b"HTTP/1.0 408 ") and b"expected 2 bytes within" in answer
        assert silent.recv(1) == b""


def test_more_clients_than_descriptors(program: Program) -> None:
    """While they stay nothing can be read; afterwards all goes on, and there was no traceback."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    servers = serve()
    server = next(servers)
    until_read(server, program)
    descriptors = Path(f"/proc/{server.popen.pid}/fd")
    room = len(list(descriptors.iterdir())) + 4
    resource.prlimit(server.popen.pid, resource.RLIMIT_NOFILE, (room, limits[1]))
    with contextlib.ExitStack() as clients:
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            if len(list(descriptors.iterdir())) < room:
                clients.enter_context(connect(server))
            else:
                time.sleep(0.001)
    resource.prlimit(server.popen.pid, resource.RLIMIT_NOFILE, limits)
    wait_until(lambda: server.ask("metrics")[0] == 200)
    until_read(server, program)
    assert list(servers) == []


def test_host_names() -> None:
    """Clients leave out the port of HTTP."""
    assert host_names(81) == {"127.0.0.1:81", "localhost:81"}
    assert host_names(80) == {"127.0.0.1:80", "localhost:80", "127.0.0.1", "localhost"}


def test_malformed_changes(writable: Server, program: Program) -> None:
    path = f"api/processes/{program.pid}/attributes"
    headers = {"X-Kmem-Token": writable.token or ""}
    for body in ({}, [], "x", {"birth": 1, "name": "shrink", "value": "1"}, "x" * 9999):
        assert writable.ask(path, headers, body)[0] == 400
    assert raw_change(writable, program, b"[" * 4000).startswith(b"HTTP/1.0 400 ")
    assert raw_change(writable, program, b"{}", "9" * 5000).startswith(b"HTTP/1.0 400 ")
    gone = {"birth": "999999", "name": "shrink", "value": "1"}
    assert writable.ask(path, headers, gone)[0] == 404
    assert writable.ask(path, headers)[0] == 405
    for other in ("api/processes", "metrics", ""):
        status, refusal = writable.ask(other, headers, {})
        assert (status, json.loads(refusal)) == (405, {"error": f"/{other}: expected GET"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "70000"], ["--port 70000", "65535"]),
        (["--interval", "0"], ["--interval 0", "0.1 to"]),
        (["--caches", "0"], ["--caches 0", "1 to 200"]),
        (["--caches", "201"], ["--caches 201", "1 to 200"]),
    ],
)
def test_wrong_requests(arguments: list[str], words: list[str]) -> None:
    assert_refused(kmem("serve", *arguments), *words, status=2)


def test_a_port_that_is_taken(server: Server) -> None:
    port = server.address.rpartition(":")[2].rstrip("/")
    assert_refused(kmem("serve", "--port", port), f"port {port}", "in use")


def test_ctrl_c_ends_it() -> None:
    with subprocess.Popen(
        [KMEM, "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as popen:
        assert popen.stdout is not None
        popen.stdout.readline()
        popen.send_signal(signal.SIGINT)
        _, errors = popen.communicate(timeout=DEADLINE)
        assert (popen.returncode, errors) == (0, "")


def fake_cache(name: str, slabs: int, birth: int = 1) -> Cache:
    fields = {
        "birth": birth, "name": name, "engine": "slub", "order": 0, "objs_per_slab": 1,
        "object_size": 4096, "slab_size": 4096,
    }  # fmt: skip
    node = {"slabs": slabs, "objects": slabs, "partial": 0, "refused": 0}
    return Cache(0, fields, [node], slabs, 0, 0, 0)


def tracked(looks: dict[float, list[Cache]], room: int = 9) -> ProcessTrack:
    """A process that was looked at at these times, and had these caches."""
    figures = [Figures(1, 1, "x", "0", caches, None, 0, 0) for caches in looks.values()]
    track = ProcessTrack(figures[0])
    for moment, found in zip(looks, figures, strict=True):
        track.add(found, moment, room)
    return track


def growths(track: ProcessTrack, since: float | None) -> tuple[float, int, list[int | None]]:
    """The look that growth counts from, that of the process, and those of its caches, in pages."""
    start = track.start(since)
    growth = {birth: track.cache_growth(cache, start) for birth, cache in track.caches.items()}
    own = [growth[birth] and growth[birth] // 4096 for birth in sorted(growth)]
    return start, track.growth(start) // 4096, own


def test_growth_since_a_time() -> None:
    """By looks while they are kept, then by minutes; what came later grew from nothing."""
    looks = {}
    for moment in range(10000, 17201, 10):
        caches = [fake_cache("old", moment)]
        if moment >= 17000:
            caches.append(fake_cache("new", 7, birth=2))
        looks[float(moment)] = caches
    track = tracked(looks)
    assert growths(track, 17195) == (17190, 10, [10, 0])
    assert growths(track, 17190) == (17190, 10, [10, 0])
    assert growths(track, 16990) == (16990, 217, [210, 7])
    assert growths(track, None) == (14210, 2997, [2990, 7])
    assert growths(track, 14000) == (13960, 3247, [3240, 7])
    # An hour of minutes is kept.
    assert growths(track, 0) == (13600, 3607, [3600, 7])


def test_growth_of_caches_without_history() -> None:
    looks = {
        float(moment): [fake_cache("one", moment), fake_cache("two", moment, birth=2)]
        for moment in range(1000, 1200)
    }
    assert growths(tracked(looks, room=1), 1100) == (1100, 198, [99, None])


def test_growth_with_a_clock_that_was_set_back() -> None:
    track = tracked({time: [fake_cache("one", 5)] for time in (5000.0, 5001.0, 1000.0, 1001.0)})
    for since in (None, 0, 900, 1000, 3000, 6000):
        assert growths(track, since)[1:] == (0, [0])


def test_the_time_that_growth_counts_from(server: Server, program: Program) -> None:
    before = until_read(server, program)
    mark = before["times"][-1]
    program.do("more = take(mine, 50000)")
    until_read(server, program)
    for since in (f"{mark:.3f}", "-3600"):
        after = server.get(f"api/processes/{program.pid}?since={since}")
        mine = next(cache for cache in after["caches"] if cache["name"] == "mine")
        assert mine["growth"] >= 50000 * 100
        # Other caches may give back pages while the heap grows.
        assert after["growth"] >= mine["growth"] - (1 << 20)
        assert mine == max(after["caches"], key=lambda cache: cache["growth"])
    assert after["grown_since"] <= mark
    for wrong in ("x", "", "nan", "inf", "1e999", "<b>"):
        for path in ("api/processes", f"api/processes/{program.pid}"):
            status, body = server.ask(f"{path}?since={urllib.parse.quote(wrong)}")
            assert status == 400
            assert json.loads(body)["error"] == (
                f"since={wrong}: expected seconds since 1970, or -SECONDS"
            )


@pytest.mark.parametrize("most", [1, CACHES, CACHES_MOST])
def test_labels_are_bounded(most: int) -> None:
    caches = [fake_cache(f"cache-{number}", number) for number in range(CACHES_MOST + 50)]
    caches.append(fake_cache("cache-7", 1))
    caches.append(fake_cache(OTHER, 1 << 20))
    processes = [Figures(n, n, "x", "0", caches, None, 0, 0) for n in range(PROCESSES_MOST + 10)]
    collector = ProcessesCollector(lambda _: processes, most)
    families = {family.name: family for family in collector.collect()}
    assert families["kmem_processes"].samples[0].value == PROCESSES_MOST + 10
    samples = families["kmem_cache_slab_bytes"].samples
    assert len(samples) == PROCESSES_MOST * (most + 1)
    of_one = [sample for sample in samples if sample.labels["pid"] == "0"]
    assert len({sample.labels["cache"] for sample in of_one}) == len(of_one)
    assert sum(sample.value for sample in of_one) == sum(cache.slab_bytes for cache in caches)
    assert of_one[-1].labels["cache"] == OTHER


# ---- the page, in Debian's chromium ----------------------------------------------------------


@pytest.fixture
def page(new_page) -> object:
    return new_page(1200, DEADLINE * 1000, ("http://127.0.0.1:", "data:"))


def axis(page, chart: str) -> list[str]:
    """The numbers beside a chart; below it, the last such text is "now"."""
    return page.locator(f"#{chart} text[text-anchor=end]").all_text_contents()[:-1]


def test_page_shows_live_figures(server: Server, program: Program, page) -> None:
    page.goto(server.address)
    page.select_option("#process", str(program.pid))
    row = page.locator("#caches tbody tr", has=page.get_by_role("link", name="mine", exact=True))
    row.wait_for()
    # Hardly anything moves yet, and the steps of the axis are whole: none stands there twice.
    assert len(set(axis(page, "moved"))) == len(axis(page, "moved")) >= 2
    assert axis(page, "fast") == ["0.0%", "25.0%", "50.0%", "75.0%", "100.0%"]
    before = int(row.locator("td").nth(4).inner_text().replace(",", ""))
    program.do("more = take(mine, 50000)")
    wait_until(lambda: int(row.locator("td").nth(4).inner_text().replace(",", "")) >= 55000)
    assert before < 55000
    for chart in ("memory", "waste", "totals", "moved", "fast"):
        assert page.locator(f"#{chart} polyline, #{chart} polygon").count() >= 1
    assert "NaN" not in page.content()
    assert re.search(r"At least \d+\.\d% of all calls", page.locator("#share").inner_text())
    assert re.search(r"≥ \d+\.\d%", row.locator("td").last.inner_text())
    # A legend's cache, and sorting.
    page.locator("#caches th button", has_text="cache").click()

    def is_sorted() -> bool:
        names = page.locator("#caches tbody td:first-child").all_inner_texts()
        return len(names) > 10 and names == sorted(names)

    wait_until(is_sorted)


def test_page_drills_down(server: Server, program: Program, page) -> None:
    page.goto(server.address)
    page.select_option("#process", str(program.pid))
    page.get_by_role("link", name="mine", exact=True).click()
    page.locator("#cache").wait_for()
    assert page.locator("#cache-name").inner_text() == "mine"
    page.locator("#cache-memory polyline").first.wait_for(state="attached")
    assert page.locator("#attributes [data-name=slab_size] output").inner_text() == "104"
    # It was started without --allow-writes.
    assert page.locator("#attributes form").count() == 0
    page.locator("#close").click()
    page.locator("#cache").wait_for(state="hidden")


def test_page_explains_its_words(server: Server, program: Program, page) -> None:
    """Tables, totals, charts and attributes; where no pointer can rest, as on a telephone, too."""
    page.goto(f"{server.address}?process={program.pid}")
    page.get_by_role("link", name="mine", exact=True).click()
    page.locator("#attributes [data-name]").first.wait_for()
    words = page.locator("#words dt").all_text_contents()
    assert len(words) == len(set(words))
    heads = page.locator("#caches th, #processes th").all_text_contents()
    for word in (
        *heads,
        "large blocks",
        "huge blocks",
        "free pages",
        "sheaf",
        "fast path",
        "sample",
    ):
        assert word in words
    names = page.locator("#attributes [data-name] > span").all_text_contents()
    assert page.locator("#attribute-words dt").all_text_contents() == names
    titles = page.locator("#attributes [data-name] > span[title]")
    assert titles.count() == len(names) > 20


def test_page_figures_have_units(server: Server, program: Program, page) -> None:
    page.goto(f"{server.address}?process={program.pid}")
    row = page.locator("#caches tbody tr", has=page.get_by_role("link", name="mine", exact=True))
    row.wait_for()
    assert row.locator("td").nth(7).inner_text() == "100 B"
    texts = page.evaluate("[0, 1, 1023, 1024, 1 << 20].map(bytes)")
    assert texts == ["0", "1 B", "1023 B", "1.0 KiB", "1.0 MiB"]


def test_page_says_faults_in_a_line_on_a_narrow_screen(server: Server, new_page) -> None:
    page = new_page(390, DEADLINE * 1000, ("http://127.0.0.1:", "data:"))
    page.goto(f"{server.address}?process=999999999")
    state = page.locator("#state", has_text="there is none")
    state.wait_for()
    assert state.bounding_box()["height"] < 30


def test_page_changes_attributes(writable: Server, program: Program, page) -> None:
    program.do("busy()")
    page.goto(f"{writable.address}#token={writable.token}")
    page.select_option("#process", str(program.pid))
    page.get_by_role("link", name="mine", exact=True).click()
    field = page.get_by_label("new min_partial")
    field.fill("123")
    field.press("Enter")
    shown = page.locator("#attributes [data-name=min_partial] output")
    wait_until(lambda: shown.inner_text() == "123")
    assert value("attr", program.pid, "mine/min_partial", "--effective") == "123\n"
    ratio = page.get_by_label("new remote_node_defrag_ratio")
    ratio.fill("101")
    ratio.press("Enter")
    wait_until(lambda: "0 to 100; nothing changed" in page.locator("#answer").inner_text())


def test_fields_of_attributes_fit_a_narrow_screen(
    writable: Server, program: Program, new_page
) -> None:
    page = new_page(390, DEADLINE * 1000, ("http://127.0.0.1:", "data:"))
    page.goto(f"{writable.address}?process={program.pid}#token={writable.token}")
    page.get_by_role("link", name="mine", exact=True).click()
    page.locator("#attributes form").first.wait_for()
    inner = page.locator("#attributes").bounding_box()
    for button in page.locator("#attributes button").all():
        place = button.bounding_box()
        assert place["x"] + place["width"] <= inner["x"] + inner["width"] + 1
    assert page.locator("#attributes [data-name=poison] output").inner_text() == "0"


def test_only_the_token_shows_what_programs_were_started_with(
    writable: Server, program: Program, page
) -> None:
    # The program has just begun, and the server looks once a second.
    def seen() -> bool:
        rows = json.loads(writable.ask("api/processes")[1])["processes"]
        return program.pid in [row["pid"] for row in rows]

    wait_until(seen)
    for headers, known in [({}, False), ({"X-Kmem-Token": writable.token}, True)]:
        for path in ("api/processes", f"api/processes/{program.pid}"):
            status, body = writable.ask(path, headers)
            document = json.loads(body)
            rows = {row["pid"]: row for row in document.get("processes", [document])}
            line = rows[program.pid]["command_line"]
            assert status == 200
            assert line.startswith("python") and " -c " in line if known else line is None
    page.goto(f"{writable.address}#token={writable.token}")
    row = page.locator("#processes tbody tr", has=page.get_by_text(str(program.pid), exact=True))
    wait_until(lambda: " -c " in row.locator("td").first.inner_text())
    assert len(row.locator("td").first.inner_text()) <= 80


def test_page_without_the_token_changes_nothing(writable: Server, program: Program, page) -> None:
    page.goto(writable.address)
    page.select_option("#process", str(program.pid))
    page.get_by_role("link", name="mine", exact=True).click()
    page.locator("#attributes [data-name=slab_size]").wait_for()
    assert page.locator("#attributes form").count() == 0
    assert "token" in page.locator("#answer").inner_text()


def test_page_says_that_a_process_has_ended(server: Server, program: Program, page) -> None:
    page.goto(server.address)
    page.select_option("#process", str(program.pid))
    page.get_by_role("link", name="mine", exact=True).wait_for()
    program.popen.kill()
    program.popen.wait()
    wait_until(
        lambda: f"process {program.pid}: there is none" in page.locator("#state").inner_text()
    )


def test_names_are_text(server: Server, program: Program, page) -> None:
    program.do("evil = create(b'<img src=x onerror=alert(1)>', 64)")
    program.do("kept = take(evil, 10000)")
    page.goto(server.address)
    page.select_option("#process", str(program.pid))
    page.get_by_role("link", name="<img!src=x!onerror=alert(1)>").wait_for()
    assert page.locator("img").count() == 0


def test_page_of_all_processes(server: Server, program: Program, page) -> None:
    """The first page lists them; each, and each cache, has an address that opens it again."""
    program.do("libc = ctypes.CDLL(None)")
    program.do("libc.prctl(15, b'<i>evil</i>')")  # PR_SET_NAME
    page.goto(server.address)
    row = page.locator("#processes tbody tr", has=page.get_by_text(str(program.pid), exact=True))
    wait_until(lambda: row.locator("td").first.inner_text() == "<i>evil</i>")
    assert page.locator("#one").is_hidden() and page.locator("i").count() == 0
    row.get_by_role("link").click()
    page.get_by_role("link", name="mine", exact=True).click()
    page.locator("#cache").wait_for()
    assert page.locator("#all").is_hidden()
    shared = page.url
    birth = next(
        cache["birth"]
        for cache in server.get(f"api/processes/{program.pid}")["caches"]
        if cache["name"] == "mine"
    )
    assert shared == f"{server.address}?process={program.pid}&cache={birth}"
    page.go_back()
    page.locator("#cache").wait_for(state="hidden")
    page.go_back()
    page.locator("#processes").wait_for()
    page.goto(shared)
    page.locator("#cache-memory polyline").first.wait_for(state="attached")
    assert page.locator("#cache-name").inner_text() == "mine"
    page.goto(f"{server.address}?process={program.pid}&cache=999999")
    wait_until(lambda: "has been destroyed" in page.locator("#state").inner_text())
    page.goto(f"{server.address}?process=x%2Fy")
    wait_until(lambda: "there is no such page" in page.locator("#state").inner_text())
    page.goto(f"{server.address}?since=x")
    wait_until(lambda: "since=x: expected" in page.locator("#state").inner_text())


def test_page_shows_what_grew_since_a_mark(server: Server, program: Program, page) -> None:
    page.goto(f"{server.address}?process={program.pid}")
    names = page.locator("#caches tbody td:first-child")
    names.first.wait_for()
    page.get_by_role("button", name="mark now").click()
    page.wait_for_url("**since=*")
    program.do("more = take(mine, 50000)")
    wait_until(lambda: names.first.inner_text() == "mine")
    grown = page.locator("#caches tbody tr").first.locator("td").nth(2)
    wait_until(lambda: re.fullmatch(r"\+(4\.\d|5\.\d) MiB", grown.inner_text()))
    # The mark is a part of the address.
    page.goto(page.url)
    wait_until(lambda: re.fullmatch(r"\+(4\.\d|5\.\d) MiB", grown.inner_text()))
    assert "mark" in page.locator("#since option:checked").inner_text()
    page.select_option("#since", label="an hour ago")
    page.wait_for_url("**since=-3600*")


def test_page_pauses(server: Server, program: Program, page) -> None:
    page.goto(f"{server.address}?process={program.pid}")
    row = page.locator("#caches tbody tr", has=page.get_by_role("link", name="mine", exact=True))
    row.wait_for()
    page.get_by_role("button", name="pause").click()
    wait_until(lambda: "paused at" in page.locator("#state").inner_text())
    # What was on its way when it was paused may still come.
    page.wait_for_timeout(500)
    shown = row.inner_text()
    program.do("more = take(mine, 50000)")
    until_read(server, program)
    page.wait_for_timeout(500)
    assert row.inner_text() == shown
    # Caches open, with the figures of that moment.
    page.get_by_role("link", name="mine", exact=True).click()
    page.locator("#cache-memory polyline").first.wait_for(state="attached")
    assert row.inner_text() == shown
    page.get_by_role("button", name="go on").click()
    wait_until(lambda: row.inner_text() != shown)


def test_page_by_keyboard_and_pointer(server: Server, program: Program, page) -> None:
    """Figures come anew every second; the focus and the chart's line stay where they are."""
    page.goto(server.address)
    link = page.locator("#processes a", has_text="python").first
    link.wait_for()
    page.goto(f"{server.address}?process={program.pid}")
    link = page.get_by_role("link", name="mine", exact=True)
    link.focus()
    before = link.element_handle()
    wait_until(lambda: not before.evaluate("element => element.isConnected"))
    assert page.evaluate("document.activeElement.textContent") == "mine"
    page.locator("#totals").hover()
    line = page.locator("#totals .cursor").element_handle()
    wait_until(lambda: not line.evaluate("element => element.isConnected"))
    assert page.locator("#totals .cursor").get_attribute("visibility") == "visible"
    page.keyboard.press("Enter")
    page.locator("#cache").wait_for()
    assert page.evaluate("document.activeElement.id") == "cache"


def test_page_keeps_the_token_out_of_addresses(writable: Server, program: Program, page) -> None:
    page.goto(f"{writable.address}?process={program.pid}#token={writable.token}")
    page.get_by_role("link", name="mine", exact=True).click()
    field = page.get_by_label("new min_partial")
    field.wait_for()
    assert writable.token is not None and writable.token not in page.url
    page.reload()
    field.wait_for()


@pytest.mark.parametrize("width", [390, 1280])
def test_page_of_absurd_figures(server: Server, program: Program, page, width: int) -> None:
    """Figures of 64 bits and long names stay figures and text, and the page no wider than it is."""
    document = until_read(server, program)
    listed = server.get("api/processes")
    huge, name = (1 << 64) - 1, "<script>alert(1)</script>" * 4
    row = next(row for row in listed["processes"] if row["pid"] == program.pid)
    for one in (row, document, *document["caches"]):
        one |= {key: huge for key in one if key.endswith(("bytes", "objects", "slabs"))}
        one |= {"growth": -huge, "command": name, "name": name}
        for track in one["history"].values() if isinstance(one["history"], dict) else []:
            track[:] = [huge] * len(track)
    document["caches"][0] |= {"growth": None, "fast_share": None}
    page.set_viewport_size({"width": width, "height": 844})
    page.route("**/api/processes*", lambda route: route.fulfill(json=listed))
    page.route(f"**/api/processes/{program.pid}*", lambda route: route.fulfill(json=document))
    page.goto(server.address)
    page.locator("#processes a").filter(has_text="<script>").first.click()
    page.locator("#caches a").filter(has_text="<script>").first.click()
    page.locator("#cache").wait_for()
    text = page.locator("body").inner_text()
    assert not re.search("NaN|undefined|Infinity|null", text)
    assert "-16384 PiB" in text
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("main script").count() == 0


def test_foreign_page_gets_nothing(writable: Server, program: Program, browser) -> None:
    """Another page of the same browser can neither read nor write, whatever it tries."""
    page = browser.new_page()
    page.set_content("<title>other</title>")
    script = """async ([address, token, pid]) => {
        const tried = [];
        for (const [path, options] of [["api/processes", {}], ["metrics", {}],
            ["api/processes", {mode: "no-cors"}],
            [`api/processes/${pid}/attributes`, {method: "POST", mode: "no-cors", body: "{}"}],
            [`api/processes/${pid}/attributes`,
             {method: "POST", headers: {"X-Kmem-Token": token}, body: "{}"}]])
            try {
                const answer = await fetch(address + path, options);
                tried.push(answer.status + (await answer.text()));
            } catch (error) { tried.push("refused"); }
        return tried;
    }"""
    tried = page.evaluate(script, [writable.address, writable.token, program.pid])
    page.close()
    assert all(answer in ("refused", "0") for answer in tried), tried


def test_a_look_at_an_idle_process() -> None:
    """The caches of the look before are given again; they count as another look."""
    one, other = fake_cache("one", 3, 1), fake_cache("other", 5, 2)
    idle = tracked({0: [one, other], 1: [one, other], 61: [one, other]})
    anew = tracked({at: [fake_cache("one", 3, 1), fake_cache("other", 5, 2)] for at in (0, 1, 61)})
    for track in (idle, anew):
        assert list(track.slab) == [8 * 4096] * 3 and list(track.minutes) == [8 * 4096] * 2
        assert [list(cache.minutes) for cache in track.caches.values()] == [
            [3 * 4096] * 2,
            [5 * 4096] * 2,
        ]
    assert [cache.history() for cache in idle.caches.values()] == [
        cache.history() for cache in anew.caches.values()
    ]
    # Without one of them it is another process's look, also if the rest is as it was.
    fewer = tracked({0: [one, other], 1: [one]})
    assert list(fewer.caches) == [1] and fewer.slab[-1] == 3 * 4096


def test_a_process_that_changes_has_new_facts(program: Program) -> None:
    """What is kept of a registry for the next look is of a single moment."""
    with open_process(program.pid) as registry:
        looks = [read_figures(registry)]

        def is_idle() -> bool:
            looks.append(read_figures(registry))
            before, again = looks[-2:]
            return again.heap is before.heap and all(map(operator.is_, before.caches, again.caches))

        wait_until(is_idle)
        before = looks[-1]
        program.do("kept = [bytes(100_000) for _ in range(100)]")
        after = read_figures(registry)
        assert after.heap is not None and before.heap is not None
        assert after.heap.used_bytes > before.heap.used_bytes + 9_000_000
        assert after.heap == read_heap(registry)
