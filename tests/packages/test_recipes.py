# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The recipes for containers and services, as far as they run without a cluster: their steps run
here, and programs run with the library where the recipes put it."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from builds import ROOT, need_packages, run

PACKAGING = ROOT / "packaging"
DOCKERFILE = (PACKAGING / "docker" / "Dockerfile").read_text()
DEPLOYMENT = PACKAGING / "kubernetes" / "deployment.yaml"


def deployment() -> dict[str, Any]:
    """By Debian's Python, which has a reader of YAML in a package."""
    need_packages("python3-yaml")
    code = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))"
    return dict(json.loads(run(["/usr/bin/python3", "-c", code, DEPLOYMENT], ROOT)))


def test_deployment(tmp_path: Path) -> None:
    """The command of the init container copies the library to where LD_PRELOAD finds it."""
    pod = deployment()["spec"]["template"]["spec"]
    (init,), (container,), (volume,) = pod["initContainers"], pod["containers"], pod["volumes"]
    for user in (init, container):
        assert [mount["name"] for mount in user["volumeMounts"]] == [volume["name"]]
    copy, source, folder = init["command"]
    assert copy == "cp"
    # The image has it there.
    assert (
        f"FROM busybox:1.36 AS library\nCOPY --from=build /out/libkmem-malloc.so.0 {source}\n"
        in (DOCKERFILE)
    )
    (tmp_path / source[1:]).parent.mkdir()
    shutil.copy(ROOT / "build" / "src" / "libkmem-malloc.so", tmp_path / source[1:])
    (tmp_path / folder[1:]).mkdir()
    run([copy, tmp_path / source[1:], tmp_path / folder[1:]], tmp_path)
    assert init["volumeMounts"][0]["mountPath"] == folder.rstrip("/")
    assert container["volumeMounts"][0]["mountPath"] == folder.rstrip("/")
    ((name, value),) = [(one["name"], one["value"]) for one in container["env"]]
    assert name == "LD_PRELOAD"
    expect_replaced(tmp_path / value[1:], tmp_path)


def expect_replaced(library: Path, folder: Path) -> None:
    table = folder / "table"
    run(
        ["sort", "/dev/null"],
        folder,
        {"LD_PRELOAD": str(library), "KMEM_OPTIONS": f"slabinfo={table}"},
    )
    assert "kmalloc-64" in table.read_text()


def test_dockerfile(tmp_path: Path) -> None:
    """The steps that are ours, in this tree's build; LD_PRELOAD names what was copied."""
    steps = re.findall(r"^RUN (.*)$", DOCKERFILE, re.MULTILINE)
    (build,) = (step for step in steps if step.startswith("scripts/"))
    run(["sh", "-ec", build], ROOT)
    (install,) = (step for step in steps if step.startswith("install "))
    run(["sh", "-ec", install.replace("/out", str(tmp_path))], ROOT)
    (copied,) = re.findall(r"^COPY --from=build /out/(\S+) /usr/local/lib/\1$", DOCKERFILE, re.M)
    assert f"ENV LD_PRELOAD=/usr/local/lib/{copied}\n" in DOCKERFILE
    expect_replaced(tmp_path / copied, tmp_path)
    version = (ROOT / "VERSION").read_text().strip()
    for text in (DOCKERFILE, DEPLOYMENT.read_text()):
        assert set(re.findall(r"libkmem:(\d[\d.]*)", text)) == {version}


@pytest.mark.parametrize("good", [True, False])
def test_systemd(tmp_path: Path, good: bool) -> None:
    """systemd reads the drop-in without a complaint, which it has about a wrong one."""
    need_packages("systemd")
    unit = tmp_path / "program.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    folder = tmp_path / "program.service.d"
    folder.mkdir()
    text = (PACKAGING / "systemd" / "libkmem.conf").read_text()
    (folder / "libkmem.conf").write_text(text if good else text.replace("=LD_", " LD_"))
    words = ["systemd-analyze", "verify", "--man=no", unit]
    told = run(words, tmp_path, {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"})
    assert ("libkmem.conf" not in told) == good
    assert "Environment=LD_PRELOAD=/usr/local/lib/libkmem-malloc.so.0\n" in text
