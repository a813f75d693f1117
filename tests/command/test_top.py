# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem top`: what stands on the screen, read cell by cell, and what keys do to it."""

import asyncio
import json
import os
import re
import select
import signal
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest
from test_live import DEADLINE, Program, assert_refused, kmem, value
from textual.pilot import Pilot

from kmem.live.registry.caches import read_caches
from kmem.live.registry.find import open_process
from kmem.live.top import Rows, Top
from kmem.live.top_rows import CACHE_COLUMNS, ORDERS, PROCESS_COLUMNS, Columns, fit, help_text
from kmem.live.watch import History, Rates, short_bytes, short_count, sparkline

pytestmark = pytest.mark.alone

SIZE = (80, 24)
Script = Callable[[Pilot[None]], Awaitable[None]]


def play(process: int | None, script: Script, size: tuple[int, int] = SIZE) -> None:
    """Runs a script of keys and looks against the application without a terminal."""

    async def run() -> None:
        app = Top(process, delay=0.1)
        async with app.run_test(size=size) as pilot:
            await asyncio.wait_for(script(pilot), DEADLINE * 3)

    asyncio.run(run())


def screen(pilot: Pilot[None]) -> list[str]:
    """The lines of the screen as a user sees them."""
    strips = pilot.app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


async def shown(pilot: Pilot[None], condition: Callable[[list[str]], bool]) -> list[str]:
    """The screen once it is as expected."""
    for _ in range(DEADLINE * 20):
        lines = screen(pilot)
        if condition(lines):
            return lines
        await pilot.pause(0.05)
    raise AssertionError("never on the screen:\n" + "\n".join(screen(pilot)))


def having(*words: str) -> Callable[[list[str]], bool]:
    return lambda lines: all(word in "\n".join(lines) for word in words)


def rows(lines: list[str], width: int = SIZE[0]) -> list[list[str]]:
    """The cells of the table's rows; blanks are in none but the trend."""
    start = next(number for number, line in enumerate(lines) if "SIZE  GROWTH" in line)
    found = []
    for line in lines[start + 1 :]:
        if line.startswith("─") or "quit" in line or not line[:10].strip():
            break
        found.append(line[: width - 1].split())
    return found


@pytest.fixture
def program() -> Iterator[Program]:
    with Program() as running:
        yield running


def test_caches_in_80x24(program: Program) -> None:
    """What stands there is what `kmem info` says, and every line fits."""
    program.do("some = take(mine, 5000)")
    info = {row["name"]: row for row in json.loads(value("info", program.pid, "--json"))["caches"]}

    async def script(pilot: Pilot[None]) -> None:
        lines = await shown(pilot, having("mine", "Slabs", "Heap", "q quit"))
        assert len(lines) == 24
        assert f"Process {program.pid} python3" in lines[0] or str(program.pid) in lines[0]
        shown_rows = {row[0]: row for row in rows(lines)}
        assert len(shown_rows) >= 12
        for name, row in shown_rows.items():
            assert int(row[4]) == info[name]["num_objs"]
            assert int(row[6]) == info[name]["objsize"]
            used = 100 * info[name]["active_objs"] // max(info[name]["num_objs"], 1)
            assert row[5] == f"{used}%"

    play(program.pid, script)


@pytest.mark.parametrize("key", ORDERS)
def test_keys_sort(program: Program, key: str) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await shown(pilot, having("By size"))
        await pilot.press(key)
        await shown(pilot, having(f"By {ORDERS[key].name};"))
        lines = screen(pilot)
        with open_process(program.pid) as registry:
            caches = read_caches(registry)
        by_name = sorted(caches, key=lambda cache: cache.name)
        expected = sorted(
            by_name, key=lambda cache: ORDERS[key].key(cache, History(9)),
            reverse=ORDERS[key].falling,
        )  # fmt: skip
        names = [row[0] for row in rows(lines)]
        assert names == [cache.name for cache in expected][: len(names)]

    play(program.pid, script)


def test_growth_and_trend(program: Program) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await shown(pilot, having("By size"))
        await pilot.press("g")
        program.do("some = take(mine, 100000)")

        def grew(lines: list[str]) -> bool:
            first = rows(lines)[0]
            return first[0] == "mine" and first[2] == "+10M" and "▁█" in first[-1]

        await shown(pilot, grew)

    play(program.pid, script)


@pytest.mark.parametrize("width", [59, 40, 30])
def test_narrow_terminal_has_the_whole_summary(program: Program, width: int) -> None:
    async def script(pilot: Pilot[None]) -> None:
        lines = await shown(pilot, having("By size"))
        text = " ".join(
            line.strip()
            for line in lines[: lines.index(next(line for line in lines if "By size" in line))]
        )
        assert re.search(
            r"caches, resident \d\S* Slabs .*, waste \d\S* Heap .* huge blocks \d", text
        )
        # Names are told apart: they lose no figure of a size class.
        names = [row[0] for row in rows(lines, width)]
        assert len(names) >= 3 and not any("…" in name for name in names)
        await pilot.press("enter")
        lines = await shown(pilot, having("engine slub"))
        assert len(rows(lines, width)) >= 1

    play(program.pid, script, size=(width, 24))


@pytest.mark.parametrize("columns", [CACHE_COLUMNS, PROCESS_COLUMNS])
def test_columns_fit(columns: Columns) -> None:
    """From 60 columns on every line fits, the name is first and wide enough to be known."""
    before = 0
    for width in range(60, 251):
        fitting = fit(columns, width)
        assert fitting[0][0] == 0
        assert 16 <= fitting[0][1] <= 48
        assert sum(room + 1 for _, room in fitting) - 1 <= width
        assert len(fitting) >= before
        before = len(fitting)
    assert before == len(columns)


def test_rates() -> None:
    rates = Rates()
    rates.add([(1, 100), (2, 50)], 10.0)
    assert rates.shown(1) == "-"
    rates.add([(1, 300), (2, 40), (3, 7)], 12.0)
    assert [rates.shown(key) for key in (1, 2, 3, 4)] == ["100", "0", "-", "-"]


def test_calls_are_counted(program: Program) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await shown(pilot, having("By size"))
        for _ in range(30):
            program.do("some = take(mine, 100000)")
            lines = screen(pilot)
            mine = next((row for row in rows(lines) if row[0] == "mine"), None)
            if mine is not None and mine[3] not in ("-", "0"):
                return
            await pilot.pause(0.1)
        raise AssertionError("no rate for mine:\n" + "\n".join(screen(pilot)))

    play(program.pid, script)


def test_help(program: Program) -> None:
    """A line for each column, and it goes away by any of its keys."""

    async def script(pilot: Pilot[None]) -> None:
        await shown(pilot, having("By size", "? help"))
        await pilot.press("question_mark")
        lines = await shown(pilot, having("CALLS/S", "allocations and frees a second", "growth"))
        assert all(any(column.name in line for line in lines) for column in CACHE_COLUMNS)
        await pilot.press("escape")
        await shown(pilot, lambda lines: not having("allocations and frees a second")(lines))

    play(program.pid, script, size=(100, 40))


@pytest.mark.parametrize("columns", [CACHE_COLUMNS, PROCESS_COLUMNS])
def test_help_explains_the_lines_above_and_fits_80_columns(columns: Columns) -> None:
    lines = help_text(columns).splitlines()
    for word in ("objects", "waste", "held", "large", "huge", "sheaf"):
        assert any(line.startswith(f"  {word:<8} ") for line in lines)
    # Of 80 columns the frame, its inner edge and the scroll bar take six.
    assert max(map(len, lines)) <= 74


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
@pytest.mark.parametrize("process", [True, False])
def test_keys_that_end_it(program: Program, process: bool, key: str) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await shown(pilot, having("Slabs", "? help"))
        await pilot.press(key)
        await pilot.pause()
        assert pilot.app.return_code == 0

    play(program.pid if process else None, script)


def test_sorting_goes_to_the_top(program: Program) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await shown(pilot, having("By size"))
        await pilot.press("down", "down", "down", "n")
        await shown(pilot, having("By name;"))
        assert pilot.app.screen.query_one(Rows).cursor_row == 0

    play(program.pid, script)


def test_detail_is_live(program: Program) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await shown(pilot, having("By size"))
        program.do("some = take(mine, 100000)")
        await pilot.press("c")
        await shown(pilot, lambda lines: rows(lines)[0][0] == "mine")
        await pilot.press("enter")
        await shown(pilot, having("mine: engine slub", "sheaf_capacity", "cpu_partial"))
        value("attr", program.pid, "mine/min_partial", 77)
        program.do("more = take(mine, 5000)")
        lines = await shown(pilot, having("min_partial 77"))
        assert len(lines) == 24
        assert len(rows(lines)) >= 5
        # The cursor stays on its cache when others come before it.
        await pilot.press("n")
        await shown(pilot, having("By name", "mine: engine slub"))
        await pilot.press("escape")
        await shown(pilot, lambda lines: not having("mine: engine slub")(lines))

    play(program.pid, script)


def test_choose_a_process(program: Program) -> None:
    async def script(pilot: Pilot[None]) -> None:
        lines = await shown(pilot, having(str(program.pid), "All ", "processes on libkmem"))
        table = rows(lines)
        place = next(number for number, row in enumerate(table) if str(program.pid) in row)
        await pilot.press(*["down"] * place, "enter")
        await shown(pilot, having(f"Process {program.pid} ", "kmalloc-"))
        await pilot.press("escape")
        await shown(pilot, having("processes on libkmem"))

    play(None, script)


def test_the_end_of_a_process_is_one_line(program: Program) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await shown(pilot, having("By size"))
        program.popen.kill()
        program.popen.wait()
        lines = await shown(pilot, having(f"process {program.pid} has ended"))
        assert sum("has ended" in line for line in lines) == 1
        assert rows(lines)
        await pilot.press("n", "enter")
        await shown(pilot, having("engine slub", "has ended"))
        await pilot.press("q")

    play(program.pid, script)


@pytest.mark.parametrize("on_libkmem", [True, False])
def test_another_program_is_one_line(program: Program, on_libkmem: bool) -> None:
    """Exec changes neither the number of a process nor when it began."""
    keep = "True" if on_libkmem else "k != 'LD_PRELOAD'"

    async def script(pilot: Pilot[None]) -> None:
        await shown(pilot, having("By size"))
        assert program.popen.stdin is not None
        program.popen.stdin.write(
            f"os.execve('/usr/bin/tail', ['tail', '-f', '/dev/null'],"
            f" {{k: v for k, v in os.environ.items() if {keep}}})\n"
        )
        program.popen.stdin.flush()
        await shown(pilot, having(f"process {program.pid} is another program now: tail"))

    play(program.pid, script)


def test_sleeping_and_stopped_processes_are_shown(program: Program) -> None:
    os.kill(program.pid, signal.SIGSTOP)

    async def script(pilot: Pilot[None]) -> None:
        await shown(pilot, having(f"Process {program.pid} ", "kmalloc-"))

    try:
        play(program.pid, script)
    finally:
        os.kill(program.pid, signal.SIGCONT)


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (60, 24), (200, 60), (250, 60)])
def test_other_sizes_of_terminals(program: Program, size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await shown(pilot, having("Process"))
        await pilot.press("enter", "down", "down", "escape")
        await shown(pilot, having("Process"))

    play(program.pid, script, size=size)


def test_once(program: Program) -> None:
    table = value("top", "--once", "--sort", "n", program.pid).splitlines()
    assert f"Process {program.pid} " in table[0]
    names = [line.split()[0] for line in table[4:]]
    assert names == sorted(names)
    assert "mine" in names
    info = {row["name"]: row for row in json.loads(value("info", program.pid, "--json"))["caches"]}
    for line in table[4:]:
        cells = line.split()
        assert int(cells[4]) == info[cells[0]]["num_objs"]
        assert int(cells[8]) == info[cells[0]]["num_slabs"]
        assert cells[2:4] == ["-", "-"]  # growth and a rate need two looks
    assert any(str(program.pid) in line.split() for line in value("top", "-o").splitlines()[4:])


def on_terminal(
    process: int, kind: str, before: Callable[[], object] = lambda: None
) -> tuple[int, int]:
    """`kmem top` on a new pseudo-terminal: its process and the other end."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        from kmem_command import KMEM

        before()
        os.environ.update(TERM=kind, COLUMNS="80", LINES="24")
        os.execv(KMEM, [str(KMEM), "top", str(process)])
    return pid, terminal


def read_to_end(terminal: int) -> bytes:
    seen = b""
    while True:
        assert select.select([terminal], [], [], DEADLINE)[0], f"no end after {seen[-999:]!r}"
        try:
            data = os.read(terminal, 65536)
        except OSError:
            return seen
        if not data:
            return seen
        seen += data


def test_on_a_terminal_without_a_cursor(program: Program) -> None:
    pid, terminal = on_terminal(program.pid, "dumb")
    seen = read_to_end(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert b"TERM is dumb; expected a terminal that moves its cursor" in seen
    assert b"\x1b" not in seen
    os.close(terminal)


def test_on_a_real_terminal(program: Program) -> None:
    """Started by its command in a pseudo-terminal, ended by q; the terminal is as before."""
    pid, terminal = on_terminal(program.pid, "xterm")
    seen = b""
    while b"quit" not in seen:
        seen += os.read(terminal, 65536)
    os.write(terminal, b"q")
    seen += read_to_end(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"Traceback" not in seen
    assert b"\x1b[?1049h" in seen
    assert b"\x1b[?1049l" in seen
    os.close(terminal)


def read_until(terminal: int, word: bytes) -> bytes:
    """What is drawn, up to the word; an error after DEADLINE."""
    seen, end = b"", time.monotonic() + DEADLINE
    while word not in seen:
        left = end - time.monotonic()
        assert left > 0 and select.select([terminal], [], [], left)[0], f"no {word!r} in {seen!r}"
        seen += os.read(terminal, 65536)
    return seen


def status_of(pid: int) -> int:
    """The exit status of a child; an error, and its end, if it still runs after DEADLINE."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("kmem top did not end")


def test_bytes_that_are_no_text_are_no_keys(program: Program) -> None:
    """As of a terminal in another encoding, or of a paste."""
    pid, terminal = on_terminal(program.pid, "xterm")
    read_until(terminal, b"By size")
    os.write(terminal, b"\xff\xfe\xe9\x80")
    os.write(terminal, b"n")
    seen = read_until(terminal, b"By name")
    os.write(terminal, b"q")
    seen += read_to_end(terminal)
    assert status_of(pid) == 0
    assert b"Traceback" not in seen
    os.close(terminal)


@pytest.mark.parametrize("ignored", [True, False])
def test_a_terminal_that_is_gone(program: Program, ignored: bool) -> None:
    """It ends, also if SIGHUP is ignored as by nohup, since nobody can end it any more."""

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)

    pid, terminal = on_terminal(program.pid, "xterm", ignore)
    read_until(terminal, b"By size")
    os.close(terminal)
    assert status_of(pid) in (1, 130)


def test_a_stop_that_cannot_be_caught(program: Program) -> None:
    """After SIGSTOP and SIGCONT it draws again, and leaves the terminal as it was at the start."""
    pid, terminal = on_terminal(program.pid, "xterm")
    before = termios.tcgetattr(terminal)
    read_until(terminal, b"By size")
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    os.kill(pid, signal.SIGCONT)
    read_until(terminal, b"\x1b[?1049h")
    os.write(terminal, b"n")
    read_until(terminal, b"By name")
    os.write(terminal, b"q")
    read_to_end(terminal)
    assert status_of(pid) == 0
    assert termios.tcgetattr(terminal) == before
    os.close(terminal)


def test_errors_that_go_elsewhere(program: Program) -> None:
    """The screen is drawn on standard output: 2> takes errors alone."""

    def elsewhere() -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    pid, terminal = on_terminal(program.pid, "xterm", elsewhere)
    read_until(terminal, b"By size")
    os.write(terminal, b"q")
    read_to_end(terminal)
    assert status_of(pid) == 0
    os.close(terminal)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["4194305"], ["4194305", "none"]),
        ([str(os.getppid())], [str(os.getppid()), "does not run on libkmem"]),
        (["--sort", "z"], ["--sort z", "c (size)"]),
        (["--delay", "0"], ["--delay 0", "0.1 to"]),
        (["--once", "--sort", "g"], ["--sort g", "growth needs two looks"]),
        ([], ["terminal", "--once"]),
    ],
)
def test_wrong_requests(arguments: list[str], words: list[str]) -> None:
    status = 2 if arguments and arguments[0].startswith("-") else 1
    assert_refused(kmem("top", *arguments), *words, status=status)
    if arguments and arguments[0].isdigit():
        assert_refused(kmem("top", "--once", *arguments), *words)


def test_a_newer_registry(program: Program) -> None:
    with open_process(program.pid) as registry:
        path = registry.path
    with path.open("r+b") as file:
        file.seek(8)
        file.write((2).to_bytes(4, "little"))
        file.flush()
        for arguments in (["top"], ["top", "--once"]):
            assert_refused(kmem(*arguments, program.pid), "version 2")
        assert kmem("top", "--once").returncode == 0
        file.seek(8)
        file.write((1).to_bytes(4, "little"))


def test_another_users_process() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with Program() as program:
        for arguments in (["top", "--once", program.pid], ["info", program.pid]):
            script = "import os; os.setgid(65534); os.setuid(65534); os.chdir('/')\nimport sys\n" \
                "from kmem.commands.start import start\nsys.exit(start())"  # fmt: skip
            import subprocess

            result = subprocess.run(
                [sys.executable, "-c", script, *map(str, arguments)],
                capture_output=True,
                text=True,
                check=False,
                timeout=DEADLINE,
            )
            if "ModuleNotFoundError" in result.stderr or "PermissionError" in result.stderr:
                pytest.skip(f"user 65534 may not read the packages: {result.stderr[-200:]}")
            assert_refused(result, str(program.pid), "belongs to user 0")


def test_short_forms() -> None:
    forms = [short_bytes(count) for count in (0, 999, 1000, 10 << 10, 1 << 20, 999 << 20, 1 << 40)]
    assert forms == ["0", "999", "1.0K", "10K", "1.0M", "999M", "1.0T"]
    assert short_bytes(-2048, sign=True) == "-2.0K"
    assert short_bytes(2048, sign=True) == "+2.0K"
    assert all(len(short_bytes(7 * 10**power)) <= 5 for power in range(19))
    assert sparkline([0, 5, 10], 4) == " ▁▄█"
    assert sparkline([3, 3], 2) == "██"
    assert sparkline([100, 101], 2) == "▇█"
    assert sparkline([0, 0], 2) == "▁▁"
    counts = [short_count(count) for count in (0, 0.25, 7, 9.96, 999, 1000, 123456, 5e6, 2e12)]
    assert counts == ["0", "0.2", "7", "10", "999", "1.0k", "123k", "5.0M", "2.0T"]
    assert sparkline([], 3) == "   "
