/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that die, hang, leave or disagree, and signals, with the parents of
 * src/launch/parent.c. argv: worker_fault, mpirun ("" without MPI). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "loong/exit_code.h"
#include "loong/launch.h"
#include "test.h"

enum { OUTPUT = 1 << 16 };
/* Fault to end of the job. */
static const double AGREED_SECONDS = 30.0;

static const char *worker;
static const char *mpirun;

typedef struct job {
    pid_t pid;
    int status; /* as waitpid tells it */
    int output;
    size_t length;
    char text[OUTPUT];
    double begin;
    double seconds;
} job_t;

static void start_job(job_t *job, const char *ranks, const char *fault,
                      const char *timeout)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    memset(job, 0, sizeof(*job));
    job->begin = loongi_now();
    job->pid = fork();
    assert_true(job->pid >= 0);
    if (job->pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        if (ranks == NULL) {
            execl(worker, worker, fault, "0", timeout, (char *)NULL);
        } else {
            execl(mpirun, mpirun, "--oversubscribe", "-n", ranks, worker, fault,
                  "1", timeout, (char *)NULL);
        }
        _exit(127);
    }
    close(ends[1]);
    job->output = ends[0];
}

/* Reads until the output holds the text `times` times or ends. */
static bool read_until(job_t *job, const char *text, int times)
{
    double end = loongi_now() + 60.0;
    while (loongi_now() < end) {
        int count = 0;
        for (const char *at = strstr(job->text, text); at != NULL && *text;
             at = strstr(at + 1, text)) {
            count++;
        }
        if (*text != '\0' && count >= times) {
            return true;
        }
        struct pollfd input = {job->output, POLLIN, 0};
        if (poll(&input, 1, 200) > 0) {
            ssize_t n = read(job->output, job->text + job->length,
                             OUTPUT - 1 - job->length);
            if (n <= 0) {
                return false;
            }
            job->length += (size_t)n;
        }
    }
    return false;
}

/* Until nothing of the job is left. */
static void *await_end(void *user)
{
    job_t *job = user;
    (void)read_until(job, "", 0);
    close(job->output);
    waitpid(job->pid, &job->status, 0);
    job->seconds = loongi_now() - job->begin;
    return job;
}

/* The exit code of a job that has ended. */
static int code_of(const job_t *job)
{
    assert_true(WIFEXITED(job->status));
    return WEXITSTATUS(job->status);
}

static int end_job(job_t *job)
{
    await_end(job);
    return code_of(job);
}

static pid_t pid_of(job_t *job, int rank)
{
    char text[32];
    snprintf(text, sizeof(text), "rank %d pid ", rank);
    assert_true(read_until(job, text, 1));
    const char *at = strstr(job->text, text);
    return (pid_t)atoi(at + strlen(text));
}

/* Of a job that has ended. */
static void judge(const job_t *job, int code, const char *text)
{
    int got = code_of(job);
    if (got != code || strstr(job->text, text) == NULL) {
        fail_msg("exit code %d, expected %d with '%s' in:\n%s", got, code, text,
                 job->text);
    }
    assert_true(job->seconds < AGREED_SECONDS);
}

static void expect(job_t *job, int code, const char *text)
{
    await_end(job);
    judge(job, code, text);
}

static void need_mpi(void)
{
    if (mpirun[0] == '\0') {
        print_message("SKIPPED: built without MPI\n");
        skip();
    }
}

static void test_one_rank(void **state)
{
    (void)state;
    job_t *job = calloc(1, sizeof(*job));
    start_job(job, NULL, "none", "30");
    expect(job, LOONG_EXIT_OK, "rank 0 pid");
    start_job(job, NULL, "kill", "30");
    expect(job, LOONG_EXIT_LOST, "rank 0 was killed by signal 9");
    start_job(job, NULL, "code77", "30");
    expect(job, LOONG_EXIT_LOST, "unknown code 77");
    start_job(job, NULL, "io", "30");
    expect(job, LOONG_EXIT_IO, "cannot read shard 7");
    start_job(job, NULL, "wait", "30");
    pid_of(job, 0);
    kill(job->pid, SIGTERM);
    expect(job, LOONG_EXIT_STOPPED, "rank 0 stops at step");
    /* One INT that arrives twice is one. */
    struct timespec pause = {0, 20000000};
    start_job(job, NULL, "wait", "30");
    pid_of(job, 0);
    kill(job->pid, SIGINT);
    nanosleep(&pause, NULL);
    kill(job->pid, SIGINT);
    expect(job, LOONG_EXIT_STOPPED, "rank 0 stops at step");
    start_job(job, NULL, "deaf", "30");
    pid_of(job, 0);
    pause.tv_nsec = 400000000;
    kill(job->pid, SIGINT);
    nanosleep(&pause, NULL);
    kill(job->pid, SIGINT);
    expect(job, LOONG_EXIT_FAILED, "interrupted twice");
    free(job);
}

/* The parent gone, the worker goes too. */
static void test_parent_killed(void **state)
{
    (void)state;
    job_t *job = calloc(1, sizeof(*job));
    int status = 0;
    start_job(job, NULL, "wait", "30");
    pid_t pid = pid_of(job, 0);
    assert_int_equal(kill(pid, 0), 0);
    kill(job->pid, SIGKILL);
    /* The pipe closes when the worker has ended. */
    (void)read_until(job, "", 0);
    waitpid(job->pid, &status, 0);
    assert_true(WIFSIGNALED(status));
    close(job->output);
    assert_true(loongi_now() - job->begin < AGREED_SECONDS);
    free(job);
}

static void test_faults(void **state)
{
    (void)state;
    need_mpi();
    static const struct {
        const char *fault;
        int code;
        const char *text;
    } faults[] = {
        {"none", 0, "rank 1 pid"},
        {"segv", 4, "rank 1 was killed by signal 11"},
        {"stop", 4, "lost: rank 1 is stopped (SIGSTOP)"},
        {"code77", 4, "rank 1 exited with the unknown code 77"},
        {"return", 4, "rank 1 (pid"},
        {"io", 74, "given up by rank 1: cannot read shard 7"},
        {"divides", 4, "rank 1 calls all_reduce #10 'odd one'"},
        {"absent", 4, "ended before it joined the job"},
        {"usage", 2, "no such option"},
    };
    job_t *job = calloc(1, sizeof(*job));
    for (int64_t i = 0; i < LOONG_COUNT_OF(faults); i++) {
        start_job(job, i % 2 == 0 ? "2" : "3", faults[i].fault, "3");
        expect(job, faults[i].code, faults[i].text);
    }
    free(job);
}

/* Stops both ranks of a job, or lets them go on. */
static void set_aside(job_t *job, int number)
{
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(kill(pid_of(job, rank), number), 0);
    }
}

/* Long before the time limit of a collective, and without a word of the rank.
 * One that is only slow is waited for, and a job that was set aside. All of
 * them wait while the other tests run. */
static const struct {
    const char *fault;
    int code;
    const char *text;
    const char *ranks;
    double seconds; /* at least */
} hopeless[] = {
    {"stop", 4, "lost: rank 1 is stopped (SIGSTOP), rank 0 waits for it "
                "and it has done nothing for 15", "2", 15.0},
    {"hang", 4, "lost: rank 1 hangs, rank 0 waits for it and it has done "
                "nothing for 15", "2", 15.0},
    {"far_hang", 4, "lost: rank 1 hangs, rank 0 waits for it and it has "
                    "done nothing for 15", "2", 15.0},
    {"strays", 4, "rank 1 waits for rank 0, is in barrier #", "3", 15.0},
    {"dawdles", 0, "rank 1 pid", "2", 15.0},
    {"reads", 0, "rank 1 pid", "2", 15.0},
    {"parts", 0, "rank 1 pid", "2", 1.5},
};
enum { HOPELESS = LOONG_COUNT_OF(hopeless) };
static job_t *hopeless_jobs; /* and the one that is set aside */
static pthread_t hopeless_threads[HOPELESS];

static void test_hopeless_begin(void **state)
{
    (void)state;
    need_mpi();
    hopeless_jobs = calloc(HOPELESS + 1, sizeof(*hopeless_jobs));
    start_job(&hopeless_jobs[HOPELESS], "2", "wait", "600");
    set_aside(&hopeless_jobs[HOPELESS], SIGSTOP);
    for (int i = 0; i < HOPELESS; i++) {
        job_t *job = &hopeless_jobs[i];
        start_job(job, hopeless[i].ranks, hopeless[i].fault, "600");
        assert_int_equal(
            pthread_create(&hopeless_threads[i], NULL, await_end, job), 0);
    }
}

static void test_hopeless_end(void **state)
{
    (void)state;
    need_mpi();
    job_t *aside = &hopeless_jobs[HOPELESS];
    for (int i = 0; i < HOPELESS; i++) {
        pthread_join(hopeless_threads[i], NULL);
    }
    for (int i = 0; i < HOPELESS; i++) {
        const job_t *job = &hopeless_jobs[i];
        judge(job, hopeless[i].code, hopeless[i].text);
        print_message("%s: %.1f s\n", hopeless[i].fault, job->seconds);
        assert_true(job->seconds > hopeless[i].seconds);
        if (hopeless[i].code != 0) {
            assert_non_null(strstr(job->text, "what the ranks of this machine "
                                              "did last:"));
            assert_non_null(strstr(job->text, "is in all_reduce #"));
            assert_non_null(strstr(job->text, "'step header' of world ("));
        }
    }
    set_aside(aside, SIGCONT);
    kill(aside->pid, SIGUSR2);
    assert_int_equal(end_job(aside), LOONG_EXIT_STOPPED);
    assert_non_null(strstr(aside->text, "rank 1 stops at step"));
    free(hopeless_jobs);
}

/* Ranks that are machines of their own, as far as they know: one that does not
 * answer is named, with its host, long before the time limit; one that is slow
 * is waited for, though it comes after three times the limit of heartbeats. */
static void test_heartbeat(void **state)
{
    (void)state;
    need_mpi();
    char text[160];
    char host[64] = "";
    job_t *job = calloc(1, sizeof(*job));
    gethostname(host, sizeof(host) - 1);
    start_job(job, "3", "far_stop", "100");
    snprintf(text, sizeof(text), "of 3 ranks did not come in ");
    expect(job, LOONG_EXIT_LOST, text);
    snprintf(text, sizeof(text),
             "rank 1 (on %.31s, which has not answered for 1.", host);
    assert_non_null(strstr(job->text, text));
    assert_true(job->seconds < 12.0);
    start_job(job, "3", "far_ponders", "100");
    expect(job, LOONG_EXIT_OK, "rank 1 pid");
    assert_null(strstr(job->text, "answered"));
    free(job);
}

/* From outside, at any moment, every time: exit code 4, the victim named. */
static void test_kill_from_outside(void **state)
{
    (void)state;
    need_mpi();
    job_t *job = calloc(1, sizeof(*job));
    for (int i = 0; i < 6; i++) {
        char text[64];
        struct timespec moment = {0, 7000000L * i};
        start_job(job, "2", "wait", "30");
        pid_t pid = pid_of(job, i % 2);
        pid_of(job, 1 - i % 2);
        nanosleep(&moment, NULL);
        double begin = loongi_now();
        kill(pid, SIGKILL);
        snprintf(text, sizeof(text), "rank %d was killed by signal 9", i % 2);
        expect(job, LOONG_EXIT_LOST, text);
        assert_true(loongi_now() - begin < AGREED_SECONDS);
    }
    free(job);
}

static void test_signals(void **state)
{
    (void)state;
    need_mpi();
    job_t *job = calloc(1, sizeof(*job));
    start_job(job, "2", "wait", "30");
    pid_t ranks[] = {pid_of(job, 0), pid_of(job, 1)};
    for (int r = 0; r < 2; r++) {
        kill(ranks[r], SIGUSR1);
        assert_true(read_until(job, "saves at step", 2 * r + 2));
    }
    kill(job->pid, SIGUSR1);
    assert_true(read_until(job, "saves at step", 6));
    kill(job->pid, SIGUSR2);
    assert_true(read_until(job, "stops at step", 2));
    expect(job, LOONG_EXIT_STOPPED, "rank 1 stops at step");
    /* Once per signal of a rank, on both. A launcher passes its own on to one
     * rank after the other, which may be in two steps by then. */
    int saves = 0;
    for (const char *at = job->text; (at = strstr(at, "saves")) != NULL; at++) {
        saves++;
    }
    assert_true(saves == 6 || saves == 8);
    free(job);
}

static void check_launch(const char *rank_name, const char *size_name,
                         const char *launcher)
{
    loong_context_t *ctx = test_context();
    loong_launch_t launch;
    setenv(rank_name, "3", 1);
    setenv(size_name, "8", 1);
    loong_launch_detect(&launch);
    assert_string_equal(launch.launcher, launcher);
    assert_int_equal(launch.rank, 3);
    assert_int_equal(launch.size, 8);
    assert_fails(ctx, loong_launch_check(ctx, &launch, 1), LOONG_ERR_CONFIG,
                 "started 8 processes, but each is a job of its own");
    assert_ok(ctx, loong_launch_check(ctx, &launch, 8));
    unsetenv(rank_name);
    unsetenv(size_name);
    loong_launch_detect(&launch);
    assert_null(launch.launcher);
    assert_int_equal(launch.size, 1);
    test_context_end(&ctx);
}

static void test_launchers(void **state)
{
    (void)state;
    char text[512];
    check_launch("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun");
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "4", 1); /* a batch script */
    loong_launch_t launch = {0};
    loong_launch_detect(&launch);
    assert_null(launch.launcher);
    assert_int_equal(launch.size, 1);
    unsetenv("SLURM_PROCID");
    unsetenv("SLURM_NTASKS");
    check_launch("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI");
    check_launch("PMI_RANK", "PMI_SIZE", "MPICH");
    check_launch("RANK", "WORLD_SIZE", "torchrun");
    launch = (loong_launch_t){"Open MPI", 0, 1000, 0, 1000};
    assert_int_equal(loong_launch_threads(&launch), 1);
    loong_launch_advice(&launch, 4, text, sizeof(text));
    assert_non_null(strstr(text, "1000 ranks x 4 threads"));
    assert_non_null(strstr(text, "use fewer ranks\n"));
    launch.local_size = 1;
    loong_launch_advice(&launch, loong_launch_threads(&launch), text,
                        sizeof(text));
    assert_string_equal(text, "");
    loong_launch_advice(&launch, 1 << 20, text, sizeof(text));
    assert_non_null(strstr(text, "1 rank x 1048576 threads on "));
    assert_non_null(strstr(text, "OMP_NUM_THREADS="));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hopeless_begin),
        cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_parent_killed),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_heartbeat),
        cmocka_unit_test(test_kill_from_outside),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_hopeless_end),
    };
    worker = argc > 1 ? argv[1] : "";
    mpirun = argc > 2 ? argv[2] : "";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
