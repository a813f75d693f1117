#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Make the documentation site from the Markdown files of the tree (`make docs`).

    build.py [FOLDER]     pages in FOLDER/pages, the site in FOLDER/html; default: build-site

The pages keep their places in the tree, so a relative link leads to the same document on GitHub
and on the site. Three kinds of pages are made here: a page for each source file that a document
links to, the reference of the headers (headers.py), and the help of every command (commands.py).
mkdocs.yml has the order of pages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import commands
import headers
import markdown_form

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?(\))")
PICTURE = re.compile(r'<img src="([^":]+)"')
CODE = re.compile(
    r"^(?P<fence>`{3,}).*?^(?P=fence)$|`[^`\n]+`|<!--.*?-->", re.DOTALL | re.MULTILINE
)
# Files of these kinds are copied as they are; any other file that is linked gets a page.
PLAIN = {".svg", ".png", ".json", ".csv", ".txt", ".abi"}
LANGUAGES = {
    ".c": "c",
    ".h": "c",
    ".hpp": "cpp",
    ".py": "python",
    ".toml": "toml",
    ".build": "meson",
}
LANGUAGES |= {".yml": "yaml"}


def tracked(*patterns: str) -> list[str]:
    command = ["git", "ls-files", "--", *patterns]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def outside_code(text: str, change: re.Pattern[str], replace: object) -> str:
    """The text with the pattern replaced where it stands in neither code nor a comment."""
    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [change.sub(replace, text[end : code.start()]), code[0]]  # type: ignore[call-overload]
        end = code.end()
    return "".join([*parts, change.sub(replace, text[end:])])  # type: ignore[call-overload]


class Site:
    """Pages in the making, and the files that they link to."""

    def __init__(self, folder: Path) -> None:
        self.pages = folder / "pages"
        self.html = folder / "html"
        self.linked: set[str] = set()

    def write(self, name: str, text: str) -> None:
        place = self.pages / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def add_document(self, name: str) -> None:
        def linked(link: re.Match[str]) -> str:
            if ":" in link[2]:
                return link[0]  # an address outside the tree
            target = os.path.normpath(Path(name).parent / link[2])
            if target.endswith(".md"):
                return link[0]
            self.linked.add(target)
            if Path(target).suffix in PLAIN:
                return link[0]
            return f"{link[1]}{link[2]}.md{link[3] or ''}{link[4]}"

        text = markdown_form.for_python_markdown((ROOT / name).read_text())
        for picture in PICTURE.findall(text):
            self.linked.add(os.path.normpath(Path(name).parent / picture))
        self.write(name, outside_code(text, LINK, linked))

    def add_linked_files(self) -> None:
        for name in sorted(self.linked):
            if Path(name).suffix in PLAIN:
                (self.pages / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.pages / name)
                continue
            text = (ROOT / name).read_text()
            fence = "`" * max(4, *(len(run) + 1 for run in re.findall("`+", text)), 0)
            language = LANGUAGES.get(Path(name).suffix, "text")
            head = "---\nsearch:\n  exclude: true\n---\n"
            self.write(f"{name}.md", f"{head}# {name}\n\n{fence}{language}\n{text}\n{fence}\n")

    def make_pages(self) -> None:
        shutil.rmtree(self.pages, ignore_errors=True)
        self.pages.mkdir()
        for name in tracked("*.md"):
            if not name.startswith("."):
                self.add_document(name)
        for name, text in headers.pages(ROOT).items():
            self.write(f"docs/{name}", text)
        self.write("docs/commands.md", commands.page(ROOT))
        self.add_linked_files()
        assets = self.pages / "assets"
        assets.mkdir()
        shutil.copy(Path(__file__).with_name("iframe-worker.js"), assets)

    def make_html(self) -> int:
        shutil.rmtree(self.html, ignore_errors=True)
        # mkdocs reads folders from its file, relative to that file.
        text = (ROOT / "mkdocs.yml").read_text()
        settings = f"{text}\ndocs_dir: {self.pages}\nsite_dir: {self.html}\n"
        file = self.pages.parent / "mkdocs.yml"
        file.write_text(settings)
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", file]
        # Material's line about a later version of mkdocs, which is not ours.
        environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stdout + done.stderr, file=sys.stderr)
        return done.returncode


def main() -> int:
    if len(sys.argv) > 2:
        print("build.py: expected a folder at most", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1] if len(sys.argv) == 2 else ROOT / "build-site").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    site = Site(folder)
    site.make_pages()
    status = site.make_html()
    if status == 0:
        print(f"docs: {site.html / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
