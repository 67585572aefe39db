/* SPDX-License-Identifier: Apache-2.0
 *
 * loongrun: a recipe, run on every rank. A small parent watches over the
 * worker that trains (loong/launch.h). Read loong/recipe.h and loong/trainer.h
 * before. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loong/comm.h"
#include "loong/device.h"
#include "loong/exit_code.h"
#include "loong/launch.h"
#include "loong/nearest.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "loong/trainer.h"
#include "loongrun_banner.h"
#include "loongrun_bus.h"
#include "loongrun_config.h"
#include "loongrun_doctor.h"
#include "loongrun_screen.h"
#include "tool_configs.h"

static const char usage[] =
    "usage: [mpirun -n N] loongrun [train|eval] RECIPE.yaml [a.b=c ...]\n"
    "\n"
    "  train (default)     train as the recipe says\n"
    "  eval                loss and perplexity of the validation sets\n"
    "  a.b=c +a.b=c ~a.b   change, add, remove a key of the recipe\n"
    "  --print-config      the whole recipe, with the origin of each value\n"
    "  --check             can it run here? Recipe, layout, memory, data,\n"
    "                      tokenizer, checkpoints and outputs are judged, all\n"
    "                      that is wrong is told; parameters, tokens, memory;\n"
    "                      every picture is decoded\n"
    "  --dry-run           the same with pictures' heads alone, and the time\n"
    "                      of a step: from its kernels timed one by one, of\n"
    "                      another device from rates of its cards, without\n"
    "                      one too\n"
    "  --elsewhere         with these: a plan for other machines; the recipe\n"
    "                      alone is judged, not what is on this one, and\n"
    "                      the memory of the card that predict.device names\n"
    "  --ranks N           as if on N ranks, elsewhere\n"
    "  --schedule-plot FILE  with --dry-run the timeline of the predicted "
    "step,\n"
    "                      else of the last step, measured (SVG)\n"
    "  --explain           every step of every program, its kernel and why\n"
    "  --profile FILE      time every step; a table, and a trace for Perfetto\n"
    "  --help-config [KEY] what a key means, or all keys\n"
    "  --doctor            what was found on this machine\n"
    "  --version           this build and the libraries it works with\n"
    "\n"
    "signals: USR1 saves and goes on; USR2, TERM, INT finish the step, save\n"
    "and exit with 75 (after TERM and INT mpirun itself ends with 1, and does\n"
    "not wait). Exit codes: docs/faults.md\n";

typedef struct options {
    const char *recipe;
    bool eval;
    bool print_config;
    bool check;
    bool dry_run;
    bool explain;
    bool elsewhere;
    const char *profile;
    const char *plot;
    int ranks; /* 0: those there are */
    int num_overrides;
    const char **overrides;
} options_t;

static bool plans(const options_t *o)
{
    return o->check || o->dry_run || o->explain;
}

/* Whether all is asked that a run here needs. */
static bool judges(const options_t *o)
{
    return (o->check || o->dry_run) && !o->elsewhere;
}

static void print_parent(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "%s\n", line);
}

/* ---- commands that need no run ------------------------------------------- */

static void help_key(const loong_recipe_key_t *key)
{
    printf("%-50s %s\n", key->path, key->help);
    if (key->choices != NULL) {
        printf("%-50s one of: %s\n", "", key->choices);
    }
    if (key->min != 0.0 || key->max != 0.0) {
        printf("%-50s from %.12g to %.12g\n", "", key->min, key->max);
    }
    printf("%-50s default: %s\n", "", loong_recipe_default_text(key));
}

/* Keys that begin so; else the one that is called so elsewhere, and those that
 * have it in their path. */
static int help_config(const char *wanted)
{
    const loong_recipe_key_t *meant =
        wanted != NULL ? loong_recipe_meant(wanted) : NULL;
    bool found = false;
    for (int pass = 0; pass < 2 && !found; pass++) {
        if (pass == 1 && meant != NULL) {
            help_key(meant);
            found = true;
        }
        for (int64_t i = 0; i < loong_recipe_num_keys(); i++) {
            const loong_recipe_key_t *key = loong_recipe_key(i);
            const char *at =
                wanted != NULL ? strstr(key->path, wanted) : key->path;
            if (at != NULL && key != meant && (pass == 1 || at == key->path)) {
                help_key(key);
                found = true;
            }
        }
    }
    if (!found) {
        fprintf(stderr, "no key has %s in its name\n", wanted);
    }
    return found ? LOONG_EXIT_OK : LOONG_EXIT_USAGE;
}

/* ---- the run ------------------------------------------------------------- */

static loong_status_t print_text(loong_comm_t *comm, const char *text)
{
    if (loong_comm_rank(comm) == 0) {
        fputs(text, stdout);
        fflush(stdout);
    }
    return LOONG_OK;
}

/* The timeline, when it is asked for. */
static loong_status_t plot(const options_t *o, loong_comm_t *comm,
                           loong_trainer_t *trainer)
{
    const char *text = NULL;
    if (o->plot == NULL) {
        return LOONG_OK;
    }
    loong_status_t status = loong_trainer_plot(trainer, o->plot, &text);
    return status == LOONG_OK ? print_text(comm, text) : status;
}

static loong_status_t predict(const options_t *o, loong_comm_t *comm,
                              loong_trainer_t *trainer)
{
    const char *text = NULL;
    loong_status_t status = loong_trainer_predict(trainer, &text);
    if (status == LOONG_OK) {
        status = print_text(comm, text);
    }
    return status == LOONG_OK ? plot(o, comm, trainer) : status;
}

static loong_status_t tell_plan(const options_t *o, loong_comm_t *comm,
                                loong_trainer_t *trainer)
{
    const char *text = NULL;
    loong_status_t status = LOONG_OK;
    if (o->explain) {
        status = loong_trainer_explain(trainer, &text);
        return status == LOONG_OK ? print_text(comm, text) : status;
    }
    if (o->dry_run) {
        status = predict(o, comm, trainer);
    }
    if (status == LOONG_OK) {
        status = loong_trainer_check_memory(trainer);
    }
    return status != LOONG_OK || !o->check
               ? status
               : print_text(comm, o->elsewhere ? "check: the recipe can run\n"
                                               : "check: it can run here\n");
}

/* Where the user wants more threads than there are cores. */
static void warn_threads(screen_t *screen)
{
    char text[512];
    loong_launch_t launch;
    loong_launch_detect(&launch);
    loong_launch_advice(&launch, omp_get_max_threads(), text, sizeof(text));
    for (char *at = strtok(text, "\n"); at != NULL; at = strtok(NULL, "\n")) {
        screen_log(screen, LOONG_LOG_WARN, at);
    }
}

static loong_status_t with_trainer(const options_t *o, loong_recipe_t *recipe,
                                   loong_comm_t *comm,
                                   loong_trainer_t *trainer)
{
    const char *text = NULL;
    loong_status_t status = loong_trainer_describe(trainer, &text);
    if (status == LOONG_OK && loong_comm_rank(comm) == 0) {
        banner(stdout);
        printf("run: %s, recipe %s, seed %lld\n",
               loong_recipe_text(recipe, "name"), o->recipe,
               (long long)loong_recipe_int(recipe, "seed"));
    }
    if (status == LOONG_OK) {
        status = print_text(comm, text);
    }
    /* Other plans stop before they have read all that a run reads. */
    if (status == LOONG_OK && loong_comm_rank(comm) == 0 &&
        (judges(o) || !plans(o))) {
        loong_recipe_warn_unread(recipe);
    }
    if (status != LOONG_OK || plans(o)) {
        return status == LOONG_OK ? tell_plan(o, comm, trainer) : status;
    }
    if (o->eval) {
        return loong_trainer_evaluate(trainer);
    }
    if (o->profile != NULL || o->plot != NULL) {
        status = loong_trainer_profile_begin(trainer);
    }
    if (status == LOONG_OK) {
        status = loong_trainer_run(trainer);
    }
    if (status == LOONG_OK && o->profile != NULL) {
        bool first = loong_comm_rank(comm) == 0;
        status = loong_trainer_profile_end(trainer,
                                           first ? o->profile : NULL, &text);
        print_text(comm, status == LOONG_OK ? text : "");
    }
    return status == LOONG_OK ? plot(o, comm, trainer) : status;
}

static loong_status_t print_config(loong_context_t *ctx, loong_comm_t *comm,
                                   loong_recipe_t *recipe)
{
    const char *text = NULL;
    loong_status_t status = loong_trainer_fill_recipe(
        ctx, recipe, loong_comm_rank(comm) == 0);
    if (status == LOONG_OK) {
        status = config_state_family(ctx, recipe);
    }
    if (status == LOONG_OK) {
        status = loong_recipe_print(recipe, true, &text);
    }
    return status == LOONG_OK ? print_text(comm, text) : status;
}

static loong_status_t run_recipe(loong_context_t *ctx, const options_t *o,
                                 loong_recipe_t *recipe, screen_t *screen)
{
    loong_trainer_t *trainer = NULL;
    loong_comm_t *comm = screen->comm;
    if (o->print_config) {
        return print_config(ctx, comm, recipe);
    }
    loong_trainer_params_t params = {
        .comm = comm,
        .recipe = recipe,
        .plan_only = plans(o),
        .judge = judges(o),
        .decode = judges(o) && o->check,
        .evaluate_only = o->eval,
        .progress = screen_progress,
        .progress_user = screen,
        .plan_ranks = o->ranks};
    loong_status_t status = loong_trainer_create(ctx, &params, &trainer);
    if (status == LOONG_OK && loong_comm_rank(comm) == 0) {
        warn_threads(screen);
    }
    if (status == LOONG_OK) {
        status = with_trainer(o, recipe, comm, trainer);
    }
    screen_wipe(screen);
    if (trainer != NULL && status != LOONG_OK &&
        status != LOONG_ERR_INTERRUPTED) {
        loong_comm_abort(comm, loong_context_error(ctx));
    }
    loong_trainer_destroy(&trainer);
    return status;
}

/* The communicator that the recipe asks for; the default one when there is no
 * recipe, so that ranks can still agree on how they end. */
static loong_status_t connect(loong_context_t *ctx,
                              const loong_recipe_t *recipe,
                              loong_comm_t **comm_p)
{
    loong_comm_params_t params = {.timeout = 0.0};
    const char *backend = "auto";
    if (recipe != NULL) {
        params.timeout = loong_recipe_real(recipe, "comm.timeout");
        params.heartbeat_timeout =
            loong_recipe_real(recipe, "comm.heartbeat_timeout");
        backend = loong_recipe_text(recipe, "comm.backend");
    }
    if (strcmp(backend, "self") == 0) {
        return loong_comm_create_self(ctx, &params, comm_p);
    }
    return strcmp(backend, "mpi") == 0
               ? loong_comm_create_mpi(ctx, &params, comm_p)
               : loong_comm_create_world(ctx, &params, comm_p);
}

static void tell_failure(loong_status_t status, int rank, const char *text)
{
    if (status != LOONG_OK && status != LOONG_ERR_INTERRUPTED) {
        fprintf(stderr, "loongrun: rank %d: %s\n%s\n", rank,
                loong_status_text(status), text);
    }
}

/* What all ranks have got wrong in the same way is told once, by the first of
 * them; *agreed_p: the exit code of all. */
static void end_together(loong_comm_t *comm, loong_status_t status,
                         const char *text, int *agreed_p)
{
    int rank = 0;
    int code = (int)loong_exit_code_from_status(status);
    int64_t hash = 0;
    for (const char *c = text; *c != '\0'; c++) {
        hash = (hash * 31 + (unsigned char)*c) & 0xffffffffffff;
    }
    int64_t both[2] = {hash, -hash};
    bool same = loong_comm_all_reduce(comm, both, 2, LOONG_I64,
                                      LOONG_REDUCE_MAX, "end") == LOONG_OK &&
                both[0] == -both[1];
    loong_exit_code_agree(comm, code, agreed_p, &rank);
    if (!same || loong_comm_rank(comm) == rank) {
        tell_failure(status, loong_comm_rank(comm), text);
    }
}

static int work(loong_context_t *ctx, const options_t *o, screen_t *screen)
{
    char configs[PATH_MAX];
    loong_recipe_params_t params = {tool_configs(configs), o->num_overrides,
                                    o->overrides, 0, NULL};
    loong_launch_t launch;
    loong_recipe_t *recipe = NULL;
    loong_comm_t **comm = &screen->comm;
    int agreed = 0;
    loong_launch_detect(&launch);
    bus_install();
    loong_status_t loaded =
        o->print_config
            ? loong_recipe_load(ctx, o->recipe, &params, &recipe)
            : loong_recipe_load_unjudged(ctx, o->recipe, &params, &recipe);
    loong_status_t status = loong_signals_install(ctx);
    if (status == LOONG_OK) {
        status = connect(ctx, recipe, comm);
    }
    if (status == LOONG_OK) {
        status = loaded;
    }
    if (status == LOONG_OK) {
        status = loong_launch_check(ctx, &launch, loong_comm_size(*comm));
    }
    if (status == LOONG_OK) {
        status = run_recipe(ctx, o, recipe, screen);
    }
    loong_recipe_destroy(&recipe);
    char text[8192]; /* all that a context keeps */
    snprintf(text, sizeof(text), "%s", loong_context_error(ctx));
    if (*comm == NULL) {
        tell_failure(status, launch.rank, text);
        return (int)loong_exit_code_from_status(status);
    }
    end_together(*comm, status, text, &agreed);
    if (agreed != 0 && loong_comm_rank(*comm) == 0) {
        fprintf(stderr, "loongrun: exit %d: %s\n", agreed,
                loong_exit_code_text(agreed));
    }
    return agreed;
}

/* ---- command line -------------------------------------------------------- */

/* 0 after saying what is wrong. */
static int parse_ranks(const char *text)
{
    char *end = NULL;
    long ranks = strtol(text, &end, 10);
    if (*end != '\0' || end == text || ranks < 1 || ranks > 1 << 20) {
        fprintf(stderr, "loongrun: --ranks %s: 1 to %d allowed\n", text,
                1 << 20);
        return 0;
    }
    return (int)ranks;
}

/* Options that go together. */
static bool consistent(const options_t *o)
{
    if (o->recipe == NULL) {
        fprintf(stderr, "loongrun: no recipe given\n%s", usage);
    } else if (o->ranks > 0 && !plans(o)) {
        fprintf(stderr, "loongrun: --ranks is for --check, --dry-run and "
                        "--explain; mpirun -n %d starts as many\n", o->ranks);
    } else if (o->elsewhere && !plans(o)) {
        fprintf(stderr, "loongrun: --elsewhere is for --check, --dry-run and "
                        "--explain\n");
    } else if (o->plot != NULL && (o->eval || o->explain)) {
        fprintf(stderr, "loongrun: --schedule-plot is for training and "
                        "--dry-run\n");
    } else {
        return true;
    }
    return false;
}

/* NULL where the file was forgotten, and what follows is an override. */
static const char *file_of(const char *option, const char *text)
{
    if (strchr(text, '=') == NULL) {
        return text;
    }
    fprintf(stderr, "loongrun: %s wants a FILE, found %s\n%s", option, text,
            usage);
    return NULL;
}

static void unknown_option(const char *option)
{
    static const char *const names[] = {
        "--print-config", "--check",    "--dry-run", "--elsewhere",
        "--ranks",        "--explain",  "--profile", "--schedule-plot",
        "--help-config",  "--doctor",   "--version", "--help"};
    const char *near =
        loong_nearest(option, names, sizeof(names) / sizeof(names[0]),
                      sizeof(names[0]));
    if (near != NULL && strcmp(near, option) == 0) {
        fprintf(stderr, "loongrun: %s goes before a recipe, or lacks what it "
                        "wants\n%s",
                option, usage);
    } else if (near != NULL) {
        fprintf(stderr, "loongrun: unknown option %s; did you mean %s?\n",
                option, near);
    } else {
        fprintf(stderr, "loongrun: unknown option %s\n%s", option, usage);
    }
}

static bool parse(int argc, char **argv, options_t *o)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--print-config") == 0) {
            o->print_config = true;
        } else if (strcmp(a, "--dry-run") == 0) {
            o->dry_run = true;
        } else if (strcmp(a, "--check") == 0) {
            o->check = true;
        } else if (strcmp(a, "--elsewhere") == 0) {
            o->elsewhere = true;
        } else if (strcmp(a, "--explain") == 0) {
            o->explain = true;
        } else if (strcmp(a, "--profile") == 0 && i + 1 < argc) {
            o->profile = file_of(a, argv[++i]);
            if (o->profile == NULL) {
                return false;
            }
        } else if (strcmp(a, "--schedule-plot") == 0 && i + 1 < argc) {
            o->plot = file_of(a, argv[++i]);
            if (o->plot == NULL) {
                return false;
            }
        } else if (strcmp(a, "--ranks") == 0 && i + 1 < argc) {
            o->ranks = parse_ranks(argv[++i]);
            if (o->ranks < 1) {
                return false;
            }
            o->elsewhere = true;
        } else if (strcmp(a, "train") == 0 && o->recipe == NULL) {
            o->eval = false;
        } else if (strcmp(a, "eval") == 0 && o->recipe == NULL) {
            o->eval = true;
        } else if (a[0] == '-') {
            unknown_option(a);
            return false;
        } else if (o->recipe == NULL) {
            o->recipe = a;
        } else {
            o->overrides[o->num_overrides++] = a;
        }
    }
    return consistent(o);
}

/* True where it was not set. */
static bool settle(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    return getenv(name) == NULL && setenv(name, text, 1) == 0;
}

/* libgomp reads its settings when it is loaded, so they must stand in the
 * environment before: a short spin keeps barriers cheap without starving other
 * ranks of the machine, and these share its cores. What the user set stays. */
static void settle_environment(char **argv)
{
    char self[4096];
    loong_launch_t launch;
    loong_launch_detect(&launch);
    bool spin = settle("GOMP_SPINCOUNT", 10000);
    bool share = settle("OMP_NUM_THREADS", loong_launch_threads(&launch));
    if (!spin && !share) {
        return;
    }
    /* by its path: process lists would show the link's name */
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length > 0) {
        self[length] = '\0';
        execv(self, argv);
    }
}

int main(int argc, char **argv)
{
    screen_t screen = {0};
    loong_context_t *ctx = NULL;
    loong_context_params_t params = {screen_log, &screen, LOONG_LOG_INFO};
    loong_parent_params_t parent = {print_parent, NULL, 0.0};
    loong_role_t role = LOONG_ROLE_WORKER;
    options_t o = {0};
    int code = LOONG_EXIT_USAGE;
    settle_environment(argv);
    screen_open(&screen);
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 ||
                     strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        banner(stdout);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--help-config") == 0) {
        return help_config(argc > 2 ? argv[2] : NULL);
    }
    if (loong_context_create(&params, &ctx) != LOONG_OK) {
        return LOONG_EXIT_FAILED;
    }
    if (loong_register_builtin(ctx) != LOONG_OK) {
        fprintf(stderr, "loongrun: %s\n", loong_context_error(ctx));
        return LOONG_EXIT_FAILED;
    }
    if (argc > 1 && strcmp(argv[1], "--doctor") == 0) {
        code = doctor(ctx);
        loong_context_destroy(&ctx);
        return code;
    }
    o.overrides = calloc((size_t)argc, sizeof(*o.overrides));
    if (o.overrides != NULL && parse(argc, argv, &o)) {
        if (loong_parent_run(ctx, &parent, &role, &code) != LOONG_OK) {
            fprintf(stderr, "loongrun: %s\n", loong_context_error(ctx));
            code = LOONG_EXIT_FAILED;
        } else if (role == LOONG_ROLE_WORKER) {
            code = work(ctx, &o, &screen);
        }
    }
    screen_close(&screen);
    loong_comm_destroy(&screen.comm);
    free(o.overrides);
    loong_context_destroy(&ctx);
    return code;
}
