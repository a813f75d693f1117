# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab slob`: what splitting SLOB's list of pages does to memory and time, on whole traces.

The mail that split the list looked once, after boot. Here every trace is looked at at many moments,
with one, two (the mail's) and three lists (what was merged), with 2.6.24's two faults, and beside
the other back ends. `churn.py` makes the boot that has the mail's conditions, `permutations.py` the
runs of which some go otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from kmem import trace as tr
from kmem.churn import Churn, make_churn
from kmem.lab_replays import Job, progress, replay_all
from kmem.lab_report import Plot, Report, show_experiment
from kmem.permutations import find_parts, permute
from kmem.setup import KmemError, read_mail

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRACES = Path(__file__).parent / "traces"
MAIL = "[RFC PATCH] greatly reduce SLOB external fragmentation"

LISTS = {"one": "", "two": "300", "three": "256:1024"}
KERNEL = "classes=kernel,order_rule=5.10"
SLUB = f"engine=slub,sheaf_capacity=0,{KERNEL}"  # as kernels had it until 6.17
OTHERS = {
    "SLUB": SLUB,
    "SLUB, debug": f"{SLUB},debug=FZPU",
    "SLUB, sheaves": f"engine=slub,{KERNEL}",
    "SLAB": f"engine=slab,{KERNEL}",
}
BREAKS = (32, 64, 100, 150, 200, 256, 300, 350, 410, 512, 700, 1024, 1536, 2048, 3072)
QUICK_BREAKS = (100, 300, 1024)
PAGE_KIB = (4, 16, 64)
OVERLAPS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.75, 1.0)
LARGE_BYTES = (500, 800, 1100, 1400, 1700, 2000, 2184, 2400, 2800, 3200, 3600, 4000)
QUICK_OVERLAPS, QUICK_LARGE_BYTES = (0.0, 0.3), (1400, 2184)

LARGE_FROM, LARGE_BELOW = 2000, 4088  # bytes: half of a page, and what SLOB puts into one
SHORT_EVENTS = 1000
JUDGED_KIB = 200  # moments with a smaller optimum say nothing in per cent
MOMENTS, QUICK_MOMENTS = 100, 20
SEEDS, QUICK_SEEDS = 10, 3
CHURN = "churn (made up)"

# Of the moments, as columns.
FIGURES = ("pages", "overhead_percent", "full_pages", "fragments", "average_fragment_bytes")
SCANS = ("page_scans", "block_scans")

NOTES = (
    "overhead: pages beyond the optimum of SLOB at the same moment, which is its allocated bytes,"
    " headers included, in whole pages, and the pages of large blocks; for the other back ends too,"
    " as the mail has it.",
    f"worst and mean: of the moments at which the optimum has at least {JUDGED_KIB} KiB."
    " full: pages without a free byte; fragment: a free block.",
    "2.6.24: a freed block is not merged with the one behind it if it becomes the first of its page"
    " (mended in the mail's first column), and the next search begins behind a page that got full.",
    "page scans: pages that could not serve, block scans: free blocks looked at.",
)


@dataclass(frozen=True)
class Effort:
    """How much is tried."""

    moments: int
    seeds: int
    breaks: Sequence[int]
    overlaps: Sequence[float]
    large_bytes: Sequence[int]


FULL = Effort(MOMENTS, SEEDS, BREAKS, OVERLAPS, LARGE_BYTES)
QUICK = Effort(QUICK_MOMENTS, QUICK_SEEDS, QUICK_BREAKS, QUICK_OVERLAPS, QUICK_LARGE_BYTES)


def shipped_traces() -> list[Path]:
    return sorted(TRACES.glob("*.slt.zst"))


def name_of(trace: Path) -> str:
    return re.sub(r"(\.slt|\.ktrace)?(\.zst)?$", "", trace.name)


def slob_options(breaks: str, compat: bool = False) -> str:
    return f"engine=slob,slob_breaks={breaks}" + (",slob_compat=2.6.24" if compat else "")


def configurations() -> dict[str, str]:
    lists = {
        f"SLOB, {name}{', 2.6.24' if compat else ''}": slob_options(breaks, compat)
        for compat in (False, True)
        for name, breaks in LISTS.items()
    }
    return lists | OTHERS


def percent(pages: int, optimum: int) -> float:
    return round(100 * (pages - optimum) / optimum, 2) if optimum else 0.0


def average_fragment(moment: Mapping[str, int]) -> int:
    return round(moment["unused_bytes"] / moment["fragments"]) if moment["fragments"] else 0


def is_judged(optimum_pages: int, page_kib: int = 4) -> bool:
    return optimum_pages * page_kib >= JUDGED_KIB


def summary(
    pages: Sequence[int], optimum: Sequence[int], steps: Sequence[int], page_kib: int = 4
) -> dict[str, Any]:
    """Overhead at the end and over the moments that are large enough to judge."""
    judged = [
        (percent(mine, best), step)
        for mine, best, step in zip(pages, optimum, steps, strict=True)
        if is_judged(best, page_kib)
    ]
    worst, worst_step = max(judged, default=(None, None))
    return {
        "pages": pages[-1],
        "overhead_percent": percent(pages[-1], optimum[-1]),
        "mean_overhead_percent": round(mean(o for o, _ in judged), 2) if judged else None,
        "worst_overhead_percent": worst,
        "worst_step": worst_step,
    }


def column(document: Mapping[str, Any], name: str) -> list[int]:
    return [moment[name] for moment in document["moments"]]


def statistics_of(
    document: Mapping[str, Any], optimum: Sequence[int], options: str
) -> dict[str, Any]:
    """A row of a trace's table, with its moments."""
    pages = column(document, "pages")
    row: dict[str, Any] = {"options": options}
    row |= summary(pages, optimum, column(document, "steps"))
    row["ns_per_call"] = document["modelled"]["ns_per_call"]
    moments: dict[str, list[Any]] = {
        "pages": pages,
        "overhead_percent": [percent(*pair) for pair in zip(pages, optimum, strict=True)],
    }
    if "slob" in document:
        last = document["moments"][-1]
        row |= {name: last[name] for name in ("full_pages", "fragments", "unused_bytes", *SCANS)}
        row["average_fragment_bytes"] = average_fragment(last)
        for name in ("full_pages", "fragments", "unused_bytes", *SCANS):
            moments[name] = column(document, name)
        moments["average_fragment_bytes"] = [average_fragment(m) for m in document["moments"]]
    return row | {"moments": moments}


def look_at_traces(traces: Mapping[str, Path], moments: int) -> dict[str, Any]:
    wanted = configurations()
    jobs = {
        (trace, label): Job(path, options, moments=moments)
        for trace, path in traces.items()
        for label, options in wanted.items()
    }
    documents = replay_all(jobs, "traces at all moments")
    result: dict[str, Any] = {}
    for trace in traces:
        base = documents[trace, "SLOB, one"]
        if "moments" not in base:
            raise KmemError(f"lab slob: {trace}: the trace has no allocations")
        optimum = column(base, "optimum_pages")
        result[trace] = {
            "records": base["trace"]["records"],
            "steps": column(base, "steps"),
            "optimum_pages": optimum,
            "rows": {
                label: statistics_of(documents[trace, label], optimum, options)
                for label, options in wanted.items()
            },
        }
    return result


def brief(document: Mapping[str, Any]) -> dict[str, Any]:
    """Overhead over the replay's own optimum, and scans."""
    figures = summary(
        column(document, "pages"),
        column(document, "optimum_pages"),
        column(document, "steps"),
        document["machine"]["page_bytes"] // 1024,
    )
    return figures | {name: document["slob"][name] for name in SCANS}


def sweep_breaks(
    traces: Mapping[str, Path], breaks: Iterable[int], moments: int
) -> list[dict[str, Any]]:
    jobs = {
        (trace, size): Job(path, slob_options(str(size)), moments=moments)
        for size in breaks
        for trace, path in traces.items()
    }
    documents = replay_all(jobs, "break points")
    return [
        {"trace": trace, "break_bytes": size} | brief(document)
        for (trace, size), document in documents.items()
    ]


def page_breaks(kib: int) -> dict[str, str]:
    """Lists for pages of this size: as they are, and what would grow with the page."""
    page = kib * 1024
    scaled = {
        "one list": "",
        "300": "300",
        "page/10": str(round(page / 10)),
        "256:1024": "256:1024",
    }
    return scaled if kib == 4 else scaled | {"page/16:page/4": f"{page // 16}:{page // 4}"}


def sweep_pages(traces: Mapping[str, Path], moments: int) -> list[dict[str, Any]]:
    jobs = {
        (trace, kib, label): Job(path, slob_options(breaks), page_kib=kib, moments=moments)
        for kib in PAGE_KIB
        for label, breaks in page_breaks(kib).items()
        for trace, path in traces.items()
    }
    documents = replay_all(jobs, "page sizes")
    return [
        {"trace": trace, "page_kib": kib, "lists": label} | brief(document)
        for (trace, kib, label), document in documents.items()
    ]


def permuted_traces(
    traces: Mapping[str, Path], folder: Path, seeds: int, first_seed: int
) -> dict[tuple[str, int], Path]:
    """Files of the permutations; a made-up boot, of one thread, is made anew by the seed."""
    wanted = [(name, first_seed + number) for name in traces for number in range(seeds)]
    files: dict[tuple[str, int], Path] = {}
    trace, parts, read = None, None, ""
    for number, (name, seed) in enumerate(progress(wanted, "permutations", len(wanted))):
        files[name, seed] = folder / f"permutation-{number}.ktrace"
        if name == CHURN:
            other = make_churn(Churn(seed=seed))
        else:
            if read != name:
                trace = tr.read_trace(traces[name])
                parts, read = find_parts(trace), name
            assert trace is not None and parts is not None
            other = permute(trace, parts, seed)
        tr.write_trace(files[name, seed], other)
    return files


def spread_of(pages: Sequence[int]) -> dict[str, Any]:
    low, high = min(pages), max(pages)
    return {"pages": list(pages), "min": low, "max": high, "mean": round(mean(pages), 2)} | {
        "spread_kib": 4 * (high - low)
    }


def run_permutations(
    traces: Mapping[str, Path], folder: Path, seeds: int, first_seed: int
) -> list[dict[str, Any]]:
    files = permuted_traces(traces, folder, seeds, first_seed)
    options = {name: slob_options(breaks) for name, breaks in LISTS.items()} | {"SLUB": SLUB}
    jobs = {
        (trace, label, seed): Job(path, setting)
        for (trace, seed), path in files.items()
        for label, setting in options.items()
    }
    documents = replay_all(jobs, "permutations")
    numbers = range(first_seed, first_seed + seeds)
    return [
        {"trace": trace, "lists": label, "seeds": list(numbers)}
        | spread_of([documents[trace, label, seed]["end"]["pages"] for seed in numbers])
        for trace in traces
        for label in options
    ]


def sweep_churn(folder: Path, effort: Effort, seed: int, moments: int) -> list[dict[str, Any]]:
    cases = [Churn(seed=seed, overlap=overlap) for overlap in effort.overlaps]
    cases += [Churn(seed=seed, large_bytes=size) for size in effort.large_bytes]
    files = {}
    for number, case in enumerate(progress(dict.fromkeys(cases), "made-up boots", len(cases))):
        files[case] = folder / f"churn-{number}.ktrace"
        tr.write_trace(files[case], make_churn(case))
    jobs = {
        (case, name): Job(path, slob_options(breaks), moments=moments)
        for case, path in files.items()
        for name, breaks in LISTS.items()
    }
    documents = replay_all(jobs, "made-up boots")
    return [
        asdict(case) | {"lists": name} | brief(document)
        for (case, name), document in documents.items()
    ]


def conditions(trace: tr.Trace) -> dict[str, Any]:
    """What makes one list fail: large blocks that live for a moment, and what is made meanwhile.

    A block is large from LARGE_FROM bytes on, and short-lived if it is gone after SHORT_EVENTS
    events. What the trace does not free is lasting.
    """
    records = trace.records
    operation = records["operation"].to_numpy() & tr.OPERATION_MASK
    objects = records["object"].to_numpy()
    asked = records["requested"].to_numpy()
    ended = np.full(trace.objects, len(records), np.int64)
    frees = np.flatnonzero(np.isin(operation, (tr.FREE, tr.IMPLIED)))
    ended[objects[frees]] = frees
    made = np.flatnonzero(operation == tr.ALLOC)
    ends = ended[objects[made]]
    small = asked[made] < LARGE_BELOW
    lasting = np.zeros(len(records) + 1, np.int64)
    lasting[made[(ends == len(records)) & small] + 1] = 1
    made_before = np.cumsum(lasting)
    short = small & (asked[made] >= LARGE_FROM) & (ends - made <= SHORT_EVENTS)
    short &= ends < len(records)
    starts, ends = made[short], ends[short]
    lasting_bytes = int(asked[made[(ended[objects[made]] == len(records)) & small]].sum())
    count = len(starts)
    overlapped = int(np.count_nonzero(made_before[ends] > made_before[starts + 1]))
    return {
        "large_blocks": count,
        "overlapped_blocks": overlapped,
        "overlapped_share": round(overlapped / count, 4) if count else None,
        "lasting_bytes": lasting_bytes,
        "lasting_bytes_per_overlapped": lasting_bytes // overlapped if overlapped else None,
    }


def gains(traces: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where the split pays: pages of split lists beside those of one list."""
    rows = []
    for name, trace in traces.items():
        one = trace["rows"]["SLOB, one"]["moments"]["pages"]
        for split in ("two", "three"):
            pages = trace["rows"][f"SLOB, {split}"]["moments"]["pages"]
            judged = [
                percent(mine, other)
                for mine, other, best in zip(pages, one, trace["optimum_pages"], strict=True)
                if is_judged(best)
            ]
            rows.append(
                {
                    "trace": name,
                    "lists": split,
                    "end_percent": percent(pages[-1], one[-1]),
                    "best_percent": min(judged, default=None),
                    "worst_percent": max(judged, default=None),
                    "fewer_pages_share": round(sum(p < 0 for p in judged) / len(judged), 3)
                    if judged
                    else None,
                }
            )
    return rows


# ---- Tables -------------------------------------------------------------------------------------


def table(title: str, headings: Sequence[str], texts: int = 1) -> Table:
    """The first `texts` columns are words, the others figures."""
    output = Table(title=title, title_justify="left", box=SIMPLE)
    for number, heading in enumerate(headings):
        justify = "left" if number < texts else "right"
        output.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return output


def cell(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:,}{unit}" if isinstance(value, int) else f"{value:,.2f}{unit}"


def trace_table(name: str, trace: Mapping[str, Any]) -> Table:
    output = table(
        f"{name}: {trace['records']:,} records; the optimum at the end is"
        f" {trace['optimum_pages'][-1]:,} pages",
        (
            *("", "pages", "overhead", "mean", "worst", "at step", "full", "fragments"),
            *("average", "page scans", "block scans", "ns a call"),
        ),
    )
    for label, row in trace["rows"].items():
        output.add_row(
            label,
            cell(row["pages"]),
            *(cell(row[f"{which}overhead_percent"], "%") for which in ("", "mean_", "worst_")),
            *(
                cell(row.get(key))
                for key in (
                    *("worst_step", "full_pages", "fragments"),
                    *("average_fragment_bytes", *SCANS, "ns_per_call"),
                )
            ),
            end_section=label.startswith("SLOB, three"),
        )
    return output


def mail_table(churn: Mapping[str, Any]) -> Table:
    """The mail's statistics beside those of the made-up boot."""
    output = table(
        "the mail's statistics beside the made-up boot's, which has no large pages",
        ("", "mail, one", "one", "mail, two", "two", "three"),
    )
    keys = {
        "pages in use": "pages",
        "optimum": "optimum",
        "full pages": "full_pages",
        "unused bytes": "unused_bytes",
        "fragments": "fragments",
        "average fragment": "average_fragment_bytes",
        "page scans": "page_scans",
        "block scans": "block_scans",
    }
    rows = {name: churn["rows"][f"SLOB, {name}"] for name in LISTS}
    for said in read_mail("slob_statistics"):
        key = keys.get(said["figure"])
        if key is None:
            continue
        ours = {
            name: churn["optimum_pages"][-1] if key == "optimum" else row[key]
            for name, row in rows.items()
        }
        output.add_row(
            said["figure"],
            *(cell(int(said["one"])), cell(ours["one"])),
            *(cell(int(said["two"])), cell(ours["two"]), cell(ours["three"])),
        )
    return output


def mail_overheads() -> dict[str, float]:
    rows = {row["figure"]: row for row in read_mail("slob_statistics")}
    return {
        name: percent(int(rows["pages in use"][name]), int(rows["optimum"][name]))
        for name in ("one", "two")
    }


def conditions_table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    output = table(
        f"blocks of {LARGE_FROM} to {LARGE_BELOW - 1} bytes that are gone after {SHORT_EVENTS}"
        " events at most, and lasting objects: what one list needs to fail",
        (
            *("trace", "such blocks", "a lasting object made meanwhile", "share"),
            *("lasting bytes", "for each such object"),
        ),
    )
    for name, row in rows.items():
        share = row["overlapped_share"]
        output.add_row(
            name,
            cell(row["large_blocks"]),
            cell(row["overlapped_blocks"]),
            "-" if share is None else f"{100 * share:.1f}%",
            cell(row["lasting_bytes"]),
            cell(row["lasting_bytes_per_overlapped"]),
        )
    return output


def gains_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    output = table(
        "pages of split lists beside one list: less than 0 is where the split pays",
        ("trace", "lists", "at the end", "best moment", "worst moment", "moments with fewer pages"),
        texts=2,
    )
    for row in rows:
        share = row["fewer_pages_share"]
        output.add_row(
            row["trace"],
            row["lists"],
            *(cell(row[f"{which}_percent"], "%") for which in ("end", "best", "worst")),
            "-" if share is None else f"{100 * share:.0f}%",
        )
    return output


def pivot(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    across: str,
    down: Sequence[str],
    names: Sequence[str],
    figures: Sequence[str] = ("overhead_percent", "mean_overhead_percent"),
) -> Table:
    """Overhead at the end and, behind it, the mean of the moments; or one of them."""
    columns = list(dict.fromkeys(row[across] for row in rows))
    output = table(title, (*names, *map(str, columns)), texts=len(names))
    lines: dict[tuple[Any, ...], dict[Any, str]] = {}
    for row in rows:
        key = tuple(row[name] for name in down)
        digits = 2 if len(figures) > 1 else 1
        text = " ".join(
            "     -" if row[figure] is None else f"{row[figure]:{digits + 4}.{digits}f}"
            for figure in figures
        )
        lines.setdefault(key, {})[row[across]] = text
    for key, cells in lines.items():
        output.add_row(*map(str, key), *(cells.get(name, "-") for name in columns))
    return output


def mail_spreads() -> dict[str, list[int]]:
    rows = read_mail("slob_memfree")
    return {name: [int(row[name]) for row in rows] for name in ("one", "two", "slub")}


def spread_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    seeds = len(rows[0]["seeds"])
    output = table(
        f"pages at the end of {seeds} runs of the same: least, most, mean, and the spread in kB",
        ("trace", "lists", "least", "most", "mean", "spread kB", "mail's spread kB"),
        texts=2,
    )
    said = {name: max(free) - min(free) for name, free in mail_spreads().items()}
    said = {"one": said["one"], "two": said["two"], "SLUB": said["slub"]}
    for number, row in enumerate(rows):
        last = number + 1 == len(rows) or rows[number + 1]["trace"] != row["trace"]
        output.add_row(
            row["trace"],
            row["lists"],
            *(cell(row[name]) for name in ("min", "max", "mean", "spread_kib")),
            cell(said.get(row["lists"])),
            end_section=last,
        )
    return output


# ---- Plots --------------------------------------------------------------------------------------

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


def make_document(traces: Mapping[str, Path], effort: Effort, seed: int) -> dict[str, Any]:
    with TemporaryDirectory(prefix="kmem-lab-") as name:
        folder = Path(name)
        made = folder / "churn.ktrace"
        tr.write_trace(made, make_churn(Churn(seed=seed)))
        everything = {**traces, CHURN: made}
        document: dict[str, Any] = {"seed": seed, "mail_overhead_percent": mail_overheads()}
        document["traces"] = look_at_traces(everything, effort.moments)
        document["conditions"] = {
            name: conditions(tr.read_trace(path)) for name, path in everything.items()
        }
        document["gains"] = gains(document["traces"])
        document["churn"] = sweep_churn(folder, effort, seed, effort.moments)
        document["breaks"] = sweep_breaks(everything, effort.breaks, effort.moments)
        document["page_sizes"] = sweep_pages(everything, effort.moments)
        document["permutations"] = run_permutations(everything, folder, effort.seeds, seed)
    return document


def named_traces(traces: Sequence[Path]) -> dict[str, Path]:
    named: dict[str, Path] = {}
    for trace in traces or shipped_traces():
        if not trace.exists():
            raise KmemError(f"{trace}: there is no such trace")
        name = name_of(trace)
        if name in named:
            raise KmemError(f"{trace}: {named[name]} has the same name; give one of them another")
        named[name] = trace
    return named


def slob_report(traces: Sequence[Path] = (), *, quick: bool = False, seed: int = 1) -> Report:
    named = named_traces(traces)
    document = make_document(named, QUICK if quick else FULL, seed)
    said = document["mail_overhead_percent"]
    parts = [trace_table(name, trace) for name, trace in document["traces"].items()]
    return Report(
        "slob",
        f"{MAIL}: one list {said['one']:.0f}% over the optimum, two lists {said['two']:.0f}%",
        document,
        [
            mail_table(document["traces"][CHURN]),
            conditions_table(document["conditions"]),
            gains_table(document["gains"]),
            *parts,
            pivot(
                "made-up boots, % over the optimum at the end, mean of the moments",
                document["churn"],
                "lists",
                ("large_bytes", "overlap"),
                ("large bytes", "overlap"),
            ),
            *(
                pivot(
                    f"two lists by their break in bytes, % over the optimum, {what}",
                    document["breaks"],
                    "break_bytes",
                    ("trace",),
                    ("trace",),
                    (figure,),
                )
                for what, figure in (
                    ("at the end", "overhead_percent"),
                    ("mean of the moments", "mean_overhead_percent"),
                )
            ),
            pivot(
                "by KiB of a page, % over the optimum at the end, mean of the moments",
                document["page_sizes"],
                "page_kib",
                ("trace", "lists"),
                ("trace", "lists"),
            ),
            spread_table(document["permutations"]),
        ],
        list(NOTES),
        plots_of(document),
    )


def show_slob(
    traces: Sequence[Path],
    *,
    quick: bool,
    seed: int,
    json_file: Path | None,
    html_file: Path | None,
) -> None:
    show_experiment(lambda: slob_report(traces, quick=quick, seed=seed), json_file, html_file)
