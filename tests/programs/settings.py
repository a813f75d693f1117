# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Chooses the settings under which a test runs, and which of them are quick."""

from collections.abc import Collection

import pytest
from dropin import DEFAULT, Setting


def under(*settings: Setting, quick: Collection[Setting] = (DEFAULT,)) -> pytest.MarkDecorator:
    """Runs a test's `dropin` under each setting; those not in `quick` only in the full run."""
    parameters = [
        pytest.param(
            setting, id=setting.name, marks=() if setting in quick else (pytest.mark.full,)
        )
        for setting in settings
    ]
    return pytest.mark.parametrize("dropin", parameters, indirect=True)
