/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of sharded data parallelism, no rank runs: the sizes of the memory
 * classes, and a replay of every program beside that of a rank that shares
 * nothing out, with a note in each byte of COMM of what it holds. A step must
 * find there the very parameter it is to read, and the gradients that arrive
 * in the main gradient must be the right ones, each once a micro-batch. */
#include "engine_run.h"

#include "loong/collective.h"

enum { MAX_RANKS = 4 };

static loong_component_params_t make_params(loong_dtype_t dtype)
{
    static const char *const layers[] = {"layers.*"};
    loong_component_params_t p = engine_params(dtype);
    engine_model.num_layers = 6;
    engine_model.padded_vocab_size = ENGINE_VOCAB; /* rows of odd number */
    p.logits_rows = 8;
    p.compile.recompute = layers;
    return p;
}

static loong_model_t *make_model(loong_context_t *ctx,
                                 const loong_component_params_t *params,
                                 int ranks, int rank)
{
    loong_mesh_params_t mesh = {.world = ranks, .tp = 1, .cp = 1, .pp = 1,
                                .ep = 1, .etp = 1, .kv_heads = 1};
    loong_component_params_t p = *params;
    loong_model_t *model = NULL;
    p.family = loong_find_family(ctx, "qwen3");
    assert_ok(ctx, loong_mesh_create(ctx, &mesh, rank, &p.mesh));
    assert_ok(ctx, loongi_model_create(ctx, 1, &p, &model));
    return model;
}

/* ---- sizes --------------------------------------------------------------- */

static void add_ranks(loong_context_t *ctx, const loong_component_params_t *p,
                      int ranks, int64_t sum[LOONG_BASE_COUNT],
                      int64_t most[LOONG_BASE_COUNT])
{
    for (int r = 0; r < ranks; r++) {
        loong_model_t *s = make_model(ctx, p, ranks, r);
        for (int b = 0; b < LOONG_BASE_COUNT; b++) {
            sum[b] += s->bytes[b];
            most[b] = LOONG_MAX(most[b], s->bytes[b]);
        }
        loongi_model_destroy(&s);
    }
}

/* A class that is shared out has the bytes of one rank in all, but for what
 * aligns a bucket on each of them. */
static void check_class(int64_t sum, int64_t whole, int ranks, bool shared,
                        int64_t slack)
{
    if (shared) {
        assert_true(sum >= whole && sum <= whole + ranks * slack);
    } else {
        assert_int_equal(sum, ranks * whole);
    }
}

static void classes_have_their_sizes(void **state)
{
    static const loong_dtype_t dtypes[] = {LOONG_F32, LOONG_BF16};
    (void)state;
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    for (int d = 0; d < LOONG_COUNT_OF(dtypes); d++) {
        loong_component_params_t p = make_params(dtypes[d]);
        loong_model_t *one = make_model(ctx, &p, 1, 0);
        int64_t slack = 64 * 4 * one->stages[0]->shards->num_buckets;
        for (int ranks = 2; ranks <= MAX_RANKS; ranks++) {
            for (int level = 0; level < LOONG_SHARDING_COUNT; level++) {
                int64_t sum[LOONG_BASE_COUNT] = {0};
                int64_t most[LOONG_BASE_COUNT] = {0};
                p.shards.sharding = (loong_sharding_t)level;
                add_ranks(ctx, &p, ranks, sum, most);
                const int64_t *whole = one->bytes;
                check_class(sum[LOONG_BASE_PARAM], whole[LOONG_BASE_PARAM],
                            ranks, level == LOONG_SHARDING_PARAMS, slack);
                check_class(sum[LOONG_BASE_GRAD], whole[LOONG_BASE_GRAD],
                            ranks, level >= LOONG_SHARDING_GRADS, slack);
                check_class(sum[LOONG_BASE_OPTIM], whole[LOONG_BASE_OPTIM],
                            ranks, level >= LOONG_SHARDING_OPTIM,
                            slack + 4096 +
                                one->stages[0]->optimizer->record_offset);
                assert_true((sum[LOONG_BASE_COMM] > 0) ==
                            (level >= LOONG_SHARDING_GRADS));
                /* A few buckets, not the model. */
                assert_true(most[LOONG_BASE_COMM] <
                            whole[LOONG_BASE_GRAD] / 2);
            }
        }
        loongi_model_destroy(&one);
    }
    test_context_end(&ctx);
}

/* ---- replay -------------------------------------------------------------- */

typedef struct replay {
    const loong_model_t *whole; /* of a rank that shares nothing out */
    const loong_model_t *shared;
    int64_t *notes; /* per byte of COMM: its offset in the whole PARAM, or
                       -2 - its offset in the whole GRAD; -1: nothing */
    uint8_t *arrived; /* per byte of the whole GRAD */
} replay_t;

static bool is_own(const loong_step_t *step)
{
    return strcmp(step->scope, "data parallel") != 0;
}

static int64_t bytes_of(const loong_karg_t *arg)
{
    return loong_karg_rows(arg) * loong_karg_cols(arg) *
           (int64_t)loong_dtype_size(arg->dtype);
}

static void note(replay_t *r, int64_t at, int64_t bytes, int64_t first,
                 int64_t step)
{
    assert_true(at >= 0 && at + bytes <= r->shared->bytes[LOONG_BASE_COMM]);
    for (int64_t i = 0; i < bytes; i++) {
        r->notes[at + i] = first + i * step;
    }
}

/* The bucket whose pieces a collective moves. */
static const loong_bucket_t *bucket_of(const replay_t *r,
                                       const loong_step_t *step)
{
    const loong_shards_t *s = r->shared->stages[0]->shards;
    const loong_collective_attr_t *a = step->query.attr;
    for (int64_t i = 0; i < s->num_buckets; i++) {
        if (s->buckets[i].counts == a->counts) {
            return &s->buckets[i];
        }
    }
    fail_msg("a collective of no bucket");
    return NULL;
}

static void replay_put_in(replay_t *r, const loong_step_t *step)
{
    const loong_shards_t *s = r->shared->stages[0]->shards;
    const loong_operand_t *at = step->operand;
    int64_t bytes = bytes_of(&step->query.arg[0]);
    if (strcmp(step->query.op, "flat_all_gather") == 0) {
        const loong_bucket_t *b = bucket_of(r, step);
        const loong_flat_t *f = &s->flats[b->flat];
        note(r, at[0].offset, bytes,
             f->param_offset + b->begin * (int64_t)loong_dtype_size(f->dtype),
             1);
    } else if (strcmp(step->query.op, "accumulate") == 0) {
        /* The notes say what it is, the shard's offset where it goes. */
        int64_t wide = (int64_t)loong_dtype_size(s->wide);
        int64_t grad = -2 - r->notes[at[0].offset];
        assert_true(grad >= 0);
        for (int64_t i = 0; i < bytes; i++) {
            assert_int_equal(r->notes[at[0].offset + i], -2 - grad - i);
            r->arrived[grad + i]++;
        }
        for (int64_t k = 0; k < s->num_buckets; k++) {
            const loong_bucket_t *b = &s->buckets[k];
            const loong_flat_t *f = &s->flats[b->flat];
            int64_t element = (grad - f->grad_offset) / wide;
            if (!f->frozen && element >= b->own_begin &&
                element < b->own_end && grad >= f->grad_offset) {
                assert_int_equal(at[1].offset,
                                 loongi_shards_grad(s, b, element));
            }
        }
    }
}

/* The same step of both; what was PARAM or GRAD is in COMM now. */
static void replay_own(replay_t *r, const loong_step_t *whole,
                       const loong_step_t *step)
{
    assert_string_equal(whole->query.op, step->query.op);
    for (int a = 0; a < step->query.num_in + step->query.num_out; a++) {
        loong_operand_t before = whole->operand[a];
        loong_operand_t now = step->operand[a];
        int64_t bytes = bytes_of(&step->query.arg[a]);
        if (before.base == LOONG_BASE_PARAM) {
            assert_int_equal(now.base, LOONG_BASE_COMM);
            for (int64_t i = 0; i < bytes; i++) {
                assert_int_equal(r->notes[now.offset + i], before.offset + i);
            }
        } else if (before.base == LOONG_BASE_GRAD) {
            assert_int_equal(now.base, LOONG_BASE_COMM);
            note(r, now.offset, bytes, -2 - before.offset, -1);
        }
    }
}

static void replay_program(replay_t *r, loong_variant_t variant, int kind)
{
    const loong_program_t *whole =
        &r->whole->stages[0]->chunk[variant]->programs[kind];
    const loong_program_t *p =
        &r->shared->stages[0]->chunk[variant]->programs[kind];
    int64_t at = 0;
    for (int64_t i = 0; i < p->num_steps; i++) {
        if (!is_own(&p->steps[i])) {
            replay_put_in(r, &p->steps[i]);
            continue;
        }
        while (at < whole->num_steps && !is_own(&whole->steps[at])) {
            at++;
        }
        assert_true(at < whole->num_steps);
        replay_own(r, &whole->steps[at++], &p->steps[i]);
    }
}

/* Every gradient of this rank's parts has come once, and no other. */
static void check_arrived(const replay_t *r)
{
    const loong_model_chunk_t *c =
        r->whole->stages[0]->chunk[LOONG_VARIANT_TRAIN];
    const loong_shards_t *s = r->shared->stages[0]->shards;
    int64_t wide = (int64_t)loong_dtype_size(s->wide);
    for (int64_t i = 0; i < c->num_params; i++) {
        const loong_chunk_param_t *p = &c->params[i];
        const loong_bucket_t *b =
            loongi_shards_bucket(s, p->flat, p->flat_offset);
        for (int64_t e = 0; e < p->elements; e++) {
            int64_t at = p->flat_offset + e;
            int64_t byte = c->flats[p->flat].grad_offset + at * wide;
            bool own = at >= b->own_begin && at < b->own_end;
            assert_int_equal(r->arrived[byte], own);
            assert_int_equal(r->arrived[byte + wide - 1], own);
        }
    }
}

static void replay_rank(loong_context_t *ctx, const loong_component_params_t *p,
                        const loong_model_t *whole, int ranks, int rank)
{
    loong_model_t *s = make_model(ctx, p, ranks, rank);
    size_t bytes = (size_t)s->bytes[LOONG_BASE_COMM];
    replay_t r = {whole, s, calloc(bytes, sizeof(*r.notes)),
                  calloc((size_t)whole->bytes[LOONG_BASE_GRAD], 1)};
    for (int c = 0; c < LOONG_VARIANT_COUNT; c++) {
        for (size_t i = 0; i < bytes; i++) {
            r.notes[i] = -1;
        }
        for (int k = 0; k < LOONG_PROGRAM_COUNT; k++) {
            replay_program(&r, (loong_variant_t)c, k);
        }
    }
    check_arrived(&r);
    free(r.notes);
    free(r.arrived);
    loongi_model_destroy(&s);
}

static void programs_find_what_they_read(void **state)
{
    static const loong_dtype_t dtypes[] = {LOONG_F32, LOONG_BF16};
    static const int64_t buckets[] = {1, 1 << 14, 1 << 30};
    (void)state;
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    for (int i = 0; i < 12; i++) {
        loong_component_params_t p = make_params(dtypes[i % 2]);
        p.compile.num_recompute = i % 4 / 2;
        p.compile.ahead = i % 4 == 1;
        p.shards.bucket_bytes = buckets[i / 4];
        loong_model_t *whole = make_model(ctx, &p, 1, 0);
        p.shards.sharding = LOONG_SHARDING_PARAMS;
        for (int rank = 0; rank < 3; rank++) {
            replay_rank(ctx, &p, whole, 3, rank);
        }
        loongi_model_destroy(&whole);
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_have_their_sizes),
        cmocka_unit_test(programs_find_what_they_read),
    };
    return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
