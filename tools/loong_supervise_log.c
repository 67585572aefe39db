/* SPDX-License-Identifier: Apache-2.0
 *
 * What is told of an attempt. Called by loong_supervise.c. Read
 * loong_supervise.h before. */
#include <math.h>
#include <time.h>

#include "loong/exit_code.h"
#include "loong_supervise.h"

/* Between the attempts; NAN where it is not known. */
typedef struct figures {
    double detect; /* from the last step that was done to the verdict */
    double resume; /* from the end of the attempt before to a step done */
    double lost;   /* steps that are done again */
} figures_t;

static figures_t figures_of(const supervise_ending_t *before,
                            const supervise_ending_t *e)
{
    figures_t f = {NAN, NAN, NAN};
    bool begun = e->has_progress && e->progress.first_time > 0.0;
    bool failed =
        e->code != LOONG_EXIT_OK && e->code != LOONG_EXIT_STOPPED;
    if (begun && failed) {
        f.detect = (e->has_verdict ? e->verdict.time : e->end) -
                   e->progress.last_time;
    }
    if (before != NULL && begun) {
        f.resume = e->progress.first_time - before->end;
    }
    if (before != NULL && e->has_progress && before->has_progress) {
        f.lost = (double)(before->progress.step - e->progress.from_step);
    }
    return f;
}

/* ---- JSON ---------------------------------------------------------------- */

static void add_text(FILE *file, const char *key, const char *text)
{
    fprintf(file, ",\"%s\":\"", key);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0';
         c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(file, "\\%c", *c);
        } else if (*c < 0x20) {
            fprintf(file, "\\u%04x", *c);
        } else {
            fputc(*c, file);
        }
    }
    fputc('"', file);
}

static void add_number(FILE *file, const char *key, double value)
{
    if (isnan(value)) {
        fprintf(file, ",\"%s\":null", key);
    } else {
        fprintf(file, ",\"%s\":%.10g", key, value);
    }
}

static void add_seconds(FILE *file, const char *key, double value)
{
    add_number(file, key, round(1e3 * value) / 1e3);
}

static double unix_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void supervise_log(FILE *file, int attempt, const supervise_ending_t *before,
                   const supervise_ending_t *e, const supervise_decision_t *d)
{
    figures_t f = figures_of(before, e);
    const loong_job_progress_t *p = &e->progress;
    fprintf(file, "{\"attempt\":%d,\"time\":%.3f", attempt, unix_time());
    add_seconds(file, "seconds", e->end - e->begin);
    fprintf(file, ",\"exit_code\":%d", e->code);
    add_text(file, "meaning", supervise_meaning(e->code));
    add_number(file, "from_step", e->has_progress ? (double)p->from_step : NAN);
    add_number(file, "last_step", e->has_progress ? (double)p->step : NAN);
    add_number(file, "saved_step",
               e->has_progress ? (double)p->saved_step : NAN);
    add_number(file, "steps_lost", f.lost);
    add_seconds(file, "seconds_to_resume", f.resume);
    add_seconds(file, "seconds_to_detect", f.detect);
    if (e->has_verdict) {
        add_number(file, "rank",
                   e->verdict.rank >= 0 ? (double)e->verdict.rank : NAN);
        add_text(file, "verdict", e->verdict.text);
    }
    add_text(file, "decision", d->again ? "restart" : "end");
    add_text(file, "because", d->because);
    add_seconds(file, "backoff", d->wait);
    fputs("}\n", file);
    fflush(file);
}

/* ---- for people ---------------------------------------------------------- */

void supervise_tell(FILE *file, int attempt, const supervise_ending_t *before,
                    const supervise_ending_t *e, const supervise_decision_t *d)
{
    figures_t f = figures_of(before, e);
    fprintf(file, "loong-supervise: attempt %d ended with %d (%s)", attempt,
            e->code, supervise_meaning(e->code));
    if (e->has_progress) {
        fprintf(file, ", steps %lld to %lld, saved %lld",
                (long long)e->progress.from_step, (long long)e->progress.step,
                (long long)e->progress.saved_step);
    }
    if (!isnan(f.lost)) {
        fprintf(file, ", %.0f steps done again", f.lost);
    }
    if (!isnan(f.resume)) {
        fprintf(file, ", %.1f s to resume", f.resume);
    }
    if (!isnan(f.detect)) {
        fprintf(file, ", %.1f s to detect", f.detect);
    }
    if (d->again) {
        fprintf(file, "; restart in %.1f s: %s\n", d->wait, d->because);
    } else {
        fprintf(file, "; end: %s\n", d->because);
    }
    fflush(file);
}
