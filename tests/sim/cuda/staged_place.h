/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks on simulated devices and on the processor, with numbers in their
 * memory and a communicator of all. */
#ifndef STAGED_PLACE_H
#define STAGED_PLACE_H

#include "test.h"

#include "comm_impl.h"
#include "cudasim.h"
#include "loong/device.h"
#include "staged_comm.h"

/* Rank 0 and 2 have a device. N numbers of 8 bytes for each rank: an exchange
 * of all takes four pieces or more, and a rest. */
enum { RANKS = 4, N = 4001, ALL = RANKS * N, PIECE = 32 << 10 };

typedef struct place {
    loong_context_t *ctx;
    loong_device_t *device;
    loong_comm_t *host;
    loong_comm_t *comm;
    int rank;
    double *there; /* ALL, in the device's memory */
    double *second;
    double *here;
} place_t;

/* always: all ranks have a device. The place is to be closed on an error, too.
 */
loong_status_t open_place(loong_context_t *ctx, loong_comm_t *host,
                          bool always, place_t **place_p);
void close_place(place_t *p);

bool has_device(int rank);
/* Whole numbers that tell ranks and places apart. */
double number(int rank, int64_t i);

/* From p->here, to it. */
loong_status_t put(place_t *p, double *to);
loong_status_t put_numbers(place_t *p);
loong_status_t get(place_t *p, const double *from);
loong_status_t check(place_t *p, int64_t i, double wanted);

#endif
