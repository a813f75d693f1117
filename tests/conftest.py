# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What all tests have in common: the signals that programs find, and Debian's chromium."""

import ctypes
import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

CLONE_NEWNS = 0x20000  # sched.h
MS_REC, MS_PRIVATE = 0x4000, 0x40000  # sys/mount.h


def pytest_configure(config: pytest.Config) -> None:
    """Gives a worker a /dev/shm of its own, so that it sees no program of another's tests.

    scripts/run_tests.py asks for it, and knows that it can be had.
    """
    if not (hasattr(config, "workerinput") and os.environ.get("KMEM_TESTS_OWN_SHM")):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.unshare(CLONE_NEWNS) != 0
        or libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None) != 0
        or libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", ctypes.c_ulong(0), b"mode=1777") != 0
    ):
        raise OSError(ctypes.get_errno(), "no /dev/shm for a worker")


@pytest.fixture(autouse=True)
def containers_by_themselves(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keeps tests that make a container apart from all tests that look at running programs.

    Root sees a process in a pid namespace below by what it has mapped, so a /dev/shm of a worker's
    own does not hide it. A lock on this file is common to the workers.
    """
    if request.node.get_closest_marker("alone") is None:
        yield
        return
    makes_one = request.node.get_closest_marker("container") is not None
    with Path(__file__).open() as common:
        fcntl.flock(common, fcntl.LOCK_EX if makes_one else fcntl.LOCK_SH)
        yield
        fcntl.flock(common, fcntl.LOCK_UN)  # a forked child may have it open still


@pytest.fixture(scope="session", autouse=True)
def programs_find_signals_as_at_a_terminal() -> None:
    """Also under nohup and in the background of a script, where they would find some ignored.

    A handler that does nothing keeps us from the signal as well, and exec does not hand it on.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    from playwright.sync_api import sync_playwright

    script = ROOT / "scripts" / "debian-packages"
    done = subprocess.run([script, "chromium"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no chromium: {' '.join(done.stderr.split())[-200:]}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", chromium_sandbox=False
        )
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser) -> Iterator[Callable[..., object]]:
    """Opens a page. Its errors, requests for other than ALLOWED, and with FAILURES those that fail,
    fail the test.
    """
    wrong: list[str] = []
    pages = []

    def opened(
        width: int, deadline_ms: int, allowed: tuple[str, ...], failures: bool = False
    ) -> object:
        page = browser.new_page(viewport={"width": width, "height": 1000})
        page.set_default_timeout(deadline_ms)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        if failures:
            page.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
        page.on(
            "request",
            lambda request: None if request.url.startswith(allowed) else wrong.append(request.url),
        )
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert not wrong
