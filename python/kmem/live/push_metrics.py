# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The figures of /metrics for a server that takes OpenTelemetry's protocol over HTTP (OTLP).

Each process is a resource with the names that OpenTelemetry's conventions give to its attributes; a
cache is an attribute of a figure. OpenTelemetry's own exporter encodes and sends them.
"""

import logging
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterable

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family

from kmem.common.errors import SayOnce
from kmem.live.metrics import ProcessesCollector
from kmem.live.receivers import ANSWER_SECONDS, Receiver

SCOPE = InstrumentationScope("libkmem")


def resource_of(process: tuple[str, str] | None) -> Resource:
    """A process by its number and name; None: figures of this machine."""
    host = {"host.name": socket.gethostname()}
    if process is None:
        return Resource(host | {"service.name": "libkmem"})
    pid, command = process
    return Resource(
        host
        | {"service.name": command, "process.pid": int(pid), "process.executable.name": command}
    )


def metric_of(family: Family, points: list[NumberDataPoint]) -> Metric:
    unit = "By" if family.name.endswith("_bytes") else "1"
    if family.type == "counter":
        total = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        return Metric(family.name, family.documentation, unit, total)
    return Metric(family.name, family.documentation, unit, Gauge(points))


def as_otlp(families: Iterable[Family], time_ns: int) -> MetricsData:
    found: dict[tuple[str, str] | None, list[Metric]] = defaultdict(list)
    for family in families:
        points: dict[tuple[str, str] | None, list[NumberDataPoint]] = defaultdict(list)
        for sample in family.samples:
            labels = dict(sample.labels)
            pid, command = labels.pop("pid", ""), labels.pop("command", "")
            process = (pid, command) if pid else None
            # When a counter began is not known: 0 says so.
            points[process].append(NumberDataPoint(labels, 0, time_ns, int(sample.value)))
        for process, its_points in points.items():
            found[process].append(metric_of(family, its_points))
    return MetricsData(
        [
            ResourceMetrics(resource_of(process), [ScopeMetrics(SCOPE, metrics, "")], "")
            for process, metrics in found.items()
        ]
    )


class Metrics(Receiver):
    """Where the figures go."""

    what = "metrics"

    def __init__(self, url: str, token: str | None) -> None:
        super().__init__(url)
        self.complain = SayOnce()
        # What goes wrong is said in a line of ours.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        self.exporter = OTLPMetricExporter(
            f"{self.url}/v1/metrics",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=ANSWER_SECONDS,
        )

    def send(self) -> bool:
        if self.rests():
            return False
        data = as_otlp(ProcessesCollector().collect(), time.time_ns())
        if self.exporter.export(data) is MetricExportResult.SUCCESS:
            self.succeeded()
            return True
        self.failed("did not take them")
        return False

    def run(self, seconds: float, end: threading.Event) -> None:
        """Until the end, and then once more."""
        while not end.wait(seconds):
            self.try_send()
        self.try_send()
        self.exporter.shutdown()

    def try_send(self) -> None:
        try:
            self.send()
        except Exception as error:
            # The thread must go on: the next look may succeed.
            self.complain(f"push: --metrics: {error!r}")
