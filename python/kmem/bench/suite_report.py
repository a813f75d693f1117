# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Results of `kmem bench suite`: tables, the JSON document, and the HTML page with its chart."""

import html
import io
import os
import platform
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from kmem.bench.rounds import Result
from kmem.bench.timed import Sample
from kmem.common.errors import KmemError
from kmem.common.figures import Ratio, geometric_mean
from kmem.common.machine import processor

OURS = "libkmem"
MIB = 1 << 20


@dataclass(frozen=True)
class Report:
    """Everything that a run of the suite found."""

    commit: str | None
    scale: float
    seed: int
    wanted_rounds: int
    options: str  # KMEM_OPTIONS of the caller
    versions: dict[str, str]  # versions of the allocators that ran
    missing: dict[str, str]  # reason by the name of an allocator or a row
    results: list[Result]
    hardened: Collection[str] = ()  # allocators that are never the best of a row

    @property
    def names(self) -> list[str]:
        """The allocators, with the hardened ones in the last columns."""
        return sorted(self.versions, key=lambda name: name in self.hardened)

    def common(self) -> list[Result]:
        """The rows that every listed allocator finished, apart from the hardened ones."""
        needed = [name for name in self.versions if name not in self.hardened]
        return [row for row in self.results if all(name in row.medians for name in needed)]

    def means(self, ratios: Callable[[Result], Mapping[str, Ratio]]) -> dict[str, float]:
        """Geometric mean of the ratios to each row's best, by allocator that finished them all."""
        rows = [row for row in self.common() if ratios(row)]
        if not rows:
            return {}
        return {
            name: geometric_mean([ratios(row)[name].median for row in rows])
            for name in self.names
            if all(name in row.medians for row in rows)
        }

    def least(self, row: Result, figure: Callable[[Sample], float]) -> float | None:
        """The best figure of a row, to which its ratios are."""
        counted = [s for name, s in row.medians.items() if name not in self.hardened]
        return min(map(figure, counted or row.medians.values()), default=None)


def by_time(row: Result) -> Mapping[str, Ratio]:
    return row.time


def by_memory(row: Result) -> Mapping[str, Ratio]:
    return row.memory


def by_memory_over_time(row: Result) -> Mapping[str, Ratio]:
    return row.over_time


def as_ratio(ratio: Ratio) -> dict[str, float]:
    """The ratio to the row's best and the ends of its 95% interval."""
    return {name: round(getattr(ratio, name), 4) for name in ("median", "low", "high")}


def json_row(row: Result, name: str, sample: Sample) -> dict[str, object]:
    return {
        "workload": row.name,
        "allocator": name,
        "seconds": round(sample.seconds, 6),
        "cpu_seconds": round(sample.cpu_seconds, 6),
        "peak_bytes": sample.peak_bytes,
        "mib_seconds": round(sample.mib_seconds, 3),
        "minor_faults": sample.minor_faults,
        "major_faults": sample.major_faults,
        "rounds": row.rounds,
        "disturbed_rounds": row.disturbed_rounds,
        "time_ratio": as_ratio(row.time[name]),
        "memory_ratio": as_ratio(row.memory[name]),
        "mib_seconds_ratio": as_ratio(row.over_time[name]) if row.over_time else None,
    }


def as_document(report: Report) -> dict[str, object]:
    """The result file: medians of the rounds, ratios to each row's best, means of the ratios."""
    return {
        "commit": report.commit,
        "machine": {
            "processor": processor(),
            "cpus": cpus(),
            "kernel": platform.release(),
            "memory_bytes": memory_bytes(),
        },
        "scale": report.scale,
        "seed": report.seed,
        "rounds": report.wanted_rounds,
        "options": report.options,
        "allocators": report.versions,
        "hardened": [name for name in report.names if name in report.hardened],
        "missing": report.missing,
        "rows": [
            json_row(row, name, sample)
            for row in report.results
            for name, sample in row.medians.items()
        ],
        "failures": [
            {"workload": row.name, "allocator": name, "reason": reason}
            for row in report.results
            for name, reason in row.failures.items()
        ],
        "geomean": {
            "rows": len(report.common()),
            "time": {name: round(mean, 4) for name, mean in report.means(by_time).items()},
            "memory": {name: round(mean, 4) for name, mean in report.means(by_memory).items()},
            "mib_seconds": {
                name: round(mean, 4) for name, mean in report.means(by_memory_over_time).items()
            },
        },
    }


def cpus() -> int:
    """CPUs that the programs could use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise KmemError("/proc/meminfo has no MemTotal")


def row_title(row: Result) -> str:
    return f"{row.name} *" if row.disturbed_rounds else row.name


def ratio_table(
    title: str,
    report: Report,
    ratios: Callable[[Result], Mapping[str, Ratio]],
    best: Callable[[Sample], float],
    unit: str,
) -> Table:
    """Ratios to the best of each row, and the best figure itself in its unit."""
    output = Table(title=title, box=SIMPLE)
    output.add_column("workload", no_wrap=True)
    output.add_column(f"best, {unit}", justify="right", no_wrap=True)
    for name in report.names:
        output.add_column(name, justify="right", no_wrap=True)
    for row in report.results:
        of_row = ratios(row)
        least = report.least(row, best)
        cells = [f"{of_row[name].median:.2f}" if name in of_row else "-" for name in report.names]
        output.add_row(row_title(row), "-" if least is None else f"{least:.3g}", *cells)
    means = report.means(ratios)
    if means:
        output.add_section()
        cells = [f"{means[name]:.3f}" if name in means else "-" for name in report.names]
        rows = sum(bool(ratios(row)) for row in report.common())
        output.add_row(f"geometric mean, {rows} rows", "", *cells)
    return output


def figure_table(title: str, report: Report, value: Callable[[Sample], str]) -> Table:
    output = Table(title=title, box=SIMPLE)
    output.add_column("workload", no_wrap=True)
    for name in report.names:
        output.add_column(name, justify="right", no_wrap=True)
    for row in report.results:
        cells = [value(row.medians[name]) if name in row.medians else "-" for name in report.names]
        output.add_row(row_title(row), *cells)
    return output


def over_bound(
    report: Report, ratios: Callable[[Result], Mapping[str, Ratio]], bound: float
) -> list[str]:
    """The rows in which libkmem is over the bound, with ratio and interval."""
    return [
        f"{row.name} {ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        for row in report.results
        if (ratio := ratios(row).get(OURS)) is not None and ratio.over(bound)
    ]


def options_line(options: str) -> str:
    return f"KMEM_OPTIONS={options} held for {OURS}"


def notes(report: Report, bound: float) -> list[str]:
    lines = [f"{name}: {version}" for name, version in report.versions.items()]
    if apart := [name for name in report.names if name in report.hardened]:
        lines.append(f"hardened, and never the best of a row: {', '.join(apart)}")
    lines += [f"{name} is missing: {reason}" for name, reason in report.missing.items()]
    for row in report.results:
        lines += [f"{row.name} on {name} failed: {why}" for name, why in row.failures.items()]
        if row.disturbed_rounds:
            lines.append(
                f"* {row.name}: other load took CPU time in {row.disturbed_rounds} of"
                f" {row.rounds} rounds, also when repeated"
            )
        if row.memory_of:
            lines.append(f"{row.name}: memory of {row.memory_of}")
    for what, ratios in (("time", by_time), ("memory", by_memory)):
        over = over_bound(report, ratios, bound)
        lines.append(
            f"{OURS} over {bound:g} times the row's best, {what}: {', '.join(over) or 'no row'}"
        )
    if report.options:
        lines.append(options_line(report.options))
    return lines


def show(console: Console, report: Report, bound: float) -> None:
    heading = f"median of {report.wanted_rounds} rounds, ratio to the best of the row"
    console.print(ratio_table(f"time, {heading}", report, by_time, lambda s: s.seconds, "s"))
    console.print(
        ratio_table(
            f"peak memory, {heading}", report, by_memory, lambda s: s.peak_bytes / MIB, "MiB"
        )
    )
    console.print(
        ratio_table(
            f"memory over time, {heading}",
            report,
            by_memory_over_time,
            lambda s: s.mib_seconds,
            "MiB s",
        )
    )
    console.print(figure_table("CPU time in seconds", report, lambda s: f"{s.cpu_seconds:.2f}"))
    console.print(
        figure_table(
            "page faults in thousands, without input (with input, single)",
            report,
            lambda s: f"{s.minor_faults / 1000:.1f} ({s.major_faults})",
        )
    )
    for line in notes(report, bound):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def draw(report: Report) -> str:
    """The chart as SVG: a line for each row, a mark for each allocator, and libkmem's intervals."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    rows = [row for row in report.results if row.medians]
    figure = Figure(figsize=(13, 1.5 + 0.32 * len(rows)), layout="constrained")
    marks = "osD^v<>ph*X"
    for axes, (what, ratios) in zip(
        figure.subplots(1, 2, sharey=True),
        (("time", by_time), ("peak memory", by_memory)),
        strict=True,
    ):
        for index, name in enumerate(report.names):
            places = [place for place, row in enumerate(rows) if name in row.medians]
            values = [ratios(rows[place])[name] for place in places]
            ours = name == OURS
            axes.plot(
                [value.median for value in values],
                places,
                marks[index % len(marks)],
                label=name,
                markersize=8 if ours else 5,
                color="crimson" if ours else None,
                zorder=3 if ours else 2,
            )
            if ours:
                axes.hlines(
                    places, [v.low for v in values], [v.high for v in values], color="crimson"
                )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(range(len(rows)), [row_title(row) for row in rows])
        axes.set_title(f"{what}: ratio to the best of the row")
        axes.grid(alpha=0.3)
    axes.invert_yaxis()
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6)
    text = io.StringIO()
    figure.savefig(text, format="svg")
    return text.getvalue()[text.getvalue().index("<svg") :]


def as_html(report: Report, bound: float) -> str:
    """A page that needs no other file."""
    recorder = Console(record=True, width=60 + 16 * len(report.names), file=io.StringIO())
    show(recorder, report, bound)
    title = html.escape(f"kmem bench suite, commit {report.commit}")
    tables = html.escape(recorder.export_text())
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n'
        f"<body style='font-family: sans-serif'><h1>{title}</h1>\n"
        f"<p>{html.escape(processor())}, {cpus()} CPUs, Linux"
        f" {html.escape(platform.release())}; scale {report.scale:g}</p>\n"
        f"{draw(report)}\n<pre>{tables}</pre></body></html>\n"
    )
