# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A leak in a server written with Flask: what grew names its line, within a minute."""

from __future__ import annotations

import http.client
import itertools
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from profiled import KMEM, ROOT, profile, wait_for_registry

pytestmark = [pytest.mark.alone, pytest.mark.full]

PYTHON = Path("/usr/bin/python3")
CLIENTS = 2
# A page for each user is kept and never dropped; most users come once. The rest is bounded.
SHOP = """
import sys
from flask import Flask, render_template_string, request
app = Flask("shop")
PAGE = "<h1>{{ user }}</h1>{% for row in rows %}<li>{{ row.name }}: {{ row.price }}{% endfor %}"
rendered, recent, visits = {}, {}, {}

def rows_for(user):
    return [{"name": f"article {n} for {user}", "price": n * 7 % 100} for n in range(40)]

def page_of(user):
    if user not in rendered:
        rendered[user] = render_template_string(PAGE, user=user, rows=rows_for(user)).encode()
    return rendered[user]

@app.route("/user/<user>")
def index(user):
    recent[hash(user) % 500] = bytes(40000)
    visits[hash(user) % 1000] = request.headers.get("User-Agent", "") * 50
    return page_of(user)

app.run(port=int(sys.argv[1]), threaded=True)
"""
LEAK = next(n for n, text in enumerate(SHOP.splitlines(), 1) if "rendered[user] = " in text)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


@contextmanager
def shop(folder: Path) -> Iterator[tuple[int, int]]:
    """The server under `kmem run`: its process and port."""
    script, port = folder / "shop.py", free_port()
    script.write_text(SHOP)
    words = [str(KMEM), "run", "--", str(PYTHON), str(script), str(port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline and process.poll() is None
                    time.sleep(0.05)
            yield process.pid, port
        finally:
            process.kill()


@contextmanager
def visitors(port: int) -> Iterator[None]:
    """Clients with a new user for each request."""
    users, ended = itertools.count(), threading.Event()

    def visit() -> None:
        while not ended.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", f"/user/{next(users)}")
            assert connection.getresponse().read()
            connection.close()

    threads = [threading.Thread(target=visit) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def install_flask() -> None:
    if os.geteuid() == 0:
        subprocess.run([ROOT / "scripts" / "debian-packages", "python3-flask"], check=False)
    if subprocess.run([PYTHON, "-c", "import flask"], capture_output=True).returncode:
        pytest.skip("Flask is not installed; apt-get install python3-flask")


def test_the_leaking_line_comes_first(tmp_path: Path) -> None:
    install_flask()
    with shop(tmp_path) as (process, port), visitors(port):
        begun = time.monotonic()
        wait_for_registry(process)
        grown = profile(str(process), "--growth", "--seconds", "15")
        seconds = time.monotonic() - begun
    assert grown.returncode == 0, grown.stderr
    print(grown.stdout)
    rows = re.findall(r"^ +\+\S+ +\+\S+ +(.+)", grown.stdout, re.M)
    ranks = [rank for rank, text in enumerate(rows, 1) if f"(shop.py:{LEAK})" in text]
    print(f"rank of the leak's line: {ranks[:1]}, {seconds:.0f} s after the first request")
    assert ranks[:1] == [1], grown.stdout
