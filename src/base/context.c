/* SPDX-License-Identifier: Apache-2.0
 *
 * The context: error trail, log, named allocations. Called by all modules. Read
 * loong/context.h and base.h before. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "slots.h"

enum { BLOCK_ALIGN = 64, TRAIL_SIZE = 8192, LINE_SIZE = 1024, SLOTS = 32 };

/* Stands right before each allocation. */
typedef struct block {
    struct block *prev;
    struct block *next;
    const char *what;
    size_t size;
    char pad[BLOCK_ALIGN - 4 * sizeof(void *)];
} block_t;

struct loong_context {
    loong_context_params_t params;
    pthread_mutex_t lock; /* of what follows: a lane may fail as well */
    block_t head; /* ring of live blocks */
    uint64_t alloc_count;
    uint64_t fail_countdown;
    size_t alloc_bytes;
    size_t alloc_peak;
    loong_slot_t slot[SLOTS];
    size_t trail_length;
    char trail[TRAIL_SIZE];
};

const char *loong_status_text(loong_status_t status)
{
    static const char *const texts[] = {
#define LOONG_STATUS_TEXT(name_, text_) text_,
        LOONG_STATUS_LIST(LOONG_STATUS_TEXT)
#undef LOONG_STATUS_TEXT
    };
    if ((int)status < 0 || status >= LOONG_STATUS_COUNT) {
        return "unknown status";
    }
    return texts[status];
}

loong_status_t loong_context_create(const loong_context_params_t *params,
                                    loong_context_t **ctx_p)
{
    loong_context_t *ctx = calloc(1, sizeof(*ctx));
    if (ctx == NULL) {
        return LOONG_ERR_MEMORY;
    }
    if (params != NULL) {
        ctx->params = *params;
    }
    pthread_mutex_init(&ctx->lock, NULL);
    ctx->head.prev = ctx->head.next = &ctx->head;
    *ctx_p = ctx;
    return LOONG_OK;
}

void loong_context_destroy(loong_context_t **ctx_p)
{
    loong_context_t *ctx = *ctx_p;
    if (ctx == NULL) {
        return;
    }
    loongi_context_clear(ctx);
    while (ctx->head.next != &ctx->head) {
        block_t *block = ctx->head.next;
        loongi_log(ctx, LOONG_LOG_WARN, "leak: %zu bytes of %s", block->size,
                   block->what);
        loongi_free(ctx, block + 1);
    }
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
    *ctx_p = NULL;
}

loong_slot_t *loongi_context_slot(loong_context_t *ctx, const char *name)
{
    int i = 0;
    while (ctx->slot[i].name != NULL && strcmp(ctx->slot[i].name, name) != 0) {
        i++;
        assert(i < SLOTS);
    }
    ctx->slot[i].name = name;
    return &ctx->slot[i];
}

const void *loongi_context_look(const loong_context_t *ctx, const char *name)
{
    for (int i = 0; i < SLOTS && ctx->slot[i].name != NULL; i++) {
        if (strcmp(ctx->slot[i].name, name) == 0) {
            return ctx->slot[i].data;
        }
    }
    return NULL;
}

void loongi_context_clear(loong_context_t *ctx)
{
    for (int i = 0; i < SLOTS; i++) {
        loong_slot_t *slot = &ctx->slot[i];
        if (slot->data != NULL && slot->destroy != NULL) {
            slot->destroy(ctx, slot->data);
        }
        memset(slot, 0, sizeof(*slot));
    }
}

const char *loong_context_error(const loong_context_t *ctx)
{
    return ctx->trail;
}

void loong_context_clear_error(loong_context_t *ctx)
{
    ctx->trail_length = 0;
    ctx->trail[0] = '\0';
}

uint64_t loong_context_alloc_count(const loong_context_t *ctx)
{
    return ctx->alloc_count;
}

size_t loong_context_alloc_bytes(const loong_context_t *ctx)
{
    return ctx->alloc_bytes;
}

size_t loong_context_alloc_peak(const loong_context_t *ctx)
{
    return ctx->alloc_peak;
}

void loong_context_fail_alloc(loong_context_t *ctx, uint64_t n)
{
    ctx->fail_countdown = n;
}

/* Some line is that one, or the last line. */
static bool has_line(const char *text, const char *line, bool last)
{
    size_t length = strlen(line);
    const char *at = length > 0 ? strstr(text, line) : NULL;
    for (; at != NULL; at = strstr(at + 1, line)) {
        if ((at == text || at[-1] == '\n') &&
            (at[length] == '\0' || (at[length] == '\n' && !last))) {
            return true;
        }
    }
    return false;
}

/* Appends what fits; a trail that is full keeps its beginning, because the
 * first entry is the cause. Several may meet one cause, which is told once, and
 * a note of it. */
static void trail_append(loong_context_t *ctx, const char *line, bool note)
{
    pthread_mutex_lock(&ctx->lock);
    size_t room = TRAIL_SIZE - ctx->trail_length;
    if (!has_line(ctx->trail, line, note)) {
        int n = snprintf(ctx->trail + ctx->trail_length, room, "%s%s",
                         ctx->trail_length > 0 ? "\n" : "", line);
        ctx->trail_length += n > 0 ? LOONG_MIN((size_t)n, room - 1) : 0;
    }
    pthread_mutex_unlock(&ctx->lock);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* What a user mends, who does not look for it in our code. */
static bool is_users(loong_status_t status)
{
    return status == LOONG_ERR_CONFIG || status == LOONG_ERR_NOT_FOUND ||
           status == LOONG_ERR_FORMAT || status == LOONG_ERR_MISMATCH ||
           status == LOONG_ERR_UNSUPPORTED || status == LOONG_ERR_ARG;
}

loong_status_t loongi_fail_at(loong_context_t *ctx, loong_status_t status,
                              const char *file, int line, const char *fmt, ...)
{
    char text[LINE_SIZE];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (n >= 0 && n < (int)sizeof(text) && !is_users(status)) {
        snprintf(text + n, sizeof(text) - (size_t)n, " (%s:%d)",
                 base_name(file), line);
    }
    trail_append(ctx, text, false);
    return status;
}

void loongi_error_note(loong_context_t *ctx, const char *fmt, ...)
{
    char text[LINE_SIZE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    trail_append(ctx, text, true);
}

void loongi_log(loong_context_t *ctx, loong_log_level_t level, const char *fmt,
                ...)
{
    char text[LINE_SIZE * 4];
    va_list args;
    if (ctx->params.log == NULL || level > ctx->params.log_level) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    ctx->params.log(ctx->params.log_user, level, text);
}

static bool injected_failure(loong_context_t *ctx)
{
    if (ctx->fail_countdown == 0) {
        return false;
    }
    ctx->fail_countdown--;
    return ctx->fail_countdown == 0;
}

loong_status_t loongi_alloc(loong_context_t *ctx, size_t size,
                            const char *what, void *ptr_p)
{
    block_t *block = NULL;
    size_t total = (size + sizeof(*block) + BLOCK_ALIGN - 1) / BLOCK_ALIGN *
                   BLOCK_ALIGN;
    if (total < size || injected_failure(ctx) ||
        (block = aligned_alloc(BLOCK_ALIGN, total)) == NULL) {
        return LOONG_FAIL(ctx, LOONG_ERR_MEMORY,
                          "cannot allocate %zu bytes for %s", size, what);
    }
    memset(block, 0, total);
    block->what = what;
    block->size = size;
    pthread_mutex_lock(&ctx->lock);
    block->prev = ctx->head.prev;
    block->next = &ctx->head;
    block->prev->next = block;
    ctx->head.prev = block;
    ctx->alloc_count++;
    ctx->alloc_bytes += size;
    ctx->alloc_peak = LOONG_MAX(ctx->alloc_peak, ctx->alloc_bytes);
    pthread_mutex_unlock(&ctx->lock);
    void *ptr = block + 1;
    memcpy(ptr_p, &ptr, sizeof(ptr));
    return LOONG_OK;
}

loong_status_t loongi_calloc(loong_context_t *ctx, size_t count, size_t size,
                             const char *what, void *ptr_p)
{
    LOONG_CHECK(ctx, size == 0 || count <= SIZE_MAX / size, LOONG_ERR_MEMORY,
                "cannot allocate %zu x %zu bytes for %s", count, size, what);
    return loongi_alloc(ctx, count * size, what, ptr_p);
}

loong_status_t loongi_realloc(loong_context_t *ctx, size_t size,
                              const char *what, void *ptr_p)
{
    void *old = NULL;
    void *fresh = NULL;
    memcpy(&old, ptr_p, sizeof(old));
    LOONG_TRY(loongi_alloc(ctx, size, what, &fresh));
    if (old != NULL) {
        size_t keep = LOONG_MIN(((block_t *)old - 1)->size, size);
        memcpy(fresh, old, keep);
        loongi_free(ctx, old);
    }
    memcpy(ptr_p, &fresh, sizeof(fresh));
    return LOONG_OK;
}

void loongi_free(loong_context_t *ctx, void *ptr)
{
    if (ptr == NULL) {
        return;
    }
    block_t *block = (block_t *)ptr - 1;
    pthread_mutex_lock(&ctx->lock);
    block->prev->next = block->next;
    block->next->prev = block->prev;
    ctx->alloc_bytes -= block->size;
    pthread_mutex_unlock(&ctx->lock);
    free(block);
}

loong_status_t loongi_strdup(loong_context_t *ctx, const char *text,
                             char **copy_p)
{
    size_t size = strlen(text) + 1;
    LOONG_TRY(loongi_alloc(ctx, size, "string", copy_p));
    memcpy(*copy_p, text, size);
    return LOONG_OK;
}

loong_status_t loongi_grow(loong_context_t *ctx, void *array_p,
                           int64_t *capacity_p, int64_t need, size_t element,
                           const char *what)
{
    if (need <= *capacity_p) {
        return LOONG_OK;
    }
    int64_t capacity = LOONG_MAX(LOONG_MAX(*capacity_p * 2, need), 16);
    LOONG_CHECK(ctx, (size_t)capacity <= SIZE_MAX / element, LOONG_ERR_MEMORY,
                "cannot allocate %lld elements for %s", (long long)capacity,
                what);
    LOONG_TRY(loongi_realloc(ctx, (size_t)capacity * element, what, array_p));
    *capacity_p = capacity;
    return LOONG_OK;
}
