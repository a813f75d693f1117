# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The flame graph as a page, in a browser: zoom, search, inversion, keys, narrow and dark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kmem.live.lines import Line
from kmem.live.pprof import Frame, Mapping, Row
from kmem.live.profile_files import Profile, write_files

SHOP = Mapping(0x1000, 0x2000, 0, "/usr/bin/shop")
LIBRARY = Mapping(0x5000, 0x6000, 0, "/usr/lib/libcart.so.1")
EVIL = "</script><b id=evil>&amp;"
MIB = 1 << 20


def row(size: int, *names: str) -> Row:
    """A stack, innermost first; what begins with cart is in the library, *.py: in Python."""

    def frame(name: str) -> Frame:
        if name.endswith(".py"):
            return Frame(0, (Line(name, f"/srv/{name}", 7),), None)
        return Frame(7, (Line(name),), LIBRARY if name.startswith("cart") else SHOP)

    return Row(tuple(map(frame, names)), (1, 2 * size, 1, size))


ROWS = [
    row(3 * MIB, "cart_add", "order", "main"),
    row(1 * MIB, "cart_add", "view.py", "main"),
    row(2 * MIB, "order", "order", "main"),
    row(2 * MIB, EVIL, "main"),
]


@pytest.fixture
def opened(new_page: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    def open_page(rows: list[Row] = ROWS, *, width: int = 1200, signed: bool = False) -> Any:
        path = tmp_path / "heap.html"
        made = Profile(
            rows, "process 7", 4096, 10**18, 4 * 10**9, "libkmem, process 7: shop --all <x>", signed
        )
        write_files(made, "live", [path])
        page = new_page(width, 20000, ("file:", "data:"), True)
        page.goto(path.as_uri())
        return page

    return open_page


@pytest.mark.parametrize("signed", [False, True])
def test_a_page_without_stacks_says_so(opened: Callable[..., Any], signed: bool) -> None:
    page = opened([], signed=signed)
    expected = "Nothing grew and nothing shrank" if signed else "Nothing was sampled"
    assert page.locator("#graph").inner_text().startswith(expected)


@pytest.mark.parametrize("width", [360, 1200])
def test_the_words_of_the_page_are_explained(opened: Callable[..., Any], width: int) -> None:
    page = opened(width=width)
    meaning = page.locator("#meaning").inner_text()
    for word in ("Own", "with callees", "sample", "Stacks"):
        assert word in meaning
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0


def box(page: Any, label: str) -> Any:
    return page.locator(f"[role=treeitem][aria-label^={json.dumps(label + ',')}]")


def labels(page: Any) -> list[str]:
    return [item.get_attribute("aria-label") for item in page.get_by_role("treeitem").all()]


def test_head_and_boxes(opened: Callable[..., Any]) -> None:
    page = opened()
    assert page.title() == page.locator("h1").inner_text() == "process 7: bytes in use"
    assert page.locator("#command").inner_text() == "libkmem, process 7: shop --all <x>"
    facts = page.locator("#facts").inner_text()
    for text in ("8.00 MiB", "4.00 MiB/s", "2001-09-09", "4.0 s", "4.00 KiB"):
        assert text in facts
    assert labels(page)[:2] == ["all, 8.00 MiB, 100.0%", "main, 8.00 MiB, 100.0%"]
    assert "order, 5.00 MiB, 62.5%" in labels(page)
    assert page.locator("#evil").count() == 0
    assert box(page, EVIL).inner_text() == EVIL
    # The root is the uppermost; widths are shares.
    outer, inner = box(page, "main").bounding_box(), box(page, "cart_add").first.bounding_box()
    assert outer["y"] < inner["y"]
    assert inner["width"] / outer["width"] == pytest.approx(3 / 8, abs=0.01)


def test_colours_are_of_libraries(opened: Callable[..., Any]) -> None:
    page = opened()
    colours = {
        name: box(page, name).first.evaluate("it => getComputedStyle(it).backgroundColor")
        for name in ("main", "order", "cart_add", "view.py")
    }
    assert colours["main"] == colours["order"]
    assert len(set(colours.values())) == 3
    assert page.locator("#legend li").all_inner_texts() == ["shop", "libcart.so.1", "Python"]


def test_zoom(opened: Callable[..., Any]) -> None:
    page = opened()
    assert page.get_by_role("button", name="whole graph").is_disabled()
    box(page, "order").first.click()
    assert labels(page)[:3] == [
        "all, 8.00 MiB, 100.0%",
        "main, 8.00 MiB, 100.0%",
        "order, 5.00 MiB, 62.5%",
    ]
    widths = [item.bounding_box()["width"] for item in page.get_by_role("treeitem").all()]
    assert widths[0] == widths[1] == widths[2] and len(widths) == 5
    page.get_by_role("button", name="whole graph").click()
    assert len(labels(page)) == 8


def test_search_counts_a_stack_once(opened: Callable[..., Any]) -> None:
    page = opened()
    page.get_by_label("Search").fill("ORDER")
    assert page.locator("#matched").inner_text() == "5.00 MiB, 62.5% in 2 stacks"
    assert page.locator(".box.matched").count() == 2
    page.get_by_label("Search").fill("/srv/")
    assert page.locator("#matched").inner_text() == "1.00 MiB, 12.5% in 1 stacks"
    page.get_by_label("Search").fill("")
    assert page.locator("#matched").inner_text() == ""
    assert page.locator(".box.matched").count() == 0


def test_inverted(opened: Callable[..., Any]) -> None:
    page = opened()
    button = page.get_by_role("button", name="invert")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert "cart_add, 4.00 MiB, 50.0%" in labels(page)
    levels = box(page, "cart_add").get_attribute("aria-level")
    assert levels == "2" and box(page, "main").count() == 4
    button.click()
    assert box(page, "main").count() == 1


def test_keys(opened: Callable[..., Any]) -> None:
    page = opened()

    def focused() -> str:
        return str(page.evaluate("document.activeElement.getAttribute('aria-label')"))

    # One box of the tree is in the order of the tabulator.
    assert page.locator(".box[tabindex='0']").count() == 1
    page.locator(".box[tabindex='0']").focus()
    assert focused().startswith("all,")
    for key, expected in (
        ("ArrowDown", "main,"),
        ("ArrowDown", "order, 5.00"),
        ("ArrowRight", EVIL),
        ("ArrowLeft", "order, 5.00"),
        ("ArrowDown", "cart_add, 3.00"),
        ("ArrowUp", "order, 5.00"),
    ):
        page.keyboard.press(key)
        assert focused().startswith(expected), (key, focused())
    assert page.locator("#chosen").inner_text().startswith("order, 5.00 MiB, 62.5%")
    page.keyboard.press("Enter")
    assert focused().startswith("order, 5.00")
    assert box(page, EVIL).count() == 0
    page.keyboard.press("Escape")
    assert box(page, EVIL).count() == 1
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


def test_functions(opened: Callable[..., Any]) -> None:
    page = opened()
    rows = page.locator("#functions tbody tr").all_inner_texts()
    assert re.split(r"\s+", rows[0].strip()) == ["4.00", "MiB", "4.00", "MiB", "cart_add"]
    page.locator("#functions button", has_text="view.py").click()
    assert page.locator("#matched").inner_text() == "1.00 MiB, 12.5% in 1 stacks"


def test_growth(opened: Callable[..., Any]) -> None:
    page = opened([row(3 * MIB, "order", "main"), row(-MIB, "cart_add", "main")], signed=True)
    assert page.title() == "process 7: bytes in use, growth"
    assert {"order, +3.00 MiB, 75.0%", "cart_add, \N{MINUS SIGN}1.00 MiB, -25.0%"} <= set(
        labels(page)
    )

    def channels(name: str) -> list[int]:
        fill = box(page, name).evaluate("it => getComputedStyle(it).backgroundColor")
        return [int(number) for number in re.findall(r"\d+", fill)]

    red, _, blue = channels("order")
    assert red > blue
    red, _, blue = channels("cart_add")
    assert blue > red
    assert page.locator("#legend li").all_inner_texts() == ["grew", "shrank"]
    assert "+2.00 MiB" in page.locator("#facts").inner_text()


def contrast(page: Any, selector: str) -> float:
    """Of text to its ground, as WCAG 2 has it."""

    def luminance(colour: str) -> float:
        parts = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    found = page.locator(selector).first.evaluate(
        "it => [getComputedStyle(it).color, getComputedStyle(it).backgroundColor]"
    )
    light, dark = sorted(map(luminance, found), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("signed", [False, True])
def test_narrow_light_and_dark(opened: Callable[..., Any], scheme: str, signed: bool) -> None:
    page = opened(width=390, signed=signed)
    page.emulate_media(color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ("main", "order", "cart_add", "view.py"):
        label = f".box[aria-label^='{name},']"
        assert contrast(page, label) >= 4.5, (scheme, name)
    ground = page.locator("body").evaluate("it => getComputedStyle(it).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")


def test_nothing_to_show(opened: Callable[..., Any]) -> None:
    page = opened([])
    assert labels(page) == []
    page.get_by_label("Search").fill("x")
    assert page.locator("#matched").inner_text() == "0 bytes, 0.0% in 0 stacks"


def test_one_file_without_network(tmp_path: Path) -> None:
    path = tmp_path / "heap.html"
    write_files(Profile(ROWS, "x", 1, 1, 1, "c"), "live", [path])
    text = path.read_text()
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", text)
    assert "default-src 'none'" in text
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)
    assert EVIL in [name for name, *_ in json.loads(data)["functions"]]
