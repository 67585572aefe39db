/* SPDX-License-Identifier: Apache-2.0
 *
 * Impossible layouts: every broken rule is told, and the layouts that are told
 * as possible are. */
#include "loong/comm.h"
#include "loong/register.h"
#include "loong/trainer.h"
#include "rng.h"
#include "test.h"

static const char recipe_text[] =
    "model:\n"
    "  foundation: {family: qwen3, num_layers: 5, hidden_size: 24,\n"
    "    ffn_hidden_size: 42, num_attention_heads: 6,\n"
    "    num_query_groups: 3, kv_channels: 8, vocab_size: 61,\n"
    "    max_position_embeddings: 64, activation: swiglu}\n"
    "precision: {params_dtype: fp64}\n"
    "data: {seq_length: 16}\n"
    "train: {micro_batch_size: 2, global_batch_size: 24, train_iters: 4}\n"
    "optimizer: {lr: 3e-3}\n"
    "parallel: {sequence_parallel: false}\n"
    "schedule: auto\n";

enum { MAX_OVERRIDES = 16, TRAIL = 8192 };

/* Overrides, one after the other with spaces between. */
typedef struct layout {
    int ranks;
    char words[512];
} layout_t;

typedef struct planner {
    loong_context_t *ctx;
    loong_comm_t *comm;
} planner_t;

static planner_t begin(void)
{
    planner_t p = {test_context(), NULL};
    assert_ok(p.ctx, loong_register_builtin(p.ctx));
    assert_ok(p.ctx, loong_comm_create_self(p.ctx, NULL, &p.comm));
    return p;
}

static void end(planner_t *p)
{
    loong_comm_destroy(&p->comm);
    test_context_end(&p->ctx);
}

/* The trail stays in the context. */
static loong_status_t plan(const planner_t *p, const layout_t *layout)
{
    char words[512];
    const char *overrides[MAX_OVERRIDES];
    int n = 0;
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *trainer = NULL;
    memcpy(words, layout->words, sizeof(words));
    for (char *w = strtok(words, " "); w != NULL; w = strtok(NULL, " ")) {
        assert_true(n < MAX_OVERRIDES);
        overrides[n++] = w;
    }
    loong_recipe_params_t params = {NULL, n, overrides, 0, NULL};
    loong_context_clear_error(p->ctx);
    assert_ok(p->ctx, loong_recipe_parse(p->ctx, "r.yaml", recipe_text, &params,
                                         &recipe));
    loong_trainer_params_t trained = {.comm = p->comm,
                                      .recipe = recipe,
                                      .plan_only = true,
                                      .plan_ranks = layout->ranks};
    loong_status_t status = loong_trainer_create(p->ctx, &trained, &trainer);
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    return status;
}

/* The layouts that a trail tells of, laid over the one that was asked for. */
static int possible_ones(const char *trail, const layout_t *asked,
                         layout_t *found, int room)
{
    int count = 0;
    int ranks = 0;
    const char *at = strstr(trail, "possible on ");
    for (; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (sscanf(at, "possible on %d rank", &ranks) == 1 || ranks == 0) {
            continue;
        }
        const char *last = strstr(at, "   (data parallel ");
        if (strncmp(at, "    ", 4) != 0 || last == NULL || count == room) {
            break;
        }
        const char *words =
            strstr(at, "the recipe as it is") == at + 4 ? last : at + 4;
        layout_t *f = &found[count++];
        f->ranks = ranks;
        snprintf(f->words, sizeof(f->words), "%.240s %.*s", asked->words,
                 (int)LOONG_MIN(last - words, 250), words);
    }
    return count;
}

/* ---- every rule ---------------------------------------------------------- */

static void check_told(const layout_t *asked, int count,
                       const char *const *told)
{
    planner_t p = begin();
    assert_int_equal(plan(&p, asked), LOONG_ERR_CONFIG);
    const char *trail = loong_context_error(p.ctx);
    for (int i = 0; i < count; i++) {
        const char *first = strstr(trail, told[i]);
        if (first == NULL || strstr(first + 1, told[i]) != NULL) {
            fail_msg("'%s' is not told once in: %s", told[i], trail);
        }
    }
    end(&p);
}

/* A schedule is held to what does not depend on what is wrong elsewhere. */
static void rules_of_schedules_are_told(void **state)
{
    (void)state;
    static const layout_t chunks = {
        2, "parallel.pipeline_model_parallel_size=2 schedule=zero_bubble_v "
           "parallel.overlap_moe_expert_parallel_comm=true"};
    static const layout_t ranks = {
        5, "parallel.pipeline_model_parallel_size=2 schedule=zero_bubble_v "
           "train.micro_batch_size=5 "
           "parallel.overlap_moe_expert_parallel_comm=true"};
    static const layout_t cut = {
        2, "parallel.pipeline_model_parallel_size=2 schedule=zero_bubble_h1 "
           "parallel.pipeline_model_parallel_layout=Et|L "
           "parallel.overlap_moe_expert_parallel_comm=true"};
    static const char *const told[] = {"1 chunk a rank, 2 are wanted",
                                       "no pairs of forward and backward",
                                       "5 ranks are no multiple"};
    static const char *const told_cut[] = {"1 layers, the model has 5",
                                           "no pairs of forward and backward"};
    check_told(&chunks, 2, told);
    check_told(&ranks, 3, told);
    check_told(&cut, 2, told_cut);
}

static void every_rule_is_told(void **state)
{
    (void)state;
    static const layout_t asked = {
        10, "parallel.tensor_model_parallel_size=8 "
            "parallel.pipeline_model_parallel_size=7 "
            "parallel.sequence_parallel=true data.seq_length=15 "
            "train.micro_batch_size=5 schedule=one_stage"};
    static const char *const told[] = {
        "10 ranks are no multiple of tensor x context x pipeline = 8 x 1 x 7",
        "tensor_model_parallel_size 8 is above the 3 key / value heads",
        "tensor_model_parallel_size 8: num_attention_heads is 6",
        "sequence_parallel: 75 tokens of a micro-batch are no multiple of",
        "pipeline_model_parallel_size 7: ",
        "schedule one_stage: 1 problem",
    };
    check_told(&asked, LOONG_COUNT_OF(told), told);
}

/* ---- what is told as possible -------------------------------------------- */

typedef struct expected {
    layout_t asked;
    const char *first; /* of the layouts that are told */
} expected_t;

static void nearest_are_told(void **state)
{
    (void)state;
    static const expected_t cases[] = {
        {{6, "parallel.tensor_model_parallel_size=4"},
         "possible on 6 ranks:\n"
         "    parallel.tensor_model_parallel_size=3   (data parallel 2)\n"},
        {{4, "parallel.pipeline_model_parallel_size=2 schedule=one_stage"},
         "possible on 4 ranks:\n    schedule=auto   (data parallel 2)\n"},
        {{8, "train.micro_batch_size=4"},
         "possible on 8 ranks:\n"
         "    train.micro_batch_size=3   (data parallel 8)\n"},
        {{4, "parallel.tensor_model_parallel_size=2 "
             "model.foundation.family=qwen3_moe "
             "model.foundation.num_experts=4"},
         "possible on 4 ranks:\n"
         "    parallel.sequence_parallel=true   (data parallel 2)\n"},
        {{2, "parallel.pipeline_model_parallel_size=2 schedule=zero_bubble_v "
             "model.foundation.num_layers=8"},
         "possible on 2 ranks:\n"
         "    parallel.num_layers_per_virtual_pipeline_stage=2   "
         "(data parallel 1)\n"},
        {{4, "parallel.context_parallel_size=4 parallel.cp_comm_type=a2a+p2p"},
         "possible on 4 ranks:\n"
         "    parallel.hierarchical_context_parallel_sizes=[2,2]   "
         "(data parallel 1)\n"},
        /* no layout has a multiple of 7 ranks; one less is possible */
        {{7, "parallel.tensor_model_parallel_size=1"},
         "possible on 6 ranks:\n    the recipe as it is   (data parallel 6)"},
    };
    planner_t p = begin();
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        assert_int_equal(plan(&p, &cases[i].asked), LOONG_ERR_CONFIG);
        const char *trail = loong_context_error(p.ctx);
        if (strstr(trail, cases[i].first) == NULL) {
            fail_msg("'%s' is not in: %s", cases[i].first, trail);
        }
    }
    end(&p);
}

/* What is wrong with the recipe itself is no matter of the layout. */
static void other_problems_bring_no_layouts(void **state)
{
    (void)state;
    static const layout_t asked = {
        3, "parallel.tensor_model_parallel_size=2 ~optimizer.lr"};
    planner_t p = begin();
    assert_int_equal(plan(&p, &asked), LOONG_ERR_CONFIG);
    const char *trail = loong_context_error(p.ctx);
    assert_non_null(strstr(trail, "optimizer.lr: not set"));
    assert_non_null(strstr(trail, "3 ranks are no multiple"));
    assert_null(strstr(trail, "possible on"));
    end(&p);
}

/* ---- random layouts ------------------------------------------------------ */

static int draw(int seed, int index, int bound)
{
    double u = loongi_rng_uniform((uint64_t)seed, 0, (uint64_t)index);
    return (int)(u * bound);
}

static layout_t random_layout(int seed)
{
    static const char *const schedules[] = {"auto", "one_stage", "1f1b",
                                            "zero_bubble_h1"};
    layout_t l = {1 + draw(seed, 0, 24), ""};
    snprintf(l.words, sizeof(l.words),
             "parallel.tensor_model_parallel_size=%d "
             "parallel.pipeline_model_parallel_size=%d "
             "parallel.sequence_parallel=%s train.micro_batch_size=%d "
             "schedule=%s",
             1 + draw(seed, 1, 6), 1 + draw(seed, 2, 6),
             draw(seed, 3, 2) ? "true" : "false", 1 + draw(seed, 4, 4),
             schedules[draw(seed, 5, 4)]);
    return l;
}

/* Is any layout of the asked number of ranks possible? */
static bool any_possible(const planner_t *p, const layout_t *asked)
{
    for (int tp = 1; tp <= asked->ranks; tp++) {
        for (int pp = 1; tp * pp <= asked->ranks; pp++) {
            bool divides = asked->ranks % (tp * pp) == 0;
            for (int micro = 1; micro <= 4 && divides; micro++) {
                layout_t l = {asked->ranks, ""};
                snprintf(l.words, sizeof(l.words),
                         "parallel.tensor_model_parallel_size=%d "
                         "parallel.pipeline_model_parallel_size=%d "
                         "train.micro_batch_size=%d",
                         tp, pp, micro);
                if (plan(p, &l) == LOONG_OK) {
                    return true;
                }
            }
        }
    }
    return false;
}

static void told_layouts_work(void **state)
{
    (void)state;
    planner_t p = begin();
    char trail[TRAIL];
    layout_t found[4];
    int impossible = 0;
    int elsewhere = 0;
    for (int seed = 0; seed < 80; seed++) {
        layout_t asked = random_layout(seed);
        if (plan(&p, &asked) == LOONG_OK) {
            continue;
        }
        snprintf(trail, sizeof(trail), "%s", loong_context_error(p.ctx));
        int count = possible_ones(trail, &asked, found, 4);
        if (count == 0) {
            fail_msg("%d ranks, %s: no layout is told: %s", asked.ranks,
                     asked.words, trail);
        }
        for (int i = 0; i < count; i++) {
            if (plan(&p, &found[i]) != LOONG_OK) {
                fail_msg("%d ranks, %s is not possible: %s", found[i].ranks,
                         found[i].words, loong_context_error(p.ctx));
            }
        }
        impossible++;
        if (found[0].ranks != asked.ranks && elsewhere++ < 1) {
            assert_false(any_possible(&p, &asked));
        }
    }
    assert_true(impossible > 40 && elsewhere > 1);
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_is_told),
        cmocka_unit_test(rules_of_schedules_are_told),
        cmocka_unit_test(nearest_are_told),
        cmocka_unit_test(other_problems_bring_no_layouts),
        cmocka_unit_test(told_layouts_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
