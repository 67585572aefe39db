/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations as a class of sources. Called through loong_source_class_t and
 * by tools of data. Read chat.h before. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "file.h"
#include "processor.h"

/* ---- options ------------------------------------------------------------- */

static const char *const tag_names[CHAT_TAGS] = {
#define CHAT_TAG_NAME(name_, text_) #name_,
    CHAT_TAG_LIST(CHAT_TAG_NAME)
#undef CHAT_TAG_NAME
};
static const char *const tag_texts[CHAT_TAGS] = {
#define CHAT_TAG_TEXT(name_, text_) text_,
    CHAT_TAG_LIST(CHAT_TAG_TEXT)
#undef CHAT_TAG_TEXT
};

/* "user=human" */
static loong_status_t take_tag(loong_chat_t *chat, const char *text)
{
    const char *equals = strchr(text, '=');
    size_t length = equals != NULL ? (size_t)(equals - text) : 0;
    for (int i = 0; i < CHAT_TAGS && length > 0; i++) {
        if (strlen(tag_names[i]) == length &&
            strncmp(tag_names[i], text, length) == 0 && equals[1] != '\0') {
            char *copy = NULL;
            LOONG_TRY(loongi_arena_strdup(chat->arena, equals + 1, &copy));
            chat->tags[i] = copy;
            return LOONG_OK;
        }
    }
    loong_text_t names = loongi_text_begin(chat->ctx);
    for (int i = 0; i < CHAT_TAGS; i++) {
        loongi_text_printf(&names, "%s%s", i > 0 ? ", " : "", tag_names[i]);
    }
    loong_status_t status =
        LOONG_FAIL(chat->ctx, LOONG_ERR_CONFIG,
                   "data.chat.tags: '%s', must be as user=human, of %s", text,
                   loongi_text_get(&names));
    loongi_text_free(&names);
    return status;
}

static loong_status_t take_train_on(loong_chat_t *chat, const char *text)
{
    static const char *const names[] = {[CHAT_TRAIN_ASSISTANT] = "assistant",
                                        [CHAT_TRAIN_ALL] = "all",
                                        [CHAT_TRAIN_LAST] = "last"};
    for (int i = 0; i < 3; i++) {
        if (text == NULL || strcmp(names[i], text) == 0) {
            chat->rules.train_on = (chat_train_on_t)i;
            return LOONG_OK;
        }
    }
    return LOONG_FAIL(chat->ctx, LOONG_ERR_CONFIG,
                      "data.chat.train_on: '%s', allowed are assistant, all, "
                      "last",
                      text);
}

static loong_status_t take_format(loong_chat_t *chat, const char *name)
{
    if (name == NULL || strcmp(name, "auto") == 0) {
        return LOONG_OK;
    }
    chat->format = loongi_chat_format_named(name);
    if (chat->format != NULL) {
        return LOONG_OK;
    }
    loong_text_t names = loongi_text_begin(chat->ctx);
    for (const chat_format_t *f = loongi_chat_formats; f->name != NULL; f++) {
        loongi_text_printf(&names, ", %s", f->name);
    }
    loong_status_t status =
        LOONG_FAIL(chat->ctx, LOONG_ERR_CONFIG,
                   "data.chat.format: '%s', allowed are auto%s", name,
                   loongi_text_get(&names));
    loongi_text_free(&names);
    return status;
}

static loong_status_t take_options(loong_chat_t *chat)
{
    const loong_chat_options_t *o = &chat->options;
    for (int i = 0; i < CHAT_TAGS; i++) {
        chat->tags[i] = tag_texts[i];
    }
    for (int64_t i = 0; i < o->num_tags; i++) {
        LOONG_TRY(take_tag(chat, o->tags[i]));
    }
    chat->rules.tool_results = o->train_on_tool_results;
    LOONG_TRY(take_train_on(chat, o->train_on));
    return take_format(chat, o->format);
}

/* ---- opening ------------------------------------------------------------- */

static loong_status_t check_refused(loong_chat_t *chat)
{
    loong_chat_info_t info;
    loong_chat_get_info(chat, &info);
    chat->info.records = info.records;
    chat->info.refused = info.refused;
    chat->info.refused_file = chat->refused_file;
    bool rest = chat->options.skip_refused && chat->samples > 0;
    if (info.refused == 0 || rest) {
        return LOONG_OK;
    }
    loong_status_t status = LOONG_FAIL(
        chat->ctx, LOONG_ERR_FORMAT,
        "%s: refused records: %" PRId64 " of %" PRId64
        "%s; they are listed in %s, the first:",
        chat->path, info.refused, info.records,
        chat->samples > 0 ? ", which data.chat.skip_refused leaves out" : "",
        chat->refused_file);
    for (const char *line = chat->first_refused; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        loongi_error_note(chat->ctx, "%.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
    return status;
}

/* Whole conversations, from the first of the share on. */
static loong_status_t take_share(loong_chat_t *chat,
                                 const loong_source_params_t *p)
{
    int64_t end = chat->samples;
    if (p->split_end > 0) {
        chat->first = (int64_t)floor(p->split_begin * (double)chat->samples);
        end = (int64_t)floor(p->split_end * (double)chat->samples);
    }
    chat->info.path = chat->path;
    chat->info.samples = end - chat->first;
    chat->info.hash = chat->hash;
    LOONG_CHECK(chat->ctx, chat->samples > 0, LOONG_ERR_FORMAT,
                "data '%s': there is no conversation in '%s'", p->data,
                p->path);
    LOONG_CHECK(chat->ctx, chat->info.samples > 0, LOONG_ERR_FORMAT,
                "data '%s': '%s' has no conversations in this share of its "
                "%" PRId64,
                p->data, p->path, chat->samples);
    return LOONG_OK;
}

/* Videos alone need no token of pictures, but where each of their frames is as
 * one. */
static bool needs_image_token(const loong_source_params_t *p)
{
    return p->image_token != NULL || p->video_processor == NULL ||
           loong_video_as_pictures(p->video_processor);
}

/* The tokens that stand around slices. */
static loong_status_t check_slices(const loong_chat_t *chat,
                                   const loong_source_params_t *p)
{
    static const char *const tokens[] = {"<image>",    "</image>",
                                         "<slice>",    "</slice>",
                                         "<image_id>", "</image_id>"};
    const loong_image_processor_t *of[] = {
        loongi_chat_has_slices(&chat->image_rules) ? chat->image_rules.pictures
                                                   : NULL,
        chat->videos};
    for (int k = 0; k < LOONG_COUNT_OF(of); k++) {
        bool sliced =
            of[k] != NULL && loong_image_processor_is_sliced(of[k]);
        int count = !sliced           ? 0
                    : of[k]->numbered ? LOONG_COUNT_OF(tokens)
                                      : 4;
        for (int i = 0; i < count; i++) {
            LOONG_CHECK(chat->ctx,
                        loong_tokenizer_token_to_id(chat->tokenizer,
                                                    tokens[i]) >= 0,
                        LOONG_ERR_CONFIG,
                        "data '%s': the tokenizer '%s' has no token '%s', "
                        "which stands around pictures in slices",
                        p->data, p->tokenizer, tokens[i]);
        }
    }
    return LOONG_OK;
}

/* The model's own template reads parts where it knows of pictures. */
static loong_status_t open_images(loong_chat_t *chat,
                                  const loong_source_params_t *p)
{
    if (p->chat == NULL || !p->chat->images) {
        return LOONG_OK;
    }
    LOONG_CHECK(chat->ctx,
                !needs_image_token(p) ||
                    (p->image_token != NULL &&
                     loong_tokenizer_token_to_id(chat->tokenizer,
                                                 p->image_token) >= 0),
                LOONG_ERR_CONFIG,
                "data '%s': the tokenizer '%s' has no token '%s', by which "
                "data.image_token says where pictures stand",
                p->data, p->tokenizer,
                p->image_token != NULL ? p->image_token : "");
    chat->image_rules =
        (chat_image_rules_t){p->image_token,
                             p->image_root,
                             chat->form.knows_images,
                             p->image_processor,
                             p->chat->decode,
                             p->video_processor,
                             p->video_token};
    chat->videos = p->video_processor;
    LOONG_TRY(check_slices(chat, p));
    LOONG_CHECK(chat->ctx,
                p->image_root == NULL || loongi_dir_exists(p->image_root),
                LOONG_ERR_CONFIG,
                "data '%s': data.image_root: '%s' is no directory", p->data,
                p->image_root);
    return LOONG_OK;
}

static loong_status_t open_all(loong_chat_t *chat,
                               const loong_source_params_t *p)
{
    loong_context_t *ctx = chat->ctx;
    LOONG_TRY(loongi_arena_create(ctx, "tags", &chat->arena));
    LOONG_TRY(loongi_strdup(ctx, p->path, &chat->path));
    chat->files.ctx = ctx;
    chat->options = p->chat != NULL ? *p->chat : (loong_chat_options_t){0};
    LOONG_TRY(take_options(chat));
    LOONG_CHECK(ctx, p->tokenizer != NULL, LOONG_ERR_CONFIG,
                "data '%s': the conversations of '%s' need data.tokenizer",
                p->data, p->path);
    /* A share of what is trained on is no other part. */
    const char *part = p->split_end > 0 ? "train" : p->data;
    chat->files.exact = p->part != NULL;
    LOONG_TRY(loongi_chat_list(&chat->files, p->path,
                               p->part != NULL ? p->part : part));
    LOONG_TRY(strcmp(p->tokenizer, "bytes") == 0
                  ? loong_tokenizer_bytes(ctx, &chat->tokenizer)
                  : loong_tokenizer_load(ctx, p->tokenizer, &chat->tokenizer));
    LOONG_TRY(loongi_chat_template_open(ctx, p->tokenizer, &chat->options,
                                        &chat->form));
    LOONG_TRY(open_images(chat, p));
    LOONG_TRY(loongi_chat_keep(chat));
    chat->info.most_frames = loongi_chat_most_frames(chat);
    LOONG_TRY(check_refused(chat));
    LOONG_TRY(take_share(chat, p));
    return loong_dataset_create(ctx, chat->prefix, &chat->dataset);
}

loong_status_t loong_chat_open(loong_context_t *ctx,
                               const loong_source_params_t *params,
                               loong_chat_t **chat_p)
{
    loong_chat_t *chat = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*chat), "conversations", &chat));
    chat->ctx = ctx;
    loong_status_t status = open_all(chat, params);
    chat->options = (loong_chat_options_t){0}; /* they were borrowed */
    chat->image_rules = (chat_image_rules_t){0};
    if (status != LOONG_OK) {
        loong_chat_close(&chat);
        return status;
    }
    *chat_p = chat;
    return LOONG_OK;
}

void loong_chat_close(loong_chat_t **chat_p)
{
    loong_chat_t *chat = *chat_p;
    if (chat == NULL) {
        return;
    }
    loong_dataset_destroy(&chat->dataset);
    loongi_chat_template_close(&chat->form);
    loong_tokenizer_destroy(&chat->tokenizer);
    loongi_chat_files_free(&chat->files);
    loongi_free(chat->ctx, chat->places);
    loongi_free(chat->ctx, chat->turns);
    loongi_free(chat->ctx, chat->images);
    loongi_free(chat->ctx, chat->part_at);
    loongi_free(chat->ctx, chat->image_paths);
    loongi_free(chat->ctx, chat->refused_images);
    loongi_free(chat->ctx, chat->first_refused);
    loongi_free(chat->ctx, chat->refused_file);
    loongi_free(chat->ctx, chat->prefix);
    loongi_free(chat->ctx, chat->directory);
    loongi_free(chat->ctx, chat->path);
    loongi_arena_destroy(&chat->arena);
    loongi_free(chat->ctx, chat);
    *chat_p = NULL;
}

/* ---- what is there ------------------------------------------------------- */

static int64_t length_of(const loong_chat_t *chat, int64_t i)
{
    int64_t document = chat->first + i;
    return loong_dataset_get_start(chat->dataset, document + 1) -
           loong_dataset_get_start(chat->dataset, document);
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void measure(const loong_chat_t *chat, loong_chat_info_t *info)
{
    int64_t *lengths =
        malloc((size_t)LOONG_MAX(info->samples, 1) * sizeof(*lengths));
    for (int64_t i = 0; lengths != NULL && i < info->samples; i++) {
        lengths[i] = length_of(chat, i);
        info->tokens += lengths[i];
    }
    if (lengths != NULL && info->samples > 0) {
        qsort(lengths, (size_t)info->samples, sizeof(*lengths), by_size);
        info->shortest = lengths[0];
        info->median = lengths[info->samples / 2];
        info->longest = lengths[info->samples - 1];
    }
    free(lengths);
}

void loong_chat_get_info(const loong_chat_t *chat, loong_chat_info_t *info)
{
    memset(info, 0, sizeof(*info));
    info->files = chat->files.count;
    info->samples = chat->info.samples;
    for (int64_t i = 0; i < chat->files.count; i++) {
        const chat_file_t *f = &chat->files.file[i];
        info->records += f->records;
        info->refused += f->refused;
        info->left_out += f->left_out;
    }
    info->learned = chat->learned;
    info->template_name = chat->form.name;
    info->refused_file = chat->refused_file;
    info->cache = chat->directory;
    info->found = chat->found;
    if (chat->dataset != NULL) {
        measure(chat, info);
    }
}

void loong_chat_get_file(const loong_chat_t *chat, int64_t file,
                         loong_chat_file_t *info)
{
    const chat_file_t *f = &chat->files.file[file];
    *info = (loong_chat_file_t){
        f->path,    f->format != NULL ? f->format->name : "text",
        f->records, f->samples,
        f->refused, f->left_out};
}

const loong_tokenizer_t *loong_chat_tokenizer(const loong_chat_t *chat)
{
    return chat->tokenizer;
}

/* ---- samples ------------------------------------------------------------- */

/* The items without contents, and room for those of `count` tokens and `more`
 * bytes. */
static loong_status_t list_items(const loong_chat_t *chat, int64_t i,
                                 int64_t count, size_t more,
                                 loong_items_t *items)
{
    enum { NUMBER = 24, PADDING = 64 };
    const chat_place_t *place = &chat->places[chat->first + i];
    const char *path = chat->files.file[place->file].path;
    size_t name = strlen(path) + NUMBER;
    LOONG_TRY(loong_items_begin(items,
                                name + 4 * PADDING + more +
                                    (size_t)count * (sizeof(int32_t) + 2)));
    char *text = loong_items_take(items, name);
    snprintf(text, name, "%s:%" PRId64, path, place->line);
    items->item[0] =
        (loong_item_t){.type = LOONG_ITEM_TOKENS,
                       .name = text,
                       .size = {length_of(chat, i), place->learned}};
    items->count = 1;
    loongi_chat_list_images(chat, i, items);
    return LOONG_OK;
}

/* Contents of the text. */
static loong_status_t read_text(const loong_chat_t *chat, int64_t i,
                                loong_items_t *items)
{
    int64_t count = length_of(chat, i);
    int64_t first = loong_dataset_get_start(chat->dataset, chat->first + i);
    loong_item_t *item = &items->item[0];
    item->ids = loong_items_take(items, (size_t)count * sizeof(*item->ids));
    item->weight = loong_items_take(items, (size_t)count);
    item->starts = loong_items_take(items, (size_t)count);
    memset(item->starts, 0, (size_t)count);
    item->starts[0] = LOONG_START_DOCUMENT;
    const chat_place_t *place = &chat->places[chat->first + i];
    for (int64_t k = place->turns; k < place[1].turns; k++) {
        item->starts[chat->turns[k]] |= LOONG_START_TURN;
    }
    LOONG_TRY(loong_dataset_read(chat->dataset, first, count, INT32_MAX,
                                 item->ids));
    for (int64_t t = 0; t < count; t++) {
        LOONG_CHECK(items->ctx, item->ids[t] < items->vocab_size,
                    LOONG_ERR_FORMAT,
                    "%s: token %d; the tokenizer has %" PRId64 " ids, the "
                    "model knows %" PRId64,
                    item->name, item->ids[t],
                    loong_tokenizer_get_vocab_size(chat->tokenizer),
                    items->vocab_size);
    }
    return loong_dataset_read_mask(chat->dataset, first, count, item->weight);
}

loong_status_t loong_chat_read(const loong_chat_t *chat, int64_t i,
                               loong_items_t *items)
{
    loong_image_sample_t images[LOONG_MAX_ITEMS] = {{0}};
    bool text = items->picture <= 0;
    size_t more = 0;
    LOONG_TRY(loongi_chat_read_images(chat, i, items, images, &more));
    loong_status_t status =
        list_items(chat, i, text ? length_of(chat, i) : 0, more, items);
    if (status == LOONG_OK && text) {
        status = read_text(chat, i, items);
    }
    if (status == LOONG_OK) {
        status = loongi_chat_fill_images(chat, i, images, items);
    }
    for (int k = 0; k < LOONG_MAX_ITEMS; k++) {
        loong_image_sample_free(items->ctx, &images[k]);
    }
    return status;
}

static loong_status_t open_source(loong_context_t *ctx,
                                  const loong_source_params_t *params,
                                  void **source_p)
{
    loong_chat_t *chat = NULL;
    LOONG_TRY(loong_chat_open(ctx, params, &chat));
    *source_p = chat;
    return LOONG_OK;
}

static loong_status_t open_with_images(loong_context_t *ctx,
                                       const loong_source_params_t *params,
                                       void **source_p)
{
    loong_source_params_t own = *params;
    loong_chat_options_t options =
        params->chat != NULL ? *params->chat : (loong_chat_options_t){0};
    options.images = true;
    own.chat = &options;
    return open_source(ctx, &own, source_p);
}

static void close_source(void *source)
{
    loong_chat_t *chat = source;
    loong_chat_close(&chat);
}

static void get_info(const void *source, loong_source_info_t *info)
{
    *info = ((const loong_chat_t *)source)->info;
}

static loong_status_t read_source(const void *source, int64_t i,
                                  loong_items_t *items)
{
    return loong_chat_read(source, i, items);
}

static loong_status_t peek(const void *source, int64_t i, loong_items_t *items)
{
    return list_items(source, i, 0, 0, items);
}

#define CHAT(name_, open_, packs_, concurrent_)                               \
    {                                                                         \
        .struct_size = sizeof(loong_source_class_t), .name = name_,           \
        .concurrent = concurrent_, .open = open_, .close = close_source,      \
        .get_info = get_info, .read = read_source, .peek = peek,              \
        .packs = packs_                                                       \
    }
const loong_source_class_t loongi_chat_source =
    CHAT("chat", open_source, true, false);
/* Pictures are decoded while a step runs. */
const loong_source_class_t loongi_image_chat_source =
    CHAT("image_chat", open_with_images, false, true);
