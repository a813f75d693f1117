# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What pip asks to build the tree: it says that there is no package to install."""

from typing import NoReturn


def refuse(*_: object, **__: object) -> NoReturn:
    raise SystemExit("kmem: the command is not installed by pip; run ./kmem in its tree")


get_requires_for_build_wheel = get_requires_for_build_editable = refuse
get_requires_for_build_sdist = build_sdist = build_wheel = build_editable = refuse
