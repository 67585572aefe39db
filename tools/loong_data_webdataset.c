/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-data webdataset: records with pictures and videos as tar shards. Called
 * by loong_data.c. Read loong/webdataset.h before. */
#include "loong/webdataset.h"

#include <inttypes.h>
#include <stdio.h>

#include "loong_data.h"
#include "options.h"

static const char help_text[] =
    "usage: loong-data webdataset --out DIR [OPTION]... RECORDS...\n"
    "\n"
    "Writes conversations and captions, with the pictures and videos that "
    "they\n"
    "name, as tar shards that a recipe and megatron-energon read: DIR/shard-\n"
    "000000.tar and so on, and DIR/.nv-meta.\n"
    "\n"
    "  --out DIR             a directory that is absent or empty\n"
    "  --image-root DIR      of relative paths (default: that of the record)\n"
    "  --maxcount N          samples of a shard (default: 10000)\n"
    "  --maxsize BYTES       a shard of so many gets no more samples "
    "(default:\n"
    "                        3000000000)\n"
    "  --split NAME=SHARE... parts, as train=0.9,val=0.1, of whole shards in "
    "their\n"
    "                        order; what each has is told (default: "
    "train=1)\n";

static const struct option long_options[] = {
    {"out", required_argument, NULL, 'o'},
    {"image-root", required_argument, NULL, 'd'},
    {"maxcount", required_argument, NULL, 'n'},
    {"maxsize", required_argument, NULL, 's'},
    {"split", required_argument, NULL, 'p'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

/* One option; false when it is wrong, which has been said. */
static bool take(loong_webdataset_params_t *p, int option)
{
    static const int64_t counts[] = {1, INT64_MAX};
    switch (option) {
    case 'o':
        p->out = optarg;
        return true;
    case 'd':
        p->image_root = optarg;
        return true;
    case 'n':
        return data_integer("webdataset", "maxcount", optarg, counts,
                            &p->max_count);
    case 's':
        return data_integer("webdataset", "maxsize", optarg, counts,
                            &p->max_size);
    case 'p':
        p->split = optarg;
        return true;
    default: /* getopt has said what is wrong */
        return false;
    }
}

int data_webdataset(loong_context_t *ctx, int argc, char **argv)
{
    loong_webdataset_params_t p = {.num_paths = 0};
    loong_webdataset_info_t info;
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
    p.paths = (const char *const *)argv + optind;
    p.num_paths = argc - optind;
    if (p.out == NULL || p.num_paths == 0) {
        return data_usage("webdataset", "%s is missing",
                          p.out == NULL ? "--out DIR" : "a file of records");
    }
    if (!data_can_write("webdataset", p.out)) {
        return LOONG_EXIT_CANNOT_WRITE;
    }
    loong_status_t status = loong_webdataset_write(ctx, &p, &info);
    if (status != LOONG_OK) {
        return data_fail(ctx, status);
    }
    printf("%s: %" PRId64 " samples with %" PRId64 " pictures and videos in "
           "%" PRId64 " shards, %" PRId64 " bytes\n",
           p.out, info.samples, info.files, info.shards, info.bytes);
    return LOONG_EXIT_OK;
}
