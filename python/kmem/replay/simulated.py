# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem replay`: a trace on the simulated machine, through the library's own code.

build/tools/replay takes the steps and counts. tools/replay/run.c describes how copies of a trace
share CPUs, tools/replay/steps.c how caches are made.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kmem.common.errors import BadUsage, KmemError
from kmem.common.files import write_json
from kmem.common.tree import build
from kmem.replay.costs import ASSUMED, read_costs
from kmem.replay.derived import add_derived
from kmem.replay.tables import show_table, title_of
from kmem.replay.tool import refuse_options, run, tool_arguments


def run_recorded(trace: Path, slabinfo: Path, options: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Replay a trace that a slab table completes; the result, and the comparison with the table."""
    from kmem.replay import recorded, recorded_report
    from kmem.traces import file as tr  # Polars takes its time to load

    work = recorded.Recorded(tr.read_trace(trace), recorded.read_table(slabinfo))
    lacking = sum(work.missing.values())
    if work.trace.objects + lacking > tr.OBJECTS_MOST:
        raise KmemError(
            f"replay: --slabinfo {slabinfo}: {lacking:,} objects that the trace lacks; expected at"
            f" most {tr.OBJECTS_MOST - work.trace.objects:,}"
        )
    tr.check_memory(
        f"replay: --slabinfo {slabinfo}: {lacking:,} objects that the trace lacks",
        trace.stat().st_size + slabinfo.stat().st_size,
        lacking * recorded.FIRST_BYTES,
    )
    # The memory was checked above. The completed file compresses so well that the limit by its size
    # would refuse it.
    environment = os.environ | {tr.MEMORY_VARIABLE: str(2**63)}
    arguments = tool_arguments(",".join(recorded.options_for(options)), None, None, None)
    speed = ""

    with TemporaryDirectory(prefix="kmem-replay-") as folder:

        def replay(completed: tr.Trace) -> dict[str, Any]:
            nonlocal speed
            file = Path(folder) / "completed.ktrace"
            tr.write_trace(file, completed)
            document, speed = run(file, arguments, environment=environment)
            return document

        plain, document, first = recorded.complete(work, replay)
    document["recorded"] = recorded_report.as_document(work, plain, document, first)
    return document, speed


def show_replay(
    trace: Path,
    *,
    options: Sequence[str],
    cpus: int | None,
    nodes: int | None,
    repeat: int | None,
    slabinfo: Path | None,
    costs_file: Path | None,
    json_file: Path | None,
) -> None:
    for name, value in (("cpus", cpus), ("nodes", nodes), ("repeat", repeat)):
        if slabinfo and value is not None:
            raise BadUsage(
                f"replay: --{name} {value}: expected none with --slabinfo, which is a table of the"
                " recorded machine"
            )
    refuse_options(options)
    build()
    costs_file = costs_file or ASSUMED
    costs = read_costs(costs_file)
    if slabinfo:
        document, speed = run_recorded(trace, slabinfo, options)
    else:
        document, speed = run(trace, tool_arguments(",".join(options), cpus, nodes, repeat))
    add_derived(document, costs, costs_file)
    try:
        write_json(json_file, document)
    finally:  # a full disk must not take the figures
        output = show_table(document, title_of(trace, document["machine"]))
        if slabinfo:
            from kmem.replay import recorded_report

            recorded_report.show(document["recorded"], output)
        output.print(speed, highlight=False)
