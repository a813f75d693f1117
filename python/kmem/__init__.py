# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The kmem command: runs programs on libkmem and measures it."""
