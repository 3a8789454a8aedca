# SPDX-License-Identifier: Apache-2.0
set(REPLICATOR_VERSION 0.1.0)
