/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults on request. Called by the step and by supervise.c. Read fault.h
 * before. */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "loong/job.h"
#include "native_dir.h"
#include "schema.h"

enum { DAMAGE_BYTES = 64 };

typedef struct fault {
    loong_fault_kind_t kind;
    int rank;
    int64_t step, attempts;
    double seconds;
    const char *where; /* in the recipe */
    bool happened;
} fault_t;

struct loong_faults {
    loong_context_t *ctx;
    loong_comm_t *comm;
    int64_t count; /* of this rank */
    fault_t faults[];
};

static const char *kind_name(loong_fault_kind_t kind)
{
    static const char *const names[] = {
#define LOONG_FAULT_TEXT(name_, text_) text_,
        LOONG_FAULT_LIST(LOONG_FAULT_TEXT)
#undef LOONG_FAULT_TEXT
    };
    return names[kind];
}

/* ---- from the recipe ----------------------------------------------------- */

/* Kinds stand in the order of their list. */
static const loong_recipe_field_t keys[] = {
    CHOICE("fault[].kind", NULL,
           "kill crash stop hang exit slow wrong_collective io_error "
           "nan_gradient corrupt_checkpoint",
           FREE,
           "what is made to go wrong, to try what happens: docs/faults.md",
           FILLS(fault_t, kind)),
    INT("fault[].rank", "0", 0, 1e6, FREE, "rank that it happens on",
        FILLS(fault_t, rank)),
    AMOUNT("fault[].step", NULL, 0, BIG, FREE,
           "steps done before it; of corrupt_checkpoint: the checkpoint's",
           FILLS(fault_t, step)),
    SECONDS("fault[].seconds", "1", 0, FREE, "how late slow is",
            FILLS(fault_t, seconds)),
    INT("fault[].attempts", "1", 0, 1e6, FREE,
        "it happens in so many first attempts of loong-supervise; 0: in all",
        FILLS(fault_t, attempts)),
};

const loong_recipe_table_t loongi_fault_keys = LOONG_KEYS(keys);

/* Takes one in; `attempt` is that of the job. */
static void take(loong_faults_t *f, const loong_recipe_t *r, int64_t i,
                 int attempt)
{
    char path[64];
    snprintf(path, sizeof(path), "fault[%lld].kind", (long long)i);
    fault_t fault = {.where = loong_recipe_where(r, path)};
    LOONG_FILL_ITEM(r, "fault", i, fault_t, &fault);
    bool now = fault.attempts == 0 || attempt <= fault.attempts;
    if (loong_comm_rank(f->comm) == 0) {
        loongi_log(f->ctx, LOONG_LOG_WARN,
                   "FAULT INJECTION (%s): %s on rank %d at step %lld%s",
                   fault.where, kind_name(fault.kind), fault.rank,
                   (long long)fault.step,
                   now ? "" : ", not in this attempt any more");
    }
    if (now && fault.rank == loong_comm_rank(f->comm)) {
        f->faults[f->count++] = fault;
    }
}

loong_status_t loongi_faults_create(loong_context_t *ctx, loong_comm_t *comm,
                                    const loong_recipe_t *recipe,
                                    loong_faults_t **faults_p)
{
    int64_t count = loong_recipe_count(recipe, "fault");
    int attempt = loong_job_attempt();
    loong_faults_t *faults = NULL;
    if (count == 0) {
        return LOONG_OK;
    }
    /* Launchers do not hand every variable on to other machines. */
    LOONG_TRY(loong_comm_broadcast(comm, &attempt, sizeof(attempt), 0,
                                   "attempt"));
    LOONG_TRY(loongi_alloc(
        ctx, sizeof(*faults) + (size_t)count * sizeof(faults->faults[0]),
        "faults", &faults));
    faults->ctx = ctx;
    faults->comm = comm;
    for (int64_t i = 0; i < count; i++) {
        take(faults, recipe, i, attempt);
    }
    *faults_p = faults;
    return LOONG_OK;
}

void loongi_faults_destroy(loong_faults_t **faults_p)
{
    if (*faults_p != NULL) {
        loongi_free((*faults_p)->ctx, *faults_p);
        *faults_p = NULL;
    }
}

/* ---- happening ----------------------------------------------------------- */

bool loongi_fault_is_set(const loong_faults_t *faults, loong_fault_kind_t kind)
{
    for (int64_t i = 0; faults != NULL && i < faults->count; i++) {
        if (faults->faults[i].kind == kind) {
            return true;
        }
    }
    return false;
}

static const fault_t *due(loong_faults_t *faults, loong_fault_kind_t kind,
                          int64_t step)
{
    for (int64_t i = 0; faults != NULL && i < faults->count; i++) {
        fault_t *f = &faults->faults[i];
        if (f->kind == kind && f->step == step && !f->happened) {
            f->happened = true;
            loongi_log(faults->ctx, LOONG_LOG_WARN,
                       "FAULT INJECTION (%s): rank %d, step %lld: %s", f->where,
                       loong_comm_rank(faults->comm), (long long)step,
                       kind_name(kind));
            return f;
        }
    }
    return NULL;
}

bool loongi_fault_due(loong_faults_t *faults, loong_fault_kind_t kind,
                      int64_t step)
{
    return due(faults, kind, step) != NULL;
}

/* Slow, not still: its parent sees it run. */
static void wait_seconds(double seconds)
{
    double end = loongi_now() + seconds;
    for (double left = seconds; left > 0.0; left = end - loongi_now()) {
        struct timespec nap = {0, (long)(1e9 * LOONG_MIN(left, 0.05))};
        nanosleep(&nap, NULL);
    }
}

loong_status_t loongi_fault_begin_step(loong_faults_t *faults, int64_t step)
{
    const fault_t *slow = due(faults, LOONG_FAULT_SLOW, step);
    if (slow != NULL) {
        wait_seconds(slow->seconds);
    }
    if (loongi_fault_due(faults, LOONG_FAULT_KILL, step)) {
        kill(getpid(), SIGKILL);
    }
    if (loongi_fault_due(faults, LOONG_FAULT_CRASH, step)) {
        raise(SIGSEGV);
    }
    if (loongi_fault_due(faults, LOONG_FAULT_STOP, step)) {
        kill(getpid(), SIGSTOP);
    }
    if (loongi_fault_due(faults, LOONG_FAULT_EXIT, step)) {
        _exit(0);
    }
    bool hangs = loongi_fault_due(faults, LOONG_FAULT_HANG, step);
    while (hangs) {
        pause(); /* a signal handler may return */
    }
    return loongi_fault_due(faults, LOONG_FAULT_WRONG_COLLECTIVE, step)
               ? loong_comm_barrier(faults->comm, "wrong")
               : LOONG_OK;
}

loong_status_t loongi_fault_saved(loong_faults_t *faults, const char *dir,
                                  int64_t step)
{
    char path[4096];
    unsigned char bytes[DAMAGE_BYTES];
    struct stat info;
    if (!loongi_fault_due(faults, LOONG_FAULT_CORRUPT_CHECKPOINT, step)) {
        return LOONG_OK;
    }
    snprintf(path, sizeof(path), "%s/" LOONG_STEP_FORMAT "/rank_%05d.h5", dir,
             (long long)step, loong_comm_rank(faults->comm));
    int file = open(path, O_RDWR | O_CLOEXEC);
    bool done = file >= 0 && fstat(file, &info) == 0 &&
                pread(file, bytes, sizeof(bytes), info.st_size / 2) > 0;
    for (int i = 0; i < DAMAGE_BYTES && done; i++) {
        bytes[i] ^= 0x55;
    }
    done = done && pwrite(file, bytes, sizeof(bytes), info.st_size / 2) > 0;
    int error = errno;
    if (file >= 0) {
        close(file);
    }
    LOONG_CHECK(faults->ctx, done, LOONG_ERR_IO, "cannot damage '%s': %s", path,
                strerror(error));
    return LOONG_OK;
}
