# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Answers the requests to `kmem serve`."""

import base64
import hmac
import json
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, make_wsgi_app

from kmem.common.errors import BadUsage, KmemError
from kmem.live.attributes import WRITABLE, check_value
from kmem.live.metrics import CACHES, ProcessesCollector
from kmem.live.registry.caches import read_caches
from kmem.live.registry.find import open_process
from kmem.live.registry.requests import ask
from kmem.live.sampler import Sampler
from kmem.live.service_profiles import KINDS, take_pprof, take_sites

BODY_MOST_BYTES = 4096
# Most seconds for a client to send its request, and to take the answer; all clients are on this
# machine.
CLIENT_SECONDS = 5
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/formats.js": ("formats.js", "text/javascript; charset=utf-8"),
    "/chart.js": ("chart.js", "text/javascript; charset=utf-8"),
    "/table.js": ("table.js", "text/javascript; charset=utf-8"),
    "/words.js": ("words.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
HEADERS = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]

Environment = dict[str, Any]
Start = Callable[..., Any]
Sampled = TypeVar("Sampled")


class RefusedError(Exception):
    """A request that is answered with a status and a line of text."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Answer:
    body: bytes
    kind: str
    status: HTTPStatus = HTTPStatus.OK


def as_json(document: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(json.dumps(document).encode(), "application/json", status)


class Service:
    """The application: answers each request."""

    def __init__(
        self,
        sampler: Sampler,
        hosts: Iterable[str],
        token: str | None,
        caches: int = CACHES,
        *,
        allow_writes: bool = False,
        guarded: bool = False,
    ) -> None:
        """@token: needed for changes, and if it is guarded for all figures.

        @caches: of each process in the metrics.
        """
        self.allow_writes = allow_writes
        self.guarded = guarded
        self.sampler = sampler
        self.hosts = set(hosts)
        self.token = token
        # Names are known at a scrape only; without them the client would find none for ?name[]=.
        registry = CollectorRegistry(auto_describe=False, support_collectors_without_names=True)
        registry.register(ProcessesCollector(caches=caches))
        self.metrics = make_wsgi_app(registry)
        self.scraping = threading.Lock()

    def __call__(self, environment: Environment, start: Start) -> Iterable[bytes]:
        if environment["REQUEST_METHOD"] != "HEAD":
            return self.respond(environment, start)
        begun: list[tuple[str, list[tuple[str, str]]]] = []

        def keep(status: str, headers: list[tuple[str, str]]) -> None:
            begun.append((status, headers))

        # HEAD has the headers of a GET, without the body.
        body = b"".join(self.respond(environment | {"REQUEST_METHOD": "GET"}, keep))
        (status, headers) = begun[0]
        if not any(name == "Content-Length" for name, _ in headers):
            headers.append(("Content-Length", str(len(body))))
        start(status, headers)
        return []

    def respond(self, environment: Environment, start: Start) -> Iterable[bytes]:
        try:
            # A client with the token may come from anywhere.
            if not self.guarded:
                self.check_sender(environment)
            elif environment["PATH_INFO"] not in FILES:
                self.check_token(environment, "figures")
            if environment["PATH_INFO"] == "/metrics":
                return self.scrape(environment, start)
            answer = self.answer(environment)
        except RefusedError as refused:
            answer = as_json({"error": str(refused)}, refused.status)
        except KmemError as error:
            answer = as_json({"error": str(error)}, HTTPStatus.CONFLICT)
        except OSError as error:
            # Descriptors may be short because of many clients.
            answer = as_json({"error": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)
        except Exception as error:
            # The client is not at fault: print a line, and answer the next request.
            self.sampler.say_once(f"serve: {environment['PATH_INFO'][:40]!r} failed: {error!r}")
            answer = as_json({"error": "failed"}, HTTPStatus.INTERNAL_SERVER_ERROR)
        length = ("Content-Length", str(len(answer.body)))
        status = f"{answer.status.value} {answer.status.phrase}"
        start(status, [("Content-Type", answer.kind), length, *HEADERS])
        return [answer.body]

    def scrape(self, environment: Environment, start: Start) -> Iterable[bytes]:
        """The metrics, with the headers of every answer."""
        if environment["REQUEST_METHOD"] != "GET":
            # The Prometheus client would answer in a form of its own.
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "/metrics: expected GET")

        def with_headers(status: str, headers: list[tuple[str, str]]) -> Any:
            ours = {name for name, _ in HEADERS}
            return start(status, [one for one in headers if one[0] not in ours] + HEADERS)

        # Only one scrape runs at a time: it reads all registries, and any user may ask for many.
        if not self.scraping.acquire(timeout=CLIENT_SECONDS):
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "other scrapes are not done yet")
        try:
            found: Iterable[bytes] = self.metrics(environment, with_headers)
        finally:
            self.scraping.release()
        return found

    def check_sender(self, environment: Environment) -> None:
        host = environment.get("HTTP_HOST", "")
        if host not in self.hosts:
            expected = " or ".join(sorted(self.hosts))
            raise RefusedError(HTTPStatus.FORBIDDEN, f"host {host!r}: expected {expected}")
        origin = environment.get("HTTP_ORIGIN")
        if origin is not None and origin != f"http://{host}":
            raise RefusedError(HTTPStatus.FORBIDDEN, f"requests of {origin} are not answered")
        site = environment.get("HTTP_SEC_FETCH_SITE", "none")
        navigates = environment.get("HTTP_SEC_FETCH_MODE") == "navigate"
        if site not in ("none", "same-origin") and not navigates:
            raise RefusedError(HTTPStatus.FORBIDDEN, "requests of other pages are not answered")

    def answer(self, environment: Environment) -> Answer:
        path, method = environment["PATH_INFO"], environment["REQUEST_METHOD"]
        words = path.strip("/").split("/")
        if words[:2] == ["api", "processes"] and len(words) == 4 and words[3] == "attributes":
            if method != "POST":
                raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"{path}: expected POST")
            return self.write(process_number(words[2]), environment)
        if method != "GET":
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"{path}: expected GET")
        if words[:1] == ["processes"] and words[2:4] == ["debug", "pprof"] and len(words) == 5:
            return self.profile(process_number(words[1]), words[4], environment)
        if path in FILES:
            name, kind = FILES[path]
            return Answer((files("kmem.live") / "page" / name).read_bytes(), kind)
        if words[:2] == ["api", "processes"] and len(words) == 4 and words[3] == "sites":
            process = process_number(words[2])
            return as_json(self.sample(take_sites, process, environment))
        if words == ["api", "processes"]:
            since = since_when(environment)
            return as_json(
                {
                    "now": time.time(),
                    "interval": self.sampler.interval,
                    "writable": self.allow_writes,
                    "processes": self.sampler.processes(since, titled=self.knows(environment)),
                }
            )
        if words[:2] == ["api", "processes"] and len(words) == 3:
            process = process_number(words[2])
            titled = self.knows(environment)
            document = self.sampler.process(process, since_when(environment), titled=titled)
            if document is None:
                with open_process(process) as registry:
                    read_caches(registry)  # both give the reason if there are no figures
                raise RefusedError(HTTPStatus.NOT_FOUND, f"process {process}: not yet read")
            return as_json(document)
        raise RefusedError(HTTPStatus.NOT_FOUND, f"{path}: there is no such page")

    def knows(self, environment: Environment) -> bool:
        """Whether a request has the token."""
        known = (self.token or "").encode()
        return bool(known) and hmac.compare_digest(token_of(environment), known)

    def check_token(self, environment: Environment, what: str) -> None:
        if not self.knows(environment):
            place = "of --token-file" if self.guarded else "in the address that serve printed"
            raise RefusedError(HTTPStatus.FORBIDDEN, f"{what} need the token {place}")

    def check_change(self, environment: Environment, what: str) -> None:
        if not self.allow_writes:
            raise RefusedError(HTTPStatus.FORBIDDEN, f"{what} need kmem serve --allow-writes")
        self.check_token(environment, what)

    def profile(self, process: int, kind: str, environment: Environment) -> Answer:
        """A pprof file."""
        if kind not in KINDS:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"{kind[:40]}: expected {' or '.join(KINDS)}")
        body = self.sample(partial(take_pprof, kind=kind), process, environment)
        return Answer(body, "application/vnd.google.protobuf+gzip")

    def sample(
        self, take: Callable[..., Sampled], process: int, environment: Environment
    ) -> Sampled:
        """Sampling changes the process, so it needs the token."""
        self.check_change(environment, "profiles")
        try:
            return take(process, query_text=environment.get("QUERY_STRING", ""))
        except BadUsage as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from None
        except ImportError as error:
            raise RefusedError(
                HTTPStatus.NOT_IMPLEMENTED,
                f"the Python package {error.name} is missing; kmem profile says how to get it",
            ) from None

    def write(self, process: int, environment: Environment) -> Answer:
        """Asks for an attribute's value: {"birth": ..., "name": ..., "value": ...}."""
        self.check_change(environment, "changes")
        birth, name, value = read_change(environment)
        with open_process(process, writable=True) as registry:
            cache = next((one for one in read_caches(registry) if str(one["birth"]) == birth), None)
            if cache is None:
                raise RefusedError(
                    HTTPStatus.NOT_FOUND, f"process {process}: that cache has been destroyed"
                )
            ask(registry, cache["birth"], name, str(check_value(cache, name, value)))
        return as_json({})


def token_of(environment: Environment) -> bytes:
    """The token of a request: of the page, of a scraper (Bearer), or a password in an address."""
    token: str
    form, _, value = environment.get("HTTP_AUTHORIZATION", "").partition(" ")
    if form.lower() == "bearer":
        token = value.strip()
    elif form.lower() == "basic":
        try:
            token = base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
        except ValueError:
            token = ""
    else:
        token = environment.get("HTTP_X_KMEM_TOKEN", "")
    return token.encode("utf-8", "replace")


def process_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 10):
        raise RefusedError(HTTPStatus.NOT_FOUND, f"process {text[:40]!r}: expected a number")
    return int(text)


def since_when(environment: Environment) -> float | None:
    """The time of `since`: seconds since 1970 or, below 0, before now. None if there is none."""
    texts = parse_qs(environment.get("QUERY_STRING", ""), keep_blank_values=True).get("since")
    if texts is None:
        return None
    try:
        since = float(texts[-1])
    except ValueError:
        since = math.nan
    if not math.isfinite(since):
        raise RefusedError(
            HTTPStatus.BAD_REQUEST,
            f"since={texts[-1][:40]}: expected seconds since 1970, or -SECONDS",
        )
    return since if since >= 0 else time.time() + since


def read_change(environment: Environment) -> tuple[str, str, str]:
    """The body of a change: the cache's birth, and an attribute's name and value."""
    length = environment.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or len(length) > 9 or int(length) > BODY_MOST_BYTES:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"expected up to {BODY_MOST_BYTES} bytes")
    try:
        document = json.loads(environment["wsgi.input"].read(int(length)))
        birth, name, value = (document[key] for key in ("birth", "name", "value"))
    except TimeoutError:
        raise RefusedError(
            HTTPStatus.REQUEST_TIMEOUT, f"expected {length} bytes within {CLIENT_SECONDS} seconds"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, "expected JSON with birth, name and value"
        ) from None
    if not all(isinstance(word, str) for word in (birth, name, value)):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "birth, name and value: expected texts")
    if name not in WRITABLE.split():
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"{name}: one can write {WRITABLE}")
    return birth, name, value
