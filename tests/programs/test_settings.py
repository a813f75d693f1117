# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Wrong options are reported once, with what exists, and the program starts all the same.

That is so for a program that LD_PRELOAD brought to the library; `kmem run` refuses them before.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from dropin import DEFAULT, LIBRARIES, DropIn, Finished, Setting, check_status, wait
from needs import require


def with_options(dropin: DropIn, options: str) -> Finished:
    library = dropin.preload or str(LIBRARIES / "libkmem-malloc.so")
    finished = replace(dropin, setting=DEFAULT, preload=library).attempt(
        ["env", f"KMEM_OPTIONS={options}", "/bin/echo", "started"]
    )
    assert (finished.status, finished.stdout) == (0, "started\n"), finished.describe()
    assert finished.stderr.splitlines() == finished.messages(), finished.describe()
    return finished


def lines_with(finished: Finished, word: str) -> list[str]:
    return [line for line in finished.messages() if word in line]


def test_unknown_name(dropin: DropIn) -> None:
    finished = with_options(dropin, "nonsense=1")
    assert len(lines_with(finished, "nonsense")) == 1, finished.describe()
    for existing in ("engine", "slots", "bad_free", "slabinfo"):
        assert existing in finished.stderr, finished.describe()


@pytest.mark.parametrize(
    ("option", "value", "existing"),
    [
        ("slots", "sideways", ("rseq", "locked")),
        ("bad_free", "perhaps", ("abort", "ignore", "libc")),
        ("engine", "slat", ("slub",)),
        ("sheaf_capacity", "many", ()),
        ("sheaf_capacity", "-1", ()),
        ("sheaf_capacity", "99999999999999999999999", ()),
        ("reserve", "12Q", ()),
    ],
)
def test_bad_value(dropin: DropIn, option: str, value: str, existing: tuple[str, ...]) -> None:
    finished = with_options(dropin, f"{option}={value}")
    assert len(lines_with(finished, value)) == 1, finished.describe()
    assert option in lines_with(finished, value)[0]
    for word in existing:
        assert word in finished.stderr, finished.describe()


@pytest.mark.parametrize("text", ["slots", "=1", "slots=", "=", "kmalloc-64.=1", ".slots=locked"])
def test_malformed(dropin: DropIn, text: str) -> None:
    assert with_options(dropin, text).messages(), f"{text!r} was taken without a word"


@pytest.mark.parametrize("text", [",", ",,", "slots=locked,", ",slots=locked"])
def test_empty_parts_are_no_error(dropin: DropIn, text: str) -> None:
    assert with_options(dropin, text).messages() == []


def test_each_wrong_option_has_its_line(dropin: DropIn) -> None:
    finished = with_options(dropin, "nonsense=1,slots=sideways,slots=locked,balderdash=2")
    for word in ("nonsense", "sideways", "balderdash"):
        assert len(lines_with(finished, word)) == 1, finished.describe()


def test_very_long_options(dropin: DropIn) -> None:
    long = "x" * 5000
    finished = with_options(dropin, f"{long}=1,slots=locked")
    assert finished.messages()


def test_right_options_around_a_wrong_one_count(dropin: DropIn, tmp_path: Path) -> None:
    file = tmp_path / "named-in-options"
    with_options(dropin, f"nonsense=1,slabinfo={file},balderdash=2")
    assert file.read_text().startswith("slabinfo - version: 2.1\n")


def test_the_program_replaces_the_command(dropin: DropIn) -> None:
    """No process of ours stays in between: the program is the process that we started."""
    process, _ = dropin.launch(["/bin/bash", "-c", "echo $$"])
    finished = wait(process)
    check_status(finished)
    assert finished.stdout.strip() == str(process.pid)


OUTLIVES_ITS_PARENT = """
import os, time
deadline = time.monotonic() + 60
while os.getppid() == int(os.environ["PARENT"]) and time.monotonic() < deadline:
    time.sleep(0.01)
"""


def test_table_is_of_the_program_only(dropin: DropIn) -> None:
    """A file without %p is not overwritten by a child that ends later than the program."""
    require("python")
    script = 'PARENT=$$ /usr/bin/python3 -c "$CODE" & exec /bin/echo last'
    environment = {"CODE": OUTLIVES_ITS_PARENT, "PYTHONMALLOC": "malloc"}
    finished = dropin.run(["/bin/bash", "-c", script], minimum=1, environment=environment)
    assert finished.stdout == "last\n"
    python = dropin.run(["/usr/bin/python3", "-c", ""], minimum=1, environment=environment)
    assert finished.handed_out() < python.handed_out() / 2


def test_table_that_cannot_be_written(dropin: DropIn) -> None:
    file = "/nonexistent/folder/table"
    finished = with_options(dropin, f"slabinfo={file}")
    assert len(lines_with(finished, file)) == 1, finished.describe()


def test_table_whose_name_becomes_too_long(dropin: DropIn) -> None:
    """An option has 255 characters; the process's numbers have room for few more."""
    file = "/tmp/" + "%p" * 120
    setting = Setting("long", f"slabinfo={file}")
    # Not a program that closes its streams at its end.
    finished = dropin.under(setting).attempt(["/bin/bash", "-c", ":"])
    (line,) = lines_with(finished, file)
    assert "File name too long" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_library_is_ignored_by_programs_of_other_rights(dropin: DropIn) -> None:
    """The loader drops LD_PRELOAD for setuid programs; nothing may break."""
    finished = dropin.attempt(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/bin/su", "--version"]
    )
    assert finished.status == 0, finished.describe()
    assert finished.messages() == []
