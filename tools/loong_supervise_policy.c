/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows from how an attempt ended. docs/faults.md has the same table
 * in words. Called by loong_supervise.c and loong_supervise_log.c. Read
 * loong/exit_code.h before. */
#include <stdint.h>
#include <string.h>

#include "loong/exit_code.h"
#include "loong_supervise.h"

typedef enum rule_action {
    ACTION_END,      /* the same would happen again, or there is no need */
    ACTION_NOW,      /* go on at once, when something was gained */
    ACTION_LATER,    /* after a pause */
    ACTION_IF_BEGUN  /* likewise, but not when no step was done */
} rule_action_t;

typedef struct rule {
    int code;
    rule_action_t action;
    const char *because;
} rule_t;

enum { CANNOT_RUN = 126, NOT_FOUND = 127, SIGNALS = 128 };

static const rule_t rules[] = {
    {LOONG_EXIT_OK, ACTION_END, "finished"},
    {LOONG_EXIT_STOPPED, ACTION_NOW, "it stopped by itself, to go on"},
    {LOONG_EXIT_LOST, ACTION_LATER, "a rank was lost"},
    {LOONG_EXIT_FAILED, ACTION_IF_BEGUN, "run-time failure"},
    {LOONG_EXIT_DIVERGED, ACTION_END, "it would diverge again"},
    {LOONG_EXIT_IO, ACTION_LATER, "reading or writing failed"},
    {LOONG_EXIT_CANNOT_WRITE, ACTION_END, "an output cannot be written"},
    {LOONG_EXIT_NO_INPUT, ACTION_END, "an input is missing"},
    {LOONG_EXIT_USAGE, ACTION_END, "the command or the recipe is refused"},
    {CANNOT_RUN, ACTION_END, "the command cannot be run"},
    {NOT_FOUND, ACTION_END, "the command is not found"},
};

static rule_t find_rule(int code)
{
    rule_t by_signal = {code, ACTION_LATER, "ended by a signal"};
    rule_t unknown = {code, ACTION_IF_BEGUN, "unknown exit code"};
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (rules[i].code == code) {
            return rules[i];
        }
    }
    return code > SIGNALS && code < SIGNALS + 65 ? by_signal : unknown;
}

const char *supervise_meaning(int code)
{
    return code > SIGNALS && code < SIGNALS + 65 ? strsignal(code - SIGNALS)
           : code == CANNOT_RUN || code == NOT_FOUND
               ? find_rule(code).because
               : loong_exit_code_text(code);
}

/* A checkpoint that no attempt had before. */
static bool take_gain(supervise_history_t *h, const supervise_ending_t *e)
{
    int64_t saved = e->has_progress ? e->progress.saved_step : 0;
    bool gain = saved > h->saved_step && saved > e->progress.from_step;
    if (saved > h->saved_step) {
        h->saved_step = saved;
    }
    if (gain) {
        h->failures = 0;
    }
    return gain;
}

static void count_same(supervise_history_t *h, const supervise_ending_t *e)
{
    int64_t step = e->has_progress ? e->progress.step : 0;
    bool same = h->same > 0 && h->code == e->code && h->step == step;
    h->same = same ? h->same + 1 : 1;
    h->code = e->code;
    h->step = step;
}

static double pause_of(const supervise_limits_t *limits, int failures)
{
    double wait = limits->backoff;
    for (int i = 1; i < failures && wait < SUPERVISE_LONGEST_BACKOFF; i++) {
        wait *= 2.0;
    }
    return wait < SUPERVISE_LONGEST_BACKOFF ? wait : SUPERVISE_LONGEST_BACKOFF;
}

supervise_decision_t supervise_decide(const supervise_limits_t *limits,
                                      supervise_history_t *history,
                                      const supervise_ending_t *ending)
{
    supervise_decision_t d = {false, 0.0, {0}};
    rule_t rule = find_rule(ending->code);
    bool begun = ending->has_progress && ending->progress.first_time > 0.0;
    bool gain = take_gain(history, ending);
    snprintf(d.because, sizeof(d.because), "%s", rule.because);
    if (ending->asked && ending->code != LOONG_EXIT_OK) {
        snprintf(d.because, sizeof(d.because), "it was asked to end");
        return d;
    }
    if (rule.action == ACTION_END) {
        return d;
    }
    if (rule.action == ACTION_NOW && gain) {
        d.again = true;
        return d;
    }
    if (rule.action == ACTION_IF_BEGUN && !begun) {
        snprintf(d.because, sizeof(d.because),
                 "%s before its first step: it would fail again",
                 rule.because);
        return d;
    }
    count_same(history, ending);
    if (history->same >= limits->same) {
        snprintf(d.because, sizeof(d.because),
                 "%s at step %lld, %d times the same", rule.because,
                 (long long)history->step, history->same);
        return d;
    }
    history->failures++;
    if (history->failures > limits->restarts) {
        snprintf(d.because, sizeof(d.because),
                 "%s; %d restarts brought no new checkpoint", rule.because,
                 limits->restarts);
        return d;
    }
    d.again = true;
    d.wait = pause_of(limits, history->failures);
    return d;
}
