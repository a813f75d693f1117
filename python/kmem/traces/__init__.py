# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Trace files and slab tables: those that the tree brings, and their readers."""
