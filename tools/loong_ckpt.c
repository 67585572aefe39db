/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-ckpt: the command line, and the commands that only read. Read
 * loong/checkpoint.h and loong_ckpt.h before. */
#include "loong_ckpt.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loong/exit_code.h"
#include "loong/nearest.h"

static const char usage_text[] =
    "usage: loong-ckpt COMMAND ...\n"
    "\n"
    "  import HF_DIR OUT          Hugging Face directory -> native checkpoint\n"
    "                             OUT/step_00000000\n"
    "  export CKPT OUT_HF_DIR     native checkpoint -> Hugging Face directory\n"
    "  merge ADAPTER[=WEIGHT]... [MODEL] OUT\n"
    "                             adapters of peft's -> the model with what\n"
    "                             they add, or without one their sum; -1\n"
    "                             takes out what was merged\n"
    "  convert PATH OUT           the same kind of files in another --dtype\n"
    "  inspect PATH               metadata, tensors, norms\n"
    "  verify PATH                checksums, completeness, shapes, NaN and\n"
    "                             infinity\n"
    "  diff A B                   compare tensors and model keys\n"
    "  map PATH                   which tensor of Hugging Face files holds\n"
    "                             which parameter, as YAML\n"
    "  draft HF_DIR [OUT]         propose OUT/model.yaml, map.yaml and\n"
    "                             recipe.yaml for files of unknown names\n"
    "\n"
    "CKPT is a save directory (its latest step) or one step_... directory;\n"
    "PATH, A and B may be either kind. An import, export or conversion that\n"
    "was interrupted goes on when it is called again. import, inspect, verify\n"
    "and diff take adapters of peft's too.\n"
    "\n"
    "Options, and the commands that have them:\n"
    "  --dtype TYPE        export, merge, convert: fp32, bf16, fp16 or fp64\n"
    "                      (export without it: as saved)\n"
    "  --max-shard-gb N    export, merge, convert: largest file (5)\n"
    "  --tokenizer DIR     export: take the tokenizer's files from here\n"
    "                      (default: those kept in the checkpoint)\n"
    "  --component NAME    export: which part of the model\n"
    "  --as TYPE           export: another model type that can say the same\n"
    "                      model, as llama for an internlm2 (its own)\n"
    "  --ema               export: averages (optimizer.ema.decay) in place\n"
    "                      of parameters\n"
    "  --merge             export: the model with what adapters add to its\n"
    "                      matrices, in place of the adapters alone\n"
    "  --base DIR          import, verify: the model that adapters of peft's\n"
    "                      are beside (default: the directory that they name)\n"
    "  --linear            merge: adds the adapters' matrices (peft's linear)\n"
    "                      in place of what they make (cat)\n"
    "  --svd RANK          merge: one adapter of this rank at most, by the\n"
    "                      largest singular values of what they make (svd)\n"
    "  --bos, --eos, --pad ID  export: token ids (default: those of the run\n"
    "                      that saved, or of --tokenizer)\n"
    "  --map FILE          YAML: names of tensors in place of the family's;\n"
    "                      import, export, verify, diff, map\n"
    "  --model FILE        YAML: keys of the model in place of config.json;\n"
    "                      import, verify, diff, map\n"
    "  --quiet             import, export, merge, convert: no progress\n"
    "\n"
    "docs/convert-your-model.md describes both files.\n"
    "Exit codes: 0 done or equal, 1 different or failed, 2 wrong command\n"
    "line (also an output in the place of a checkpoint, an --as that is no\n"
    "type), 66 input missing, 73 output cannot be written.\n";

static void print_line(void *user, const char *line)
{
    fprintf(user, "%s\n", line);
}

static void print_log(void *user, loong_log_level_t level, const char *line)
{
    (void)user;
    fprintf(stderr, "%s%s\n", level == LOONG_LOG_WARN ? "warning: " : "", line);
}

static int wrong_usage(const char *what, const char *argument)
{
    fprintf(stderr, "loong-ckpt: %s%s%s\n\n%s", what,
            argument[0] != '\0' ? ": " : "", argument, usage_text);
    return LOONG_EXIT_USAGE;
}

/* Of a command or an option; near: the one that was probably meant, or NULL. */
static int unknown(const char *what, const char *name, const char *near)
{
    if (near == NULL) {
        return wrong_usage(what, name);
    }
    fprintf(stderr, "loong-ckpt: %s: %s; did you mean %s?\n", what, name,
            near);
    return LOONG_EXIT_USAGE;
}

int ckpt_finish(loong_context_t *ctx, loong_status_t status, bool writes)
{
    if (status == LOONG_OK) {
        return LOONG_EXIT_OK;
    }
    fprintf(stderr, "loong-ckpt: %s\n%s\n", loong_status_text(status),
            loong_context_error(ctx));
    if (status == LOONG_ERR_NOT_FOUND) {
        return LOONG_EXIT_NO_INPUT;
    }
    if (status == LOONG_ERR_ARG) {
        return LOONG_EXIT_USAGE;
    }
    return status == LOONG_ERR_CANNOT_WRITE ||
                   (status == LOONG_ERR_IO && writes)
               ? LOONG_EXIT_CANNOT_WRITE
               : LOONG_EXIT_FAILED;
}

/* ---- commands that only read ---- */

static int run_inspect(loong_context_t *ctx, const ckpt_arguments_t *a)
{
    return ckpt_finish(
        ctx, loong_checkpoint_inspect(ctx, a->places[0], print_line, stdout),
        false);
}

static int run_verify(loong_context_t *ctx, const ckpt_arguments_t *a)
{
    bool good = false;
    loong_status_t status = loong_checkpoint_verify(
        ctx, a->places[0], &a->names, print_line, stdout, &good);
    return status == LOONG_OK && !good ? LOONG_EXIT_FAILED
                                       : ckpt_finish(ctx, status, false);
}

static int run_diff(loong_context_t *ctx, const ckpt_arguments_t *a)
{
    loong_checkpoint_diff_params_t params = {a->places[0], a->places[1],
                                             a->names, print_line, stdout};
    bool equal = false;
    loong_status_t status = loong_checkpoint_diff(ctx, &params, &equal);
    return status == LOONG_OK && !equal ? LOONG_EXIT_FAILED
                                        : ckpt_finish(ctx, status, false);
}

static int run_map(loong_context_t *ctx, const ckpt_arguments_t *a)
{
    return ckpt_finish(ctx,
                       loong_checkpoint_map(ctx, a->places[0], &a->names,
                                            print_line, stdout),
                       false);
}

static int run_draft(loong_context_t *ctx, const ckpt_arguments_t *a)
{
    bool whole = false;
    loong_checkpoint_draft_params_t params = {a->places[0], a->places[1],
                                              print_line, stdout, &whole};
    loong_status_t status = loong_checkpoint_draft(ctx, &params);
    return status == LOONG_OK && !whole ? LOONG_EXIT_FAILED
                                        : ckpt_finish(ctx, status, true);
}

static const struct command {
    const char *name;
    int places;
    int optional; /* of them */
    const char *wants;
    unsigned options;
    int (*run)(loong_context_t *, const ckpt_arguments_t *);
} commands[] = {
    {"import", 2, 0, "import needs HF_DIR and OUT",
     CKPT_MODEL | CKPT_MAP | CKPT_BASE | CKPT_QUIET, ckpt_import},
    {"export", 2, 0, "export needs CKPT and OUT_HF_DIR",
     CKPT_DTYPE | CKPT_SHARD | CKPT_TOKENS | CKPT_COMPONENT | CKPT_MAP |
         CKPT_AS | CKPT_EMA | CKPT_MERGE | CKPT_QUIET,
     ckpt_export},
    {"merge", CKPT_PLACES, CKPT_PLACES - 2,
     "merge needs ADAPTER and OUT, at most 15 adapters",
     CKPT_DTYPE | CKPT_SHARD | CKPT_LINEAR | CKPT_SVD | CKPT_QUIET,
     ckpt_merge},
    {"convert", 2, 0, "convert needs PATH and OUT",
     CKPT_DTYPE | CKPT_SHARD | CKPT_QUIET, ckpt_convert},
    {"inspect", 1, 0, "inspect needs PATH", 0, run_inspect},
    {"verify", 1, 0, "verify needs PATH", CKPT_MODEL | CKPT_MAP | CKPT_BASE,
     run_verify},
    {"diff", 2, 0, "diff needs A and B", CKPT_MODEL | CKPT_MAP, run_diff},
    {"map", 1, 0, "map needs PATH", CKPT_MODEL | CKPT_MAP, run_map},
    {"draft", 2, 1, "draft needs HF_DIR", 0, run_draft}};

/* ---- the command line ---- */

static bool parse_id(const char *text, int64_t *value_p)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (text[0] == '\0' || *end != '\0' || errno != 0 || value < 0) {
        return false;
    }
    *value_p = value;
    return true;
}

static bool parse_gigabytes(const char *text, int64_t *bytes_p)
{
    char *end = NULL;
    double size = strtod(text, &end);
    *bytes_p = (int64_t)(size * 1e9);
    return *end == '\0' && size > 0 && size < 1e6 && *bytes_p > 0;
}

static bool parse_dtype(const char *text, ckpt_arguments_t *a)
{
    a->convert = true;
    return loong_dtype_from_name(text, &a->dtype) &&
           (a->dtype == LOONG_F64 || a->dtype == LOONG_F32 ||
            a->dtype == LOONG_BF16 || a->dtype == LOONG_F16);
}

/* What each option is, and where its text goes; the value of the others is
 * read by set_option. */
static const struct option {
    const char *name;
    unsigned bit;
    size_t text; /* in ckpt_arguments_t; 0: not a text */
} options[] = {
    {"--quiet", CKPT_QUIET, 0},
    {"--ema", CKPT_EMA, 0},
    {"--merge", CKPT_MERGE, 0},
    {"--linear", CKPT_LINEAR, 0},
    {"--svd", CKPT_SVD, 0},
    {"--dtype", CKPT_DTYPE, 0},
    {"--max-shard-gb", CKPT_SHARD, 0},
    {"--bos", CKPT_TOKENS, 0},
    {"--eos", CKPT_TOKENS, 0},
    {"--pad", CKPT_TOKENS, 0},
    {"--tokenizer", CKPT_TOKENS, offsetof(ckpt_arguments_t, tokenizer)},
    {"--component", CKPT_COMPONENT, offsetof(ckpt_arguments_t, component)},
    {"--as", CKPT_AS, offsetof(ckpt_arguments_t, as)},
    {"--base", CKPT_BASE, offsetof(ckpt_arguments_t, names.base)},
    {"--map", CKPT_MAP, offsetof(ckpt_arguments_t, names.map)},
    {"--model", CKPT_MODEL, offsetof(ckpt_arguments_t, names.model)}};

static const struct option *find_option(const char *name)
{
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (strcmp(options[i].name, name) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

/* False when the value is wrong. */
static bool set_option(ckpt_arguments_t *a, const struct option *o,
                       const char *value)
{
    static const char *const ids[] = {"--bos", "--eos", "--pad"};
    if (o->text > 0) {
        *(const char **)(void *)((char *)a + o->text) = value;
        return value[0] != '\0';
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(o->name, ids[i]) == 0) {
            return parse_id(value, &a->ids[i]);
        }
    }
    if (o->bit == CKPT_SVD) {
        return parse_id(value, &a->svd_rank) && a->svd_rank > 0;
    }
    return o->bit == CKPT_DTYPE ? parse_dtype(value, a)
                                : parse_gigabytes(value, &a->max_shard_bytes);
}

/* An option of the command; LOONG_EXIT_OK, or what the program ends with. */
static int parse_option(const struct command *command, char **argv,
                        ckpt_arguments_t *a, int *used_p)
{
    char what[64];
    const struct option *o = find_option(argv[0]);
    if (o == NULL) {
        return unknown("unknown option", argv[0],
                       loong_nearest(argv[0], options,
                                     sizeof(options) / sizeof(options[0]),
                                     sizeof(options[0])));
    }
    if ((command->options & o->bit) == 0) {
        snprintf(what, sizeof(what), "%s has no option", command->name);
        return wrong_usage(what, argv[0]);
    }
    bool alone = (o->bit & (CKPT_QUIET | CKPT_EMA | CKPT_MERGE |
                            CKPT_LINEAR)) != 0;
    *used_p = alone ? 1 : 2;
    if (alone) {
        a->quiet = a->quiet || o->bit == CKPT_QUIET;
        a->ema = a->ema || o->bit == CKPT_EMA;
        a->merge = a->merge || o->bit == CKPT_MERGE;
        a->linear = a->linear || o->bit == CKPT_LINEAR;
    } else if (argv[1] == NULL) {
        return wrong_usage("no value behind", argv[0]);
    } else if (!set_option(a, o, argv[1])) {
        snprintf(what, sizeof(what), "wrong value of %s%s", argv[0],
                 o->bit == CKPT_SVD ? ", a rank from 1 on is wanted" : "");
        return wrong_usage(what, argv[1]);
    }
    return LOONG_EXIT_OK;
}

/* LOONG_EXIT_OK, or what the program ends with. */
static int parse(const struct command *command, int argc, char **argv,
                 ckpt_arguments_t *a)
{
    int used = 1;
    for (int i = 0; i < argc; i += used) {
        used = 1;
        if (argv[i][0] == '-') {
            int code = parse_option(command, argv + i, a, &used);
            if (code != LOONG_EXIT_OK) {
                return code;
            }
        } else if (a->count < command->places) {
            a->places[a->count++] = argv[i];
        } else {
            return wrong_usage(command->wants, argv[i]);
        }
    }
    return a->count >= command->places - command->optional
               ? LOONG_EXIT_OK
               : wrong_usage(command->wants, "");
}

static int run_command(const struct command *command, int argc, char **argv)
{
    loong_context_params_t params = {print_log, NULL, LOONG_LOG_WARN};
    loong_context_t *ctx = NULL;
    ckpt_arguments_t arguments;
    memset(&arguments, 0, sizeof(arguments));
    arguments.ids[0] = arguments.ids[1] = arguments.ids[2] = -1;
    int code = parse(command, argc, argv, &arguments);
    if (code != LOONG_EXIT_OK) {
        return code;
    }
    if (loong_context_create(&params, &ctx) != LOONG_OK) {
        return LOONG_EXIT_FAILED;
    }
    code = command->run(ctx, &arguments);
    loong_context_destroy(&ctx);
    return code;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        return wrong_usage("no command", "");
    }
    for (int i = 1; i < argc; i++) { /* also behind a command */
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage_text, stdout);
            return LOONG_EXIT_OK;
        }
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return run_command(&commands[i], argc - 2, argv + 2);
        }
    }
    return unknown("unknown command", argv[1],
                   loong_nearest(argv[1], commands,
                                 sizeof(commands) / sizeof(commands[0]),
                                 sizeof(commands[0])));
}
