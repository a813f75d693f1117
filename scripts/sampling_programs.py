#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What sampling costs real programs under load, and whether it finds their leaks.

redis, node, a server in Flask, the same with all objects on malloc, and Java serve a fixed number
of requests in each window. Windows without samples and with samples at each interval follow in a
newly drawn order in one process, and what counts is the CPU time of all of its threads, by the
middle of the differences of pairs with its 95% interval (Wilcoxon's signed ranks). Windows are
short, so that the two of a pair have nearly the same machine, and many. Each begins 0.2 seconds
after the change, when what a change costs is over: a profile changes the interval once. `--keep`
adds windows to those of earlier runs, so a machine may be quiet for a minute now and then:

    PYTHONPATH=python .venv/bin/python scripts/sampling_programs.py --rounds 300
    PYTHONPATH=python .venv/bin/python scripts/sampling_programs.py --seconds 50 --keep windows.json
    PYTHONPATH=python .venv/bin/python scripts/sampling_programs.py --share
    PYTHONPATH=python .venv/bin/python scripts/sampling_programs.py --leaks

On a busy machine these intervals are several percent wide. `--share` has perf look at the program
4,000 times in a second of CPU time and prints the part in functions that only samples call, with
the 95% interval of such a count. What the program loses by colder caches is not in it.

Each program keeps something of each request for good. `--leaks` profiles it for 15 seconds twice
and prints the place of this line in what grew, with the seconds since the load began.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import ending

from kmem.bench.profile_cost import NOTHING
from kmem.common.figures import paired_change
from kmem.live.registry.file import Registry
from kmem.live.registry.find import open_process
from kmem.live.registry.requests import ask
from kmem.live.stacks import count_samples

TREE = Path(__file__).resolve().parent.parent
LIBRARY = TREE / "build" / "src" / "libkmem-malloc.so"
START_SECONDS = 60
LOOKS = 4000  # of perf in a second of CPU time
# Functions that run for samples alone, and those that they call, as perf shows them.
SAMPLING = re.compile(
    r"(row_walk|leave_|read_row|frame_row|stack_|find_object|_dl_find_object|follows_call"
    r"|system_can_read|__x64_sys_rt_sigprocmask|sigprocmask|python_|known_place_of|read_code|read_step"
    r"|read_table|place_of|copy_text|key_of|mix_|look_up|keep_name|can_read|line_of|depot_|sample|describe|figures_of|count_alloc"
    r"|count_free|live_|enter_thread|draw_gap|marks_|put_mark|take_entry|give_entry|give_pages)"
)
WARM_WINDOWS = 10
LEAK_SECONDS = 15
PROCESS_SECONDS = 120  # of a process, as all that it keeps for good has to fit into memory
SETTLE_SECONDS = 0.2  # emptied sheaves are filled, and pages that came free are purged or used
PARTS = 20  # of a window's requests

NODE = """
const http = require("http");
const kept = new Map(), recent = [];
function remember(user, page) {
    kept.set(user, Buffer.from(page));  // the leak
}
function rowsFor(user) {
    return Array.from({length: 40}, (_, n) => ({name: `article ${n} for ${user}`, price: n * 7}));
}
http.createServer((request, response) => {
    const page = JSON.stringify({user: request.url, rows: rowsFor(request.url)}).repeat(3);
    recent[kept.size % 100] = Buffer.alloc(40000);
    remember(request.url, page);
    response.end(page);
}).listen(Number(process.argv[2]), "127.0.0.1");
"""
FLASK = """
import sys
from flask import Flask, render_template_string, request
app = Flask("shop")
PAGE = "<h1>{{ user }}</h1>{% for row in rows %}<li>{{ row.name }}: {{ row.price }}{% endfor %}"
rendered, recent, visits = {}, {}, {}

def rows_for(user):
    return [{"name": f"article {n} for {user}", "price": n * 7 % 100} for n in range(40)]

@app.route("/<user>")
def index(user):
    recent[hash(user) % 100] = bytes(40000)
    visits[hash(user) % 200] = request.headers.get("User-Agent", "") * 50
    page = render_template_string(PAGE, user=user, rows=rows_for(user))
    rendered[user] = page.encode()  # the leak
    return page

app.run(host="127.0.0.1", port=int(sys.argv[1]), threaded=True)
"""
JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.zip.Deflater;

public class Shop {
    static final List<ByteBuffer> kept = new ArrayList<>();

    static synchronized void remember(byte[] page, int bytes) {
        kept.add(ByteBuffer.allocateDirect(bytes).put(page, 0, bytes)); // the leak
    }

    static byte[] pageOf(String user) {
        StringBuilder page = new StringBuilder(user);
        for (int n = 0; n < 200; n++)
            page.append("article ").append(n).append(" for ").append(user).append(n * 7 % 100);
        return page.toString().getBytes();
    }

    static int compress(byte[] page, byte[] into) {
        Deflater deflater = new Deflater();
        deflater.setInput(page);
        deflater.finish();
        int bytes = deflater.deflate(into);
        deflater.end();
        return bytes;
    }

    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(words[0]);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/", exchange -> {
            byte[] page = pageOf(exchange.getRequestURI().getPath());
            byte[] small = new byte[page.length + 100];
            int bytes = compress(page, small);
            remember(small, bytes);
            exchange.sendResponseHeaders(200, bytes);
            exchange.getResponseBody().write(small, 0, bytes);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }
}
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


@dataclass(frozen=True)
class Program:
    """How a program is started, which requests it gets in a window, and what it leaks."""

    command: Callable[[Path, int], list[str]]  # by folder and port
    requests: int
    leak: str  # what its row of what grew begins with, a regular expression
    variables: tuple[tuple[str, str], ...] = ()
    is_redis: bool = False


def redis(folder: Path, port: int) -> list[str]:
    del folder
    return ["/usr/bin/redis-server", "--port", str(port), "--save", "", "--appendonly", "no"]


def node(folder: Path, port: int) -> list[str]:
    (folder / "shop.js").write_text(NODE)
    names = ["--perf-basic-prof", "--interpreted-frames-native-stack", "--no-turbo-inlining"]
    names += ["--no-logfile-per-isolate", f"--logfile={folder / 'v8.log'}"]
    return ["/usr/bin/node", *names, str(folder / "shop.js"), str(port)]


def flask(folder: Path, port: int) -> list[str]:
    (folder / "shop.py").write_text(FLASK)
    return ["/usr/bin/python3", str(folder / "shop.py"), str(port)]


def java(folder: Path, port: int) -> list[str]:
    (folder / "Shop.java").write_text(JAVA)
    subprocess.run(["javac", "-d", folder, folder / "Shop.java"], check=True)
    words = ["-XX:+PreserveFramePointer", "-Xmx256m", "-XX:MaxDirectMemorySize=4g"]
    return ["/usr/bin/java", *words, "-cp", str(folder), "Shop", str(port)]


def cpu_seconds(process: int) -> float:
    """CPU time of a process's threads, those that have ended among them (clock_getcpuclockid)."""
    return time.clock_gettime(~process << 3 | 2)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if "the leak" in line)


FLASK_LEAK = rf"index \(shop\.py:{line_of(FLASK)}\)"
PROGRAMS = {
    "redis": Program(redis, 200000, r".*< quicklistPush", is_redis=True),
    "node": Program(node, 1500, rf"\S*\s?remember \(shop\.js:{line_of(NODE) - 1}"),
    "flask": Program(flask, 150, FLASK_LEAK),
    "flask on malloc": Program(flask, 150, FLASK_LEAK, (("PYTHONMALLOC", "malloc"),)),
    "java": Program(java, 1000, rf"Shop\.remember \(Shop\.java:{line_of(JAVA)}\)"),
}


class Client:
    """Requests for users that never came before."""

    def __init__(self, port: int, program: Program) -> None:
        self.port, self.program, self.users = port, program, itertools.count()

    def redis(self, count: int) -> None:
        words = ["/usr/bin/redis-benchmark", "-p", str(self.port), "-q", "-r", "20000", "-c", "20"]
        words += ["-P", "16", "-n", str(max(count // 3, 1)), "-d", "200", "-t", "set,lpush,hset"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    def http(self, count: int) -> None:
        for _ in range(count):
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as one:
                head = f"GET /user{next(self.users)} HTTP/1.0\r\nUser-Agent: script\r\n\r\n"
                one.sendall(head.encode())
                answer = b""
                while part := one.recv(1 << 16):
                    answer += part
            if b" 200 OK" not in answer[:20]:
                raise SystemExit(f"a server answered {answer[:80]!r}")

    def requests(self, count: int) -> None:
        (self.redis if self.program.is_redis else self.http)(count)


def wait_until_it_listens(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(f"{process.args!r} does not listen") from None
            time.sleep(0.05)


@contextlib.contextmanager
def running(program: Program, options: str) -> Iterator[tuple[Registry, Client]]:
    variables = {"LD_PRELOAD": str(LIBRARY), "KMEM_OPTIONS": options, **dict(program.variables)}
    with tempfile.TemporaryDirectory() as name:
        port = free_port()
        process = subprocess.Popen(
            program.command(Path(name), port),
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=name,
        )
        try:
            wait_until_it_listens(process, port)
            with open_process(process.pid, writable=True) as registry:
                yield registry, Client(port, program)
        finally:
            process.kill()
            process.wait()
            Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)


def adopt(registry: Registry, client: Client, interval: int, part: int) -> None:
    """Requests until the program has taken the interval."""
    ask(registry, 0, "profile_interval", str(interval))
    deadline = time.monotonic() + START_SECONDS
    while True:
        client.requests(part)
        if registry.number("head", "profile_interval") == interval:
            break
        if time.monotonic() > deadline:
            raise SystemExit(f"a program keeps its interval, not {interval}")


def window(registry: Registry, client: Client, interval: int, requests: int) -> tuple[float, float]:
    """CPU seconds for a part of the requests, in the middle, and samples a second of all.

    A collection of garbage in one part would hide what samples cost in all the others.
    A new interval empties the sheaves and the end of a profile does not, so either kind of window
    begins with an interval at which nothing is sampled, and then has time to settle.
    """
    part = max(requests // PARTS, 1)
    adopt(registry, client, NOTHING, part)
    adopt(registry, client, interval, part)
    settled = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < settled:
        client.requests(part)
    pieces = []
    sampled = count_samples(registry)
    for _ in range(PARTS):
        begun = cpu_seconds(registry.process)
        client.requests(part)
        pieces.append(cpu_seconds(registry.process) - begun)
    return statistics.median(pieces), (count_samples(registry) - sampled) / sum(pieces)


Windows = dict[str, list[float]]  # CPU seconds by interval, and samples a second


def kept_windows(file: Path | None, name: str) -> Windows:
    """Those of earlier runs of a program."""
    if file is None or not file.exists():
        return {}
    found: Windows = json.loads(file.read_text()).get(name, {})
    return found


def keep_windows(file: Path, name: str, windows: Windows) -> None:
    document = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(document | {name: windows}) + "\n")


def warm(client: Client, part: float) -> None:
    client.requests(round(client.program.requests * WARM_WINDOWS * min(2 * part, 1)))


def rounds(program: Program, wanted: Namespace) -> Iterator[tuple[Registry, Client]]:
    """The program under load, once for each round, and started anew where it has grown for long."""
    left = wanted.rounds
    deadline = time.monotonic() + wanted.seconds
    while left and time.monotonic() < deadline:
        ended = min(deadline, time.monotonic() + PROCESS_SECONDS)
        with running(program, "registry=on") as (registry, client):
            warm(client, wanted.part)
            while left and time.monotonic() < ended:
                yield registry, client
                left -= 1


def measure(name: str, program: Program, intervals: Sequence[int], wanted: Namespace) -> None:
    requests = max(round(program.requests * wanted.part), 1)
    settings = [0, *intervals]
    windows = kept_windows(wanted.keep, name)
    for registry, client in rounds(program, wanted):
        random.shuffle(settings)
        for interval in settings:
            seconds, taken = window(registry, client, interval, requests)
            windows.setdefault(f"{interval}", []).append(seconds)
            windows.setdefault(f"{interval} samples", []).append(taken)
    if wanted.keep:
        keep_windows(wanted.keep, name, windows)
    off = windows["0"]
    middle = 1000 * statistics.median(off)
    print(f"{name}, {len(off)} rounds of {PARTS} times {middle:.1f} ms of CPU time:")
    for interval in intervals:
        on = windows[f"{interval}"]
        change = paired_change(*([math.log(one) for one in each] for each in (on, off)))
        low, middle, high = (
            100 * math.expm1(one) for one in (change.low, change.median, change.high)
        )
        print(
            f"  {interval >> 10} KiB: {middle:.2f}% [{low:.2f}, {high:.2f}],"
            f" {statistics.median(windows[f'{interval} samples']):.0f} samples a second",
            flush=True,
        )


def share(name: str, program: Program, interval: int, wanted: Namespace) -> None:
    """The part of the program's CPU time in functions that only samples call, and the largest."""
    requests = max(round(program.requests * wanted.part), 1)
    deadline = time.monotonic() + wanted.seconds
    with (
        running(program, f"registry=on,profile_interval={interval}") as (registry, client),
        tempfile.NamedTemporaryFile() as file,
    ):
        warm(client, wanted.part)
        words = ["-q", "-e", "cpu-clock", "-F", str(LOOKS), "-p", str(registry.process)]
        looking = subprocess.Popen(["perf", "record", *words, "-o", file.name])
        try:
            for _ in range(wanted.rounds):
                if time.monotonic() > deadline:
                    break
                client.requests(requests)
        finally:
            looking.send_signal(signal.SIGINT)
            looking.wait()
        words = ["--stdio", "-q", "--show-nr-samples", "--sort", "dso,symbol", "-i", file.name]
        told = subprocess.run(
            ["perf", "report", *words], capture_output=True, text=True, check=True
        ).stdout
    counts = re.findall(r"^ +\S+% +(\d+) +(\S+) +\[.\] (.+?)\s*(?:- +- *)?$", told, re.M)
    every = sum(int(count) for count, _, _ in counts)
    functions = [
        (int(count), symbol)
        for count, file, symbol in counts
        if SAMPLING.match(symbol) and re.match(r"libkmem|ld-linux|\[kernel", file)
    ]
    ours = sum(count for count, _ in functions)
    if not every:
        raise SystemExit(f"{name}: perf saw nothing of it")
    reach = 2 * math.sqrt(max(ours, 1))
    low, middle, high = (100 * max(one, 0) / every for one in (ours - reach, ours, ours + reach))
    print(
        f"{name}: {middle:.2f}% [{low:.2f}, {high:.2f}] at {interval >> 10} KiB,"
        f" {ours} of {every} looks: "
        + ", ".join(f"{symbol} {count}" for count, symbol in sorted(functions)[:-9:-1]),
        flush=True,
    )


def find_leak(name: str, program: Program) -> None:
    """What grew, by two profiles of a program under load from its start."""
    with running(program, "registry=on") as (registry, client):
        ended = threading.Event()

        def load() -> None:
            while not ended.is_set():
                client.requests(max(program.requests // PARTS, 1))

        thread = threading.Thread(target=load)
        begun = time.monotonic()
        thread.start()
        try:
            words = [str(TREE / "kmem"), "profile", str(registry.process), "--growth"]
            done = subprocess.run(
                [*words, "--seconds", str(LEAK_SECONDS)],
                capture_output=True,
                text=True,
                check=False,
            )
            passed = time.monotonic() - begun
        finally:
            ended.set()
            thread.join()
    rows = re.findall(r"^ +\+\S+ +\+\S+ +(.+)", done.stdout, re.M)
    ranks = [rank for rank, row in enumerate(rows, 1) if re.match(program.leak, row)]
    print(f"{name}: the leak is row {ranks[0] if ranks else 'none'} after {passed:.0f} s")
    print("".join(f"    {row}\n" for row in rows[:3]) or done.stderr, end="", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--program", choices=PROGRAMS, action="append", help="only this one")
    parser.add_argument("--interval", type=int, action="append", help="512 KiB and 2 MiB without")
    parser.add_argument("--part", type=float, default=0.5, help="of a window's requests")
    parser.add_argument("--keep", type=Path, help="windows of several runs")
    parser.add_argument("--share", action="store_true", help="by looks of perf instead")
    parser.add_argument("--leaks", action="store_true", help="find the leaks instead")
    parser.add_argument("--seconds", type=int, default=3600, help="after which no round begins")
    wanted = parser.parse_args()
    for name in wanted.program or PROGRAMS:
        program = PROGRAMS[name]
        if shutil.which(program.command.__name__.replace("flask", "python3")) is None and (
            not program.is_redis
        ):
            print(f"{name}: not installed")
        elif wanted.leaks:
            find_leak(name, program)
        elif wanted.share:
            for interval in wanted.interval or [512 << 10]:
                share(name, program, interval, wanted)
        else:
            intervals = wanted.interval or [512 << 10, 2 << 20]
            measure(name, program, intervals, wanted)


if __name__ == "__main__":
    ending.exceptions_for_signals()
    main()
