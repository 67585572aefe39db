/* SPDX-License-Identifier: Apache-2.0
 *
 * A source of texts with pictures in them: a file of JSON records, each with
 * "text", or "prompt" and "completion", of which the first is not learned, and
 * with "images" (a list of paths) or "image" (one), relative to the file. The
 * image token of the tokenizer stands in the text once for each picture. */
#ifndef LOONG_IMAGE_TEXT_H
#define LOONG_IMAGE_TEXT_H

#include <pthread.h>

#include "base.h"
#include "json.h"
#include "loong/source.h"
#include "loong/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const loong_source_class_t loongi_image_text_source;

/* A record that was parsed; texts are borrowed from json. */
typedef struct text_record {
    loong_json_t *json;
    int num_parts;
    struct {
        const char *text;
        size_t length;
        bool learned;
    } part[2];
    int64_t num_images;
    const loong_json_t *images; /* one path, or a list of them */
} text_record_t;

/* `where` names it in errors ("a.jsonl:7"). Errors: LOONG_ERR_FORMAT. */
LOONG_NODISCARD loong_status_t loongi_text_record_parse(loong_context_t *ctx,
                                                        const char *where,
                                                        const char *bytes,
                                                        size_t length,
                                                        text_record_t *record);
const char *loongi_text_record_image(const text_record_t *record, int64_t k);

/* What one thread needs to encode a record. */
typedef struct text_worker {
    loong_context_t *ctx;
    loong_text_encoder_t *encoder;
    int64_t count; /* tokens of the record */
    int32_t *ids;
    uint8_t *learned;
    int64_t ids_room, learned_room;
    struct text_worker *next; /* of those that wait */
} text_worker_t;

typedef struct text_entry {
    int64_t offset, length, line; /* of the record in the file */
    int64_t tokens;
    int64_t first_image; /* of all; they end where the next entry's begin */
} text_entry_t;

typedef struct image_text {
    loong_context_t *ctx;
    char *path;
    size_t directory; /* bytes of the path with its last '/' */
    char *root;       /* of relative paths, in its place; or NULL */
    int fd;
    loong_tokenizer_t *tokenizer;
    const char *image_token; /* borrowed from the tokenizer */
    int32_t image_id;
    int32_t begin_id, end_id; /* around a text; -1: none */
    int64_t count, room;
    text_entry_t *entries; /* and one behind the last */
    int64_t num_images, images_room;
    int64_t *at;         /* of each picture: its token in the text */
    int64_t (*sizes)[2]; /* likewise: width and height; 0: not known yet */
    int64_t first;       /* record that is sample 0 */
    loong_source_info_t info;
    pthread_mutex_t lock; /* of workers and sizes */
    text_worker_t *workers;
} image_text_t;

LOONG_NODISCARD loong_status_t
loongi_text_worker_create(const image_text_t *s, text_worker_t **worker_p);
void loongi_text_worker_destroy(text_worker_t **worker);
/* Fills the worker's ids. Errors go to ctx. */
LOONG_NODISCARD loong_status_t
loongi_text_encode_record(loong_context_t *ctx, const image_text_t *s,
                          const text_record_t *record, text_worker_t *worker);

/* Appends the path of picture k. */
void loongi_image_text_path(const image_text_t *s, const text_record_t *record,
                            int64_t k, loong_text_t *path);

/* Opens tokenizer and file, and checks every record of it. */
LOONG_NODISCARD loong_status_t
loongi_image_text_open(image_text_t *s, const loong_source_params_t *params);

#ifdef __cplusplus
}
#endif

#endif
