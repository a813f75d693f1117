# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Each test of this folder with a port runs for all of them."""

import pytest
from built import PORTS, Port, need


@pytest.fixture(params=PORTS, ids=lambda port: port.name)
def port(request: pytest.FixtureRequest) -> Port:
    chosen: Port = request.param
    return need(chosen)
