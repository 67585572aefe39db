/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a source of conversations. A record goes through: reader.c (a
 * file into records) -> format.c, convert.c (a record into messages, or a
 * text) -> render.c (messages into a text, by the template of template.c, and
 * the bytes of it that are learned) -> encode.c (tokens and their weights).
 * prepare.c does so with all records and keeps the result, which
 * source_class.c reads. */
#ifndef LOONG_CHAT_IMPL_H
#define LOONG_CHAT_IMPL_H


#include "base.h"
#include "chat_images.h"
#include "chat_records.h"
#include "jinja.h"
#include "json.h"
#include "loong/chat.h"
#include "loong/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const loong_source_class_t loongi_chat_source;
/* "image_chat": the same with pictures. */
extern const loong_source_class_t loongi_image_chat_source;

/* ---- conversations ------------------------------------------------------- */

typedef enum chat_role {
    CHAT_SYSTEM,
    CHAT_USER,
    CHAT_ASSISTANT,
    CHAT_TOOL
} chat_role_t;

typedef struct chat_message {
    chat_role_t role;
    bool may_learn; /* no weight of 0, no part of a prompt */
    bool odd;       /* templates may not know its role */
} chat_message_t;

/* X(key, what it is called when nothing is said) */
#define CHAT_TAG_LIST(X)         \
    X(messages, "conversations") \
    X(role, "from")              \
    X(content, "value")          \
    X(user, "human")             \
    X(assistant, "gpt")          \
    X(system, "system")          \
    X(tool, "observation")       \
    X(function, "function_call")

typedef enum chat_tag {
#define CHAT_TAG_ENUM(name_, text_) CHAT_TAG_##name_,
    CHAT_TAG_LIST(CHAT_TAG_ENUM)
#undef CHAT_TAG_ENUM
        CHAT_TAGS
} chat_tag_t;

/* What a record says. Zero-initialise once; its memory is used again. */
typedef struct chat_conversation {
    loong_context_t *ctx;
    chat_image_rules_t rules;
    const char *path;             /* of the file */
    bool mixed; /* samples of a tar file may have formats of their own */
    const loong_json_t *members;  /* of the record's sample in a tar file */
    chat_listed_t listed[2];  /* pictures and videos of the record */
    loong_text_t image_paths; /* of all of them, each ends with 0 */
    loong_video_t *images;    /* frames 0: a picture */
    int64_t num_images, images_room;
    const char *const *tags; /* [CHAT_TAGS] */
    bool use_chosen;
    loong_json_t *json;           /* the record */
    loong_json_t *made;           /* what was made of it */
    loong_json_t *parsed_tools;   /* of a text */
    loong_text_t text;            /* of that */
    const loong_json_t *messages; /* a list; NULL: plain texts */
    const loong_json_t *tools;    /* a list; NULL: none */
    const loong_json_t *kwargs;   /* of the template; NULL: none */
    chat_message_t *message;
    int64_t count, room; /* of messages */
    bool left_out;       /* by use_chosen */
    struct {
        const char *text;
        size_t length;
        bool learned;
    } part[2]; /* of plain texts */
    int num_parts;
} chat_conversation_t;

typedef struct chat_format {
    const char *name;
    bool (*matches)(const chat_conversation_t *c, const loong_json_t *record);
    /* Errors: LOONG_ERR_FORMAT, LOONG_ERR_UNSUPPORTED: why it is refused. */
    loong_status_t (*convert)(chat_conversation_t *c,
                              const loong_json_t *record);
} chat_format_t;

extern const chat_format_t loongi_chat_formats[]; /* name NULL at the end */
/* NULL: there is none. */
const chat_format_t *loongi_chat_format_named(const char *name);
const chat_format_t *loongi_chat_format_of(const chat_conversation_t *c,
                                           const loong_json_t *record);

/* Reads a record; format NULL: a plain text, else JSON. */
LOONG_NODISCARD loong_status_t loongi_chat_convert(chat_conversation_t *c,
                                                   const chat_format_t *format,
                                                   const chat_record_t *record);
void loongi_chat_conversation_free(chat_conversation_t *c);

/* For converters, in the order of the messages. */
LOONG_NODISCARD loong_status_t loongi_chat_begin(chat_conversation_t *c);
LOONG_NODISCARD loong_status_t loongi_chat_say(chat_conversation_t *c,
                                               chat_role_t role,
                                               const loong_json_t *content,
                                               bool may_learn);
/* A message in OpenAI's form; `where` names it in errors: "messages[3]". */
LOONG_NODISCARD loong_status_t loongi_chat_add(chat_conversation_t *c,
                                               const loong_json_t *message,
                                               const char *where,
                                               bool may_learn);
LOONG_NODISCARD loong_status_t loongi_chat_end(chat_conversation_t *c);
/* "tools" and "chat_template_kwargs" of a record. */
LOONG_NODISCARD loong_status_t
loongi_chat_take_tools(chat_conversation_t *c, const loong_json_t *record);

/* ---- templates ----------------------------------------------------------- */

typedef struct chat_template {
    loong_context_t *ctx;
    char *name;
    loong_jinja_t *jinja;      /* NULL: the model has none */
    loong_jinja_t *with_tools; /* of conversations with tools; NULL: jinja */
    loong_json_t *tokens;      /* "bos_token" and others as an object */
    loong_json_t *kwargs;      /* of the options, an object; or NULL */
    bool knows_images;         /* it writes pictures itself */
    int64_t now;               /* the day that strftime_now shows */
    uint64_t hash;             /* of all of it */
} chat_template_t;

/* tokenizer: path of the options. A model without template is an error when
 * the first conversation wants one. */
LOONG_NODISCARD loong_status_t loongi_chat_template_open(
    loong_context_t *ctx, const char *tokenizer,
    const loong_chat_options_t *options, chat_template_t *t);
void loongi_chat_template_close(chat_template_t *t);

/* ---- tokens -------------------------------------------------------------- */

typedef enum chat_train_on {
    CHAT_TRAIN_ASSISTANT,
    CHAT_TRAIN_ALL,
    CHAT_TRAIN_LAST
} chat_train_on_t;

typedef struct chat_rules {
    chat_train_on_t train_on;
    bool tool_results;
} chat_rules_t;

/* What one thread needs. */
typedef struct chat_worker {
    loong_context_t *ctx; /* its own */
    const chat_template_t *form;
    const loong_tokenizer_t *tokenizer;
    chat_rules_t rules;
    chat_conversation_t conversation;
    loong_text_encoder_t *encoder;
    loong_jinja_values_t *values;
    loong_jinja_output_t whole, part; /* rendered */
    loong_text_t plain, expanded;
    loong_jinja_span_t *learned; /* bytes, ascending */
    int64_t num_learned, learned_room;
    loong_jinja_span_t *inserted; /* likewise, by videos: not learned */
    int64_t num_inserted, inserted_room;
    size_t *turns; /* bytes where users' messages begin, ascending */
    int64_t num_turns, turns_room;
    int32_t image_id, video_id; /* of tokens for them; -1: none */
    /* Of the records since it was cleared; at, of the text of each. */
    loong_text_t image_paths;
    chat_image_t *images;
    int64_t num_images, images_room;
    int32_t *part_at;
    int64_t num_parts, parts_room;
    int32_t *ids;
    uint8_t *weight;
    uint8_t *starts;
    int64_t count, ids_room, weight_room, starts_room;
} chat_worker_t;

LOONG_NODISCARD loong_status_t loongi_chat_worker_create(
    const chat_template_t *form, const loong_tokenizer_t *tokenizer,
    chat_rules_t rules, const chat_image_rules_t *images,
    chat_worker_t **worker_p);
void loongi_chat_worker_destroy(chat_worker_t **worker);

/* Renders the conversation: worker->whole, learned and turns. */
LOONG_NODISCARD loong_status_t loongi_chat_render(chat_worker_t *w);
/* Appends the tokens of the conversation to ids, weight and starts
 * (LOONG_START_ bits); *learned_p: how many are learned, without the first. */
LOONG_NODISCARD loong_status_t loongi_chat_encode(chat_worker_t *w,
                                                  int64_t *learned_p);

/* ---- what was tokenised -------------------------------------------------- */

/* Of a sample. */
typedef struct chat_place {
    int64_t line;
    int32_t file;
    int32_t learned; /* tokens without the first, which is no label */
    int64_t turns;   /* where its turns begin among all */
    int64_t images;  /* and its pictures */
} chat_place_t;

struct loong_chat {
    loong_context_t *ctx;
    char *path;
    loong_chat_options_t options;
    const char *tags[CHAT_TAGS];
    const chat_format_t *format; /* of all files; NULL: of each its own */
    loong_arena_t *arena;        /* of tags */
    chat_files_t files;
    loong_tokenizer_t *tokenizer;
    chat_template_t form;
    chat_rules_t rules;
    char *directory, *prefix, *refused_file;
    char *first_refused; /* lines */
    /* Pictures of refused records, each ends with 0: another try is worth while
     * when one of them is another file. */
    char *refused_images;
    int64_t refused_image_bytes;
    loong_dataset_t *dataset;
    chat_place_t *places; /* of each document, and one behind the last */
    int32_t *turns;       /* tokens where turns begin */
    chat_image_rules_t image_rules;
    const loong_image_processor_t *videos; /* borrowed, of these rules */
    chat_image_t *images; /* of all documents */
    char *image_paths;    /* each ends with 0 */
    int64_t image_bytes;
    int32_t *part_at; /* of all videos in parts */
    int64_t num_parts;
    int64_t samples; /* of all documents */
    int64_t first;   /* document that is sample 0 */
    int64_t learned;
    uint64_t hash; /* of all samples */
    bool found;
    loong_source_info_t info;
};

/* prepare.c: all records into the data set of chat->prefix, and chat's counts,
 * places and hash. */
LOONG_NODISCARD loong_status_t loongi_chat_prepare(loong_chat_t *chat);

/* keep.c: names the directory of what is kept; reads what is there, or
 * prepares and writes it, one process at a time. */
LOONG_NODISCARD loong_status_t loongi_chat_keep(loong_chat_t *chat);

#ifdef __cplusplus
}
#endif

#endif
