# SPDX-License-Identifier: Apache-2.0 OR MIT
"""sqlite3, redis and postgresql: results compared with known answers and with plain runs."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from dropin import (
    DEFAULT,
    INPUTS,
    LIBRARIES,
    LIMITED,
    LOCKED,
    MIXED,
    SLAB,
    SLOB,
    UNREGISTERED,
    Argument,
    Command,
    DropIn,
    Finished,
    Plain,
    Setting,
    check_served,
    check_silent,
    check_status,
    start,
    stopping,
    wait,
)
from needs import command, postgres, require
from respclient import Client, connect, wait_for
from settings import under
from slabtable import read_table

SETTINGS = (DEFAULT, LOCKED, LIMITED, UNREGISTERED, SLAB, SLOB)
everywhere = under(*SETTINGS, quick=(DEFAULT, LOCKED, LIMITED))
each_engine_quick = under(*SETTINGS, MIXED, quick=(DEFAULT, LOCKED, LIMITED, SLAB, SLOB, MIXED))


# ---- sqlite3 -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sqlite_answers(tmp_path_factory: pytest.TempPathFactory) -> str:
    require("sqlite3")
    script = (INPUTS / "workload.sql").read_text()
    plain = Plain(tmp_path_factory.mktemp("sqlite"))
    return plain.run([command("sqlite3"), "-bail", "db"], stdin=script).stdout


@each_engine_quick
def test_sqlite3(dropin: DropIn, sqlite_answers: str) -> None:
    script = (INPUTS / "workload.sql").read_text()
    finished = dropin.run([command("sqlite3"), "-bail", "db"], minimum=5_000, stdin=script)
    assert finished.stdout == sqlite_answers
    assert finished.stderr == ""
    lines = finished.stdout.splitlines()
    assert lines[0] == "rows|150000|7500149858|name-0|name-999|3675000.0"
    assert lines[-2] == "ok"


# ---- redis -------------------------------------------------------------------------------------


SOCKET = "redis.sock"


def redis_command(folder: Path) -> Command:
    settings = {
        "port": "0",
        "unixsocket": str(folder / SOCKET),
        "dir": str(folder),
        "save": "",
        "enable-debug-command": "local",
        "activedefrag": "no",
        "daemonize": "no",
    }
    words: list[str] = [word for name, value in settings.items() for word in (f"--{name}", value)]
    return [command("redis-server"), *words]


def fill_redis(client: Client) -> None:
    """The same keys of all types on every run; some are overwritten, grown and deleted."""
    client.many(["SET", f"text:{i}", f"value {i} " * (i % 40)] for i in range(20_000))
    client.many(["APPEND", f"text:{i}", "more" * (i % 300)] for i in range(0, 20_000, 7))
    client.many(["HSET", f"hash:{i % 50}", f"field:{i}", f"{i * i}"] for i in range(20_000))
    client.many(["RPUSH", f"list:{i % 20}", f"element {i}"] for i in range(20_000))
    client.many(["ZADD", f"sorted:{i % 10}", i * 7 % 1009, f"member {i}"] for i in range(20_000))
    client.many(["SADD", f"set:{i % 10}", i % 3_000] for i in range(20_000))
    client.many(["DEL", f"text:{i}"] for i in range(0, 20_000, 3))
    client.many(["LPOP", f"list:{i % 20}"] for i in range(5_000))


@pytest.fixture(scope="module")
def redis_digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The server's own digest of the keys, from a server without the drop-in."""
    require("redis")
    folder = tmp_path_factory.mktemp("redis")
    with stopping(start(redis_command(folder), folder, {})), connect(folder / SOCKET) as client:
        fill_redis(client)
        return str(client.do("DEBUG", "DIGEST"))


def check_redis_data(client: Client, digest: str) -> None:
    """Also after the data went through a forked child's file and back."""
    assert client.do("DEBUG", "DIGEST") == digest
    assert client.do("BGSAVE") == "Background saving started"
    wait_for(client, "persistence", "rdb_bgsave_in_progress", "0")
    assert client.info("persistence", "rdb_last_bgsave_status") == "ok"
    assert client.do("DEBUG", "RELOAD") == "OK"
    assert client.do("DEBUG", "DIGEST") == digest
    assert client.do("HGET", "hash:7", "field:57") == "3249"
    assert client.do("DBSIZE") == 13_333 + 50 + 20 + 10 + 10


BENCHMARKS = ("SET", "GET", "INCR", "LPUSH", "RPOP", "SADD", "HSET", "ZADD", "LRANGE_100")


def run_benchmark(dropin: DropIn, socket: Path) -> Finished:
    """redis-benchmark on the drop-in as well."""
    argv: Command = [command("redis-benchmark"), "-s", socket, "-t", ",".join(BENCHMARKS).lower()]
    load = ["-n", "20000", "-c", "30", "-P", "8", "-r", "5000", "-d", "100"]
    return dropin.run([*argv, *load, "--csv"], minimum=500)


def check_benchmark(finished: Finished) -> None:
    names = {line.split(",")[0].strip('"').split()[0] for line in finished.stdout.splitlines()}
    assert names >= set(BENCHMARKS), finished.describe()


@everywhere
def test_redis(dropin: DropIn, redis_digest: str, tmp_path: Path) -> None:
    process, read = dropin.launch(redis_command(tmp_path))
    with stopping(process):
        with connect(tmp_path / SOCKET) as client:
            fill_redis(client)
            check_redis_data(client, redis_digest)
            check_benchmark(run_benchmark(dropin, tmp_path / SOCKET))
            client.socket.sendall(b"SHUTDOWN NOSAVE\r\n")
        ended = wait(process)
    check_status(ended)
    dropin.check(ended, read, minimum=50_000)
    checked = subprocess.run(
        [command("redis-check-rdb"), tmp_path / "dump.rdb"], capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


# ---- postgresql --------------------------------------------------------------------------------


@dataclass
class Started:
    """A program of a cluster, and the folder in which its processes write their tables."""

    process: subprocess.Popen[str]
    tables: Path

    def finish(self, minimum: int, processes: int = 1) -> Finished:
        """Waits for the end and requires success, silence of libkmem, and enough objects."""
        ended = wait(self.process)
        check_status(ended)
        check_silent(ended)
        if not os.environ.get("KMEM_TEST_PRELOAD"):
            tables = tuple(map(read_table, sorted(self.tables.iterdir())))
            check_served(replace(ended, tables=tables), minimum, processes)
        return ended


class Cluster:
    """A database cluster in a folder of its own, run as the postgres user where we are root.

    The library is copied to that folder: the user may not be allowed to read where it was built.
    """

    def __init__(self, folder: Path, setting: Setting) -> None:
        self.folder = folder
        self.setting = setting
        self.data = folder / "data"
        self.library = folder / "libkmem-malloc.so"
        shutil.copy(
            os.environ.get("KMEM_TEST_PRELOAD") or LIBRARIES / "libkmem-malloc.so", self.library
        )
        self.give(folder)
        self.library.chmod(0o644)

    @staticmethod
    def give(folder: Path) -> None:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")

    def environment(self, tables: Path) -> dict[str, str]:
        return {
            **self.setting.environment,
            "LD_PRELOAD": str(self.library),
            "KMEM_OPTIONS": self.setting.with_options(f"slabinfo={tables}/%p").options,
            "PGHOST": str(self.folder),
            "PGUSER": "postgres",
        }

    def as_owner(self, argv: Sequence[Argument]) -> Command:
        if os.geteuid() != 0:
            return list(argv)
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--", *argv]

    def start(self, program: str, *arguments: Argument) -> Started:
        tables = Path(tempfile.mkdtemp(prefix="tables-", dir=self.folder))
        self.give(tables)
        argv = self.as_owner([postgres(program), *arguments])
        process = start(argv, self.folder, self.environment(tables), self.setting.address_space)
        return Started(process, tables)

    def run(self, program: str, *arguments: Argument, minimum: int) -> Finished:
        return self.start(program, *arguments).finish(minimum)

    def query(self, sql: str) -> str:
        argv = ("-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-c", sql)
        return self.run("psql", *argv, minimum=100).stdout.strip()

    def wait_until_ready(self, server: "subprocess.Popen[str]") -> None:
        argv = self.as_owner([postgres("pg_isready"), "-q", "-t", "1"])
        for _ in range(600):
            assert server.poll() is None, wait(server).describe()
            ready = start(argv, self.folder, {"PGHOST": str(self.folder)})
            if wait(ready).status == 0:
                return
        raise AssertionError("the server takes no connections")


@pytest.fixture
def cluster(dropin: DropIn) -> Iterator[Cluster]:
    require("postgresql")
    # Not under pytest's own folder, which only its user may enter; the socket's path is short.
    folder = Path(tempfile.mkdtemp(prefix="kmem-postgresql-"))
    folder.chmod(0o755)
    try:
        yield Cluster(folder, dropin.setting)
    finally:
        shutil.rmtree(folder)


SERVER_SETTINGS = (
    "listen_addresses=",
    "shared_buffers=16MB",
    "max_connections=20",
    "fsync=off",
    "logging_collector=off",
    "jit=on",
    "jit_above_cost=0",
    "max_parallel_workers_per_gather=2",
    "min_parallel_table_scan_size=0",
)

# Every history row's change of balance is in each of the three other tables, so the sums agree.
BALANCES = """
SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),
       (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(delta) FROM pgbench_history),
       (SELECT count(*) FROM pgbench_history)
"""

REPORT = """
SELECT count(*), sum(length(text)), count(DISTINCT left(md5(text), 3)) FROM (
    SELECT string_agg(aid::text, ',' ORDER BY aid DESC) AS text
    FROM pgbench_accounts GROUP BY aid % 1000) AS groups
"""


def use_cluster(cluster: Cluster) -> None:
    cluster.run("pgbench", "-i", "-q", "-s", "2", "postgres", minimum=100)
    done = cluster.run(
        *("pgbench", "-n", "-c", "4", "-j", "2", "-t", "250", "--random-seed=5", "postgres"),
        minimum=100,
    )
    assert "number of transactions actually processed: 1000/1000" in done.stdout
    *sums, rows = cluster.query(BALANCES).split("|")
    assert len(set(sums)) == 1 and rows == "1000", sums
    # 200,000 numbers, 1,088,895 digits, and in each of 1,000 groups 199 commas.
    assert cluster.query(REPORT).split("|")[:2] == ["1000", str(1_088_895 + 199_000)]


@under(*SETTINGS, quick=(DEFAULT,))
def test_postgresql(cluster: Cluster) -> None:
    created = cluster.run(
        "initdb", "-D", cluster.data, "-U", "postgres", "-A", "trust", "-k", minimum=5_000
    )
    assert "Success. You can now start the database server" in created.stdout
    words = [word for setting in SERVER_SETTINGS for word in ("-c", setting)]
    server = cluster.start("postgres", "-D", cluster.data, "-k", cluster.folder, *words)
    with stopping(server.process):
        cluster.wait_until_ready(server.process)
        use_cluster(cluster)
        server.process.terminate()
        ended = server.finish(minimum=1_000, processes=3)
    assert "PANIC" not in ended.stderr and "by signal" not in ended.stderr, ended.describe()
    checked = cluster.run("pg_checksums", "--check", "-D", cluster.data, minimum=100)
    assert "Bad checksums:  0" in checked.stdout
