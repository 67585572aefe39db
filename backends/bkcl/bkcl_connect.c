/* SPDX-License-Identifier: Apache-2.0
 *
 * BKCL, loaded and connected. Its initialisation waits for all ranks without a
 * limit: it is left to a thread, which the caller waits for by its own limit.
 * The table is called by device_comm.c. Read bkcl_impl.h before. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bkcl_comm.h"
#include "bkcl_impl.h"
#include "progress.h"

int loongi_bkcl_select(const device_comm_t *n)
{
    return loongi_xpu_select(&bkcl_of(n)->xpu, loong_device_index(n->device));
}

void loongi_bkcl_restore(const device_comm_t *n, int before)
{
    loongi_xpu_restore(&bkcl_of(n)->xpu, loong_device_index(n->device),
                       before);
}

loong_status_t loongi_bkcl_failed(const device_comm_t *n, const char *call,
                                  int result)
{
    static const char *const names[] = {"invalid argument", "runtime error",
                                        "system error", "internal error"};
    int kind = abs(result);
    return LOONG_FAIL(
        n->ctx, LOONG_ERR_COMM, "bkcl_%s of %s, rank %d: error %d (%s)", call,
        n->comm->name, n->comm->rank, result,
        kind >= 1 && kind <= LOONG_COUNT_OF(names) ? names[kind - 1]
                                                   : "not known");
}

/* ---- the library --------------------------------------------------------- */

static void *symbol(const bkcl_library_t *l, const char *name)
{
    char text[64];
    snprintf(text, sizeof(text), "bkcl_%s", name);
    return dlsym(l->file, text);
}

void *loongi_bkcl_open(char *why, size_t size)
{
    static const char *const names[] = {"libbkcl.so", NULL};
    return loongi_xpu_open(names, why, size);
}

static loong_status_t load(loong_context_t *ctx, bkcl_library_t *l)
{
    char why[LOONG_XPU_REASON] = "";
    LOONG_CHECK(ctx, loongi_xpu_load(&l->xpu, why, sizeof(why)),
                LOONG_ERR_UNSUPPORTED, "several ranks on XPUs: %s", why);
    l->file = loongi_bkcl_open(why, sizeof(why));
    char places[LOONG_XPU_REASON];
    loongi_xpu_places(places, sizeof(places));
    LOONG_CHECK(ctx, l->file != NULL, LOONG_ERR_UNSUPPORTED,
                "several ranks on XPUs need BKCL: %s; libbkcl.so was looked "
                "for in %s; comm.device_backend: staged does without it, "
                "through host memory",
                why, places);
#define LOAD(name_, parameters_)                                          \
    *(void **)(void *)&l->name_ = symbol(l, #name_);                      \
    LOONG_CHECK(ctx, l->name_ != NULL, LOONG_ERR_UNSUPPORTED,             \
                "libbkcl has no bkcl_" #name_                             \
                " by this name: it is another release, or its names are " \
                "those of C++");
    LOONG_BKCL_FUNCTIONS(LOAD)
#undef LOAD
#define LOAD(name_, parameters_) \
    *(void **)(void *)&l->name_ = symbol(l, #name_);
    LOONG_BKCL_OPTIONAL(LOAD)
#undef LOAD
    const char *most = getenv("LOONG_BKCL_PIECE");
    l->most = most != NULL ? (size_t)atoll(most) : 0;
    l->most = l->most >= 64 ? l->most : (size_t)1 << 30;
    return LOONG_OK;
}

/* The number behind BKCL_<name>: the shim's, or "BKCL_<name>=N" of the user. */
static bool find_value(const bkcl_library_t *l, const char *name, int *value_p)
{
    const char *at = getenv("LOONG_BKCL_ENUMS");
    size_t length = strlen(name);
    int64_t value = 0;
    if (l->xpu.shim != NULL && l->xpu.shim->enumerator(name, &value) == 0) {
        *value_p = (int)value;
        return true;
    }
    while (at != NULL &&
           (strncmp(at, name, length) != 0 || at[length] != '=')) {
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    if (at != NULL) {
        *value_p = (int)strtol(at + length + 1, NULL, 10);
    }
    return at != NULL;
}

static loong_status_t find_values(loong_context_t *ctx, bkcl_library_t *l)
{
    int64_t bytes = 0;
#define FIND(name_)                                                      \
    LOONG_CHECK(ctx, find_value(l, "BKCL_" #name_, &l->value.name_),     \
                LOONG_ERR_UNSUPPORTED,                                   \
                "the number of BKCL_" #name_ " is not known: build the " \
                "kernel shim against this machine's bkcl.h, or set "     \
                "LOONG_BKCL_ENUMS=BKCL_UINT8=N,BKCL_INT32=N,...");
    LOONG_BKCL_NAMES(FIND)
#undef FIND
    if (l->xpu.shim != NULL &&
        l->xpu.shim->enumerator("sizeof BKCLUniqueId", &bytes) == 0) {
        LOONG_CHECK(ctx, bytes <= LOONG_BKCL_ID_BYTES, LOONG_ERR_UNSUPPORTED,
                    "a BKCLUniqueId has %lld bytes, at most %d are shipped",
                    (long long)bytes, (int)LOONG_BKCL_ID_BYTES);
    }
    return LOONG_OK;
}

/* ---- initialisation ------------------------------------------------------ */

typedef struct init {
    bkcl_library_t library; /* a copy: the thread may outlive the rest */
    int device, rank, ranks;
    char id[LOONG_BKCL_ID_BYTES];
    void *context;
    int result;
    int state; /* atomic; 0: under way, 1: done, 2: nobody waits any more */
} init_t;

static void *run_init(void *user)
{
    init_t *i = user;
    int under_way = 0;
    (void)i->library.xpu.rt.set_device(i->device);
    i->result = i->library.init_rank(&i->context, i->rank, i->ranks, i->id);
    if (!__atomic_compare_exchange_n(&i->state, &under_way, 1, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        free(i); /* came too late */
    }
    return NULL;
}

static loong_status_t await_init(device_comm_t *n, init_t *i)
{
    loong_wait_t wait = loongi_wait_begin(n->comm);
    int peer = (n->comm->rank + 1) % n->comm->size;
    while (__atomic_load_n(&i->state, __ATOMIC_ACQUIRE) == 0) {
        if (!loongi_wait_step(&wait, peer)) {
            int under_way = 0;
            loong_status_t status = loongi_wait_failed_on(&wait, peer);
            loongi_error_note(n->ctx, "in bkcl_init_rank");
            if (!__atomic_compare_exchange_n(&i->state, &under_way, 2, false,
                                             __ATOMIC_ACQ_REL,
                                             __ATOMIC_ACQUIRE)) {
                free(i);
            }
            return status;
        }
    }
    loongi_wait_end(&wait);
    n->handle = i->context;
    int result = i->result;
    free(i);
    return result == 0 ? LOONG_OK : loongi_bkcl_failed(n, "init_rank", result);
}

static loong_status_t start_init(device_comm_t *n, const char *id)
{
    pthread_t thread;
    init_t *i = calloc(1, sizeof(*i)); /* not of the context: see state */
    LOONG_CHECK(n->ctx, i != NULL, LOONG_ERR_MEMORY, "initialisation of BKCL");
    i->library = *bkcl_of(n);
    i->device = loong_device_index(n->device);
    i->rank = n->comm->rank;
    i->ranks = n->comm->size;
    memcpy(i->id, id, sizeof(i->id));
    if (pthread_create(&thread, NULL, run_init, i) != 0) {
        free(i);
        return LOONG_FAIL(n->ctx, LOONG_ERR_MEMORY,
                          "no thread for the initialisation of BKCL");
    }
    (void)pthread_detach(thread);
    return await_init(n, i);
}

loong_status_t loongi_bkcl_connect(device_comm_t *n)
{
    char id[LOONG_BKCL_ID_BYTES] = {0};
    int result = 0;
    if (n->library == NULL) {
        LOONG_TRY(
            loongi_alloc(n->ctx, sizeof(bkcl_library_t), "BKCL", &n->library));
    }
    LOONG_TRY(load(n->ctx, bkcl_of(n)));
    LOONG_TRY(find_values(n->ctx, bkcl_of(n)));
    LOONG_TRY(loongi_device_comm_events(n));
    if (n->comm->rank == 0) {
        BKCL_CALL(n, result, bkcl_of(n)->get_unique_id(id));
    }
    if (result != 0) {
        return loongi_bkcl_failed(n, "get_unique_id", result);
    }
    LOONG_TRY(loong_comm_broadcast(n->host, id, sizeof(id), 0, "BKCL"));
    LOONG_TRY(start_init(n, id));
    return loongi_bkcl_test(n);
}

void loongi_bkcl_disconnect(device_comm_t *n, bool abort)
{
    bkcl_library_t *l = bkcl_of(n);
    if (n->handle != NULL && !loongi_device_hangs(n->device)) {
        int result = 0;
        if (!abort) {
            BKCL_CALL(n, result, l->destroy_context(n->handle));
        } else if (l->comm_abort != NULL) {
            BKCL_CALL(n, result, l->comm_abort(n->handle));
        } /* else it stays: to destroy what is under way is not known to end */
        (void)result;
    }
    n->handle = NULL;
    if (l != NULL && l->counts != NULL) {
        size_t bytes =
            sizeof(size_t) * 4 * (size_t)n->room * (size_t)n->comm->size;
        loong_device_free(n->device, l->counts, bytes);
        loong_device_host_free(n->device, l->counts_here);
        l->counts = NULL;
    }
}

/* ---- the table ----------------------------------------------------------- */

static void give_up(device_comm_t *n)
{
    device_comm_t *m = n;
    do {
        loongi_bkcl_disconnect(m, true);
        m = m->next;
    } while (m != n);
}

/* There is no call that tells of errors by itself. */
static loong_status_t check(device_comm_t *n)
{
    (void)n;
    return LOONG_OK;
}

static const device_calls_t calls = {
    "bkcl", loongi_bkcl_connect,    loongi_bkcl_enqueue,
    NULL,   loongi_bkcl_disconnect, give_up,
    check};

loong_status_t loongi_bkcl_create(loong_context_t *ctx, loong_device_t *device,
                                  loong_comm_t *host, loong_comm_t **comm_p)
{
    return loongi_device_comm_create(ctx, device, host, &calls, comm_p);
}
