/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-data chat: what a run would learn of conversations. Called by
 * loong_data.c. Read loong/chat.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loong/chat.h"
#include "loong/progress.h"
#include "loong/video.h"
#include "loong_data.h"
#include "options.h"

static const char help_text[] =
    "usage: loong-data chat inspect --tokenizer DIR [OPTION]... PATH\n"
    "       loong-data chat check --tokenizer DIR [OPTION]... PATH\n"
    "\n"
    "inspect renders and tokenises the conversations of a file or directory "
    "as\n"
    "a run does, says what was found, and shows the first ones: lines that\n"
    "begin with + are learned. check shows none of them. Both keep what was\n"
    "tokenised for the run, and exit with 1 when records are refused.\n"
    "\n"
    "  --tokenizer DIR         the model's directory, a tokenizer.json, or\n"
    "                          'bytes'\n"
    "  --count N               conversations that are shown (default: 3)\n"
    "  --ids                   show a token a line, with its id\n"
    "\n"
    "As the keys of data.chat in a recipe:\n"
    "\n"
    "  --format NAME           auto, openai, sharegpt, alpaca,\n"
    "                          prompt_completion, preference, kto, vqa,\n"
    "                          caption, text\n"
    "  --template NAME         one of the model's templates, a built-in one, "
    "or\n"
    "                          the path of a .jinja (default: the model's)\n"
    "  --template-kwargs JSON  more variables of the template\n"
    "  --date DAY              that templates show, as 2026-01-31 (default: "
    "today)\n"
    "  --train-on WHAT         assistant, all, last\n"
    "  --train-on-tool-results results of tools are learned as well\n"
    "  --use-chosen            learn what was preferred\n"
    "  --tag NAME=TEXT         of sharegpt, as user=human; may stand often\n"
    "  --cache DIR             where what was tokenised is kept\n"
    "\n"
    "As other keys of data:\n"
    "\n"
    "  --image-token TEXT      records have pictures, for which it stands\n"
    "  --image-root DIR        directory of their relative paths (default: "
    "that\n"
    "                          of the file)\n"
    "  --image-processor FILE  preprocessor_config.json, or a class of those "
    "that\n"
    "                          cut pictures into slices, MiniCPMV4_6\n"
    "  --video-token TEXT      they have videos, for which it stands\n"
    "  --video-processor FILE  video_preprocessor_config.json, or one of the\n"
    "                          classes Qwen2VL, Qwen3VL, InternVL, Glm4v "
    "(default:\n"
    "                          Qwen2VL)\n"
    "  --video-fps NUMBER      frames that are read for each second\n"
    "  --video-frames NUMBER   frames that are read of each video\n"
    "  --decode                refuse records with broken pictures or videos, "
    "all\n"
    "                          of which are decoded, once\n";

enum { MAX_TAGS = 16, ANY_ID = INT32_MAX };

typedef struct options {
    loong_chat_options_t chat;
    const char *tags[MAX_TAGS];
    const char *tokenizer, *image_token, *image_root, *image_processor;
    const char *video_token, *video_processor;
    double video_fps;
    int64_t video_frames;
    int64_t count;
    bool ids;
} options_t;

/* ---- what is shown ------------------------------------------------------- */

/* On one line: control characters as escapes. */
static void print_text(const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\n') {
            fputs("\\n", stdout);
        } else if (c < 0x20 || c == 0x7f) {
            printf("\\x%02x", c);
        } else {
            putchar(c);
        }
    }
}

typedef struct shown {
    const loong_item_t *item;
    const loong_tokenizer_t *tokenizer;
    char *text; /* of one token */
    bool colours;
} shown_t;

/* Learned tokens green, neighbours in two shades. */
static void print_token(const shown_t *s, int64_t t)
{
    static const char *const shades[2][2] = {{"\033[0m", "\033[2m"},
                                             {"\033[32m", "\033[1;32m"}};
    if (s->colours) {
        fputs(shades[s->item->weight[t]][t % 2], stdout);
    }
    print_text(s->text);
    if (s->colours) {
        fputs("\033[0m", stdout);
    }
}

static void print_runs(const shown_t *s)
{
    loong_text_stream_t stream = {0};
    const loong_item_t *item = s->item;
    for (int64_t t = 0; t < item->size[0]; t++) {
        if (t == 0 || item->weight[t] != item->weight[t - 1]) {
            printf("%s%s", t > 0 ? "\n" : "", item->weight[t] ? "+ " : "  ");
        }
        loong_text_stream_put(&stream, s->tokenizer, item->ids[t], s->text);
        print_token(s, t);
    }
    putchar('\n');
}

static void print_ids(const shown_t *s)
{
    loong_text_stream_t stream = {0};
    const loong_item_t *item = s->item;
    for (int64_t t = 0; t < item->size[0]; t++) {
        loong_text_stream_put(&stream, s->tokenizer, item->ids[t], s->text);
        printf("%s%8d ", item->weight[t] ? "+ " : "  ", item->ids[t]);
        print_token(s, t);
        putchar('\n');
    }
}

static loong_status_t print_sample(const options_t *o, const loong_chat_t *chat,
                                   int64_t i, loong_items_t *items)
{
    int64_t learned = 0;
    loong_progress_t screen;
    loong_status_t status = loong_chat_read(chat, i, items);
    if (status != LOONG_OK) {
        return status;
    }
    const loong_tokenizer_t *tokenizer = loong_chat_tokenizer(chat);
    loong_progress_detect(STDOUT_FILENO, &screen);
    shown_t s = {&items->item[0], tokenizer,
                 malloc(loong_text_stream_size(tokenizer) + 1), screen.colour};
    if (s.text == NULL) {
        return LOONG_ERR_MEMORY;
    }
    for (int64_t t = 0; t < s.item->size[0]; t++) {
        learned += s.item->weight[t];
    }
    printf("\n%s: %" PRId64 " tokens, %" PRId64 " learned\n", s.item->name,
           s.item->size[0], learned);
    if (o->ids) {
        print_ids(&s);
    } else {
        print_runs(&s);
    }
    free(s.text);
    for (int k = 1; k < items->count; k++) {
        const loong_item_t *image = &items->item[k];
        printf("  %s at %" PRId64 ": %s, %" PRId64 " x %" PRId64,
               image->frames > 0 ? "video" : "picture", image->at, image->name,
               image->size[0], image->size[1]);
        if (image->frames > 0) {
            printf(", %" PRId64 " frames, %g s for a row of patches",
                   image->frames, image->seconds);
        }
        putchar('\n');
    }
    return LOONG_OK;
}

static void print_counts(const loong_chat_t *chat,
                         const loong_chat_info_t *info)
{
    for (int64_t i = 0; i < info->files; i++) {
        loong_chat_file_t f;
        loong_chat_get_file(chat, i, &f);
        printf("%s: %s, %" PRId64 " records", f.path, f.format, f.records);
        if (f.refused > 0) {
            printf(", %" PRId64 " refused", f.refused);
        }
        if (f.left_out > 0) {
            printf(", %" PRId64 " not preferred", f.left_out);
        }
        putchar('\n');
    }
    printf("template: %s\n",
           info->template_name != NULL ? info->template_name : "none");
    printf("samples: %" PRId64 ", tokens: %" PRId64 ", learned: %" PRId64
           " (%.1f %%)\n",
           info->samples, info->tokens, info->learned,
           100.0 * (double)info->learned /
               (double)(info->tokens > 0 ? info->tokens : 1));
    printf("tokens of a sample: %" PRId64 " to %" PRId64 ", median %" PRId64
           "\n",
           info->shortest, info->longest, info->median);
}

static int print_refused(const char *path)
{
    char line[4096];
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        return LOONG_EXIT_IO;
    }
    printf("\nrefused:\n");
    while (fgets(line, sizeof(line), file) != NULL) {
        fputs(line, stdout);
    }
    fclose(file);
    return LOONG_EXIT_FAILED;
}

static int print_all(loong_context_t *ctx, const options_t *o,
                     const loong_chat_t *chat)
{
    loong_chat_info_t info;
    loong_items_t items = {.ctx = ctx, .vocab_size = ANY_ID, .picture = -1,
                           .sizes = true};
    loong_status_t status = LOONG_OK;
    loong_chat_get_info(chat, &info);
    print_counts(chat, &info);
    for (int64_t i = 0; i < o->count && i < info.samples; i++) {
        if (status == LOONG_OK) {
            status = print_sample(o, chat, i, &items);
        }
    }
    loong_items_free(&items);
    if (status != LOONG_OK) {
        return data_fail(ctx, status);
    }
    return info.refused > 0 ? print_refused(info.refused_file) : LOONG_EXIT_OK;
}

/* ---- the command line ---------------------------------------------------- */

static const struct option long_options[] = {
    {"tokenizer", required_argument, NULL, 't'},
    {"count", required_argument, NULL, 'n'},
    {"ids", no_argument, NULL, 'i'},
    {"format", required_argument, NULL, 'f'},
    {"template", required_argument, NULL, 'm'},
    {"template-kwargs", required_argument, NULL, 'k'},
    {"date", required_argument, NULL, 'D'},
    {"train-on", required_argument, NULL, 'o'},
    {"train-on-tool-results", no_argument, NULL, 'r'},
    {"use-chosen", no_argument, NULL, 'u'},
    {"tag", required_argument, NULL, 'g'},
    {"cache", required_argument, NULL, 'c'},
    {"image-token", required_argument, NULL, 'p'},
    {"image-root", required_argument, NULL, 'd'},
    {"image-processor", required_argument, NULL, 'P'},
    {"video-token", required_argument, NULL, 'v'},
    {"video-processor", required_argument, NULL, 'V'},
    {"video-fps", required_argument, NULL, 'F'},
    {"video-frames", required_argument, NULL, 'N'},
    {"decode", no_argument, NULL, 'b'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

static bool take_video(options_t *o, const char *command, int option)
{
    static const int64_t counts[] = {1, INT64_MAX};
    char *end = NULL;
    switch (option) {
    case 'v':
        o->video_token = optarg;
        return o->chat.images = true;
    case 'V':
        o->video_processor = optarg;
        return true;
    case 'F':
        o->video_fps = strtod(optarg, &end);
        if (*optarg == '\0' || *end != '\0' || !(o->video_fps > 0)) {
            data_usage(command, "--video-fps %s: a number above 0 is expected",
                       optarg);
            return false;
        }
        return true;
    case 'N':
        return data_integer(command, "video-frames", optarg, counts,
                            &o->video_frames);
    default: /* getopt has said what is wrong */
        return false;
    }
}

static bool take(options_t *o, const char *command, int option)
{
    static const int64_t counts[] = {0, INT64_MAX};
    switch (option) {
    case 't':
        o->tokenizer = optarg;
        return true;
    case 'n':
        return data_integer(command, "count", optarg, counts, &o->count);
    case 'i':
        return o->ids = true;
    case 'f':
        o->chat.format = optarg;
        return true;
    case 'm':
        o->chat.template_name = optarg;
        return true;
    case 'k':
        o->chat.template_kwargs = optarg;
        return true;
    case 'D':
        o->chat.date = optarg;
        return true;
    case 'o':
        o->chat.train_on = optarg;
        return true;
    case 'r':
        return o->chat.train_on_tool_results = true;
    case 'u':
        return o->chat.use_chosen = true;
    case 'b':
        return o->chat.decode = true;
    case 'c':
        o->chat.cache = optarg;
        return true;
    case 'p':
        o->image_token = optarg;
        return o->chat.images = true;
    case 'd':
        o->image_root = optarg;
        return true;
    case 'P':
        o->image_processor = optarg;
        return true;
    case 'g':
        if (o->chat.num_tags == MAX_TAGS) {
            data_usage(command, "more than %d times --tag", MAX_TAGS);
            return false;
        }
        o->tags[o->chat.num_tags++] = optarg;
        return true;
    default:
        return take_video(o, command, option);
    }
}

/* A path, not the name of a class. */
static bool is_file(const char *name)
{
    return strchr(name, '.') != NULL || strchr(name, '/') != NULL;
}

static loong_status_t open_pictures(loong_context_t *ctx, const options_t *o,
                                    loong_image_processor_t **pictures_p)
{
    const char *name = o->image_processor;
    return name == NULL ? LOONG_OK
           : is_file(name)
               ? loong_image_processor_create(ctx, name, pictures_p)
               : loong_image_processor_create_default(ctx, name, 0,
                                                      pictures_p);
}

static loong_status_t open_videos(loong_context_t *ctx, const options_t *o,
                                  loong_image_processor_t **videos_p)
{
    const char *name =
        o->video_processor != NULL ? o->video_processor : "Qwen2VL";
    bool file = is_file(name);
    if (o->video_token == NULL) {
        return LOONG_OK;
    }
    loong_status_t status = loong_video_processor_create(
        ctx, file ? name : NULL, file ? "Qwen2VL" : name, videos_p);
    return status == LOONG_OK
               ? loong_video_processor_sample(*videos_p, o->video_fps,
                                              o->video_frames)
               : status;
}

static int show(loong_context_t *ctx, options_t *o, const char *path,
                const loong_image_processor_t *pictures,
                const loong_image_processor_t *videos)
{
    loong_chat_t *chat = NULL;
    o->chat.tags = o->tags;
    o->chat.skip_refused = true; /* they are shown */
    const loong_source_params_t params = {.data = "train",
                                          .path = path,
                                          .tokenizer = o->tokenizer,
                                          .image_token = o->image_token,
                                          .image_root = o->image_root,
                                          .image_processor = pictures,
                                          .video_token = o->video_token,
                                          .video_processor = videos,
                                          .chat = &o->chat};
    loong_status_t status = loong_chat_open(ctx, &params, &chat);
    if (status != LOONG_OK) {
        return data_fail(ctx, status);
    }
    int code = print_all(ctx, o, chat);
    loong_chat_close(&chat);
    if (fflush(stdout) != 0) {
        perror("loong-data chat: writing");
        return LOONG_EXIT_CANNOT_WRITE;
    }
    return code;
}

static int run(loong_context_t *ctx, options_t *o, const char *path)
{
    loong_image_processor_t *pictures = NULL, *videos = NULL;
    loong_status_t status = open_pictures(ctx, o, &pictures);
    if (status == LOONG_OK) {
        status = open_videos(ctx, o, &videos);
    }
    int code = status == LOONG_OK ? show(ctx, o, path, pictures, videos)
                                  : data_fail(ctx, status);
    loong_image_processor_destroy(&pictures);
    loong_image_processor_destroy(&videos);
    return code;
}

static int inspect(loong_context_t *ctx, int64_t count, int argc, char **argv)
{
    options_t o = {.count = count};
    const char *command = count > 0 ? "chat inspect" : "chat check";
    int option = 0;
    while ((option = options_next(argc, argv, long_options)) != -1) {
        if (option == 'h') {
            fputs(help_text, stdout);
            return LOONG_EXIT_OK;
        }
        if (!take(&o, command, option)) {
            return LOONG_EXIT_USAGE;
        }
    }
    if (o.tokenizer == NULL) {
        return data_usage(command, "--tokenizer DIR is missing");
    }
    if (argc - optind != 1) {
        return data_usage(command, "one PATH is expected, found %d",
                          argc - optind);
    }
    return run(ctx, &o, argv[optind]);
}

int data_chat(loong_context_t *ctx, int argc, char **argv)
{
    char name[64]; /* for what getopt says */
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) {
        fputs(help_text, stdout);
        return LOONG_EXIT_OK;
    }
    bool inspecting = strcmp(verb, "inspect") == 0;
    if (inspecting || strcmp(verb, "check") == 0) {
        snprintf(name, sizeof(name), "%s %s", argv[0], verb);
        argv[1] = name;
        return inspect(ctx, inspecting ? 3 : 0, argc - 1, argv + 1);
    }
    return data_usage("chat", "'%s' is neither inspect nor check", verb);
}
