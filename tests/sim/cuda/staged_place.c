/* SPDX-License-Identifier: Apache-2.0 */
#include "staged_place.h"

#include "loong/register.h"

static loong_status_t watch(void *user)
{
    return loongi_comm_watch(user);
}

bool has_device(int rank)
{
    return rank % 2 == 0;
}

static loong_status_t alloc(place_t *p, double **ptr_p)
{
    void *memory = NULL;
    LOONG_TRY(loong_device_alloc(p->device, ALL * sizeof(double), "numbers",
                                 &memory));
    *ptr_p = memory;
    return LOONG_OK;
}

loong_status_t open_place(loong_context_t *ctx, loong_comm_t *host,
                          bool always, place_t **place_p)
{
    place_t *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    *place_p = p;
    p->ctx = ctx;
    p->host = host;
    p->rank = loong_comm_rank(host);
    p->here = calloc(ALL, sizeof(*p->here));
    assert_non_null(p->here);
    bool device = always || has_device(p->rank);
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_device_create(ctx, device ? "cuda" : "cpu",
                                  always ? p->rank
                                  : device ? p->rank / 2
                                           : 0,
                                  &p->device));
    const loong_staged_params_t params = {always, PIECE};
    LOONG_TRY(loongi_staged_create(ctx, p->device, host, &params, &p->comm));
    LOONG_TRY(alloc(p, &p->there));
    LOONG_TRY(alloc(p, &p->second));
    loong_comm_set_stream(p->comm, loong_device_stream(p->device));
    loong_device_set_watch(p->device, watch, p->comm);
    return LOONG_OK;
}

void close_place(place_t *p)
{
    loong_status_t status =
        p->device != NULL ? loong_device_synchronize(p->device, "the end")
                          : LOONG_OK;
    assert_int_equal(status, LOONG_OK);
    if (p->comm != NULL) {
        loong_comm_destroy(&p->comm);
        loong_device_set_watch(p->device, NULL, NULL);
        loong_device_free(p->device, p->there, ALL * sizeof(double));
        loong_device_free(p->device, p->second, ALL * sizeof(double));
    }
    loong_device_destroy(&p->device);
    free(p->here);
    free(p);
}

double number(int rank, int64_t i)
{
    return (double)(rank * 7 + (int)(i % 1000));
}

loong_status_t put(place_t *p, double *to)
{
    return loong_device_copy(p->device, to, p->here, ALL * sizeof(double));
}

loong_status_t put_numbers(place_t *p)
{
    for (int64_t i = 0; i < ALL; i++) {
        p->here[i] = number(p->rank, i);
    }
    LOONG_TRY(put(p, p->there));
    return loong_device_synchronize(p->device, "numbers");
}

loong_status_t get(place_t *p, const double *from)
{
    return loong_device_read(p->device, p->here, from, ALL * sizeof(double),
                             "numbers");
}

loong_status_t check(place_t *p, int64_t i, double wanted)
{
    LOONG_CHECK(p->ctx, p->here[i] == wanted, LOONG_ERR_INTERNAL,
                "rank %d: element %lld is %g, %g wanted", p->rank,
                (long long)i, p->here[i], wanted);
    return LOONG_OK;
}
