# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem serve` for other machines and containers: addresses, and a token for every request."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kmem_command import KMEM
from test_live import DEADLINE, Program, assert_refused, kmem, wait_until
from test_serve import Server

pytestmark = pytest.mark.alone

TOKEN = "a-token-of-many-letters"


@contextlib.contextmanager
def serving(*options: object) -> Iterator[Server]:
    command = [KMEM, "serve", "--port", "0", "--interval", "0.2", *map(str, options)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as popen:
        assert popen.stdout is not None
        line = popen.stdout.readline()
        match = re.fullmatch(r"page +http://([\d.]+):(\d+)/\n", line)
        assert match, line
        # 0.0.0.0 is every address of the machine, this one too.
        yield Server(popen, f"http://127.0.0.1:{match[2]}/", None)
        popen.terminate()
        _, errors = popen.communicate(timeout=DEADLINE)
        assert (popen.returncode, errors) == (0, "")


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def program() -> Iterator[Program]:
    with Program() as running:
        running.do("some = take(mine, 5000)")
        yield running


BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1"])
def test_every_figure_needs_the_token(token_file: Path, program: Program, address: str) -> None:
    with serving("--listen", address, "--token-file", token_file) as server:
        process = f"api/processes/{program.pid}"
        wait_until(lambda: server.ask(process, BEARER)[0] == 200)
        for path in ("metrics", "api/processes", process, "nothing"):
            for headers in ({}, {"Authorization": "Bearer x"}, {"X-Kmem-Token": TOKEN + "x"}):
                status, body = server.ask(path, headers)
                assert status == 403, path
                assert json.loads(body)["error"] == "figures need the token of --token-file"
        # A scraper has a name for this machine that the server cannot know.
        status, body = server.ask("metrics", BEARER | {"Host": "exporter.pod:9745"})
        assert status == 200
        assert f'pid="{program.pid}"'.encode() in body
        # The page itself has no figures in it.
        assert server.ask("")[0] == 200
        assert TOKEN.encode() not in server.ask("")[1]


def test_the_token_alone_changes_nothing(token_file: Path, program: Program) -> None:
    with serving("--token-file", token_file) as server:
        path = f"processes/{program.pid}/debug/pprof/heap"
        status, body = server.ask(path, BEARER)
        assert status == 403
        assert json.loads(body)["error"] == "profiles need kmem serve --allow-writes"


def test_page_with_the_token(token_file: Path, program: Program, new_page) -> None:
    with serving("--token-file", token_file) as server:
        page = new_page(1200, DEADLINE * 1000, ("http://127.0.0.1:", "data:"))
        page.goto(server.address)
        wait_until(lambda: "need the token" in page.locator("#state").inner_text())
        page.goto("about:blank")
        page.goto(f"{server.address}?process={program.pid}#token={TOKEN}")
        page.get_by_role("link", name="mine", exact=True).wait_for()
        assert TOKEN not in page.url


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--listen", "0.0.0.0"), 2, "--listen 0.0.0.0: expected --token-file too"),
        (("--listen", "localhost"), 2, "--listen localhost: expected an IPv4 address"),
        (("--listen", "300.1.1.1"), 2, "expected an IPv4 address"),
        (("--token-file", "/nonexistent/token"), 1, "No such file or directory"),
    ],
)
def test_wrong_addresses(options: tuple[str, ...], status: int, words: str) -> None:
    assert_refused(kmem("serve", "--port", "0", *options), words, status=status)


@pytest.mark.parametrize("text", ["", "short", "with spaces in the middle", "ä" * 20, "x" * 5000])
def test_wrong_tokens(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    refused = kmem("serve", "--port", "0", "--token-file", path)
    assert_refused(refused, f"--token-file {path}: expected 16 to 4096 letters, digits or")


def test_an_address_of_another_machine(token_file: Path) -> None:
    """It is of a network for examples (RFC 5737)."""
    refused = kmem("serve", "--listen", "192.0.2.1", "--token-file", token_file)
    assert_refused(refused, "192.0.2.1, port 9745: Cannot assign requested address")
