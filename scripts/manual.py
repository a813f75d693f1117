# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Manual pages: manual.py FOLDER writes them to FOLDER/man1, man3 and man7.

Every sentence has its source elsewhere: the commands' help, the comments of include/kmem.h, and the
table of docs/options.md.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from commands import Command, all_commands, run_help
from installed import ROOT, VERSION

HEADER = ROOT / "include" / "kmem.h"
SECTION = re.compile(r"^/\* ---- (.+?) -+ \*/$", re.MULTILINE)
FUNCTION = re.compile(r"(?<![\w.>])\*?([a-z]\w+)\((?!\*)")
PARAMETER = re.compile(r"^(@\w+(?:, @\w+)*): *(.*)$")
# malloc's and the system's own pages have these names.
TAKEN = {"free", "malloc", "calloc", "realloc"}


def roff(text: str) -> str:
    """Text for a page. No line of it is taken for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.MULTILINE)


def bold(text: str) -> str:
    return rf"\fB{roff(text)}\fR"


def code(text: str) -> str:
    return f".PP\n.nf\n.RS 4\n{roff(text)}\n.RE\n.fi"


def head(name: str, section: int, summary: str) -> list[str]:
    return [
        '.\\" SPDX-License-Identifier: Apache-2.0 OR MIT',
        f'.TH {roff(name)} {section} "" "libkmem {roff(VERSION)}" "libkmem"',
        ".SH NAME",
        rf"{roff(name)} \- {roff(summary)}",
    ]


def paragraphs(text: str) -> Iterator[str]:
    """Click's texts: a paragraph after a backspace keeps its lines."""
    for paragraph in filter(str.strip, re.split(r"\n\s*\n", text)):
        if paragraph.lstrip().startswith("\b"):
            yield code(paragraph.replace("\b", "").strip("\n"))
        else:
            yield f".PP\n{roff(' '.join(paragraph.split()))}"


def listed(rows: list[tuple[str, str]]) -> list[str]:
    return [line for term, text in rows for line in (".TP", bold(term), roff(text or " "))]


def command_page(command: Command) -> str:
    name = "-".join(command.words)
    summary, _, rest = command.help.partition("\n\n")
    lines = head(name, 1, " ".join(summary.split()).rstrip("."))
    lines += [".SH SYNOPSIS", f"{bold(' '.join(command.words))} {roff(command.usage)}"]
    if rest.strip():
        lines += [".SH DESCRIPTION", *paragraphs(rest)]
    for title, rows in (
        ("ARGUMENTS", command.arguments),
        ("OPTIONS", command.options),
        ("COMMANDS", command.commands),
    ):
        if rows:
            lines += [f".SH {title}", *listed(rows)]
    others = [command.words[:-1]] if len(command.words) > 1 else [["kmem-options"]]
    others += [[*command.words, word] for word, _ in command.commands]
    pages = [
        f".BR {roff('-'.join(words))} ({7 if words == ['kmem-options'] else 1})" for words in others
    ]
    return "\n".join([*lines, ".SH SEE ALSO", ",\n".join(pages)]) + "\n"


def run_page() -> str:
    """`kmem run` is the launcher's, with a help of its own."""
    usage, _, rest = run_help().partition("\n\n")
    text, _, options = rest.partition("\n\n")
    return (
        "\n".join(
            [
                *head("kmem-run", 1, "run a program with malloc from libkmem"),
                ".SH SYNOPSIS",
                code(usage.removeprefix("usage: ")),
                ".SH DESCRIPTION",
                *paragraphs(text),
                ".SH OPTIONS",
                code(options.rstrip()),
                ".SH SEE ALSO",
                ".BR kmem (1),\n.BR kmem\\-options (7)",
            ]
        )
        + "\n"
    )


@dataclass
class Block:
    """A comment of the header and the declarations below it."""

    comment: list[str]
    code: list[str]

    def functions(self) -> list[str]:
        text = "\n".join(line for line in self.code if not line.startswith(("#", "typedef", " * ")))
        return (
            []
            if text.startswith("struct") and text.endswith("};")
            else FUNCTION.findall(re.sub(r"__attribute__.*?;", ";", text, flags=re.DOTALL))
        )


def without_bodies(text: str) -> str:
    """Inline functions as declarations; what only C++ sees is left out."""
    text = re.sub(
        r"^#ifdef __cplusplus\n.*?^#(?:endif|else)\n", "", text, flags=re.MULTILINE | re.DOTALL
    )
    return re.sub(
        r"^static inline ([^{;]*?)\n\{\n.*?^\}$", r"\1;", text, flags=re.MULTILINE | re.DOTALL
    )


def blocks_of(text: str) -> Iterator[Block]:
    for part in without_bodies(text).split("\n\n"):
        lines = part.strip("\n").splitlines()
        comment: list[str] = []
        if lines and lines[0].startswith("/*"):
            while lines:
                line = lines.pop(0)
                comment.append(re.sub(r"^\s*(/\*|\*(?!/))? ?|\s*\*/\s*$", "", line))
                if line.rstrip().endswith("*/"):
                    break
        block = Block(comment, lines)
        if comment or lines:
            yield block


def described(comment: list[str]) -> Iterator[str]:
    """A comment: parameters as a list, other lines as paragraphs."""
    fresh = True
    for line in comment:
        if match := PARAMETER.match(line):
            yield f".TP\n\\fI{roff(match[1].replace('@', ''))}\\fR\n{roff(match[2] or ' ')}"
            fresh = False
        elif not line.strip():
            fresh = True
        else:
            if fresh:
                yield ".PP"
            fresh = False
            yield roff(re.sub(r"@(?=\w)", "", line.strip()))


def function_page(name: str, title: str, blocks: list[Block]) -> str:
    functions = [name for block in blocks for name in block.functions()]
    lines = head(name, 3, f"libkmem: {title[0].lower()}{title[1:]}")
    lines += [".SH SYNOPSIS", code("#include <kmem.h>\n\ncc ... \\-lkmem".replace("\\-", "-"))]
    if functions:
        lines.append(f".PP\n{roff(', '.join(dict.fromkeys(functions)))}")
    lines.append(".SH DESCRIPTION")
    for block in blocks:
        if block.code:
            lines.append(code("\n".join(block.code)))
        lines += described(block.comment)
    return "\n".join([*lines, ".SH SEE ALSO", ".BR kmem (3),\n.BR kmem\\-options (7)"]) + "\n"


def header_pages() -> Iterator[tuple[str, str]]:
    """File names in man3 and their texts: an overview, a page a section, a link a function."""
    opening, *rest = SECTION.split(HEADER.read_text(encoding="utf-8"))
    sections = list(zip(rest[::2], rest[1::2], strict=True))
    about = next(block for block in blocks_of(opening) if "SPDX" in block.comment[0])
    overview = head("kmem", 3, "the Linux slab allocators for programs")
    overview += [
        ".SH SYNOPSIS",
        code("#include <kmem.h>\n\ncc program.c $(pkg-config --cflags --libs kmem)"),
    ]
    second = opening.split("*/", 2)[1]
    text = [re.sub(r"^\s*(/\*|\*)? ?", "", line) for line in second.splitlines()]
    assert about.comment
    overview += [".SH DESCRIPTION", *described(text), ".SH PAGES"]
    for title, text_of in sections:
        name = "kmem-" + title.lower().replace(" ", "-")
        blocks = list(blocks_of(text_of))
        yield f"{name}.3", function_page(name, title, blocks)
        functions = dict.fromkeys(one for block in blocks for one in block.functions())
        overview += [".TP", f".BR {roff(name)} (3)", roff(", ".join(functions) or title)]
        for function in functions:
            if function not in TAKEN:
                yield f"{function}.3", f".so man3/{name}.3\n"
    yield (
        "kmem.3",
        "\n".join([*overview, ".SH SEE ALSO", ".BR kmem (1),\n.BR kmem\\-options (7)"]) + "\n",
    )


def plain(text: str) -> str:
    """A cell of a table without Markdown's marks."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("**", "").strip()


def options_page() -> str:
    """docs/options.md up to its next heading."""
    text = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    section = text.split("# Options\n", 1)[1].split("\n## ", 1)[0].strip()
    lines = head("kmem-options", 7, "options of libkmem: the variable KMEM_OPTIONS")
    lines.append(".SH DESCRIPTION")
    shown = False
    for paragraph in section.split("\n\n"):
        if not paragraph.startswith("|"):
            lines.append(f".PP\n{roff(plain(' '.join(paragraph.split())))}")
            continue
        for row in paragraph.splitlines()[2:]:
            option, values, effect = (plain(cell) for cell in row.strip("| ").split(" | "))
            lines += [".TP", f"{bold(option)}: {roff(values)}", roff(effect)]
            shown = True
    assert shown, "docs/options.md: expected a table of options"
    return "\n".join([*lines, ".SH SEE ALSO", ".BR kmem\\-run (1),\n.BR kmem (3)"]) + "\n"


def pages() -> dict[str, str]:
    """All pages by their names below the folder of manuals."""
    found = {f"man1/{'-'.join(one.words)}.1": command_page(one) for one in all_commands()}
    found["man1/kmem-run.1"] = run_page()
    found |= {f"man3/{name}": text for name, text in header_pages()}
    found["man7/kmem-options.7"] = options_page()
    return found


def main(folder: Path) -> None:
    for name, text in pages().items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
