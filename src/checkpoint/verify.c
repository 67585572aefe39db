/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether model files are sound, and which tensor holds which parameter. Called
 * by loong-ckpt verify and map, and by export.c. Read view.h before. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "hf_adapters.h"
#include "hf_composite.h"
#include "hf_config.h"
#include "hf_map_file.h"
#include "loong/checkpoint.h"
#include "problems.h"
#include "native_source.h"
#include "peft_import.h"
#include "view.h"

enum { BLOCK_BYTES = 8 << 20 };

typedef struct verifier {
    loong_context_t *ctx;
    const loong_checkpoint_names_t *names;
    loong_line_fn line;
    void *user;
    double nan;
    double infinite;
    double elements;
} verifier_t;

static void say(const verifier_t *v, const char *fmt, ...) LOONG_PRINTF(2, 3);

static void say(const verifier_t *v, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    v->line(v->user, text);
}

/* ---- NaN and infinity, in the bits of each type ---- */

typedef struct odd {
    int64_t nan;
    int64_t infinite;
} odd_t;

/* All bits of the exponent are set: the fraction says which of the two. */
#define COUNT_ODD(name_, type_, exponent_)                   \
    static void name_(const type_ *bits, int64_t n, odd_t *o) \
    {                                                        \
        const type_ all = (type_)((type_)~(type_)0 >> 1);    \
        const type_ top = (type_)(exponent_);                \
        int64_t nan = 0;                                     \
        int64_t infinite = 0;                                \
        for (int64_t i = 0; i < n; i++) {                    \
            type_ size = bits[i] & all;                      \
            nan += size > top;                               \
            infinite += size == top;                         \
        }                                                    \
        o->nan += nan;                                       \
        o->infinite += infinite;                             \
    }
COUNT_ODD(odd_64, uint64_t, UINT64_C(0x7ff0000000000000))
COUNT_ODD(odd_32, uint32_t, 0x7f800000u)
COUNT_ODD(odd_bf16, uint16_t, 0x7f80u)
COUNT_ODD(odd_f16, uint16_t, 0x7c00u)

static void count_odd(loong_dtype_t dtype, const void *bits, int64_t n,
                      odd_t *o)
{
    const uint8_t *bytes = bits;
    switch (dtype) {
    case LOONG_F64:
        odd_64(bits, n, o);
        break;
    case LOONG_F32:
        odd_32(bits, n, o);
        break;
    case LOONG_BF16:
        odd_bf16(bits, n, o);
        break;
    case LOONG_F16:
        odd_f16(bits, n, o);
        break;
    default: /* e4m3 has no infinity */
        for (int64_t i = 0; i < n; i++) {
            o->nan += (bytes[i] & 0x7f) == 0x7f;
        }
    }
}

static loong_status_t scan_rows(const loong_view_t *view,
                                const loong_view_tensor_t *t, void *buffer,
                                odd_t *odd)
{
    int64_t length = loongi_view_row_length(t);
    int64_t row_bytes = length * (int64_t)loong_dtype_size(t->dtype);
    int64_t step = LOONG_MAX(BLOCK_BYTES / LOONG_MAX(row_bytes, 1), 1);
    for (int64_t row = 0; row < loongi_view_rows(t); row += step) {
        int64_t rows = LOONG_MIN(step, loongi_view_rows(t) - row);
        LOONG_TRY(loongi_view_read(view, t, row, rows, t->dtype, buffer));
        count_odd(t->dtype, buffer, rows * length, odd);
    }
    return LOONG_OK;
}

static loong_status_t scan_tensor(verifier_t *v, const loong_view_t *view,
                                  const loong_view_tensor_t *t)
{
    int64_t count = loongi_shape_count(t->ndim, t->shape);
    size_t row_bytes = (size_t)loongi_view_row_length(t) *
                       loong_dtype_size(t->dtype);
    void *buffer = NULL;
    odd_t odd = {0, 0};
    v->elements += (double)count;
    if (!loongi_dtype_is_float(t->dtype) || count == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_alloc(v->ctx, LOONG_MAX(row_bytes, (size_t)BLOCK_BYTES),
                           "tensor rows", &buffer));
    loong_status_t status = scan_rows(view, t, buffer, &odd);
    loongi_free(v->ctx, buffer);
    if (odd.nan + odd.infinite > 0) {
        say(v, "%s: %" PRId64 " NaN and %" PRId64 " infinite of %" PRId64,
            t->name, odd.nan, odd.infinite, count);
        v->nan += (double)odd.nan;
        v->infinite += (double)odd.infinite;
    }
    return status;
}

/* ---- before an export ---- */

static void add_problem(void *user, const char *line)
{
    loongi_problems_add(user, "%s", line);
}

loong_status_t loongi_verify_component(loong_checkpoint_t *checkpoint,
                                       loong_context_t *ctx,
                                       const char *component, bool ema)
{
    loong_problems_t problems = loongi_problems_begin(ctx);
    verifier_t v = {ctx, NULL, add_problem, &problems, 0, 0, 0};
    const loong_view_t view = {.ctx = ctx, .native = checkpoint};
    size_t length = strlen(component);
    LOONG_TRY(loongi_checkpoint_verify(checkpoint, 0, 1));
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0;
         i < loongi_checkpoint_count(checkpoint) && status == LOONG_OK; i++) {
        const loong_checkpoint_tensor_t *t =
            loongi_checkpoint_get(checkpoint, i);
        loong_view_tensor_t tensor = {t->name, t->dtype, t->ndim, {0}, t};
        memcpy(tensor.shape, t->shape, sizeof(t->shape));
        if ((strcmp(t->kind, "param") == 0 ||
             (ema && strcmp(t->kind, "ema") == 0)) &&
            strncmp(t->name, component, length) == 0 &&
            t->name[length] == '.') {
            status = scan_tensor(&v, &view, &tensor);
        }
    }
    loong_status_t found = loongi_problems_end(
        &problems, LOONG_ERR_FORMAT, loongi_checkpoint_path(checkpoint));
    return status != LOONG_OK ? status : found;
}

/* ---- completeness ---- */

static loong_status_t check_native(const verifier_t *v,
                                   const loong_view_t *view)
{
    loong_hf_map_t *map = NULL;
    say(v, "native checkpoint %s: step %" PRId64 ", saved by %d rank%s",
        loongi_checkpoint_path(view->native),
        loongi_checkpoint_step(view->native),
        loongi_checkpoint_ranks(view->native),
        loongi_checkpoint_ranks(view->native) > 1 ? "s" : "");
    LOONG_TRY(loongi_checkpoint_verify(view->native, 0, 1));
    LOONG_TRY(loongi_checkpoint_verify_hf(view->native, true));
    say(v, loongi_checkpoint_lists_hf(view->native)
               ? "checksums of all files are right"
               : "checksums of all files are right, but those in hf/ have "
                 "none: an earlier version saved it");
    const char *roles[LOONG_MODEL_ROLES];
    int count = loongi_view_roles(loongi_checkpoint_metadata(view->native),
                                  roles);
    bool adapters = false;
    for (int i = 0; i < count; i++) {
        loong_native_source_t source = {.ctx = v->ctx,
                                        .checkpoint = view->native,
                                        .component = roles[i]};
        if (loongi_hf_map_create(v->ctx, view->parts[i].model, &map) !=
            LOONG_OK) {
            say(v, "which parameters belong to the model is not known: %s",
                loong_context_error(v->ctx));
            loong_context_clear_error(v->ctx);
            return LOONG_OK;
        }
        loong_status_t status = loongi_native_check(&source, map);
        loongi_hf_map_destroy(&map);
        LOONG_TRY(status);
        adapters = adapters || loongi_native_has_adapters(&source);
    }
    say(v, adapters
               ? "all adapters are there, and what was trained beside them"
               : "all parameters of the model are there, in their shapes");
    return LOONG_OK;
}

static loong_status_t check_files(const verifier_t *v, const char *path)
{
    const loong_hf_composite_t *whole = NULL;
    loong_hf_open_params_t open = {.dir = path};
    if (v->names != NULL) {
        open.model = v->names->model;
        open.map = v->names->map;
    }
    say(v, "Hugging Face directory %s", path);
    if (open.model == NULL) {
        LOONG_TRY(loongi_hf_composite_of(v->ctx, path, &whole));
    }
    for (int i = 0; i < (whole != NULL ? LOONG_HF_PARTS : 1); i++) {
        loong_hf_t *hf = NULL;
        open.role = whole != NULL ? whole->parts[i].role : NULL;
        LOONG_TRY(loongi_hf_check_model(v->ctx, &open));
        LOONG_TRY(loongi_hf_open_as(v->ctx, &open, &hf));
        loongi_hf_close(&hf);
    }
    say(v, "all tensors of the model are there, in their shapes");
    return LOONG_OK;
}

/* Modules and shapes, as an import would have them. */
static loong_status_t check_beside(const verifier_t *v, loong_peft_t *peft,
                                   const loong_peft_beside_t *base)
{
    loong_arena_t *arena = NULL;
    loong_pairs_t *metadata = NULL;
    loong_peft_import_t import;
    LOONG_TRY(loongi_lora_fit(peft, base->hf[base->count - 1]));
    LOONG_TRY(loongi_arena_create(v->ctx, "adapters", &arena));
    loong_status_t status = loongi_pairs_create(v->ctx, &metadata);
    if (status == LOONG_OK) {
        status = loongi_peft_import(peft, base, arena, metadata, &import);
    }
    loongi_pairs_destroy(&metadata);
    loongi_arena_destroy(&arena);
    return status;
}

static loong_status_t check_adapters(const verifier_t *v, loong_peft_t *peft)
{
    static const char *const roles[LOONG_HF_PARTS] = {
        LOONG_DEFAULT_ROLE, LOONG_DEFAULT_ROLE, LOONG_DEFAULT_ROLE};
    loong_hf_t *hf[LOONG_HF_PARTS] = {NULL};
    const loong_hf_composite_t *whole = NULL;
    loong_status_t status = LOONG_OK;
    int count = 0;
    loong_hf_open_params_t open = {.dir = NULL};
    if (v->names != NULL) {
        open.dir = v->names->base;
        open.model = v->names->model;
        open.map = v->names->map;
    }
    open.dir = loongi_peft_base(peft, open.dir);
    say(v, "adapters %s", peft->path);
    if (open.dir == NULL) {
        say(v, "matrices agree with one another; their base '%s' is no "
               "directory here and was not looked at (--base DIR)",
            peft->base != NULL ? peft->base : "");
        return LOONG_OK;
    }
    if (open.model == NULL) {
        LOONG_TRY(loongi_hf_composite_of(v->ctx, open.dir, &whole));
    }
    for (int i = whole != NULL ? 0 : LOONG_HF_PART_LOSS;
         i < LOONG_HF_PARTS && status == LOONG_OK; i++) {
        open.role = whole != NULL ? whole->parts[i].role : NULL;
        status = loongi_hf_open_as(v->ctx, &open, &hf[count++]);
    }
    if (status == LOONG_OK) {
        const loong_peft_beside_t base = {
            count, (const loong_hf_t *const *)hf, roles};
        status = check_beside(v, peft, &base);
    }
    while (count > 0) {
        loongi_hf_close(&hf[--count]);
    }
    LOONG_TRY(status);
    say(v, "all fit the matrices of %s", open.dir);
    return LOONG_OK;
}

static loong_status_t verify(verifier_t *v, const loong_view_t *view)
{
    char count[LOONG_HUMAN_SIZE];
    LOONG_TRY(view->native != NULL ? check_native(v, view)
              : view->peft != NULL ? check_adapters(v, view->peft)
                                   : check_files(v, view->path));
    for (int64_t i = 0; i < view->count; i++) {
        LOONG_TRY(scan_tensor(v, view, &view->tensors[i]));
    }
    say(v, "%" PRId64 " tensors, %s elements, %.0f NaN, %.0f infinite",
        view->count, loongi_human_count(v->elements, count), v->nan,
        v->infinite);
    return LOONG_OK;
}

loong_status_t loong_checkpoint_verify(loong_context_t *ctx, const char *path,
                                       const loong_checkpoint_names_t *names,
                                       loong_line_fn line, void *user,
                                       bool *good_p)
{
    verifier_t v = {ctx, names, line, user, 0, 0, 0};
    loong_view_t *view = NULL;
    LOONG_TRY(loongi_view_open(ctx, path, LOONG_VIEW_JUDGED, names, &view));
    loong_status_t status = verify(&v, view);
    loongi_view_close(&view);
    if (status == LOONG_OK) {
        *good_p = v.nan + v.infinite == 0;
    }
    return status;
}

/* ---- map ---- */

static void say_lines(char *text, loong_line_fn line, void *user)
{
    for (char *end = strchr(text, '\n'); end != NULL;
         end = strchr(text, '\n')) {
        *end = '\0';
        line(user, text);
        text = end + 1;
    }
}

static loong_status_t model_of(loong_context_t *ctx, const char *path,
                               const char *file, loong_pairs_t **model_p)
{
    loong_checkpoint_t *native = NULL;
    if (file != NULL) {
        return loongi_hf_model_read(ctx, file, model_p);
    }
    LOONG_TRY(loongi_checkpoint_check_place(ctx, path));
    if (!loongi_checkpoint_is_native(path)) {
        return loongi_hf_config_read(ctx, path, model_p);
    }
    LOONG_TRY(loongi_checkpoint_open(ctx, path, &native));
    loong_pairs_t *model = NULL;
    loong_status_t status = loongi_pairs_create(ctx, &model);
    if (status == LOONG_OK) {
        const loong_pairs_t *meta = loongi_checkpoint_metadata(native);
        status =
            loongi_view_model_keys(meta, loongi_view_component(meta), model);
    }
    loongi_checkpoint_close(&native);
    if (status != LOONG_OK) {
        loongi_pairs_destroy(&model);
        return status;
    }
    *model_p = model;
    return LOONG_OK;
}

loong_status_t loong_checkpoint_map(loong_context_t *ctx, const char *path,
                                    const loong_checkpoint_names_t *names,
                                    loong_line_fn line, void *user)
{
    loong_pairs_t *model = NULL;
    loong_hf_map_t *map = NULL;
    loong_text_t text = loongi_text_begin(ctx);
    LOONG_TRY(model_of(ctx, path, names != NULL ? names->model : NULL,
                       &model));
    loong_status_t status = loongi_hf_map_load(
        ctx, model, names != NULL ? names->map : NULL, &map);
    if (status == LOONG_OK) {
        loongi_text_printf(&text,
                           "# %s: tensors of its files, and the parameters of "
                           "family %s that they hold\n",
                           path, loongi_pairs_get(model, "family"));
        loongi_hf_map_print(map, &text);
        status = text.status;
    }
    if (status == LOONG_OK) {
        say_lines(text.data, line, user);
    }
    loongi_text_free(&text);
    loongi_hf_map_destroy(&map);
    loongi_pairs_destroy(&model);
    return status;
}
