# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The heap of a running process explained: who holds its slabs, and what would come back."""
