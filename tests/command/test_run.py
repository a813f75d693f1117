# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem run`: the program starts as it would without, but for two variables."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kmem_command import KMEM, ROOT

OPTIONS = ROOT / "docs" / "options.md"
LIBRARY = ROOT / "build" / "src" / "libkmem-malloc.so"

Result = subprocess.CompletedProcess[bytes]


def kmem_run(*arguments: str | Path, **options) -> Result:
    environment = {k: v for k, v in os.environ.items() if k not in ("KMEM_OPTIONS", "LD_PRELOAD")}
    environment |= options.pop("env", {})
    return subprocess.run(
        [KMEM, "run", *arguments],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
        **options,
    )


def shell(script: str, *before: str, **options) -> Result:
    return kmem_run(*before, "--", "/bin/sh", "-c", script, **options)


def assert_error(result: Result, status: int, *words: str) -> None:
    """One line on standard error, nothing on standard output."""
    message = result.stderr.decode()
    assert result.returncode == status
    assert result.stdout == b""
    assert message.startswith("kmem: ")
    assert message.count("\n") == 1
    for word in words:
        assert word in message


@pytest.mark.parametrize("code", [0, 1, 3, 77, 255])
def test_exit_code_is_the_programs(code: int) -> None:
    result = shell(f"exit {code}")
    assert (result.returncode, result.stdout, result.stderr) == (code, b"", b"")


def test_death_by_signal_is_the_programs() -> None:
    assert shell("kill -TERM $$").returncode == -signal.SIGTERM


def test_streams_pass_through_unchanged() -> None:
    data = bytes(range(256)) * 1000
    result = shell("cat; echo problem >&2", input=data)
    assert result.stdout == data
    assert result.stderr == b"problem\n"


def test_no_process_stays_in_between() -> None:
    process = subprocess.Popen(
        [KMEM, "run", "/bin/sh", "-c", "echo $$ $PPID"], stdout=subprocess.PIPE, text=True
    )
    output, _ = process.communicate(timeout=60)
    assert output.split() == [str(process.pid), str(os.getpid())]


def test_signals_reach_the_program_itself() -> None:
    process = subprocess.Popen(
        [KMEM, "run", "/bin/sh", "-c", "trap 'exit 42' TERM; echo ready; while :; do :; done"],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.terminate()
    assert process.wait(timeout=60) == 42
    process.stdout.close()


@pytest.mark.parametrize("ignored", [False, True])
def test_signal_dispositions_are_inherited(ignored: bool) -> None:
    action = signal.SIG_IGN if ignored else signal.SIG_DFL

    def set_up() -> None:
        signal.signal(signal.SIGPIPE, action)
        signal.signal(signal.SIGINT, action)

    def ignored_mask(*command: str | Path) -> str:
        output = subprocess.run(
            [*command, "grep", "SigIgn", "/proc/self/status"],
            preexec_fn=set_up,
            restore_signals=False,
            capture_output=True,
            text=True,
            check=True,
        )
        return output.stdout

    assert ignored_mask(KMEM, "run") == ignored_mask("env")


def test_arguments_arrive_as_they_are() -> None:
    arguments = ["", " ", "a b", "*", "--set", "--", "-x", "$HOME", "\\", "'\"", "\n", "ü"]
    result = kmem_run("/usr/bin/printf", "%s\\0", *arguments)
    assert result.stdout.decode().split("\0")[:-1] == arguments


def test_options_of_the_program_are_not_ours() -> None:
    assert kmem_run("/bin/echo", "--help-me", "--set").stdout == b"--help-me --set\n"


def test_environment_is_kept_but_for_our_variables() -> None:
    odd = {"a.b": "c", "BASH_FUNC_f%%": "() { echo hi; }", "EMPTY": "", "BASH_ENV": "/nonexistent"}
    environment = {b"PATH": os.environb[b"PATH"], b"BYTES": b"\xff\xfe"}
    environment |= {key.encode(): value.encode() for key, value in odd.items()}
    result = subprocess.run(
        [KMEM, "run", "/usr/bin/env", "-0"], env=environment, capture_output=True, check=True
    )
    seen = dict(entry.split(b"=", 1) for entry in result.stdout.split(b"\0") if entry)
    assert seen.pop(b"LD_PRELOAD") == os.fsencode(LIBRARY)
    assert b"KMEM_OPTIONS" not in seen
    for added_by_shells in (b"PWD", b"SHLVL", b"OLDPWD", b"_"):
        seen.pop(added_by_shells, None)
    assert seen == environment


def test_start_up_file_of_bash_is_not_read(tmp_path: Path) -> None:
    start_up = tmp_path / "start-up"
    start_up.write_text("echo intruder\n")
    assert shell("echo hello", env={"BASH_ENV": str(start_up)}).stdout == b"hello\n"


def test_library_goes_before_others_preloaded() -> None:
    libc = "/lib/x86_64-linux-gnu/libc.so.6"
    result = shell('echo "$LD_PRELOAD"', env={"LD_PRELOAD": libc})
    assert result.stdout.decode().strip() == f"{LIBRARY}:{libc}"


def options_seen(*before: str | Path, **options) -> tuple[str, str]:
    """KMEM_OPTIONS and process id of the program."""
    result = kmem_run(*before, "--", "/bin/sh", "-c", 'echo "$KMEM_OPTIONS" $$', **options)
    value, _, pid = result.stdout.decode().strip().rpartition(" ")
    return value, pid


def test_set_is_appended_to_options() -> None:
    options = ["--set", "slots=auto", "--set=slab_merge=0"]
    environment = {"KMEM_OPTIONS": "bad_free=abort"}
    value, _ = options_seen(*options, env=environment)
    assert value == "bad_free=abort,slots=auto,slab_merge=0"


def test_slabinfo_names_this_process_only(tmp_path: Path) -> None:
    file = tmp_path / "table"
    value, pid = options_seen("--slabinfo", file)
    assert value == f"slabinfo={file},slabinfo_pid={pid}"


def test_slabinfo_file_becomes_absolute(tmp_path: Path) -> None:
    value, pid = options_seen("--slabinfo=table", cwd=tmp_path)
    assert value == f"slabinfo={tmp_path}/table,slabinfo_pid={pid}"


@pytest.mark.parametrize("folder", ["p,q", "p\nq"])
def test_slabinfo_in_a_folder_that_no_option_can_hold(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    result = kmem_run("--slabinfo", "table", "--", "true", cwd=tmp_path / folder)
    assert_error(result, 2, "--slabinfo", "table", "without commas and line ends")


def test_slabinfo_dash_is_standard_error() -> None:
    value, pid = options_seen("--slabinfo", "-")
    assert value == f"slabinfo=-,slabinfo_pid={pid}"


def test_slabinfo_on_a_full_disk_is_said() -> None:
    result = kmem_run("--slabinfo", "/dev/full", "--", sys.executable, "-c", "pass")
    assert_error(result, 0, "slabinfo: cannot write /dev/full: No space left on device (error 28)")


def test_slabinfo_beyond_a_limit_leaves_the_exit_code(tmp_path: Path) -> None:
    result = shell("ulimit -f 0; exit 3", "--slabinfo", str(tmp_path / "table"))
    assert_error(result, 3, "slabinfo: cannot write", "error 27")


FULL = """
import os, resource, sys
os.close(2)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
"""


@pytest.mark.parametrize(
    ("option", "limit"), [("--slabinfo", limit) for limit in (0, 1, 700)] + [("--attrs", 0)]
)
def test_what_could_not_be_written_whole_is_empty(tmp_path: Path, option: str, limit: int) -> None:
    """Where nobody can be told of it; and an old table does not pass for the new one."""
    out = tmp_path / "out"
    if option == "--slabinfo":
        out.write_text("old")
    result = kmem_run(option, out, "--", sys.executable, "-c", FULL, str(limit))
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert not (list(out.iterdir()) if out.is_dir() else out.read_text())
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_half_a_tree_is_none(tmp_path: Path, limit: int) -> None:
    out = tmp_path / "out"
    result = kmem_run("--attrs", out, "--", sys.executable, "-c", FULL, str(limit))
    assert result.returncode == 0
    assert not list(out.iterdir())


def test_slabinfo_of_a_program_that_was_killed_is_empty(tmp_path: Path) -> None:
    out = tmp_path / "table"
    out.write_text("old")
    assert shell("kill -KILL $$", "--slabinfo", str(out)).returncode == -9
    assert out.read_text() == ""


REUSES_DESCRIPTORS = """
import os
os.closerange(2, 300)
for number in range(200):
    os.open(f"file{number}", os.O_CREAT | os.O_RDWR)
"""


def test_slabinfo_dash_spares_files_of_the_program(tmp_path: Path) -> None:
    """Whatever has the descriptors of standard error by then."""
    program = (sys.executable, "-c", REUSES_DESCRIPTORS)
    result = kmem_run("--slabinfo", "-", "--", *program, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, b"")
    assert len(list(tmp_path.iterdir())) == 200
    assert not any(path.stat().st_size for path in tmp_path.iterdir())


def test_slabinfo_into_a_pipe(tmp_path: Path) -> None:
    """Nobody reads: said; somebody does: gets all of it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    arguments = ("--slabinfo", pipe, "--", sys.executable, "-c", "pass")
    assert_error(kmem_run(*arguments), 0, "slabinfo: cannot write", "error 6")
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        with pipe.open("wb"):  # once it reads
            assert kmem_run(*arguments).returncode == 0
        table, _ = reader.communicate(timeout=60)
    assert table.startswith(b"slabinfo - version: 2.1")
    assert b"# objects handed out: " in table


@pytest.mark.parametrize("end", ["_exit", "_Exit", "quick_exit"])
def test_slabinfo_without_destructors(tmp_path: Path, end: str) -> None:
    """The program's status stays, and what it has given at_quick_exit is called."""
    file = tmp_path / "table"
    script = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None)\n"
        "last = ctypes.CFUNCTYPE(None)(lambda: os.write(1, b'last'))\n"
        "libc.__cxa_at_quick_exit(last, None)\n"
        f"libc.{end}(7)\n"
    )
    result = kmem_run("--slabinfo", file, "--", sys.executable, "-c", script)
    output = b"last" if end == "quick_exit" else b""
    assert (result.returncode, result.stdout, result.stderr) == (7, output, b"")
    assert file.read_text().startswith("slabinfo - version: 2.1\n")


def test_slabinfo_with_pid_is_for_children_too(tmp_path: Path) -> None:
    value, _ = options_seen("--slabinfo", tmp_path / "table.%p")
    assert value == f"slabinfo={tmp_path}/table.%p"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["no program"]),
        (["--"], ["no program"]),
        (["--set", "slots=auto"], ["no program"]),
        (["--set"], ["--set", "value"]),
        (["--slabinfo"], ["--slabinfo", "value"]),
        (["--limit"], ["--limit", "value"]),
        (["--slabinfo", ""], ["--slabinfo"]),
        (["--slabinfo", "a,b", "true"], ["a,b", "comma"]),
        (["--no-such-option", "true"], ["--no-such-option", "--set"]),
        (["-x", "true"], ["-x"]),
    ],
)
def test_bad_command_line(arguments: list[str], words: list[str]) -> None:
    assert_error(kmem_run(*arguments), 2, *words)


def test_hardened_is_an_option_of_the_library() -> None:
    result = kmem_run("--hardened", "--set", "stats=1", "/usr/bin/env")
    assert b"KMEM_OPTIONS=protect=hardened,stats=1\n" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("slots=fast", "option slots=fast: expected one of: auto rseq locked"),
        ("purge_delay=soon", "option purge_delay=soon: expected a number from 0 to 3600000"),
        ("slots=fast,purge_delay=soon", "option slots=fast: expected one of: auto rseq locked"),
        ("kmalloc-64.debug=Q", "option kmalloc-64.debug=Q: expected letters of FZPUTAO, or - for"),
        ("stats", 'option "stats": expected name=value'),
        ("@/none/there", "KMEM_OPTIONS=@/none/there: cannot read this file: No such file"),
        ("@/", "KMEM_OPTIONS=@/: cannot read this file: Is a directory"),
        ("foo=1", 'unknown option "foo"; there are: kernel slots classes'),
        ("stats=1," * 600, "KMEM_OPTIONS: expected at most 4095 characters"),
    ],
)
@pytest.mark.parametrize("given", ["--set", "KMEM_OPTIONS"])
def test_wrong_option_keeps_the_program_from_starting(
    options: str, message: str, given: str, tmp_path: Path
) -> None:
    before = ["--set", options] if given == "--set" else []
    environment = {} if before else {"KMEM_OPTIONS": options}
    result = kmem_run(*before, "--", "touch", tmp_path / "started", env=environment)
    assert_error(result, 2, message)
    assert b"default stays" not in result.stderr
    assert not (tmp_path / "started").exists()


def test_option_of_a_file_keeps_the_program_from_starting(tmp_path: Path) -> None:
    file = tmp_path / "options"
    file.write_text("# a comment\nstats=1\nfreeze=late\n")
    assert_error(kmem_run("--set", f"@{file}", "true"), 2, "option freeze=late: expected one of")
    file.write_text("# a comment\nstats=1\n")
    assert kmem_run("--set", f"@{file}", "true").returncode == 0


def test_checked_options_have_no_effect_yet(tmp_path: Path) -> None:
    """Where the program is not found, nothing has written the files that options name."""
    options = f"slabinfo={tmp_path}/table,record={tmp_path}/raw"
    assert kmem_run("--set", options, "--", "/nonexistent").returncode == 127
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("size", "bytes_"),
    [("1", 1), ("64k", 65536), ("512M", 2**29), ("3G", 3 << 30), ("1T", 2**40), ("010m", 10 << 20)],
)
def test_limit_is_passed_on_in_bytes(size: str, bytes_: int) -> None:
    # A shell would need memory of its own; env prints without.
    result = kmem_run("--limit", size, "--set", "memory_limit=0", "/usr/bin/env")
    assert f"KMEM_OPTIONS=memory_limit={bytes_},memory_limit=0\n".encode() in result.stdout


@pytest.mark.parametrize(
    "size",
    [
        "",
        "0",
        "000k",
        "M",
        "-1",
        "1e3",
        "0x10",
        "1,slots=rseq",
        "1 M",
        "12MB",
        "9" * 19,
        "8388608T",
    ],
)
def test_bad_limit(size: str) -> None:
    assert_error(kmem_run("--limit", size, "true"), 2, "--limit", "expected")
    assert_error(kmem_run(f"--limit={size}", "true"), 2, "--limit", "expected")


FILL = """
held = []
try:
    while True:
        held.append(bytes(100_000))
except MemoryError:
    count = len(held)
    del held
print(count)
"""


def fill_under_limit(limit: str, **environment: str) -> tuple[int, dict[str, int]]:
    """Blocks that a Python program gets, and the figures of the process's group at its end."""
    environment |= {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        "--limit",
        limit,
        "--slabinfo",
        "-",
        "--",
        "/usr/bin/python3",
        "-I",
        "-S",
        "-c",
        FILL,
    ]
    result = kmem_run(*command, env=environment)
    assert result.returncode == 0
    match = re.search(
        rb"# group process: (\d+) bytes, (\d+) objects, peak (\d+), limit (\d+), refused (\d+), "
        rb"parent none\n",
        result.stderr,
    )
    assert match is not None
    names = ("bytes", "objects", "peak", "limit", "refused")
    return int(result.stdout), dict(zip(names, map(int, match.groups()), strict=True))


def test_limit_raises_memory_error_at_the_same_block() -> None:
    runs = [fill_under_limit("64M") for _ in range(3)]
    for count, group in runs:
        assert group["limit"] == 64 << 20
        # A block of 100,033 bytes is charged its class's 28 pages; the interpreter has a few more.
        assert group["limit"] - (2 << 20) < group["peak"] <= group["limit"]
        assert 565 <= count <= 585
        assert group["refused"] >= 1
        assert group["bytes"] < 4 << 20
    assert len({count for count, _ in runs}) == 1


def test_limit_holds_with_locked_slots_too() -> None:
    free, _ = fill_under_limit("64M")
    locked, _ = fill_under_limit("64M", KMEM_OPTIONS="slots=locked")
    assert free == locked


def test_limit_makes_operator_new_throw(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    source = tmp_path / "new.cpp"
    source.write_text(
        "#include <new>\n#include <cstdio>\n"
        "static void *held[100000];\n"
        "int main() { int n = 0; try { for (;;) held[n++] = ::operator new(1000); }\n"
        "catch (const std::bad_alloc &) { --n; }\n"
        "int got = n; while (n) ::operator delete(held[--n]);\n"
        'std::printf("%d %d\\n", got, ::operator new(1000, std::nothrow) != nullptr); }\n'
    )
    program = tmp_path / "new"
    subprocess.run([compiler, "-O1", "-o", program, source], check=True)
    results = {kmem_run("--limit", "8M", program).stdout for _ in range(3)}
    assert len(results) == 1
    count, again = map(int, results.pop().split())
    # A 1,000-byte object is charged 1,032; libstdc++ has an emergency pool of about 70 KiB.
    assert 8 * 2**20 // 1032 - 150 <= count <= 8 * 2**20 // 1032
    assert again == 1


@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program", "./no-such", ""])
def test_program_not_found(program: str) -> None:
    assert_error(kmem_run(program), 127, f"kmem: {program or repr('')}: not found")


def test_program_not_executable(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("text\n")
    assert_error(kmem_run(plain), 126, str(plain), "not executable")
    assert_error(kmem_run("plain", env={"PATH": str(tmp_path)}), 126, "not executable")
    assert_error(kmem_run(tmp_path), 126, "directory")


def executable(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("size", [0, 20, 100, 300])
def test_a_file_that_is_cut_off_is_no_program(size: int, tmp_path: Path) -> None:
    content = Path(sys.executable).resolve().read_bytes()[:size]
    program = executable(tmp_path / "program", content)
    reason = "is cut off; expected a whole program" if size else "is empty; expected a program"
    result = kmem_run("--", program)
    assert_error(result, 126, f"kmem: {program}: {reason}\n")
    # The command has one check of programs, whether it records them or not.
    trace = tmp_path / "trace"
    recorded = subprocess.run(
        [KMEM, "record", "program", "--out", trace, "--", program],
        capture_output=True,
        check=False,
    )
    assert (recorded.returncode, recorded.stderr) == (126, result.stderr)
    assert not trace.exists()


def test_a_pipe_is_no_program(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o755)
    pipe.chmod(0o755)
    assert_error(kmem_run(pipe), 126, f"{pipe}: is no regular file; expected a program\n")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["no\nsuch\x1b[31m"], 127, "no?such?[31m: not found"),
        (["--limit", "1\n2", "true"], 2, "run: --limit 1?2: expected bytes, with K, M, G or T"),
        (["--x\ny", "true"], 2, "run: no option --x?y (there are"),
    ],
)
def test_a_word_with_control_characters(words: list[str], status: int, message: str) -> None:
    """A message stays one line, and a terminal does not do what the word says."""
    assert_error(kmem_run(*words), status, f"kmem: {message}")


@pytest.mark.parametrize(
    ("first_line", "status", "message"),
    [
        (b"#!/nosuch/interp", 127, "no interpreter '/nosuch/interp'; expected one that exists"),
        (b"#! \t/nosuch/interp -x", 127, "no interpreter '/nosuch/interp'; expected one that"),
        (b"#!/bin/sh\r", 127, "no interpreter $'/bin/sh\\r'; expected one that exists"),
        (b"#!/tmp", 126, "interpreter '/tmp': is a directory"),
        (b"#!/etc/passwd", 126, "interpreter '/etc/passwd': not executable"),
    ],
)
def test_interpreter_that_cannot_be_run(
    first_line: bytes, status: int, message: str, tmp_path: Path
) -> None:
    script = executable(tmp_path / "script", first_line + b"\necho ran\n")
    assert_error(kmem_run(script), status, f"kmem: {script}: {message}")
    # A script may be the interpreter of another one.
    outer = executable(tmp_path / "outer", f"#!{script}\n".encode())
    assert_error(kmem_run(outer), status, f"kmem: {script}: {message}")


@pytest.mark.parametrize(
    "first_line", ["#! /bin/sh -e", "#!\t/bin/sh", "#!/usr/bin/env sh", "#!", "#! "]
)
def test_scripts_that_run(first_line: str, tmp_path: Path) -> None:
    script = executable(tmp_path / "script", f'{first_line}\necho "got $1"\n'.encode())
    result = kmem_run(script, "x")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"got x\n", b"")


def test_first_executable_in_path_wins(tmp_path: Path) -> None:
    for folder, mode in (("a", 0o644), ("b", 0o755)):
        (tmp_path / folder).mkdir()
        tool = tmp_path / folder / "tool"
        tool.write_text(f"#!/bin/sh\necho {folder}\n")
        tool.chmod(mode)
    path = f"{tmp_path}/a:{tmp_path}/b:{os.environ['PATH']}"
    assert kmem_run("tool", env={"PATH": path}).stdout == b"b\n"


@pytest.mark.parametrize("path", ["/usr/bin:", "/usr/bin::/bin", ":/usr/bin", ""])
def test_an_empty_name_in_path_is_the_current_directory(tmp_path: Path, path: str) -> None:
    (tmp_path / "tool").symlink_to("/bin/pwd")
    result = kmem_run("tool", env={"PATH": path}, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, f"{tmp_path}\n".encode())


def test_script_without_interpreter_runs_as_in_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "got $1"\n')
    script.chmod(0o755)
    assert kmem_run(script, "x").stdout == b"got x\n"


def test_missing_library_says_what_to_do(tmp_path: Path) -> None:
    missing = tmp_path / "missing.so"
    result = kmem_run("true", env={"KMEM_LIBRARY": str(missing)})
    assert_error(result, 125, str(missing), "make")


def test_library_path_that_cannot_be_preloaded(tmp_path: Path) -> None:
    library = tmp_path / "a b.so"
    library.touch()
    assert_error(kmem_run("true", env={"KMEM_LIBRARY": str(library)}), 125, "space")


def test_works_from_elsewhere_and_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "kmem"
    link.symlink_to(KMEM)
    done = subprocess.run(
        ["kmem", "run", "sh", "-c", "pwd; echo $LD_PRELOAD"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(tmp_path), str(LIBRARY)]


def test_start_up_starts_no_interpreter_of_ours(tmp_path: Path) -> None:
    """The launcher runs one helper at most (readlink), never Python."""
    traps = tmp_path / "bin"
    traps.mkdir()
    for name in ("python3", "python", "sh", "dpkg-query", "git", "make"):
        (traps / name).write_text("#!/bin/bash\necho trapped >&2\nexit 99\n")
        (traps / name).chmod(0o755)
    result = kmem_run("/bin/echo", "ok", env={"PATH": f"{traps}:{os.environ['PATH']}"})
    assert (result.returncode, result.stdout, result.stderr) == (0, b"ok\n", b"")


def test_module_hands_run_to_the_launcher_before_imports() -> None:
    """`python -m kmem run` must not import the command line library first."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "kmem", "run", "/bin/echo", "ok"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "ok\n"
    for heavy in ("typer", "rich", "click"):
        assert heavy not in done.stderr


def test_help() -> None:
    result = kmem_run("--help")
    assert result.returncode == 0
    assert b"--slabinfo" in result.stdout


def test_document_has_every_option() -> None:
    reported = shell("true", "--set", "colour=red").stderr.decode()
    names = reported.partition("there are: ")[2].partition("\n")[0].replace("[CACHE.]", "").split()
    rows = re.findall(r"^\| (`.*?) \|", OPTIONS.read_text(), re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(names) > 40
    assert set(names) - documented == set()


def test_comment_sign_keeps_the_limit() -> None:
    program = ("python3", "-c", "bytes(64 << 20)")
    options = {"KMEM_OPTIONS": "stats=1,#off,memory_limit=32M", "LD_PRELOAD": str(LIBRARY)}
    result = subprocess.run(
        program, env=os.environ | options, capture_output=True, timeout=60, check=False
    )
    assert b'option "#off": expected name=value' in result.stderr
    assert b"MemoryError" in result.stderr


def test_relative_paths_count_from_the_start(tmp_path: Path) -> None:
    """Also where a recording goes on, and reports come, after a change to another folder."""
    (tmp_path / "deeper").mkdir()
    program = (
        "import os; before = [bytearray(1000) for _ in range(9)]; os.chdir('deeper');"
        " [bytearray(1000) for _ in range(40000)]"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ
        | {"LD_PRELOAD": str(LIBRARY), "KMEM_OPTIONS": "slabinfo=table,attrs=tree,record=raw"},
        timeout=60,
        check=True,
    )
    assert not list((tmp_path / "deeper").iterdir())
    assert (tmp_path / "table").read_text().startswith("slabinfo - version: 2.1\n")
    assert list((tmp_path / "tree").iterdir())
    # Two chunks of 20 pages of 64 KiB are more than begin with the recording.
    assert (tmp_path / "raw").stat().st_size > 65536 + 2 * (20 << 16)


def test_too_few_open_files_are_said() -> None:
    """No place of the command is found then, and Python's version is not at fault."""
    result = subprocess.run(
        ["/bin/bash", "-c", 'ulimit -n 4 && exec "$0" ps', KMEM],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert "expected more open files (ulimit -n)" in result.stderr.splitlines()[-1]
    assert "Python" not in result.stderr
