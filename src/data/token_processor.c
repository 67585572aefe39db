/* SPDX-License-Identifier: Apache-2.0
 *
 * The processor of tokens: from a text, with pictures or T + 1 ids long, to a
 * row of a micro-batch.
 * Called by the loader. Read loong/processor.h before; the arrays are
 * token_fields.c's. */
#include <inttypes.h>
#include <string.h>

#include "source_tokens.h"
#include "token_fields.h"

enum { LOSS_WEIGHT, TOKENS };
static const char *const normalisers[] = {
    [LOSS_WEIGHT] = "loss_weight", [TOKENS] = "tokens", NULL};

static loong_status_t check(loong_context_t *ctx, const void *config,
                            const char *data)
{
    const loong_token_params_t *p = config;
    LOONG_CHECK(ctx,
                p->context_parallel_size >= 1 &&
                    p->context_parallel_rank >= 0 &&
                    p->context_parallel_rank < p->context_parallel_size,
                LOONG_ERR_CONFIG, "data '%s': context-parallel rank %d of %d",
                data, p->context_parallel_rank, p->context_parallel_size);
    LOONG_CHECK(ctx,
                p->context_parallel_size == 1 ||
                    p->seq_length % (2 * p->context_parallel_size) == 0,
                LOONG_ERR_CONFIG,
                "data '%s': seq_length %" PRId64 " is no multiple of 2 x %d "
                "context-parallel ranks",
                data, p->seq_length, p->context_parallel_size);
    LOONG_CHECK(ctx,
                p->context_parallel_a2a == 0 ||
                    (p->context_parallel_a2a > 0 &&
                     p->context_parallel_size % p->context_parallel_a2a == 0),
                LOONG_ERR_CONFIG,
                "data '%s': %d of %d context-parallel ranks exchange heads",
                data, p->context_parallel_a2a, p->context_parallel_size);
    LOONG_CHECK(ctx, p->rows >= 1 && p->rows <= INT32_MAX / p->seq_length,
                LOONG_ERR_CONFIG,
                "data '%s': micro_batch_size %" PRId64
                ", allowed is 1 to %" PRId64 " with seq_length %" PRId64,
                data, p->rows, INT32_MAX / p->seq_length, p->seq_length);
    LOONG_CHECK(ctx, p->vocab_size >= 1 && p->vocab_size <= INT32_MAX,
                LOONG_ERR_CONFIG, "data '%s': vocab_size %" PRId64, data,
                p->vocab_size);
    return LOONG_OK;
}

static loong_status_t begin(const void *config, loong_items_t *items)
{
    const loong_token_params_t *p = config;
    items->vocab_size = p->vocab_size;
    items->picture = -1;
    items->sizes = p->pictures.sizes;
    items->unmarked =
        !p->eod_mask_loss && !p->reset_position_ids && !p->reset_attention_mask;
    return loongi_items_tokens(items, p->seq_length + 1);
}

static size_t row_size(const void *config, const loong_items_t *items)
{
    const loong_token_params_t *p = config;
    size_t bytes = sizeof(int32_t) + 2;
    bytes += p->pictures.rows != NULL ? 3 * sizeof(int32_t) + 1 : 0;
    (void)items; /* all rows are alike */
    return sizeof(loong_token_row_t) + ((size_t)p->seq_length + 1) * bytes;
}

/* A row in the memory that is kept for it: zeros. */
static loong_token_row_t *begin_row(const loong_token_params_t *p, void *memory,
                                    int64_t draw)
{
    loong_token_row_t *row = memory;
    size_t n = (size_t)p->seq_length + 1;
    memset(memory, 0, row_size(p, NULL));
    row->draw = draw;
    bool pictures = p->pictures.rows != NULL;
    row->ids = (int32_t *)(void *)(row + 1);
    row->place = pictures ? (int32_t(*)[3])(void *)(row->ids + n) : NULL;
    row->weight = (uint8_t *)(row->ids + (pictures ? 4 * n : n));
    row->starts = row->weight + n;
    row->feature = pictures ? row->starts + n : NULL;
    return row;
}

static loong_picture_rows_t picture_rows(const loong_token_params_t *p,
                                         const loong_item_t *picture)
{
    return p->pictures.rows(p->pictures.config, picture);
}

/* Rows of all pictures. */
static loong_status_t pictures_rows(const loong_token_params_t *p,
                                    const loong_items_t *items, int64_t *sum_p)
{
    *sum_p = 0;
    for (int i = 1; p->pictures.rows != NULL && i < items->count; i++) {
        const loong_item_t *picture = &items->item[i];
        int64_t rows = picture_rows(p, picture).text;
        LOONG_CHECK(items->ctx, rows > 0, LOONG_ERR_CONFIG,
                    "%s: is %" PRId64 " x %" PRId64 " pixels, longer and "
                    "narrower than the image processor takes",
                    picture->name != NULL ? picture->name : "a picture",
                    picture->size[0], picture->size[1]);
        *sum_p += rows;
    }
    return LOONG_OK;
}

static loong_status_t judge(const void *config, const loong_items_t *items)
{
    const loong_token_params_t *p = config;
    const loong_item_t *text = &items->item[0];
    const char *name = text->name != NULL ? text->name : "a text";
    int64_t pictures = items->count - 1;
    bool known = items->count > 0 && text->type == LOONG_ITEM_TOKENS;
    int64_t tokens = 0; /* that stand for them */
    for (int64_t k = 0; k < pictures; k++) {
        known = known && items->item[1 + k].type == LOONG_ITEM_IMAGE;
        tokens += loong_item_parts(&items->item[1 + k]);
    }
    bool alone = known && pictures == 0 && text->size[0] <= p->seq_length + 1;
    LOONG_CHECK(items->ctx, known && (alone || p->pictures.rows != NULL),
                LOONG_ERR_CONFIG,
                "the model reads texts of up to %" PRId64
                " token ids, its data has something else",
                p->seq_length + 1);
    int64_t of_pictures = 0;
    LOONG_TRY(pictures_rows(p, items, &of_pictures));
    int64_t rows = text->size[0] - tokens + of_pictures;
    LOONG_CHECK(items->ctx, alone || rows <= p->seq_length, LOONG_ERR_CONFIG,
                "%s: takes %" PRId64 " rows, of which %" PRId64
                " are its %" PRId64 " pictures; data.seq_length allows "
                "%" PRId64,
                name, rows, of_pictures, pictures, p->seq_length);
    return LOONG_OK;
}

/* A picture whose tokens are being laid out. */
typedef struct laid {
    const loong_item_t *next; /* the picture, or the one behind the last */
    int64_t part;             /* its next one */
    loong_picture_rows_t rows;
} laid_t;

/* Whether token t stands for a part of a picture. */
static bool stands_for(const laid_t *l, const loong_item_t *end, int64_t t)
{
    const loong_item_t *p = l->next;
    return p < end &&
           t == p->at + (p->part_at != NULL ? p->part_at[l->part] : 0);
}

/* Rows of part `part` of a picture at place `at`: all of it, or a moment or
 * slice, at time 0 of its own. */
static void lay_part(loong_token_row_t *row, int64_t at, int32_t id,
                     const loong_picture_rows_t *rows, const int64_t part[2],
                     int64_t columns)
{
    bool all = part[1] == rows->text;
    int64_t each = all ? rows->text / LOONG_MAX(rows->moments, 1) : part[1];
    for (int64_t i = 0; i < part[1]; i++, at++) {
        int64_t moment = i / each;
        int32_t *place = row->place[at];
        row->ids[at] = id;
        row->feature[at] =
            (uint8_t)((i == 0 ? LOONG_FEATURE_FIRST : LOONG_FEATURE) |
                      rows->encoder_number << LOONG_FEATURE_ENCODER);
        place[0] = (int32_t)((float)moment * rows->step);
        place[1] = (int32_t)(i % each / columns);
        place[2] = (int32_t)(i % columns);
    }
}

/* The text with each picture's rows in place of its tokens. The place behind
 * it, if there is one, begins another document, and behind samples another one,
 * which is padding. */
static void lay_out(const loong_token_params_t *p, const loong_items_t *items,
                    loong_token_row_t *row)
{
    const loong_item_t *text = &items->item[0];
    const loong_item_t *end = text + items->count;
    laid_t l = {.next = text + 1};
    int64_t at = 0;
    for (int64_t t = 0; t < text->size[0]; t++) {
        row->starts[at] = text->starts[t];
        if (!stands_for(&l, end, t)) {
            row->ids[at] = text->ids[t];
            if (at > 0) {
                row->weight[at - 1] = text->weight[t];
            }
            at++;
            continue;
        }
        int64_t parts = loong_item_parts(l.next);
        l.rows = l.part == 0 ? picture_rows(p, l.next) : l.rows;
        int64_t part[2];
        loong_picture_part(&l.rows, true, parts, l.part, part);
        lay_part(row, at, text->ids[t], &l.rows, part,
                 loong_picture_is_whole(&l.rows, l.part) ? l.rows.whole.columns
                                                         : l.rows.columns);
        at += part[1];
        l.part = (l.part + 1) % parts;
        l.next += l.part == 0 ? 1 : 0;
    }
    if (at <= p->seq_length) {
        int sample = text->size[0] > 0 ? text->starts[0] : 0;
        row->starts[at] =
            (uint8_t)(LOONG_START_DOCUMENT | (sample & LOONG_START_SAMPLE));
    }
}

/* Takes the loss from labels that are another sample's first token, or another
 * document's where that is asked for. */
static void cut_labels(const loong_token_params_t *p, loong_token_row_t *row)
{
    int apart =
        LOONG_START_SAMPLE | (p->eod_mask_loss ? LOONG_START_DOCUMENT : 0);
    for (int64_t t = 0; t < p->seq_length; t++) {
        row->weight[t] = row->starts[t + 1] & apart ? 0 : row->weight[t];
    }
}

/* What the labels of a row weigh together. */
static double sum_weights(const loong_token_params_t *p,
                          const loong_token_row_t *row)
{
    double sum = 0.0;
    int64_t learned = 0;
    for (int64_t t = 0; t < p->seq_length;) {
        t = loongi_token_sample(p, row, t, &learned);
        sum += (double)learned * loongi_token_weight(p, learned);
    }
    return sum;
}

static loong_status_t keep(const void *config, int64_t draw,
                           const loong_items_t *items, void *memory,
                           double sums[LOONG_MAX_NORMALISERS])
{
    const loong_token_params_t *p = config;
    loong_token_row_t *row = begin_row(p, memory, draw);
    int64_t own = p->seq_length / p->context_parallel_size;
    sums[TOKENS] += (double)own;
    if (items == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(judge(p, items));
    lay_out(p, items, row);
    cut_labels(p, row);
    if (p->context_parallel_rank == 0) { /* for all that hold the row */
        sums[LOSS_WEIGHT] += sum_weights(p, row);
    }
    return LOONG_OK;
}

/* Any tokens, all with loss. */
static loong_status_t example(const void *config, int64_t i,
                              loong_items_t *items)
{
    const loong_token_params_t *p = config;
    int64_t count = p->seq_length + 1;
    LOONG_TRY(loongi_items_tokens(items, count));
    for (int64_t k = 0; k < count; k++) {
        items->item[0].ids[k] =
            (int32_t)((i * p->seq_length + k) * 7919 % p->vocab_size);
        items->item[0].weight[k] = 1;
    }
    return LOONG_OK;
}

const loong_processor_t loong_token_processor = {sizeof(loong_token_processor),
                                                 "token",
                                                 1u << LOONG_ITEM_TOKENS,
                                                 normalisers,
                                                 check,
                                                 begin,
                                                 row_size,
                                                 keep,
                                                 example,
                                                 loongi_token_bind,
                                                 loongi_token_fill,
                                                 judge};
