/* SPDX-License-Identifier: Apache-2.0
 *
 * The figures of an interval as text. Called by report.c, expert_metrics.c,
 * train_step.c and trainer_save.c. Read metrics.h before. */
#include "metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line that grows in a fixed buffer. */
typedef struct line {
    char *text;
    size_t used;
} line_t;

static void add(line_t *line, const char *fmt, ...) LOONG_PRINTF(2, 3);

static void add(line_t *line, const char *fmt, ...)
{
    size_t left = LOONG_METRICS_LINE - line->used;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line->text + line->used, left, fmt, args);
    va_end(args);
    if (n > 0) {
        line->used += LOONG_MIN((size_t)n, left - 1);
    }
}

void loongi_metrics_clear(loong_metrics_t *metrics)
{
    memset(metrics, 0, sizeof(*metrics));
    metrics->unix_time = NAN;
    metrics->loss = NAN;
    metrics->loss_z = NAN;
    metrics->grad_norm = NAN;
    metrics->expert_load = NAN;
    metrics->dropped_tokens = NAN;
    metrics->overflow_rounds = NAN;
    metrics->router_z_loss = NAN;
    metrics->lr = NAN;
    metrics->tokens_per_second = NAN;
    metrics->ms_per_step = NAN;
    metrics->data_share = NAN;
    metrics->comm_share = NAN;
    metrics->host_share = NAN;
    metrics->links_ms = NAN;
    metrics->links_hidden = NAN;
    metrics->gflops = NAN;
    metrics->gemm_share = NAN;
    metrics->memory_bytes = NAN;
    metrics->memory_limit = NAN;
    metrics->seconds_left = NAN;
}

const char *loongi_metrics_time(double seconds, char text[LOONG_TIME_SIZE])
{
    if (!(seconds >= 0.0) || seconds > 1e9) {
        snprintf(text, LOONG_TIME_SIZE, "-");
        return text;
    }
    long long s = (long long)(seconds + 0.5);
    if (s < 60) {
        snprintf(text, LOONG_TIME_SIZE, "%llds", s);
    } else if (s < 3600) {
        snprintf(text, LOONG_TIME_SIZE, "%lldm%02llds", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(text, LOONG_TIME_SIZE, "%lldh%02lldm", s / 3600,
                 s % 3600 / 60);
    } else {
        snprintf(text, LOONG_TIME_SIZE, "%lldd%02lldh", s / 86400,
                 s % 86400 / 3600);
    }
    return text;
}

/* Three figures and a unit: 812, 41.2k, 1.05M. */
static void add_count(line_t *line, double value)
{
    static const char units[] = " kMGT";
    int unit = 0;
    while (fabs(value) >= 999.5 && unit < 4) {
        value /= 1000.0;
        unit++;
    }
    int digits = fabs(value) >= 99.95 || unit == 0 ? 0
                 : fabs(value) >= 9.995            ? 1
                                                   : 2;
    add(line, "%.*f", digits, value);
    if (unit > 0) {
        add(line, "%c", units[unit]);
    }
}

static void add_shares(line_t *line, const loong_metrics_t *m)
{
    const char *open = " (";
    if (!isnan(m->data_share)) {
        add(line, "%sdata %.1f%%", open, 100.0 * m->data_share);
        open = ", ";
    }
    if (!isnan(m->comm_share)) {
        add(line, "%scomm %.1f%%", open, 100.0 * m->comm_share);
        open = ", ";
    }
    if (!isnan(m->host_share)) {
        add(line, "%shost ops %.1f%%", open, 100.0 * m->host_share);
        open = ", ";
    }
    if (!isnan(m->links_ms)) {
        add(line, "%slinks %.3g ms, %.1f%% hidden", open, m->links_ms,
            100.0 * m->links_hidden);
        open = ", ";
    }
    add(line, open[0] == ',' ? ")" : "");
}

static void add_memory(line_t *line, const loong_metrics_t *m)
{
    const double gib = 1024.0 * 1024.0 * 1024.0;
    add(line, " | mem %.2f", m->memory_bytes / gib);
    if (!isnan(m->memory_limit)) {
        add(line, "/%.1f", m->memory_limit / gib);
    }
    add(line, " GiB");
}

static void add_experts(line_t *line, const loong_metrics_t *m)
{
    add(line, " | expert load %.2fx", m->expert_load);
    if (m->dropped_tokens > 0.0) {
        add(line, ", dropped ");
        add_count(line, m->dropped_tokens);
    }
    if (m->overflow_rounds > 0.0) {
        add(line, ", overflow rounds ");
        add_count(line, m->overflow_rounds);
    }
}

void loongi_metrics_line(const loong_metrics_t *m,
                         char text[LOONG_METRICS_LINE])
{
    line_t line = {text, 0};
    char left[LOONG_TIME_SIZE];
    add(&line, "step %lld/%lld | loss %.4f", (long long)m->step,
        (long long)m->total_steps, m->loss);
    if (!isnan(m->loss_z)) {
        add(&line, " (%+.1fz)", m->loss_z);
    }
    add(&line, " | gnorm %.3g", m->grad_norm);
    for (int i = 0; i < m->num_losses; i++) {
        add(&line, " | %s %.3g", m->losses[i].name, m->losses[i].value);
    }
    if (!isnan(m->expert_load)) {
        add_experts(&line, m);
    }
    if (m->skipped > 0) {
        add(&line, " | skipped %lld", (long long)m->skipped);
    }
    if (!isnan(m->lr)) {
        add(&line, " | lr %.2e", m->lr);
    }
    if (!isnan(m->tokens_per_second)) {
        add(&line, " | ");
        add_count(&line, m->tokens_per_second);
        add(&line, " tok/s");
    }
    if (!isnan(m->ms_per_step)) {
        add(&line, " | %.*f ms", m->ms_per_step < 99.95 ? 1 : 0,
            m->ms_per_step);
        add_shares(&line, m);
    }
    if (!isnan(m->gflops)) {
        add(&line, " | %.*f GFLOP/s", m->gflops < 99.95 ? 1 : 0, m->gflops);
        if (!isnan(m->gemm_share)) {
            add(&line, " (%.1f%% of gemm)", 100.0 * m->gemm_share);
        }
    }
    if (!isnan(m->memory_bytes)) {
        add_memory(&line, m);
    }
    if (!isnan(m->seconds_left)) {
        add(&line, " | eta %s", loongi_metrics_time(m->seconds_left, left));
    }
}

void loongi_metrics_eval_line(const loong_metrics_eval_t *e,
                              char text[LOONG_METRICS_LINE])
{
    line_t line = {text, 0};
    char took[LOONG_TIME_SIZE];
    add(&line, "step %lld | eval %.200s | loss %.4f | ", (long long)e->step,
        e->name, e->loss);
    if (e->unit == NULL) {
        add(&line, "ppl %.5g | ", exp(e->loss));
    }
    add_count(&line, (double)e->count);
    add(&line, " %s | %s", e->unit != NULL ? e->unit : "tokens",
        loongi_metrics_time(e->seconds, took));
}

void loongi_metrics_save_line(const loong_metrics_save_t *s,
                              char text[LOONG_METRICS_LINE])
{
    line_t line = {text, 0};
    add(&line,
        "step %lld | checkpoint saved: %.1f MB of this rank in %.2f s (%.2f s "
        "of a processor) | training waited %.4f s",
        (long long)s->step, 1e-6 * (double)s->bytes, s->seconds,
        s->cpu_seconds, s->stall_seconds);
    if (!isnan(s->stall_share)) {
        add(&line, ", %.2f%% of a step", 100.0 * s->stall_share);
    }
}

/* ---- JSON ---------------------------------------------------------------- */

/* Shortest of 6, 9 or 17 figures that reads back as the same number would be
 * a search; 9 figures are enough for figures that were measured. */
static void add_real(line_t *line, const char *key, double value)
{
    if (isfinite(value)) {
        add(line, ",\"%s\":%.9g", key, value);
    } else {
        add(line, ",\"%s\":null", key);
    }
}

static void add_known(line_t *line, const char *key, double value)
{
    if (!isnan(value)) {
        add_real(line, key, value);
    }
}

/* Seconds since 1970 with milliseconds: more figures than add_real keeps. */
static void add_time(line_t *line, double unix_time)
{
    if (!isnan(unix_time)) {
        add(line, ",\"time\":%.3f", unix_time);
    }
}

void loongi_metrics_json(const loong_metrics_t *m,
                         char text[LOONG_METRICS_LINE])
{
    line_t line = {text, 0};
    add(&line, "{\"step\":%lld,\"total_steps\":%lld,\"tokens\":%lld",
        (long long)m->step, (long long)m->total_steps, (long long)m->tokens);
    add_time(&line, m->unix_time);
    add_real(&line, "loss", m->loss);
    add_known(&line, "loss_z", m->loss_z);
    add_real(&line, "grad_norm", m->grad_norm);
    for (int i = 0; i < m->num_losses; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s_loss", m->losses[i].name);
        add_real(&line, name, m->losses[i].value);
    }
    add_known(&line, "router_z_loss", m->router_z_loss);
    add_known(&line, "expert_load", m->expert_load);
    add_known(&line, "dropped_tokens", m->dropped_tokens);
    add_known(&line, "overflow_rounds", m->overflow_rounds);
    add(&line, ",\"updates\":%lld,\"skipped_steps\":%lld",
        (long long)m->updates, (long long)m->skipped);
    add_known(&line, "lr", m->lr);
    add_known(&line, "tokens_per_second", m->tokens_per_second);
    add_known(&line, "ms_per_step", m->ms_per_step);
    add_known(&line, "data_share", m->data_share);
    add_known(&line, "comm_share", m->comm_share);
    add_known(&line, "host_share", m->host_share);
    add_known(&line, "links_ms", m->links_ms);
    add_known(&line, "links_hidden", m->links_hidden);
    add_known(&line, "gflops", m->gflops);
    add_known(&line, "gemm_share", m->gemm_share);
    add_known(&line, "memory_bytes", m->memory_bytes);
    add_known(&line, "memory_limit", m->memory_limit);
    add_known(&line, "seconds_left", m->seconds_left);
    add(&line, "}");
}

/* Escapes a name; what does not fit 200 bytes is left out. */
static void add_name(line_t *line, const char *name)
{
    size_t end = line->used + 200;
    add(line, "\"");
    for (const unsigned char *c = (const unsigned char *)name;
         *c != '\0' && line->used < end; c++) {
        if (*c == '"' || *c == '\\') {
            add(line, "\\%c", *c);
        } else if (*c < 0x20) {
            add(line, "\\u%04x", *c);
        } else {
            add(line, "%c", *c);
        }
    }
    add(line, "\"");
}

void loongi_metrics_eval_json(const loong_metrics_eval_t *e,
                              char text[LOONG_METRICS_LINE])
{
    line_t line = {text, 0};
    add(&line, "{\"step\":%lld,\"eval\":", (long long)e->step);
    add_name(&line, e->name);
    add_time(&line, e->unix_time);
    add_real(&line, "loss", e->loss);
    if (e->unit == NULL) {
        add_real(&line, "perplexity", exp(e->loss));
    }
    add(&line, ",\"%s\":%lld", e->unit != NULL ? e->unit : "tokens",
        (long long)e->count);
    add_known(&line, "seconds", e->seconds);
    add(&line, "}");
}

void loongi_metrics_layer_json(const loong_metrics_layer_t *l,
                               char text[LOONG_METRICS_LINE])
{
    line_t line = {text, 0};
    add(&line, "{\"step\":%lld,\"layer\":%d", (long long)l->step, l->layer);
    add_time(&line, l->unix_time);
    add_known(&line, "expert_load", l->expert_load);
    add_known(&line, "dropped_tokens", l->dropped_tokens);
    add_known(&line, "overflow_rounds", l->overflow_rounds);
    add_known(&line, "router_z_loss", l->router_z_loss);
    add(&line, "}");
}

void loongi_metrics_save_json(const loong_metrics_save_t *s,
                              char text[LOONG_METRICS_LINE])
{
    line_t line = {text, 0};
    add(&line, "{\"step\":%lld,\"save_bytes\":%lld", (long long)s->step,
        (long long)s->bytes);
    add_time(&line, s->unix_time);
    add_known(&line, "save_seconds", s->seconds);
    add_known(&line, "save_cpu_seconds", s->cpu_seconds);
    add_known(&line, "save_stall_seconds", s->stall_seconds);
    add_known(&line, "save_stall_share", s->stall_share);
    add(&line, "}");
}

/* ---- the window ---------------------------------------------------------- */

double loongi_window_add(loong_window_t *w, double value)
{
    int n = (int)LOONG_MIN(w->count, (int64_t)LOONG_WINDOW_SIZE);
    w->z = NAN;
    if (!isfinite(value)) {
        return w->z;
    }
    if (n >= LOONG_WINDOW_LEAST) {
        double shift = w->values[0]; /* equal values vary by exactly 0 */
        double mean = 0.0;
        double square = 0.0;
        for (int i = 0; i < n; i++) {
            mean += (w->values[i] - shift) / n;
        }
        for (int i = 0; i < n; i++) {
            double d = w->values[i] - shift - mean;
            square += d * d / n;
        }
        w->z = square > 0.0 ? (value - shift - mean) / sqrt(square) : NAN;
    }
    w->values[w->count++ % LOONG_WINDOW_SIZE] = value;
    return w->z;
}

void loongi_window_print(const loong_window_t *w, char text[LOONG_WINDOW_TEXT])
{
    int n = (int)LOONG_MIN(w->count, (int64_t)LOONG_WINDOW_SIZE);
    int used = snprintf(text, LOONG_WINDOW_TEXT, "%lld", (long long)w->count);
    for (int i = 0; i < n; i++) {
        used += snprintf(text + used, (size_t)(LOONG_WINDOW_TEXT - used),
                         " %a", w->values[i]);
    }
}

bool loongi_window_read(const char *text, loong_window_t *window)
{
    loong_window_t w;
    char *end = NULL;
    memset(&w, 0, sizeof(w));
    w.z = NAN;
    w.count = strtoll(text, &end, 10);
    bool good = end != text && w.count >= 0;
    int n = good ? (int)LOONG_MIN(w.count, (int64_t)LOONG_WINDOW_SIZE) : 0;
    for (int i = 0; i < n && good; i++) {
        const char *at = end;
        w.values[i] = strtod(at, &end);
        good = end != at && isfinite(w.values[i]);
    }
    if (good && *end == '\0') {
        *window = w;
        return true;
    }
    return false;
}
