# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Experiments with slab policies, beside published figures."""
