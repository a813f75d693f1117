# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Traces on the simulated machine, and in real time."""
