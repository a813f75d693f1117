# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What pip asks to build the tree: it says how to get a package, which needs a compiled library."""

from typing import NoReturn


def refuse(*_: object, **__: object) -> NoReturn:
    raise SystemExit(
        "kmem: pip does not build libkmem; make wheel does, or run ./kmem in this tree"
    )


get_requires_for_build_wheel = get_requires_for_build_editable = refuse
get_requires_for_build_sdist = build_sdist = build_wheel = build_editable = refuse
