# SPDX-License-Identifier: Apache-2.0 OR MIT
"""More servers under load: of pages, of cached values, and of a database.

Time is measured at the client, CPU time and memory at the server, as in servers.py. A server that
takes no socket file gets a free port of 127.0.0.1.
"""

import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from kmem.bench.allocators import GLIBC, Allocator
from kmem.bench.programs import INPUTS, Run, times
from kmem.bench.servers import Words, client, wait_until_ready
from kmem.bench.timed import RunError, Sample, Timed, started

CONNECTIONS = 8
PROBE = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).close()"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


def wait_for_port(server: Timed, port: int) -> None:
    wait_until_ready(server, ["/usr/bin/python3", "-S", "-c", PROBE, str(port)])


def end(server: Timed, by: signal.Signals) -> Sample:
    """Send the signal to the program under bench/timed.c, and wait for its orderly end."""
    pid = server.process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(child), by)
    return server.wait()


def under_load(server: Timed, load: Callable[[], str], by: signal.Signals) -> Sample:
    """The sample of a server that is ready, with the client's time and output."""
    start = time.monotonic()
    said = load()
    seconds = time.monotonic() - start
    return replace(end(server, by), seconds=seconds, output=said)


# ---- nginx, haproxy -----------------------------------------------------------------------------

PARTS = 12

NGINX = """\
daemon off;
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 128; }}
http {{
    access_log off;
    types {{ text/html html; }}
    root {folder}/pages;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000;
    gzip on;
    gzip_comp_level 1;
    gzip_proxied any;
    ssi on;
    server {{ listen 127.0.0.1:{port}; }}
}}
"""

HAPROXY = """\
global
    maxconn 200
defaults
    mode http
    timeout connect 10s
    timeout client 30s
    timeout server 30s
frontend in
    bind 127.0.0.1:{port}
    http-request set-header X-Client "%[src]-%[path,lower,field(1,.)]-%[rand(1)]"
    http-request set-var(txn.place) path,url_dec,lower,regsub([^a-z],,g)
    http-response set-header X-Place "%[var(txn.place)]"
    default_backend out
backend out
    server one 127.0.0.1:{behind}
"""


def write_pages(folder: Path) -> None:
    """A page that nginx puts together from parts for each request."""
    pages = folder / "pages"
    pages.mkdir()
    for part in range(PARTS):
        words = (f"word{(part * 31 + i * i) % 977}" for i in range(300))
        (pages / f"part{part}.html").write_text(f"<p>{' '.join(words)}</p>\n")
    includes = (f'<!--# include virtual="/part{part}.html" -->' for part in range(PARTS))
    (pages / "index.html").write_text("\n".join(includes) + "\n")


def serve_pages(
    folder: Path, port: int, allocator: Allocator, extra: Mapping[str, str]
) -> AbstractContextManager[Timed]:
    file = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    file.write_text(NGINX.format(folder=folder, port=port, user=user))
    return started(folder, ["/usr/sbin/nginx", "-c", file], allocator, extra)


def fetch_pages(port: int, requests: int, gzip: bool) -> str:
    """The lines of ab that do not depend on time."""
    accept = ["-H", "Accept-Encoding: gzip"] if gzip else []
    count = ["-n", str(requests), "-c", str(CONNECTIONS)]
    said = client(["/usr/bin/ab", "-q", "-k", *count, *accept, f"http://127.0.0.1:{port}/"])
    lines = re.findall(r"^(?:Complete|Failed) requests:.*|^HTML transferred:.*", said, re.M)
    if not re.search(r"^Failed requests: +0$", said, re.M) or "Non-2xx" in said:
        raise RunError(f"ab: {' '.join(lines) or said.strip()[-200:]}")
    return "\n".join(lines)


def nginx(folder: Path, scale: float) -> Run:
    write_pages(folder)
    requests = CONNECTIONS * times(scale, 1500)

    def run(allocator: Allocator, extra: Mapping[str, str]) -> Sample:
        port = free_port()
        with serve_pages(folder, port, allocator, extra) as server:
            wait_for_port(server, port)
            return under_load(server, lambda: fetch_pages(port, requests, True), signal.SIGQUIT)

    return run


def haproxy(folder: Path, scale: float) -> Run:
    """In front of nginx, which runs on the C library's malloc."""
    write_pages(folder)
    requests = CONNECTIONS * times(scale, 3000)
    file = folder / "haproxy.cfg"

    def run(allocator: Allocator, extra: Mapping[str, str]) -> Sample:
        behind = free_port()
        with serve_pages(folder, behind, GLIBC, {}) as pages:
            wait_for_port(pages, behind)
            port = free_port()
            file.write_text(HAPROXY.format(port=port, behind=behind))
            command = ["/usr/sbin/haproxy", "-q", "-db", "-f", str(file)]
            with started(folder, command, allocator, extra) as server:
                wait_for_port(server, port)
                load = lambda: fetch_pages(port, requests, False)  # noqa: E731
                return under_load(server, load, signal.SIGUSR1)

    return run


# ---- memcached ----------------------------------------------------------------------------------


def memcached(folder: Path, scale: float) -> Run:
    """memcslap first stores values and then reads them; each of its four threads does so."""
    count = times(scale, 15_000)
    user = ["-u", "root"] if os.geteuid() == 0 else []

    def run(allocator: Allocator, extra: Mapping[str, str]) -> Sample:
        port = free_port()
        command = ["/usr/bin/memcached", "-l", "127.0.0.1", "-p", str(port), "-t", "2", "-m", "128"]
        load = ["/usr/bin/memcslap", f"--servers=127.0.0.1:{port}", "--concurrency=4"]

        def use() -> str:
            for test in ("set", "get"):
                initial = [f"--initial-load={count}"] if test == "get" else []
                client([*load, f"--test={test}", f"--execute-number={count}", *initial])
            return "done"

        with started(folder, [*command, *user], allocator, extra) as server:
            wait_for_port(server, port)
            return under_load(server, use, signal.SIGTERM)

    return run


# ---- mariadb ------------------------------------------------------------------------------------

MARIADB_SETTINGS = (
    "--skip-networking",
    "--skip-log-bin",
    "--performance-schema=off",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-use-native-aio=0",
)
ORDERS = (
    "CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, customer INT, item VARCHAR(40),"
    " amount INT, note VARCHAR(200), KEY (customer))"
)
STATEMENTS = 4  # of orders.sql
CLIENTS = 4
ROWS = 40  # that its first statement inserts


def mariadb(folder: Path, scale: float) -> Run:
    """Each run works on a fresh copy of the data."""
    user = ["--user=root"] if os.geteuid() == 0 else []
    template, data, place = folder / "template", folder / "data", folder / "socket"
    install: Words = ["/usr/bin/mariadb-install-db", "--no-defaults", f"--datadir={template}"]
    client([*install, *user, "--auth-root-authentication-method=normal", "--skip-test-db"])
    rounds = times(scale, 45)
    ask = ["--no-defaults", f"--socket={place}", "--user=root"]
    load: Words = ["/usr/bin/mariadb-slap", *ask, "--create-schema=work", f"--create={ORDERS}"]
    load += [f"--query={INPUTS / 'orders.sql'}", "--delimiter=;", "--no-drop"]
    load += [f"--concurrency={CLIENTS}", f"--number-of-queries={CLIENTS * STATEMENTS * rounds}"]
    count: Sequence[str] = ["-e", "SELECT COUNT(*), SUM(amount) FROM work.orders", "-N", "-B"]

    def use() -> str:
        client(load)
        return client(["/usr/bin/mariadb", *ask, *count]).strip()

    def run(allocator: Allocator, extra: Mapping[str, str]) -> Sample:
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(template, data)
        command = ["/usr/sbin/mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={place}"]
        with started(folder, [*command, *user, *MARIADB_SETTINGS], allocator, extra) as server:
            wait_until_ready(server, ["/usr/bin/mariadb-admin", *ask, "ping"])
            sample = under_load(server, use, signal.SIGTERM)
        rows = sample.output.split()
        if not rows or int(rows[0]) != CLIENTS * ROWS * rounds:
            raise RunError(f"mariadb: {sample.output} rows instead of {CLIENTS * ROWS * rounds}")
        return sample

    return run
