# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Registries of a hostile user, read by root: what is in them ends nothing and stands for nobody.

KMEM_HOSTILE_INPUTS is how many mutated registries test_mutated_registries makes besides those of
Hypothesis; 2,000 if it is not set.
"""

import contextlib
import json
import mmap
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hostile import Patch, Planted, Template, mutated, patched
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kmem_command import KMEM, ROOT, container
from test_live import (
    DEADLINE,
    Program,
    assert_refused,
    file_of,
    kmem,
    needs_root,
    value,
    wait_until,
)
from test_serve import Server, connect, exchange, request, serve, until_read

from kmem.live.living import read_living
from kmem.live.metrics import ProcessesCollector
from kmem.live.registry.caches import NODES_MOST, read_caches
from kmem.live.registry.file import CACHES_MOST, RECORD_CACHE, RECORD_HEAD, Registry
from kmem.live.registry.find import open_process, read_each
from kmem.live.registry.layout import PARTS, RegistryError
from kmem.live.registry.owner import Owned, own_namespace, start_time
from kmem.live.registry.requests import answer, ask
from kmem.live.sampler import CacheTrack, Sampler, cache_document, process_row
from kmem.live.service import HEADERS, Service
from kmem.live.stacks import read_names, read_stacks
from kmem.live.tables import table_row
from kmem.live.top_rows import ORDERS, cache_rows, calls
from kmem.live.watch import Figures, History, Rates, read_figures

pytestmark = pytest.mark.alone

INPUTS = int(os.environ.get("KMEM_HOSTILE_INPUTS", "2000"))
USER = 64000 + os.getpid() % 1000
MEMORY_MOST = 512 << 20  # that readers may grow by
CACHE = PARTS.index("cache")


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    with Program("--set", "profile_interval=4096") as running:
        running.do("some = take(mine, 20000)")
        with open_process(running.pid) as registry:
            yield Template(registry)


@pytest.fixture
def program() -> Iterator[Program]:
    with Program() as running:
        running.do("some = take(mine, 5000)")
        yield running


@pytest.fixture(autouse=True)
def folder() -> Iterator[Path]:
    path = Path(f"/dev/shm/kmem-{USER}")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Its standard error is not looked at."""
    running = serve()
    yield next(running)
    with contextlib.suppress(AssertionError):
        next(running, None)


# ---- any content ---------------------------------------------------------------------------------


class Reader:
    """Reads a file again and again, each time with another content, as all commands do."""

    def __init__(self, template: Template, path: Path) -> None:
        self.path = path
        path.write_bytes(template.content)
        path.chmod(0o600)
        with path.open("r+b") as file:
            self.kept = mmap.mmap(file.fileno(), 0)
        started = start_time(os.getpid())
        assert started is not None
        self.owned = Owned(os.getpid(), started, os.getpid())

    def read(self, content: bytes, *, asks: bool) -> bool:
        """False if the registry was refused; any other exception fails the test."""
        self.kept[:] = content
        begun = time.thread_time()
        try:
            with Registry(self.path, writable=True) as registry:
                registry.owned = self.owned
                self.use(registry, asks=asks)
            return True
        except RegistryError as error:
            assert "\n" not in str(error)
            return False
        finally:
            # A bound, and no measurement: a valid registry takes a thousandth of it.
            assert time.thread_time() - begun < 10

    def use(self, registry: Registry, *, asks: bool) -> None:
        figures = read_figures(registry)
        read_stacks(registry)
        read_names(registry)
        read_living(registry)
        rates = Rates()
        for moment in (1.0, 2.0):
            rates.add(((cache["birth"], calls(cache)) for cache in figures.caches), moment)
        rows = cache_rows(figures, ORDERS["c"], History(9), rates)
        assert len(rows) == len(figures.caches)
        process_row(figures, titled=True)
        for cache in figures.caches:
            table_row(cache)
            track = CacheTrack()
            track.add(cache)
            cache_document(cache, track)
        if asks:
            json.dumps([cache_document(cache, track) for cache in figures.caches])
            list(ProcessesCollector(lambda _: [figures]).collect())
            answer(registry, ask(registry, 1, "min_partial", "1"), 0)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_mutated_registries(template: Template, tmp_path: Path) -> None:
    """Figures, or RegistryError; within the memory and the time that a valid one may take."""
    reader = Reader(template, tmp_path / "registry")
    assert reader.read(template.content, asks=True)
    sites = template.sites()
    chance = random.Random(INPUTS)
    before = peak_bytes()
    taken = sum(
        reader.read(mutated(template, sites, chance), asks=number % 16 == 0)
        for number in range(INPUTS)
    )
    print(f"{INPUTS} mutated registries: {taken} read, {INPUTS - taken} refused")
    assert 0 < taken < INPUTS
    assert peak_bytes() - before < MEMORY_MOST


def test_any_registry(template: Template, tmp_path: Path) -> None:
    """The same by Hypothesis, which finds the smallest that does harm."""
    reader = Reader(template, tmp_path / "registry")
    size = len(template.content)
    site = st.sampled_from(template.sites()) | st.tuples(st.integers(0, size - 8), st.just(8))
    number = st.integers(0, (1 << 64) - 1) | st.sampled_from([0, 1, 2, 64, 4096, 65535, 1 << 31])

    @settings(
        max_examples=500, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.lists(st.tuples(site, number), min_size=1, max_size=6), st.booleans())
    def run(changes: list[tuple[tuple[int, int], int]], asks: bool) -> None:
        patches = [
            (at, number.to_bytes(8, "little")[: min(length, 8)]) for (at, length), number in changes
        ]
        reader.read(patched(template.content, patches), asks=asks)

    run()


# ---- what one user plants, and what the others see -----------------------------------------------


def renamed(template: Template, part: str, name: str) -> list[Patch]:
    """Another name in its place: so the field is missing."""
    return [(template.row_of(part, name), b"y" + name.encode()[1:])]


def overlapping(template: Template) -> list[Patch]:
    """All numbers of a node are one, as wide as it goes."""
    names = ("slabs", "objects", "partial", "free_slabs")
    return [(template.row_of("node", name) + 34, (8).to_bytes(2, "little")) for name in names]


def plants(template: Template) -> dict[str, list[Patch]]:
    cache = next(at for kind, at in template.records if kind == 1)
    return {
        "a field is missing": renamed(template, "cache", "objs_per_slab"),
        "no node has slabs": renamed(template, "node", "slabs"),
        "a number of 2,000 bytes": [(template.row_of("node", "slabs") + 36, b"\xd0\x07")],
        "overlapping": overlapping(template),
        "64 nodes": [template.number("cache", "nodes", 64, cache)],
        "another's number inside": [template.number("head", "process", 1)],
        "another start": [template.number("head", "start_time", 1)],
    }


KINDS = (
    *("a field is missing", "no node has slabs", "a number of 2,000 bytes", "overlapping"),
    *("64 nodes", "another's number inside", "another start"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_one_bad_file_hides_nobody(
    program: Program, template: Template, tmp_path: Path, server: Server, kind: str
) -> None:
    """One line, and all the others are read; by all who read all."""
    needs_root()
    with Planted(template, tmp_path / "content", plants(template)[kind], user=USER) as planted:
        for arguments in (["ps"], ["top", "--once"]):
            result = kmem(*arguments)
            assert result.returncode == 0
            assert str(program.pid) in result.stdout.split()
            lines = result.stderr.splitlines()
            assert len(lines) == 1
            assert lines[0].startswith(f"kmem: {planted.path}: ")
        assert_refused(kmem("info", planted.pid), str(planted.path))
        metrics = server.metrics()
        assert metrics["kmem_cache_slabs", str(program.pid), "mine"] > 0
        assert not any(pid == str(planted.pid) for _, pid, _ in metrics)
        # The sampler still looks.
        until_read(server, program)
        assert server.ask(f"api/processes/{planted.pid}")[0] == 409


def test_a_valid_file_of_another_user_is_read(template: Template, tmp_path: Path) -> None:
    """So that what the others are refused for is what is wrong with them."""
    needs_root()
    with Planted(template, tmp_path / "content", [], user=USER) as planted:
        assert len(value("info", planted.pid).splitlines()) == 2 + 4
        assert str(planted.pid) in value("ps").split()


def test_one_that_is_being_made_is_no_news(template: Template, tmp_path: Path) -> None:
    """The library writes the version last."""
    needs_root()
    with Planted(template, tmp_path / "content", [(8, bytes(4))], user=USER) as planted:
        assert str(planted.pid) not in value("ps").split()
        assert planted.path.exists()


def test_a_file_in_the_name_of_anothers_process(
    program: Program, template: Template, tmp_path: Path
) -> None:
    """It is not believed, and nothing is written to it."""
    needs_root()
    with (
        Planted(template, tmp_path / "content", [], user=USER, pid=program.pid) as planted,
        subprocess.Popen(["/bin/sleep", "600"]) as sleep,
    ):
        try:
            assert value("info", program.pid).splitlines()[2:] != []
            names = {cache.name for cache in caches_of(program.pid)}
            assert "mine" in names
            before = planted.path.read_bytes()
            value("attr", program.pid, "mine/min_partial", "7")
            assert not planted.path.exists() or planted.path.read_bytes() == before
            with Planted(template, tmp_path / "other", [], user=USER, pid=sleep.pid) as of_sleep:
                kept = os.open(of_sleep.path, os.O_RDONLY)
                before = os.pread(kept, 1 << 20, 0)
                assert_refused(kmem("info", sleep.pid), "does not run on libkmem")
                cache = caches_of(program.pid)[0].name
                result = kmem("attr", sleep.pid, f"{cache}/min_partial", "7")
                assert_refused(result, "does not run on libkmem")
                assert os.pread(kept, 1 << 20, 0) == before
                os.close(kept)
                listed = json.loads(value("ps", "--json"))
                assert sleep.pid not in [row["pid"] for row in listed]
                # Nor for the one that has made it.
                assert of_sleep.pid not in [row["pid"] for row in listed]
        finally:
            sleep.kill()


def caches_of(pid: int) -> list:
    with open_process(pid) as registry:
        return read_caches(registry)


def test_names_for_one_file(program: Program, template: Template, tmp_path: Path) -> None:
    """Links to it are of no process; and one that has them is not its own alone."""
    needs_root()
    with Planted(template, tmp_path / "content", [], user=USER, links=200) as planted:
        result = kmem("ps")
        assert result.returncode == 0
        assert result.stderr.count("\n") == 1
        assert f"{planted.path}: has " in result.stderr
        assert " names; expected one" in result.stderr
        assert str(program.pid) in result.stdout.split()
        # Those of no process are gone; with the last one it is its process's alone.
        other = planted.path.with_name("other")
        names = sorted(path.name for path in planted.path.parent.iterdir())
        assert names == sorted([planted.path.name, other.name])
        other.unlink()
        assert str(planted.pid) in value("ps").split()


def test_a_link_in_the_place_of_a_folder(folder: Path, tmp_path: Path) -> None:
    """What is removed as stale would be another's."""
    needs_root()
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    os.chown(victim, USER, USER)
    file = victim / f"{own_namespace()}.{1 << 22}"
    file.touch()
    folder.symlink_to(victim)
    try:
        assert kmem("ps").returncode == 0
        assert file.exists()
    finally:
        folder.unlink()


GARBAGE = """
import mmap, os, sys
os.mkdir(sys.argv[1])
file = open(sys.argv[1] + "/9.1", "w+b")
file.write(bytes(range(256)) * 300)
file.flush()
mapped = mmap.mmap(file.fileno(), 0)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.container
def test_a_container_maps_garbage(tmp_path: Path) -> None:
    """Under the name of a registry: a line, and the others are listed."""
    needs_root()
    with container(sys.executable, "-c", GARBAGE, tmp_path / "kmem-0") as pid:
        result = kmem("ps", "--json")
        assert result.returncode == 0
        assert pid not in {row["pid"] for row in json.loads(result.stdout)}
        said = [line for line in result.stderr.splitlines() if f"/proc/{pid}/map_files/" in line]
        assert len(said) == 1 and said[0].startswith("kmem: ")
        result = kmem("info", pid)
        assert result.returncode == 1 and result.stderr.count("\n") == 1


def test_a_users_own_file_system(tmp_path: Path) -> None:
    """Which need not answer: nothing in it is opened."""
    needs_root()
    script = (
        f"mkdir -p /run/user/{USER}/kmem && mount -t tmpfs none /run/user/{USER}/kmem || exit 77\n"
        f"exec {sys.executable} -c"
        ' "from kmem.live.registry.owner import folders; print(*folders(set()))"'
    )
    try:
        result = subprocess.run(
            ["unshare", "-m", "sh", "-c", script],
            env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(f"/run/user/{USER}", ignore_errors=True)
    if result.returncode in (1, 77):
        pytest.skip(f"no mount namespace or no tmpfs here: {result.stderr}")
    assert f"/dev/shm/kmem-{USER}" in result.stdout.split()
    assert f"/run/user/{USER}/kmem" not in result.stdout.split()


def test_writes_need_a_verified_process(template: Template, tmp_path: Path) -> None:
    path = tmp_path / "registry"
    path.write_bytes(template.content)
    with Registry(path, writable=True) as registry, pytest.raises(RegistryError, match="whose"):
        ask(registry, 0, "trim")
    assert path.read_bytes() == template.content


def test_a_file_that_others_may_write(program: Program) -> None:
    path = file_of(program.pid)
    assert path is not None
    path.chmod(0o666)
    assert_refused(kmem("info", program.pid), "mode 666; expected 600")


def test_a_user_has_so_much_of_a_look(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    """Many processes of one user do not keep the others waiting, nor fill the memory."""
    needs_root()
    with contextlib.ExitStack() as stack:
        pids = [
            stack.enter_context(Planted(template, tmp_path / "content", [], user=USER)).pid
            for _ in range(6)
        ]
        for name, most in (("USER_SECONDS", 0.0), ("USER_CACHES_MOST", 9)):
            with monkeypatch.context() as patch:
                patch.setattr(f"kmem.live.registry.find.{name}", most)
                refusals: list[str] = []
                read = read_each(lambda registry: registry.process, refusals)
                if name == "USER_CACHES_MOST":
                    read = read_each(
                        lambda registry: (read_caches(registry), registry.process)[1],
                        refusals := [],
                    )
            of_user = set(pids) & set(read)
            assert len(of_user) == (1 if name == "USER_SECONDS" else 2)
            assert program.pid in read
            # Three lines, and one for all the others.
            lines = [line for line in refusals if str(Path(f"/dev/shm/kmem-{USER}")) in line]
            assert len(lines) == 4
            assert f"{6 - len(of_user) - 3} more" in lines[-1]


def crowded(template: Template, fields: int, nodes: int) -> bytes:
    """As many caches as there may be, with so many nodes, and more fields than any reader knows."""
    node = template.parts["cache"]["node"]
    size = (node.offset + nodes * node.size + 63) // 64 * 64
    head_bytes = 48 * (template.fields + fields) // 64 * 64 + 16384 if fields else 16384
    head = bytearray(template.content[:16384].ljust(head_bytes, b"\0"))
    rows = head[template.fields_at : template.fields_at + 48 * template.fields]
    more = (struct.pack("<32s4HQ", b"x%d" % number, CACHE, 0, 8, 1, 0) for number in range(fields))
    at = 16384 if fields else template.fields_at
    head[at : at + len(rows) + 48 * fields] = rows + b"".join(more)
    head[8:24] = struct.pack("<4I", 1, head_bytes, at, template.fields + fields)
    birth = template.parts["cache"]["birth"].offset
    content = bytearray(head)
    for number in range(CACHES_MOST):
        record = bytearray(RECORD_HEAD.pack(RECORD_CACHE, size).ljust(size, b"\0"))
        record[birth : birth + 8] = number.to_bytes(8, "little")
        place = template.parts["cache"]["nodes"]
        record[place.offset : place.offset + place.size] = nodes.to_bytes(place.size, "little")
        content += record
    for name, number in (("used_bytes", len(content)), ("head_bytes", head_bytes)):
        place = template.parts["head"][name]
        content[place.offset : place.offset + place.size] = number.to_bytes(place.size, "little")
    return bytes(content)


@pytest.mark.parametrize(("fields", "nodes"), [(3900, 1), (0, NODES_MOST)])
def test_memory_of_a_reader(
    template: Template, tmp_path: Path, program: Program, fields: int, nodes: int
) -> None:
    """It does not grow with what a file says of itself."""
    needs_root()
    content = crowded(template, fields, nodes)
    with Planted(template, tmp_path / "content", [], user=USER, content=content) as planted:
        # More than that would be a load for the machine of whoever runs an older reader here.
        limit = partial(resource.setrlimit, resource.RLIMIT_AS, (4 << 30, 4 << 30))
        with subprocess.Popen([KMEM, "ps"], stdout=subprocess.PIPE, preexec_fn=limit) as popen:
            assert popen.stdout is not None
            listed = popen.stdout.read().decode().split()
            _, status, usage = os.wait4(popen.pid, 0)
            popen.returncode = os.waitstatus_to_exitcode(status)
        assert status == 0
        assert usage.ru_maxrss << 10 < MEMORY_MOST
        assert str(program.pid) in listed
        # One is refused, and the other is what a process may have at the most.
        with contextlib.nullcontext() if nodes > 1 else pytest.raises(RegistryError):
            assert len(caches_of(planted.pid)) == CACHES_MOST


# ---- the server ----------------------------------------------------------------------------------


def test_a_reader_that_fails_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    looks = []

    def read(_: list[str]) -> list[Figures]:
        looks.append(1)
        if len(looks) < 4:
            raise ValueError("no figures")
        return [Figures(1, 1, "x", "0", [], None, 0, 0)]

    sampler = Sampler(0.01, read)
    sampler.start()
    wait_until(lambda: len(sampler.processes()) == 1)
    sampler.stop()
    assert capfd.readouterr().err == (
        "kmem: serve: a look at all processes failed: ValueError('no figures')\n"
    )


def test_a_request_that_fails_is_answered(capfd: pytest.CaptureFixture[str]) -> None:
    sampler = Sampler(1, lambda _: [])
    service = Service(sampler, ["here"], None)

    def fail(*_: object) -> list[bytes]:
        raise ValueError("no figures")

    service.metrics = fail
    begun = []
    environment = {"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics", "HTTP_HOST": "here"}
    for _ in range(2):
        assert service(environment, lambda *words: begun.append(words)) == [b'{"error": "failed"}']
    assert begun[0][0].startswith("500 ")
    errors = capfd.readouterr().err
    assert errors.count("\n") == 1
    assert "no figures" in errors


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/processes", "/nothing"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_headers_of_every_answer(server: Server, path: str, method: str) -> None:
    answer = exchange(server, request(server, f"{method} {path} HTTP/1.1"))
    head = answer.split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    for name, text in HEADERS:
        assert [line for line in head if line.startswith(f"{name}:")] == [f"{name}: {text}"]


@pytest.fixture(scope="module")
def writable() -> Iterator[Server]:
    yield from serve("--allow-writes")


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_client_that_sends_a_byte_now_and_then(writable: Server, part: str) -> None:
    """All of its request has one time, which does not begin anew with each byte."""
    sent = request(
        writable,
        "POST /api/processes/1/attributes HTTP/1.1",
        f"X-Kmem-Token: {writable.token}",
        "Content-Length: 4000",
    )
    with connect(writable) as client:
        client.settimeout(0.2)
        if part == "body":
            client.sendall(sent)
        end = time.monotonic() + 4 * 5 + DEADLINE
        while time.monotonic() < end:
            try:
                client.sendall(b"x")
                answer = client.recv(4096)
                assert answer == b"" or answer.startswith(b"HTTP/1.0 408 ")
                return
            except TimeoutError:
                continue
            except OSError:
                return
    pytest.fail("it is still waited for")


def test_a_client_that_does_not_read(server: Server, program: Program) -> None:
    """The answer's time is bounded too: the server ends a connection that takes nothing."""
    with contextlib.ExitStack() as stack:
        threads = Path(f"/proc/{server.popen.pid}/task")
        before = len(list(threads.iterdir()))
        for _ in range(4):
            client = stack.enter_context(connect(server))
            client.sendall(request(server, "GET /metrics HTTP/1.1"))
        wait_until(lambda: len(list(threads.iterdir())) <= before)


# ---- the library ---------------------------------------------------------------------------------


def unprivileged() -> None:
    os.setgid(USER)
    os.setuid(USER)


@pytest.mark.parametrize("plant", ["folder", "file", "link"])
def test_a_planted_folder_is_said(folder: Path, plant: str) -> None:
    """Once, though its children have none either; and who asks for the process is told."""
    needs_root()
    if plant == "folder":
        folder.mkdir(mode=0o700)
        os.chown(folder, 65534, 65534)
    elif plant == "file":
        folder.touch()
    else:
        folder.symlink_to("/tmp")
    try:
        with Program(stderr=subprocess.PIPE, preexec_fn=unprivileged, cwd="/") as program:
            program.do("some = take(mine, 5000)")
            program.do("os.waitpid(os.fork() or (take(mine, 5000), os._exit(0)), 0)")
            assert_refused(kmem("info", program.pid), str(folder), "no registry")
            program.popen.kill()
            assert program.popen.stderr is not None
            errors = program.popen.stderr.read()
    finally:
        folder.rmdir() if plant == "folder" else folder.unlink()
    assert errors.count("\n") == 1
    assert errors.startswith(f"kmem: {folder} belongs to user ")
    assert "registry=off" in errors


STORM = r"""
import os, sys
file, at, count, size = os.open(sys.argv[1], os.O_RDWR), *map(int, sys.argv[2:5])
number_at, birth_at, text_at, asked_at = map(int, sys.argv[5:9])
number = 1
print("ready", flush=True)
while True:
    places = bytearray(count * size)
    for place in range(0, count * size, size):
        places[place] = 1
        places[place + number_at:place + number_at + 8] = number.to_bytes(8, "little")
        places[place + text_at:place + text_at + 32] = b"trim".ljust(32, b"\0")
        number += 1
    for _ in range(50):
        os.pwrite(file, places, at)
        for place in range(0, count * size, size):
            top = int.from_bytes(places[place + number_at:place + number_at + 8], "little")
            places[place + number_at:place + number_at + 8] = (top + count).to_bytes(8, "little")
    number += count * 51
    os.pwrite(file, (number & 0xFFFFFFFF or 1).to_bytes(4, "little"), asked_at)
"""


def test_requests_without_end(program: Program) -> None:
    """Whoever may write the file writes to it all the time: each slow path ends all the same."""
    path = file_of(program.pid)
    assert path is not None
    with open_process(program.pid) as registry:
        head, places = registry.parts["head"], registry.parts["request"]
        requests = head["requests"]
    numbers = (
        *(requests.offset, requests.count, requests.size, places["number"].offset),
        *(places["birth"].offset, places["attribute"].offset, head["asked"].offset),
    )
    with subprocess.Popen(
        [sys.executable, "-c", STORM, path, *map(str, numbers)], stdout=subprocess.PIPE, text=True
    ) as storm:
        try:
            assert storm.stdout is not None
            assert storm.stdout.readline() == "ready\n"
            # One that is kept there for ever is ended, and the next line fails.
            killer = threading.Timer(2 * DEADLINE, program.popen.kill)
            killer.start()
            for _ in range(5):
                assert program.do("give(mine, take(mine, 2000))") == "None"
        finally:
            killer.cancel()
            storm.kill()
    assert program.do("len(take(mine, 10))") == "10"


def test_garbage_in_all_requests(program: Program) -> None:
    """Bytes of any kind where requests are: they are refused, or are requests."""
    chance = random.Random(1)
    with open_process(program.pid, writable=True) as registry:
        requests = registry.parts["head"]["requests"]
        names = [b"trim", b"refresh", b"min_partial", b"order", b"profile_interval", b"validate",
                 b"shrink", b"sheaf_capacity", b"cpu_partial", b"%s%n", b"../x"]  # fmt: skip
        texts = [b"1", b"-1", b"9" * 31, b"99999999999999999999", b"", b"\xff" * 32, b"1\n2"]
        births = [0, 1, 2, (1 << 64) - 1, *(cache["birth"] for cache in read_caches(registry))]
        for _ in range(200):
            for place in range(requests.count):
                at = requests.offset + place * requests.size
                registry.write("request", "number", at, chance.getrandbits(64))
                registry.write("request", "birth", at, chance.choice(births))
                registry.write("request", "attribute", at, chance.choice(names))
                registry.write("request", "value", at, chance.choice(texts))
                registry.write("request", "state", at, chance.choice((1, 1, 1, 0, 2, 3, 77)))
            registry.write("head", "asked", 0, chance.getrandbits(32))
            program.do("give(mine, take(mine, 2000))")
    assert program.do("len(take(mine, 10))") == "10"
