/* SPDX-License-Identifier: Apache-2.0 */
#include "peers.h"

#include "devices.h"

#include <stdio.h>

static loong_status_t plan_peer(loong_trainer_t *t, int rank)
{
    loong_component_params_t p = t->component->params;
    int stage = loong_mesh_member(&t->mesh, LOONG_GROUP_PP, rank);
    LOONG_TRY(loongi_parallel_mesh(&t->parallel, stage, &p.mesh));
    int largest = loong_mesh_member(&p.mesh, LOONG_GROUP_TP,
                                    p.mesh.size[LOONG_AXIS_TP] - 1);
    if (largest == t->mesh.rank) {
        t->peers[rank] = t->component;
        return LOONG_OK;
    }
    LOONG_TRY(loongi_parallel_mesh(&t->parallel, largest, &p.mesh));
    if (loongi_devices_are_mixed(t)) {
        p.compile.device = loongi_devices_kind(t->recipe, largest);
        p.shards.device = p.compile.device;
    }
    loong_status_t status =
        loongi_component_create(t->ctx, &p, &t->peers[rank]);
    if (status != LOONG_OK) {
        loongi_error_note(t->ctx, "while planning rank %d", largest);
    }
    return status;
}

/* Of ranks that are only pretended the largest decides what is enough. */
static void count_memory(loong_trainer_t *t)
{
    if (loong_comm_size(t->comm) == t->mesh.world ||
        loongi_devices_are_mixed(t)) {
        return;
    }
    for (int r = 0; r < t->mesh.size[LOONG_AXIS_PP]; r++) {
        int64_t bytes = 0;
        for (int b = 0; b < LOONG_BASE_COUNT; b++) {
            bytes += t->peers[r]->bytes[b];
        }
        int64_t more = LOONG_MAX(bytes - t->memory.rank, 0);
        t->memory.rank += more;
        t->memory.machine += more;
    }
}

loong_status_t loongi_peers_plan(loong_trainer_t *t)
{
    int ranks = t->mesh.size[LOONG_AXIS_PP];
    if (t->peers != NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(t->ctx, (size_t)ranks, sizeof(*t->peers),
                            "ranks of the pipeline", &t->peers));
    for (int r = 0; r < ranks; r++) {
        LOONG_TRY(plan_peer(t, r));
    }
    count_memory(t);
    return LOONG_OK;
}

void loongi_peers_destroy(loong_trainer_t *t)
{
    for (int r = 0; t->peers != NULL && r < t->mesh.size[LOONG_AXIS_PP]; r++) {
        if (t->peers[r] != t->component) {
            loongi_component_destroy(&t->peers[r]);
        }
    }
    loongi_free(t->ctx, t->peers);
    t->peers = NULL;
}

/* "0-3, 8-11" */
static void print_layers(const loong_component_t *c, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < c->num_stages && length < size; i++) {
        const loong_stage_cut_t *cut = &c->stages[i]->cut;
        const char *comma = length > 0 ? ", " : "";
        if (cut->num_layers > 0) {
            length += (size_t)snprintf(
                text + length, size - length, "%s%d-%d", comma,
                cut->first_layer, cut->first_layer + cut->num_layers - 1);
        }
    }
}

void loongi_peers_describe(const loong_trainer_t *t, loong_text_t *text)
{
    int ranks = t->mesh.size[LOONG_AXIS_PP];
    int64_t used[LOONG_BASE_COUNT] = {0};
    char human[LOONG_HUMAN_SIZE];
    char layers[64];
    loongi_text_printf(text, "memory by stage, of its largest rank:\n"
                             "  %5s  %-12s", "rank", "layers");
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        for (int r = 0; r < ranks; r++) {
            used[b] += t->peers[r]->bytes[b];
        }
        if (used[b] > 0) {
            loongi_text_printf(text, "  %11s",
                               loongi_base_name((loong_base_t)b));
        }
    }
    loongi_text_printf(text, "  %11s\n", "together");
    for (int r = 0; r < ranks; r++) {
        const loong_component_t *c = t->peers[r];
        int64_t sum = 0;
        print_layers(c, layers, sizeof(layers));
        loongi_text_printf(text, "  %5d  %-12s", c->params.mesh.rank, layers);
        for (int b = 0; b < LOONG_BASE_COUNT; b++) {
            sum += c->bytes[b];
            if (used[b] > 0) {
                loongi_text_printf(
                    text, "  %11s",
                    loongi_human_bytes((double)c->bytes[b], human));
            }
        }
        loongi_text_printf(text, "  %11s\n",
                           loongi_human_bytes((double)sum, human));
    }
}
