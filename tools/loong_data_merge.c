/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-data merge: data sets as one, shuffled, or a part of them. Called by
 * loong_data.c. Read loong/dataset_merge.h before. */
#include <inttypes.h>
#include <stdio.h>

#include "loong/dataset_merge.h"
#include "loong_data.h"
#include "options.h"

static const char help_text[] =
    "usage: loong-data merge --output-prefix PREFIX [OPTION]... PREFIX...\n"
    "\n"
    "Writes the documents of indexed data sets of one kind as one set.\n"
    "\n"
    "  --output-prefix PATH  where to write\n"
    "  --shuffle SEED        documents in a random order\n"
    "  --documents BEGIN:END a share of them, behind the shuffle: 0:0.95 and\n"
    "                        0.95:1 are two sets without a common document\n";

static const struct option long_options[] = {
    {"output-prefix", required_argument, NULL, 'o'},
    {"shuffle", required_argument, NULL, 'r'},
    {"documents", required_argument, NULL, 'd'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

/* One option; false when it is wrong, which has been said. */
static bool take(loong_dataset_merge_params_t *p, int option)
{
    static const int64_t seeds[] = {0, INT64_MAX};
    int64_t value = 0;
    int length = 0;
    switch (option) {
    case 'o':
        p->output = optarg;
        return true;
    case 'r':
        p->shuffle = true;
        if (!data_integer("merge", "shuffle", optarg, seeds, &value)) {
            return false;
        }
        p->seed = (uint64_t)value;
        return true;
    case 'd':
        if (sscanf(optarg, "%lf:%lf%n", &p->begin, &p->end, &length) == 2 &&
            optarg[length] == '\0' && p->begin >= 0.0 && p->end <= 1.0 &&
            p->begin < p->end) {
            return true;
        }
        data_usage("merge", "--documents '%s': BEGIN:END with 0 <= BEGIN < "
                            "END <= 1 wanted", optarg);
        return false;
    default: /* getopt has said what is wrong */
        return false;
    }
}

int data_merge(loong_context_t *ctx, int argc, char **argv)
{
    loong_dataset_merge_params_t p = {.end = 1.0};
    int64_t documents = 0;
    int64_t tokens = 0;
    int option = 0;
    while ((option = options_next(argc, argv, long_options)) != -1) {
        if (option == 'h') {
            fputs(help_text, stdout);
            return LOONG_EXIT_OK;
        }
        if (!take(&p, option)) {
            return LOONG_EXIT_USAGE;
        }
    }
    p.prefixes = (const char *const *)argv + optind;
    p.num_prefixes = argc - optind;
    if (p.output == NULL || p.num_prefixes == 0) {
        return data_usage("merge", "%s is missing",
                          p.output == NULL ? "--output-prefix PREFIX"
                                           : "a data set");
    }
    if (!data_can_write("merge", p.output)) {
        return LOONG_EXIT_CANNOT_WRITE;
    }
    loong_status_t status = loong_dataset_merge(ctx, &p, &documents, &tokens);
    if (status != LOONG_OK) {
        return data_fail(ctx, status);
    }
    printf("%s: %" PRId64 " documents, %" PRId64 " tokens of %" PRId64
           " data sets\n", p.output, documents, tokens, p.num_prefixes);
    return LOONG_EXIT_OK;
}
