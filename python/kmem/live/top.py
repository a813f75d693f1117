# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem top`: the caches of a running process, or the processes, as they change.

The sort keys are slabtop's, where it has them. When the process of a view ends, the view stays with
the last figures and a line that tells of the end.
"""

import os
import sys
import time
from collections.abc import Sequence
from typing import ClassVar

import typer
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.events import Resize
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Static

from kmem.common.errors import BadUsage, KmemError, say
from kmem.live.registry.layout import RegistryError
from kmem.live.terminal import Terminal
from kmem.live.top_rows import (
    CACHE_COLUMNS,
    MOMENTS,
    ORDERS,
    PROCESS_COLUMNS,
    Columns,
    Row,
    cache_rows,
    calls,
    cell,
    detail,
    fit,
    help_text,
    process_rows,
    process_summary,
    processes_summary,
    table,
)
from kmem.live.watch import Figures, History, Rates, Watched, read_processes


class Rows(DataTable[Text]):
    """A table that is filled anew, with the cursor where it was: on its row, or at the top."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(cursor_type="row", cell_padding=0)
        self.all = columns
        self.fitting: list[tuple[int, int]] = []
        self.rows_shown: Sequence[Row] = []
        self.keys: list[int] = []

    def text(self, index: int, width: int, cell_text: str) -> Text:
        return Text(cell(cell_text, width, is_name=not self.all[index].width) + " ")

    def lay_out(self, width: int) -> None:
        """Show the columns that the terminal has room for; one is the scroll bar's."""
        fitting = fit(self.all, width - 1)
        if fitting == self.fitting:
            return
        self.fitting = fitting
        self.clear(columns=True)
        for index, room in fitting:
            self.add_column(self.text(index, room, self.all[index].name), width=room + 1)
        self.fill(self.rows_shown, keep_row=True)

    @property
    def chosen(self) -> int | None:
        return self.keys[self.cursor_row] if self.cursor_row < len(self.keys) else None

    def fill(self, rows: Sequence[Row], *, keep_row: bool, to_top: bool = False) -> None:
        chosen, place, scroll = self.chosen, self.cursor_row, self.scroll_offset
        self.clear()
        self.rows_shown = rows
        self.keys = [key for key, _ in rows]
        for _, cells in rows:
            self.add_row(*(self.text(index, room, cells[index]) for index, room in self.fitting))
        follow = (keep_row or place > 0) and not to_top and chosen in self.keys
        self.cursor_coordinate = Coordinate(
            self.keys.index(chosen) if follow and chosen is not None else 0, 0
        )
        self.scroll_to(y=0 if to_top else scroll.y, animate=False)


class Help(ModalScreen[None]):
    """What columns and keys mean."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "dismiss", "back")
    ]

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self.columns = columns

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(help_text(self.columns), markup=False)
        yield Footer(compact=True, show_command_palette=False)


class View(Screen[None]):
    """A summary, a line for faults, and a table."""

    COLUMNS: ClassVar[Columns]
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "help", "help")]

    def __init__(self, delay: float) -> None:
        super().__init__()
        self.delay = delay
        self.history = History(MOMENTS)
        self.rates = Rates()

    def compose(self) -> ComposeResult:
        yield Static(id="summary", markup=False)
        yield Static(id="state", markup=False)
        yield Rows(self.COLUMNS)
        yield Static(id="detail", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_resize(self, event: Resize) -> None:
        self.table.lay_out(event.size.width)

    def action_help(self) -> None:
        self.app.push_screen(Help(self.COLUMNS))

    def on_mount(self) -> None:
        self.table.lay_out(self.app.size.width)
        self.set_interval(self.delay, self.refresh_figures)
        self.refresh_figures()

    @property
    def table(self) -> Rows:
        return self.query_one(Rows)

    def say(self, where: str, lines: Sequence[str]) -> None:
        self.query_one(f"#{where}", Static).update("\n".join(lines))

    def refresh_figures(self) -> None:
        raise NotImplementedError


class ProcessView(View):
    """The caches of a process."""

    COLUMNS = CACHE_COLUMNS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back"),
        Binding("enter", "detail", "cache", priority=True),
        Binding("space", "refresh", "now", show=False),
        *(
            Binding(key, f"order('{key}')", order.name, show=key in "cgwo")
            for key, order in ORDERS.items()
        ),
    ]

    def __init__(self, watched: Watched, delay: float, order: str) -> None:
        super().__init__(delay)
        self.watched = watched
        self.order = order
        self.figures: Figures | None = None
        self.ended = False

    def refresh_figures(self) -> None:
        if self.ended:
            return
        try:
            self.figures = self.watched.read()
        except RegistryError as error:
            self.ended = True
            self.say("state", [f"{error}; these were its last figures"])
            return
        caches = self.figures.caches
        self.history.add((cache["birth"], cache.slab_bytes) for cache in caches)
        self.rates.add(((cache["birth"], calls(cache)) for cache in caches), time.monotonic())
        self.show_figures()

    def show_figures(self, *, to_top: bool = False) -> None:
        if self.figures is None:
            return
        self.say("summary", process_summary(self.figures))
        missing = self.figures.missing
        if not self.ended:
            self.say(
                "state",
                [
                    f"By {ORDERS[self.order].name}; growth over {self.window:g} s at most"
                    + (f"; {missing} caches or slots found no room" if missing else "")
                ],
            )
        rows = cache_rows(self.figures, ORDERS[self.order], self.history, self.rates)
        self.table.fill(rows, keep_row=self.has_detail, to_top=to_top)
        self.show_detail()

    @property
    def window(self) -> float:
        return self.delay * (MOMENTS - 1)

    @property
    def has_detail(self) -> bool:
        return bool(self.query_one("#detail", Static).display)

    def show_detail(self) -> None:
        if self.figures is None or not self.has_detail:
            return
        chosen = self.table.chosen
        cache = next((one for one in self.figures.caches if one["birth"] == chosen), None)
        if cache is not None:
            self.say("detail", detail(cache, self.history, self.size.width))

    def on_data_table_row_highlighted(self) -> None:
        self.show_detail()

    def action_detail(self) -> None:
        pane = self.query_one("#detail", Static)
        pane.display = not pane.display
        self.show_detail()

    def action_refresh(self) -> None:
        self.refresh_figures()

    def action_order(self, key: str) -> None:
        self.order = key
        # The first row is what one sorts for, unless the details of a cache are open.
        self.show_figures(to_top=not self.has_detail)

    def action_leave(self) -> None:
        if self.has_detail:
            self.action_detail()
            return
        self.watched.close()
        if len(self.app.screen_stack) > 2:
            self.dismiss()
        else:
            self.app.exit()


class ProcessesView(View):
    """All processes; Enter shows the caches of the selected process."""

    COLUMNS = PROCESS_COLUMNS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "caches of the process", priority=True),
        Binding("space", "refresh", "now", show=False),
    ]

    def __init__(self, delay: float, order: str) -> None:
        super().__init__(delay)
        self.order = order
        self.refused = False  # the line shows refusals

    def refresh_figures(self) -> None:
        refusals: list[str] = []
        try:
            processes = read_processes(refusals)
        except OSError as error:
            # No descriptors were left; the next look may have them.
            self.say("state", [f"nothing could be read: {error.strerror}"])
            return
        if refusals:
            more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
            self.say("state", [f"left out: {refusals[0]}{more}"])
        elif self.refused:
            self.say("state", [""])
        self.refused = bool(refusals)
        self.history.add((figures.process, figures.slab_bytes) for figures in processes)
        totals = [(each.process, sum(map(calls, each.caches))) for each in processes]
        self.rates.add(totals, time.monotonic())
        self.say("summary", processes_summary(processes))
        self.table.fill(process_rows(processes, self.history, self.rates), keep_row=False)

    def action_refresh(self) -> None:
        self.refresh_figures()

    def action_choose(self) -> None:
        chosen = self.table.chosen
        if chosen is None:
            self.say("state", ["there is no process on libkmem to show"])
            return
        try:
            watched = Watched(chosen)
        except RegistryError as error:
            self.say("state", [str(error)])
            return
        self.say("state", [""])
        self.app.push_screen(ProcessView(watched, self.delay, self.order))


class Top(App[None]):
    """The whole screen application."""

    CSS = """
    Screen { overflow: hidden; }
    #summary, #state { height: auto; max-height: 40%; }
    #state { min-height: 1; text-style: bold; }
    Rows { height: 1fr; min-height: 3; scrollbar-size-vertical: 1; }
    Help { align: center middle; }
    Help VerticalScroll { width: 90; max-width: 100%; height: auto; max-height: 100%;
        border: solid $primary; padding: 0 1; }
    #detail { height: auto; max-height: 45%; display: none; border-top: solid $primary;
        text-wrap: nowrap; text-overflow: ellipsis; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        # Ctrl-C ends every other command; Textual's own answer to it names another key.
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, process: int | None, delay: float, order: str = "c") -> None:
        super().__init__(driver_class=Terminal, ansi_color=True)
        self.delay = delay
        self.order = order
        # Open it before there is a screen, so that an error is printed on the terminal.
        self.watched = None if process is None else Watched(process)

    def on_mount(self) -> None:
        first = (
            ProcessesView(self.delay, self.order)
            if self.watched is None
            else ProcessView(self.watched, self.delay, self.order)
        )
        self.push_screen(first)


def print_once(process: int | None, order: str) -> None:
    history, rates = History(MOMENTS), Rates()
    if process is None:
        refusals: list[str] = []
        processes = read_processes(refusals)
        for refusal in refusals:
            say(refusal)
        lines, columns = processes_summary(processes), PROCESS_COLUMNS
        rows = process_rows(processes, history, rates)
    else:
        watched = Watched(process)
        figures = watched.read()
        watched.close()
        lines, columns = process_summary(figures), CACHE_COLUMNS
        rows = cache_rows(figures, ORDERS[order], history, rates)
    for text in [*lines, *table(columns, rows)]:
        typer.echo(text)


def show_top(process: int | None, *, delay: float, order: str, once: bool) -> None:
    if order not in ORDERS:
        names = ", ".join(f"{key} ({order.name})" for key, order in ORDERS.items())
        raise BadUsage(f"top: --sort {order}: expected one of {names}")
    if not 0.1 <= delay <= 3600:
        raise BadUsage(f"top: --delay {delay:g}: expected 0.1 to 3600 seconds")
    if once:
        if order == "g":
            raise BadUsage("top: --sort g: growth needs two looks; expected no --once")
        print_once(process, order)
        return
    app = Top(process, delay, order)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise KmemError("top: needs a terminal; --once prints one table")
    if os.environ.get("TERM") == "dumb":
        raise KmemError(
            "top: TERM is dumb; expected a terminal that moves its cursor; --once prints one table"
        )
    app.run()
    if app.return_code:
        raise typer.Exit(app.return_code)
