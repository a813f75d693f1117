# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The commands beside `run`: help, version, bench, and the helper of the demo."""

import contextlib
import errno
import io
import json
import os
import platform
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from kmem_command import KMEM, ROOT, kmem
from rich.console import Console

from kmem.bench import demo, micro
from kmem.bench.worker import Series
from kmem.commands import shown
from kmem.commands.options import keep_files_apart
from kmem.common.errors import BadUsage, KmemError
from kmem.common.files import whole, why_not_written, write_json
from kmem.traces.slabinfo import parse_slabinfo

VERSION = (ROOT / "VERSION").read_text().strip()
TIMED = ROOT / "build" / "bench" / "timed"
MICRO = ROOT / "build" / "bench" / "micro"
TRACE = ROOT / "python" / "kmem" / "traces" / "boot-6.1tiny-slub-64M.slt.zst"
BULK = ROOT / "build" / "bench" / "bulk"

BULKS = [1, 2, 3, 4, 8, 16, 30, 32, 34, 48, 64, 128, 158, 250]
WAYS = ("fallback", "cache_bulk", "kfree_bulk")


def test_help_names_the_commands() -> None:
    result = kmem("--help")
    assert result.returncode == 0
    for command in ("run", "bench", "demo", "lab"):
        assert command in result.stdout


def test_demo_shows_the_caches_with_most_memory(tmp_path: Path) -> None:
    table = tmp_path / "slabinfo"
    program = ("/usr/bin/python3", "-c", "pass")
    assert kmem("run", "--slabinfo", table, "--", *program).returncode == 0
    text, output = table.read_text(), io.StringIO()
    Console(file=output, width=120).print(demo.cache_table("caches", text))
    shown = re.findall(r"│ (kmalloc\S+) +│ +([\d,]+) │", output.getvalue())
    sizes = [int(kib.replace(",", "")) for _, kib in shown]
    caches = [cache.slabs * cache.pages_per_slab * 4 for cache in parse_slabinfo(text)]
    assert len(caches) > len(sizes) == 10
    assert sizes == sorted(caches, reverse=True)[:10]


def test_modules_of_the_current_directory_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('not ours')")
    (tmp_path / "kmem.py").write_text("raise SystemExit('not ours')")
    done = subprocess.run(
        [ROOT / "kmem", "ps", "--json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def broken_modules(folder: Path) -> Path:
    """A folder with modules of the names of ours."""
    for name in ("typer", "numpy", "json", "rich", "mesonbuild", "pip"):
        (folder / f"{name}.py").write_text("raise SystemExit('not ours')")
    return folder


def test_variables_of_python_are_for_other_programs(tmp_path: Path) -> None:
    variables = {
        "PYTHONPATH": str(broken_modules(tmp_path)),
        "PYTHONHOME": "/nonexistent",
        "PYTHONWARNINGS": "error",
        "PYTHONSTARTUP": str(tmp_path / "json.py"),
    }
    for arguments in (["--version"], ["lab", "order", "--size", "64", "--cpus", "4"]):
        done = kmem(*arguments, environment=variables)
        assert (done.returncode, done.stderr) == (0, "")


def test_recorded_programs_have_the_variables_of_the_user(tmp_path: Path) -> None:
    """Those of Python too, and no locale that is Python's own choice."""
    variables = {
        "LANG": "C",
        "PATH": os.environ["PATH"],
        "PYTHONHOME": "/nonexistent",
        "PYTHONPATH": str(broken_modules(tmp_path)),
    }
    for given in (variables, variables | {"LC_CTYPE": "POSIX"}):
        done = subprocess.run(
            [ROOT / "kmem", "record", "program", "--out", tmp_path / "t", "--", "env", "-0"],
            env=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        seen = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
        for ours in ("LD_PRELOAD", "KMEM_OPTIONS", "PWD", "SHLVL", "OLDPWD", "_"):
            seen.pop(ours, None)
        assert seen == given


@pytest.mark.parametrize("to", [">/dev/full", ">&-", ">&- <&-"])
@pytest.mark.parametrize("arguments", ["run --help", "--help", "ps", "lab order --table-only"])
def test_output_that_cannot_be_written_is_said(arguments: str, to: str) -> None:
    done = subprocess.run(
        ["/bin/bash", "-c", f'"$0" {arguments} {to}', KMEM],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("kmem: standard output")


@pytest.mark.parametrize(
    ("arguments", "place", "other"),
    [
        (["replay", "t", "--json", "./t"], "--json t", "TRACE"),
        (["replay", "--json", "link", "t"], "--json link", "TRACE"),
        (["replay", "t", "--slabinfo", "s", "--json", "s"], "--json s", "--slabinfo"),
        (["import", "t", "-o", "t"], "--out t", "FILE"),
        (["export", "t", "-o", "t"], "--out t", "TRACE"),
        (["explain", "s", "t", "--html", "t"], "--html t", "PID|FILE"),
        (["explain", "s", "--json", "new", "--html", "new"], "--html new", "--json"),
        (["profile", "1", "--base", "s", "-o", "s"], "--base s", "-o"),
        (["profile", "1", "-o", "n.svg", "-o", "n.svg"], "-o n.svg", "-o"),
    ],
)
def test_a_result_is_not_written_over_a_file_of_the_command_line(
    arguments: list[str], place: str, other: str, tmp_path: Path
) -> None:
    for name in ("t", "s"):
        (tmp_path / name).write_bytes(TRACE.read_bytes())
    (tmp_path / "link").symlink_to("t")
    done = subprocess.run(
        [sys.executable, "-m", "kmem", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    line = f"kmem: {place}: expected another file than for {other}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "s", "t"]
    assert (tmp_path / "t").read_bytes() == (tmp_path / "s").read_bytes() == TRACE.read_bytes()


def test_a_result_needs_a_name_and_a_device_takes_several() -> None:
    explain = shown.command().commands["explain"]
    null = Path("/dev/null")
    keep_files_apart(explain.params, {"json_file": null, "html_file": null})
    with pytest.raises(BadUsage, match=r"^--json -: expected the name of a file, as /dev/stdout$"):
        keep_files_apart(explain.params, {"json_file": Path("-")})


def test_a_closed_stream_is_said_without_the_launcher() -> None:
    """The command of a wheel is started by pip's script, which opens no streams."""
    for arguments, to, status, lines in (
        (["ps"], ">&-", 1, ["kmem: standard output: Bad file descriptor"]),
        (["--help"], ">&- <&-", 1, ["kmem: standard output: Bad file descriptor"]),
        (["info", "1"], "2>&-", 1, []),
        (["info", "1"], ">&- 2>&- <&-", 1, []),
    ):
        done = subprocess.run(
            ["/bin/bash", "-c", f'"$0" -m kmem "$@" {to}', sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr.splitlines()) == (status, "", lines)


def test_streams_are_open_without_proc() -> None:
    """As in some chroots. Where they were taken for closed, nothing was printed, and no reason."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    script = 'mount -t tmpfs none /proc || exit 77\nexec "$0" "$1"'
    for word, status, out, err in (
        ("ps", 0, "    PID CACHES", ""),
        ("nonsense", 2, "", "kmem: no such command 'nonsense'"),
    ):
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, KMEM, word],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode == 77 or "unshare" in done.stderr:
            pytest.skip(f"no mount namespace or no tmpfs here: {done.stderr}")
        assert (done.returncode, done.stdout[: len(out)], done.stderr[: len(err)]) == (
            status,
            out,
            err,
        )


LARGE = """
import sys
from kmem.commands import start
start.run_command = lambda: print("x" * (1 << 20))
sys.exit(start.start())
"""


def test_large_output_that_cannot_be_written_is_said() -> None:
    """Texts that are larger than the buffer are not in it when their write has failed."""
    for to, line in (
        (">/dev/full", "kmem: standard output: No space left on device\n"),
        ("| true", ""),
    ):
        done = subprocess.run(
            [
                *("/bin/bash", "-c", f'"$0" -c "$1" {to}; exit "${{PIPESTATUS[0]}}"'),
                *(sys.executable, LARGE),
            ],
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (1, line)


REFUSED = """
import resource, sys
from kmem.commands import start
from kmem.lab import lists
{}
sys.argv = ["kmem", "lab", "lists"]
sys.exit(start.start())
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        # There are no descriptors to start a program with.
        ("resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))", "Too many open files"),
        ("lists.show_lists = lambda *_: bytearray(1 << 62)", "Cannot allocate memory"),
    ],
)
def test_what_the_system_refuses_is_no_error_of_the_output(what: str, said: str) -> None:
    code = REFUSED.format(what)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"kmem: {said}\n")


def test_a_folder_that_was_removed_is_said(tmp_path: Path) -> None:
    """The system's error of it names no file."""
    words = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" export x --out y.csv'
    done = subprocess.run(
        ["sh", "-c", words, KMEM], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "kmem: the current folder was removed; expected one that exists"
    )


def test_a_line_that_cannot_be_written_keeps_the_status() -> None:
    with Path("/dev/full").open("wb") as full:
        for arguments, status in ((["nope"], 2), (["info", "1"], 1)):
            command = [ROOT / "kmem", *arguments]
            assert subprocess.run(command, stderr=full, check=False).returncode == status


def test_a_reader_that_goes_away_is_no_error() -> None:
    for arguments in ("--help", "ps", "lab order --table-only", "run --help"):
        done = subprocess.run(
            ["/bin/bash", "-c", f'"$0" {arguments} | true', KMEM],
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        assert done.stderr == b""


def test_a_result_does_not_get_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    done = subprocess.run(
        ["/bin/bash", "-c", '"$0" lab order --table-only --json "$1" >&- 2>&-', KMEM, file],
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert json.loads(file.read_text())


def test_a_result_and_what_is_printed_go_to_one_file(tmp_path: Path) -> None:
    """The file may have had a text before, and has the result, and then the table."""
    for stream, to in (("out", ">"), ("out", ">>"), ("err", '2>>"$1" >>')):
        file = tmp_path / "output.txt"
        file.write_text("before\n")
        command = f'"$0" lab order --table-only --json /dev/std{stream} {to}"$1"'
        done = subprocess.run(["/bin/bash", "-c", command, KMEM, file], timeout=60, check=False)
        assert done.returncode == 0
        text = file.read_text()
        if to != ">":
            assert text.startswith("before\n")
            text = text.removeprefix("before\n")
        document, end = json.JSONDecoder().raw_decode(text)
        assert len(document["rows"]) == 12
        assert "12 of 12 rows exact" in text[end:]


@contextmanager
def files_of_at_most(count: int) -> Iterator[None]:
    """Bytes, as on a disk that is full then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_result_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    old.write_text("old")
    old.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(old)
    for file in (new, old):
        with files_of_at_most(1000), pytest.raises(KmemError, match=f"--json {file}: File too"):
            write_json(file, {"text": "x" * 2000})
    assert sorted(tmp_path.iterdir()) == [link, old]
    assert old.read_text() == "old"
    for file in (new, old, link):
        write_json(file, {"text": str(file)})
        assert json.loads(file.read_text()) == {"text": str(file)}
    assert sorted(tmp_path.iterdir()) == [link, new, old]
    assert link.is_symlink()
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    write_json(Path("/dev/null"), {})
    with pytest.raises(KmemError, match="--json /dev/full: No space left on device"):
        write_json(Path("/dev/full"), {})


def test_a_result_cannot_be_led_elsewhere(tmp_path: Path) -> None:
    """By a link in a folder that others write to: nobody can make one where it is being written."""
    with whole(tmp_path / "result.json") as place:
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        taken = {each.name for each in tmp_path.iterdir()}
        with whole(tmp_path / "result.json") as another:
            assert another.parent.name not in taken
            another.write_text("one")
        place.write_text("two")
    assert (tmp_path / "result.json").read_text() == "two"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["result.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_roots_result_in_place_of_anothers_is_the_others(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("old")
    os.chown(old, 65534, 65534)
    write_json(old, {})
    assert (old.stat().st_uid, old.stat().st_gid, old.read_text()) == (65534, 65534, "{}\n")


def test_a_device_that_takes_no_trace_stays(tmp_path: Path) -> None:
    device = tmp_path / "full"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        device.open("wb").close()
    except PermissionError:
        pytest.skip("this user cannot make devices")
    done = kmem("record", "program", "--out", device, "--", "true")
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert device.exists()


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    program = os.fsencode(tmp_path) + b"/\xff\xfe"
    shutil.copy("/bin/true", program)
    out = tmp_path / "out.ktrace"
    done = subprocess.run(
        [ROOT / "kmem", "record", "program", "--out", out, "--", program],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert out.exists()
    done = subprocess.run(
        [ROOT / "kmem", "replay", program + b"x"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)


def test_version() -> None:
    assert kmem("--version").stdout == f"kmem {VERSION}\n"


def test_unknown_command() -> None:
    result = kmem("no-such-command")
    assert result.returncode == 2
    assert "no-such-command" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--nope"], "no such option: --nope (kmem --help says what there is)"),
        (["lab", "nope"], "lab: no such command 'nope' (kmem lab --help says what there is)"),
        (["ps", "--nope"], "ps: no such option: --nope (kmem ps --help says what there is)"),
        (
            ["record", "program", "--nope", "true"],
            "record program: no such option: --nope (kmem record program --help says",
        ),
        (
            ["record", "kernel", "--nope", "--", "true"],
            "record kernel: no such option: --nope (kmem record kernel --help says",
        ),
        (["ps", "a\nb"], "ps: got unexpected extra argument(s) (a"),
        (["info"], "info: missing argument 'PID' (kmem info --help says what there is)"),
        (["info", "1x"], "info: PID '1x': expected a whole number"),
        (["info", "a\nb"], "info: PID 'a\\nb': expected a whole number"),
        (["info", "a\udcff\udcfeb"], r"info: PID 'a\xff\xfeb': expected text in UTF-8"),
        (["tune", "x", "--resident", "0"], "tune: --resident '0': expected 1 to 18446744073709551"),
        (["info", "0"], "info: PID '0': expected at least 1"),
        (["lab", "order", "--size"], "lab order: option '--size' requires an argument (kmem lab"),
        (["bench", "micro", "--rounds", "1"], "bench micro: --rounds '1': expected at least 30"),
        (["bench", "suite", "--seed", str(1 << 64)], f"bench suite: --seed '{1 << 64}': expected"),
        (["bench", "watch", "--seed", str(1 << 64)], f"bench watch: --seed '{1 << 64}': expected"),
        (["bench", "suite", "--bound", "x"], "bench suite: --bound 'x': expected a number"),
        (
            ["profile", "1", "-o", "x.svg", "--slices", "51"],
            "profile: --slices '51': expected 0 to 50",
        ),
        (
            ["tune", "x", "--goal", "a"],
            "tune: --goal 'a': expected one of 'time', 'memory', 'both'",
        ),
        (
            ["replay", "x", "--engine", "slob", "--set", "stats=1,engine=slab"],
            "replay: --engine slob and --set engine= exclude each other",
        ),
        (
            ["tune", "x", "--engine", "slub", "--set", "engine=slab"],
            "tune: --engine slub and --set engine= exclude each other",
        ),
        (["replay", ""], "replay: TRACE '': expected a name"),
        (["tune", "x", ""], "tune: TRACE '': expected a name"),
        (["lab", "freeze", "--json", ""], "lab freeze: --json '': expected a name"),
        (["lab", "workloads", "--traces", ""], "lab workloads: --traces '': expected a name"),
        (["profile", "1", "-o", ""], "profile: -o '': expected a name"),
        (["bench", "bulk", "--engine", ""], "bench bulk: --engine '': expected one of 'slub',"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments: list[str], line: str) -> None:
    done = kmem(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"kmem: {line}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["lab"], ["bench"], ["record"]])
def test_without_a_command_there_is_help(arguments: list[str]) -> None:
    done = kmem(*arguments)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.strip() == kmem(*arguments, "--help").stdout.strip()


def test_ctrl_c_ends_quietly() -> None:
    with subprocess.Popen(
        [KMEM, "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as serving:
        assert serving.stdout and serving.stderr
        assert serving.stdout.readline()
        serving.send_signal(signal.SIGINT)
        assert serving.stderr.read() == b""
        assert serving.wait(60) == 0
    with subprocess.Popen(
        [KMEM, "lab", "workloads"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as working:
        assert working.stderr
        # Wherever it is then: while modules are loaded, or while a tool runs.
        with pytest.raises(subprocess.TimeoutExpired):
            working.wait(1)
        os.killpg(working.pid, signal.SIGINT)
        assert working.stderr.read() == b""
        assert working.wait(60) == 130


def command_line(process: int) -> str:
    """Nothing once it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children_of(process: int) -> list[int]:
    files = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


@pytest.mark.parametrize(
    "arguments",
    [
        # One tool that runs for minutes, and several in threads that wait for them.
        ("replay", TRACE, "--cpus", "64", "--repeat", "10000", "--memory", "2G"),
        ("lab", "cpu-partial"),
    ],
)
def test_a_command_that_is_ended_leaves_nothing_running(arguments: tuple[str | Path, ...]) -> None:
    with subprocess.Popen(
        [KMEM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as working:
        deadline = time.monotonic() + 60
        tools: list[int] = []
        while not tools and time.monotonic() < deadline:
            time.sleep(0.1)
            tools = [
                child for child in children_of(working.pid) if "build/tools" in command_line(child)
            ]
        assert tools
        working.terminate()
        assert working.wait(30) == 130
        assert working.stderr and working.stderr.read() == b""
        while any(map(command_line, tools)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(map(command_line, tools))


@pytest.mark.parametrize("table", ["micro", "bulk"])
def test_too_few_rounds_are_refused(table: str) -> None:
    result = kmem("bench", table, "--rounds", "3")
    assert result.returncode == 2
    assert "30" in result.stderr


@pytest.mark.parametrize("table", ["micro", "bulk"])
def test_result_file_that_cannot_be_written_is_said_first(table: str) -> None:
    result = kmem("bench", table, "--json", "/no/such/folder/file")
    assert result.returncode != 0
    assert "/no/such/folder" in result.stderr
    assert "Traceback" not in result.stderr


def test_names_that_the_system_refuses_are_said() -> None:
    name = "x" * 300
    for arguments in (["lab", "order", "--json", name], ["lab", "slob", name]):
        result = kmem(*arguments)
        assert (result.returncode, result.stdout) == (1, "")
        assert name in result.stderr and "File name too long" in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_a_loop_of_links_is_said(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    result = kmem("lab", "slob", str(loop), "--json", str(tmp_path / "figures"))
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert str(loop) in line and "Too many levels of symbolic links" in line


def test_a_read_only_file_system_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert why_not_written(tmp_path / "file") == os.strerror(errno.EACCES)
    status = SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda _: status)
    assert why_not_written(tmp_path / "file") == os.strerror(errno.EROFS)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_folder_that_may_not_be_searched_is_said() -> None:
    with tempfile.TemporaryDirectory() as folder:  # mode 0700
        os.setresuid(65534, 65534, 0)
        try:
            assert why_not_written(Path(folder) / "file") == os.strerror(errno.EACCES)
            assert why_not_written(Path(folder) / "folder" / "file") is not None
        finally:
            os.setresuid(0, 0, 0)


def test_worker_answers_round_by_round() -> None:
    done = subprocess.run([MICRO], input="\n\n", capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("hz ")
    assert lines.count("done") == 2
    first = lines[1 : lines.index("done")]
    names = [line.split()[0] for line in first]
    for size in (16, 64, 256, 1024):
        for test in ("malloc_pair", "malloc_pair_empty", "malloc_burst", "malloc_remote"):
            assert f"{test}/{size}" in names
    assert all(float(line.split()[1]) > 0 for line in first)


def micro_of_nothing(
    monkeypatch: pytest.MonkeyPatch, rounds: int, file: Path, runs: Callable[[int], object]
) -> None:
    """`bench micro` without peers, whose single figure nobody measured."""
    monkeypatch.setattr(micro, "build", lambda: None)
    monkeypatch.setattr(micro.peers, "find", lambda *_: ([], {}))

    def measured(_: object, rounds: int) -> dict[str, dict[str, Series]]:
        runs(rounds)
        return {"libkmem": {"malloc_pair/64": Series(1e9, [20.0, 30.0, 40.0])}}

    monkeypatch.setattr(micro, "measure_in_places", measured)
    micro.bench_micro("glibc", rounds, file)


def test_full_disk_does_not_take_the_figures_of_micro(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KmemError, match="--json /dev/full: No space left on device"):
        micro_of_nothing(monkeypatch, 30, Path("/dev/full"), lambda _: None)
    assert "30.0 (20.0)" in capsys.readouterr().out


def test_micro_tells_its_rounds_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Places have equal numbers of rounds, so 31 are 36 in six places."""
    file, each = tmp_path / "micro.json", list[int]()
    monkeypatch.setenv("KMEM_OPTIONS", "registry=off")
    micro_of_nothing(monkeypatch, 31, file, each.append)
    assert json.loads(file.read_text())["options"] == "registry=off"
    assert json.loads(file.read_text())["rounds"] == each[0] * micro.PLACES == 36
    printed = capsys.readouterr().out
    assert "of 36 rounds" in printed and "KMEM_OPTIONS=registry=off held for" in printed


@pytest.mark.full
def test_bench_micro_writes_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "micro.json"
    installed = "glibc,mimalloc,jemalloc,tcmalloc"
    result = kmem("bench", "micro", "--peers", installed, "--rounds", "30", "--json", file)
    assert result.returncode == 0, result.stderr
    document = json.loads(file.read_text())
    assert document["rounds"] == 30
    figures = {(row["name"], row["allocator"]): row for row in document["results"]}
    for size in (16, 64, 256, 1024):
        for allocator in {"libkmem", "glibc", "mimalloc", "jemalloc", "tcmalloc"} - set(
            document["missing"]
        ):
            for test in ("malloc_pair", "malloc_pair_empty", "malloc_burst", "malloc_remote"):
                row = figures[f"{test}/{size}", allocator]
                assert 0 < row["cycles_min"] <= row["cycles"]
                assert 0 < row["ns_min"] <= row["ns"]
        for test in ("kmem_cache_pair", "kmem_cache_remote", "kmalloc_pair"):
            assert figures[f"{test}/{size}", "libkmem"]["cycles"] > 0
            assert (f"{test}/{size}", "glibc") not in figures
    if platform.machine() == "x86_64":
        assert figures["kmem_view_pair/64", "libkmem"]["cycles"] > 0
    for name in ("malloc_pair/64", "kmem_cache_pair/64", "kmem_cache_remote/64"):
        assert f"{name} of libkmem / " in result.stdout


@pytest.mark.parametrize("engine", ["slob", "SLUB", "", "no-such-engine"])
def test_bulk_refuses_other_engines(engine: str) -> None:
    result = kmem("bench", "bulk", "--engine", engine)
    assert result.returncode == 2
    assert f"'{engine}'" in result.stderr
    assert "slub" in result.stderr
    assert "slab" in result.stderr
    assert "Traceback" not in result.stderr


def cells(output: str, first: str) -> list[list[str]]:
    """The rows of printed tables that begin with a word."""
    rows = [line.split() for line in output.splitlines()]
    return [row for row in rows if row and row[0] == first]


@pytest.mark.parametrize("engine", ["slub", "slab"])
def test_bench_bulk_writes_and_prints_every_figure(tmp_path: Path, engine: str) -> None:
    file = tmp_path / "bulk.json"
    result = kmem("bench", "bulk", "--rounds", "30", "--engine", engine, "--json", file)
    assert result.returncode == 0, result.stderr
    document = json.loads(file.read_text())
    assert document["engine"] == engine
    assert document["rounds"] == 30
    for setting in ("results", "groups", "classic"):
        rows = document[setting]
        assert [row["bulk"] for row in rows] == BULKS
        for row in rows:
            for way in WAYS:
                assert 0 < row[f"{way}_min"] <= row[way]
                assert row[f"{way}_ns"] > 0
        assert document["fast_path"][setting]["cycles"] > 0
    assert document["options"]["classic"] == f"engine={engine},sheaf_capacity=0"
    assert document["code_bytes"]["kmem_cache_free_bulk"] > 0
    assert document["code_bytes"]["kmem_cache_alloc_bulk"] > 0

    assert "…" not in result.stdout  # no figure was cut off
    # Cycles and ns: our three ways, the mail's block of this engine, its block of the other.
    rows = cells(result.stdout, "250")
    assert [len(row) for row in rows] == [1 + 3 * 3 * 2] * 3
    for row, setting in zip(rows, ("results", "groups", "classic"), strict=True):
        # Both are rounded, the file's figure to hundredths first.
        assert float(row[1]) == pytest.approx(document[setting][-1]["fallback"], abs=0.0501)
    plain = {
        "slub": ["107", "26.9", "38", "9.5", "38", "9.5"],
        "slab": ["91", "22.8", "16", "4.2", "23", "6.0"],
    }
    groups = {
        "slub": ["130", "32.6", "38", "9.6", "38", "9.5"],
        "slab": ["138", "34.8", "24", "6.1", "23", "6.0"],
    }
    other = "slab" if engine == "slub" else "slub"
    assert rows[0][7:] == plain[engine] + plain[other]
    assert rows[1][7:] == groups[engine] + groups[other]
    assert rows[2][7:] == plain[engine] + plain[other]
    pairs = {"slub": ["46", "11.7", "71", "17.9"], "slab": ["87", "21.8", "130", "32.7"]}
    for row, at in zip(cells(result.stdout, "pair"), (0, 2, 0), strict=True):
        assert row[3:] == pairs[engine][at : at + 2] + pairs[other][at : at + 2]
    sizes = [row[1:] for row in cells(result.stdout, "mail") if "kmem_cache_free_bulk" in row]
    assert sizes == [
        ["SLAB", "kmem_cache_free_bulk", "660", "734", "+74"],
        ["SLUB", "kmem_cache_free_bulk", "717", "799", "+82"],
    ]


def test_bench_bulk_names_the_options_it_inherits() -> None:
    environment = {"KMEM_OPTIONS": "engine=slob,slots=locked"}
    result = kmem("bench", "bulk", "--rounds", "30", environment=environment)
    assert result.returncode == 0, result.stderr
    assert "KMEM_OPTIONS=engine=slob,slots=locked" in result.stdout


@pytest.mark.parametrize("arguments", [[], ["groups"]])
def test_bulk_worker_answers_round_by_round(arguments: list[str]) -> None:
    done = subprocess.run(
        [BULK, *arguments], input="\n\n", capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("hz ")
    assert lines.count("done") == 2
    names = {line.split()[0] for line in lines[1 : lines.index("done")]}
    assert names == {"fast_path"} | {f"{way}/{bulk}" for way in WAYS for bulk in BULKS}


def test_bulk_worker_counts_its_objects_in_a_group() -> None:
    """With `groups` the objects of the rounds are charged, without they are not."""
    charged = {}
    for name, arguments in (("plain", []), ("groups", ["groups"])):
        done = subprocess.run(
            [BULK, *arguments],
            env=os.environ | {"KMEM_OPTIONS": "slabinfo=-"},
            input="\n",
            capture_output=True,
            text=True,
            check=True,
        )
        peak = re.search(r"# group bulk: .* peak (\d+),", done.stderr)
        charged[name] = int(peak.group(1)) if peak else None
    assert charged["plain"] is None
    # The largest bulk, each object with its room and a pointer.
    assert charged["groups"] == 250 * (256 + 8)


def test_timed_reports_times_peak_and_faults(tmp_path: Path) -> None:
    file = tmp_path / "result"
    script = "import time; block = bytearray(50_000_000); time.sleep(0.2); raise SystemExit(7)"
    # A shell between, so that the memory is a descendant's.
    command = f"/usr/bin/python3 -c '{script}'; exit $?"
    done = subprocess.run([TIMED, file, "/bin/sh", "-c", command], check=False)
    wall_ns, cpu_ns, peak_kib, minor_faults, _, kib_ms = map(int, file.read_text().split())
    assert done.returncode == 7
    # Of the 200 ms at least the first samples; of the rest nothing is known on a busy machine.
    assert 50_000_000 // 1024 * 50 < kib_ms < 2 * peak_kib * wall_ns // 1_000_000
    assert wall_ns >= 200_000_000
    assert 0 < cpu_ns < wall_ns
    assert peak_kib >= 50_000_000 // 1024
    assert minor_faults >= 50_000_000 // (2 << 20)  # huge pages at most


def test_timed_preloads_into_the_program_only(tmp_path: Path) -> None:
    library = "/lib/x86_64-linux-gnu/libc.so.6"
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run(
        [TIMED, "-p", library, tmp_path / "result", "/bin/sh", "-c", "echo $LD_PRELOAD"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == library


ENDLESS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
WATCHING = f"""
import time
from kmem.bench.watched import watched
with watched("x", [{sys.executable!r}, "-c", {ENDLESS!r}], 0) as (process, _):
    print(process.pid, flush=True)
    time.sleep(600)
"""
TIMING = f"""
from pathlib import Path
from kmem.bench.allocators import LIBKMEM
from kmem.bench.timed import started
with started(Path("."), [{sys.executable!r}, "-c", {ENDLESS!r}], LIBKMEM) as timed:
    print(timed.process.stdout.readline(), flush=True)
    timed.wait()
"""


@pytest.mark.parametrize("command", [WATCHING, TIMING], ids=["watched", "timed"])
def test_what_is_measured_ends_with_a_command_that_is_killed(command: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", command], stdout=subprocess.PIPE, cwd=tmp_path
    ) as popen:
        assert popen.stdout is not None
        measured = Path("/proc") / popen.stdout.readline().strip().decode()
        there = measured.exists()
        popen.kill()
        popen.wait()
    assert there
    deadline = time.monotonic() + 30
    try:
        while measured.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(measured.name), signal.SIGKILL)


def test_timed_counts_a_signal_as_a_shell_does(tmp_path: Path) -> None:
    done = subprocess.run([TIMED, tmp_path / "r", "/bin/sh", "-c", "kill -KILL $$"], check=False)
    assert done.returncode == 128 + 9
