# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Readers of trace files and slab tables, beside the traces that the tree brings."""
