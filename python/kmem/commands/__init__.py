# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The command line. Each command imports what it needs when it is called."""
