/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports on model files: what is in one, how two differ. Called by loong-ckpt
 * inspect and diff. Read view.h before. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "hf_kind.h"
#include "loong/checkpoint.h"
#include "view.h"

enum { BLOCK_BYTES = 8 << 20 };

typedef struct report {
    loong_context_t *ctx;
    loong_line_fn line;
    void *user;
} report_t;

static void say(const report_t *r, const char *fmt, ...) LOONG_PRINTF(2, 3);

static void say(const report_t *r, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    r->line(r->user, text);
}

static int64_t block_rows(const loong_view_tensor_t *t)
{
    int64_t row_bytes = LOONG_MAX(loongi_view_row_length(t), 1) * 8;
    return LOONG_MAX(BLOCK_BYTES / row_bytes, 1);
}

/* ---- inspect ---- */

typedef struct figures {
    double squares;
    double largest;
    int64_t odd; /* NaN or infinity */
} figures_t;

static void measure(const double *values, int64_t count, figures_t *f)
{
    for (int64_t i = 0; i < count; i++) {
        double size = fabs(values[i]);
        if (!isfinite(size)) {
            f->odd++;
            continue;
        }
        f->squares += size * size;
        f->largest = LOONG_MAX(f->largest, size);
    }
}

static loong_status_t measure_tensor(const report_t *r,
                                     const loong_view_t *view,
                                     const loong_view_tensor_t *t, figures_t *f)
{
    double *values = NULL;
    int64_t step = LOONG_MIN(block_rows(t), loongi_view_rows(t));
    int64_t length = loongi_view_row_length(t);
    loong_status_t status = LOONG_OK;
    if (step * length == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)(step * length), sizeof(*values),
                            "tensor rows", &values));
    for (int64_t row = 0; row < loongi_view_rows(t) && status == LOONG_OK;
         row += step) {
        int64_t rows = LOONG_MIN(step, loongi_view_rows(t) - row);
        status = loongi_view_read(view, t, row, rows, LOONG_F64, values);
        if (status == LOONG_OK) {
            measure(values, rows * length, f);
        }
    }
    loongi_free(r->ctx, values);
    return status;
}

static loong_status_t report_tensor(const report_t *r, const loong_view_t *view,
                                    const loong_view_tensor_t *t)
{
    char shape[LOONG_SHAPE_TEXT];
    figures_t f = {0, 0, 0};
    loongi_shape_text(t->ndim, t->shape, shape);
    if (!loongi_dtype_is_float(t->dtype)) {
        say(r, "%-52s %-5s %-16s", t->name, loong_dtype_name(t->dtype), shape);
        return LOONG_OK;
    }
    LOONG_TRY(measure_tensor(r, view, t, &f));
    say(r, "%-52s %-5s %-16s norm %-11.6g max %-11.6g%s", t->name,
        loong_dtype_name(t->dtype), shape, sqrt(f.squares), f.largest,
        f.odd > 0 ? " NaN or infinite!" : "");
    return LOONG_OK;
}

static void report_pairs(const report_t *r, const char *title,
                         const loong_pairs_t *pairs)
{
    for (int64_t i = 0; i < pairs->count; i++) {
        const loong_pair_t *pair = &pairs->items[i];
        if (strchr(pair->value, '\n') != NULL || strlen(pair->value) > 80) {
            say(r, "%s %s: text of %zu bytes", title, pair->key,
                strlen(pair->value));
        } else {
            say(r, "%s %s: %s", title, pair->key, pair->value);
        }
    }
}

static const char *last_of(const loong_peft_module_t *m)
{
    const char *dot = strrchr(m->name, '.');
    return dot != NULL ? dot + 1 : m->name;
}

static bool same_kind(const loong_peft_module_t *a,
                      const loong_peft_module_t *b)
{
    return strcmp(last_of(a), last_of(b)) == 0 && a->scale == b->scale &&
           loongi_peft_rank(a) == loongi_peft_rank(b);
}

/* Modules of one name, rank and scale in one line. */
static void report_adapters(const report_t *r, const loong_peft_t *p)
{
    char dropout[LOONG_REAL_TEXT];
    say(r, "adapters %s: %s of %" PRId64 " modules", p->path,
        p->modules[0].magnitude.ndim > 0 ? "DoRA" : "LoRA", p->num_modules);
    say(r, "base %s", p->base != NULL ? p->base : "(not said)");
    say(r, "dropout %s", loongi_real_text(p->dropout, dropout));
    for (int64_t i = 0; i < p->num_modules; i++) {
        const loong_peft_module_t *m = &p->modules[i];
        int64_t before = 0;
        int64_t all = 0;
        for (int64_t k = 0; k < p->num_modules; k++) {
            before += k < i && same_kind(m, &p->modules[k]);
            all += same_kind(m, &p->modules[k]);
        }
        if (before == 0) {
            double alpha = m->scale * (double)loongi_peft_rank(m);
            say(r, "module %s (%" PRId64 "): rank %" PRId64 ", alpha %g, "
                "times %g", last_of(m), all, loongi_peft_rank(m), alpha,
                m->scale);
        }
    }
    for (int64_t i = 0; i < p->num_saved; i++) {
        say(r, "trained as it is: %s", p->saved[i].name);
    }
}

static void report_head(const report_t *r, const loong_view_t *view)
{
    if (view->peft != NULL) {
        report_adapters(r, view->peft);
        return;
    }
    if (view->native == NULL) {
        say(r, "Hugging Face directory %s", view->path);
        for (int i = 0; i < view->num_parts; i++) {
            char title[64];
            snprintf(title, sizeof(title), "model%s%s",
                     view->num_parts > 1 ? "." : "",
                     view->num_parts > 1 ? view->parts[i].role : "");
            report_pairs(r, title, view->parts[i].model);
        }
        return;
    }
    say(r, "native checkpoint %s: step %" PRId64 ", saved by %d rank%s",
        loongi_checkpoint_path(view->native),
        loongi_checkpoint_step(view->native),
        loongi_checkpoint_ranks(view->native),
        loongi_checkpoint_ranks(view->native) > 1 ? "s" : "");
    report_pairs(r, "metadata", loongi_checkpoint_metadata(view->native));
}

static loong_status_t report_all(const report_t *r, const loong_view_t *view)
{
    char count_text[LOONG_HUMAN_SIZE], bytes_text[LOONG_HUMAN_SIZE];
    double count = 0;
    double bytes = 0;
    report_head(r, view);
    for (int64_t i = 0; i < view->count; i++) {
        const loong_view_tensor_t *t = &view->tensors[i];
        double n = (double)loongi_shape_count(t->ndim, t->shape);
        LOONG_TRY(report_tensor(r, view, t));
        count += n;
        bytes += n * (double)loong_dtype_size(t->dtype);
    }
    say(r, "%" PRId64 " tensors, %s elements, %s", view->count,
        loongi_human_count(count, count_text),
        loongi_human_bytes(bytes, bytes_text));
    return LOONG_OK;
}

loong_status_t loong_checkpoint_inspect(loong_context_t *ctx, const char *path,
                                        loong_line_fn line, void *user)
{
    report_t report = {ctx, line, user};
    loong_view_t *view = NULL;
    LOONG_TRY(loongi_view_open(ctx, path, LOONG_VIEW_OWN, NULL, &view));
    loong_status_t status = report_all(&report, view);
    loongi_view_close(&view);
    return status;
}

/* ---- diff ---- */

typedef struct difference {
    int64_t count; /* of elements */
    double absolute;
    double relative; /* to the larger of the two */
} difference_t;

static void compare(const double *a, const double *b, int64_t count,
                    difference_t *d)
{
    for (int64_t i = 0; i < count; i++) {
        if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))) {
            continue;
        }
        double gap = fabs(a[i] - b[i]);
        double size = LOONG_MAX(fabs(a[i]), fabs(b[i]));
        d->count++;
        d->absolute = gap > d->absolute || isnan(gap) ? gap : d->absolute;
        double ratio = gap / size;
        d->relative = ratio > d->relative || isnan(ratio) ? ratio : d->relative;
    }
}

/* Values for floating point; other types by their bytes. */
static loong_status_t compare_rows(const loong_view_t *const views[2],
                                   const loong_view_tensor_t *const t[2],
                                   int64_t row, int64_t rows,
                                   double *const buffers[2], difference_t *d)
{
    bool values = loongi_dtype_is_float(t[0]->dtype) &&
                  loongi_dtype_is_float(t[1]->dtype);
    int64_t count = rows * loongi_view_row_length(t[0]);
    for (int i = 0; i < 2; i++) {
        LOONG_TRY(loongi_view_read(views[i], t[i], row, rows,
                                   values ? LOONG_F64 : t[i]->dtype,
                                   buffers[i]));
    }
    if (values) {
        compare(buffers[0], buffers[1], count, d);
    } else if (t[0]->dtype != t[1]->dtype ||
               memcmp(buffers[0], buffers[1],
                      (size_t)count * loong_dtype_size(t[0]->dtype)) != 0) {
        d->count += count;
        d->absolute = d->relative = NAN;
    }
    return LOONG_OK;
}

static loong_status_t compare_values(const report_t *r,
                                     const loong_view_t *const views[2],
                                     const loong_view_tensor_t *const t[2],
                                     difference_t *d)
{
    int64_t step = LOONG_MIN(block_rows(t[0]), loongi_view_rows(t[0]));
    int64_t length = loongi_view_row_length(t[0]);
    double *buffers[2] = {NULL, NULL};
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < 2 && status == LOONG_OK; i++) {
        status = loongi_calloc(r->ctx, (size_t)(step * length), sizeof(double),
                               "tensor rows", &buffers[i]);
    }
    for (int64_t row = 0; row < loongi_view_rows(t[0]) && status == LOONG_OK;
         row += step) {
        int64_t rows = LOONG_MIN(step, loongi_view_rows(t[0]) - row);
        status = compare_rows(views, t, row, rows, buffers, d);
    }
    loongi_free(r->ctx, buffers[0]);
    loongi_free(r->ctx, buffers[1]);
    return status;
}

static loong_status_t diff_tensor(const report_t *r,
                                  const loong_view_t *const views[2],
                                  const loong_view_tensor_t *const t[2],
                                  bool *equal)
{
    char left[LOONG_SHAPE_TEXT], right[LOONG_SHAPE_TEXT];
    difference_t d = {0, 0, 0};
    if (t[0]->ndim != t[1]->ndim ||
        memcmp(t[0]->shape, t[1]->shape, sizeof(t[0]->shape)) != 0) {
        say(r, "%s: shape %s and %s", t[0]->name,
            loongi_shape_text(t[0]->ndim, t[0]->shape, left),
            loongi_shape_text(t[1]->ndim, t[1]->shape, right));
        *equal = false;
        return LOONG_OK;
    }
    LOONG_TRY(compare_values(r, views, t, &d));
    if (t[0]->dtype != t[1]->dtype) {
        say(r, "%s: type %s and %s%s", t[0]->name,
            loong_dtype_name(t[0]->dtype), loong_dtype_name(t[1]->dtype),
            d.count == 0 ? ", equal values" : "");
    }
    if (d.count > 0) {
        say(r,
            "%s: %" PRId64 " of %" PRId64 " elements differ, largest "
            "difference %.6g absolute, %.6g relative",
            t[0]->name, d.count, loongi_shape_count(t[0]->ndim, t[0]->shape),
            d.absolute, d.relative);
        *equal = false;
    }
    return LOONG_OK;
}

/* Both lists are sorted: one walk finds what is in one only. */
static loong_status_t
diff_tensors(const report_t *r, const loong_view_t *const views[2], bool *equal)
{
    int64_t i = 0;
    int64_t j = 0;
    int64_t both = 0;
    while (i < views[0]->count || j < views[1]->count) {
        const loong_view_tensor_t *a =
            i < views[0]->count ? &views[0]->tensors[i] : NULL;
        const loong_view_tensor_t *b =
            j < views[1]->count ? &views[1]->tensors[j] : NULL;
        const loong_view_tensor_t *const pair[2] = {a, b};
        int order = a == NULL ? 1 : b == NULL ? -1 : strcmp(a->name, b->name);
        if (order != 0) {
            say(r, "%s: only in %s", order < 0 ? a->name : b->name,
                order < 0 ? views[0]->path : views[1]->path);
            *equal = false;
        } else {
            LOONG_TRY(diff_tensor(r, views, pair, equal));
            both++;
        }
        i += order <= 0;
        j += order >= 0;
    }
    say(r, "%" PRId64 " tensors compared: %s", both,
        *equal ? "all values are equal" : "they differ");
    return LOONG_OK;
}

static void diff_models(const report_t *r, const char *role,
                        const loong_pairs_t *const models[2], bool *equal)
{
    for (int side = 0; side < 2; side++) {
        const loong_pairs_t *here = models[side];
        const loong_pairs_t *there = models[1 - side];
        for (int64_t i = 0; there->count > 0 && i < here->count; i++) {
            const loong_pair_t *pair = &here->items[i];
            const char *other = loongi_pairs_get(there, pair->key);
            if (other != NULL &&
                (side == 1 || strcmp(other, pair->value) == 0)) {
                continue; /* equal, or reported from the other side */
            }
            say(r, "model%s%s %s: %s and %s", role != NULL ? "." : "",
                role != NULL ? role : "", pair->key,
                side == 0 ? pair->value : "(absent)",
                side == 1       ? pair->value
                : other != NULL ? other
                                : "(absent)");
            *equal = false;
        }
    }
}

/* Models that differ in what is left to defaults, or in how a number is
 * written, or in the dropout they were trained with, are the same. Keys of
 * models that have no Hugging Face files are compared as they are. */
static void fill_models(loong_context_t *ctx, loong_pairs_t **models[2])
{
    loong_pairs_t *pairs[2] = {NULL, NULL};
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < 2 && status == LOONG_OK; i++) {
        const loong_pairs_t *own = *models[i];
        status = loongi_pairs_create(ctx, &pairs[i]);
        for (int64_t k = 0; k < own->count && status == LOONG_OK; k++) {
            const loong_pair_t *pair = &own->items[k];
            if (strstr(pair->key, "dropout") != NULL) {
                continue;
            }
            status = loongi_pairs_set(pairs[i], pair->key, pair->value);
        }
        if (status == LOONG_OK) {
            const loong_hf_kind_t *kind =
                loongi_hf_kind_find(ctx, loongi_pairs_get(pairs[i], "family"));
            status = kind != NULL ? kind->fill(ctx, pairs[i])
                                  : LOONG_ERR_UNSUPPORTED;
        }
    }
    for (int i = 0; i < 2; i++) {
        if (status == LOONG_OK) {
            loong_pairs_t *before = *models[i];
            *models[i] = pairs[i];
            pairs[i] = before;
        }
        loongi_pairs_destroy(&pairs[i]);
    }
    if (status != LOONG_OK) {
        loong_context_clear_error(ctx);
    }
}

/* Component by component, the one with the loss first. */
static void diff_parts(const report_t *r, loong_view_t *const views[2],
                       bool *equal)
{
    int count = LOONG_MIN(views[0]->num_parts, views[1]->num_parts);
    for (int i = 1; i <= count; i++) {
        loong_view_part_t *a = &views[0]->parts[views[0]->num_parts - i];
        loong_view_part_t *b = &views[1]->parts[views[1]->num_parts - i];
        loong_pairs_t **models[2] = {&a->model, &b->model};
        fill_models(r->ctx, models);
        const loong_pairs_t *const filled[2] = {a->model, b->model};
        diff_models(r, count > 1 ? a->role : NULL, filled, equal);
    }
}

loong_status_t
loong_checkpoint_diff(loong_context_t *ctx,
                      const loong_checkpoint_diff_params_t *params,
                      bool *equal_p)
{
    report_t report = {ctx, params->line, params->user};
    const loong_checkpoint_names_t *as = &params->names;
    loong_view_t *first = NULL;
    loong_view_t *second = NULL;
    bool equal = true;
    bool mixed = loongi_checkpoint_is_native(params->a) !=
                     loongi_checkpoint_is_native(params->b) ||
                 as->map != NULL || as->model != NULL;
    loong_view_names_t names = mixed ? LOONG_VIEW_ENGINE : LOONG_VIEW_OWN;
    LOONG_TRY(loongi_view_open(ctx, params->a, names, as, &first));
    loong_status_t status =
        loongi_view_open(ctx, params->b, names, as, &second);
    if (status == LOONG_OK) {
        loong_view_t *const open[2] = {first, second};
        const loong_view_t *const views[2] = {first, second};
        diff_parts(&report, open, &equal);
        status = diff_tensors(&report, views, &equal);
    }
    loongi_view_close(&second);
    loongi_view_close(&first);
    if (status == LOONG_OK) {
        *equal_p = equal;
    }
    return status;
}
