# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Running processes, seen and steered from outside."""
