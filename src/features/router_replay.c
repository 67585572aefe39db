/* SPDX-License-Identifier: Apache-2.0
 *
 * Records what routers choose, or makes them choose what was recorded. Called
 * by the step around the forward of each micro-batch. Read router_replay.h
 * before. */
#include "router_replay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

#define RECORD_KEY "router_replay.record_file"
#define REPLAY_KEY "router_replay.replay_file"

enum { HEADER = 256, PREFIX = 10, CRC = 4, CELL = 2, MAX_EXPERT = 65535 };

/* The array of the file. */
typedef struct array {
    int64_t samples;
    int64_t layers;
    int64_t tokens; /* of a sample */
    int64_t topk;
    int64_t begin; /* of its first byte */
} array_t;

/* A layer of this rank that has a router. */
typedef struct routed {
    const loong_stage_t *stage;
    const loong_port_t *port;
    int layer;
} routed_t;

struct loong_router_replay {
    loong_context_t *ctx;
    const char *path; /* borrowed of the recipe */
    loong_loader_t *loader; /* borrowed */
    bool record;
    bool is_recorder; /* for its micro-batch, whose rows other ranks have too */
    int fd;
    array_t array;
    int experts;
    int num_routed;
    routed_t *routed;
    /* Of a micro-batch: all tokens of this rank, its rows of the stream. */
    int64_t micro_batch_size;
    int64_t num_keys;
    int64_t *keys; /* sample x its tokens + token */
    uint32_t *crc; /* of the ids of each sample */
    int64_t first, rows;
    uint16_t *cells; /* of these rows, in one layer */
    int32_t *indices;
};

/* ---- header -------------------------------------------------------------- */

#define FORM                                                                  \
    "{'descr': [('crc', '<u4'), ('experts', '<u2', (%lld, %lld, %lld))], "    \
    "'fortran_order': False, 'shape': (%lld,), }"

static int64_t sample_bytes(const array_t *a)
{
    return CRC + a->layers * a->tokens * a->topk * CELL;
}

static void write_header(const array_t *a, char bytes[HEADER])
{
    static const unsigned char magic[PREFIX] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, HEADER - PREFIX, 0};
    char text[HEADER];
    int n = snprintf(text, sizeof(text), FORM, (long long)a->layers,
                     (long long)a->tokens, (long long)a->topk,
                     (long long)a->samples);
    memset(bytes, ' ', HEADER);
    memcpy(bytes, magic, PREFIX);
    memcpy(bytes + PREFIX, text, (size_t)LOONG_MIN(n, HEADER - PREFIX - 1));
    bytes[HEADER - 1] = '\n';
}

static loong_status_t read_header(const loong_router_replay_t *r, array_t *a)
{
    unsigned char prefix[PREFIX];
    char text[512] = "";
    long long n[4] = {0};
    int end = 0;
    LOONG_TRY(loongi_file_pread(r->ctx, r->fd, r->path, prefix, PREFIX, 0));
    size_t length = prefix[8] + 256u * prefix[9];
    bool numpy = memcmp(prefix, "\x93NUMPY\1", 7) == 0;
    if (numpy && length < sizeof(text)) {
        LOONG_TRY(loongi_file_pread(r->ctx, r->fd, r->path, text, length,
                                    PREFIX));
        sscanf(text, FORM "%n", &n[0], &n[1], &n[2], &n[3], &end);
    }
    text[strcspn(text, "\n")] = '\0';
    LOONG_CHECK(r->ctx, end > 0, LOONG_ERR_FORMAT,
                "%s is no record of routing: found %s%s, a NumPy array with "
                "fields crc <u4 and experts <u2 (layers, tokens, k) is wanted",
                r->path, numpy ? "a NumPy array, " : "no NumPy array", text);
    a->layers = n[0];
    a->tokens = n[1];
    a->topk = n[2];
    a->samples = n[3];
    a->begin = PREFIX + (int64_t)length;
    return LOONG_OK;
}

static loong_status_t compare_arrays(const loong_router_replay_t *r,
                                     const array_t *found)
{
    const array_t *want = &r->array;
    LOONG_CHECK(r->ctx,
                found->layers == want->layers &&
                    found->tokens == want->tokens && found->topk == want->topk,
                LOONG_ERR_CONFIG,
                "%s has the routing of %lld layers, samples of %lld tokens "
                "and %lld experts a token; this run has %lld layers, "
                "data.seq_length %lld and moe_router_topk %lld",
                r->path, (long long)found->layers, (long long)found->tokens,
                (long long)found->topk, (long long)want->layers,
                (long long)want->tokens, (long long)want->topk);
    return LOONG_OK;
}

/* ---- files --------------------------------------------------------------- */

/* Samples that the run has consumed when it ends. */
static int64_t last_sample(const loong_router_replay_t *r, int64_t step,
                           int64_t consumed, int64_t train_iters)
{
    for (int64_t s = step; s < train_iters; s++) {
        consumed += loong_loader_batch(r->loader, consumed);
    }
    return consumed;
}

static loong_status_t open_file(loong_router_replay_t *r, int flags)
{
    r->fd = open(r->path, flags | O_CLOEXEC, 0666);
    bool missing = !r->record && errno == ENOENT;
    LOONG_CHECK(r->ctx, r->fd >= 0,
                missing ? LOONG_ERR_NOT_FOUND : LOONG_ERR_IO,
                "%s: cannot open %s: %s", r->record ? RECORD_KEY : REPLAY_KEY,
                r->path, strerror(errno));
    return LOONG_OK;
}

static loong_status_t make_parent(const loong_router_replay_t *r)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(r->path, '/');
    if (slash == NULL || slash == r->path) {
        return LOONG_OK;
    }
    snprintf(dir, sizeof(dir), "%.*s", (int)(slash - r->path), r->path);
    return loongi_dir_make(r->ctx, dir);
}

/* A run that goes on keeps the samples before it and records anew what is
 * behind; one that begins takes a new file. */
static loong_status_t begin_record(loong_router_replay_t *r, int64_t consumed,
                                   bool goes_on)
{
    char header[HEADER];
    struct stat info;
    array_t *a = &r->array;
    LOONG_TRY(make_parent(r));
    LOONG_TRY(open_file(r, O_RDWR | O_CREAT));
    LOONG_CHECK(r->ctx, fstat(r->fd, &info) == 0, LOONG_ERR_IO, "%s: %s",
                r->path, strerror(errno));
    if (info.st_size > 0) {
        array_t found;
        LOONG_CHECK(r->ctx, goes_on, LOONG_ERR_CONFIG,
                    RECORD_KEY
                    ": %s is there: remove it or choose another "
                    "name (a run with checkpoint.load goes on with it)",
                    r->path);
        LOONG_TRY(read_header(r, &found));
        LOONG_TRY(compare_arrays(r, &found));
        LOONG_CHECK(r->ctx, found.begin == HEADER, LOONG_ERR_CONFIG,
                    RECORD_KEY ": %s was not written by a training", r->path);
    } else if (consumed > 0) {
        loongi_log(r->ctx, LOONG_LOG_WARN,
                   RECORD_KEY ": %s begins with sample %lld, where this run "
                              "goes on",
                   r->path, (long long)consumed);
    }
    off_t kept = (off_t)(HEADER + consumed * sample_bytes(a));
    off_t size = (off_t)(HEADER + a->samples * sample_bytes(a));
    LOONG_CHECK(r->ctx, ftruncate(r->fd, LOONG_MIN(kept, size)) == 0 &&
                            ftruncate(r->fd, size) == 0,
                LOONG_ERR_IO, RECORD_KEY ": cannot make %s %lld bytes long: %s",
                r->path, (long long)size, strerror(errno));
    write_header(a, header);
    return loongi_file_pwrite(r->ctx, r->fd, r->path, header, HEADER, 0);
}

static loong_status_t begin_replay(loong_router_replay_t *r)
{
    struct stat info;
    array_t found;
    LOONG_TRY(open_file(r, O_RDONLY));
    LOONG_TRY(read_header(r, &found));
    LOONG_TRY(compare_arrays(r, &found));
    LOONG_CHECK(r->ctx, found.samples >= r->array.samples, LOONG_ERR_CONFIG,
                REPLAY_KEY ": %s has the routing of %lld samples, this run "
                "takes %lld: fewer train.train_iters, or a longer record",
                r->path, (long long)found.samples,
                (long long)r->array.samples);
    int64_t end = found.begin + found.samples * sample_bytes(&found);
    LOONG_CHECK(r->ctx, fstat(r->fd, &info) == 0 && info.st_size >= end,
                LOONG_ERR_FORMAT,
                REPLAY_KEY ": %s is cut off: %lld bytes, %lld by its header",
                r->path, (long long)info.st_size, (long long)end);
    r->array = found;
    return LOONG_OK;
}

/* ---- opening ------------------------------------------------------------- */

loong_status_t loongi_router_replay_mode(const loong_recipe_t *recipe,
                                         loong_context_t *ctx,
                                         const loong_component_params_t *model,
                                         loong_routing_t *routing_p)
{
    const char *record = loong_recipe_text(recipe, RECORD_KEY);
    const char *replay = loong_recipe_text(recipe, REPLAY_KEY);
    const char *key = record != NULL ? RECORD_KEY : REPLAY_KEY;
    loong_model_facts_t facts = {0};
    model->family->facts(model->config, &facts);
    LOONG_CHECK(ctx,
                (record == NULL && replay == NULL) ||
                    (facts.num_experts > 0 && facts.num_experts <= MAX_EXPERT),
                LOONG_ERR_CONFIG,
                "%s: %s: the model has %d experts a layer, 1 to %d are wanted",
                loong_recipe_where(recipe, key), key, facts.num_experts,
                MAX_EXPERT);
    *routing_p = record != NULL   ? LOONG_ROUTING_RECORD
                 : replay != NULL ? LOONG_ROUTING_REPLAY
                                  : LOONG_ROUTING_LIVE;
    return LOONG_OK;
}

/* The routers of this rank's stages. */
static void list_routed(loong_router_replay_t *r, const loong_component_t *c)
{
    for (int s = 0; s < c->num_stages; s++) {
        const loong_stage_t *stage = c->stages[s];
        const loong_model_chunk_t *chunk = stage->chunk[LOONG_VARIANT_TRAIN];
        for (int i = 0; i < stage->cut.num_layers; i++) {
            char name[32];
            routed_t at = {stage, NULL, stage->cut.first_layer + i};
            snprintf(name, sizeof(name), LOONG_ROUTING_PORT, at.layer);
            at.port = r->record ? loongi_model_chunk_output(chunk, name)
                                : loongi_model_chunk_input(chunk, name);
            if (at.port != NULL) {
                r->rows = at.port->shape.dim[0];
                r->routed[r->num_routed++] = at;
            }
        }
    }
}

static loong_status_t create(const loong_plan_t *plan, loong_router_replay_t *r)
{
    const loong_component_t *c = plan->component;
    int64_t tokens = c->params.request.rows;
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)c->facts.num_layers,
                            sizeof(*r->routed), "routers", &r->routed));
    list_routed(r, c);
    r->first = r->rows * plan->mesh.coord[LOONG_AXIS_TP];
    r->experts = c->facts.num_experts;
    r->is_recorder =
        plan->mesh.coord[LOONG_AXIS_TP] + plan->mesh.coord[LOONG_AXIS_CP] == 0;
    r->micro_batch_size = plan->set->micro_batch_size;
    r->num_keys = tokens;
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)tokens, sizeof(*r->keys), "routing",
                            &r->keys));
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)r->micro_batch_size,
                            sizeof(*r->crc), "routing", &r->crc));
    size_t choices = (size_t)(tokens * c->facts.router_topk);
    LOONG_TRY(loongi_calloc(r->ctx, choices, sizeof(*r->cells), "routing",
                            &r->cells));
    return loongi_calloc(r->ctx, choices, sizeof(*r->indices), "routing",
                         &r->indices);
}

loong_status_t loongi_router_replay_open(const loong_plan_t *plan,
                                         loong_loader_t *loader, int64_t step,
                                         int64_t consumed,
                                         loong_router_replay_t **replay_p)
{
    const loong_component_t *c = plan->component;
    loong_routing_t routing = c->params.request.routing;
    loong_router_replay_t *r = NULL;
    bool replayed = routing == LOONG_ROUTING_REPLAY && plan->absent;
    if (routing == LOONG_ROUTING_LIVE || plan->evaluate_only || replayed) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_alloc(plan->ctx, sizeof(*r), "router replay", &r));
    *replay_p = r;
    r->ctx = plan->ctx;
    r->loader = loader;
    r->record = routing == LOONG_ROUTING_RECORD;
    r->path =
        loong_recipe_text(plan->recipe, r->record ? RECORD_KEY : REPLAY_KEY);
    r->fd = -1;
    array_t array = {last_sample(r, step, consumed,
                                 plan->set->train_iters),
                     c->facts.num_layers, plan->set->seq_length,
                     c->facts.router_topk, HEADER};
    r->array = array;
    LOONG_TRY(create(plan, r));
    if (!r->record) {
        return begin_replay(r);
    }
    if (loong_comm_rank(plan->comm) == 0) {
        LOONG_TRY(begin_record(r, consumed, plan->set->load != NULL));
    }
    LOONG_TRY(loong_comm_barrier(plan->comm, "record of routing"));
    if (plan->absent) { /* nothing is routed on this rank */
        loongi_router_replay_close(replay_p);
        return LOONG_OK;
    }
    return r->fd < 0 ? open_file(r, O_RDWR) : LOONG_OK;
}

void loongi_router_replay_close(loong_router_replay_t **replay_p)
{
    loong_router_replay_t *r = *replay_p;
    if (r == NULL) {
        return;
    }
    if (r->fd >= 0) {
        close(r->fd);
    }
    loongi_free(r->ctx, r->routed);
    loongi_free(r->ctx, r->keys);
    loongi_free(r->ctx, r->crc);
    loongi_free(r->ctx, r->cells);
    loongi_free(r->ctx, r->indices);
    loongi_free(r->ctx, r);
    *replay_p = NULL;
}

/* ---- a micro-batch ------------------------------------------------------- */

/* Which tokens the rows of the stream are. */
static loong_status_t load_keys(const loong_router_replay_t *r,
                                int64_t consumed, int64_t k)
{
    const loong_field_t fields[] = {
        {"token_key", LOONG_I64, r->num_keys, r->keys, NULL},
        {"row_crc", LOONG_I32, r->micro_batch_size, r->crc, NULL}};
    return loong_loader_fill(r->loader, consumed, k, LOONG_COUNT_OF(fields),
                             fields);
}

/* Rows of the stream that follow one another in a sample. */
typedef struct run {
    int64_t row, count;
    int64_t sample, token;
} run_t;

/* The next run behind `run`, all 0 at first; false when there is none. */
static bool next_run(const loong_router_replay_t *r, run_t *run)
{
    const int64_t *key = r->keys + r->first;
    int64_t row = run->row + run->count;
    int64_t end = row + 1;
    if (row >= r->rows) {
        return false;
    }
    while (end < r->rows && key[end] == key[end - 1] + 1 &&
           key[end] % r->array.tokens != 0) {
        end++;
    }
    run->row = row;
    run->count = end - row;
    run->sample = key[row] / r->array.tokens;
    run->token = key[row] % r->array.tokens;
    return true;
}

static off_t place_of(const loong_router_replay_t *r, const run_t *run,
                      int layer)
{
    const array_t *a = &r->array;
    return (off_t)(a->begin + run->sample * sample_bytes(a) + CRC +
                   (layer * a->tokens + run->token) * a->topk * CELL);
}

/* Sample of row j of the micro-batch, and where its record begins. */
static int64_t sample_of(const loong_router_replay_t *r, int64_t j,
                         off_t *place_p)
{
    int64_t own = r->num_keys / r->micro_batch_size;
    int64_t sample = r->keys[j * own] / r->array.tokens;
    *place_p = (off_t)(r->array.begin + sample * sample_bytes(&r->array));
    return sample;
}

/* The samples are those that were recorded; a crc of 0 does not tell. */
static loong_status_t check_samples(const loong_router_replay_t *r)
{
    for (int64_t j = 0; j < r->micro_batch_size; j++) {
        uint32_t crc = 0;
        off_t place = 0;
        int64_t sample = sample_of(r, j, &place);
        LOONG_TRY(loongi_file_pread(r->ctx, r->fd, r->path, &crc, CRC, place));
        LOONG_CHECK(r->ctx, crc == 0 || crc == r->crc[j], LOONG_ERR_MISMATCH,
                    REPLAY_KEY ": sample %lld is other data than was recorded: "
                    "CRC-32 of its ids %08x, recorded %08x",
                    (long long)sample, r->crc[j], crc);
    }
    return LOONG_OK;
}

static loong_status_t write_samples(const loong_router_replay_t *r)
{
    for (int64_t j = 0; j < r->micro_batch_size; j++) {
        off_t place = 0;
        sample_of(r, j, &place);
        LOONG_TRY(loongi_file_pwrite(r->ctx, r->fd, r->path, &r->crc[j], CRC,
                                     place));
    }
    return LOONG_OK;
}

/* The experts of one token: numbers of experts, none twice. */
static loong_status_t check_token(const loong_router_replay_t *r,
                                  const run_t *run, int64_t i, int layer)
{
    int64_t k = r->array.topk;
    const uint16_t *cell = r->cells + i * k;
    for (int64_t j = 0; j < k; j++) {
        bool good = cell[j] >= 1 && cell[j] <= r->experts;
        for (int64_t b = 0; b < j; b++) {
            good = good && cell[b] != cell[j];
        }
        LOONG_CHECK(r->ctx, good, LOONG_ERR_MISMATCH,
                    REPLAY_KEY ": sample %lld, layer %d, token %lld: %s%d, "
                    "other numbers 1 to %d are wanted",
                    (long long)run->sample, layer, (long long)(run->token + i),
                    cell[j] == 0 ? "nothing recorded, " : "expert ", cell[j],
                    r->experts);
    }
    return LOONG_OK;
}

static size_t layer_bytes(const loong_router_replay_t *r)
{
    return (size_t)(r->rows * r->array.topk) * sizeof(*r->indices);
}

/* Reads a layer's choices into `indices` [rows, k]. */
static loong_status_t read_layer(const loong_router_replay_t *r, int layer)
{
    run_t run = {0, 0, 0, 0};
    int64_t k = r->array.topk;
    while (next_run(r, &run)) {
        LOONG_TRY(loongi_file_pread(r->ctx, r->fd, r->path, r->cells,
                                    (size_t)(run.count * k * CELL),
                                    place_of(r, &run, layer)));
        for (int64_t i = 0; i < run.count; i++) {
            LOONG_TRY(check_token(r, &run, i, layer));
        }
        for (int64_t i = 0; i < run.count * k; i++) {
            r->indices[run.row * k + i] = r->cells[i] - 1;
        }
    }
    return LOONG_OK;
}

static loong_status_t write_layer(const loong_router_replay_t *r, int layer)
{
    run_t run = {0, 0, 0, 0};
    int64_t k = r->array.topk;
    while (next_run(r, &run)) {
        for (int64_t i = 0; i < run.count * k; i++) {
            r->cells[i] = (uint16_t)(r->indices[run.row * k + i] + 1);
        }
        LOONG_TRY(loongi_file_pwrite(r->ctx, r->fd, r->path, r->cells,
                                     (size_t)(run.count * k * CELL),
                                     place_of(r, &run, layer)));
    }
    return LOONG_OK;
}

/* All layers of a stage, to where its router takes them; NULL: of all stages,
 * to nowhere. */
static loong_status_t read_layers(const loong_router_replay_t *r,
                                  const loong_stage_t *stage,
                                  const loong_binding_t *run)
{
    for (int i = 0; i < r->num_routed; i++) {
        const routed_t *at = &r->routed[i];
        if (stage != NULL && at->stage != stage) {
            continue;
        }
        LOONG_TRY(read_layer(r, at->layer));
        if (run != NULL) {
            LOONG_TRY(loongi_binding_write(run, at->port->operand, r->indices,
                                           layer_bytes(r)));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_router_replay_check(const loong_router_replay_t *r,
                                          int64_t consumed)
{
    if (r == NULL || r->record || r->num_routed == 0) {
        return LOONG_OK;
    }
    int64_t count = loong_loader_micro_batches(r->loader, consumed);
    for (int64_t k = 0; k < count; k++) {
        LOONG_TRY(load_keys(r, consumed, k));
        LOONG_TRY(check_samples(r));
        LOONG_TRY(read_layers(r, NULL, NULL));
    }
    return LOONG_OK;
}

loong_status_t loongi_router_replay_give(const loong_router_replay_t *r,
                                         const loong_stage_t *stage,
                                         const loong_binding_t *run,
                                         int64_t consumed, int64_t k)
{
    if (r == NULL || r->record || r->num_routed == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(load_keys(r, consumed, k));
    return read_layers(r, stage, run);
}

loong_status_t loongi_router_replay_take(const loong_router_replay_t *r,
                                         const loong_stage_t *stage,
                                         const loong_binding_t *run,
                                         int64_t consumed, int64_t k)
{
    if (r == NULL || !r->record || r->num_routed == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(load_keys(r, consumed, k));
    if (r->is_recorder) {
        LOONG_TRY(write_samples(r));
    }
    for (int i = 0; i < r->num_routed; i++) {
        const routed_t *at = &r->routed[i];
        if (at->stage == stage) {
            LOONG_TRY(loongi_binding_read(run, at->port->operand, r->indices,
                                          layer_bytes(r), "recorded routing"));
            LOONG_TRY(write_layer(r, at->layer));
        }
    }
    return LOONG_OK;
}
