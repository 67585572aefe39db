/* SPDX-License-Identifier: Apache-2.0
 *
 * What the streams of every device do. */
#ifndef DEVICE_STREAMS_H
#define DEVICE_STREAMS_H

#include "test.h"

/* A copy stream fills a buffer that the compute stream reads: with the event
 * the right bytes arrive whatever device KIND:1 is late with. byte: the bytes
 * begin there. */
void check_streams(loong_context_t *ctx, const char *kind, int byte);

#endif
