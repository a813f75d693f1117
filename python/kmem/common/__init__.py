# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Modules that several rooms use."""
