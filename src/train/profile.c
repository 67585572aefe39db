/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time of a run goes: steps of programs, and communication. */
#include "timeline.h"
#include "trainer_impl.h"

enum { MAX_TRACE_EVENTS = 100000 };

static void hook_all(loong_trainer_t *t)
{
    loongi_profiler_attach(t->profiler, &t->component->run);
    for (int i = 0; i < t->component->num_stages; i++) {
        loongi_profiler_attach(t->profiler, &t->component->stages[i]->run);
    }
}

static void unhook_all(loong_trainer_t *t)
{
    t->component->run.hook = NULL;
    for (int i = 0; i < t->component->num_stages; i++) {
        t->component->stages[i]->run.hook = NULL;
    }
}

loong_status_t loong_trainer_profile_begin(loong_trainer_t *trainer)
{
    loong_trainer_t *t = trainer;
    loongi_profiler_destroy(&t->profiler);
    LOONG_TRY(
        loongi_profiler_create(t->ctx, MAX_TRACE_EVENTS, &t->profiler));
    LOONG_TRY(loongi_timeline_measure(&t->plan));
    t->profile_blocked = loongi_report_blocked(t);
    hook_all(t);
    return LOONG_OK;
}

/* Messages of all stages and chunks. */
static loong_traffic_t messages(const loong_trainer_t *t, bool received)
{
    loong_traffic_t sum = {received ? "receive" : "send", 0, 0.0, 0.0, 0.0};
    for (int i = 0; i < t->component->num_stages; i++) {
        for (int k = 0; k < LOONG_STAGE_CHUNKS; k++) {
            const loong_transfer_t *one =
                t->component->stages[i]->transfer[k];
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
static void tell_traffic(loong_trainer_t *t)
{
    loong_traffic_t others[3] = {messages(t, false), messages(t, true),
                                 {"between programs", t->state.step, 0.0,
                                  0.0, 0.0}};
    double rest = loongi_report_blocked(t) - t->profile_blocked -
                  loongi_profiler_blocked(t->profiler) - others[0].blocked -
                  others[1].blocked;
    others[2].seconds = others[2].blocked = LOONG_MAX(rest, 0.0);
    loongi_profiler_traffic(t->profiler, 3, others, &t->plan.text);
}

loong_status_t loong_trainer_profile_end(loong_trainer_t *trainer,
                                         const char *trace,
                                         const char **table_p)
{
    loong_trainer_t *t = trainer;
    LOONG_CHECK(t->ctx, t->profiler != NULL, LOONG_ERR_ARG,
                "no profile was begun");
    unhook_all(t);
    loongi_text_free(&t->plan.text);
    t->plan.text = loongi_text_begin(t->ctx);
    loongi_profiler_table(t->profiler, &t->plan.text);
    if (t->plan.mesh.world > 1) {
        tell_traffic(t);
    }
    *table_p = loongi_text_get(&t->plan.text);
    return trace != NULL ? loongi_profiler_write(t->profiler, trace)
                         : t->plan.text.status;
}
