/* SPDX-License-Identifier: Apache-2.0
 *
 * Packs samples into rows. Called by source_pack.c. Read packing.h before. */
#include "packing.h"

#include <inttypes.h>
#include <string.h>

#include "permutation.h"

/* ---- open rows ----------------------------------------------------------- */

enum { WORD = 64, LEVELS = 6 /* 64^6 > INT32_MAX */ };

/* Rows by the room that they have left: lists, and a tree of bits over those
 * that are not empty. */
typedef struct open_rows {
    int32_t *head;          /* [room + 1] a row with so much room; -1: none */
    int32_t *next;          /* [rows] another one with as much */
    int32_t *space;         /* [rows] */
    uint64_t *bits[LEVELS]; /* bit i of a level: its word i below is not 0 */
    int levels;
} open_rows_t;

static void set_bits(open_rows_t *o, int64_t space)
{
    for (int k = 0; k < o->levels; k++, space /= WORD) {
        o->bits[k][space / WORD] |= UINT64_C(1) << space % WORD;
    }
}

static void clear_bits(open_rows_t *o, int64_t space)
{
    for (int k = 0; k < o->levels; k++, space /= WORD) {
        o->bits[k][space / WORD] &= ~(UINT64_C(1) << space % WORD);
        if (o->bits[k][space / WORD] != 0) {
            return;
        }
    }
}

/* The least room of a row that is `least` or more; -1: there is none. */
static int64_t find_space(const open_rows_t *o, int64_t least, int64_t room)
{
    int64_t at = least;
    for (int k = 0; k < o->levels && at <= room; k++) {
        uint64_t word = o->bits[k][at / WORD] >> at % WORD;
        if (word != 0) {
            at += __builtin_ctzll(word);
            for (; k > 0; k--) { /* down to the first one of it */
                at = at * WORD + __builtin_ctzll(o->bits[k - 1][at]);
            }
            return at;
        }
        at = at / WORD + 1; /* words behind this one */
        room /= WORD;
    }
    return -1;
}

static void push(open_rows_t *o, int32_t row)
{
    int32_t space = o->space[row];
    o->next[row] = o->head[space];
    o->head[space] = row;
    set_bits(o, space);
}

static int32_t pop(open_rows_t *o, int64_t space)
{
    int32_t row = o->head[space];
    o->head[space] = o->next[row];
    if (o->head[space] < 0) {
        clear_bits(o, space);
    }
    return row;
}

static void close_rows(loong_context_t *ctx, open_rows_t *o)
{
    loongi_free(ctx, o->head);
    loongi_free(ctx, o->next);
    loongi_free(ctx, o->bits[0]);
}

static loong_status_t open_rows(loong_context_t *ctx, int64_t samples,
                                int64_t room, open_rows_t *o)
{
    size_t words[LEVELS];
    size_t all = 0;
    memset(o, 0, sizeof(*o));
    for (size_t bits = (size_t)room + 1; o->levels == 0 || bits > 1;) {
        bits = (bits + WORD - 1) / WORD;
        words[o->levels++] = bits;
        all += bits;
    }
    LOONG_TRY(loongi_calloc(ctx, (size_t)room + 1, sizeof(*o->head),
                            "rows by room", &o->head));
    LOONG_TRY(loongi_calloc(ctx, 2 * (size_t)samples + 1, sizeof(*o->next),
                            "open rows", &o->next));
    LOONG_TRY(
        loongi_calloc(ctx, all, sizeof(uint64_t), "rows by room", &o->bits[0]));
    memset(o->head, 0xff, ((size_t)room + 1) * sizeof(*o->head));
    o->space = o->next + samples;
    for (int k = 1; k < o->levels; k++) {
        o->bits[k] = o->bits[k - 1] + words[k - 1];
    }
    return LOONG_OK;
}

/* ---- the table ----------------------------------------------------------- */

loong_status_t loongi_pack_begin(loong_context_t *ctx, int64_t samples,
                                 int32_t room, loong_pack_table_t *table)
{
    memset(table, 0, sizeof(*table));
    table->ctx = ctx;
    table->samples = samples;
    table->room = room;
    LOONG_CHECK(ctx, samples <= INT32_MAX, LOONG_ERR_CONFIG,
                "%" PRId64 " samples to be laid into rows, allowed are %d",
                samples, INT32_MAX);
    return loongi_calloc(ctx, (size_t)samples + 1, sizeof(*table->length),
                         "lengths of samples", &table->length);
}

void loongi_pack_destroy(loong_pack_table_t *table)
{
    if (table->ctx != NULL) {
        loongi_free(table->ctx, table->length);
        loongi_free(table->ctx, table->sizes);
        loongi_free(table->ctx, table->sample);
        loongi_free(table->ctx, table->at_least);
        loongi_free(table->ctx, table->first);
        loongi_free(table->ctx, table->place);
    }
    memset(table, 0, sizeof(*table));
}

loong_status_t loongi_pack_limit(loong_pack_table_t *table,
                                 const int32_t has[LOONG_PACK_SIZES])
{
    memcpy(table->has, has, sizeof(table->has));
    return loongi_calloc(table->ctx, (size_t)table->samples + 1,
                         sizeof(*table->sizes), "sizes of samples",
                         &table->sizes);
}

static loong_status_t alloc_places(loong_pack_table_t *t)
{
    size_t samples = (size_t)t->samples + 1;
    LOONG_TRY(loongi_calloc(t->ctx, samples, sizeof(*t->sample),
                            "samples by length", &t->sample));
    LOONG_TRY(loongi_calloc(t->ctx, samples, sizeof(*t->place),
                            "places of samples", &t->place));
    return loongi_calloc(t->ctx, (size_t)t->room + 2, sizeof(*t->at_least),
                         "lengths of samples", &t->at_least);
}

/* Samples of one length stay in their order. */
static void sort_by_length(loong_pack_table_t *t, int64_t *cursor)
{
    for (int64_t i = 0; i < t->samples; i++) {
        t->at_least[t->length[i]]++;
    }
    for (int64_t k = t->room; k >= 0; k--) {
        t->at_least[k] += t->at_least[k + 1];
        cursor[k] = t->at_least[k + 1];
    }
    for (int64_t i = 0; i < t->samples; i++) {
        t->sample[cursor[t->length[i]]++] = (int32_t)i;
    }
}

/* Puts each place into a row. */
static void assign(loong_pack_table_t *t, loong_packing_t packing,
                   int64_t *cursor, open_rows_t *open, int32_t *row_of)
{
    for (int64_t k = 0; k <= t->room; k++) {
        cursor[k] = t->at_least[k + 1];
    }
    for (int64_t i = 0; i < t->samples; i++) {
        int64_t place = i;
        if (packing == LOONG_PACK_GREEDY) {
            int64_t drawn = loongi_permutation_get(t->key, t->samples, i);
            place = cursor[t->length[drawn]]++;
        }
        int32_t length = t->length[t->sample[place]];
        int64_t space = find_space(open, length, t->room);
        int32_t row = space < 0 ? (int32_t)t->rows++ : pop(open, space);
        open->space[row] = (int32_t)(space < 0 ? t->room : space) - length;
        push(open, row);
        row_of[place] = row;
    }
}

/* Lists the places of each row. */
static loong_status_t list_rows(loong_pack_table_t *t, const int32_t *row_of)
{
    LOONG_TRY(loongi_calloc(t->ctx, (size_t)t->rows + 2, sizeof(*t->first),
                            "rows", &t->first));
    int64_t *next = t->first + 1; /* of a row, and then the first behind it */
    for (int64_t i = 0; i < t->samples; i++) {
        next[row_of[i] + 1]++;
    }
    for (int64_t r = 0; r < t->rows; r++) {
        t->most = LOONG_MAX(t->most, (int32_t)next[r + 1]);
        next[r + 1] += next[r];
    }
    for (int64_t i = 0; i < t->samples; i++) {
        t->place[next[row_of[i]]++] = (int32_t)i;
    }
    return LOONG_OK;
}

static loong_status_t pack(loong_pack_table_t *t, loong_packing_t packing,
                           open_rows_t *open)
{
    int64_t *cursor = NULL;
    int32_t *row_of = NULL;
    LOONG_TRY(alloc_places(t));
    LOONG_TRY(loongi_calloc(t->ctx, (size_t)t->room + 1, sizeof(*cursor),
                            "lengths of samples", &cursor));
    loong_status_t status =
        loongi_calloc(t->ctx, (size_t)t->samples + 1, sizeof(*row_of),
                      "rows of samples", &row_of);
    if (status == LOONG_OK) {
        sort_by_length(t, cursor);
        assign(t, packing, cursor, open, row_of);
        status = list_rows(t, row_of);
    }
    loongi_free(t->ctx, row_of);
    loongi_free(t->ctx, cursor);
    return status;
}

/* ---- several sizes ------------------------------------------------------- */

enum { WINDOW = 256 }; /* a larger one spends what fits best too early */

/* Samples that wait for a row, the first one longest. */
typedef struct window {
    int64_t next; /* in the drawn order */
    int64_t count;
    int32_t *sample; /* [room] */
    int64_t room;
    double left[LOONG_PACK_SIZES]; /* of the row, in parts of a row */
} window_t;

static void refill(const loong_pack_table_t *t, window_t *w)
{
    while (w->count < w->room && w->next < t->samples) {
        w->sample[w->count++] =
            (int32_t)loongi_permutation_get(t->key, t->samples, w->next++);
    }
}

static double part_of(const loong_pack_table_t *t, int32_t sample, int size)
{
    return t->has[size] > 0
               ? (double)t->sizes[sample][size] / (double)t->has[size]
               : 0.0;
}

/* Of those that fit the one to be taken; -1: none fits. */
static int64_t choose(const loong_pack_table_t *t, const window_t *w)
{
    int64_t best = -1;
    double most = -1.0;
    for (int64_t i = 0; i < w->count; i++) {
        bool fits = true;
        double product = 0.0;
        for (int k = 0; k < LOONG_PACK_SIZES; k++) {
            double part = part_of(t, w->sample[i], k);
            fits = fits && part <= w->left[k] + 1e-12;
            product += part * w->left[k];
        }
        if (fits && product > most) {
            most = product;
            best = i;
        }
    }
    return best;
}

static void take(loong_pack_table_t *t, window_t *w, int64_t i, int32_t *row_of)
{
    int32_t sample = w->sample[i];
    for (int k = 0; k < LOONG_PACK_SIZES; k++) {
        w->left[k] -= part_of(t, sample, k);
    }
    row_of[sample] = (int32_t)t->rows;
    w->count--;
    memmove(&w->sample[i], &w->sample[i + 1],
            (size_t)(w->count - i) * sizeof(*w->sample));
}

static void fill_all(loong_pack_table_t *t, window_t *w, int32_t *row_of)
{
    refill(t, w);
    while (w->count > 0) {
        for (int k = 0; k < LOONG_PACK_SIZES; k++) {
            w->left[k] = 1.0;
        }
        for (int64_t i = 0; i >= 0; i = choose(t, w)) {
            take(t, w, i, row_of);
            refill(t, w);
        }
        t->rows++;
    }
}

static loong_status_t pack_sizes(loong_pack_table_t *t)
{
    window_t w = {.room = WINDOW};
    int32_t *row_of = NULL;
    LOONG_TRY(loongi_calloc(t->ctx, (size_t)t->samples + 1, sizeof(*t->place),
                            "places of samples", &t->place));
    LOONG_TRY(loongi_calloc(t->ctx, (size_t)(w.room + t->samples + 1),
                            sizeof(*row_of), "rows of samples", &row_of));
    w.sample = row_of + t->samples + 1;
    fill_all(t, &w, row_of);
    loong_status_t status = list_rows(t, row_of);
    loongi_free(t->ctx, row_of);
    return status;
}

loong_status_t loongi_pack_make(loong_pack_table_t *table,
                                loong_packing_t packing, uint64_t key)
{
    open_rows_t open;
    table->key = key;
    if (packing == LOONG_PACK_NONE) {
        table->rows = table->samples;
        table->most = 1;
        return LOONG_OK;
    }
    if (table->sizes != NULL) {
        return pack_sizes(table);
    }
    loong_status_t status =
        open_rows(table->ctx, table->samples, table->room, &open);
    if (status == LOONG_OK) {
        status = pack(table, packing, &open);
    }
    close_rows(table->ctx, &open);
    return status;
}

int64_t loongi_pack_count(const loong_pack_table_t *table, int64_t row)
{
    return table->first == NULL ? 1 : table->first[row + 1] - table->first[row];
}

int64_t loongi_pack_length(const loong_pack_table_t *table, int64_t row,
                           int64_t i)
{
    if (table->first == NULL) {
        return table->length[row];
    }
    int32_t place = table->place[table->first[row] + i];
    return table
        ->length[table->sample != NULL ? table->sample[place] : place];
}

int64_t loongi_pack_sample(const loong_pack_table_t *table, int64_t row,
                           int64_t i, int64_t epoch)
{
    if (table->first == NULL) {
        return row;
    }
    int64_t place = table->place[table->first[row] + i];
    if (table->sample == NULL) {
        return place;
    }
    int64_t length = table->length[table->sample[place]];
    int64_t begin = table->at_least[length + 1];
    uint64_t key = loongi_permutation_key(table->key, (uint64_t)length);
    key = loongi_permutation_key(key, (uint64_t)epoch);
    return table->sample[begin + loongi_permutation_get(
                                     key, table->at_least[length] - begin,
                                     place - begin)];
}
