/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run tells about itself: the figures of an interval as a log line, as
 * a line of metrics.jsonl and as TensorBoard scalars; evaluations likewise.
 * The text goes into the caller's buffer: nothing is allocated, nothing is
 * printed. Not collective: the rank that logs calls. */
#ifndef LOONG_METRICS_H
#define LOONG_METRICS_H

#include "base.h"
#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A loss beside the first one. */
typedef struct loong_metrics_loss {
    const char *name;
    double value;
} loong_metrics_loss_t;

/* The figures of one interval. A real that is NAN is unknown and left out. */
typedef struct loong_metrics {
    int64_t step; /* steps done */
    int64_t total_steps;
    int64_t tokens;         /* consumed since the start of training */
    double unix_time;       /* seconds since 1970 */
    double loss;            /* mean over the interval's loss tokens */
    double loss_z;          /* of the last step, by loongi_window_add */
    double grad_norm;       /* before clipping */
    int num_losses;
    loong_metrics_loss_t losses[LOONG_MAX_LOSSES];
    double expert_load;     /* the largest of a layer */
    double dropped_tokens;  /* of all layers together, as the next two */
    double overflow_rounds;
    double router_z_loss;
    int64_t updates; /* applied to the optimizer's moments */
    int64_t skipped; /* steps of this run that were not applied */
    double lr;              /* of the last step */
    double tokens_per_second; /* of all ranks */
    double ms_per_step;
    double data_share; /* waiting for data, 0 to 1 of the step */
    double comm_share; /* waiting for communication, 0 to 1 of the step */
    double host_share; /* in train.host_ops, likewise */
    double links_ms; /* messages through host memory, of a rank and step */
    double links_hidden; /* of these, behind computation, 0 to 1 */
    double gflops;     /* 1e9 operations a second, of all ranks */
    double gemm_share; /* of the measured rate of matrix products, 0 to 1 */
    double memory_bytes; /* highest so far, of the fullest rank */
    double memory_limit; /* of a rank's machine or device */
    double seconds_left;
} loong_metrics_t;

/* All unknown. */
void loongi_metrics_clear(loong_metrics_t *metrics);

/* One evaluation of one named set. */
typedef struct loong_metrics_eval {
    int64_t step;
    double unix_time;
    const char *name; /* of the set */
    double loss;      /* mean of what is counted */
    int64_t count;
    double seconds;
    /* What is counted; NULL: tokens, of which perplexity, exp(loss), is told as
     * well. */
    const char *unit;
} loong_metrics_eval_t;

/* A layer with experts, over one interval. NAN: it has no such thing. */
typedef struct loong_metrics_layer {
    int64_t step;
    double unix_time;
    int layer;
    double expert_load;     /* tokens of the busiest expert over their mean */
    double dropped_tokens;  /* counted once for each expert that had no room */
    double overflow_rounds; /* beyond the first of a micro-batch */
    double router_z_loss;   /* mean of a token */
} loong_metrics_layer_t;

/* One checkpoint, this rank's part of the work. */
typedef struct loong_metrics_save {
    int64_t step;
    double unix_time;
    int64_t bytes;
    double seconds;       /* of writing, syncing and reading back */
    double cpu_seconds;   /* of a processor, for that */
    double stall_seconds; /* that training waited, from begin to end */
    double stall_share;   /* of a step; NAN: none was measured yet */
} loong_metrics_save_t;

/* Large enough for any line of this module. */
enum { LOONG_METRICS_LINE = 1024 };

/* "step 120/5000 | loss 3.2104 (-0.4z) | gnorm 0.71 | ..."; the order of the
 * fields is fixed. No newline. */
void loongi_metrics_line(const loong_metrics_t *metrics,
                         char line[LOONG_METRICS_LINE]);
void loongi_metrics_eval_line(const loong_metrics_eval_t *eval,
                              char line[LOONG_METRICS_LINE]);
void loongi_metrics_save_line(const loong_metrics_save_t *save,
                              char line[LOONG_METRICS_LINE]);

/* One JSON object, {"step": 120, "loss": ...}, without newline. What is NAN is
 * left out, except the loss and the gradient norm: these, and infinities, are
 * null, since a diverged run must be seen. */
void loongi_metrics_json(const loong_metrics_t *metrics,
                         char line[LOONG_METRICS_LINE]);
void loongi_metrics_eval_json(const loong_metrics_eval_t *eval,
                              char line[LOONG_METRICS_LINE]);
void loongi_metrics_layer_json(const loong_metrics_layer_t *layer,
                               char line[LOONG_METRICS_LINE]);
void loongi_metrics_save_json(const loong_metrics_save_t *save,
                              char line[LOONG_METRICS_LINE]);

/* The losses of the last steps, to say how unusual the newest is. */
enum { LOONG_WINDOW_SIZE = 128, LOONG_WINDOW_LEAST = 16 };
typedef struct loong_window {
    int64_t count; /* of all values ever added */
    double z;      /* what loongi_window_add returned last */
    double values[LOONG_WINDOW_SIZE];
} loong_window_t;

/* Distance of value from the mean of the window in standard deviations, then
 * takes value in. NAN until the window has LOONG_WINDOW_LEAST values, when it
 * does not vary, and for a value that is not finite (which is not taken in). */
double loongi_window_add(loong_window_t *window, double value);

/* The count and the values in hexadecimal, and back: the same bits. False, and
 * *window as it was, for another text. */
enum { LOONG_WINDOW_TEXT = 26 * (LOONG_WINDOW_SIZE + 1) };
void loongi_window_print(const loong_window_t *window,
                         char text[LOONG_WINDOW_TEXT]);
bool loongi_window_read(const char *text, loong_window_t *window);

/* "45s", "12m05s", "1h06m", "2d03h"; "-" for a negative time or NAN. */
enum { LOONG_TIME_SIZE = 24 };
const char *loongi_metrics_time(double seconds, char text[LOONG_TIME_SIZE]);

/* ---- metrics.jsonl ------------------------------------------------------- */

typedef struct loong_jsonl loong_jsonl_t;

/* Opens path for appending and creates it if need be. Lines of a former run
 * whose "step" is first_step or later are cut, because these steps run again
 * (0 cuts all); so is a last line that was not written to its end. A line that
 * is no JSON object with a step is dropped with a warning.
 * Errors: LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t loongi_jsonl_open(loong_context_t *ctx,
                                                 const char *path,
                                                 int64_t first_step,
                                                 loong_jsonl_t **jsonl_p);
/* Appends a line and its newline in one write. Errors: LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t loongi_jsonl_add(loong_jsonl_t *jsonl,
                                                const char *line);
void loongi_jsonl_destroy(loong_jsonl_t **jsonl);

/* ---- memory -------------------------------------------------------------- */

/* Memory of this process that no file backs (RssAnon + RssShmem), in bytes;
 * what a rank has read of its peers' shared memory counts too.
 * Errors: LOONG_ERR_IO, LOONG_ERR_FORMAT. */
LOONG_NODISCARD loong_status_t loongi_memory_used(loong_context_t *ctx,
                                                  size_t *bytes_p);
/* Gives the system what malloc keeps of memory that was freed. oneDNN takes and
 * frees about a megabyte a thread in each product, in the heap of the thread,
 * which it leaves in pieces: several times as much stays there. */
void loongi_memory_give_back(void);

/* What can be taken: what the kernel calls available, or what the tightest
 * limit of a control group leaves, cached files not counted. */
enum { LOONG_MEMORY_PATH = 1024 };
typedef struct loong_memory_available {
    int64_t bytes;
    char what[2 * LOONG_MEMORY_PATH]; /* "MemAvailable", or the limit's file */
    uint64_t id;                      /* equal for processes that share it */
} loong_memory_available_t;

/* root stands before the paths of the kernel's files, "" but in tests.
 * Errors: LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t
loongi_memory_available(loong_context_t *ctx, const char *root,
                        loong_memory_available_t *available);

#ifdef __cplusplus
}
#endif

#endif
