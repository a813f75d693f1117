# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Heap profiles of other allocators: who holds memory, and what libkmem's slabs would be."""
