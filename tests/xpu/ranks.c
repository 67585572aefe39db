/* SPDX-License-Identifier: Apache-2.0
 *
 * Claims of BKCL: what is asked of every communicator of devices
 * (tests/sim/comm_place.h), on so many ranks of this process with a card each.
 * Read assumed.c before. */
#include "assumed.h"
#include "comm_place.h"

const char *const place_device = "xpu";

void place_devices(int ranks)
{
    (void)ranks; /* as many as there are */
}

/* Calls of communicators, in turn. */
typedef enum call { REDUCE, GATHER, EXCHANGE, MANY } call_t;

static loong_status_t check_call(loong_context_t *ctx, loong_comm_t *host,
                                 void *user)
{
    call_t call = *(const call_t *)user;
    int64_t counts[MOST_RANKS];
    place_t *p = NULL;
    for (int i = 0; i < MOST_RANKS; i++) {
        counts[i] = N;
    }
    loong_status_t status = open_place(ctx, host, OWN, &p);
    if (status == LOONG_OK) {
        status = call == REDUCE     ? check_reduce(p, counts)
                 : call == GATHER   ? check_gather(p, counts)
                 : call == EXCHANGE ? check_exchange(p)
                                    : check_many(p);
    }
    close_place(p);
    return status;
}

static int ranks;

static bool try_call(int64_t number)
{
    loong_context_t *ctx = test_context();
    call_t call = (call_t)number;
    loong_status_t status =
        run_places(ctx, ranks, check_call, 10.0, &call);
    found("%s", status == LOONG_OK ? "the same" : loong_context_error(ctx));
    return status == LOONG_OK;
}

bool claims_of_ranks(int count)
{
    static const char *const names[] = {"all_reduce and reduce_scatter",
                                        "all_gather and broadcast",
                                        "all_to_all_v", "100 calls in a row"};
    bool same = true;
    ranks = count;
    for (int i = 0; i < LOONG_COUNT_OF(names); i++) {
        char name[96];
        snprintf(name, sizeof(name), "BKCL, %d ranks: %s", count, names[i]);
        claim_t c = {name, "as counted on the host", try_call, i};
        same = tell_claim(&c, false) && same;
    }
    return same;
}
