# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The plots of `kmem lab slob`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kmem.lab.churn import Churn
from kmem.lab.report import Plot
from kmem.lab.slob_figures import is_judged, mail_overheads
from kmem.lab.slob_runs import LISTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "SLOB, one": "crimson",
    "SLOB, two": "tab:blue",
    "SLOB, three": "tab:green",
    "SLUB": "tab:orange",
    "SLAB": "tab:purple",
}


def plot_trace(trace: Mapping[str, Any], panels: Sequence[Axes]) -> None:
    headings = (
        ("overhead_percent", "pages over the optimum, %"),
        ("full_pages", "perfectly full pages"),
        ("fragments", "fragments"),
        ("page_scans", "page scans so far"),
    )
    for axes, (name, heading) in zip(panels, headings, strict=True):
        axes.set_title(heading, fontsize="medium")
        axes.set_xlabel("events")
        axes.grid(alpha=0.3)
        for label, colour in COLOURS.items():
            values = trace["rows"][label]["moments"].get(name)
            if values is None:
                continue
            pairs = [
                (step, value)
                for step, value, best in zip(
                    trace["steps"], values, trace["optimum_pages"], strict=True
                )
                if is_judged(best) or name != "overhead_percent"
            ]
            steps, shown = zip(*pairs, strict=True) if pairs else ((), ())
            axes.plot(steps, shown, color=colour, label=label)
    panels[0].set_yscale("symlog", linthresh=1)
    panels[0].set_ylim(bottom=0)
    panels[0].legend(fontsize="x-small")


def plot_breaks(rows: Sequence[Mapping[str, Any]], panels: Sequence[Axes]) -> None:
    traces = list(dict.fromkeys(row["trace"] for row in rows))
    for axes, (name, heading) in zip(
        panels,
        (("mean_overhead_percent", "mean over all moments, %"), ("page_scans", "page scans")),
        strict=True,
    ):
        for trace in traces:
            of_trace = [row for row in rows if row["trace"] == trace and row[name] is not None]
            axes.plot(
                [row["break_bytes"] for row in of_trace],
                [row[name] for row in of_trace],
                marker=".",
                label=trace,
            )
        axes.axvline(300, color="grey", linestyle=":")
        axes.set_xscale("log", base=2)
        axes.set_xlabel("break, bytes (dotted: the mail's 300)")
        axes.set_title(heading, fontsize="medium")
        axes.grid(alpha=0.3)
    panels[1].set_yscale("log")
    panels[0].legend(fontsize="x-small")


def plot_churn(rows: Sequence[Mapping[str, Any]], panels: Sequence[Axes]) -> None:
    usual = Churn()
    for axes, (name, heading) in zip(
        panels,
        (
            ("overlap", "share of large blocks with a lasting object made in their life"),
            ("large_bytes", f"bytes of the large block, share {usual.overlap:g}"),
        ),
        strict=True,
    ):
        other = "large_bytes" if name == "overlap" else "overlap"
        for label in LISTS:
            line = sorted(
                (row[name], row["overhead_percent"])
                for row in rows
                if row["lists"] == label and row[other] == getattr(usual, other)
            )
            xs, ys = zip(*line, strict=True)
            axes.plot(
                xs,
                ys,
                marker=".",
                color=COLOURS[f"SLOB, {label}"],
                label=f"{label} list{'s' if label != 'one' else ''}",
            )
        for label, said in mail_overheads().items():
            axes.axhline(said, color=COLOURS[f"SLOB, {label}"], linestyle=":")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(heading)
        axes.set_title("overhead at the end, % (dotted: the mail)", fontsize="medium")
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize="small")


def plot_spread(rows: Sequence[Mapping[str, Any]], panels: Sequence[Axes]) -> None:
    (axes,) = panels
    for number, row in enumerate(rows):
        colour = COLOURS.get(f"SLOB, {row['lists']}", COLOURS["SLUB"])
        away = [4 * (pages - row["mean"]) for pages in row["pages"]]
        axes.plot(away, [number] * len(away), "|", color=colour, markersize=10)
    axes.set_yticks(
        range(len(rows)), [f"{row['trace']}, {row['lists']}" for row in rows], fontsize="x-small"
    )
    axes.invert_yaxis()
    axes.set_xlabel("kB from the mean of the runs")
    axes.grid(alpha=0.3)


def plots_of(document: Mapping[str, Any]) -> list[Plot]:
    plots = [
        Plot(name, lambda panels, trace=trace: plot_trace(trace, panels), 4)  # type: ignore[misc]
        for name, trace in document["traces"].items()
    ]
    return [
        *plots,
        Plot(
            "when one list fails: a made-up boot",
            lambda panels: plot_churn(document["churn"], panels),
            2,
        ),
        Plot("two lists by their break", lambda panels: plot_breaks(document["breaks"], panels), 2),
        Plot("pages at the end, run by run", lambda p: plot_spread(document["permutations"], p)),
    ]
