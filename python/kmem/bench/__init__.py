# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Measurements of the allocator beside others, and of the cost of watching it."""
