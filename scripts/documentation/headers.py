# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The reference of the C interface and of the kernel's headers, from the comments of include.

A comment that begins in the first column belongs to the declarations behind it, up to the next
comment. A comment of the form "---- Words ----" begins a part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

HEADERS = {
    "kmem.h": "C: kmem.h",
    "kmem.hpp": "C++: kmem.hpp",
    "kmem-inline.h": "C and C++: kmem-inline.h",
}
COMMENT = re.compile(r"^/\*(.*?)\*/[ \t]*$", re.DOTALL | re.MULTILINE)
PART = re.compile(r"-{3,} (.*?) -{3,}")
HEAD = 4  # lines of a page in front of the first comment
TAG = re.compile(r"\bS\d+-\d+\b")
# A macro, a type or a function: the first name of a declaration.
NAMES = (
    re.compile(r"^#define (\w+)"),
    re.compile(r"^(?:typedef )?((?:struct|enum|union) \w+) \{", re.MULTILINE),
    re.compile(r"^typedef [^;]*?(\w+);", re.MULTILINE),
    re.compile(r"^(?!#|typedef|struct \w+;)[^\n=;]*?\b(\w+)\("),
)


def plain(comment: str) -> str:
    lines = [re.sub(r"^\s?\*\s?", "", line) for line in comment.split("\n")]
    return "\n".join(lines).strip()


def marked(line: str) -> str:
    """A line whose names of code are code; an example, behind four blanks, stays as it is."""
    if line.startswith("    "):
        return line
    line = re.sub(r"([<>])", r"\\\1", line)
    return re.sub(r"(?<!`)\b(\w*_\w+|NULL|E[A-Z]{3,})\b(\(\))?(?!`)", r"`\1\2`", line)


def prose(text: str, rules: set[str]) -> str:
    """A comment as Markdown: arguments are a list, rules are links, names of code are code."""
    text = "\n".join(map(marked, text.split("\n")))
    text = re.sub(r"^@", "- @", text, flags=re.MULTILINE)
    text = re.sub(r"@(\w+|`\w+`)", lambda name: f"**{name[1].strip('`')}**", text)
    # A list is a block of its own.
    text = re.sub(r"(?<=[^\n])\n(?=- )", lambda _: "\n", text)
    text = re.sub(r"^((?!- |  ).+)\n(?=- )", r"\1\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"^  (?=\S)", "    ", text, flags=re.MULTILINE)
    return TAG.sub(
        lambda tag: f"[{tag[0]}](kernel-rules.md#{tag[0].lower()})" if tag[0] in rules else tag[0],
        text,
    )


def heading(text: str, code: str) -> str:
    if begin := re.match(r"(?:struct )?[\w.]+(?:, [\w.]+)* - ", text):
        return begin[0].removesuffix(" - ")
    for pattern in NAMES:
        if found := pattern.search(code):
            return found[1]
    return ""


def sections(source: str) -> Iterator[tuple[str, str]]:
    """Comments with the code behind them."""
    comments = list(COMMENT.finditer(source))
    for number, comment in enumerate(comments):
        end = comments[number + 1].start() if number + 1 < len(comments) else len(source)
        yield plain(comment[1]), source[comment.end() : end].strip("\n")


def for_readers(source: str) -> str:
    """Without what only a compiler reads."""
    cplusplus = r"^#ifdef __cplusplus\n.*?^#endif\n"
    source = re.sub(cplusplus, "", source, flags=re.DOTALL | re.MULTILINE)
    guard = r"^#(?:ifndef|endif|if|else|include|pragma|define [A-Z_]+_H(?:PP)?$).*\n"
    return re.sub(guard, "", source, flags=re.MULTILINE)


def in_comments_of_c(source: str) -> str:
    """C++ without its namespaces of details, and with the form of comments that C has."""
    details = r"^namespace detail \{\n.*?^\} // namespace detail\n"
    source = re.sub(details, "", source, flags=re.DOTALL | re.MULTILINE)
    source = re.sub(r"^(namespace kmem \{|\} // namespace kmem)\n", "", source, flags=re.MULTILINE)
    return re.sub(
        r"(?:^//.*\n)+",
        lambda lines: f"/*\n{re.sub('^//', ' *', lines[0], flags=re.MULTILINE)} */\n",
        source,
        flags=re.MULTILINE,
    )


def declarations(code: str) -> str:
    return re.sub(r"\n{2,}", "\n\n", code).strip("\n")


def page(source: str, title: str, name: str, rules: set[str]) -> str:
    lines = [f"# {title}", "", f"Made from [{name}](../include/{name}.md) at build time.", ""]
    # The first comment is of the whole file.
    language = "cpp" if name.endswith(".hpp") else "c"
    if language == "cpp":
        source = in_comments_of_c(source)
    for text, code in sections(for_readers(source)):
        text = re.sub(r"SPDX.*\n?", "", text).strip("\n")
        if not text:
            continue
        code = declarations(code)
        if part := PART.fullmatch(text):
            lines += [f"## {part[1]}", ""]
            text = ""
        elif len(lines) > HEAD and (words := heading(text, code)):
            if words.endswith("_"):
                continue  # a helper that no program calls
            lines += [f"### {words}", ""]
        if text:
            lines += [prose(text, rules), ""]
        if code:
            lines += [f"```{language}", code, "```", ""]
    return "\n".join(lines)


def kernel_headers(root: Path, rules: set[str]) -> str:
    lines = ["# Kernel headers", ""]
    lines += [
        "Code in the kernel's idiom includes these by `<linux/NAME>`",
        "([tutorial](tutorials/kernel-code.md)). Each says",
        "what it has and where it differs. Made from `include/linux` at build time.",
        "",
    ]
    for file in sorted((root / "include" / "linux").glob("*.h")):
        found = [text for text, _ in sections(file.read_text()) if not text.startswith("SPDX")]
        lines += [f"## linux/{file.name}", "", prose(found[0], rules) if found else "", ""]
    return "\n".join(lines)


def pages(root: Path) -> dict[str, str]:
    rules = set(re.findall(r"\*\*(S\d+-\d+)\*\*", (root / "docs" / "kernel-rules.md").read_text()))
    made = {
        f"reference-{name}.md": page((root / "include" / name).read_text(), title, name, rules)
        for name, title in HEADERS.items()
    }
    for name in HEADERS:
        text = (root / "include" / name).read_text()
        made[f"../include/{name}.md"] = (
            f"---\nsearch:\n  exclude: true\n---\n# include/{name}\n\n````c\n{text}\n````\n"
        )
    return made | {"reference-linux.md": kernel_headers(root, rules)}
