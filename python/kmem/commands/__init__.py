# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The command line. Each command imports its modules when it is called."""
