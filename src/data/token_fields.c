/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills the DATA ports of language models from rows of token ids. Called
 * through the processor of tokens, and by the sampler. Read the table of fields
 * in include/loong/processor.h before. */
#include "token_fields.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "crc.h"
#include "field_table.h"
#include "zigzag.h"

typedef struct fill {
    loong_context_t *ctx;
    const loong_token_params_t *layout;
    const loong_field_t *field;
} fill_t;

/* ---- places -------------------------------------------------------------- */

/* Tokens of a row that a rank has. */
static int64_t own_tokens(const loong_token_params_t *l)
{
    return l->seq_length / l->context_parallel_size;
}

/* Neighbours that exchange heads have tokens as one rank of a ring. */
static int ring_size(const loong_token_params_t *l)
{
    return l->context_parallel_size / LOONG_MAX(l->context_parallel_a2a, 1);
}

static int64_t ring_place(const loong_token_params_t *l, int rank, int64_t i)
{
    return loongi_zigzag_place(rank, ring_size(l), l->seq_length, i);
}

int64_t loongi_token_place(const loong_token_params_t *params, int64_t i)
{
    return loongi_zigzag_place(params->context_parallel_rank,
                               params->context_parallel_size,
                               params->seq_length, i);
}

int32_t loongi_token_type(const loong_token_params_t *params, int32_t id)
{
    bool vision = false;
    for (int i = 0; i < params->num_vision_ids; i++) {
        vision = vision || params->vision_ids[i] == id;
    }
    return vision;
}

/* ---- one value a token --------------------------------------------------- */

static void fill_tokens(const fill_t *f, const loong_token_row_t *row,
                        int64_t at)
{
    int32_t *to = (int32_t *)f->field->to + at;
    for (int64_t i = 0; i < own_tokens(f->layout); i++) {
        to[i] = row->ids[loongi_token_place(f->layout, i)];
    }
}

static void fill_labels(const fill_t *f, const loong_token_row_t *row,
                        int64_t at)
{
    int32_t *to = (int32_t *)f->field->to + at;
    for (int64_t i = 0; i < own_tokens(f->layout); i++) {
        int64_t t = loongi_token_place(f->layout, i);
        to[i] = row->weight[t] ? row->ids[t + 1] : LOONG_IGNORE_LABEL;
    }
}

int64_t loongi_token_sample(const loong_token_params_t *params,
                            const loong_token_row_t *row, int64_t t,
                            int64_t *learned_p)
{
    int64_t learned = row->weight[t];
    for (t++;
         t < params->seq_length && (row->starts[t] & LOONG_START_SAMPLE) == 0;
         t++) {
        learned += row->weight[t];
    }
    *learned_p = learned;
    return t;
}

double loongi_token_weight(const loong_token_params_t *params, int64_t learned)
{
    double n = (double)LOONG_MAX(learned, 1);
    return params->loss_normalization == LOONG_NORMALIZE_SAMPLE ? 1.0 / n
           : params->loss_normalization == LOONG_NORMALIZE_SQUARE_ROOT
               ? 1.0 / sqrt(n)
               : 1.0;
}

/* Places ascend, so that samples do as well. */
static void fill_loss_weight(const fill_t *f, const loong_token_row_t *row,
                             int64_t at)
{
    double each = 0.0;
    int64_t end = 0; /* of the sample */
    for (int64_t i = 0; i < own_tokens(f->layout); i++) {
        int64_t t = loongi_token_place(f->layout, i);
        while (end <= t) {
            int64_t learned = 0;
            end = loongi_token_sample(f->layout, row, end, &learned);
            each = loongi_token_weight(f->layout, learned);
        }
        double weight = row->weight[t] ? each : 0.0;
        if (f->field->dtype == LOONG_F64) {
            ((double *)f->field->to)[at + i] = weight;
        } else {
            ((float *)f->field->to)[at + i] = (float)weight;
        }
    }
}

static void fill_token_types(const fill_t *f, const loong_token_row_t *row,
                             int64_t at)
{
    int32_t *to = (int32_t *)f->field->to + at;
    for (int64_t i = 0; i < own_tokens(f->layout); i++) {
        to[i] = loongi_token_type(f->layout,
                                  row->ids[loongi_token_place(f->layout, i)]);
    }
}

static void fill_of_encoder(const fill_t *f, const loong_token_row_t *row,
                            int64_t at, int encoder)
{
    int32_t *to = (int32_t *)f->field->to + at;
    for (int64_t i = 0; i < own_tokens(f->layout); i++) {
        int feature =
            row->feature != NULL
                ? row->feature[loongi_token_place(f->layout, i)]
                : 0;
        to[i] = feature != 0 && feature >> LOONG_FEATURE_ENCODER == encoder;
    }
}

static void fill_is_feature(const fill_t *f, const loong_token_row_t *row,
                            int64_t at)
{
    fill_of_encoder(f, row, at, 0);
}

static void fill_is_video(const fill_t *f, const loong_token_row_t *row,
                          int64_t at)
{
    fill_of_encoder(f, row, at, 1);
}

/* Something that is apart from what stands before: a sample always is, a
 * document where that is asked for. */
static bool begins(const loong_token_row_t *row, int64_t t, bool documents)
{
    int apart = LOONG_START_SAMPLE | (documents ? LOONG_START_DOCUMENT : 0);
    return row->starts != NULL && (row->starts[t] & apart) != 0;
}

/* The walk over a row that positions are counted by. */
typedef struct walk {
    int64_t t;       /* the next place */
    int32_t next[3]; /* on each axis: behind what was met */
    int32_t begin;   /* of the picture, or part, that was met last */
    int32_t at[3];   /* of the place before t */
} walk_t;

/* One place further. With axes the rows of a picture stand side by side, and
 * what comes behind a video does not wait for its time to pass. */
static void step(const loong_token_params_t *l, const loong_token_row_t *row,
                 bool axes, walk_t *w)
{
    bool feature = axes && row->feature != NULL && row->feature[w->t];
    if (begins(row, w->t, l->reset_position_ids)) {
        memset(w->next, 0, sizeof(w->next));
    }
    int32_t next = LOONG_MAX(LOONG_MAX(w->next[0], w->next[1]), w->next[2]);
    if (!feature) {
        for (int k = 0; k < 3; k++) {
            w->at[k] = next;
            w->next[k] = next + 1;
        }
        w->t++;
        return;
    }
    const int32_t *place = row->place[w->t];
    w->begin = row->feature[w->t] & LOONG_FEATURE_FIRST ? next : w->begin;
    for (int k = 0; k < 3; k++) {
        w->at[k] = w->begin + place[k];
        w->next[k] = k > 0 ? LOONG_MAX(w->next[k], w->at[k] + 1) : w->next[k];
    }
    w->t++;
}

/* The places of a rank's tokens ascend within each of its two chunks, and the
 * second lies behind the first: one walk over the row suffices. */
static void fill_positions(const fill_t *f, const loong_token_row_t *row,
                           int64_t at)
{
    int32_t *to = (int32_t *)f->field->to + at;
    walk_t w = {0};
    for (int64_t i = 0; i < own_tokens(f->layout); i++) {
        while (w.t <= loongi_token_place(f->layout, i)) {
            step(f->layout, row, false, &w);
        }
        to[i] = w.at[0];
    }
}

static void fill_axis_positions(const fill_t *f, const loong_token_row_t *row,
                                int64_t at)
{
    int64_t all = f->layout->rows * own_tokens(f->layout);
    walk_t w = {0};
    at /= 3; /* rows of a micro-batch stand side by side on each axis */
    for (int64_t i = 0; i < own_tokens(f->layout); i++) {
        while (w.t <= loongi_token_place(f->layout, i)) {
            step(f->layout, row, true, &w);
        }
        for (int k = 0; k < 3; k++) {
            ((int32_t *)f->field->to)[k * all + at + i] = w.at[k];
        }
    }
}

static void fill_token_key(const fill_t *f, const loong_token_row_t *row,
                           int64_t at)
{
    int64_t *to = (int64_t *)f->field->to + at;
    for (int64_t i = 0; i < own_tokens(f->layout); i++) {
        to[i] = row->draw * f->layout->seq_length +
                loongi_token_place(f->layout, i);
    }
}

/* ---- other fields -------------------------------------------------------- */

static void fill_all_token_keys(const fill_t *f, const loong_token_row_t *row,
                                int64_t at)
{
    const loong_token_params_t *l = f->layout;
    int64_t *to = (int64_t *)f->field->to + at;
    int a2a = LOONG_MAX(l->context_parallel_a2a, 1);
    for (int64_t i = 0; i < l->seq_length / ring_size(l); i++) {
        to[i] = row->draw * l->seq_length +
                ring_place(l, l->context_parallel_rank / a2a, i);
    }
}

static void fill_row_crc(const fill_t *f, const loong_token_row_t *row,
                         int64_t at)
{
    uint32_t crc =
        loongi_crc(LOONG_CRC32, row->ids,
                   (size_t)f->layout->seq_length * sizeof(*row->ids));
    memcpy((int32_t *)f->field->to + at, &crc, sizeof(crc));
}

/* The same in every micro-batch: one rank's rows after another's, of which
 * row `at` / T of the micro-batch is made. */
static void fill_places(const fill_t *f, const loong_token_row_t *row,
                        int64_t at)
{
    const loong_token_params_t *l = f->layout;
    int64_t own = l->seq_length / ring_size(l);
    int64_t number = at / l->seq_length;
    for (int r = 0; r < ring_size(l); r++) {
        int32_t *to = (int32_t *)f->field->to + (r * l->rows + number) * own;
        for (int64_t i = 0; i < own; i++) {
            to[i] = (int32_t)(number * l->seq_length + ring_place(l, r, i));
        }
    }
    (void)row;
}

/* Behind the last key that each place of a row sees: before the first learned
 * token of a segment all see one another, behind it each sees itself. */
static void fill_key_ends(const fill_t *f, const loong_token_row_t *row,
                          int64_t at)
{
    const loong_token_params_t *l = f->layout;
    int32_t *to = (int32_t *)f->field->to + at;
    int64_t prefix = 0;
    for (int64_t t = 0; t < l->seq_length; t++) {
        if (t == 0 || begins(row, t, l->reset_attention_mask)) {
            prefix = t + 1;
            while (!row->weight[prefix - 1] && prefix < l->seq_length &&
                   !begins(row, prefix, l->reset_attention_mask)) {
                prefix++;
            }
        }
        to[t] = (int32_t)(at + (t < prefix ? prefix : t + 1));
    }
}

static loong_status_t fill_cu_seqlens(const fill_t *f, void *const *rows)
{
    const loong_token_params_t *l = f->layout;
    int32_t *to = f->field->to;
    int64_t segments = 0;
    for (int64_t j = 0; j < l->rows; j++) {
        const loong_token_row_t *row = rows[j];
        for (int64_t t = 0; t < l->seq_length; t++) {
            if (t > 0 && !begins(row, t, l->reset_attention_mask)) {
                continue;
            }
            LOONG_CHECK(f->ctx, segments + 1 < f->field->count, LOONG_ERR_ARG,
                        "more than %" PRId64 " segments in a micro-batch",
                        f->field->count - 1);
            to[segments++] = (int32_t)(j * l->seq_length + t);
        }
    }
    for (; segments < f->field->count; segments++) {
        to[segments] = (int32_t)(l->rows * l->seq_length);
    }
    return LOONG_OK;
}

/* ---- the table ----------------------------------------------------------- */

/* How many elements a row of a micro-batch has in a field. */
typedef enum extent {
    OWN_TOKENS,  /* T / ranks of CP */
    OWN_TRIPLES, /* 3 x T / ranks of CP */
    ALL_TOKENS,  /* T */
    RING_TOKENS, /* T / ranks of a ring */
    ONE,
    BOUNDS /* of the micro-batch, not of a row: at least 2 */
} extent_t;

typedef struct field_kind {
    loong_field_type_t type;
    extent_t extent;
    void (*fill)(const fill_t *f, const loong_token_row_t *row, int64_t at);
} field_kind_t;

static const field_kind_t fields[] = {
    {{"tokens", LOONG_I32, LOONG_I32}, OWN_TOKENS, fill_tokens},
    {{"labels", LOONG_I32, LOONG_I32}, OWN_TOKENS, fill_labels},
    {{"loss_weight", LOONG_F32, LOONG_F64}, OWN_TOKENS, fill_loss_weight},
    {{"token_types", LOONG_I32, LOONG_I32}, OWN_TOKENS, fill_token_types},
    {{"is_feature", LOONG_I32, LOONG_I32}, OWN_TOKENS, fill_is_feature},
    {{"is_video", LOONG_I32, LOONG_I32}, OWN_TOKENS, fill_is_video},
    {{"positions", LOONG_I32, LOONG_I32}, OWN_TOKENS, fill_positions},
    {{"axis_positions", LOONG_I32, LOONG_I32},
     OWN_TRIPLES,
     fill_axis_positions},
    {{"token_key", LOONG_I64, LOONG_I64}, OWN_TOKENS, fill_token_key},
    {{"all_token_keys", LOONG_I64, LOONG_I64},
     RING_TOKENS,
     fill_all_token_keys},
    {{"places", LOONG_I32, LOONG_I32}, ALL_TOKENS, fill_places},
    {{"key_ends", LOONG_I32, LOONG_I32}, OWN_TOKENS, fill_key_ends},
    {{"cu_seqlens", LOONG_I32, LOONG_I32}, BOUNDS, NULL},
    {{"row_crc", LOONG_I32, LOONG_I32}, ONE, fill_row_crc},
};

static int64_t row_elements(const loong_token_params_t *l, extent_t extent)
{
    switch (extent) {
    case OWN_TOKENS:
        return own_tokens(l);
    case OWN_TRIPLES:
        return 3 * own_tokens(l);
    case ALL_TOKENS:
        return l->seq_length;
    case RING_TOKENS:
        return l->seq_length / ring_size(l);
    default:
        return 1;
    }
}

static const loong_field_table_t table = {"token", fields, sizeof(fields[0]),
                                          LOONG_COUNT_OF(fields)};

loong_status_t loongi_token_bind(loong_context_t *ctx, const void *config,
                                 loong_field_t *field)
{
    const loong_token_params_t *l = config;
    LOONG_TRY(loongi_field_find(ctx, &table, field));
    const field_kind_t *kind = field->kind;
    int64_t count = l->rows * row_elements(l, kind->extent);
    return loongi_field_check_count(
        ctx, field, count,
        kind->extent == BOUNDS ? field->count > 1 : field->count == count);
}

loong_status_t loongi_token_fill(loong_context_t *ctx, const void *config,
                                 void *const *rows, const loong_field_t *field)
{
    const loong_token_params_t *l = config;
    loong_field_t bound = *field;
    const fill_t f = {ctx, l, &bound};
    LOONG_TRY(loongi_token_bind(ctx, config, &bound));
    const field_kind_t *kind = bound.kind;
    if (kind->extent == BOUNDS) {
        return fill_cu_seqlens(&f, rows);
    }
    int64_t elements = row_elements(l, kind->extent);
    for (int64_t j = 0; j < l->rows; j++) {
        kind->fill(&f, rows[j], j * elements);
    }
    return LOONG_OK;
}
