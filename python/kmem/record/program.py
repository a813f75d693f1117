# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem record`: traces of programs on libkmem, and of the kernel itself.

The library or the kernel writes raw events into a folder beside the trace; a program of
tools/record makes the trace of them, and the folder goes. It stays where no trace could be made, or
where the command was killed: `kmem record recover` makes the trace later, from a folder that no
command has locked.
"""

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kmem.common.errors import BadUsage, KmemError, say
from kmem.common.files import whole, why_not_written
from kmem.common.processes import is_mapped
from kmem.common.signals import end_as_by_ctrl_c
from kmem.common.tree import BUILD, ROOT, build, need_packages
from kmem.traces.slabinfo import SlabinfoError, parse_slabinfo

PROGRAM_TOOL = BUILD / "tools" / "record-program"
KERNEL_TOOL = BUILD / "tools" / "record-kernel"
PATH_MOST = 200  # bytes, of the raw file, so that the option holds it
SOURCE_MOST = 65536  # bytes, of the text in a trace's header; an argument may have twice as many
SHOWN_MOST = 5
PREFIX = ".kmem-record-"  # of work folders
ABOUT = "about.json"  # in a work folder: what is said of the recording in its trace
SECONDS_MOST = 86400


def run_tool(tool: Path, *arguments: str | Path) -> dict[str, Any]:
    """The tool's document."""
    done = subprocess.run(
        [tool, *arguments],
        capture_output=True,
        text=True,
        errors="replace",  # names of programs are bytes
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.splitlines() or [f"{tool.name} ended with status {done.returncode}"]
        raise KmemError(lines[-1].removeprefix("kmem: "))
    return dict(json.loads(done.stdout or "{}"))


class Nothing(KmemError):
    """Why there is nothing of which a trace could be made."""


class Unmade(KmemError):
    """Why there is no trace of what was recorded."""


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Whether the folder is ours alone; the lock ends with the command, however that ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        ours = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            ours = False
        yield ours
    finally:
        os.close(descriptor)


@contextmanager
def removed_after(folder: Path) -> Iterator[None]:
    """The folder goes at the end, but not with a recording of which there is no trace."""
    try:
        yield
    except Unmade as error:
        words = shlex.join(["kmem", "record", "recover", str(folder)])
        raise KmemError(f"{error}; what was recorded is kept: {words} --out FILE") from None
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def work_folder(out: Path, about: dict[str, Any]) -> Iterator[Path]:
    """Beside the trace, so that raw events are on the disk that the user chose."""
    tell_of_others(out)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=out.resolve().parent))
        with locked(folder), removed_after(folder):
            write_about(folder, out, about)
            yield folder
    except OSError as error:
        if error.filename is None:  # a program that could not be started, for want of memory
            raise
        raise KmemError(f"record: {out}: {error.strerror}; expected a place to write to") from None


def write_about(folder: Path, out: Path, about: dict[str, Any]) -> None:
    try:
        (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    except OSError as error:
        raise KmemError(f"record: {out}: {error.strerror}; expected room for events") from None


def tell_of_others(out: Path) -> None:
    """Of recordings beside it that nobody makes a trace of."""
    for folder in sorted(out.resolve().parent.glob(f"{PREFIX}*")):
        with suppress(OSError), locked(folder) as ours:
            if ours and has_events(folder):
                words = shlex.join(["kmem", "record", "recover", str(folder)])
                say(f"an earlier recording has no trace yet: {words} --out FILE makes one")


def has_events(folder: Path) -> bool:
    return (folder / "raw").exists() or (folder / "cpu0").exists()


@contextmanager
def making_a_trace() -> Iterator[None]:
    try:
        yield
    except Nothing:
        raise
    except KmemError as error:
        raise Unmade(str(error)) from None
    except OSError as error:
        raise Unmade(f"record: {error.filename or 'the trace'}: {error.strerror}") from None


def check_out(out: Path) -> None:
    if reason := why_not_written(out):
        raise KmemError(f"record: --out {out}: {reason}; expected a file to write")


def given_environment() -> dict[bytes, bytes]:
    """As the user has it: in the C locale Python has set LC_CTYPE for itself and what it starts."""
    variables = dict(os.environb)
    variables.pop(b"LC_CTYPE", None)
    for entry in Path("/proc/self/environ").read_bytes().split(b"\0"):
        name, _, text = entry.partition(b"=")
        if name == b"LC_CTYPE":
            variables[name] = text
    return variables


def run_with_its_signals(arguments: Sequence[str | Path]) -> int:
    """Ctrl-C reaches the program too, others are passed on; what it did until then is recorded."""
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # while the program was started

    def pass_on(number: int, _: object) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    given = signal.signal(signal.SIGINT, signal.SIG_IGN)
    before = {signal.SIGINT: given}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, pass_on)

    def reset_interrupt() -> None:
        # As in the background of a shell: what was ignored is so in the program.
        if given != signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    try:
        child = subprocess.Popen(arguments, env=given_environment(), preexec_fn=reset_interrupt)
        for earlier in early:
            child.send_signal(earlier)
        return child.wait()
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def shown(counts: dict[str, Any]) -> str:
    return (
        f"{counts['allocations']:,} allocations, {counts['frees']:,} frees,"
        f" {counts['living']:,} blocks of {counts['living_bytes']:,} bytes live at the end"
    )


def unmatched(counts: dict[str, Any]) -> str:
    """What a recording of a program has only where it lost events."""
    if not counts["orphans"] and not counts["implied"]:
        return ""
    return f"; {counts['orphans']:,} frees without allocation, {counts['implied']:,} missing frees"


def source_of(what: str, command: Sequence[str]) -> str:
    """What is said in the trace of where it comes from."""
    return os.fsdecode(os.fsencode(f"kmem record {what}{shlex.join(command)}")[:SOURCE_MOST])


def name_of(out: Path, process: dict[str, Any]) -> Path:
    return out.with_name(f"{out.stem}.{process['number']}-{process['pid']}{out.suffix}")


def write_trace(raw: Path, number: int, target: Path, source: str) -> dict[str, Any]:
    """The trace of a process, put in its place once it is whole; its counts."""
    with whole(target) as place:
        try:
            return run_tool(PROGRAM_TOOL, raw, str(number), place, source)
        except KmemError as error:
            raise KmemError(str(error).replace(str(place), str(target))) from None


def write_traces(raw: Path, out: Path, command: Sequence[str], *, every: bool) -> None:
    if not raw.exists() or raw.stat().st_size == 0:
        raise Nothing(
            f"record: {command[0]} recorded nothing: it did not load the library (a static or"
            " set-user-id program?), or could not write"
        )
    found = run_tool(PROGRAM_TOOL, raw)
    processes = sorted(found["processes"], key=lambda process: -process["events"])
    if not processes:
        raise Nothing(f"record: {command[0]} recorded nothing")
    for place, process in enumerate(processes if every else processes[:1]):
        target = name_of(out, process) if place else out
        source = source_of(f"program: {process['name']} ({process['pid']}) of: ", command)
        counts = write_trace(raw, process["number"], target, source)
        say(f"{target}: {process['name']} ({process['pid']}): {shown(counts)}{unmatched(counts)}")
    others = processes[1:]
    if others and not every:
        most = ", ".join(
            f"{process['name']} ({process['pid']}, {process['events']:,} events)"
            for process in others[:SHOWN_MOST]
        )
        more = " and more" if len(others) > SHOWN_MOST else ""
        say(f"not written, --all would: {most}{more}")
    if found["missing"]:
        reason = os.strerror(found["ended"]) if found["ended"] else "threads were killed meanwhile"
        say(f"{found['missing']:,} events were lost: {reason}")


def record_program(
    command: Sequence[str], out: Path, options: Sequence[str], *, every: bool
) -> int:
    """The program's exit status, as a shell has it."""
    end_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    build()
    if not PROGRAM_TOOL.exists():
        raise KmemError("record: traces need libzstd; install libzstd-dev and run make build")
    check_out(out)
    with work_folder(out, {"command": list(command)}) as folder:
        raw = folder / "raw"
        # What ends an option ends the name.
        if set(",\n") & set(str(raw)) or len(os.fsencode(raw)) > PATH_MOST:
            raise BadUsage(
                f"record: {str(out)!r}: expected a path without commas and line ends, of at most"
                f" {PATH_MOST - 32} bytes"
            )
        # Of equal options the last counts: no other file gets the events.
        chosen = [argument for text in (*options, f"record={raw}") for argument in ("--set", text)]
        status = run_with_its_signals([ROOT / "kmem", "run", *chosen, "--", *command])
        if status in (125, 126, 127) and not raw.exists():
            return status
        with making_a_trace():
            write_traces(raw, out, command, every=every)
    return 128 - status if status < 0 else status


# ---- What is left of a recording ----------------------------------------------------------------


def recorders_of(raw: Path) -> list[int]:
    """Processes that have the file mapped: they go on recording after the command was killed."""
    status = raw.stat()
    there = (int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
    return [process for process in there if is_mapped(process, status)]


def read_about(folder: Path) -> dict[str, Any]:
    """What the command wrote before it began; a disk that was full then has none of it."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        about = None
    return about if isinstance(about, dict) else {}


def recover(folder: Path, out: Path, *, every: bool) -> None:
    """The trace of a recording whose command was killed, or could not write it."""
    if not folder.is_dir() or not has_events(folder):
        raise BadUsage(f"record recover: {folder}: expected a folder {PREFIX}* of a recording")
    build()
    check_out(out)
    with locked(folder) as ours:
        if not ours:
            raise KmemError(f"record recover: {folder}: a recording into it goes on")
        about = read_about(folder)
        if (folder / "raw").exists():
            recover_program(folder, out, about, every=every)
        else:
            recover_kernel(folder, out, about)
        shutil.rmtree(folder, ignore_errors=True)


def recover_program(folder: Path, out: Path, about: dict[str, Any], *, every: bool) -> None:
    raw = folder / "raw"
    if recorders := recorders_of(raw):
        raise KmemError(
            f"record recover: {folder}: process {recorders[0]} goes on recording into it; expected"
            " its end"
        )
    words = about.get("command")
    command = [str(word) for word in words] if isinstance(words, list) and words else ["?"]
    write_traces(raw, out, command, every=every)


# ---- The kernel ---------------------------------------------------------------------------------


def table_growth(folder: Path) -> int | None:
    """Objects that the kernel's own table has more afterwards; None where it has no table."""
    try:
        before, after = (
            sum(cache.active_objects for cache in parse_slabinfo((folder / name).read_text()))
            for name in ("slabinfo.before", "slabinfo.after")
        )
    except (OSError, SlabinfoError):
        return None
    return after - before


def unpaired(counts: dict[str, Any], growth: int | None) -> str:
    """What bulk calls, which have no tracepoint, did to the trace.

    An object freed in bulk ends where its address is handed out again; those that never were stay.
    How many of these there are follows from what the kernel's table grew by: it has CPU slabs'
    free objects among its active ones, so this is an estimate.
    """
    frees = counts["frees"] + counts["implied"] + counts["orphans"]
    text = (
        f"{counts['implied']:,} frees in bulk paired by the address's next use,"
        f" {counts['orphans']:,} frees of objects older than the trace or got in bulk"
    )
    if growth is not None:
        rest = max(0, counts["living"] - counts["orphans"] - growth)
        share = 100 * rest / (frees + rest) if frees + rest else 0
        text += f"; about {rest:,} frees unpaired, {share:.1f}% of all (by the kernel's table)"
    return text


def kernel_tool() -> None:
    """Builds the tool, with the libraries that only it needs."""
    build()
    if KERNEL_TOOL.exists():
        return
    need_packages("pkg-config", "libtracefs-dev", "libtraceevent-dev")
    tools = ROOT / ".venv" / "bin"
    # Meson looks for the tree in the current directory, and for Ninja in PATH: one of another
    # version would have everything built anew.
    done = subprocess.run(
        [sys.executable, "-E", tools / "meson", "setup", "--reconfigure", BUILD],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{tools}:{os.environ.get('PATH', os.defpath)}"},
        capture_output=True,
        text=True,
        check=False,
    )
    build()
    if done.returncode != 0 or not KERNEL_TOOL.exists():
        raise KmemError("record kernel: needs libzstd, libtracefs and libtraceevent to be built")


def record_kernel(command: Sequence[str], seconds: float | None, out: Path, buffer_kib: int) -> int:
    """The command's exit status."""
    if bool(command) == (seconds is not None):
        raise BadUsage("record kernel: expected --seconds N or -- COMMAND, one of the two")
    if seconds is not None and not 0 < seconds <= SECONDS_MOST:
        raise BadUsage(
            f"record kernel: --seconds {seconds:g}: expected more than 0, at most {SECONDS_MOST}"
        )
    if os.geteuid() != 0:
        raise KmemError("record kernel: only root may read tracefs")
    end_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    check_out(out)
    kernel_tool()
    system = os.uname()
    what = "" if command else f"{seconds:g} s"
    source = source_of(
        f"kernel: {system.sysname} {system.release} {system.machine}: {what}", command
    )
    with work_folder(out, {"boot": boot_id(), "source": source}) as folder:
        counts = record_events(folder, out, [str(seconds or 0), str(buffer_kib), source, *command])
        lost = f"{counts['lost']:,} lost" if counts["lost"] else "none lost"
        say_of_kernel(out, counts, folder, lost)
    if counts["lost"]:
        say(f"a larger --buffer than {buffer_kib} KiB a CPU loses less")
    return int(counts["status"])


def record_events(folder: Path, out: Path, words: Sequence[str]) -> dict[str, Any]:
    """The trace; its counts."""
    with making_a_trace(), whole(out) as place:
        # The command's streams are its own, so the report is a file.
        status = run_with_its_signals([KERNEL_TOOL, place, folder, *words])
        if status != 0:  # it has said why
            if any(file.stat().st_size for file in folder.glob("cpu*")):
                raise Unmade(f"record: {out}: no trace was made")
            raise SystemExit(1)
        return dict(json.loads((folder / "report").read_text()))


def say_of_kernel(out: Path, counts: dict[str, Any], folder: Path, lost: str) -> None:
    say(f"{out}: {counts['events']:,} events in {counts['seconds']:.2f} s, {lost}")
    say(shown(counts))
    say(unpaired(counts, table_growth(folder)))


def boot_id() -> str:
    """Another after each start of the machine, and then the kernel's addresses are others too."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def recover_kernel(folder: Path, out: Path, about: dict[str, Any]) -> None:
    if os.geteuid() != 0:
        raise KmemError("record recover: only root may read tracefs")
    if about.get("boot") != boot_id():
        raise KmemError(
            f"record recover: {folder}: recorded before the machine was started, by a kernel whose"
            " addresses nobody knows any more"
        )
    kernel_tool()
    with whole(out) as place:
        run_tool(KERNEL_TOOL, "--recover", place, folder, str(about.get("source", "")))
        counts = json.loads((folder / "report").read_text())
        say_of_kernel(out, counts, folder, "what was lost is not known")
