/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the devices of a job and opens that of this rank. Called before the
 * component is planned. Read devices.h before. */
#include "devices.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "first.h"
#include "loong/launch.h"
#include "loong/register.h"
#include "planned.h"
#include "predict.h"
#include "progress.h"

#define LIST "devices"

enum { PATH = 64 };

/* An item of the list: so many characters of a kind, and its ranks. */
typedef struct part {
    const char *kind; /* of the registry */
    long first;
    long last; /* LONG_MAX: up to the last rank */
} part_t;

/* "4", "0-3" or "4-" */
static bool read_ranks(const char *text, part_t *part)
{
    int length = 0;
    part->last = LONG_MAX;
    if (strspn(text, "0123456789") == 0 || strlen(text) > 20 ||
        sscanf(text, "%ld%n", &part->first, &length) != 1) {
        return false;
    }
    const char *rest = text + length;
    if (*rest == '\0') {
        part->last = part->first;
        return true;
    }
    if (*rest != '-' || rest[1] == '\0') {
        return *rest == '-';
    }
    rest++;
    if (strspn(rest, "0123456789") != strlen(rest)) {
        return false;
    }
    return sscanf(rest, "%ld", &part->last) == 1 && part->first <= part->last;
}

static bool read_part(const loong_plan_t *plan, int64_t i, part_t *part)
{
    char path[PATH];
    snprintf(path, sizeof(path), LIST "[%lld]", (long long)i);
    const char *text = loong_recipe_text(plan->recipe, path);
    const char *colon = text != NULL ? strchr(text, ':') : NULL;
    const char *kind = NULL;
    for (int k = 0; colon != NULL; k++) {
        kind = loong_device_kind(plan->ctx, k);
        if (kind == NULL) {
            break;
        }
        size_t length = (size_t)(colon - text);
        if (strlen(kind) == length && strncmp(text, kind, length) == 0) {
            part->kind = kind;
            return read_ranks(colon + 1, part);
        }
    }
    return false;
}

/* How many items name the rank; *kind_p: of the last one. */
static int find_rank(const loong_plan_t *plan, int rank, const char **kind_p)
{
    int64_t count = loong_recipe_count(plan->recipe, LIST);
    int found = 0;
    for (int64_t i = 0; i < count; i++) {
        part_t part;
        if (read_part(plan, i, &part) && part.first <= rank &&
            rank <= part.last) {
            *kind_p = part.kind;
            found++;
        }
    }
    return found;
}

/* ---- checking ------------------------------------------------------------ */

/* "auto cpu xpu cuda": as they were entered. */
static const char *name_kinds(const loong_plan_t *plan, char *text,
                              size_t size)
{
    int count = 0;
    while (loong_device_kind(plan->ctx, count) != NULL) {
        count++;
    }
    text[0] = '\0';
    while (count > 0) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s", used > 0 ? " " : "",
                 loong_device_kind(plan->ctx, --count));
    }
    return text;
}

static loong_status_t check_kind(const loong_plan_t *plan)
{
    const char *text = loong_recipe_text(plan->recipe, "device");
    const char *kind = "auto";
    char kinds[256];
    for (int i = 0; kind != NULL && strcmp(kind, text) != 0; i++) {
        kind = loong_device_kind(plan->ctx, i);
    }
    LOONG_CHECK(plan->ctx, kind != NULL, LOONG_ERR_CONFIG,
                "device: found %s, allowed: auto %s (%s)",
                text[0] != '\0' ? text : "nothing",
                name_kinds(plan, kinds, sizeof(kinds)),
                loong_recipe_where(plan->recipe, "device"));
    return LOONG_OK;
}

static loong_status_t check_parts(const loong_plan_t *plan, int64_t count)
{
    char kinds[256];
    for (int64_t i = 0; i < count; i++) {
        char path[PATH];
        part_t part;
        snprintf(path, sizeof(path), LIST "[%lld]", (long long)i);
        LOONG_CHECK(plan->ctx, read_part(plan, i, &part),
                    LOONG_ERR_CONFIG,
                    "%s: found '%s' (%s), wanted a kind and its ranks: one of "
                    "%s, then as in cuda:0-3, cpu:4 or cpu:4-",
                    path, loong_recipe_text(plan->recipe, path),
                    loong_recipe_where(plan->recipe, path),
                    name_kinds(plan, kinds, sizeof(kinds)));
        LOONG_CHECK(
            plan->ctx,
            part.first < plan->parallel.ranks &&
                (part.last == LONG_MAX || part.last < plan->parallel.ranks),
            LOONG_ERR_CONFIG,
            "%s: %s (%s), but the ranks of this job are 0 to %d", path,
            loong_recipe_text(plan->recipe, path),
            loong_recipe_where(plan->recipe, path), plan->parallel.ranks - 1);
    }
    return LOONG_OK;
}

/* What "auto" is depends on the device. */
static loong_status_t check_precision(const loong_plan_t *plan)
{
    LOONG_CHECK(
        plan->ctx,
        strcmp(loong_recipe_text(plan->recipe, "precision.params_dtype"),
               "auto") != 0,
        LOONG_ERR_CONFIG,
        LIST ": of several kinds, and precision.params_dtype is auto, "
             "which each rank would take for its own device: name bf16 or "
             "fp32");
    return LOONG_OK;
}

loong_status_t loongi_devices_check(const loong_plan_t *plan)
{
    const loong_recipe_t *r = plan->recipe;
    int64_t count = loong_recipe_count(r, LIST);
    LOONG_TRY(check_kind(plan));
    if (count == 0) {
        return loongi_predict_check(plan);
    }
    LOONG_CHECK(plan->ctx, !loong_recipe_is_set(r, "device"), LOONG_ERR_CONFIG,
                "device and " LIST " are both set (%s, %s): one kind for all "
                "ranks, or a list",
                loong_recipe_where(r, "device"), loong_recipe_where(r, LIST));
    LOONG_TRY(check_parts(plan, count));
    for (int rank = 0; rank < plan->parallel.ranks; rank++) {
        const char *kind = NULL;
        int found = find_rank(plan, rank, &kind);
        LOONG_CHECK(plan->ctx, found == 1, LOONG_ERR_CONFIG,
                    LIST " (%s): rank %d of %d %s", loong_recipe_where(r, LIST),
                    rank, plan->parallel.ranks,
                    found == 0 ? "has no device" : "stands there twice");
    }
    LOONG_TRY(loongi_predict_check(plan));
    return loongi_devices_are_mixed(plan) ? check_precision(plan) : LOONG_OK;
}

/* ---- asking -------------------------------------------------------------- */

const char *loongi_devices_kind(const loong_plan_t *plan, int rank)
{
    const char *kind = NULL;
    if (find_rank(plan, rank, &kind) > 0) {
        return kind;
    }
    kind = loong_recipe_text(plan->recipe, "device");
    return strcmp(kind, "auto") == 0 && plan->auto_kind != NULL
               ? plan->auto_kind
               : kind;
}

bool loongi_devices_are_mixed(const loong_plan_t *plan)
{
    const char *first = loongi_devices_kind(plan, 0);
    for (int r = 1; r < plan->parallel.ranks; r++) {
        if (strcmp(loongi_devices_kind(plan, r), first) != 0) {
            return true;
        }
    }
    return false;
}

static bool is_processor(const loong_plan_t *plan, const char *kind)
{
    return loongi_device_kind_is_host(plan->ctx, kind);
}

bool loongi_devices_is_processor(const loong_plan_t *plan, int rank)
{
    return is_processor(plan, loongi_devices_kind(plan, rank));
}

void loongi_devices_describe(const loong_plan_t *plan, loong_text_t *text)
{
    int first = 0;
    for (int r = 1; r <= plan->parallel.ranks; r++) {
        const char *kind = loongi_devices_kind(plan, first);
        if (r < plan->parallel.ranks &&
            strcmp(loongi_devices_kind(plan, r), kind) == 0) {
            continue;
        }
        loongi_text_printf(text, "%s%s %d", first > 0 ? ", " : "", kind, first);
        if (r - 1 > first) {
            loongi_text_printf(text, "-%d", r - 1);
        }
        first = r;
    }
}

loong_status_t loongi_devices_staging(const loong_plan_t *plan,
                                      loong_arena_t *arena,
                                      loong_staging_t *staging_p)
{
    size_t ranks = (size_t)plan->parallel.ranks;
    bool mixed = loongi_devices_are_mixed(plan);
    bool always = strcmp(loong_recipe_text(plan->recipe, "comm.device_backend"),
                         "staged") == 0 &&
                  (mixed || !loong_device_is_host(plan->device));
    loong_staging_t staging = {.on = always || mixed, .always = always};
    const char **kinds = NULL;
    LOONG_TRY(loongi_arena_alloc(arena, ranks * sizeof(*kinds), &kinds));
    for (int r = 0; r < plan->parallel.ranks; r++) {
        kinds[r] = loongi_devices_kind(plan, r);
        staging.processors = staging.processors || is_processor(plan, kinds[r]);
    }
    staging.kinds = mixed ? kinds : NULL;
    *staging_p = staging;
    return LOONG_OK;
}

/* ---- opening ------------------------------------------------------------- */

loong_status_t loongi_devices_settle(loong_plan_t *plan)
{
    if (loong_recipe_count(plan->recipe, LIST) > 0 ||
        strcmp(loong_recipe_text(plan->recipe, "device"), "auto") != 0) {
        return LOONG_OK;
    }
    const char *found = loongi_device_first(plan->ctx);
    int64_t has[2] = {found[0] != '\0' && !is_processor(plan, found), 0};
    has[1] = -has[0];
    LOONG_TRY(loong_comm_all_reduce(plan->comm, has, 2, LOONG_I64,
                                    LOONG_REDUCE_MIN, "devices"));
    bool all = has[0] == 1;
    if (has[1] == 0) { /* nobody has one: a processor, or nothing */
        plan->auto_kind = found[0] != '\0' ? found : NULL;
        return LOONG_OK;
    }
    if (loong_comm_rank(plan->comm) == 0 && all) {
        loongi_log(plan->ctx, LOONG_LOG_INFO,
                   "device: auto is %s here; device=cpu stays with the "
                   "processor",
                   found);
    } else if (loong_comm_rank(plan->comm) == 0) {
        loongi_log(plan->ctx, LOONG_LOG_WARN,
                   "device: auto is cpu: some ranks have an accelerator and "
                   "others have none; devices, a list of kinds and ranks, "
                   "would use both");
    }
    return loong_recipe_set(plan->recipe, "device", all ? found : "cpu",
                            "device: auto");
}

/* How many lower ranks of this machine have a device of the same kind.
 * Collective: a rank that cannot say its machine takes part all the same. */
static loong_status_t find_index(loong_plan_t *plan, const char *kind,
                                 int *index_p)
{
    int rank = loong_comm_rank(plan->comm);
    size_t size = (size_t)loong_comm_size(plan->comm);
    loong_memory_available_t available = {.bytes = 0};
    int64_t *ids = NULL;
    *index_p = 0;
    loong_status_t found = loongi_memory_available(plan->ctx, "", &available);
    LOONG_TRY(
        loongi_calloc(plan->ctx, 2 * size, sizeof(*ids), "machines", &ids));
    for (size_t r = 0; r < size; r++) {
        ids[size + r] = 1;
    }
    ids[rank] = (int64_t)available.id;
    loong_status_t status = loong_comm_all_gather(plan->comm, ids, ids + size,
                                                  LOONG_I64, "machines");
    for (int r = 0; r < rank && status == LOONG_OK; r++) {
        *index_p += ids[r] == ids[rank] &&
                    strcmp(loongi_devices_kind(plan, r), kind) == 0;
    }
    loongi_free(plan->ctx, ids);
    return found != LOONG_OK ? found : status;
}

/* A plan needs no device, where there are kernels to plan with. */
static loong_status_t open_device(loong_plan_t *plan, const char *name,
                                  int index)
{
    loong_status_t status =
        loong_device_create_local(plan->ctx, name, index, &plan->device);
    if (status == LOONG_OK) {
        return loongi_device_set_limit(
            plan->device,
            loong_recipe_real(plan->recipe, "comm.heartbeat_timeout"));
    }
    if (status != LOONG_ERR_NOT_FOUND || !plan->plan_only) {
        return status;
    }
    char why[512];
    snprintf(why, sizeof(why), "%s", loong_context_error(plan->ctx));
    if (loong_device_create_planned(plan->ctx, name, &plan->device) !=
        LOONG_OK) {
        return status; /* both reasons are told */
    }
    loong_context_clear_error(plan->ctx);
    if (loong_comm_rank(plan->comm) == 0) {
        loongi_log(plan->ctx, LOONG_LOG_INFO, "planned without a device: %s",
                   why);
    }
    return LOONG_OK;
}

loong_status_t loongi_devices_open(loong_plan_t *plan)
{
    loong_launch_t launch;
    int rank = loong_comm_rank(plan->comm);
    const char *kind = loongi_devices_kind(plan, rank);
    loong_launch_detect(&launch);
    int index = launch.launcher != NULL ? launch.local_rank : rank;
    if (loong_recipe_count(plan->recipe, LIST) > 0) {
        LOONG_TRY(find_index(plan, kind, &index));
    }
    LOONG_TRY(open_device(plan, kind, index));
    return loongi_predict_check_device(plan);
}
