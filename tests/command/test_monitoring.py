# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The rules and the dashboard of packaging/prometheus ask for metrics that `kmem serve` has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kmem_command import ROOT

from kmem.live.metrics import CACHE_LABELS, ProcessesCollector
from kmem.live.registry.heap import Guards, Heap, SoftLimit
from kmem.live.watch import Figures

FOLDER = ROOT / "packaging" / "prometheus"
ALERTS, DASHBOARD = FOLDER / "alerts.yml", FOLDER / "dashboard.json"
OWN_LABELS = {*CACHE_LABELS, "instance"}  # the last is Prometheus's


def exported() -> set[str]:
    """The names of all series of a process that has everything."""
    heap = Heap(*range(11))
    figures = Figures(
        1, 1, "x", "0", [], heap, 0, 0, guards=Guards(1, 1, 1, 1), soft_limit=SoftLimit(1, 1, 1)
    )
    families = ProcessesCollector(lambda _: [figures]).collect()
    return {family.name + ("_total" if family.type == "counter" else "") for family in families}


def alert_queries() -> Iterator[str]:
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            assert {"alert", "expr", "labels", "annotations"} <= set(rule)
            yield rule["expr"]


def dashboard_queries() -> Iterator[str]:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        assert panel["title"] and panel["description"]
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


@pytest.mark.parametrize("queries", [alert_queries, dashboard_queries])
def test_queries_name_what_there_is(queries: Any) -> None:
    names = exported()
    found = list(queries())
    assert found
    for query in found:
        asked = set(re.findall(r"\bkmem_[a-z_]+", query))
        assert asked, query
        assert asked <= names, query
        for group in re.findall(r"by \(([^)]*)\)", query):
            assert set(group.split(", ")) <= OWN_LABELS, query


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_the_documents_have_every_metric() -> None:
    text = (ROOT / "docs" / "watching.md").read_text(encoding="utf-8")
    assert not [name for name in sorted(exported()) if f"`{name}`" not in text]


def test_promtool_takes_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (Debian: prometheus)")
    done = subprocess.run(
        [promtool, "check", "rules", ALERTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 rules found" in done.stdout
