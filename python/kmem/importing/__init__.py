# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Traces from other people's recordings (`kmem import`), and as tables (`kmem export`)."""
