/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides buckets among data-parallel ranks (ZeRO), and moves parameters in and
 * out of the shards. Called by src/component/stage.c. Read shards.h before;
 * shards_place.c rewrites the programs. */
#include "shards.h"

#include <string.h>

#include "param_slice.h"

enum { SHARD_ALIGN = 64 };

const char *loongi_sharding_name(loong_sharding_t sharding)
{
    static const char *const names[] = {
#define SHARDING_NAME(name_, text_) text_,
        LOONG_SHARDING_LIST(SHARDING_NAME)
#undef SHARDING_NAME
    };
    return (unsigned)sharding < LOONG_SHARDING_COUNT ? names[sharding] : "?";
}

/* ---- parts --------------------------------------------------------------- */

/* The first element at or after `target` within parameter p that ranks may part
 * at: of a row, or of a matrix. Rows are those of its part, which checkpoints
 * have as well: of experts, the rows of each expert's matrix. */
static int64_t next_cut(const loong_chunk_param_t *p, bool matrix,
                        int64_t target)
{
    int64_t inside = target - p->flat_offset;
    int64_t unit = loongi_param_slice_of(p).cols;
    if (matrix) {
        unit = p->shape.rank > 2 ? p->elements / p->shape.dim[0] : p->elements;
    }
    return p->flat_offset + loongi_round_up(inside, unit);
}

/* The first cut at or after `target`; padding belongs to what
 * stands before it. */
static int64_t cut_after(const loong_shards_t *s,
                         const loong_model_chunk_t *chunk,
                         const loong_bucket_t *b, int64_t target)
{
    int flat = b->flat;
    int64_t end = b->end;
    bool matrix = s->params.matrix[s->flats[flat].optimizer];
    for (int64_t i = 0; i < chunk->num_params; i++) {
        const loong_chunk_param_t *p = &chunk->params[i];
        if (p->flat != flat || target > p->flat_offset + p->elements) {
            continue;
        }
        if (target <= p->flat_offset) {
            return LOONG_MIN(p->flat_offset, end);
        }
        return LOONG_MIN(next_cut(p, matrix, target), end);
    }
    return end;
}

/* Cuts a bucket into parts of nearly equal size, one per rank. */
static loong_status_t cut_bucket(loong_shards_t *s,
                                 const loong_model_chunk_t *chunk,
                                 loong_bucket_t *b)
{
    b->group = loongi_shards_group(s, b->flat);
    b->size = loong_mesh_group_size(&s->mesh, b->group);
    b->rank = loong_mesh_group_rank(&s->mesh, b->group);
    LOONG_TRY(loongi_arena_alloc(
        s->arena, (size_t)b->size * sizeof(*b->counts), &b->counts));
    int64_t at = b->begin;
    for (int r = 0; r < b->size; r++) {
        int64_t target = b->begin + (b->end - b->begin) * (r + 1) / b->size;
        int64_t next = r + 1 == b->size
                           ? b->end
                           : LOONG_MAX(at, cut_after(s, chunk, b, target));
        b->counts[r] = next - at;
        if (r == b->rank) {
            b->own_begin = at;
            b->own_end = next;
        }
        at = next;
    }
    return LOONG_OK;
}

/* ---- places -------------------------------------------------------------- */

/* The part, when this level shares it out, else the bucket. */
static bool choose(const loong_shards_t *s, const loong_bucket_t *b,
                   loong_sharding_t level, int64_t *begin_p, int64_t *end_p)
{
    bool shared = s->params.sharding >= level;
    *begin_p = shared ? b->own_begin : b->begin;
    *end_p = shared ? b->own_end : b->end;
    return shared;
}

static void place_bucket(loong_shards_t *s, loong_bucket_t *b)
{
    const loong_flat_t *flat = &s->flats[b->flat];
    int64_t wide = (int64_t)loong_dtype_size(s->wide);
    int64_t size = (int64_t)loong_dtype_size(flat->dtype);
    b->low = b->ema = b->grad = -1;
    choose(s, b, LOONG_SHARDING_OPTIM, &b->update_begin, &b->update_end);
    bool grads = choose(s, b, LOONG_SHARDING_GRADS, &b->grad_begin,
                        &b->grad_end);
    bool params = choose(s, b, LOONG_SHARDING_PARAMS, &b->param_begin,
                         &b->param_end);
    b->param = flat->param_offset + b->begin * size;
    if (params) {
        b->param = s->param_bytes;
        s->param_bytes += loongi_round_up(
            (b->param_end - b->param_begin) * size, SHARD_ALIGN);
    }
    if (!flat->frozen) {
        b->grad = flat->grad_offset + b->begin * wide;
    }
    if (grads && !flat->frozen) {
        b->grad = s->grad_bytes;
        s->grad_bytes += loongi_round_up(
            (b->grad_end - b->grad_begin) * wide, SHARD_ALIGN);
    }
}

/* ---- buckets ------------------------------------------------------------- */

/* The element behind the pack that begins with parameter `first`. */
static int64_t pack_end(const loong_model_chunk_t *chunk, int64_t first)
{
    int flat = chunk->params[first].flat;
    for (int64_t i = first + 1; i < chunk->num_params; i++) {
        if (chunk->params[i].flat == flat && chunk->params[i].begins_pack) {
            return chunk->params[i].flat_offset;
        }
    }
    return chunk->flats[flat].elements;
}

static bool writes_between(const loong_step_t *step, int64_t begin,
                           int64_t end)
{
    const loong_kernel_query_t *q = &step->query;
    for (int a = q->num_in; a < q->num_in + q->num_out; a++) {
        const loong_operand_t *at = &step->operand[a];
        if (at->base == LOONG_BASE_GRAD && at->offset >= begin &&
            at->offset < end) {
            return true;
        }
    }
    return false;
}

/* The programs that write the gradients of a pack, as bits; 0 as well where
 * buckets need not know. */
static unsigned writers_of(const loong_shards_t *s,
                           const loong_model_chunk_t *chunk, int64_t first)
{
    const loong_chunk_param_t *p = &chunk->params[first];
    const loong_flat_t *flat = &chunk->flats[p->flat];
    int64_t wide = (int64_t)loong_dtype_size(s->wide);
    int64_t begin = flat->grad_offset + p->flat_offset * wide;
    int64_t end = flat->grad_offset + pack_end(chunk, first) * wide;
    unsigned bits = 0;
    if (flat->frozen || s->params.sharding < LOONG_SHARDING_GRADS) {
        return 0;
    }
    for (int k = 0; k < LOONG_PROGRAM_COUNT; k++) {
        const loong_program_t *program = &chunk->programs[k];
        for (int64_t i = 0; i < program->num_steps; i++) {
            if (writes_between(&program->steps[i], begin, end)) {
                bits |= 1u << k;
                break;
            }
        }
    }
    return bits;
}

static loong_status_t add_bucket(loong_shards_t *s,
                                 const loong_model_chunk_t *chunk, int flat,
                                 int64_t begin, int64_t end)
{
    loong_bucket_t *b = &s->buckets[s->num_buckets++];
    b->flat = flat;
    b->begin = begin;
    b->end = end;
    LOONG_TRY(cut_bucket(s, chunk, b));
    place_bucket(s, b);
    return LOONG_OK;
}

/* Cuts a flat buffer at starts of packs: where there is enough, and where the
 * gradients of the next one are made in other programs. */
static loong_status_t cut_flat(loong_shards_t *s,
                               const loong_model_chunk_t *chunk, int flat)
{
    int64_t wide = (int64_t)loong_dtype_size(s->wide);
    int64_t target = LOONG_MAX(s->params.bucket_bytes / wide, 1);
    int64_t begin = 0;
    unsigned writers = 0;
    for (int64_t i = 0; i <= chunk->num_params; i++) {
        bool last = i == chunk->num_params;
        if (!last && (chunk->params[i].flat != flat ||
                      !chunk->params[i].begins_pack)) {
            continue;
        }
        int64_t end = last ? chunk->flats[flat].elements
                           : chunk->params[i].flat_offset;
        unsigned next = last ? 0 : writers_of(s, chunk, i);
        if (end > begin &&
            (last || end - begin >= target || next != writers)) {
            LOONG_TRY(add_bucket(s, chunk, flat, begin, end));
            begin = end;
        }
        writers = next;
    }
    return LOONG_OK;
}

/* ---- object -------------------------------------------------------------- */

/* What is frozen has nothing to share out but itself: every rank has it whole
 * unless parameters are shared out. */
static bool has_buckets(const loong_shards_t *s, const loong_flat_t *flat)
{
    return !flat->frozen || s->params.sharding >= LOONG_SHARDING_PARAMS;
}

static loong_status_t plan(loong_shards_t *s, const loong_model_chunk_t *chunk)
{
    bool grads = s->params.sharding >= LOONG_SHARDING_GRADS;
    bool params = s->params.sharding >= LOONG_SHARDING_PARAMS;
    s->grad_bytes = grads ? 0 : chunk->grad_bytes;
    s->param_bytes = params ? 0 : chunk->param_bytes;
    s->num_flats = chunk->num_flats;
    memcpy(s->flats, chunk->flats, sizeof(s->flats));
    LOONG_TRY(loongi_arena_create(s->ctx, "shards", &s->arena));
    LOONG_TRY(loongi_arena_alloc(
        s->arena,
        (size_t)(chunk->num_params + chunk->num_flats) * sizeof(*s->buckets),
        &s->buckets));
    for (int f = 0; f < chunk->num_flats; f++) {
        if (has_buckets(s, &chunk->flats[f])) {
            LOONG_TRY(cut_flat(s, chunk, f));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_shards_create(const loong_model_chunk_t *chunk,
                                    const loong_mesh_t *mesh,
                                    const loong_shards_params_t *params,
                                    loong_shards_t **shards_p)
{
    loong_shards_t *s = NULL;
    LOONG_TRY(loongi_alloc(chunk->ctx, sizeof(*s), "shards", &s));
    s->ctx = chunk->ctx;
    s->params = *params;
    s->wide = chunk->precision.wide;
    s->mesh = *mesh;
    if (loong_mesh_group_size(mesh, LOONG_GROUP_DP_CP) == 1 &&
        loong_mesh_group_size(mesh, LOONG_GROUP_EDP) == 1) {
        s->params.sharding = LOONG_SHARDING_NONE;
    }
    loong_status_t status = plan(s, chunk);
    if (status != LOONG_OK) {
        loongi_shards_destroy(&s);
        return status;
    }
    *shards_p = s;
    return LOONG_OK;
}

void loongi_shards_destroy(loong_shards_t **shards_p)
{
    loong_shards_t *s = *shards_p;
    if (s != NULL) {
        loongi_arena_destroy(&s->arena);
        loongi_free(s->ctx, s);
        *shards_p = NULL;
    }
}

/* ---- elements ------------------------------------------------------------ */

loong_bucket_t *loongi_shards_bucket(const loong_shards_t *shards, int flat,
                                     int64_t element)
{
    for (int64_t i = 0; i < shards->num_buckets; i++) {
        loong_bucket_t *b = &shards->buckets[i];
        if (b->flat == flat && element >= b->begin && element < b->end) {
            return b;
        }
    }
    return NULL;
}

int64_t loongi_shards_param(const loong_shards_t *shards, int flat,
                            int64_t element)
{
    const loong_flat_t *f = &shards->flats[flat];
    const loong_bucket_t *b = loongi_shards_bucket(shards, flat, element);
    int64_t size = (int64_t)loong_dtype_size(f->dtype);
    return b != NULL ? b->param + (element - b->param_begin) * size
                     : f->param_offset + element * size;
}

void loongi_shards_range(const loong_shards_t *shards,
                         const loong_chunk_param_t *place, int64_t *begin_p,
                         int64_t *end_p)
{
    const loong_bucket_t *b =
        loongi_shards_bucket(shards, place->flat, place->flat_offset);
    *begin_p = 0;
    *end_p = place->elements;
    if (b != NULL) {
        int64_t begin = b->param_begin - place->flat_offset;
        int64_t end = b->param_end - place->flat_offset;
        *begin_p = LOONG_MIN(LOONG_MAX(begin, 0), place->elements);
        *end_p = LOONG_MIN(LOONG_MAX(end, *begin_p), place->elements);
    }
}

static void set_half(uint16_t *param, uint16_t *low, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    *param = (uint16_t)((bits >> 16) + ((uint16_t)bits >> 15));
    *low = (uint16_t)bits;
}

enum { MANY = 1 << 16 }; /* elements that threads share */

static void store(loong_dtype_t dtype, const double *values, int64_t count,
                  void *param)
{
#pragma omp parallel for schedule(static) if (count >= MANY)
    for (int64_t i = 0; i < count; i++) {
        uint16_t low = 0;
        if (dtype == LOONG_F64) {
            ((double *)param)[i] = values[i];
        } else if (dtype == LOONG_F32) {
            ((float *)param)[i] = (float)values[i];
        } else if (dtype == LOONG_U8) {
            ((uint8_t *)param)[i] = (uint8_t)values[i];
        } else {
            set_half((uint16_t *)param + i, &low, (float)values[i]);
        }
    }
}

/* What values of bf16 leave of the masters. */
static void store_low(const double *values, int64_t count, uint16_t *low)
{
#pragma omp parallel for schedule(static) if (count >= MANY)
    for (int64_t i = 0; i < count; i++) {
        uint16_t param = 0;
        set_half(&param, &low[i], (float)values[i]);
    }
}

/* Elements [begin, end) of a flat buffer that the rank has, no more than a
 * piece. */
static loong_status_t set_piece(const loong_shards_t *s,
                                loong_upload_t *upload, int flat,
                                int64_t begin, int64_t end,
                                const double *values)
{
    const loong_bucket_t *b = loongi_shards_bucket(s, flat, begin);
    loong_dtype_t dtype = s->flats[flat].dtype;
    size_t bytes = (size_t)(end - begin) * loong_dtype_size(dtype);
    loong_operand_t to = {LOONG_BASE_PARAM,
                          loongi_shards_param(s, flat, begin)};
    void *room = NULL;
    LOONG_TRY(loongi_upload_room(upload, to, bytes, &room));
    store(dtype, values, end - begin, room);
    LOONG_TRY(loongi_upload_send(upload, to, room, bytes));
    int64_t first = b != NULL ? LOONG_MAX(begin, b->update_begin) : end;
    int64_t n = b != NULL ? LOONG_MIN(end, b->update_end) - first : 0;
    to.base = LOONG_BASE_OPTIM;
    if (n > 0 && b->low >= 0) {
        to.offset =
            b->low + (first - b->update_begin) * (int64_t)sizeof(uint16_t);
        bytes = (size_t)n * sizeof(uint16_t);
        LOONG_TRY(loongi_upload_room(upload, to, bytes, &room));
        store_low(values + (first - begin), n, room);
        LOONG_TRY(loongi_upload_send(upload, to, room, bytes));
    }
    if (n > 0 && b->ema >= 0) {
        int64_t size = (int64_t)loong_dtype_size(s->wide);
        to.offset = b->ema + (first - b->update_begin) * size;
        bytes = (size_t)(n * size);
        LOONG_TRY(loongi_upload_room(upload, to, bytes, &room));
        store(s->wide, values + (first - begin), n, room);
        LOONG_TRY(loongi_upload_send(upload, to, room, bytes));
    }
    return LOONG_OK;
}

loong_status_t loongi_shards_set(const loong_shards_t *shards,
                                 loong_upload_t *upload,
                                 const loong_chunk_param_t *place, int64_t at,
                                 int64_t count, const double *values)
{
    int64_t begin = 0;
    int64_t end = 0;
    int64_t piece =
        LOONG_UPLOAD_PIECE / (int64_t)loong_dtype_size(shards->wide);
    loongi_shards_range(shards, place, &begin, &end);
    begin = LOONG_MAX(begin, at);
    end = LOONG_MIN(end, at + count);
    for (int64_t i = begin; i < end; i += piece) {
        int64_t n = LOONG_MIN(end - i, piece);
        LOONG_TRY(set_piece(shards, upload, place->flat,
                            place->flat_offset + i,
                            place->flat_offset + i + n, values + (i - at)));
    }
    return LOONG_OK;
}
