/* SPDX-License-Identifier: Apache-2.0
 *
 * What was tokenised, kept for the next start: a directory whose name is a
 * digest of everything that the tokens depend on. Its report.json is written
 * last. Called by source_class.c. Read chat.h before. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "chat.h"
#include "file.h"
#include "processor.h"
#include "tar.h"

/* Of what is written and of how conversations become tokens: counted up when
 * either changes. */
enum { VERSION = 7 };

/* ---- the name ------------------------------------------------------------ */

static loong_status_t describe(loong_chat_t *chat, loong_text_t *key)
{
    loongi_text_printf(
        key, "version %d\n%016" PRIx64 "\n%d\n", VERSION,
        loong_tokenizer_hash(chat->tokenizer),
        loong_tokenizer_get_role(chat->tokenizer, LOONG_TOKEN_EOS));
    loongi_text_printf(key, "%016" PRIx64 "\n%d %d %d %s\n", chat->form.hash,
                       (int)chat->rules.train_on, chat->rules.tool_results,
                       chat->options.use_chosen,
                       chat->format != NULL ? chat->format->name : "auto");
    for (int i = 0; i < CHAT_TAGS; i++) {
        loongi_text_printf(key, "%s\n", chat->tags[i]);
    }
    if (chat->image_rules.token != NULL || chat->videos != NULL) {
        const chat_image_rules_t *rules = &chat->image_rules;
        char *real = rules->root != NULL ? realpath(rules->root, NULL) : NULL;
        int32_t bounds[2];
        const char *token = rules->token != NULL ? rules->token : "";
        bool bound = loong_tokenizer_image_bounds(
            chat->tokenizer,
            loong_tokenizer_token_to_id(chat->tokenizer, token), bounds);
        loongi_text_printf(key, "%s %d %d %d %s %d %" PRId64 "\n", token,
                           rules->parts, bound ? bounds[0] : -1,
                           bound ? bounds[1] : -1, real != NULL ? real : "",
                           rules->decode,
                           loongi_processor_narrowest(rules->pictures));
        free(real);
    }
    if (loongi_chat_has_slices(&chat->image_rules)) {
        loongi_text_printf(key, "%016" PRIx64 "\n",
                           loongi_processor_hash(chat->image_rules.pictures));
    }
    if (chat->videos != NULL) { /* a build without them refuses them */
        loongi_text_printf(key, "%s %016" PRIx64 " %d\n",
                           chat->image_rules.video_token,
                           loongi_processor_hash(chat->videos),
                           loong_video_loads());
    }
    if (chat->files.energon != NULL) {
        loongi_text_printf(key, "%016" PRIx64 "\n",
                           loongi_chat_energon_hash(chat->files.energon));
    }
    for (int64_t i = 0; i < chat->files.count; i++) {
        const chat_file_t *f = &chat->files.file[i];
        char *real = realpath(f->path, NULL);
        loongi_text_printf(key, "%s %" PRId64 " %" PRId64 ".%09" PRId64 "\n",
                           real != NULL ? real : f->path, f->size, f->changed_s,
                           f->changed_ns);
        if (chat->image_rules.token != NULL || chat->videos != NULL) {
            /* paths of pictures beside it begin as it is named */
            loongi_text_printf(key, "%s\n", f->path);
        }
        free(real);
    }
    return key->status;
}

static loong_status_t find_cache(loong_chat_t *chat, loong_text_t *path)
{
    const char *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (chat->options.cache != NULL) {
        loongi_text_printf(path, "%s", chat->options.cache);
    } else if (xdg != NULL && xdg[0] != '\0') {
        loongi_text_printf(path, "%s/libloong", xdg);
    } else if (home != NULL && home[0] != '\0') {
        loongi_text_printf(path, "%s/.cache/libloong", home);
    } else {
        return LOONG_FAIL(chat->ctx, LOONG_ERR_CONFIG,
                          "data.chat.cache is not set, and neither "
                          "XDG_CACHE_HOME nor HOME says where tokens of "
                          "conversations can be kept");
    }
    return path->status;
}

static loong_status_t join(loong_chat_t *chat, const char *name, char **path_p)
{
    loong_text_t path = loongi_text_begin(chat->ctx);
    loongi_text_printf(&path, "%s/%s", chat->directory, name);
    loong_status_t status = path.status;
    if (status == LOONG_OK) {
        status = loongi_strdup(chat->ctx, path.data, path_p);
    }
    loongi_text_free(&path);
    return status;
}

static loong_status_t name_directory(loong_chat_t *chat)
{
    loong_text_t key = loongi_text_begin(chat->ctx);
    loong_text_t path = loongi_text_begin(chat->ctx);
    loong_status_t status = describe(chat, &key);
    if (status == LOONG_OK) {
        status = find_cache(chat, &path);
    }
    if (status == LOONG_OK) {
        XXH128_hash_t hash = XXH3_128bits(key.data, key.length);
        loongi_text_printf(&path, "/chat-%016" PRIx64 "%016" PRIx64,
                           (uint64_t)hash.high64, (uint64_t)hash.low64);
        status = path.status;
    }
    if (status == LOONG_OK) {
        status = loongi_strdup(chat->ctx, path.data, &chat->directory);
    }
    loongi_text_free(&key);
    loongi_text_free(&path);
    LOONG_TRY(status);
    LOONG_TRY(join(chat, "tokens", &chat->prefix));
    return join(chat, "refused.txt", &chat->refused_file);
}

/* Of the pictures of refused records as files are now. */
static uint64_t stamp_of(const char *paths, int64_t bytes)
{
    uint64_t stamp = 0;
    for (int64_t at = 0; at < bytes; at += (int64_t)strlen(paths + at) + 1) {
        struct stat s;
        int64_t file[4] = {(int64_t)stamp, -1, 0, 0};
        if (loongi_file_part_stat(paths + at, &s)) {
            file[1] = (int64_t)s.st_size;
            file[2] = (int64_t)s.st_mtim.tv_sec;
            file[3] = (int64_t)s.st_mtim.tv_nsec;
        }
        stamp = XXH3_64bits_withSeed(file, sizeof(file), stamp);
    }
    return stamp;
}

/* ---- the report ---------------------------------------------------------- */

static void put_file(loong_text_t *text, const chat_file_t *f, bool first)
{
    loongi_text_printf(
        text,
        "%s\n{\"format\":\"%s\",\"records\":%" PRId64 ",\"samples\":%" PRId64
        ",\"refused\":%" PRId64 ",\"left_out\":%" PRId64 "}",
        first ? "" : ",", f->format != NULL ? f->format->name : "text",
        f->records, f->samples, f->refused, f->left_out);
}

/* One of the files beside the data set. */
static loong_status_t write_file(loong_chat_t *chat, const char *name,
                                 const void *bytes, size_t length)
{
    char *path = NULL;
    LOONG_TRY(join(chat, name, &path));
    loong_status_t status = loongi_file_write(chat->ctx, path, bytes, length);
    loongi_free(chat->ctx, path);
    return status;
}

static loong_status_t write_report(loong_chat_t *chat)
{
    loong_text_t text = loongi_text_begin(chat->ctx);
    int64_t turns = chat->places[chat->samples].turns;
    int64_t images = chat->places[chat->samples].images;
    loongi_text_printf(
        &text,
        "{\"version\":%d,\"samples\":%" PRId64 ",\"turns\":%" PRId64
        ",\"images\":%" PRId64 ",\"parts\":%" PRId64
        ",\"image_bytes\":%" PRId64
        ",\"learned\":%" PRId64 ",\"hash\":\"%016" PRIx64
        "\",\"refused_image_bytes\":%" PRId64
        ",\"refused_images\":\"%016" PRIx64 "\",\"refused\":",
        VERSION, chat->samples, turns, images, chat->num_parts,
        chat->image_bytes, chat->learned,
        chat->hash, chat->refused_image_bytes,
        stamp_of(chat->refused_images, chat->refused_image_bytes));
    loongi_text_json_string(&text, chat->first_refused);
    loongi_text_printf(&text, ",\"files\":[");
    for (int64_t i = 0; i < chat->files.count; i++) {
        put_file(&text, &chat->files.file[i], i == 0);
    }
    loongi_text_printf(&text, "]}\n");
    loong_status_t status = text.status;
    if (status == LOONG_OK) {
        status =
            write_file(chat, "places", chat->places,
                       (size_t)(chat->samples + 1) * sizeof(*chat->places));
    }
    if (status == LOONG_OK) {
        status = write_file(chat, "turns", chat->turns,
                            (size_t)turns * sizeof(*chat->turns));
    }
    if (status == LOONG_OK) {
        status = write_file(chat, "images", chat->images,
                            (size_t)images * sizeof(*chat->images));
    }
    if (status == LOONG_OK) {
        status = write_file(chat, "parts", chat->part_at,
                            (size_t)chat->num_parts * sizeof(*chat->part_at));
    }
    if (status == LOONG_OK) {
        status = write_file(chat, "image_paths", chat->image_paths,
                            (size_t)chat->image_bytes);
    }
    if (status == LOONG_OK) {
        status = write_file(chat, "refused_images", chat->refused_images,
                            (size_t)chat->refused_image_bytes);
    }
    if (status == LOONG_OK) {
        status = write_file(chat, "report.json", text.data, text.length);
    }
    loongi_text_free(&text);
    return status;
}

static int64_t number(const loong_json_t *json, const char *key)
{
    return loongi_json_int(loongi_json_get(json, key));
}

/* Of so many bytes. */
static loong_status_t read_file(loong_chat_t *chat, const char *name,
                                size_t length, void *bytes_p)
{
    char *path = NULL;
    char *bytes = NULL;
    size_t found = 0;
    LOONG_TRY(join(chat, name, &path));
    loong_status_t status = loongi_file_read(chat->ctx, path, &bytes, &found);
    loongi_free(chat->ctx, path);
    LOONG_TRY(status);
    if (found != length) {
        loongi_free(chat->ctx, bytes);
        return LOONG_FAIL(chat->ctx, LOONG_ERR_FORMAT,
                          "'%s' in '%s' is damaged: remove the directory", name,
                          chat->directory);
    }
    *(char **)bytes_p = bytes;
    return LOONG_OK;
}

static loong_status_t take_report(loong_chat_t *chat, const loong_json_t *json)
{
    const loong_json_t *files = loongi_json_get(json, "files");
    LOONG_CHECK(chat->ctx,
                number(json, "version") == VERSION &&
                    loongi_json_count(files) == chat->files.count,
                LOONG_ERR_FORMAT, "'%s' is damaged: remove it",
                chat->directory);
    chat->samples = number(json, "samples");
    chat->learned = number(json, "learned");
    chat->hash =
        strtoull(loongi_json_string(loongi_json_get(json, "hash")), NULL, 16);
    for (int64_t i = 0; i < chat->files.count; i++) {
        const loong_json_t *item = loongi_json_at(files, i);
        chat_file_t *f = &chat->files.file[i];
        f->format = loongi_chat_format_named(
            loongi_json_string(loongi_json_get(item, "format")));
        f->records = number(item, "records");
        f->samples = number(item, "samples");
        f->refused = number(item, "refused");
        f->left_out = number(item, "left_out");
    }
    LOONG_TRY(loongi_strdup(
        chat->ctx, loongi_json_string(loongi_json_get(json, "refused")),
        &chat->first_refused));
    LOONG_TRY(read_file(chat, "places",
                        (size_t)(chat->samples + 1) * sizeof(*chat->places),
                        &chat->places));
    LOONG_TRY(read_file(chat, "images",
                        (size_t)number(json, "images") * sizeof(*chat->images),
                        &chat->images));
    chat->num_parts = number(json, "parts");
    LOONG_TRY(read_file(chat, "parts",
                        (size_t)chat->num_parts * sizeof(*chat->part_at),
                        &chat->part_at));
    LOONG_TRY(read_file(chat, "image_paths",
                        (size_t)number(json, "image_bytes"),
                        &chat->image_paths));
    return read_file(chat, "turns",
                     (size_t)number(json, "turns") * sizeof(*chat->turns),
                     &chat->turns);
}

/* Whether a picture, for which a record was refused, is another one since. */
static loong_status_t check_refused(loong_chat_t *chat,
                                    const loong_json_t *json)
{
    char *paths = NULL;
    int64_t bytes = number(json, "refused_image_bytes");
    uint64_t stamp = strtoull(
        loongi_json_string(loongi_json_get(json, "refused_images")), NULL, 16);
    LOONG_TRY(read_file(chat, "refused_images", (size_t)bytes, &paths));
    chat->found = stamp == stamp_of(paths, bytes);
    loongi_free(chat->ctx, paths);
    return LOONG_OK;
}

static loong_status_t find_report(loong_chat_t *chat)
{
    char *path = NULL;
    loong_json_t *json = NULL;
    LOONG_TRY(join(chat, "report.json", &path));
    chat->found = loongi_file_exists(path);
    loong_status_t status =
        chat->found ? loongi_json_load(chat->ctx, path, &json) : LOONG_OK;
    if (status == LOONG_OK && chat->found) {
        status = check_refused(chat, json);
    }
    if (status == LOONG_OK && chat->found) {
        status = take_report(chat, json);
    }
    loongi_json_destroy(&json);
    loongi_free(chat->ctx, path);
    return status;
}

/* ---- both ---------------------------------------------------------------- */

/* Another process may be at it: its result is found then. */
static loong_status_t lock(loong_chat_t *chat, int *fd_p)
{
    char *path = NULL;
    LOONG_TRY(join(chat, "lock", &path));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    bool locked = fd >= 0 && flock(fd, LOCK_EX) == 0;
    int code = errno;
    loong_status_t status = LOONG_OK;
    if (!locked) {
        status = LOONG_FAIL(chat->ctx, LOONG_ERR_IO, "cannot lock '%s': %s",
                            path, strerror(code));
        if (fd >= 0) {
            close(fd);
        }
    }
    loongi_free(chat->ctx, path);
    *fd_p = fd;
    return status;
}

loong_status_t loongi_chat_keep(loong_chat_t *chat)
{
    int fd = -1;
    LOONG_TRY(name_directory(chat));
    LOONG_TRY(find_report(chat));
    if (chat->found) {
        return LOONG_OK;
    }
    loong_status_t status = loongi_dir_make(chat->ctx, chat->directory);
    if (status != LOONG_OK) {
        loongi_error_note(chat->ctx,
                          "data.chat.cache names another place for tokens of "
                          "conversations");
        return status;
    }
    LOONG_TRY(lock(chat, &fd));
    status = find_report(chat);
    if (status == LOONG_OK && !chat->found) {
        loongi_log(chat->ctx, LOONG_LOG_INFO,
                   "%s: rendering and tokenising its conversations, once",
                   chat->path);
        status = loongi_chat_prepare(chat);
    }
    if (status == LOONG_OK && !chat->found) {
        status = write_report(chat);
    }
    close(fd);
    return status;
}
