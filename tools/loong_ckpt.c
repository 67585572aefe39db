/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-ckpt: import, export, inspect and compare model files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loong/checkpoint.h"
#include "loong/exit_code.h"
#include "loong/tokenizer.h"

static const char usage_text[] =
    "usage: loong-ckpt COMMAND ...\n"
    "\n"
    "  import HF_DIR OUT          Hugging Face directory -> native checkpoint\n"
    "                             OUT/step_00000000\n"
    "  export CKPT OUT_HF_DIR     native checkpoint -> Hugging Face directory\n"
    "      --dtype TYPE           fp32, bf16, fp16 or fp64 (default: as "
    "saved)\n"
    "      --max-shard-gb N       largest file (default 5)\n"
    "      --tokenizer DIR        take the tokenizer's files from here\n"
    "                             (default: those kept in the checkpoint)\n"
    "      --component NAME       which part of the model (foundation)\n"
    "      --bos, --eos, --pad ID token ids (default: those of the run that\n"
    "                             saved, or of --tokenizer)\n"
    "  inspect PATH [--verify]    metadata, tensors, norms; check checksums\n"
    "  diff A B                   compare tensors and model keys\n"
    "\n"
    "CKPT is a save directory (its latest step) or one step_... directory;\n"
    "PATH, A and B may be either kind.\n"
    "Exit codes: 0 done or equal, 1 different or failed, 2 wrong command\n"
    "line, 66 input missing, 73 output cannot be written.\n";

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

/* What failed decides: the input of a tool, or the output it writes. */
static int finish(loong_context_t *ctx, loong_status_t status, bool writes)
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
    return status == LOONG_ERR_IO && writes ? LOONG_EXIT_CANNOT_WRITE
                                            : LOONG_EXIT_FAILED;
}

static int run_import(loong_context_t *ctx, int argc, char **argv)
{
    loong_checkpoint_import_params_t params;
    memset(&params, 0, sizeof(params));
    if (argc != 2) {
        return wrong_usage("import needs HF_DIR and OUT", "");
    }
    params.hf_dir = argv[0];
    params.save_dir = argv[1];
    return finish(ctx, loong_checkpoint_import(ctx, &params), true);
}

static bool parse_int(const char *text, int64_t low, int64_t *value_p)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (text[0] == '\0' || *end != '\0' || errno != 0 || value < low) {
        return false;
    }
    *value_p = value;
    return true;
}

/* Sets one option; false when the name or the value is wrong. */
static bool set_option(loong_checkpoint_export_params_t *params,
                       const char *name, const char *value)
{
    int64_t number = 0;
    if (strcmp(name, "--dtype") == 0) {
        params->convert = true;
        return loong_dtype_from_name(value, &params->dtype) &&
               (params->dtype == LOONG_F64 || params->dtype == LOONG_F32 ||
                params->dtype == LOONG_BF16 || params->dtype == LOONG_F16);
    }
    if (strcmp(name, "--max-shard-gb") == 0) {
        char *end = NULL;
        double size = strtod(value, &end);
        params->max_shard_bytes = (int64_t)(size * 1e9);
        return *end == '\0' && size > 0 && size < 1e6 &&
               params->max_shard_bytes > 0;
    }
    if (strcmp(name, "--tokenizer") == 0) {
        params->tokenizer_dir = value;
        return true;
    }
    if (strcmp(name, "--component") == 0) {
        params->component = value;
        return value[0] != '\0';
    }
    if (strcmp(name, "--bos") == 0 && parse_int(value, 0, &number)) {
        params->bos_token_id = number;
        return true;
    }
    if (strcmp(name, "--eos") == 0 && parse_int(value, 0, &number)) {
        params->eos_token_id = number;
        return true;
    }
    if (strcmp(name, "--pad") == 0 && parse_int(value, 0, &number)) {
        params->pad_token_id = number;
        return true;
    }
    return false;
}

static void default_id(const loong_tokenizer_t *tokenizer,
                       loong_token_role_t role, int64_t *id)
{
    if (*id < 0) {
        *id = loong_tokenizer_get_role(tokenizer, role);
    }
}

/* Ids that were not given, from the tokenizer that was. */
static void read_ids(loong_context_t *ctx,
                     loong_checkpoint_export_params_t *params)
{
    loong_tokenizer_t *tokenizer = NULL;
    if (params->tokenizer_dir == NULL) {
        return;
    }
    if (loong_tokenizer_load(ctx, params->tokenizer_dir, &tokenizer) !=
        LOONG_OK) {
        fprintf(stderr, "warning: no token ids from %s: %s\n",
                params->tokenizer_dir, loong_context_error(ctx));
        loong_context_clear_error(ctx);
        return;
    }
    default_id(tokenizer, LOONG_TOKEN_BOS, &params->bos_token_id);
    default_id(tokenizer, LOONG_TOKEN_EOS, &params->eos_token_id);
    default_id(tokenizer, LOONG_TOKEN_EOD, &params->eos_token_id);
    default_id(tokenizer, LOONG_TOKEN_PAD, &params->pad_token_id);
    loong_tokenizer_destroy(&tokenizer);
}

static int run_export(loong_context_t *ctx, int argc, char **argv)
{
    loong_checkpoint_export_params_t params;
    int places = 0;
    memset(&params, 0, sizeof(params));
    params.bos_token_id = params.eos_token_id = params.pad_token_id = -1;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0) {
            if (i + 1 == argc || !set_option(&params, argv[i], argv[i + 1])) {
                return wrong_usage("wrong option or value", argv[i]);
            }
            i++;
        } else if (places == 0) {
            params.checkpoint = argv[i];
            places++;
        } else {
            params.out_dir = argv[i];
            places++;
        }
    }
    if (places != 2) {
        return wrong_usage("export needs CKPT and OUT_HF_DIR", "");
    }
    read_ids(ctx, &params);
    return finish(ctx, loong_checkpoint_export(ctx, &params), true);
}

static int run_inspect(loong_context_t *ctx, int argc, char **argv)
{
    const char *path = NULL;
    bool verify = false;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--verify") == 0) {
            verify = true;
        } else if (argv[i][0] == '-' || path != NULL) {
            return wrong_usage("unknown argument", argv[i]);
        } else {
            path = argv[i];
        }
    }
    if (path == NULL) {
        return wrong_usage("inspect needs PATH", "");
    }
    return finish(
        ctx, loong_checkpoint_inspect(ctx, path, verify, print_line, stdout),
        false);
}

static int run_diff(loong_context_t *ctx, int argc, char **argv)
{
    bool equal = false;
    if (argc != 2) {
        return wrong_usage("diff needs A and B", "");
    }
    loong_status_t status = loong_checkpoint_diff(ctx, argv[0], argv[1],
                                                  print_line, stdout, &equal);
    if (status == LOONG_OK && !equal) {
        return LOONG_EXIT_FAILED;
    }
    return finish(ctx, status, false);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(loong_context_t *, int, char **);
    } commands[] = {{"import", run_import},
                    {"export", run_export},
                    {"inspect", run_inspect},
                    {"diff", run_diff}};
    loong_context_params_t params = {print_log, NULL, LOONG_LOG_WARN};
    loong_context_t *ctx = NULL;
    if (argc < 2) {
        return wrong_usage("no command", "");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(usage_text, stdout);
        return LOONG_EXIT_OK;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            if (loong_context_create(&params, &ctx) != LOONG_OK) {
                return LOONG_EXIT_FAILED;
            }
            int code = commands[i].run(ctx, argc - 2, argv + 2);
            loong_context_destroy(&ctx);
            return code;
        }
    }
    return wrong_usage("unknown command", argv[1]);
}
