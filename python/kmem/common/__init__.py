# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What several rooms use."""
