/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes event files of TensorBoard. Called by src/report. Read metrics.h
 * before, which says what is written. */
#include "tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "crc.h"
#include "file.h"

enum { TAG_LIMIT = 200, RECORD_LIMIT = 512, NAME_TRIES = 1000 };

struct loong_tensorboard {
    loong_context_t *ctx;
    char *path;
    int fd;
};

/* ---- protocol buffers ---------------------------------------------------- */

typedef struct message {
    size_t length;
    unsigned char bytes[RECORD_LIMIT];
} message_t;

/* Field type of a key: (number << 3) | type. */
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static void put_little(message_t *m, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        m->bytes[m->length++] = (unsigned char)(value >> (8 * i));
    }
}

static void put_varint(message_t *m, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        m->bytes[m->length++] = (unsigned char)(value | 0x80);
    }
    m->bytes[m->length++] = (unsigned char)value;
}

static void put_key(message_t *m, int field, int wire)
{
    put_varint(m, (uint64_t)(field << 3 | wire));
}

static void put_bytes(message_t *m, int field, const void *bytes, size_t n)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, n);
    memcpy(m->bytes + m->length, bytes, n);
    m->length += n;
}

/* Event: wall_time = 1, step = 2, then what happened. */
static void begin_event(message_t *m, double unix_time, int64_t step)
{
    uint64_t bits;
    memcpy(&bits, &unix_time, sizeof(bits));
    m->length = 0;
    put_key(m, 1, WIRE_FIXED64);
    put_little(m, bits, 8);
    if (step != 0) {
        put_key(m, 2, WIRE_VARINT);
        put_varint(m, (uint64_t)step);
    }
}

/* ---- records ------------------------------------------------------------- */

static uint32_t masked_crc(const void *bytes, size_t length)
{
    uint32_t crc = loongi_crc(LOONG_CRC32C, bytes, length);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static loong_status_t write_record(loong_tensorboard_t *board,
                                   const message_t *event)
{
    message_t record;
    record.length = 0;
    put_little(&record, event->length, 8);
    put_little(&record, masked_crc(record.bytes, 8), 4);
    memcpy(record.bytes + record.length, event->bytes, event->length);
    record.length += event->length;
    put_little(&record, masked_crc(event->bytes, event->length), 4);
    ssize_t n;
    do {
        n = write(board->fd, record.bytes, record.length);
    } while (n < 0 && errno == EINTR);
    LOONG_CHECK(board->ctx, n == (ssize_t)record.length, LOONG_ERR_IO,
                "%s: cannot append an event: %s", board->path,
                n < 0 ? strerror(errno) : "written in part");
    return LOONG_OK;
}

/* ---- the file ------------------------------------------------------------ */

/* A name that is not taken: the clock may give the same second twice. */
static loong_status_t open_file(loong_tensorboard_t *board,
                                const char *directory, time_t now)
{
    char host[256] = "localhost";
    loong_context_t *ctx = board->ctx;
    if (gethostname(host, sizeof(host)) != 0) {
        snprintf(host, sizeof(host), "localhost");
    }
    host[sizeof(host) - 1] = '\0';
    for (int n = 0; n < NAME_TRIES; n++) {
        loong_text_t path = loongi_text_begin(ctx);
        loongi_text_printf(&path, "%s/events.out.tfevents.%010lld.%s.%ld.%d",
                           directory, (long long)now, host, (long)getpid(), n);
        loong_status_t status =
            path.status != LOONG_OK
                ? path.status
                : loongi_strdup(ctx, loongi_text_get(&path), &board->path);
        loongi_text_free(&path);
        LOONG_TRY(status);
        board->fd = open(board->path,
                         O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC,
                         0666);
        if (board->fd >= 0) {
            return LOONG_OK;
        }
        int error = errno;
        if (error != EEXIST) {
            return LOONG_FAIL(ctx, LOONG_ERR_IO, "%s: cannot create: %s",
                              board->path, strerror(error));
        }
        loongi_free(ctx, board->path);
        board->path = NULL;
    }
    return LOONG_FAIL(ctx, LOONG_ERR_IO, "%s: %d event files of this second",
                      directory, NAME_TRIES);
}

static loong_status_t write_head(loong_tensorboard_t *board, double now,
                                 int64_t first_step)
{
    static const char version[] = "brain.Event:2";
    message_t event;
    begin_event(&event, now, 0);
    put_bytes(&event, 3, version, sizeof(version) - 1);
    LOONG_TRY(write_record(board, &event));
    if (first_step <= 0) {
        return LOONG_OK;
    }
    static const unsigned char start[] = {1 << 3 | WIRE_VARINT, 1};
    begin_event(&event, now, first_step);
    put_bytes(&event, 7, start, sizeof(start)); /* session_log: START */
    return write_record(board, &event);
}

loong_status_t loongi_tensorboard_create(loong_context_t *ctx,
                                         const char *directory,
                                         int64_t first_step,
                                         loong_tensorboard_t **board_p)
{
    loong_tensorboard_t *board = NULL;
    loong_status_t status = LOONG_OK;
    time_t now = time(NULL);
    LOONG_TRY(loongi_dir_make(ctx, directory));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*board), "event file", &board));
    board->ctx = ctx;
    board->fd = -1;
    LOONG_TRY_GOTO(open_file(board, directory, now), status, err_open);
    LOONG_TRY_GOTO(write_head(board, (double)now, first_step), status,
                   err_open);
    *board_p = board;
    return LOONG_OK;
err_open:
    loongi_tensorboard_destroy(&board);
    return status;
}

void loongi_tensorboard_destroy(loong_tensorboard_t **board)
{
    if (*board == NULL) {
        return;
    }
    loong_context_t *ctx = (*board)->ctx;
    if ((*board)->fd >= 0) {
        close((*board)->fd);
    }
    loongi_free(ctx, (*board)->path);
    loongi_free(ctx, *board);
    *board = NULL;
}

/* Event.summary = 5, Summary.value = 1, Value.tag = 1, .simple_value = 2 */
loong_status_t loongi_tensorboard_scalar(loong_tensorboard_t *board,
                                         int64_t step, double unix_time,
                                         const char *tag, double value)
{
    size_t n = strlen(tag);
    LOONG_CHECK(board->ctx, n > 0 && n <= TAG_LIMIT, LOONG_ERR_ARG,
                "a tag of %zu bytes, 1 to %d allowed", n, TAG_LIMIT);
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    message_t scalar;
    message_t summary;
    message_t event;
    scalar.length = 0;
    put_bytes(&scalar, 1, tag, n);
    put_key(&scalar, 2, WIRE_FIXED32);
    put_little(&scalar, bits, 4);
    summary.length = 0;
    put_bytes(&summary, 1, scalar.bytes, scalar.length);
    begin_event(&event, unix_time, step);
    put_bytes(&event, 5, summary.bytes, summary.length);
    return write_record(board, &event);
}

loong_status_t loongi_tensorboard_metrics(loong_tensorboard_t *board,
                                          const loong_metrics_t *m)
{
    LOONG_TRY(loongi_tensorboard_scalar(board, m->step, m->unix_time,
                                        "train/loss", m->loss));
    LOONG_TRY(loongi_tensorboard_scalar(board, m->step, m->unix_time,
                                        "train/grad_norm", m->grad_norm));
    const struct {
        const char *tag;
        double value;
    } known[] = {
        {"train/lr", m->lr},
        {"train/router_z_loss", m->router_z_loss},
        {"train/expert_load", m->expert_load},
        {"train/dropped_tokens", m->dropped_tokens},
        {"train/overflow_rounds", m->overflow_rounds},
        {"train/tokens", (double)m->tokens},
        {"perf/tokens_per_s", m->tokens_per_second},
        {"perf/ms_per_step", m->ms_per_step},
        {"perf/data_share", m->data_share},
        {"perf/comm_share", m->comm_share},
        {"perf/host_share", m->host_share},
        {"perf/links_ms", m->links_ms},
        {"perf/links_hidden", m->links_hidden},
        {"perf/gflops", m->gflops},
        {"perf/gemm_share", m->gemm_share},
        {"memory/used_bytes", m->memory_bytes},
    };
    for (int i = 0; i < m->num_losses; i++) {
        char tag[64];
        snprintf(tag, sizeof(tag), "train/%s_loss", m->losses[i].name);
        LOONG_TRY(loongi_tensorboard_scalar(board, m->step, m->unix_time, tag,
                                            m->losses[i].value));
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(known); i++) {
        if (!isnan(known[i].value)) {
            LOONG_TRY(loongi_tensorboard_scalar(board, m->step, m->unix_time,
                                                known[i].tag,
                                                known[i].value));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_tensorboard_eval(loong_tensorboard_t *board,
                                       const loong_metrics_eval_t *e)
{
    char tag[2 * TAG_LIMIT]; /* too long a name is refused below */
    snprintf(tag, sizeof(tag), "eval/loss/%s", e->name);
    LOONG_TRY(loongi_tensorboard_scalar(board, e->step, e->unix_time, tag,
                                        e->loss));
    if (e->unit != NULL) {
        return LOONG_OK;
    }
    snprintf(tag, sizeof(tag), "eval/perplexity/%s", e->name);
    return loongi_tensorboard_scalar(board, e->step, e->unix_time, tag,
                                     exp(e->loss));
}

loong_status_t loongi_tensorboard_layer(loong_tensorboard_t *board,
                                        const loong_metrics_layer_t *l)
{
    const struct {
        const char *name;
        double value;
    } known[] = {
        {"expert_load", l->expert_load},
        {"dropped_tokens", l->dropped_tokens},
        {"overflow_rounds", l->overflow_rounds},
        {"router_z_loss", l->router_z_loss},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(known); i++) {
        char tag[TAG_LIMIT];
        snprintf(tag, sizeof(tag), "%s/layer_%d", known[i].name, l->layer);
        if (!isnan(known[i].value)) {
            LOONG_TRY(loongi_tensorboard_scalar(board, l->step, l->unix_time,
                                                tag, known[i].value));
        }
    }
    return LOONG_OK;
}
