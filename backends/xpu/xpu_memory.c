/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a device, kept when it is freed: the runtime's own calls are slow
 * and wait. What is freed may be given out again at once, as all who get it
 * clear it on the compute stream first. Slots of the table in xpu_device.c;
 * read xpu_impl.h before. */
#include <stdlib.h>
#include <string.h>

#include "xpu_impl.h"

/* ---- blocks -------------------------------------------------------------- */

/* The last one that begins at `ptr` or before it; -1: none does. */
static int find(const xpu_blocks_t *b, const void *ptr)
{
    int low = 0;
    int high = b->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if ((uintptr_t)b->list[middle].base <= (uintptr_t)ptr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - 1;
}

static loong_status_t insert(loong_context_t *ctx, xpu_blocks_t *b,
                             xpu_block_t block)
{
    if (b->count == b->room) {
        int room = LOONG_MAX(2 * b->room, 16);
        xpu_block_t *list = realloc(b->list, (size_t)room * sizeof(*list));
        LOONG_CHECK(ctx, list != NULL, LOONG_ERR_MEMORY,
                    "cannot allocate a list of %d blocks", room);
        b->list = list;
        b->room = room;
    }
    int at = find(b, block.base) + 1;
    memmove(&b->list[at + 1], &b->list[at],
            (size_t)(b->count - at) * sizeof(block));
    b->list[at] = block;
    b->count++;
    b->bytes += block.size;
    return LOONG_OK;
}

static void take(xpu_blocks_t *b, int at)
{
    b->list[at].used = true;
    b->used += b->list[at].size;
    b->most = LOONG_MAX(b->most, b->used);
}

static void cut(xpu_blocks_t *b, int at)
{
    b->bytes -= b->list[at].size;
    b->used -= b->list[at].used ? b->list[at].size : 0;
    b->count--;
    memmove(&b->list[at], &b->list[at + 1],
            (size_t)(b->count - at) * sizeof(*b->list));
}

loong_status_t loongi_xpu_side(xpu_data_t *d, const void *ptr, size_t bytes,
                               xpu_side_t *side_p)
{
    const xpu_blocks_t *lists[] = {&d->pinned, &d->blocks};
    xpu_block_t found = {NULL, NULL, 0, false};
    xpu_side_t side = XPU_HOST;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < 2; i++) {
        int at = find(lists[i], ptr);
        const xpu_block_t *b = at >= 0 ? &lists[i]->list[at] : NULL;
        if (b != NULL && (uintptr_t)ptr < (uintptr_t)b->base + b->size) {
            found = *b;
            side = i == 0 ? XPU_PINNED : XPU_DEVICE;
        }
    }
    pthread_mutex_unlock(&d->lock);
    LOONG_CHECK(
        d->ctx,
        side == XPU_HOST ||
            (found.used &&
             (uintptr_t)ptr - (uintptr_t)found.base + bytes <= found.size),
        LOONG_ERR_ARG,
        "xpu:%d: %zu bytes from %p are not in the %zu bytes at %p "
        "that were allocated%s",
        d->index, bytes, ptr, found.size, (void *)found.base,
        found.used ? "" : ", and freed since");
    *side_p = side;
    return LOONG_OK;
}

/* ---- from the runtime ---------------------------------------------------- */

/* No rule is public of where memory begins. */
static int get_block(xpu_data_t *d, size_t size, xpu_block_t *block)
{
    void *raw = NULL;
    int error = 0;
    int kind = d->lib->values.global_memory;
    XPU_CALL(d, error, d->lib->rt.malloc(&raw, size, kind));
    if (error == 0 && (uintptr_t)raw % LOONG_XPU_ALIGN != 0) {
        XPU_DROP(d, d->lib->rt.free(raw));
        XPU_CALL(d, error,
                 d->lib->rt.malloc(&raw, size + LOONG_XPU_ALIGN, kind));
    }
    if (error != 0) {
        return error;
    }
    size_t off = (uintptr_t)raw % LOONG_XPU_ALIGN;
    block->raw = raw;
    block->base = block->raw + (off > 0 ? LOONG_XPU_ALIGN - off : 0);
    block->size = size;
    block->used = false;
    return 0;
}

loong_status_t loongi_xpu_trim(void *data)
{
    xpu_data_t *d = data;
    LOONG_TRY(loongi_xpu_wait_all(d));
    pthread_mutex_lock(&d->lock);
    for (int i = d->blocks.count - 1; i >= 0; i--) {
        if (!d->blocks.list[i].used) {
            XPU_DROP(d, d->lib->rt.free(d->blocks.list[i].raw));
            cut(&d->blocks, i);
        }
    }
    d->blocks.most = d->blocks.used;
    pthread_mutex_unlock(&d->lock);
    return LOONG_OK;
}

void loongi_xpu_memory_end(xpu_data_t *d)
{
    for (int i = 0; i < d->blocks.count; i++) {
        XPU_DROP(d, d->lib->rt.free(d->blocks.list[i].raw));
    }
    for (int i = 0; i < d->pinned.count; i++) {
        XPU_DROP(d, d->lib->rt.host_free(d->pinned.list[i].raw));
    }
    free(d->blocks.list);
    free(d->pinned.list);
}

/* The smallest free block that is not much too large; -1: none. */
static int find_free(const xpu_blocks_t *b, size_t size)
{
    int best = -1;
    for (int i = 0; i < b->count; i++) {
        size_t has = b->list[i].size;
        if (!b->list[i].used && has >= size && has - size <= size / 8 &&
            (best < 0 || has < b->list[best].size)) {
            best = i;
        }
    }
    return best;
}

static loong_status_t make_block(xpu_data_t *d, size_t size, const char *what,
                                 void **ptr_p)
{
    xpu_block_t block;
    size_t available = 0;
    int error = get_block(d, size, &block);
    if (loongi_xpu_is_memory(error)) { /* what is kept may be enough */
        LOONG_TRY(loongi_xpu_trim(d));
        error = get_block(d, size, &block);
    }
    if (loongi_xpu_is_memory(error)) {
        LOONG_TRY(loongi_xpu_available(d, &available));
        return LOONG_FAIL(d->ctx, LOONG_ERR_MEMORY,
                          "xpu:%d: %zu bytes for %s: %s (%d); %zu of %zu "
                          "bytes are free",
                          d->index, size, what, loongi_xpu_text(error), error,
                          available, d->memory);
    }
    if (error != 0) {
        return loongi_xpu_failed(d, "xpu_malloc", error);
    }
    pthread_mutex_lock(&d->lock);
    loong_status_t status = insert(d->ctx, &d->blocks, block);
    if (status == LOONG_OK) {
        take(&d->blocks, find(&d->blocks, block.base));
    }
    pthread_mutex_unlock(&d->lock);
    if (status != LOONG_OK) {
        XPU_DROP(d, d->lib->rt.free(block.raw));
        return status;
    }
    *ptr_p = block.base;
    return LOONG_OK;
}

/* ---- slots --------------------------------------------------------------- */

loong_status_t loongi_xpu_alloc(loong_context_t *ctx, void *data, size_t bytes,
                                const char *what, void **ptr_p)
{
    xpu_data_t *d = data;
    size_t size = (LOONG_MAX(bytes, 1) + LOONG_XPU_ALIGN - 1) /
                  LOONG_XPU_ALIGN * LOONG_XPU_ALIGN;
    void *ptr = NULL;
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    int at = find_free(&d->blocks, size);
    if (at >= 0) {
        take(&d->blocks, at);
        ptr = d->blocks.list[at].base;
    }
    pthread_mutex_unlock(&d->lock);
    if (ptr == NULL) {
        LOONG_TRY(make_block(d, size, what, &ptr));
    }
    loong_status_t status = loongi_xpu_fill(d, d->compute, ptr, 0, size);
    if (status != LOONG_OK) {
        loongi_xpu_free(ctx, d, ptr, bytes);
        return status;
    }
    *ptr_p = ptr;
    return LOONG_OK;
}

void loongi_xpu_free(loong_context_t *ctx, void *data, void *ptr, size_t bytes)
{
    xpu_data_t *d = data;
    (void)ctx;
    (void)bytes;
    pthread_mutex_lock(&d->lock);
    int at = find(&d->blocks, ptr);
    if (at >= 0 && d->blocks.list[at].base == (char *)ptr &&
        d->blocks.list[at].used) {
        d->blocks.list[at].used = false;
        d->blocks.used -= d->blocks.list[at].size;
    }
    pthread_mutex_unlock(&d->lock);
}

loong_status_t loongi_xpu_host_alloc(loong_context_t *ctx, void *data,
                                     size_t bytes, const char *what,
                                     void **ptr_p)
{
    xpu_data_t *d = data;
    void *ptr = NULL;
    int error = 0;
    size_t size = LOONG_MAX(bytes, 1);
    (void)ctx;
    XPU_CALL(d, error, d->lib->rt.host_alloc(&ptr, size, 0));
    LOONG_CHECK(d->ctx, error == 0,
                loongi_xpu_is_memory(error) ? LOONG_ERR_MEMORY
                                            : LOONG_ERR_DEVICE,
                "xpu:%d: %zu bytes of pinned host memory for %s: %s (%d)",
                d->index, bytes, what, loongi_xpu_text(error), error);
    xpu_block_t block = {ptr, ptr, size, true};
    pthread_mutex_lock(&d->lock);
    loong_status_t status = insert(d->ctx, &d->pinned, block);
    pthread_mutex_unlock(&d->lock);
    if (status != LOONG_OK) {
        XPU_DROP(d, d->lib->rt.host_free(ptr));
        return status;
    }
    memset(ptr, 0, bytes);
    *ptr_p = ptr;
    return LOONG_OK;
}

/* Copies of it may be under way, and the runtime does not say that it waits. */
void loongi_xpu_host_free(loong_context_t *ctx, void *data, void *ptr)
{
    xpu_data_t *d = data;
    (void)ctx;
    (void)loongi_xpu_wait_all(d);
    pthread_mutex_lock(&d->lock);
    int at = find(&d->pinned, ptr);
    bool ours = at >= 0 && d->pinned.list[at].base == (char *)ptr;
    if (ours) {
        cut(&d->pinned, at);
    }
    pthread_mutex_unlock(&d->lock);
    if (ours) {
        XPU_DROP(d, d->lib->rt.host_free(ptr));
    }
}

/* ---- how much there is --------------------------------------------------- */

/* The n-th card of XPU_VISIBLE_DEVICES, which has as many as this process sees,
 * each once; -1: it has not. */
static int visible_card(int n, int seen, int cards)
{
    const char *at = getenv("XPU_VISIBLE_DEVICES");
    uint64_t named = 0;
    int found = -1;
    int count = 0;
    for (; at != NULL; count++) {
        char *end = NULL;
        long card = strtol(at, &end, 10);
        if (end == at || card < 0 || card >= LOONG_MIN(cards, 64) ||
            (named >> card & 1) != 0) {
            return -1;
        }
        named |= (uint64_t)1 << card;
        found = count == n ? (int)card : found;
        at = *end == ',' ? end + 1 : NULL;
    }
    return count == seen ? found : -1;
}

/* The management library counts all cards of the machine, in their own order;
 * which of them this process sees, and as which, stands in XPU_VISIBLE_DEVICES.
 * Without it the first is the first. -1: it cannot be told. */
static int card_of(const xpu_data_t *d)
{
    unsigned cards = 0;
    int seen = 0;
    if (d->lib->ml.DeviceGetCount(&cards) != 0 ||
        d->lib->rt.device_count(&seen) != 0) {
        return -1;
    }
    int card = visible_card(d->index, seen, (int)cards);
    return card < 0 && (int)cards == seen ? d->index : card;
}

/* The driver's, with what is kept here and nobody uses; without the management
 * library what this process has not taken. */
static void measure(xpu_data_t *d, size_t *total_p, size_t *free_p)
{
    loong_xpu_memory_t m;
    void *handle = NULL;
    memset(&m, 0, sizeof(m));
    *total_p = d->memory;
    *free_p = d->memory - LOONG_MIN(d->memory, d->blocks.bytes);
    int card =
        d->lib->ml_handle != NULL && d->lib->ml.Init() == 0 ? card_of(d) : -1;
    if (card >= 0 &&
        d->lib->ml.DeviceGetHandleByIndex((unsigned)card, &handle) == 0 &&
        d->lib->ml.DeviceGetMemoryInfo(handle, &m) == 0 && m.total_global > 0) {
        *total_p = (size_t)m.total_global;
        *free_p = (size_t)m.free_global;
    }
}

loong_status_t loongi_xpu_available(void *data, size_t *bytes_p)
{
    xpu_data_t *d = data;
    size_t total = 0;
    size_t available = 0;
    pthread_mutex_lock(&d->lock);
    measure(d, &total, &available);
    *bytes_p = available + d->blocks.bytes - d->blocks.used;
    pthread_mutex_unlock(&d->lock);
    return LOONG_OK;
}

loong_status_t loongi_xpu_usage(void *data, loong_device_usage_t *u)
{
    xpu_data_t *d = data;
    pthread_mutex_lock(&d->lock);
    measure(d, &u->total, &u->available);
    u->pool = d->blocks.bytes;
    u->pool_most = d->blocks.most;
    pthread_mutex_unlock(&d->lock);
    return LOONG_OK;
}
