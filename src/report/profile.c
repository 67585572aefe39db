/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time of a run goes: steps of programs, and communication. Called by
 * trainer_run.c. Read src/plan/timeline.h before. */
#include "report.h"
#include "timeline.h"

enum { MAX_TRACE_EVENTS = 100000 };

static void hook_all(loong_report_t *r)
{
    const loong_model_t *m = r->component->model;
    for (int i = 0; i < m->num_components; i++) {
        loongi_profiler_attach(r->profiler, &m->components[i]->run);
    }
    for (int i = 0; i < m->num_stages; i++) {
        loongi_profiler_attach(r->profiler, &m->stages[i]->run);
    }
}

static void unhook_all(loong_report_t *r)
{
    const loong_model_t *m = r->component->model;
    for (int i = 0; i < m->num_components; i++) {
        m->components[i]->run.hook = NULL;
    }
    for (int i = 0; i < m->num_stages; i++) {
        m->stages[i]->run.hook = NULL;
    }
}

loong_status_t loongi_profile_begin(loong_report_t *r)
{
    loongi_profiler_destroy(&r->profiler);
    LOONG_TRY(loongi_profiler_create(r->ctx, MAX_TRACE_EVENTS, &r->profiler));
    LOONG_TRY(loongi_timeline_measure(r->plan));
    r->profile_blocked = loongi_report_blocked(r);
    hook_all(r);
    return LOONG_OK;
}

/* Messages of all stages and chunks. */
static loong_traffic_t messages(const loong_report_t *r, bool received)
{
    loong_traffic_t sum = {received ? "receive" : "send", 0, 0.0, 0.0, 0.0};
    const loong_model_t *m = r->component->model;
    for (int i = 0; i < m->num_stages; i++) {
        for (int k = 0; k < LOONG_VARIANT_COUNT; k++) {
            const loong_transfer_t *one = m->stages[i]->transfer[k];
            if (one == NULL) {
                continue;
            }
            loong_transfer_stats_t s = loongi_transfer_stats(one, received);
            sum.count += s.count;
            sum.bytes += s.bytes;
            sum.seconds += s.seconds;
            sum.blocked += s.blocked;
        }
    }
    return sum;
}

/* Messages, and what the trainer itself agrees on with the other ranks: the
 * header of a step, norm and loss, checkpoints. */
static void tell_traffic(loong_report_t *r)
{
    loong_traffic_t others[3] = {
        messages(r, false),
        messages(r, true),
        {"between programs", r->state->step, 0.0, 0.0, 0.0}};
    double rest = loongi_report_blocked(r) - r->profile_blocked -
                  loongi_profiler_blocked(r->profiler) - others[0].blocked -
                  others[1].blocked;
    others[2].seconds = others[2].blocked = LOONG_MAX(rest, 0.0);
    loongi_profiler_traffic(r->profiler, 3, others, &r->plan->text);
}

loong_status_t loongi_profile_end(loong_report_t *r, const char *trace,
                                  const char **table_p)
{
    LOONG_CHECK(r->ctx, r->profiler != NULL, LOONG_ERR_ARG,
                "no profile was begun");
    unhook_all(r);
    loongi_text_free(&r->plan->text);
    r->plan->text = loongi_text_begin(r->ctx);
    loongi_profiler_table(r->profiler, &r->plan->text);
    if (r->plan->parallel.ranks > 1) {
        tell_traffic(r);
    }
    *table_p = loongi_text_get(&r->plan->text);
    return trace != NULL ? loongi_profiler_write(r->profiler, trace)
                         : r->plan->text.status;
}
