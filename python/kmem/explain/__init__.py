# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Slab tables in the forms in which people paste them, read and explained."""
