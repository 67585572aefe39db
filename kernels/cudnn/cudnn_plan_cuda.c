/* SPDX-License-Identifier: Apache-2.0
 *
 * From a graph to something that runs: the heuristics suggest engines, best
 * first; the first one that can be built here and keeps what we want of it is
 * taken. Called by attention_cuda.c. Read cudnn_graph.h before. */
#include <stdio.h>

#include "cudnn_graph.h"

enum { MOST_SUGGESTIONS = 16 };

/* Refusals so far, for the message. */
typedef struct search {
    loong_cudnn_graph_t *g;
    cudnnBackendDescriptor_t graph;
    int64_t room;
    int suggested;
    char why[LOONG_CUDNN_REASON]; /* the last refusal */
} search_t;

static cudnnBackendDescriptor_t finish_graph(loong_cudnn_graph_t *g)
{
    const struct loong_cudnn *lib = g->lib;
    cudnnBackendDescriptor_t d =
        loongi_cudnn_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    loongi_cudnn_set(g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                     CUDNN_TYPE_BACKEND_DESCRIPTOR, g->num_operations,
                     g->operation);
    if (lib->handle != NULL) {
        loongi_cudnn_set(g, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                         CUDNN_TYPE_HANDLE, 1, &lib->handle);
    }
    loongi_cudnn_finalize(g, d, "the graph");
    return d;
}

/* Engines that say of themselves that their sums come in any order. */
static bool keeps_order(const search_t *s, cudnnBackendDescriptor_t config)
{
    const struct loong_cudnn *lib = s->g->lib;
    cudnnBackendDescriptor_t engine = NULL;
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    bool ok = lib->BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR,
                                           &engine) == CUDNN_STATUS_SUCCESS;
    ok = ok && lib->BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                        &count,
                                        &engine) == CUDNN_STATUS_SUCCESS;
    ok = ok && lib->BackendGetAttribute(
                   engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                   CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                   &count, note) == CUDNN_STATUS_SUCCESS;
    ok = ok && count <= CUDNN_NUMERICAL_NOTE_TYPE_COUNT; /* it saw them all */
    for (int64_t i = 0; ok && i < count; i++) {
        ok = note[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    }
    if (engine != NULL) {
        lib->BackendDestroyDescriptor(engine);
    }
    return ok;
}

static cudnnStatus_t build(const search_t *s, cudnnBackendDescriptor_t config,
                           cudnnBackendDescriptor_t plan, int64_t *bytes)
{
    const struct loong_cudnn *lib = s->g->lib;
    int64_t count = 0;
    cudnnStatus_t status =
        lib->handle != NULL
            ? lib->BackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                       CUDNN_TYPE_HANDLE, 1, &lib->handle)
            : lib->BackendSetAttribute(
                  plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &lib->description);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = lib->BackendSetAttribute(
            plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = lib->BackendFinalize(plan);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = lib->BackendGetAttribute(
            plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
            1, &count, bytes);
    }
    return status;
}

/* NULL, and why in s->why, when this one will not do. */
static cudnnBackendDescriptor_t try_config(search_t *s,
                                           cudnnBackendDescriptor_t config,
                                           int64_t *bytes)
{
    const struct loong_cudnn *lib = s->g->lib;
    cudnnBackendDescriptor_t plan = NULL;
    s->suggested++;
    if (!keeps_order(s, config)) {
        snprintf(s->why, sizeof(s->why),
                 "the engine's sums come in any order: no two runs would "
                 "agree");
        return NULL;
    }
    cudnnStatus_t status = lib->BackendCreateDescriptor(
        CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = build(s, config, plan, bytes);
    }
    if (status != CUDNN_STATUS_SUCCESS) {
        loongi_cudnn_reason(lib, status, s->why);
    } else if (*bytes > s->room) {
        snprintf(s->why, sizeof(s->why),
                 "the plan wants %lld bytes of workspace, %lld are planned",
                 (long long)*bytes, (long long)s->room);
    } else {
        return plan;
    }
    if (plan != NULL) {
        lib->BackendDestroyDescriptor(plan);
    }
    return NULL;
}

/* The suggestions of one mode. */
static cudnnBackendDescriptor_t suggestions(search_t *s,
                                            cudnnBackendHeurMode_t mode,
                                            int64_t *count)
{
    loong_cudnn_graph_t *g = s->g;
    const struct loong_cudnn *lib = g->lib;
    char text[LOONG_CUDNN_REASON];
    cudnnBackendDescriptor_t d =
        loongi_cudnn_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    loongi_cudnn_set(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &s->graph);
    loongi_cudnn_set(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                     &mode);
    if (lib->handle == NULL) {
        loongi_cudnn_set(g, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &lib->description);
    }
    *count = 0;
    if (g->status != LOONG_OK) {
        return d;
    }
    cudnnStatus_t status = lib->BackendFinalize(d);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = lib->BackendGetAttribute(
            d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
            count, NULL);
    }
    if (status != CUDNN_STATUS_SUCCESS) {
        *count = 0;
        snprintf(s->why, sizeof(s->why), "%s",
                 loongi_cudnn_reason(lib, status, text));
    }
    return d;
}

static cudnnBackendDescriptor_t try_mode(search_t *s,
                                         cudnnBackendHeurMode_t mode,
                                         int64_t *bytes)
{
    loong_cudnn_graph_t *g = s->g;
    cudnnBackendDescriptor_t config[MOST_SUGGESTIONS] = {NULL};
    cudnnBackendDescriptor_t plan = NULL;
    int64_t count = 0;
    cudnnBackendDescriptor_t d = suggestions(s, mode, &count);
    int64_t n = LOONG_MIN(count, (int64_t)MOST_SUGGESTIONS);
    for (int64_t i = 0; i < n; i++) {
        config[i] = loongi_cudnn_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    if (g->status != LOONG_OK || n == 0 ||
        g->lib->BackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &count,
                                    config) != CUDNN_STATUS_SUCCESS) {
        return NULL;
    }
    n = LOONG_MIN(count, n);
    for (int64_t i = 0; i < n && plan == NULL; i++) {
        plan = try_config(s, config[i], bytes);
    }
    return plan;
}

loong_status_t loongi_cudnn_plan(loong_cudnn_graph_t *g, int64_t room,
                                 cudnnBackendDescriptor_t *plan_p,
                                 int64_t *bytes_p)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A,
                                                   CUDNN_HEUR_MODE_FALLBACK};
    search_t s = {g, NULL, room, 0, ""};
    cudnnBackendDescriptor_t plan = NULL;
    int64_t bytes = 0;
    s.graph = finish_graph(g);
    for (int i = 0; i < LOONG_COUNT_OF(modes) && plan == NULL; i++) {
        plan = try_mode(&s, modes[i], &bytes);
    }
    LOONG_TRY(g->status);
    LOONG_CHECK(g->ctx, plan != NULL || s.suggested > 0, LOONG_ERR_UNSUPPORTED,
                "cuDNN %zu has no engine for this on this device%s%s; "
                "CUDNN_LOGLEVEL_DBG=2 makes it say why", g->lib->GetVersion(),
                s.why[0] != '\0' ? ": " : "", s.why);
    LOONG_CHECK(g->ctx, plan != NULL, LOONG_ERR_UNSUPPORTED,
                "cuDNN %zu, none of %d suggested engines: %s",
                g->lib->GetVersion(), s.suggested, s.why);
    *plan_p = plan;
    *bytes_p = bytes;
    return LOONG_OK;
}
