/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer outside the library, with an op and a model of its own: squared
 * ReLU (So et al. 2021), y = max(x, 0)^2, and a decoder whose feed-forward uses
 * it. Both are registered like built-in ones; the rest (data, optimizer,
 * checkpoints, ranks) is the library's.
 *
 *   cc custom_trainer.c $(pkg-config --cflags --libs loong) \
 *       -Wl,-rpath,$(pkg-config --variable=libdir loong) -lm \
 *       -o custom_trainer
 *   ./custom_trainer TEXT DIR        learns the bytes of a text; files in DIR
 *   mpirun -n 2 ./custom_trainer TEXT DIR
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <loong/comm.h>
#include <loong/dataset.h>
#include <loong/family.h>
#include <loong/nn.h>
#include <loong/op.h>
#include <loong/register.h>
#include <loong/trainer.h>

#define TRY(expr_)                                                            \
    do {                                                                      \
        loong_status_t try_status_ = (expr_);                                 \
        if (try_status_ != LOONG_OK) {                                        \
            return try_status_;                                               \
        }                                                                     \
    } while (0)

/* ---- the op: shape rule and gradient rule -------------------------------- */

static loong_status_t same(const loong_op_call_t *call)
{
    call->out[0] = call->in[call->num_in - 1];
    return LOONG_OK;
}

static const loong_op_t relu2_grad = {
    .name = "relu2_grad", .min_in = 2, .max_in = 2, .num_out = 1,
    .infer = same};

static loong_status_t grad(const loong_grad_call_t *call)
{
    loong_val_t in[2] = {call->out_grad[0], call->in[0]};
    loong_graph_apply(call->graph, &relu2_grad, NULL, 2, in, 1,
                      &call->in_grad[0]);
    return LOONG_OK;
}

static const loong_op_t relu2 = {.name = "relu2", .min_in = 1, .max_in = 1,
                                 .num_out = 1, .infer = same, .grad = grad};

/* ---- the kernels: raw pointers and sizes --------------------------------- */

static bool only_f32(const loong_kernel_query_t *query,
                     char reason[LOONG_REASON_SIZE])
{
    snprintf(reason, LOONG_REASON_SIZE, "fp32 only");
    return query->arg[0].dtype == LOONG_F32;
}

static int64_t elements(const loong_kernel_call_t *call)
{
    const loong_karg_t *x = &call->query->arg[0];
    return loong_karg_rows(x) * loong_karg_cols(x);
}

static loong_status_t run_forward(const loong_kernel_call_t *call)
{
    const float *x = call->ptr[0];
    float *y = call->ptr[1];
    for (int64_t i = 0; i < elements(call); i++) {
        float v = x[i] > 0.0f ? x[i] : 0.0f;
        y[i] = v * v;
    }
    return LOONG_OK;
}

static loong_status_t run_backward(const loong_kernel_call_t *call)
{
    const float *dy = call->ptr[0];
    const float *x = call->ptr[1];
    float *dx = call->ptr[2];
    for (int64_t i = 0; i < elements(call); i++) {
        dx[i] = x[i] > 0.0f ? 2.0f * x[i] * dy[i] : 0.0f;
    }
    return LOONG_OK;
}

static const loong_kernel_t kernels[] = {
    {.name = "relu2_plain", .op = "relu2", .device = "cpu",
     .support = only_f32, .run = run_forward},
    {.name = "relu2_grad_plain", .op = "relu2_grad", .device = "cpu",
     .support = only_f32, .run = run_backward},
};

/* ---- the model ----------------------------------------------------------- */

typedef struct config {
    int layers;
    int heads;
    int64_t hidden;
    int64_t vocab;
    double branch_std; /* a key of this family's own */
} config_t;

#define M "model.foundation."
static const loong_recipe_key_t own_keys[] = {
    {M "branch_std", LOONG_RECIPE_REAL, "0.01", 0, 1, NULL,
     LOONG_RESUME_SAME, "how projections start that end a branch"},
};

static loong_status_t configure(loong_context_t *ctx,
                                const loong_recipe_t *recipe,
                                const char *component, void *config)
{
    config_t *c = config;
    (void)ctx;
    (void)component; /* there is one: model.foundation */
    c->layers = (int)loong_recipe_int(recipe, M "num_layers");
    c->heads = (int)loong_recipe_int(recipe, M "num_attention_heads");
    c->hidden = loong_recipe_int(recipe, M "hidden_size");
    c->vocab = loong_recipe_int(recipe, M "vocab_size");
    c->branch_std = loong_recipe_real(recipe, M "branch_std");
    return LOONG_OK;
}

static void facts(const void *config, loong_model_facts_t *out)
{
    const config_t *c = config;
    double h = (double)c->hidden;
    out->vocab_size = c->vocab;
    out->kv_heads = c->heads;
    out->flops_per_row =
        6.0 * (c->layers * 12.0 * h * h + h * (double)c->vocab);
}

/* Its feed-forward: a share of the channels on every tensor parallel rank. */
static loong_val_t feed_forward(loong_nn_t *nn, loong_val_t x, int64_t hidden)
{
    loong_nn_slice_t share = loong_nn_slice(nn, 4 * hidden);
    const loong_nn_column_t up = {.name = "up_proj", .out = share};
    loong_val_t y;
    loong_graph_push(nn->graph, "mlp");
    x = loong_nn_enter(nn, x);
    x = loong_nn_column_linear(nn, 1, &up, x, false);
    loong_graph_apply(nn->graph, &relu2, NULL, 1, &x, 1, &y);
    y = loong_nn_row_linear(nn, "down_proj", y, share, hidden, false);
    y = loong_nn_leave(nn, y);
    loong_graph_pop(nn->graph);
    return y;
}

static loong_val_t layer(loong_nn_t *nn, const config_t *c, loong_val_t x,
                         const loong_nn_sequence_t *sequence,
                         int64_t max_seqlen, int index)
{
    loong_graph_t *g = nn->graph;
    loong_nn_attention_t attention = {
        .heads = c->heads, .kv_heads = c->heads,
        .head_dim = (int)(c->hidden / c->heads), .hidden = c->hidden,
        .max_seqlen = max_seqlen,
        .scale = 1.0 / sqrt((double)c->hidden / c->heads)};
    loong_graph_push(g, "layers");
    loong_graph_push(g, "%d", index);
    loong_val_t h = loong_nn_norm(nn, "input_norm", LOONG_NORM_RMS, x,
                                  c->hidden, 1e-5);
    x = loong_add(g, loong_nn_attention(nn, h, &attention, sequence), x);
    h = loong_nn_norm(nn, "middle_norm", LOONG_NORM_RMS, x, c->hidden, 1e-5);
    x = loong_add(g, feed_forward(nn, h, c->hidden), x);
    loong_graph_pop(g);
    loong_graph_pop(g);
    return x;
}

static loong_status_t build(loong_graph_t *g, const void *config,
                            const loong_model_request_t *request)
{
    const config_t *c = config;
    loong_nn_t nn = loong_nn_begin(g, request, 0.02);
    loong_shape_t tokens = loong_shape_1d(request->rows);
    loong_rope_table_attr_t rope = {.rotary_dim = (int)(c->hidden / c->heads),
                                    .base = 10000.0, .factor = 1.0};
    loong_nn_slice_t rows = loong_nn_vocabulary(&nn, c->vocab, c->vocab);
    nn.output_init_std = c->branch_std;

    loong_val_t ids = loong_graph_input(g, "tokens", LOONG_I32, tokens);
    loong_val_t at = loong_graph_input(g, "positions", LOONG_I32, tokens);
    loong_nn_sequence_t sequence = {
        .rope_table = loong_rope_table(g, at, &rope),
        .cu_seqlens =
            loong_graph_input(g, "cu_seqlens", LOONG_I32,
                              loong_shape_1d(request->max_segments + 1)),
        .token_key = LOONG_NONE,
        .key_ends = LOONG_NONE};
    loong_val_t table =
        loong_nn_table(&nn, "bytes.weight", rows, c->hidden, 0.02);
    loong_val_t x = loong_nn_embedding(&nn, ids, table, rows);
    for (int i = 0; i < c->layers; i++) {
        x = layer(&nn, c, x, &sequence, request->max_seqlen, i);
    }
    x = loong_nn_norm(&nn, "norm", LOONG_NORM_RMS, x, c->hidden, 1e-5);
    loong_nn_language_head(&nn, x, table, rows, request); /* tied */
    return loong_graph_status(g);
}

static loong_status_t any_mesh(loong_context_t *ctx, const void *config,
                               const loong_model_request_t *request,
                               const loong_mesh_t *mesh)
{
    (void)ctx, (void)config, (void)request, (void)mesh;
    return LOONG_OK; /* all of it is made of layers that know how */
}

static const loong_family_t relu2_lm = {
    .name = "relu2_lm", .config_size = sizeof(config_t),
    .configure = configure, .facts = facts, .check_mesh = any_mesh,
    .build = build};

static loong_status_t register_all(loong_context_t *ctx)
{
    const loong_op_t *const ops[] = {&relu2, &relu2_grad};
    TRY(loong_register_builtin(ctx));
    for (int i = 0; i < 2; i++) {
        TRY(loong_register_op(ctx, ops[i]));
        TRY(loong_register_kernel(ctx, &kernels[i]));
    }
    return loong_register_family(ctx, &relu2_lm);
}

/* ---- the run ------------------------------------------------------------- */

/* DIR/data.bin and .idx: each line of the text a document of bytes. */
static loong_status_t write_data(loong_context_t *ctx, const char *text,
                                 const char *prefix)
{
    loong_dataset_writer_params_t params = {prefix, LOONG_U16, false};
    loong_dataset_writer_t *writer = NULL;
    FILE *f = fopen(text, "rb");
    int32_t ids[4096];
    int64_t n = 0;
    if (f == NULL) {
        fprintf(stderr, "cannot read %s\n", text);
        return LOONG_ERR_NOT_FOUND;
    }
    TRY(loong_dataset_writer_create(ctx, &params, &writer));
    for (int c = getc(f); c != EOF; c = getc(f)) {
        ids[n++] = c;
        if (c == '\n' || n == 4096) {
            TRY(loong_dataset_writer_add(writer, ids, NULL, n));
            TRY(loong_dataset_writer_end_document(writer));
            n = 0;
        }
    }
    fclose(f);
    TRY(loong_dataset_writer_commit(writer));
    loong_dataset_writer_destroy(&writer);
    return LOONG_OK;
}

static loong_status_t train(loong_context_t *ctx, loong_comm_t *comm,
                            const char *prefix)
{
    char text[2048];
    loong_recipe_params_t keys = {.num_keys = 1, .keys = own_keys};
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *trainer = NULL;
    snprintf(text, sizeof(text),
             "model: {foundation: {family: relu2_lm, num_layers: 2, "
             "hidden_size: 64, num_attention_heads: 4, vocab_size: 256, "
             "max_position_embeddings: 64, branch_std: 0.02}}\n"
             "precision: {params_dtype: fp32}\n"
             "data: {seq_length: 64, train: [{path: %s}]}\n"
             "train: {micro_batch_size: 4, global_batch_size: 8, "
             "train_iters: 150}\n"
             "optimizer: {lr: 3e-3, lr_warmup_iters: 10}\n"
             "log: {interval: 20}\n",
             prefix);
    TRY(loong_recipe_parse(ctx, "built-in recipe", text, &keys, &recipe));
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe};
    TRY(loong_trainer_create(ctx, &params, &trainer));
    TRY(loong_trainer_run(trainer));
    if (loong_comm_rank(comm) == 0) {
        printf("learned the text to a loss of %.2f\n",
               loong_trainer_get_state(trainer).loss);
    }
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    return LOONG_OK;
}

static void print_line(void *user, loong_log_level_t level, const char *line)
{
    const int *rank = user; /* the first one speaks for all */
    if (*rank == 0 || level != LOONG_LOG_INFO) {
        fprintf(stderr, "%s\n", line);
    }
}

static loong_status_t run(loong_context_t *ctx, const char *text,
                          const char *dir, int *rank)
{
    char prefix[1024];
    loong_comm_t *comm = NULL;
    snprintf(prefix, sizeof(prefix), "%s/data", dir);
    TRY(register_all(ctx));
    TRY(loong_comm_create_world(ctx, NULL, &comm));
    *rank = loong_comm_rank(comm);
    if (*rank == 0) {
        if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
            fprintf(stderr, "cannot make %s: %s\n", dir, strerror(errno));
            return LOONG_ERR_IO;
        }
        TRY(write_data(ctx, text, prefix));
    }
    TRY(loong_comm_barrier(comm, "data"));
    TRY(train(ctx, comm, prefix));
    loong_comm_destroy(&comm);
    return LOONG_OK;
}

int main(int argc, char **argv)
{
    int rank = 0;
    loong_context_params_t params = {print_line, &rank, LOONG_LOG_INFO};
    loong_context_t *ctx = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: %s TEXT DIR\n", argv[0]);
        return 2;
    }
    if (loong_context_create(&params, &ctx) != LOONG_OK) {
        return 1;
    }
    loong_status_t status = run(ctx, argv[1], argv[2], &rank);
    if (status != LOONG_OK) {
        fprintf(stderr, "%s\n", loong_context_error(ctx));
        exit(1); /* what is still open ends with the process */
    }
    loong_context_destroy(&ctx);
    return 0;
}
