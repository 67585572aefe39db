/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader: the samples of a step do not depend on ranks or micro-batches,
 * the arrays of a row follow from the tokens and documents by an independent
 * computation, bad samples are named. */
#include "data_test.h"
#include "loong/loader.h"
#include "loong/ops.h"
#include "loong/register.h"

enum { T = 16, DOCUMENTS = 300, MAX_ROWS = 8 };

typedef struct fixture {
    loong_context_t *ctx;
    char dir[SCRATCH_SIZE];
    loong_blend_t *blend;
    loong_blend_t *valid; /* file order, one epoch */
} fixture_t;

static int setup(void **state)
{
    fixture_t *f = calloc(1, sizeof(*f));
    char a[SCRATCH_SIZE];
    char b[SCRATCH_SIZE];
    f->ctx = test_context();
    assert_ok(f->ctx, loong_register_builtin(f->ctx));
    scratch_make(f->dir);
    known_write(f->ctx, scratch_path(f->dir, "a", a), DOCUMENTS, LOONG_U16,
                true);
    known_write(f->ctx, scratch_path(f->dir, "b", b), 100, LOONG_I32, false);
    loong_blend_source_t sources[] = {{a, 0.75, 0, 0, 0, NULL, NULL, NULL, 0},
                                      {b, 0.25, 0, 0, 0, NULL, NULL, NULL, 0}};
    loong_blend_params_t train = {
        .name = "train", .sources = sources, .num_sources = 2,
        .seq_length = T, .seed = 11, .shuffle = true};
    loong_blend_source_t part = {a, 0, 0, 0, 1, NULL, NULL, NULL, 0};
    loong_blend_params_t valid = {
        .name = "valid", .sources = &part, .num_sources = 1, .seq_length = T};
    assert_ok(f->ctx, loong_blend_create(f->ctx, &train, &f->blend));
    assert_ok(f->ctx, loong_blend_create(f->ctx, &valid, &f->valid));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    loong_blend_destroy(&f->blend);
    loong_blend_destroy(&f->valid);
    scratch_remove(f->ctx, f->dir);
    test_context_end(&f->ctx);
    free(f);
    return 0;
}

typedef struct params {
    loong_loader_params_t loader;
    loong_token_params_t tokens;
} params_t;

static params_t base_params(const fixture_t *f)
{
    params_t p = {0};
    p.loader.blend = f->blend;
    p.tokens.vocab_size = 1000;
    p.loader.micro_batch_size = 2;
    p.loader.global_batch_size = 8;
    p.loader.data_parallel_size = 1;
    p.tokens.context_parallel_size = 1;
    return p;
}

/* Of params that outlive the loader. */
static loong_status_t create(const fixture_t *f, params_t *p,
                             loong_loader_t **loader_p)
{
    p->tokens.seq_length = T;
    p->tokens.rows = p->loader.micro_batch_size;
    p->loader.processor = &loong_token_processor;
    p->loader.config = &p->tokens;
    return loong_loader_create(f->ctx, &p->loader, loader_p);
}

/* What the loader counts: labels with loss, and so many tokens in all. */
static int64_t check_step(const fixture_t *f, loong_loader_t *loader,
                          const params_t *p, int64_t consumed)
{
    double sums[LOONG_MAX_NORMALISERS] = {0};
    int64_t rows = loong_loader_micro_batches(loader, consumed) *
                   p->loader.micro_batch_size;
    assert_ok(f->ctx, loong_loader_check_step(loader, consumed, sums));
    assert_true(sums[1] ==
                (double)(rows * T / p->tokens.context_parallel_size));
    return (int64_t)sums[0];
}

/* Buffers for MAX_ROWS rows. */
typedef struct arrays {
    int32_t tokens[MAX_ROWS * T];
    int32_t labels[MAX_ROWS * T];
    float loss_weight[MAX_ROWS * T];
    int32_t positions[MAX_ROWS * T];
    int64_t token_key[MAX_ROWS * T];
    int32_t places[MAX_ROWS * T];
    int64_t all_token_keys[MAX_ROWS * T];
    int32_t cu_seqlens[MAX_ROWS * T + 1];
} arrays_t;

enum { FIELDS = 8 };

/* The fields of a rank's part of `rows` rows; cu_seqlens is the last. */
static void list_fields(arrays_t *a, const params_t *p,
                        loong_field_t fields[FIELDS])
{
    int64_t all = p->loader.micro_batch_size * T;
    int64_t own = all / p->tokens.context_parallel_size;
    int64_t near = own * LOONG_MAX(p->tokens.context_parallel_a2a, 1);
    const loong_field_t list[FIELDS] = {
        {"tokens", LOONG_I32, own, a->tokens, NULL},
        {"labels", LOONG_I32, own, a->labels, NULL},
        {"loss_weight", LOONG_F32, own, a->loss_weight, NULL},
        {"positions", LOONG_I32, own, a->positions, NULL},
        {"token_key", LOONG_I64, own, a->token_key, NULL},
        {"places", LOONG_I32, all, a->places, NULL},
        {"all_token_keys", LOONG_I64, near, a->all_token_keys, NULL},
        {"cu_seqlens", LOONG_I32, all + 1, a->cu_seqlens, NULL}};
    memcpy(fields, list, sizeof(list));
}

/* Fills a micro-batch; returns the number of its labels with loss. */
static int64_t fill(const fixture_t *f, loong_loader_t *loader,
                    const params_t *p, int64_t consumed, int64_t k, arrays_t *a)
{
    loong_field_t fields[FIELDS];
    int64_t loss_tokens = 0;
    list_fields(a, p, fields);
    assert_ok(f->ctx, loong_loader_fill(loader, consumed, k, FIELDS, fields));
    for (int64_t i = 0; i < fields[0].count; i++) {
        loss_tokens += a->loss_weight[i] == 1.0f;
    }
    return loss_tokens;
}

/* The tokens and weights of steps `from` .. `to`-1, put in the order of their
 * token keys, so that any split over ranks gives the same arrays. */
static int64_t collect(const fixture_t *f, params_t p, int64_t consumed,
                       int64_t samples, arrays_t *out)
{
    int64_t loss_tokens = 0;
    for (int r = 0; r < p.loader.data_parallel_size; r++) {
        loong_loader_t *loader = NULL;
        p.loader.data_parallel_rank = r;
        assert_ok(f->ctx, create(f, &p, &loader));
        for (int64_t at = consumed; at < consumed + samples;
             at += loong_loader_batch(loader, at)) {
            int64_t total = check_step(f, loader, &p, at);
            int64_t sum = 0;
            loong_loader_prefetch(loader, at);
            for (int64_t k = 0; k < loong_loader_micro_batches(loader, at);
                 k++) {
                arrays_t a;
                sum += fill(f, loader, &p, at, k, &a);
                for (int64_t i = 0; i < p.loader.micro_batch_size * T; i++) {
                    int64_t to = a.token_key[i] - consumed * T;
                    assert_in_range(to, 0, samples * T - 1);
                    assert_int_equal(out->token_key[to], 0);
                    out->tokens[to] = a.tokens[i];
                    out->labels[to] = a.labels[i];
                    out->loss_weight[to] = a.loss_weight[i];
                    out->token_key[to] = 1;
                }
            }
            assert_int_equal(total, sum);
            loss_tokens += total;
        }
        loong_loader_destroy(&loader);
    }
    return loss_tokens;
}

static void test_independent_of_ranks(void **state)
{
    static const int layouts[][3] = {/* ranks, micro batch, global batch */
                                     {1, 1, 8}, {1, 8, 8}, {2, 1, 8},
                                     {2, 2, 8}, {4, 2, 8}, {8, 1, 8},
                                     {2, 1, 4}, {1, 2, 2}};
    fixture_t *f = *state;
    arrays_t first = {0};
    params_t p = base_params(f);
    p.tokens.eod_mask_loss = true;
    int64_t count = collect(f, p, 40, 8, &first);
    assert_in_range(count, 1, 8 * T - 1);
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        arrays_t other = {0};
        p.loader.data_parallel_size = layouts[i][0];
        p.loader.micro_batch_size = layouts[i][1];
        p.loader.global_batch_size = layouts[i][2];
        assert_int_equal(collect(f, p, 40, 8, &other), count);
        assert_memory_equal(&other, &first, sizeof(first));
    }
}

/* A loader that begins at `consumed` gives what one that ran there gives; the
 * calls in between leave no trace, and nothing is allocated. */
/* A step is what was checked: its samples are read once, and what becomes of
 * the files afterwards does not matter. */
static void test_read_once(void **state)
{
    fixture_t *f = *state;
    char path[SCRATCH_SIZE];
    arrays_t a;
    loong_loader_t *loader = NULL;
    params_t p = base_params(f);
    p.loader.blend = f->valid;
    assert_ok(f->ctx, create(f, &p, &loader));
    check_step(f, loader, &p, 0);
    uint64_t allocated = loong_context_alloc_count(f->ctx);
    FILE *file = fopen(scratch_path(f->dir, "a.bin", path), "r+");
    assert_non_null(file);
    for (int i = 0; i < 8 * T + 1; i++) {
        assert_int_equal(fputc(0, file), 0);
        assert_int_equal(fputc(0, file), 0);
    }
    fclose(file);
    for (int64_t k = 0; k < loong_loader_micro_batches(loader, 0); k++) {
        fill(f, loader, &p, 0, k, &a);
        for (int64_t i = 0; i < p.loader.micro_batch_size * T; i++) {
            int64_t token = k * p.loader.micro_batch_size * T + i;
            assert_int_equal(a.tokens[i], known_id(token) % 1000);
        }
    }
    loong_loader_prefetch(loader, loong_loader_batch(loader, 0));
    assert_true(loong_context_alloc_count(f->ctx) == allocated);
    loong_loader_destroy(&loader);
}

static void test_resume(void **state)
{
    fixture_t *f = *state;
    params_t p = base_params(f);
    loong_loader_t *ran = NULL;
    loong_loader_t *fresh = NULL;
    arrays_t a = {0};
    arrays_t b = {0};
    loong_field_t fields[FIELDS];
    list_fields(&a, &p, fields);
    assert_ok(f->ctx, create(f, &p, &ran));
    assert_ok(f->ctx, create(f, &p, &fresh));
    uint64_t allocations = loong_context_alloc_count(f->ctx);
    for (int64_t at = 0; at < 800; at += 8) {
        for (int64_t k = 0; k < 4; k++) {
            fill(f, ran, &p, at, k, &a);
        }
    }
    fill(f, fresh, &p, 792, 3, &b);
    assert_memory_equal(&a, &b, sizeof(a));
    assert_int_equal(loong_context_alloc_count(f->ctx), allocations);
    assert_fails(f->ctx, loong_loader_fill(ran, 0, 4, FIELDS, fields),
                 LOONG_ERR_ARG, "micro-batch 4 of 4");
    loong_loader_destroy(&ran);
    loong_loader_destroy(&fresh);
}

/* Which document a token of set "a" belongs to, from the lengths alone. */
static int64_t known_document(int64_t token)
{
    int64_t d = 0;
    int64_t end = known_length(0);
    while (token >= end) {
        end += known_length(++d);
    }
    return d;
}

/* Row g of the unshuffled set "a": its tokens start at g * T. */
static void check_row(const arrays_t *a, int64_t row, int64_t g,
                      const params_t *p)
{
    int32_t position = 0;
    for (int64_t t = 0; t < T; t++) {
        int64_t token = g * T + t;
        int64_t at = row * T + t;
        bool fresh =
            t > 0 && known_document(token) != known_document(token - 1);
        bool last = known_document(token) != known_document(token + 1);
        bool learned =
            known_mask(token + 1) && !(p->tokens.eod_mask_loss && last);
        position = p->tokens.reset_position_ids && fresh ? 0 : position;
        assert_int_equal(a->tokens[at], known_id(token));
        assert_int_equal(a->labels[at],
                         learned ? known_id(token + 1) : LOONG_IGNORE_LABEL);
        assert_true(a->loss_weight[at] == (learned ? 1.0f : 0.0f));
        assert_int_equal(a->positions[at], position++);
        assert_int_equal(a->token_key[at], g * T + t);
    }
}

static void check_segments(const arrays_t *a, int64_t g, const params_t *p)
{
    int64_t segment = 0;
    for (int64_t i = 0; i < p->loader.micro_batch_size * T; i++) {
        int64_t token = g * T + i; /* rows of file order are adjacent */
        bool cut =
            i % T == 0 || (p->tokens.reset_attention_mask &&
                           known_document(token) != known_document(token - 1));
        if (cut) {
            assert_int_equal(a->cu_seqlens[segment], i);
            segment++;
        }
    }
    for (; segment <= p->loader.micro_batch_size * T; segment++) {
        assert_int_equal(a->cu_seqlens[segment],
                         p->loader.micro_batch_size * T);
    }
}

static void test_contents(void **state)
{
    fixture_t *f = *state;
    loong_blend_info_t info;
    loong_blend_get_info(f->valid, &info);
    for (int rules = 0; rules < 8; rules++) {
        params_t p = base_params(f);
        loong_loader_t *loader = NULL;
        p.loader.blend = f->valid;
        p.loader.global_batch_size = 2;
        p.tokens.reset_position_ids = rules & 1;
        p.tokens.reset_attention_mask = rules & 2;
        p.tokens.eod_mask_loss = rules & 4;
        assert_ok(f->ctx, create(f, &p, &loader));
        for (int64_t g = 0; g + 2 <= info.max_samples; g += 2) {
            arrays_t a;
            fill(f, loader, &p, g, 0, &a);
            check_row(&a, 0, g, &p);
            check_row(&a, 1, g + 1, &p);
            check_segments(&a, g, &p);
        }
        loong_loader_destroy(&loader);
    }
}

static int64_t fill_part(const fixture_t *f, params_t *p, int64_t g,
                         arrays_t *a, int64_t *counted)
{
    loong_loader_t *loader = NULL;
    assert_ok(f->ctx, create(f, p, &loader));
    *counted += check_step(f, loader, p, g);
    int64_t filled = fill(f, loader, p, g, 0, a);
    loong_loader_destroy(&loader);
    return filled;
}

/* Rank r of n has chunks r and 2 n - 1 - r of each row, as the whole batch has
 * them, and with neighbours that exchange heads what a rank of n / a would;
 * bounds are the whole batch's. */
static int64_t place_of(int64_t i, int n, int r)
{
    int64_t chunk = T / (2 * n);
    int64_t in_row = i % (T / n);
    int64_t number = in_row < chunk ? r : 2 * n - 1 - r;
    return i / (T / n) * T + number * chunk + in_row % chunk;
}

static void check_together(const arrays_t *part, const arrays_t *all,
                           const params_t *p)
{
    int ring = p->tokens.context_parallel_size / p->tokens.context_parallel_a2a;
    int own = p->tokens.context_parallel_rank / p->tokens.context_parallel_a2a;
    for (int64_t k = 0; k < 2 * T && ring > 1; k++) {
        int r = (int)(k / (2 * T / ring));
        assert_int_equal(part->places[k],
                         place_of(k % (2 * T / ring), ring, r));
    }
    for (int64_t i = 0; i < 2 * T / ring; i++) {
        int64_t at = ring > 1 ? place_of(i, ring, own) : i;
        assert_int_equal(part->all_token_keys[i], all->token_key[at]);
    }
}

static void check_part(const arrays_t *part, const arrays_t *all,
                       const params_t *p)
{
    int n = p->tokens.context_parallel_size;
    for (int64_t i = 0; i < 2 * T / n; i++) {
        int64_t at = place_of(i, n, p->tokens.context_parallel_rank);
        assert_int_equal(part->tokens[i], all->tokens[at]);
        assert_int_equal(part->labels[i], all->labels[at]);
        assert_true(part->loss_weight[i] == all->loss_weight[at]);
        assert_int_equal(part->positions[i], all->positions[at]);
        assert_int_equal(part->token_key[i], all->token_key[at]);
    }
    assert_memory_equal(part->cu_seqlens, all->cu_seqlens,
                        sizeof(int32_t) * (2 * T + 1));
    check_together(part, all, p);
}

static void test_context_parallel(void **state)
{
    static const int sizes[][2] = {{2, 1}, {2, 2}, {4, 1}, {4, 2},
                                   {8, 1}, {8, 2}, {8, 4}, {8, 8}};
    fixture_t *f = *state;
    params_t p = base_params(f);
    p.loader.blend = f->valid;
    p.loader.global_batch_size = 2;
    p.tokens.reset_position_ids = p.tokens.reset_attention_mask =
        p.tokens.eod_mask_loss = true;
    for (int64_t g = 0; g < 40; g += 2) {
        arrays_t all;
        p.tokens.context_parallel_size = p.tokens.context_parallel_a2a = 1;
        p.tokens.context_parallel_rank = 0;
        int64_t once = 0;
        int64_t whole = fill_part(f, &p, g, &all, &once);
        for (int i = 0; i < LOONG_COUNT_OF(sizes); i++) {
            int64_t loss_tokens = 0;
            int64_t counted = 0; /* by one of those that share a row */
            p.tokens.context_parallel_size = sizes[i][0];
            p.tokens.context_parallel_a2a = sizes[i][1];
            for (int r = 0; r < sizes[i][0]; r++) {
                arrays_t part;
                p.tokens.context_parallel_rank = r;
                loss_tokens += fill_part(f, &p, g, &part, &counted);
                check_part(&part, &all, &p);
            }
            assert_int_equal(loss_tokens, whole);
            assert_int_equal(counted, once);
        }
    }
}

/* A whole validation set in batches that do not divide it: each token counts
 * once, the rest is padding. */
static void test_padding(void **state)
{
    fixture_t *f = *state;
    params_t p = base_params(f);
    loong_blend_info_t info;
    loong_blend_get_info(f->valid, &info);
    p.loader.blend = f->valid;
    p.loader.num_samples = info.max_samples;
    p.loader.micro_batch_size = 3;
    p.loader.global_batch_size = 6;
    p.loader.data_parallel_size = 2;
    assert_int_not_equal(info.max_samples % 6, 0);
    int64_t total = 0;
    int64_t expected = 0;
    for (int r = 0; r < 2; r++) {
        loong_loader_t *loader = NULL;
        p.loader.data_parallel_rank = r;
        assert_ok(f->ctx, create(f, &p, &loader));
        for (int64_t at = 0; at < info.max_samples; at += 6) {
            int64_t count = check_step(f, loader, &p, at);
            arrays_t a;
            assert_int_equal(fill(f, loader, &p, at, 0, &a), count);
            total += count;
            for (int64_t i = 0; i < 3 * T; i++) {
                if (a.token_key[i] / T >= info.max_samples) {
                    assert_int_equal(a.tokens[i], 0);
                    assert_int_equal(a.labels[i], LOONG_IGNORE_LABEL);
                    assert_true(a.loss_weight[i] == 0);
                }
            }
        }
        loong_loader_destroy(&loader);
    }
    for (int64_t t = 1; t <= info.max_samples * T; t++) {
        expected += known_mask(t);
    }
    assert_int_equal(total, expected);
}

static void test_rampup(void **state)
{
    fixture_t *f = *state;
    params_t p = base_params(f);
    loong_loader_t *loader = NULL;
    p.loader.micro_batch_size = 1;
    p.loader.data_parallel_size = 2;
    p.loader.global_batch_size = 8;
    p.loader.rampup_batch_size = (loong_rampup_t){2, 2, 30};
    assert_ok(f->ctx, create(f, &p, &loader));
    static const int64_t expected[] = {2, 2, 2, 2, 2, 4, 4, 4, 6, 6, 8, 8};
    int64_t consumed = 0; /* 10 samples at each of 2, 4, 6 */
    for (int i = 0; i < LOONG_COUNT_OF(expected); i++) {
        assert_int_equal(loong_loader_batch(loader, consumed), expected[i]);
        assert_int_equal(loong_loader_micro_batches(loader, consumed),
                         expected[i] / 2);
        consumed += expected[i];
    }
    loong_loader_destroy(&loader);
    p.loader.rampup_batch_size.increment = 4;
    assert_fails(f->ctx, create(f, &p, &loader), LOONG_ERR_CONFIG,
                 "from 2 to global_batch_size 8 in steps of");
    p.loader.rampup_batch_size = (loong_rampup_t){1, 1, 30};
    assert_fails(f->ctx, create(f, &p, &loader), LOONG_ERR_CONFIG,
                 "must be multiples of");
    p.loader.rampup_batch_size = (loong_rampup_t){2, 2, 0};
    assert_fails(f->ctx, create(f, &p, &loader), LOONG_ERR_CONFIG,
                 "must be above 0");
}

static void test_refusals(void **state)
{
    fixture_t *f = *state;
    loong_loader_t *loader = NULL;
    params_t p = base_params(f);
    p.loader.global_batch_size = 7;
    assert_fails(f->ctx, create(f, &p, &loader), LOONG_ERR_CONFIG,
                 "global_batch_size 7 is not a multiple of "
                 "micro_batch_size 2 x data-parallel size 1");
    p = base_params(f);
    p.loader.data_parallel_rank = 1;
    assert_fails(f->ctx, create(f, &p, &loader), LOONG_ERR_CONFIG,
                 "data-parallel rank 1 of 1");
    p = base_params(f);
    p.tokens.context_parallel_size = 3;
    assert_fails(f->ctx, create(f, &p, &loader), LOONG_ERR_CONFIG,
                 "seq_length 16 is no multiple of 2 x 3 context-parallel");
    p.tokens.context_parallel_size = 4;
    p.tokens.context_parallel_a2a = 3;
    assert_fails(f->ctx, create(f, &p, &loader), LOONG_ERR_CONFIG,
                 "3 of 4 context-parallel ranks exchange");
    p.tokens.context_parallel_size = p.tokens.context_parallel_a2a = 3;
    p.tokens.context_parallel_rank = 3;
    assert_fails(f->ctx, create(f, &p, &loader), LOONG_ERR_CONFIG,
                 "context-parallel rank 3 of 3");
    p = base_params(f);
    p.loader.data_parallel_size = 4096;
    p.loader.global_batch_size = 8192;
    assert_fails(f->ctx, create(f, &p, &loader), LOONG_ERR_CONFIG,
                 "4096 data-parallel ranks share");
    p = base_params(f);
    p.loader.micro_batch_size = INT32_MAX;
    assert_fails(f->ctx, create(f, &p, &loader), LOONG_ERR_CONFIG,
                 "micro_batch_size 2147483647");
    p = base_params(f);
    p.loader.blend = f->valid;
    p.loader.num_samples = 100000;
    assert_fails(f->ctx, create(f, &p, &loader), LOONG_ERR_CONFIG,
                 "100000 samples wanted");
    p = base_params(f);
    p.tokens.vocab_size = 500;
    assert_ok(f->ctx, create(f, &p, &loader));
    double sums[LOONG_MAX_NORMALISERS];
    assert_fails(f->ctx, loong_loader_check_step(loader, 0, sums),
                 LOONG_ERR_FORMAT, "allowed is 0 to 499");
    arrays_t a;
    loong_field_t fields[FIELDS];
    list_fields(&a, &p, fields);
    assert_fails(f->ctx, loong_loader_fill(loader, 0, 0, FIELDS, fields),
                 LOONG_ERR_FORMAT, "allowed is 0 to 499");
    loong_loader_destroy(&loader);
    p = base_params(f);
    assert_ok(f->ctx, create(f, &p, &loader));
    fields[FIELDS - 1].count = 2;
    assert_fails(f->ctx, loong_loader_fill(loader, 0, 0, FIELDS, fields),
                 LOONG_ERR_ARG, "more than 1 segments");
    loong_loader_destroy(&loader);
}

/* What a program wants and token data does not give is named. */
static void test_unknown_fields(void **state)
{
    fixture_t *f = *state;
    params_t p = base_params(f);
    loong_loader_t *loader = NULL;
    arrays_t a;
    loong_field_t fields[FIELDS];
    list_fields(&a, &p, fields);
    assert_ok(f->ctx, create(f, &p, &loader));
    fields[0].count--;
    assert_fails(f->ctx, loong_loader_fill(loader, 0, 0, 1, fields),
                 LOONG_ERR_CONFIG,
                 "31 elements of the input 'tokens', a micro-batch has 32");
    fields[1].dtype = LOONG_F32;
    assert_fails(f->ctx, loong_loader_fill(loader, 0, 0, 1, &fields[1]),
                 LOONG_ERR_CONFIG, "'labels' as fp32, token data has int32");
    fields[2].name = "pixels";
    assert_fails(f->ctx, loong_loader_fill(loader, 0, 0, 1, &fields[2]),
                 LOONG_ERR_CONFIG,
                 "'pixels', which token data does not have: it has tokens");
    loong_loader_destroy(&loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_independent_of_ranks, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_read_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume, setup, teardown),
        cmocka_unit_test_setup_teardown(test_contents, setup, teardown),
        cmocka_unit_test_setup_teardown(test_context_parallel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_padding, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rampup, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unknown_fields, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
