# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem serve`: profiles by HTTP, for Go's tools and scrapers, and the page's call sites."""

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kmem_command import ROOT
from test_live import DEADLINE, Program
from test_serve import Server, serve

from kmem.live.pprof import read

pytestmark = pytest.mark.alone

# One thread keeps what it makes, another makes more and keeps nothing.
LEAK = """
import threading, time
kept = []
def forgotten():
    while True:
        kept.append(bytearray(20000))
        time.sleep(0.002)
def noise():
    while True:
        bytearray(60000)
        time.sleep(0.002)
for work in (forgotten, noise):
    threading.Thread(target=work, daemon=True).start()
"""


@pytest.fixture(scope="module")
def writable() -> Iterator[Server]:
    yield from serve("--allow-writes")


@pytest.fixture(scope="module")
def leaking() -> Iterator[Program]:
    with Program(before=LEAK) as running:
        yield running


def bearer(server: Server) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.token}"}


def names(path: Path) -> set[str]:
    return {
        line.function for row in read(path).rows for frame in row.frames for line in frame.lines
    }


@pytest.mark.parametrize(("kind", "first"), [("heap", "inuse_space"), ("allocs", "alloc_space")])
def test_pprof(writable: Server, leaking: Program, tmp_path: Path, kind: str, first: str) -> None:
    path = f"processes/{leaking.pid}/debug/pprof/{kind}?seconds=2&interval=4096"
    status, body = writable.ask(path, bearer(writable))
    assert status == 200, body
    file = tmp_path / "profile.pb.gz"
    file.write_bytes(body)
    assert "forgotten" in names(file)
    assert first.encode() in read_default(file)


def read_default(file: Path) -> bytes:
    """The name of the figure that a reader shows first."""
    from kmem.live.pprof import PROFILE, unpacked

    message = PROFILE()
    message.ParseFromString(unpacked(file))
    return message.string_table[message.default_sample_type].encode()


def test_what_grows(writable: Server, leaking: Program) -> None:
    path = f"api/processes/{leaking.pid}/sites?seconds=2&interval=4k&growth=1"
    status, body = writable.ask(path, bearer(writable))
    assert status == 200, body
    found = json.loads(body)
    assert found["growth"] is True
    assert found["sites"][0]["site"].startswith("forgotten"), found
    assert found["sites"][0]["bytes"] > 500_000


def test_ages_and_threads(writable: Server, leaking: Program) -> None:
    path = f"api/processes/{leaking.pid}/sites?seconds=2&interval=4096"
    status, body = writable.ask(path, bearer(writable))
    assert status == 200, body
    found = json.loads(body)
    assert found["ages"] == ["<1 min", "<10 min", "<1 h", "older"]
    site = next(one for one in found["sites"] if one["site"].startswith("forgotten"))
    assert site["ages"][0] == pytest.approx(site["bytes"], rel=0.2)
    assert (found["can_tell"], found["suspects"], found["old_seconds"]) == (False, [], 60)
    assert found["sampled_seconds"] > 2
    first = found["threads"][0]
    assert first["site"].startswith("forgotten") and first["bytes"] > 200_000, found["threads"]
    # Not the thread that the process is named by.
    number = int(first["thread"].rpartition("(")[2].rstrip(")"))
    assert number != leaking.pid and Path(f"/proc/{leaking.pid}/task/{number}").exists()
    status, body = writable.ask(f"{path}&growth=1", bearer(writable))
    assert status == 200 and json.loads(body)["ages"] is None
    text = (ROOT / "docs" / "watching.md").read_text(encoding="utf-8")
    keys = set(found).union(*found["sites"], *found["threads"])
    assert not [key for key in sorted(keys) if f"`{key}`" not in text]


def test_needs_the_token(writable: Server, leaking: Program) -> None:
    path = f"processes/{leaking.pid}/debug/pprof/heap?seconds=0.2"

    def basic(password: str | None) -> dict[str, str]:
        return {"Authorization": "Basic " + base64.b64encode(f"any:{password}".encode()).decode()}

    wrong = [{}, {"Authorization": "Bearer x"}, {"Authorization": "Basic ???"}, basic("x")]
    for headers in wrong:
        status, body = writable.ask(path, headers)
        assert status == 403, headers
        assert "need the token" in json.loads(body)["error"]
    for headers in (basic(writable.token), {"X-Kmem-Token": writable.token or ""}):
        assert writable.ask(path, headers)[0] == 200


def test_needs_the_flag(leaking: Program) -> None:
    for server in serve():
        status, body = server.ask(f"processes/{leaking.pid}/debug/pprof/heap")
        assert (status, json.loads(body)["error"]) == (
            403,
            "profiles need kmem serve --allow-writes",
        )


@pytest.mark.parametrize(
    ("rest", "status", "words"),
    [
        ("debug/pprof/heap?seconds=x", 400, "seconds=x: expected more than 0"),
        ("debug/pprof/heap?seconds=0", 400, "seconds=0: expected more than 0"),
        ("debug/pprof/heap?seconds=601", 400, "up to 600"),
        ("debug/pprof/heap?interval=1", 400, "interval=1: expected 1024"),
        ("debug/pprof/heap?interval=2T", 400, "expected 1024 to 1099511627776 bytes"),
        ("debug/pprof/heap?interval=x", 400, "interval=x: expected a number of bytes"),
        ("debug/pprof/heap?interval=0", 400, "interval=0: expected 1024 to 1099511627776"),
        ("debug/pprof/heap?debug=1", 400, "debug=: expected seconds= and interval="),
        ("debug/pprof/heap?growth=1", 400, "growth=: expected seconds= and interval="),
        ("debug/pprof/goroutine", 404, "goroutine: expected heap or allocs"),
    ],
)
def test_wrong_questions(
    writable: Server, leaking: Program, rest: str, status: int, words: str
) -> None:
    answer = writable.ask(f"processes/{leaking.pid}/{rest}", bearer(writable))
    assert answer[0] == status
    assert words in json.loads(answer[1])["error"]


def test_growth_is_yes_or_no(writable: Server, leaking: Program) -> None:
    path = f"api/processes/{leaking.pid}/sites?growth=2"
    status, body = writable.ask(path, bearer(writable))
    assert (status, json.loads(body)["error"]) == (400, "growth=2: expected 0 or 1")
    path = f"api/processes/{leaking.pid}/sites?debug=1"
    status, body = writable.ask(path, bearer(writable))
    expected = "debug=: expected seconds=, interval= and growth="
    assert (status, json.loads(body)["error"]) == (400, expected)


def test_one_at_a_time(writable: Server, leaking: Program) -> None:
    """Of two profiles at once the process gets one."""
    path = f"processes/{leaking.pid}/debug/pprof/heap?interval=4096&seconds=5"
    answers: list[tuple[int, bytes]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(writable.ask(path, bearer(writable))))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (_, refused), (status, _) = sorted(answers, key=lambda answer: -answer[0])
    assert status == 200
    reason = f"process {leaking.pid} is being profiled; expected one at a time"
    assert json.loads(refused)["error"] == reason


def test_a_process_that_is_not_there(writable: Server) -> None:
    with Program() as ended:
        pass
    status, body = writable.ask(f"processes/{ended.pid}/debug/pprof/heap", bearer(writable))
    assert (status, json.loads(body)["error"]) == (409, f"process {ended.pid}: there is none")


def test_page_shows_call_sites(writable: Server, leaking: Program, new_page) -> None:
    page = new_page(1200, DEADLINE * 1000, ("http://127.0.0.1:", "data:"))
    page.goto(f"{writable.address}?process={leaking.pid}#token={writable.token}")
    page.get_by_role("button", name="what holds memory").click()
    page.locator("#sites-found tbody tr").first.wait_for(timeout=60_000)
    shown = page.locator("#sites-found tbody tr").all_inner_texts()
    assert any("forgotten" in row for row in shown), shown
    assert "largest first" in page.locator("#sites-state").inner_text()
    page.get_by_role("heading", name="By thread").wait_for()
    shown = page.locator("#threads tbody tr").all_inner_texts()
    assert any("forgotten" in row for row in shown), shown


# An answer as after ten minutes of sampling.
AGED = {
    "growth": False,
    "seconds": 10,
    "ages": ["<1 min", "<10 min", "<1 h", "older"],
    "sampled_seconds": 700,
    "old_seconds": 60,
    "can_tell": True,
    "sites": [
        {"bytes": 5 << 20, "objects": 9, "ages": [1 << 20, 0, 4 << 20, 0], "site": "grow < main"}
    ],
    "suspects": [
        {"bytes_a_minute": 1 << 20, "old_bytes": 4 << 20, "kept": 0.9, "site": "grow < main"}
    ],
    "threads": [],
}


def test_page_shows_ages_and_suspects(writable: Server, leaking: Program, new_page) -> None:
    page = new_page(1200, DEADLINE * 1000, ("http://127.0.0.1:", "data:"))
    page.route("**/api/processes/*/sites", lambda route: route.fulfill(json=AGED))
    page.goto(f"{writable.address}?process={leaking.pid}#token={writable.token}")
    for _ in range(2):
        page.get_by_role("button", name="what holds memory").click()
        page.locator("#suspects tbody tr").first.wait_for()
        heads = page.locator("#sites-found th").all_inner_texts()
        assert [head.lower() for head in heads] == [
            *("bytes", "objects", "<1 min", "<1 h", "call site, and its callers"),
        ]
        cells = page.locator("#sites-found td").all_inner_texts()
        assert cells == ["5.0 MiB", "9", "1.0 MiB", "4.0 MiB", "grow < main"]
        cells = page.locator("#suspects td").all_inner_texts()
        assert cells == ["+1.0 MiB", "4.0 MiB", "90.0%", "grow < main"]
        assert page.get_by_role("heading", name="By thread").count() == 0


@pytest.mark.parametrize("width", [360, 390])
def test_call_sites_can_be_read_on_a_narrow_screen(
    writable: Server, leaking: Program, new_page, width: int
) -> None:
    """Words stay together: with a letter in each line the table is some thousand lines high."""
    page = new_page(width, DEADLINE * 1000, ("http://127.0.0.1:", "data:"))
    site = "Page.do_GET (web.py:5) < BaseHTTPRequestHandler.handle (server.py:436) < main"
    aged = {"bytes": 5 << 20, "objects": 90000, "ages": [1 << 20] * 4, "site": site}
    thread = {"bytes": 5 << 20, "objects": 90000, "thread": "python3 (13420)", "site": site}
    answer = AGED | {"sites": [aged], "threads": [thread]}
    page.route("**/api/processes/*/sites", lambda route: route.fulfill(json=answer))
    page.goto(f"{writable.address}?process={leaking.pid}#token={writable.token}")
    page.get_by_role("button", name="what holds memory").click()
    for table in ("sites-found", "threads"):
        row = page.locator(f"#{table} tbody tr").first
        row.wait_for()
        assert row.bounding_box()["height"] < 120
        # All of the call site is on the screen, without a sideways scroll.
        place = row.locator("td").last.bounding_box()
        assert place["x"] >= 0 and place["x"] + place["width"] <= width
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0


def test_page_without_the_token_offers_no_profile(
    writable: Server, leaking: Program, new_page
) -> None:
    page = new_page(1200, DEADLINE * 1000, ("http://127.0.0.1:", "data:"))
    page.goto(f"{writable.address}?process={leaking.pid}")
    page.locator("#caches tbody tr").first.wait_for()
    assert page.get_by_role("button", name="what holds memory").count() == 0
