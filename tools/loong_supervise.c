/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-supervise: runs a job again from its last good checkpoint when it
 * fails and may do better, and says of each attempt what happened. Read
 * loong_supervise.h and docs/faults.md before. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loong/exit_code.h"
#include "loong/nearest.h"
#include "loong_supervise.h"

static const char usage[] =
    "usage: loong-supervise [options] [--] COMMAND ...\n"
    "\n"
    "  COMMAND          mpirun -n 4 loongrun RECIPE.yaml ..., with\n"
    "                   checkpoint.load=auto and a checkpoint.save_interval\n"
    "  --restarts N     most restarts without a new checkpoint between them\n"
    "                   (10)\n"
    "  --same N         end when the same step fails with the same exit code\n"
    "                   so many times (3)\n"
    "  --backoff S      seconds before a restart, doubled with each one that\n"
    "                   brings no new checkpoint, up to 300 (5)\n"
    "  --log FILE       a line of JSON for each attempt is added here\n"
    "                   (loong-supervise.jsonl)\n"
    "\n"
    "signals: TERM, INT, HUP, USR2 become USR2 for the command: it finishes\n"
    "the step, saves, ends, and is not restarted; INT twice ends it at once.\n"
    "USR1 is passed on. The exit code is the job's. What is restarted:\n"
    "docs/faults.md\n";

typedef struct options {
    supervise_limits_t limits;
    const char *log;
    char **command;
} options_t;

static bool number(const char *option, const char *text, double low,
                   double high, double *value_p)
{
    char *end = NULL;
    double value = text != NULL ? strtod(text, &end) : 0.0;
    if (text == NULL || end == text || *end != '\0' || !(value >= low) ||
        value > high) {
        fprintf(stderr, "loong-supervise: %s: found %s, a number from %g to "
                        "%g wanted\n",
                option, text != NULL ? text : "nothing", low, high);
        return false;
    }
    *value_p = value;
    return true;
}

static bool whole(const char *option, const char *text, int low, int *value_p)
{
    double value = 0.0;
    if (!number(option, text, low, 1e6, &value)) {
        return false;
    }
    if (value != floor(value)) {
        fprintf(stderr, "loong-supervise: %s: found %s, a whole number "
                        "wanted\n",
                option, text);
        return false;
    }
    *value_p = (int)value;
    return true;
}

static bool parse(char **argv, options_t *o)
{
    int i = 1;
    for (; argv[i] != NULL && argv[i][0] == '-'; i += 2) {
        const char *a = argv[i];
        const char *value = argv[i + 1];
        bool good = true;
        if (strcmp(a, "--") == 0) {
            i++;
            break;
        }
        if (strcmp(a, "--restarts") == 0) {
            good = whole(a, value, 0, &o->limits.restarts);
        } else if (strcmp(a, "--same") == 0) {
            good = whole(a, value, 1, &o->limits.same);
        } else if (strcmp(a, "--backoff") == 0) {
            good = number(a, value, 0.0, SUPERVISE_LONGEST_BACKOFF,
                          &o->limits.backoff);
        } else if (strcmp(a, "--log") == 0 && value != NULL) {
            o->log = value;
        } else {
            static const char *const names[] = {"--restarts", "--same",
                                                "--backoff", "--log"};
            const char *near = loong_nearest(
                a, names, sizeof(names) / sizeof(names[0]), sizeof(names[0]));
            fprintf(stderr, "loong-supervise: %s: unknown option, or its "
                            "value is missing%s%s%s\n%s", a,
                    near != NULL ? "; did you mean " : "",
                    near != NULL ? near : "", near != NULL ? "?" : "", usage);
            good = false;
        }
        if (!good) {
            return false;
        }
    }
    o->command = argv + i;
    if (argv[i] == NULL) {
        fprintf(stderr, "loong-supervise: no command given\n%s", usage);
    }
    return argv[i] != NULL;
}

/* ---- attempts ------------------------------------------------------------ */

/* A launcher that was told to end beside its ranks knows nothing of what they
 * still saved. */
static bool is_saved(const supervise_ending_t *e)
{
    return e->asked && e->code != LOONG_EXIT_OK && !e->has_verdict &&
           e->has_progress && e->progress.saved_step == e->progress.step;
}

static bool run_attempt(const options_t *o, const char *dir,
                        const sigset_t *set, int attempt,
                        supervise_ending_t *ending_p)
{
    char count[16];
    snprintf(count, sizeof(count), "%d", attempt);
    loong_job_clear(dir);
    if (setenv(LOONG_JOB_DIR_ENV, dir, 1) != 0 ||
        setenv(LOONG_JOB_ATTEMPT_ENV, count, 1) != 0) {
        fprintf(stderr, "loong-supervise: no memory for the environment\n");
        return false;
    }
    if (!supervise_run(o->command, set, ending_p)) {
        return false;
    }
    ending_p->has_progress =
        loong_job_read_progress(dir, &ending_p->progress);
    ending_p->has_verdict = loong_job_read_verdict(dir, &ending_p->verdict);
    if (is_saved(ending_p)) {
        ending_p->code = LOONG_EXIT_STOPPED;
    }
    return true;
}

/* The exit code of the last attempt. */
static int supervise(const options_t *o, const char *dir, FILE *log,
                     const sigset_t *set)
{
    supervise_history_t history = {0};
    supervise_ending_t before = {0};
    supervise_ending_t ending = {0};
    bool again = true;
    for (int attempt = 1; again; attempt++) {
        const supervise_ending_t *earlier = attempt > 1 ? &before : NULL;
        if (!run_attempt(o, dir, set, attempt, &ending)) {
            return LOONG_EXIT_FAILED;
        }
        supervise_decision_t decision =
            supervise_decide(&o->limits, &history, &ending);
        supervise_tell(stderr, attempt, earlier, &ending, &decision);
        supervise_log(log, attempt, earlier, &ending, &decision);
        again = decision.again;
        if (again && supervise_wait(set, decision.wait)) {
            fprintf(stderr, "loong-supervise: asked to end while waiting\n");
            again = false;
        }
        before = ending;
    }
    return ending.code;
}

int main(int argc, char **argv)
{
    options_t o = {{10, 3, 5.0}, "loong-supervise.jsonl", NULL};
    const char *temporary = getenv("TMPDIR");
    char dir[4096];
    sigset_t set;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 ||
                     strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return LOONG_EXIT_OK;
    }
    if (!parse(argv, &o)) {
        return LOONG_EXIT_USAGE;
    }
    FILE *log = fopen(o.log, "a");
    if (log == NULL) {
        fprintf(stderr, "loong-supervise: cannot write '%s': %s\n", o.log,
                strerror(errno));
        return LOONG_EXIT_CANNOT_WRITE;
    }
    snprintf(dir, sizeof(dir), "%s/loong-job-XXXXXX",
             temporary != NULL ? temporary : "/tmp");
    if (!supervise_begin(&set) || mkdtemp(dir) == NULL) {
        fprintf(stderr, "loong-supervise: cannot make '%s': %s\n", dir,
                strerror(errno));
        return LOONG_EXIT_CANNOT_WRITE;
    }
    int code = supervise(&o, dir, log, &set);
    loong_job_clear(dir);
    rmdir(dir);
    fclose(log);
    return code;
}
