/* SPDX-License-Identifier: Apache-2.0 */
#include "save_source.h"

/* What the writing thread fetches: the two halves of bf16 masters, and what is
 * in the memory of a device. */
typedef struct source {
    loong_trainer_t *t;
    const char *data; /* of row 0 of the piece */
    const uint16_t *low; /* NULL: data is all of it */
    int64_t length;
    size_t size; /* of an element */
} source_t;

/* To the host, behind the update that the save waited for. */
static loong_status_t bring(const loong_trainer_t *t, void *dst,
                            const void *src, size_t bytes)
{
    LOONG_TRY(loong_device_stream_copy(t->device, t->save_stream, dst, src,
                                       bytes));
    return loong_device_stream_synchronize(t->device, t->save_stream);
}

static loong_status_t fetch_master(void *user, int64_t row, int64_t rows,
                                   void *dst)
{
    enum { BLOCK = 1 << 14 };
    const source_t *s = user;
    uint32_t *bits = dst;
    uint16_t high[BLOCK];
    uint16_t low[BLOCK];
    const uint16_t *data = (const uint16_t *)(const void *)s->data;
    int64_t end = (row + rows) * s->length;
    for (int64_t at = row * s->length; at < end; at += BLOCK) {
        int64_t n = LOONG_MIN(end - at, (int64_t)BLOCK);
        size_t bytes = (size_t)n * sizeof(*low);
        LOONG_TRY(bring(s->t, high, data + at, bytes));
        LOONG_TRY(bring(s->t, low, s->low + at, bytes));
        for (int64_t i = 0; i < n; i++) {
            *bits++ = ((uint32_t)high[i] - (low[i] >> 15)) << 16 | low[i];
        }
    }
    return LOONG_OK;
}

static loong_status_t fetch_rows(void *user, int64_t row, int64_t rows,
                                 void *dst)
{
    const source_t *s = user;
    size_t length = (size_t)s->length * s->size;
    return bring(s->t, dst, s->data + (size_t)row * length,
                 (size_t)rows * length);
}

/* Live memory that the writer can read stays where it is. */
loong_status_t loongi_save_source(loong_trainer_t *t, const char *data,
                                  const uint16_t *low, loong_arena_t *arena,
                                  loong_checkpoint_piece_t *piece)
{
    source_t *s = NULL;
    if (low == NULL && loong_device_is_host(t->device)) {
        piece->data = data;
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_alloc(arena, sizeof(*s), &s));
    s->t = t;
    s->data = data;
    s->low = low;
    s->length = piece->ndim > 1 ? piece->count[1] : 1;
    s->size = loong_dtype_size(piece->dtype);
    piece->fetch = low != NULL ? fetch_master : fetch_rows;
    piece->user = s;
    return LOONG_OK;
}
