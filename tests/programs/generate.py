# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Generates inputs that are too long to be kept: C sources, and the history of a repository."""

from collections.abc import Iterator


def c_function(number: int) -> str:
    """A function with loops, branches, a switch and calls of those before it."""
    called = f"step_{number - 1}(value - 1, table)" if number else "value"
    cases = "".join(
        f"\tcase {case}:\n\t\tsum += value * {case + number}u ^ table[{(case * number) % 64}];\n"
        f"\t\tbreak;\n"
        for case in range(8)
    )
    return (
        f"static unsigned int step_{number}(unsigned int value, unsigned int *table)\n{{\n"
        f"\tunsigned int sum = {number}u;\n\n"
        f"\tfor (unsigned int i = 0; i < 64; i++)\n"
        f"\t\ttable[i] += (value >> (i % 13)) * {number % 11 + 1}u + sum;\n"
        f"\tswitch (value % 8) {{\n{cases}\t}}\n"
        f"\treturn value == 0 ? sum : sum + {called};\n}}\n"
    )


def c_source(name: str, functions: int) -> str:
    """A source whose only global is the function NAME."""
    steps = "\n".join(c_function(number) for number in range(functions))
    return (
        f"unsigned int {name}(unsigned int value);\n\n{steps}\n"
        f"unsigned int {name}(unsigned int value)\n{{\n\tunsigned int table[64] = {{0}};\n\n"
        f"\treturn step_{functions - 1}(value % 32, table);\n}}\n"
    )


def c_main(names: list[str]) -> str:
    """A program that prints what each of the functions makes of some numbers."""
    declarations = "".join(f"unsigned int {name}(unsigned int value);\n" for name in names)
    calls = "".join(f'\t\tprintf("{name} %u: %u\\n", value, {name}(value));\n' for name in names)
    return (
        f"#include <stdio.h>\n\n{declarations}\nint main(void)\n{{\n"
        f"\tfor (unsigned int value = 0; value < 20; value++) {{\n{calls}\t}}\n\treturn 0;\n}}\n"
    )


def file_content(number: int, version: int) -> str:
    lines = (
        f"line {i} of file {number}: {(i * i * (version if i % 40 == 0 else 1)) % 9973}"
        for i in range(120 + number % 50)
    )
    return "\n".join(lines) + "\n"


def commit(number: int, files: int) -> Iterator[str]:
    """One commit in the form that git fast-import reads; each changes three files."""
    message = f"Change number {number}\n\nIt touches three files.\n"
    yield "commit refs/heads/main\n"
    yield f"mark :{number + 1}\n"
    yield f"committer A U Thor <author@example.org> {1_700_000_000 + number * 60} +0000\n"
    yield f"data {len(message)}\n{message}\n"
    if number:
        yield f"from :{number}\n"
    for offset in range(3):
        file = (number * 3 + offset) % files
        content = file_content(file, number)
        yield f"M 100644 inline folder{file % 7}/file{file}.txt\n"
        yield f"data {len(content)}\n{content}\n"


def git_history(commits: int, files: int) -> str:
    """A stream for git fast-import; the same on every call, so its commits have known names."""
    parts = [part for number in range(commits) for part in commit(number, files)]
    return "".join(parts) + "done\n"
