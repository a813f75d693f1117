# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The page of reports in a browser: tables that can be sorted, plots without formulas, links to the
mails, and dark and narrow screens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from kmem.lab.mails import MAILS
from kmem.lab.page import as_html
from kmem.lab.report import Plot, Report, table

NARROW = {"width": 360, "height": 740}


def draw(panels: Any) -> None:
    logarithmic, symmetric, dense = panels
    logarithmic.plot([1, 10, 1000, 20000], [1, 2, 3, 4], color="black")
    logarithmic.set_xscale("log")
    logarithmic.set_yscale("log", base=2)
    symmetric.plot([1, 2], [0, 5000])
    symmetric.set_yscale("symlog", linthresh=1)
    dense.plot([1, 2], [0.2, 0.7])
    dense.set_yscale("log")


def report() -> Report:
    rows = table("sizes", ("cache", "objects", "change"))
    for cells in (
        ("dentry", "1,200", "-3.5%"),
        ("", "90", "+12.0%"),
        ("inode", "-", "-20.1%"),
        ("buffer", "345 (12)", "+1.0%"),
    ):
        rows.add_row(*cells, end_section=cells[0] == "")
    wide = table("wide", [f"column {number}" for number in range(30)])
    wide.add_row(*("a long cell" for _ in range(30)))
    plots = [Plot("a plot of <b>", draw, 3)]
    return Report("slob", "title", {}, [rows, "a line\nand another", wide], ["note"], plots)


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    file = tmp_path / "page.html"
    file.write_text(as_html("t", [report()]), encoding="utf-8")
    pages = []

    def open_page(**how: Any) -> Page:
        page = browser.new_page(**how)
        page.goto(file.as_uri())
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()


def column(page: Page, number: int) -> list[str]:
    cells = page.locator(f"table >> nth=0 >> tbody tr td:nth-child({number})")
    return cells.all_inner_texts()


def ways(page: Page) -> list[str | None]:
    heads = page.locator("table >> nth=0 >> th").all()
    return [head.get_attribute("aria-sort") for head in heads]


def test_a_click_sorts_by_numbers(opened: Callable[..., Page]) -> None:
    page = opened()
    assert ways(page) == ["none"] * 3
    button = page.get_by_role("button", name="objects")
    button.click()
    assert column(page, 2) == ["90", "345 (12)", "1,200", "-"]
    assert ways(page) == ["none", "ascending", "none"]
    button.click()
    assert column(page, 2) == ["1,200", "345 (12)", "90", "-"]
    assert ways(page) == ["none", "descending", "none"]
    button.click()
    assert column(page, 2) == ["1,200", "90", "-", "345 (12)"]
    assert ways(page) == ["none"] * 3
    page.get_by_role("button", name="change").click()
    assert column(page, 3) == ["-20.1%", "-3.5%", "+1.0%", "+12.0%"]


def test_the_keyboard_sorts(opened: Callable[..., Page]) -> None:
    page = opened()
    page.locator("table >> nth=0 >> th button >> nth=0").focus()
    page.keyboard.press("Enter")
    assert ways(page) == ["ascending", "none", "none"]
    assert column(page, 1) == ["buffer", "dentry", "dentry", "inode"]
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert ways(page) == ["none", "ascending", "none"]


def test_every_heading_and_box_is_reached_by_tab(opened: Callable[..., Page]) -> None:
    page = opened()
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "(e => e.tagName + ' ' + (e.getAttribute('aria-label') || e.textContent.trim()))"
                "(document.activeElement)"
            )
        )
    assert {"DIV sizes", "DIV wide", "BUTTON objects", "BUTTON column 29"} <= reached
    assert f"A {MAILS[1].subject}" in reached


def test_a_row_keeps_its_label_when_it_is_sorted(opened: Callable[..., Page]) -> None:
    page = opened()
    page.get_by_role("button", name="objects").click()
    first = page.locator("table >> nth=0 >> tbody tr >> nth=0 >> td >> nth=0")
    assert first.inner_text() == "dentry"
    assert first.evaluate("cell => getComputedStyle(cell).opacity") == "1"


def test_numbers_at_logarithmic_axes(opened: Callable[..., Page]) -> None:
    """No formula, and numbers at axes of each kind."""
    texts = opened().locator("svg text").all_text_contents()
    assert not [text for text in texts if "$" in text or "\\" in text]
    assert {"10", "1,000", "10,000", "2", "4", "0"} <= set(texts)
    assert {"0.2", "0.3", "0.4"} <= set(texts)  # a part of a decade


def test_mails_are_linked() -> None:
    reports = [
        Report(name, "title", {}) for name in ("lists", "cpu-partial", "slob", "bulk", "freeze")
    ]
    page = as_html("t", [*reports, Report("order", "title", {}), Report("sheaves", "title", {})])
    addresses = re.findall(r'href="(https://[^"]+)"', page)
    assert set(addresses) == {mail.address for mail in MAILS}
    assert len(addresses) == 6
    assert "kfree_bulk() for SLAB+SLUB allocators</a>, Jesper Dangaard Brouer, 12 January" in page


def luminance(colour: str) -> float:
    """Relative, of rgb(...), as the guidelines for accessible content define it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_screens_of_both_kinds(
    opened: Callable[..., Page], scheme: str
) -> None:
    page = opened(color_scheme=scheme)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(paper) > 0.5) == (scheme == "light")
    for what, kind in (
        ("p", "color"),
        ("p a", "color"),
        ("td", "color"),
        ("th button", "color"),
        ("svg text", "fill"),
    ):
        colour = page.locator(what).first.evaluate(f"e => getComputedStyle(e).{kind}")
        assert contrast(colour, paper) > 7, (what, colour, paper)
    # Matplotlib's sheet has the page's colour, and the line that is drawn in black its ink.
    fills = page.locator("svg path").evaluate_all("all => all.map(e => getComputedStyle(e).fill)")
    assert fills[0] == paper
    strokes = page.locator("svg path").evaluate_all(
        "all => all.map(e => getComputedStyle(e).stroke)"
    )
    assert page.evaluate("getComputedStyle(document.body).color") in strokes


def test_a_narrow_screen_scrolls_tables_in_their_boxes(opened: Callable[..., Page]) -> None:
    page = opened(viewport=NARROW)
    assert page.evaluate("document.scrollingElement.scrollWidth") == NARROW["width"]
    boxes = page.locator(".box").evaluate_all("all => all.map(e => [e.clientWidth, e.scrollWidth])")
    assert all(shown <= NARROW["width"] for shown, _ in boxes)
    assert boxes[1][1] > 5 * boxes[1][0]
    figure = page.locator("figure").evaluate("e => [e.clientWidth, e.scrollWidth]")
    assert figure[0] < NARROW["width"] < figure[1]


def test_a_sentence_in_the_last_column_breaks_and_is_not_cut(
    browser: Browser, tmp_path: Path
) -> None:
    rows = table("what would come back", ("by", "KiB", "how"))
    rows.columns[2].justify = "left"
    rows.add_row("slub_max_order=0", "-6,930 c", "free where as many pages have no object " * 9)
    file = tmp_path / "sentences.html"
    file.write_text(as_html("t", [Report("t", "t", {}, [rows], [], [])]), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(file.as_uri())
    shown, needed = page.locator(".box").evaluate("e => [e.clientWidth, e.scrollWidth]")
    page.close()
    assert needed <= shown
