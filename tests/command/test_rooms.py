# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The rooms of python/kmem import each other as the table of its README.md says, and no others."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

KMEM = Path(__file__).resolve().parents[2] / "python" / "kmem"
MODULES = sorted(KMEM.rglob("*.py"))
ROW = re.compile(r"\| `(\w+)` \|[^|]+\|([^|]*)\|")


def room_of(module: str) -> str:
    """Of kmem.live.registry.file it is live."""
    return module.split(".")[1]


def imports_of(path: Path) -> Iterator[str]:
    """Modules that a file imports, in its functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: expected an import by the whole name"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def table() -> dict[str, set[str]]:
    """By room the others that it imports."""
    rows = ROW.findall((KMEM / "README.md").read_text(encoding="utf-8"))
    return {room: set(re.findall(r"`(\w+)`", text)) for room, text in rows}


def test_the_table_has_all_rooms() -> None:
    assert set(table()) == {path.parent.name for path in KMEM.glob("*/__init__.py")}


@pytest.mark.parametrize("room", table())
def test_a_room_imports_those_of_its_row(room: str) -> None:
    found = {
        room_of(module)
        for path in (KMEM / room).rglob("*.py")
        for module in imports_of(path)
        if module.startswith("kmem.")
    }
    assert found - {room} == table()[room]


def test_no_room_imports_itself_through_others() -> None:
    above: set[str] = set()
    for room, imported in table().items():
        assert not imported & above, f"{room} imports what stands above it in the table"
        above |= {room}


def test_modules_are_in_rooms() -> None:
    """At the root there is only what Python asks for."""
    assert {path.name for path in KMEM.glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(KMEM)))
def test_no_private_module_is_imported(path: Path) -> None:
    for module in imports_of(path):
        parts = module.removeprefix("__future__").split(".")
        assert not any(part.startswith("_") for part in parts), module
