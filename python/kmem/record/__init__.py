# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Traces of programs and of the kernel."""
