/* SPDX-License-Identifier: Apache-2.0
 *
 * What samples cost, in operations of the configuration, at rates that a file
 * names: never by what this run took, so that it goes on with the same deals
 * wherever it is resumed. Called by open_data.c. Read run_data.h before. */
#include "file.h"
#include "json.h"
#include "run_data.h"

static const char costs_key[] = "data.costs";
const char *const loongi_cost_parts[LOONG_COST_PARTS] = {
    [LOONG_COST_ROWS] = "rows",
    [LOONG_COST_TEXT] = "text",
    [LOONG_COST_ENCODER] = "encoder",
    [LOONG_COST_PICTURES] = "pictures"};

/* ---- operations ---------------------------------------------------------- */

/* Ranks that share the rows and layers of a replica. */
static double ranks_of(const loong_component_t *c)
{
    return loongi_replica_ranks(&c->params) *
           c->params.mesh.size[LOONG_AXIS_PP];
}

/* In thousands, as many as the ranks of the texts would have if each had what a
 * rank has. What nobody learns from has a forward alone. */
static int64_t operations(const loong_component_t *c, double rows, double each)
{
    const loong_model_t *m = c->model;
    double times =
        ranks_of(m->components[m->num_components - 1]) / ranks_of(c);
    return (int64_t)(1e-3 * rows * each * times /
                     (c->params.train ? 1.0 : 3.0));
}

/* Attention in something of n rows, 0 <= n <= most. */
static loong_status_t attention(const loong_run_data_t *d,
                                const loong_component_t *c, int64_t most,
                                const int64_t **table_p)
{
    const loong_family_t *family = c->params.family;
    int64_t *table = NULL;
    LOONG_TRY(loongi_arena_alloc(d->plan->component->arena,
                                 ((size_t)most + 1) * sizeof(*table), &table));
    table[0] = 0;
    for (int64_t n = 1; n <= most; n++) {
        double each = family->attention_flops != NULL
                          ? family->attention_flops(c->params.config, n)
                          : 0.0;
        table[n] = operations(c, (double)n, each);
    }
    *table_p = table;
    return LOONG_OK;
}

/* Rows without a picture cost what those of pictures do. */
static loong_status_t set_pictures(const loong_run_data_t *d,
                                   loong_sample_costs_t *costs)
{
    const loong_model_t *m = d->plan->component->model;
    costs->pictures = d->plan->picture_reader;
    for (int i = 0; i < d->plan->component->index; i++) {
        const loong_component_t *c = m->components[i];
        int64_t rows = loongi_component_rows(c);
        double texts = (double)d->plan->set->micro_batch_size /
                       (double)loongi_plan_pictures(d->plan, i)->samples;
        costs->encoder[i / 2].micro_batch +=
            operations(c, (double)rows * texts, c->facts.flops_per_row);
        if (c->facts.patch_size > 0) {
            costs->encoder[i / 2].rows = rows;
            LOONG_TRY(attention(d, c, rows, &costs->encoder[i / 2].picture));
        }
    }
    return LOONG_OK;
}

/* ---- the file ------------------------------------------------------------ */

static loong_status_t take_rates(loong_context_t *ctx, const char *path,
                                 const loong_json_t *file,
                                 loong_sample_costs_t *costs)
{
    const loong_json_t *rates = loongi_json_get(file, "rates");
    for (int i = 0; i < LOONG_COST_PARTS; i++) {
        const loong_json_t *value =
            loongi_json_get(rates, loongi_cost_parts[i]);
        int64_t rate = loongi_json_kind(value) == LOONG_JSON_INT
                           ? loongi_json_int(value)
                           : -1;
        LOONG_CHECK(ctx, rate >= 0 && rate <= INT64_C(1000000000000000),
                    LOONG_ERR_FORMAT,
                    "%s: rates.%s: an integer of femtoseconds for a thousand "
                    "operations is wanted, as loong-bench costs writes it",
                    path, loongi_cost_parts[i]);
        costs->rate[i] = 1e-6 * (double)rate; /* nanoseconds */
    }
    return LOONG_OK;
}

static loong_status_t read_rates(const loong_run_data_t *d,
                                 loong_sample_costs_t *costs)
{
    loong_context_t *ctx = d->plan->ctx;
    const loong_recipe_t *r = d->plan->recipe;
    const char *path = loong_recipe_text(r, costs_key);
    loong_json_t *file = NULL;
    for (int i = 0; i < LOONG_COST_PARTS; i++) {
        costs->rate[i] = 1.0;
    }
    if (path == NULL) {
        return LOONG_OK;
    }
    loong_status_t status = loongi_json_load(ctx, path, &file);
    if (status == LOONG_OK) {
        status = take_rates(ctx, path, file, costs);
    }
    loongi_json_destroy(&file);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "wanted by %s: %s",
                          loong_recipe_where(r, costs_key), costs_key);
    }
    return status;
}

/* ---- the whole ----------------------------------------------------------- */

loong_status_t loongi_run_data_find_costs(const loong_run_data_t *d,
                                          const loong_sample_costs_t **costs_p)
{
    const loong_component_t *c = d->plan->component;
    int64_t length = d->plan->set->seq_length;
    loong_sample_costs_t *costs = NULL;
    LOONG_TRY(loongi_arena_alloc(c->arena, sizeof(*costs), &costs));
    LOONG_TRY(read_rates(d, costs));
    costs->row = operations(c, (double)length, c->facts.flops_per_row);
    LOONG_TRY(attention(d, c, length + 1, &costs->text));
    LOONG_TRY(d->plan->num_encoders > 0 ? set_pictures(d, costs) : LOONG_OK);
    *costs_p = costs;
    return LOONG_OK;
}

loong_status_t loongi_run_data_set_costs(loong_run_data_t *d,
                                         loong_loader_params_t *p)
{
    const loong_family_t *family = d->plan->component->params.family;
    bool differ = d->plan->num_encoders > 0 ||
                  (loongi_blend_most_samples(d->blend) > 1 &&
                   family->attention_flops != NULL);
    const loong_sample_costs_t *costs = NULL;
    if (!loong_recipe_bool(d->plan->recipe, "data.balance") || !differ) {
        return LOONG_OK;
    }
    if (d->plan->shares.weights != NULL) {
        if (loong_comm_rank(d->plan->comm) == 0) {
            loongi_log(d->plan->ctx, LOONG_LOG_INFO,
                       "data.balance: micro-batches go to ranks by "
                       "parallel.data_parallel_shares, not by their costs");
        }
        return LOONG_OK;
    }
    LOONG_TRY(loongi_run_data_find_costs(d, &costs));
    p->costs = p->data_parallel_size > 1 ? costs : NULL; /* as they are drawn */
    return LOONG_OK;
}
