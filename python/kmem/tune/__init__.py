# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The search for the options that serve traces best."""
