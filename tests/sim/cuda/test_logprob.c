/* SPDX-License-Identifier: Apache-2.0
 *
 * token_logprob and its gradient on simulated devices that share a vocabulary:
 * what the formula makes of the whole of it. */
#include "cudasim.h"
#include "loong/device.h"
#include "loong/ops.h"
#include "loong/register.h"
#include "rng.h"
#include "test.h"

enum { RANKS = 2, TOKENS = 13, HIDDEN = 8, VOCAB = 11, PART = 6, ARGS = 8 };

/* By number of the operand of token_logprob_grad. */
enum { X, W, LABELS, LOGP, LSE, DLOGP, DX, DW };

typedef struct place {
    loong_context_t *ctx;
    loong_device_t *device;
    loong_comm_t *comm;
    void *there[ARGS];
    loong_cross_entropy_attr_t attr;
    /* Of the whole vocabulary, with a row of padding. */
    double x[TOKENS][HIDDEN], w[RANKS * PART][HIDDEN], dlogp[TOKENS];
    int32_t labels[TOKENS];
} place_t;

static loong_karg_t arg_of(int i)
{
    bool vector = i >= LABELS && i <= DLOGP;
    int64_t rows = i == W || i == DW ? PART : TOKENS;
    loong_karg_t matrix = {LOONG_F32, 2, {rows, HIDDEN, 0, 0}, HIDDEN};
    loong_karg_t tokens = {
        i == LABELS ? LOONG_I32 : LOONG_F32, 1, {TOKENS, 0, 0, 0}, TOKENS};
    return vector ? tokens : matrix;
}

static size_t bytes_of(int i)
{
    loong_karg_t a = arg_of(i);
    return sizeof(float) * (size_t)(loong_karg_rows(&a) * loong_karg_cols(&a));
}

static loong_status_t launch(place_t *p, const char *op, int num_in,
                             int num_out)
{
    const loong_kernel_t *k = loong_find_kernel(p->ctx, op, "cuda", 0);
    loong_comm_t *group[LOONG_GROUP_COUNT] = {[LOONG_GROUP_TP] = p->comm};
    loong_kernel_query_t q = {.op = op,
                              .attr = &p->attr,
                              .num_in = num_in,
                              .num_out = num_out,
                              .threads = 1};
    loong_kernel_call_t call = {.ctx = p->ctx,
                                .query = &q,
                                .ptr = p->there,
                                .group = group,
                                .device = p->device};
    loong_frame_t frame = {0};
    char reason[LOONG_REASON_SIZE] = "";
    void *device_frame = NULL;
    for (int i = 0; i < num_in + num_out; i++) {
        q.arg[i] = arg_of(i);
    }
    assert_true(k->support(&q, reason));
    size_t room = k->workspace(&q);
    call.stream = loong_device_stream(p->device);
    call.error = loong_device_get_error(p->device);
    LOONG_TRY(loong_device_alloc(p->device, room, "room", &call.workspace));
    LOONG_TRY(
        loong_device_alloc(p->device, sizeof(frame), "frame", &device_frame));
    LOONG_TRY(
        loong_device_copy(p->device, device_frame, &frame, sizeof(frame)));
    call.device_frame = device_frame;
    LOONG_TRY(k->prepare(p->ctx, &q, &call.state));
    call.load = true;
    LOONG_TRY(k->run(&call));
    call.load = false;
    LOONG_TRY(k->run(&call));
    LOONG_TRY(loong_device_synchronize(p->device, op));
    k->destroy(p->ctx, call.state);
    loong_device_free(p->device, call.workspace, room);
    loong_device_free(p->device, device_frame, sizeof(frame));
    return LOONG_OK;
}

static loong_status_t write(place_t *p, int i, const double *values)
{
    float narrow[TOKENS * HIDDEN];
    for (size_t k = 0; values != NULL && k < bytes_of(i) / 4; k++) {
        narrow[k] = (float)values[k];
    }
    LOONG_TRY(
        loong_device_alloc(p->device, bytes_of(i), "operand", &p->there[i]));
    return loong_device_copy(p->device, p->there[i],
                             i == LABELS ? (void *)p->labels : narrow,
                             values != NULL || i == LABELS ? bytes_of(i) : 0);
}

static loong_status_t compare(place_t *p, int i, const double *wanted)
{
    float got[TOKENS * HIDDEN];
    LOONG_TRY(
        loong_device_read(p->device, got, p->there[i], bytes_of(i), "operand"));
    for (size_t k = 0; k < bytes_of(i) / 4; k++) {
        LOONG_CHECK(p->ctx, fabs((double)got[k] - wanted[k]) <= 1e-5,
                    LOONG_ERR_INTERNAL, "operand %d: element %zu: %g, not %g",
                    i, k, (double)got[k], wanted[k]);
    }
    return LOONG_OK;
}

/* By the formula: dx is the rank's part of a sum over its rows of w. */
static loong_status_t check(place_t *p)
{
    double logp[TOKENS] = {0}, lse[TOKENS] = {0};
    double dx[TOKENS][HIDDEN] = {{0}}, dw[PART][HIDDEN] = {{0}};
    for (int t = 0; t < TOKENS; t++) {
        double a[VOCAB] = {0};
        double sum = 0.0;
        if (p->labels[t] == LOONG_IGNORE_LABEL) {
            continue;
        }
        for (int v = 0; v < VOCAB; v++) {
            for (int i = 0; i < HIDDEN; i++) {
                a[v] += p->x[t][i] * p->w[v][i];
            }
            sum += exp(a[v]);
        }
        lse[t] = log(sum);
        logp[t] = a[p->labels[t]] - lse[t];
        for (int v = 0; v < PART && p->attr.begin + v < VOCAB; v++) {
            int64_t row = p->attr.begin + v;
            double g = (row == p->labels[t]) - exp(a[row] - lse[t]);
            for (int i = 0; i < HIDDEN; i++) {
                dx[t][i] += p->dlogp[t] * g * p->w[row][i];
                dw[v][i] += p->dlogp[t] * g * p->x[t][i];
            }
        }
    }
    LOONG_TRY(compare(p, LOGP, logp));
    LOONG_TRY(compare(p, LSE, lse));
    LOONG_TRY(compare(p, DX, &dx[0][0]));
    return compare(p, DW, &dw[0][0]);
}

static void draw(double *values, int64_t count, uint64_t stream)
{
    for (int64_t k = 0; k < count; k++) {
        values[k] =
            (double)(float)loongi_rng_normal(stream, 5, (uint64_t)k) * 0.5;
    }
}

static loong_status_t run(loong_context_t *ctx, loong_comm_t *host, void *user)
{
    place_t p = {.ctx = ctx};
    int rank = loong_comm_rank(host);
    (void)user;
    draw(&p.x[0][0], TOKENS * HIDDEN, 1);
    draw(&p.w[0][0], RANKS * PART * HIDDEN, 2);
    draw(p.dlogp, TOKENS, 3);
    for (int t = 0; t < TOKENS; t++) {
        p.labels[t] = t == 4 ? LOONG_IGNORE_LABEL : t * 5 % VOCAB;
    }
    const loong_cross_entropy_attr_t attr = {.loss = -1,
                                             .vocab = VOCAB,
                                             .begin = rank * PART,
                                             .group = LOONG_GROUP_TP,
                                             .size = RANKS,
                                             .rank = rank};
    const double *values[ARGS] = {&p.x[0][0], p.w[rank * PART], NULL, NULL,
                                  NULL,       p.dlogp,          NULL, NULL};
    p.attr = attr;
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_device_create(ctx, "cuda", rank, &p.device));
    LOONG_TRY(loong_device_communicator(p.device, host, &p.comm));
    loong_comm_set_stream(p.comm, loong_device_stream(p.device));
    for (int i = 0; i < ARGS; i++) {
        LOONG_TRY(write(&p, i, values[i]));
    }
    LOONG_TRY(launch(&p, "token_logprob", 3, 2));
    LOONG_TRY(launch(&p, "token_logprob_grad", 6, 2));
    LOONG_TRY(check(&p));
    for (int i = 0; i < ARGS; i++) {
        loong_device_free(p.device, p.there[i], bytes_of(i));
    }
    loong_comm_destroy(&p.comm);
    loong_device_destroy(&p.device);
    return LOONG_OK;
}

static void test_shared(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_threads_params_t params = {
        .size = RANKS, .context = {test_log, NULL, LOONG_LOG_WARN}};
    cudasim_devices(RANKS, (size_t)16 << 20);
    assert_ok(ctx, loong_threads_run(ctx, &params, run, NULL));
    assert_string_equal(cudasim_report(), "");
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
