/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-bench: how fast this machine does what a training step is made of.
 * One command a file; this one only chooses. Read loong_bench.h before. */
#include "loong_bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loong/launch.h"
#include "loong/nearest.h"

static const bench_command_t commands[] = {
    {"op", "one op: every kernel that takes it", bench_op},
    {"floor", "the matrix products of a training step, nothing else",
     bench_floor},
    {"step", "whole training steps of a recipe, on random tokens", bench_step},
    {"costs", "what the parts of a step's cost take, for data.costs",
     bench_costs},
    {"speeds", "a micro-batch on a kind of device, for data_parallel_speeds",
     bench_speeds},
    {"parity", "random layouts of a recipe against one rank", bench_parity},
    {"tokenizer", "text to ids on one core", bench_tokenizer},
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

/* Of several ranks the first one tells how it goes. */
static void print_line(void *user, loong_log_level_t level, const char *line)
{
    const loong_launch_t *launch = user;
    if (launch->rank > 0 && level > LOONG_LOG_WARN) {
        return;
    }
    fprintf(stderr, "%s%s\n", level == LOONG_LOG_WARN ? "warning: " : "", line);
}

int bench_fail(const loong_context_t *ctx, loong_status_t status)
{
    fprintf(stderr, "loong-bench: %s\n%s\n", loong_status_text(status),
            loong_context_error(ctx));
    return (int)loong_exit_code_from_status(status);
}

int bench_usage(const char *command, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "loong-bench %s: ", command);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\nloong-bench %s --help lists the options\n", command);
    va_end(args);
    return LOONG_EXIT_USAGE;
}

static int help(FILE *out, int code)
{
    fprintf(out, "usage: loong-bench COMMAND [OPTION]...\n\n");
    for (int i = 0; i < COMMANDS; i++) {
        fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    }
    fprintf(out, "\nloong-bench COMMAND --help lists the options.\n");
    return code;
}

/* The OpenMP runtime reads how long idle threads spin when it is loaded: so
 * the program starts again once that is set, as loongrun does. */
static void set_spin(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") == NULL) {
        setenv("GOMP_SPINCOUNT", "10000", 1);
        execv("/proc/self/exe", argv);
    }
}

int main(int argc, char **argv)
{
    loong_launch_t launch;
    loong_context_params_t params = {print_line, &launch, LOONG_LOG_INFO};
    loong_context_t *ctx = NULL;
    if (argc < 2) {
        return help(stderr, LOONG_EXIT_USAGE);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        return help(stdout, LOONG_EXIT_OK);
    }
    set_spin(argv);
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line is seen when it is written */
    loong_launch_detect(&launch); /* before MPI, which adds to what it reads */
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) != 0) {
            continue;
        }
        if (loong_context_create(&params, &ctx) != LOONG_OK) {
            fprintf(stderr, "loong-bench: out of memory\n");
            return LOONG_EXIT_FAILED;
        }
        char name[64]; /* for what getopt says */
        snprintf(name, sizeof(name), "loong-bench %s", argv[1]);
        argv[1] = name;
        loong_status_t status = loong_register_builtin(ctx);
        int code = status == LOONG_OK ? commands[i].run(ctx, argc - 1, argv + 1)
                                      : bench_fail(ctx, status);
        loong_context_destroy(&ctx);
        return code;
    }
    const char *near =
        loong_nearest(argv[1], commands, COMMANDS, sizeof(commands[0]));
    fprintf(stderr, "loong-bench: no command '%s'%s%s%s\n", argv[1],
            near != NULL ? "; did you mean " : "", near != NULL ? near : "",
            near != NULL ? "?" : "");
    return help(stderr, LOONG_EXIT_USAGE);
}
