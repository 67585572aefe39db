/* SPDX-License-Identifier: Apache-2.0
 *
 * The source of rows over a source of texts. Called by blend.c, which puts it
 * there, and through loong_source_class_t. Read packing.h and source_pack.h
 * before. */
#include "source_pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "packing.h"
#include "source_tokens.h"
#include "truncation.h"

typedef struct pack {
    loong_context_t *ctx;
    loong_pack_params_t params;
    const loong_source_class_t *inner_class;
    void *inner;
    loong_source_class_t own; /* the class of this source */
    loong_source_info_t info;
    loong_pack_info_t figures;
    loong_pack_table_t table;
} pack_t;

/* ---- reading ------------------------------------------------------------- */

/* The list that samples of a row are read into: of the thread's own list, with
 * the same wishes. */
static loong_status_t begin_inner(loong_items_t *items)
{
    if (items->inner == NULL) {
        LOONG_TRY(loongi_alloc(items->ctx, sizeof(*items->inner),
                               "samples of a row", &items->inner));
    }
    items->inner->ctx = items->ctx;
    items->inner->vocab_size = items->vocab_size;
    items->inner->unmarked = items->unmarked;
    items->inner->picture = items->picture;
    items->inner->epoch = items->epoch;
    items->inner->sizes = items->sizes;
    return LOONG_OK;
}

/* Copies ids [begin, end) of a text behind the first *at of a row. */
static void copy_part(const loong_item_t *text, int64_t begin, int64_t end,
                      loong_item_t *row, int64_t *at)
{
    size_t n = (size_t)(end - begin);
    memcpy(row->ids + *at, text->ids + begin, n * sizeof(*row->ids));
    memcpy(row->weight + *at, text->weight + begin, n);
    memcpy(row->starts + *at, text->starts + begin, n);
    *at += end - begin;
}

static loong_status_t fail_changed(const pack_t *p, loong_context_t *ctx,
                                   int64_t sample)
{
    return LOONG_FAIL(ctx, LOONG_ERR_MISMATCH,
                      "data '%s', '%s': sample %" PRId64
                      " is not as long as when the source was opened",
                      p->params.data, p->info.path, sample);
}

static bool reads_pictures(const pack_t *p)
{
    return p->params.pictures.rows != NULL;
}

/* What a sample with pictures takes of a row; false: it has something that is
 * none, or is refused. */
static bool measure_pictures(const pack_t *p, const loong_items_t *items,
                             int64_t sizes[LOONG_PACK_SIZES])
{
    const loong_picture_reader_t *reader = &p->params.pictures;
    bool known = items->count > 0 && items->item[0].type == LOONG_ITEM_TOKENS;
    sizes[LOONG_PACK_IDS] = known ? items->item[0].size[0] : 0;
    sizes[LOONG_PACK_PATCHES] = 0;
    sizes[LOONG_PACK_IMAGES] = items->count - 1;
    for (int i = 1; i < items->count; i++) {
        const loong_item_t *item = &items->item[i];
        loong_picture_rows_t rows =
            reader->rows(reader->config, item);
        known = known && item->type == LOONG_ITEM_IMAGE && rows.text > 0;
        sizes[LOONG_PACK_IDS] += rows.text - loong_item_parts(item);
        sizes[LOONG_PACK_PATCHES] += rows.encoder;
    }
    return known;
}

/* The pictures of a sample whose text begins at `begin` of a row's. */
static void list_pictures(const loong_items_t *inner, int64_t begin,
                          loong_items_t *items)
{
    for (int i = 1; i < inner->count; i++) {
        loong_item_t *item = &items->item[items->count++];
        *item = inner->item[i];
        item->name = NULL; /* the sample's memory is read into again */
        item->at += begin;
    }
}

/* As long as when the source was opened, and all of it kept. */
static bool is_same(const pack_t *p, int64_t sample, const loong_items_t *items)
{
    int64_t sizes[LOONG_PACK_SIZES];
    return measure_pictures(p, items, sizes) &&
           sizes[LOONG_PACK_IDS] == p->table.length[sample];
}

static loong_status_t add_pictured(const pack_t *p, int64_t sample,
                                   loong_items_t *items, int64_t *at)
{
    loong_item_t *row = &items->item[0];
    int64_t begin = *at;
    LOONG_TRY(p->inner_class->read(p->inner, sample, items->inner));
    const loong_item_t *text = &items->inner->item[0];
    if (!is_same(p, sample, items->inner)) {
        return fail_changed(p, items->ctx, sample);
    }
    copy_part(text, 0, text->size[0], row, at);
    if (*at > begin) {
        row->starts[begin] |= LOONG_START_SAMPLE | LOONG_START_DOCUMENT;
    }
    list_pictures(items->inner, begin, items);
    return LOONG_OK;
}

static loong_status_t add_sample(const pack_t *p, int64_t sample,
                                 loong_items_t *items, int64_t *at)
{
    loong_cut_t cut;
    loong_item_t *row = &items->item[0];
    int64_t begin = *at;
    LOONG_TRY(p->inner_class->read(p->inner, sample, items->inner));
    const loong_item_t *text = &items->inner->item[0];
    if (items->inner->count != 1 || text->type != LOONG_ITEM_TOKENS ||
        !loongi_truncate(text, p->table.room, p->params.truncation, &cut) ||
        cut.head + text->size[0] - cut.tail != p->table.length[sample]) {
        return fail_changed(p, items->ctx, sample);
    }
    copy_part(text, 0, cut.head, row, at);
    copy_part(text, cut.tail, text->size[0], row, at);
    if (*at > begin) {
        row->starts[begin] |= LOONG_START_SAMPLE | LOONG_START_DOCUMENT;
    }
    return LOONG_OK;
}

static int64_t ids_of(const pack_t *p, int64_t row)
{
    int64_t ids = 0;
    for (int64_t i = 0; i < loongi_pack_count(&p->table, row); i++) {
        ids += loongi_pack_length(&p->table, row, i);
    }
    return ids;
}

/* One picture of a row, as its sample has it. */
static loong_status_t read_picture(const pack_t *p, int64_t row,
                                   loong_items_t *items)
{
    int64_t wanted = items->picture;
    int64_t sample = 0;
    LOONG_TRY(begin_inner(items));
    for (int64_t i = 0; wanted > 0; i++) {
        sample = loongi_pack_sample(&p->table, row, i, items->epoch);
        items->inner->picture = (int)wanted;
        wanted -= p->table.sizes[sample][LOONG_PACK_IMAGES];
    }
    LOONG_TRY(p->inner_class->read(p->inner, sample, items->inner));
    items->count = items->inner->count;
    memcpy(items->item, items->inner->item,
           (size_t)items->count * sizeof(*items->item));
    return LOONG_OK;
}

static loong_status_t read_row(const void *source, int64_t row,
                               loong_items_t *items)
{
    const pack_t *p = source;
    int64_t at = 0;
    if (reads_pictures(p) && items->picture > 0) {
        return read_picture(p, row, items);
    }
    LOONG_TRY(loongi_items_tokens(items, ids_of(p, row)));
    LOONG_TRY(begin_inner(items));
    items->inner->picture = -1;
    for (int64_t i = 0; i < loongi_pack_count(&p->table, row); i++) {
        int64_t sample = loongi_pack_sample(&p->table, row, i, items->epoch);
        LOONG_TRY(reads_pictures(p) ? add_pictured(p, sample, items, &at)
                                    : add_sample(p, sample, items, &at));
    }
    items->item[0].size[0] = at; /* a picture is one of them */
    return LOONG_OK;
}

static loong_status_t peek_row(const void *source, int64_t row,
                               loong_items_t *items)
{
    const pack_t *p = source;
    int64_t ids = reads_pictures(p) ? 0 : ids_of(p, row);
    items->count = 1;
    LOONG_TRY(reads_pictures(p) ? begin_inner(items) : LOONG_OK);
    for (int64_t i = 0;
         reads_pictures(p) && i < loongi_pack_count(&p->table, row); i++) {
        int64_t sample = loongi_pack_sample(&p->table, row, i, items->epoch);
        LOONG_TRY(p->inner_class->peek(p->inner, sample, items->inner));
        list_pictures(items->inner, ids, items);
        ids += items->inner->item[0].size[0];
    }
    items->item[0] =
        (loong_item_t){.type = LOONG_ITEM_TOKENS, .size = {ids, -1}};
    return LOONG_OK;
}

/* Which samples a row of several will have, its epoch says, which is not known
 * here. */
static void prefetch_row(const void *source, int64_t row)
{
    const pack_t *p = source;
    if (p->inner_class->prefetch != NULL &&
        p->params.packing == LOONG_PACK_NONE) {
        p->inner_class->prefetch(p->inner, row);
    }
}

static void get_info(const void *source, loong_source_info_t *info)
{
    *info = ((const pack_t *)source)->info;
}

int64_t loongi_pack_cost(const loong_source_class_t *source_class,
                         const void *source, int64_t row, const int64_t *cost)
{
    const pack_t *p = source;
    int64_t sum = 0;
    if (source_class->read != read_row) {
        return -1;
    }
    for (int64_t i = 0; i < loongi_pack_count(&p->table, row); i++) {
        sum += cost[loongi_pack_length(&p->table, row, i)];
    }
    return sum;
}

loong_status_t
loongi_pack_read_sample(const loong_source_class_t *source_class,
                        const void *source, int64_t row, int64_t i,
                        loong_items_t *items)
{
    const pack_t *p = source;
    items->count = 0;
    if (source_class->read != read_row ||
        i >= loongi_pack_count(&p->table, row)) {
        return LOONG_OK;
    }
    return p->inner_class->read(
        p->inner, loongi_pack_sample(&p->table, row, i, items->epoch), items);
}

/* ---- opening ------------------------------------------------------------- */

/* Samples that are too long, the first ones by name. */
typedef struct refusals {
    loong_text_t text;
    int64_t count;
} refusals_t;

static void refuse(refusals_t *r, const loong_item_t *text, int64_t sample)
{
    enum { NAMED = 8 };
    if (r->count++ < NAMED) {
        loongi_text_printf(&r->text, "\n  %s",
                           text->name != NULL ? text->name : "sample");
        if (text->name == NULL) {
            loongi_text_printf(&r->text, " %" PRId64, sample);
        }
        loongi_text_printf(&r->text, ": %" PRId64, text->size[0]);
    } else if (r->count == NAMED + 1) {
        loongi_text_printf(&r->text, "\n  ...");
    }
}

static int64_t learned_between(const loong_item_t *text, int64_t begin,
                               int64_t end)
{
    int64_t learned = 0;
    for (int64_t t = LOONG_MAX(begin, 1); t < end; t++) {
        learned += text->weight[t];
    }
    return learned;
}

/* Reads a sample that is too long, to see what stays of it. */
static loong_status_t cut_sample(pack_t *p, int64_t sample,
                                 loong_items_t *items, refusals_t *refused)
{
    loong_cut_t cut;
    loong_pack_info_t *f = &p->figures;
    LOONG_TRY(p->inner_class->read(p->inner, sample, items));
    const loong_item_t *text = &items->item[0];
    bool fits =
        loongi_truncate(text, p->table.room, p->params.truncation, &cut);
    if (!fits) {
        refuse(refused, text, sample);
        return LOONG_OK;
    }
    f->cut_samples++;
    f->cut_ids += cut.tail - cut.head;
    f->cut_learned += learned_between(text, cut.head, cut.tail);
    p->table.length[sample] = (int32_t)(cut.head + text->size[0] - cut.tail);
    return LOONG_OK;
}

/* Each picture has rows. */
static loong_status_t check_rows(const pack_t *p, const char *name,
                                 const loong_items_t *items)
{
    const loong_picture_reader_t *reader = &p->params.pictures;
    for (int i = 1; i < items->count; i++) {
        const loong_item_t *item = &items->item[i];
        LOONG_CHECK(p->ctx,
                    item->type != LOONG_ITEM_IMAGE ||
                        reader->rows(reader->config, item).text > 0,
                    LOONG_ERR_CONFIG,
                    "data '%s': %s: picture %s is %" PRId64 " x %" PRId64
                    " pixels, longer and narrower than the image processor "
                    "takes",
                    p->params.data, name != NULL ? name : "a text",
                    item->name != NULL ? item->name : "", item->size[0],
                    item->size[1]);
    }
    return LOONG_OK;
}

/* Samples with pictures are not cut. */
static loong_status_t measure_pictured(pack_t *p, int64_t sample,
                                       const loong_items_t *items)
{
    loong_pack_info_t *f = &p->figures;
    const char *name = items->count > 0 ? items->item[0].name : NULL;
    int64_t sizes[LOONG_PACK_SIZES];
    char most[24] = "any number";
    if (p->params.patches < INT32_MAX) {
        snprintf(most, sizeof(most), "%d", p->params.patches);
    }
    bool fits = measure_pictures(p, items, sizes);
    LOONG_TRY(fits ? LOONG_OK : check_rows(p, name, items));
    for (int k = 0; k < LOONG_PACK_SIZES; k++) {
        fits = fits && sizes[k] <= p->table.has[k];
        p->table.sizes[sample][k] = (int32_t)LOONG_MIN(sizes[k], INT32_MAX);
    }
    LOONG_CHECK(p->ctx, fits, LOONG_ERR_CONFIG,
                "data '%s': %s (sample %" PRId64 " of '%s') takes %" PRId64
                " rows, %" PRId64 " of the image encoder, %" PRId64
                " pictures; a row of samples has %d (data.seq_length), %s "
                "(data.row_patches), %d (data.row_images)",
                p->params.data, name != NULL ? name : "a text", sample,
                p->info.path, sizes[LOONG_PACK_IDS], sizes[LOONG_PACK_PATCHES],
                sizes[LOONG_PACK_IMAGES], p->table.has[LOONG_PACK_IDS], most,
                p->table.has[LOONG_PACK_IMAGES]);
    p->table.length[sample] = p->table.sizes[sample][LOONG_PACK_IDS];
    f->ids += sizes[LOONG_PACK_IDS];
    f->longest = LOONG_MAX(f->longest, sizes[LOONG_PACK_IDS]);
    f->patches += sizes[LOONG_PACK_PATCHES];
    f->learned = -1;
    return LOONG_OK;
}

static loong_status_t measure(pack_t *p, int64_t sample, loong_items_t *items,
                              refusals_t *refused)
{
    loong_pack_info_t *f = &p->figures;
    LOONG_TRY(p->inner_class->peek(p->inner, sample, items));
    if (reads_pictures(p)) {
        return measure_pictured(p, sample, items);
    }
    const loong_item_t text = items->item[0];
    LOONG_CHECK(p->ctx, items->count == 1 && text.type == LOONG_ITEM_TOKENS,
                LOONG_ERR_CONFIG,
                "data '%s', '%s': sample %" PRId64 " has %d items, rows are "
                "made of samples of one text",
                p->params.data, p->info.path, sample, items->count);
    f->ids += text.size[0];
    f->longest = LOONG_MAX(f->longest, text.size[0]);
    f->learned =
        f->learned < 0 || text.size[1] < 0 ? -1 : f->learned + text.size[1];
    if (text.size[0] <= p->table.room) {
        p->table.length[sample] = (int32_t)text.size[0];
        return LOONG_OK;
    }
    return cut_sample(p, sample, items, refused);
}

static const char *const truncations[] = {[LOONG_TRUNCATE_REFUSE] = "refuse",
                                          [LOONG_TRUNCATE_LEFT] = "left",
                                          [LOONG_TRUNCATE_RIGHT] = "right",
                                          [LOONG_TRUNCATE_TURN] = "turn"};

static loong_status_t measure_all(pack_t *p)
{
    loong_items_t items = {.ctx = p->ctx,
                           .vocab_size = INT32_MAX,
                           .picture = -1,
                           .sizes = p->params.pictures.sizes};
    refusals_t refused = {loongi_text_begin(p->ctx), 0};
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < p->table.samples && status == LOONG_OK; i++) {
        status = measure(p, i, &items, &refused);
    }
    if (status == LOONG_OK && refused.count > 0) {
        status = LOONG_FAIL(
            p->ctx, LOONG_ERR_CONFIG,
            "data '%s', '%s': %" PRId64 " of %" PRId64
            " samples are longer than the %d ids of a row (seq_length %" PRId64
            " + 1), and data.truncation: %s %s:%s",
            p->params.data, p->info.path, refused.count, p->table.samples,
            p->table.room, p->params.seq_length,
            truncations[p->params.truncation],
            p->params.truncation == LOONG_TRUNCATE_TURN
                ? "finds no turns to drop that suffice"
                : "cuts none; allowed are left, right, turn",
            loongi_text_get(&refused.text));
    }
    loongi_text_free(&refused.text);
    loong_items_free(&items);
    return status;
}

/* What is read of the source: not only its contents. */
static uint64_t hash_of(const pack_t *p)
{
    const uint64_t words[] = {p->info.hash, (uint64_t)p->params.packing,
                              (uint64_t)p->params.truncation, p->params.key,
                              (uint64_t)p->table.room,
                              (uint64_t)p->params.patches,
                              (uint64_t)p->params.images};
    size_t used = reads_pictures(p) ? sizeof(words) : sizeof(words) - 16;
    return XXH3_64bits(words, used);
}

static loong_status_t open_pack(pack_t *p)
{
    double begin = loongi_now();
    loong_pack_info_t *f = &p->figures;
    LOONG_CHECK(p->ctx,
                p->params.seq_length >= 1 && p->params.seq_length < INT32_MAX,
                LOONG_ERR_CONFIG,
                "data '%s': seq_length %" PRId64 ", must be 1 or more",
                p->params.data, p->params.seq_length);
    int32_t room =
        (int32_t)p->params.seq_length + (reads_pictures(p) ? 0 : 1);
    const int32_t has[] = {room, p->params.patches, p->params.images};
    LOONG_TRY(loongi_pack_begin(p->ctx, p->info.samples, room, &p->table));
    LOONG_TRY(reads_pictures(p) ? loongi_pack_limit(&p->table, has) : LOONG_OK);
    LOONG_TRY(measure_all(p));
    LOONG_TRY(loongi_pack_make(&p->table, p->params.packing, p->params.key));
    f->packing = p->params.packing;
    f->truncation = p->params.truncation;
    f->samples = p->table.samples;
    f->rows = p->table.rows;
    f->room = p->table.room;
    f->patch_room = p->params.patches < INT32_MAX ? p->params.patches : 0;
    f->most = p->table.most;
    f->seconds = loongi_now() - begin;
    p->info.samples = f->rows;
    p->info.hash = hash_of(p);
    p->info.pack = f;
    return LOONG_OK;
}

static void close_pack(void *source)
{
    pack_t *p = source;
    if (p != NULL) {
        if (p->inner != NULL) {
            p->inner_class->close(p->inner);
        }
        loongi_pack_destroy(&p->table);
        loongi_free(p->ctx, p);
    }
}

loong_status_t loongi_pack_source(loong_context_t *ctx,
                                  const loong_pack_params_t *params,
                                  const loong_source_class_t **class_p,
                                  void **source_p)
{
    pack_t *p = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*p), "rows of samples", &p));
    p->ctx = ctx;
    p->params = *params;
    p->inner_class = *class_p;
    p->inner = *source_p;
    p->inner_class->get_info(p->inner, &p->info);
    p->own = (loong_source_class_t){.struct_size = sizeof(p->own),
                                    .name = p->inner_class->name,
                                    .concurrent = p->inner_class->concurrent,
                                    .close = close_pack,
                                    .get_info = get_info,
                                    .read = read_row,
                                    .prefetch = prefetch_row,
                                    .peek = peek_row};
    loong_status_t status = open_pack(p);
    if (status != LOONG_OK) {
        p->inner = NULL; /* it stays its owner's */
        close_pack(p);
        return status;
    }
    *class_p = &p->own;
    *source_p = p;
    return LOONG_OK;
}
