# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The site of `make docs`: every link leads somewhere, and a browser shows and searches it."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts" / "documentation"
DEADLINE = 30_000  # ms

sys.path.insert(0, str(SCRIPTS))
import headers  # noqa: E402
import markdown_form  # noqa: E402


class Links(HTMLParser):
    """Addresses that a page leads to or loads, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name == "src" or (name == "href" and tag in ("a", "link")):
                self.targets.append(value or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without addresses of other sites at build time: there is no network in the command's way."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        ["unshare", "--net", "--map-root-user", sys.executable, SCRIPTS / "build.py", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in done.stderr:
        done = subprocess.run(
            [sys.executable, SCRIPTS / "build.py", folder],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    found = {}
    for page in site.rglob("*.html"):
        found[page] = Links()
        found[page].feed(page.read_text())
    return found


def broken(page: Path, target: str, pages: dict[Path, Links]) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return False
    place = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if place.is_dir():
        place /= "index.html"
    if not place.is_file():
        return True
    anchor = unquote(parts.fragment)
    return bool(anchor) and place in pages and anchor not in pages[place].anchors


def test_every_link_leads_somewhere(pages: dict[Path, Links], site: Path) -> None:
    assert len(pages) > 200
    wrong = [
        f"{page.relative_to(site)}: {target}"
        for page, links in pages.items()
        # The page for unknown addresses has links from the root of a server.
        if page.name != "404.html"
        for target in links.targets
        if broken(page, target, pages)
    ]
    assert wrong == []


def test_a_broken_link_is_found(pages: dict[Path, Links], site: Path) -> None:
    index = site / "index.html"
    assert not broken(index, "docs/glossary.html#slot", pages)
    assert not broken(index, "https://example.org/none", pages)
    assert broken(index, "docs/glossary.html#nothing", pages)
    assert broken(index, "docs/nothing.html", pages)


def test_nothing_is_loaded_from_other_sites(pages: dict[Path, Links]) -> None:
    loaded = {
        target
        for page in pages
        for target in re.findall(
            r'<(?:script|link|img)[^>]*(?:src|href)="([^"]+)"', page.read_text()
        )
    }
    assert len(loaded) > 5
    assert [target for target in loaded if urlsplit(target).scheme in ("http", "https")] == []


def test_every_document_has_a_page(site: Path) -> None:
    command = ["git", "ls-files", "*.md"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in done.stdout.splitlines():
        if name.startswith(".") or not (ROOT / name).exists():
            continue
        page = Path(name).with_suffix(".html")
        if page.stem == "README":
            page = page.with_name("index.html")
        assert (site / page).is_file(), name


def test_every_function_and_command_is_in_the_reference(site: Path) -> None:
    library = ROOT / "build" / "src" / "libkmem.so"
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[2].partition("@")[0] for line in listing.splitlines() if " T " in line}
    reference = "".join(
        re.sub(r"<[^>]+>", "", page.read_text())
        for page in (site / "docs").glob("reference-*.html")
    )
    assert len(names) > 50
    assert [name for name in names if not re.search(rf"\b{name}\b", reference)] == []
    commands = (site / "docs" / "commands.html").read_text()
    for command in (
        "kmem run",
        "kmem top",
        "kmem bench suite",
        "kmem lab ask",
        "kmem record kernel",
    ):
        assert f'id="{command.replace(" ", "-")}"' in commands
    assert "--allow-writes" in commands


# ---- In Debian's chromium -----------------------------------------------------------------------


@pytest.fixture
def page(new_page) -> object:
    return new_page(1300, DEADLINE, ("file:", "data:", "blob:"), failures=True)


def test_pages_in_a_browser(site: Path, page) -> None:
    page.goto((site / "index.html").as_uri())
    assert page.locator("h1").first.inner_text().startswith("libkmem")
    for number in range(page.locator("article img").count()):
        picture = page.locator("article img").nth(number)
        picture.scroll_into_view_if_needed()
        assert picture.evaluate("image => image.complete && image.naturalWidth > 0")
    page.locator("article").get_by_role("link", name="limits.md").first.click()
    page.wait_for_url("**/docs/limits.html")
    page.locator("article").get_by_role("link", name="0015").first.click()
    page.wait_for_url("**/docs/decisions/0015-*.html")


def test_the_search_finds_words(site: Path, page) -> None:
    page.goto((site / "docs" / "glossary.html").as_uri())
    page.locator(".md-search__input").click()
    page.keyboard.type("sheaf_capacity")
    result = page.locator(".md-search-result__link").first
    result.wait_for(state="attached")
    found = page.locator(".md-search-result__link").evaluate_all("all => all.map(one => one.href)")
    assert any("options.html" in address for address in found), found


# ---- Forms --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Words:\n- a\n- b", "Words:\n\n- a\n- b"),
        ("- a\n  more\n  - b\n    more\n- c", "- a\n    more\n    - b\n        more\n- c"),
        ("1. a\n   - b\n\n   c\n\nd", "1. a\n    - b\n\n    c\n\nd"),
        ("- a\n\n  ```\n  - code\n  ```\n", "- a\n\n    ```\n    - code\n    ```\n"),
        ("```\n- code\n  - more\n```\n", "```\n- code\n  - more\n```\n"),
        ("- a\n\nWords\n- b", "- a\n\nWords\n\n- b"),
    ],
)
def test_lists_for_python_markdown(text: str, expected: str) -> None:
    assert markdown_form.for_python_markdown(text) == expected


def test_a_comment_becomes_a_section() -> None:
    source = (
        "/* SPDX */\n/* ---- Words -------- */\n/*\n * kmem_take - take S1-02\n"
        " * @count: how many\n *\n * NULL on failure.\n */\nvoid *kmem_take(int count);\n"
    )
    page = headers.page(source, "Title", "kmem.h", {"S1-02"})
    assert "## Words\n" in page and "### kmem_take\n" in page
    assert "[S1-02](kernel-rules.md#s1-02)" in page
    assert "- **count**: how many" in page and "`NULL` on failure." in page
    assert "```c\nvoid *kmem_take(int count);\n```" in page
