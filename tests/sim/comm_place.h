/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks on simulated devices, or on those and on the processor, with numbers
 * in their memory and a communicator of all; and what collectives of any such
 * communicator should give. */
#ifndef COMM_PLACE_H
#define COMM_PLACE_H

#include "test.h"

#include "comm_impl.h"
#include "loong/device.h"

/* N numbers of 8 bytes for each rank: an exchange of all takes four pieces or
 * more, and a rest. */
#ifndef PLACE_RANKS
#define PLACE_RANKS 4
#endif
enum { MOST_RANKS = PLACE_RANKS, N = 4001, ALL = MOST_RANKS * N };
enum { PIECE = 32 << 10 };

/* Ranks 0 and 2 have a device (MIXED), or all, which exchange through host
 * memory (STAGED) or by themselves (OWN). */
typedef enum place_kind { MIXED, STAGED, OWN } place_kind_t;

/* Of the test: the kind of its devices, and how there come to be so many. */
extern const char *const place_device;
void place_devices(int ranks);

typedef struct place {
    loong_context_t *ctx;
    loong_device_t *device;
    loong_comm_t *host;
    loong_comm_t *comm;
    int rank;
    int ranks;
    double *there; /* ALL, in the device's memory */
    double *second;
    double *here;
} place_t;

/* The place is to be closed on an error, too. */
loong_status_t open_place(loong_context_t *ctx, loong_comm_t *host,
                          place_kind_t kind, place_t **place_p);
void close_place(place_t *p);
/* fn on so many ranks, as threads, with a time limit in seconds. */
loong_status_t run_places(loong_context_t *ctx, int ranks, loong_threads_fn fn,
                          double timeout, void *user);
/* As loongi_comm_watch; user is the communicator. */
loong_status_t watch_comm(void *user, bool waits);

/* Of a mixed place. */
bool has_device(int rank);
/* Whole numbers that tell ranks and places apart, and their sum. */
double number(int rank, int64_t i);
double sum_of(const place_t *p, int64_t i);

/* From p->here, to it. */
loong_status_t put(place_t *p, double *to);
loong_status_t put_numbers(place_t *p);
loong_status_t get(place_t *p, const double *from);
loong_status_t check(place_t *p, int64_t i, double wanted);

/* All-reduce and reduce-scatter, all-gather and broadcast, of pieces of so many
 * numbers, N for a rank in all. */
loong_status_t check_reduce(place_t *p, const int64_t *counts);
loong_status_t check_gather(place_t *p, const int64_t *counts);
/* 100 all-reduces in a row, each of its own part, before one is waited for:
 * more than any ring of calls holds. */
loong_status_t check_many(place_t *p);
/* Blocks of different lengths to and from every rank. */
loong_status_t check_exchange(place_t *p);
/* Of the first two of three ranks, and of the last with itself. */
loong_status_t check_messages(place_t *p);
/* Of every rank with every other over one communicator, in groups. */
loong_status_t check_groups(place_t *p);
/* All of these, on three ranks whose devices exchange by themselves; a function
 * for run_places, user is not read. */
loong_status_t check_own(loong_context_t *ctx, loong_comm_t *host, void *user);

#endif
