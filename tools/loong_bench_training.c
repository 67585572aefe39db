/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands of loong-bench that time the steps of a training. Read loong_bench.h
 * before. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "loong/comm.h"
#include "loong_bench.h"
#include "options.h"

/* Are they numbers from 1 to most, only one unless they are several? */
static bool are_numbers(const char *text, bool several, int64_t most)
{
    const char *at = text;
    bool good = true;
    while (good && at != NULL) {
        good = options_number(&at, most) > 0 && (several || at == NULL);
    }
    return good;
}

int bench_training_options(const char *command, int (*help)(void), int argc,
                           char **argv, bench_asked_t *asked)
{
    static const struct option table[] = {
        {"steps", required_argument, NULL, 's'},
        {"out", required_argument, NULL, 'o'},
        {"ranks", required_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int c;
    while ((c = options_next(argc, argv, table)) != -1) {
        switch (c) {
        case 's':
            if (!are_numbers(optarg, false, BENCH_STEPS)) {
                return bench_usage(command, "--steps '%s': 1 to %d allowed",
                                   optarg, BENCH_STEPS);
            }
            asked->steps = atoi(optarg);
            break;
        case 'o':
            asked->path = optarg;
            break;
        case 'r':
            if (strcmp(command, "costs") != 0) {
                return bench_usage(command, "--ranks is of costs");
            }
            if (!are_numbers(optarg, true, BENCH_RANKS)) {
                return bench_usage(command,
                                   "--ranks '%s': whole numbers from 1 to %d "
                                   "allowed, separated by commas",
                                   optarg, BENCH_RANKS);
            }
            asked->ranks = optarg;
            break;
        case 'h':
            return help();
        default: /* it has been said */
            return LOONG_EXIT_USAGE;
        }
    }
    if (optind == argc) {
        return bench_usage(command, "no recipe given");
    }
    if (asked->path != NULL && asked->ranks != NULL) {
        return bench_usage(command, "--out with --ranks: no costs are measured "
                                    "that a file could hold");
    }
    return -1;
}

/* What a run beside the steps themselves would do. */
static const char *const fixed[] = {"++train.rampup_batch_size=null",
                                    "++train.exit_interval=0",
                                    "++data.validation=null",
                                    "++data.validation_split=0",
                                    "++eval=null",
                                    "++checkpoint=null",
                                    "++export=null",
                                    "++log.dir=null",
                                    "++train.train_samples=null",
                                    "++train.train_tokens=null"};

loong_status_t bench_training(loong_context_t *ctx, int64_t steps, int argc,
                              char **argv,
                              loong_status_t (*use)(void *user,
                                                    loong_trainer_t *trainer),
                              void *user)
{
    enum { FIXED = (int)LOONG_COUNT_OF(fixed), MOST = 64 };
    const char *all[FIXED + MOST + 1];
    char iters[48];
    int n = 0;
    loong_trainer_params_t params = {.comm = NULL};
    loong_trainer_t *trainer = NULL;
    LOONG_CHECK(ctx, argc <= MOST, LOONG_ERR_ARG, "more than %d overrides",
                MOST - 1);
    for (int i = 1; i < argc; i++) {
        all[n++] = argv[i];
    }
    for (int i = 0; i < FIXED; i++) {
        all[n++] = fixed[i];
    }
    snprintf(iters, sizeof(iters), "++train.train_iters=%" PRId64, steps);
    all[n++] = iters;
    LOONG_TRY(loong_comm_create_world(ctx, NULL, &params.comm));
    loong_status_t status = bench_recipe(ctx, argv[0], n, all, &params.recipe);
    if (status == LOONG_OK) {
        status = loong_trainer_create(ctx, &params, &trainer);
    }
    if (status == LOONG_OK) {
        status = use(user, trainer);
    }
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&params.recipe);
    loong_comm_destroy(&params.comm);
    return status;
}
