# SPDX-License-Identifier: Apache-2.0
# The publisher's Python stands here.
