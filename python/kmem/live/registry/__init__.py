# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The files in which processes on libkmem tell of themselves."""
