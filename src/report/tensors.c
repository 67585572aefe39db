/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor logging: in chosen steps the statistics of chosen tensors, over all
 * micro-batches and ranks, go to metrics.jsonl and TensorBoard. The programs
 * measure (pass/watch.c) what a rank holds; here it is brought together, each
 * element counted once (pass/label.c), and told. Called by report.c and
 * train_step.c. Read src/pass/watch.c before. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

/* A line of the list of names: stage, then "g" or "o" and the name. */
enum { STAGE_DIGITS = 8, LINE_HEAD = STAGE_DIGITS + 2 };

static const loong_model_chunk_t *chunk_of(const loong_report_t *r, int stage)
{
    return r->component->stages[stage]->chunk[LOONG_VARIANT_TRAIN];
}

/* ---- the tensors of all stages ------------------------------------------- */

static loong_status_t own_names(loong_report_t *r, loong_text_t *text)
{
    const loong_component_t *c = r->component;
    for (int i = 0; i < c->num_stages; i++) {
        const loong_model_chunk_t *chunk = chunk_of(r, i);
        int stage = loongi_component_stage(c, i);
        for (int64_t w = 0; chunk != NULL && w < chunk->num_watches; w++) {
            const loong_watch_t *watch = &chunk->watches[w];
            loongi_text_printf(text, "%0*d %c%s\n", STAGE_DIGITS, stage,
                               watch->gradient ? 'g' : 'o', watch->name);
        }
    }
    return text->status;
}

/* By stage; qsort is not stable, so a line of equal stage is told from another
 * by where it stands in memory. */
static int by_stage(const void *a, const void *b)
{
    const char *x = *(const char *const *)a;
    const char *y = *(const char *const *)b;
    int order = strncmp(x, y, STAGE_DIGITS);
    return order != 0 ? order : (x > y) - (x < y);
}

static bool is_listed(const loong_report_t *r, const char *name)
{
    for (int64_t i = r->tensors.count - 1; i >= 0; i--) {
        if (strcmp(r->tensors.name[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Keeps the lines of `all` in the order of the stages, names once. */
static loong_status_t keep_names(loong_report_t *r, char *all)
{
    int64_t lines = 0;
    for (char *p = all; (p = strchr(p, '\n')) != NULL; p++) {
        lines++;
    }
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)lines + 1, sizeof(*r->tensors.name),
                            "names of tensors", &r->tensors.name));
    int64_t n = 0;
    for (char *p = all; n < lines; p = strchr(p, '\0') + 1) {
        r->tensors.name[n++] = p;
        *strchr(p, '\n') = '\0';
    }
    qsort(r->tensors.name, (size_t)lines, sizeof(*r->tensors.name), by_stage);
    for (int64_t i = 0; i < lines; i++) {
        const char *name = r->tensors.name[i] + LINE_HEAD - 1;
        if (!is_listed(r, name)) {
            r->tensors.name[r->tensors.count++] = name;
        }
    }
    return LOONG_OK;
}

/* The lines of all stages, on every rank. Collective on: pp. */
static loong_status_t share_names(loong_report_t *r, const loong_text_t *own)
{
    loong_comm_t *comm = r->component->comms.host.comm[LOONG_GROUP_PP];
    int64_t most = (int64_t)own->length + 1;
    int ranks = loong_comm_size(comm);
    LOONG_TRY(loong_comm_all_reduce(comm, &most, 1, LOONG_I64,
                                    LOONG_REDUCE_MAX, "logged tensors"));
    size_t size = (size_t)most * (size_t)ranks;
    char *part = NULL;
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)most, 1, "names", &part));
    memcpy(part, loongi_text_get(own), own->length);
    loong_status_t status =
        loongi_calloc(r->ctx, size, 1, "names of tensors", &r->tensors.names);
    char *all = r->tensors.names;
    if (status == LOONG_OK) {
        status = loong_comm_gather(comm, part, (size_t)most, all, 0,
                                   "logged tensors");
    }
    loongi_free(r->ctx, part);
    LOONG_TRY(status);
    LOONG_TRY(loong_comm_broadcast(comm, all, size, 0, "logged tensors"));
    char *end = all;
    for (int i = 0; i < ranks; i++) { /* without what is between them */
        size_t length = strlen(all + (size_t)i * (size_t)most);
        memmove(end, all + (size_t)i * (size_t)most, length);
        end += length;
    }
    *end = '\0';
    return LOONG_OK;
}

/* To ranks that the component does not stand on: the first one may tell them.
 * Collective on: world. */
static loong_status_t spread_names(loong_report_t *r)
{
    const int32_t *ranks = r->component->params.ranks;
    int64_t size =
        r->tensors.names != NULL ? (int64_t)strlen(r->tensors.names) + 1 : 0;
    if (ranks == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_comm_broadcast(r->plan->comm, &size, sizeof(size), ranks[0],
                                   "logged tensors"));
    if (r->component->params.absent) {
        LOONG_TRY(loongi_calloc(r->ctx, (size_t)size, 1, "names of tensors",
                                &r->tensors.names));
    }
    return loong_comm_broadcast(r->plan->comm, r->tensors.names, (size_t)size,
                                ranks[0], "logged tensors");
}

/* The stage that a name of the list is from. */
static int stage_of(const char *name)
{
    return atoi(name - (LINE_HEAD - 1));
}

/* Where this rank's tensors stand among all. */
static int64_t find(const loong_report_t *r, const loong_watch_t *w,
                    int64_t from)
{
    int64_t n = r->tensors.count;
    for (int64_t i = 0; i < n; i++) {
        const char *name = r->tensors.name[(from + i) % n];
        if (name[0] == (w->gradient ? 'g' : 'o') &&
            strcmp(name + 1, w->name) == 0) {
            return (from + i) % n;
        }
    }
    return -1;
}

static loong_status_t place_own(loong_report_t *r)
{
    int64_t k = 0;
    int64_t at = 0;
    for (int i = 0; i < r->component->num_stages; i++) {
        const loong_model_chunk_t *chunk = chunk_of(r, i);
        k += chunk != NULL ? chunk->num_watches : 0;
    }
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)k + 1, sizeof(*r->tensors.place),
                            "places of tensors", &r->tensors.place));
    k = 0;
    for (int i = 0; i < r->component->num_stages; i++) {
        const loong_model_chunk_t *chunk = chunk_of(r, i);
        int stage = loongi_component_stage(r->component, i);
        for (int64_t w = 0; chunk != NULL && w < chunk->num_watches; w++) {
            at = find(r, &chunk->watches[w], at);
            LOONG_CHECK(r->ctx, at >= 0, LOONG_ERR_INTERNAL,
                        "tensor %s is on no list", chunk->watches[w].name);
            /* What several stages make is the first one's. */
            bool own = stage_of(r->tensors.name[at]) == stage;
            r->tensors.place[k++] = own ? at : -1;
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_tensors_open(loong_report_t *r)
{
    loong_text_t own = loongi_text_begin(r->ctx);
    if (r->component->params.compile.num_watch == 0) {
        return LOONG_OK;
    }
    loong_status_t status = own_names(r, &own);
    if (status == LOONG_OK && !r->component->params.absent) {
        status = share_names(r, &own);
    }
    loongi_text_free(&own);
    LOONG_TRY(status);
    LOONG_TRY(spread_names(r));
    LOONG_TRY(keep_names(r, r->tensors.names));
    LOONG_TRY(place_own(r));
    return loongi_calloc(r->ctx, (size_t)(3 * r->tensors.count) + 1,
                         sizeof(*r->tensors.stats), "statistics of tensors",
                         &r->tensors.stats);
}

void loongi_tensors_close(loong_report_t *r)
{
    loongi_free(r->ctx, r->tensors.names);
    loongi_free(r->ctx, r->tensors.name);
    loongi_free(r->ctx, r->tensors.place);
    loongi_free(r->ctx, r->tensors.stats);
}

bool loongi_tensors_due(const loong_report_t *r)
{
    return r->tensors.count > 0 &&
           (r->state->step + 1) % r->plan->set->tensors_interval == 0;
}

/* ---- a step -------------------------------------------------------------- */

/* Of the ranks among which a value is equal the first one counts it. */
static bool is_logger(const loong_mesh_t *m, uint32_t same)
{
    const int *at = m->coord;
    return ((same & LOONG_SAME_TP) == 0 || at[LOONG_AXIS_TP] == 0) &&
           ((same & LOONG_SAME_KV) == 0 ||
            at[LOONG_AXIS_TP] % m->kv_ranks == 0) &&
           ((same & LOONG_SAME_CP) == 0 || at[LOONG_AXIS_CP] == 0) &&
           ((same & LOONG_SAME_ETP) == 0 || at[LOONG_AXIS_ETP] == 0) &&
           ((same & LOONG_SAME_EP) == 0 || at[LOONG_AXIS_EP] == 0);
}

static loong_status_t add_own(loong_report_t *r)
{
    int64_t n = r->tensors.count;
    double *all = r->tensors.stats;
    int64_t k = 0;
    memset(all, 0, (size_t)(3 * n) * sizeof(*all));
    for (int i = 0; i < r->component->num_stages; i++) {
        const loong_model_chunk_t *c = chunk_of(r, i);
        const loong_binding_t *run = &r->component->stages[i]->run;
        for (int64_t w = 0; c != NULL && w < c->num_watches; w++, k++) {
            double stats[3];
            int64_t at = r->tensors.place[k];
            if (at >= 0 && is_logger(&r->plan->mesh, c->watches[w].same)) {
                loong_operand_t from = {LOONG_BASE_STATE,
                                        c->watches[w].offset};
                LOONG_TRY(loongi_binding_read(run, from, stats, sizeof(stats),
                                              "logged tensors"));
                all[at] += stats[0];
                all[n + at] += stats[2];
                all[2 * n + at] = fmax(all[2 * n + at], stats[1]);
            }
        }
    }
    return LOONG_OK;
}

/* Sums and counts of all, then their maxima. */
static loong_status_t gather(loong_report_t *r)
{
    int64_t n = r->tensors.count;
    LOONG_TRY(add_own(r));
    LOONG_TRY(loong_comm_all_reduce(r->plan->comm, r->tensors.stats, 2 * n,
                                    LOONG_F64, LOONG_REDUCE_SUM,
                                    "logged tensors"));
    return loong_comm_all_reduce(r->plan->comm, r->tensors.stats + 2 * n, n,
                                 LOONG_F64, LOONG_REDUCE_MAX, "logged tensors");
}

static loong_status_t tell_board(loong_report_t *r, const char *name,
                                 double unix_time, const double figures[3])
{
    static const char *const names[3] = {"norm", "max", "not_finite"};
    char tag[LOONG_METRICS_LINE];
    for (int k = 0; k < 3; k++) {
        snprintf(tag, sizeof(tag), "tensors/%s/%s%s", name + 1,
                 name[0] == 'g' ? "gradient_" : "", names[k]);
        LOONG_TRY(loongi_tensorboard_scalar(r->board, r->state->step + 1,
                                            unix_time, tag, figures[k]));
    }
    return LOONG_OK;
}

static loong_status_t tell(loong_report_t *r, int64_t i, double unix_time)
{
    int64_t n = r->tensors.count;
    const char *name = r->tensors.name[i];
    const double *stats = r->tensors.stats;
    const double figures[3] = {sqrt(stats[i]), stats[2 * n + i], stats[n + i]};
    char line[LOONG_METRICS_LINE];
    snprintf(line, sizeof(line),
             "{\"step\": %lld, \"tensor\": \"%s\", \"of\": \"%s\", "
             "\"norm\": %.9g, \"max\": %.9g, \"not_finite\": %.0f}",
             (long long)r->state->step + 1, name + 1,
             name[0] == 'g' ? "gradient" : "output", figures[0], figures[1],
             figures[2]);
    LOONG_TRY(loongi_jsonl_add(r->jsonl, line));
    return r->board != NULL ? tell_board(r, name, unix_time, figures)
                            : LOONG_OK;
}

loong_status_t loongi_tensors_report(loong_report_t *r)
{
    double now = loongi_unix_time();
    LOONG_TRY(gather(r));
    for (int64_t i = 0; i < r->tensors.count && r->jsonl != NULL; i++) {
        LOONG_TRY(tell(r, i, now));
    }
    return LOONG_OK;
}
