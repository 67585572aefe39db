/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources: samples that can be read in any order. A source has no state:
 * sample i is a pure function of i. A sample is a list of items (a text, a
 * picture, a label) with sizes and contents; what they become is the
 * processor's (loong/processor.h). Built-in classes: "tokens", indexed data
 * sets cut into samples of T + 1 ids; "documents", the documents of such sets,
 * each a sample; "images", labelled pictures (loong/image.h); "image_text",
 * texts with pictures in them; "chat", conversations (loong/chat.h), and
 * "image_chat", those with pictures.
 *
 * Texts of lengths of their own are laid into rows of T + 1 ids by a source
 * over their source: its samples are the rows, one text each or several.
 *
 * Not collective.
 */
#ifndef LOONG_SOURCE_H
#define LOONG_SOURCE_H

#include <stdbool.h>

#include "loong/context.h"
#include "loong/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a token is the first of, as bits. */
enum {
    LOONG_START_DOCUMENT = 1,
    LOONG_START_SAMPLE = 2, /* of a row that samples are laid into */
    LOONG_START_TURN = 4    /* a user's message and what answers it */
};

typedef enum loong_item_type {
    LOONG_ITEM_TOKENS,
    LOONG_ITEM_IMAGE,
    LOONG_ITEM_LABEL,
    LOONG_ITEM_VALUES
} loong_item_type_t;

/* A part of a sample. Contents lie in the memory of the list of items; NULL:
 * they were not wanted. */
typedef struct loong_item {
    loong_item_type_t type;
    const char *name; /* for messages, borrowed from source or list; or NULL */
    /* TOKENS: ids, and how many of them are learned, the first one apart, which
     * only peek tells (-1: it cannot); IMAGE: width and height in pixels, 0: it
     * was not decoded; VALUES: their number */
    int64_t size[2];
    int64_t at; /* IMAGE: which of the TOKENS stands for it, or for the first
                   part of it */
    /* IMAGE of a video, else 0: frames that are read, seconds from the first of
     * a patch's frames to that of the next, tokens that stand for it, each for
     * as many rows, and where they are, behind `at` (borrowed from the source,
     * while it is open). */
    int64_t frames;
    bool several; /* IMAGE: the sample has other pictures; videos are none */
    double seconds;
    int64_t parts;
    const int32_t *part_at; /* [parts]; NULL: it has one */
    int64_t label;    /* LABEL: its class */
    int32_t *ids;     /* TOKENS [size] */
    uint8_t *weight;  /* TOKENS [size]: 1: the token is learned */
    uint8_t *starts;  /* TOKENS [size]: LOONG_START_* */
    uint8_t *pixels;    /* IMAGE [height,width,3]; of a video [frames,.,.,3], as
                           loong_video_size says */
    uint8_t clear[4];   /* IMAGE: as loong_image_t has it */
    double *values;     /* VALUES [size] */
} loong_item_t;

/* Tokens that stand for a picture or a video. */
static inline int64_t loong_item_parts(const loong_item_t *item)
{
    return item->parts > 1 ? item->parts : 1;
}

enum { LOONG_MAX_ITEMS = 64 };

/* The items of one sample, read again and again: its memory grows to that of
 * the largest and stays. Begin with all zero but ctx and vocab_size. */
typedef struct loong_items {
    loong_context_t *ctx; /* of the thread that reads */
    int64_t vocab_size;   /* ids must lie below */
    bool unmarked;        /* starts of documents are not wanted: zeros */
    /* 0: all contents are wanted; -1: all but pixels; k > 0: the pixels of the
     * k-th picture, and nothing else. */
    int picture;
    bool sizes; /* of pictures are wanted, also of peek, which may read files */
    int64_t epoch; /* of the source: what is drawn anew in each one */
    int count;
    loong_item_t item[LOONG_MAX_ITEMS];
    struct loong_items *inner; /* of a source over a source: those of samples */
    void *memory;
    size_t bytes, used;
} loong_items_t;

/* For sources: forgets the items, and takes memory for the contents of one, 64
 * bytes aligned. Addresses hold until the next begin. `most`: bytes of all
 * contents of the sample together, each rounded up to 64. */
LOONG_API LOONG_NODISCARD loong_status_t loong_items_begin(loong_items_t *items,
                                                           size_t most);
LOONG_API void *loong_items_take(loong_items_t *items, size_t bytes);
LOONG_API void loong_items_free(loong_items_t *items);

typedef struct loong_source_params {
    const char *data; /* the set that the source belongs to, for messages */
    const char *path;
    int64_t seq_length; /* T; for sources that cut samples from texts */
    double split_begin; /* share of the documents: [begin, end); */
    double split_end;   /* both 0: all */
    /* (optional) What another rank found when it checked the index. */
    const loong_index_digest_t *known;
    /* Of sources of text: a tokenizer.json, its directory, or "bytes"; and the
     * token that stands for a picture, as the file spells it. */
    const char *tokenizer;
    const char *image_token;
    const char *image_root; /* of relative paths; NULL: beside the file */
    /* (optional) How pictures are read, some of which have several tokens. */
    const struct loong_image_processor *image_processor;
    /* (optional) Likewise of a video, and how it is read; borrowed while the
     * source is open. */
    const char *video_token;
    const struct loong_image_processor *video_processor;
    /* (optional) The part of a set that has parts (megatron-energon's shards),
     * by its name there; NULL: that of `data`, else "val". */
    const char *part;
    /* (optional) Of conversations (loong/chat.h). */
    const struct loong_chat_options *chat;
} loong_source_params_t;

/* How texts of lengths of their own share rows. */
typedef enum loong_packing {
    LOONG_PACK_NONE,    /* a row is one text, and padding */
    LOONG_PACK_GREEDY,  /* in a drawn order, where it leaves least room */
    LOONG_PACK_BEST_FIT /* the longest first, where it leaves least room */
} loong_packing_t;

/* What becomes of a text that is longer than a row. */
typedef enum loong_truncation {
    LOONG_TRUNCATE_REFUSE, /* an error that names it */
    LOONG_TRUNCATE_LEFT,   /* its last T + 1 ids stay */
    LOONG_TRUNCATE_RIGHT,  /* its first T + 1 ids stay */
    /* What stands before the first turn stays, and as many of the last turns as
     * there is room for, one at least; else it is refused. */
    LOONG_TRUNCATE_TURN
} loong_truncation_t;

/* Of texts that are laid into rows. */
typedef struct loong_pack_info {
    loong_packing_t packing;
    loong_truncation_t truncation;
    int64_t samples, ids; /* before anything is cut */
    int64_t learned;      /* of them; -1: the source cannot tell */
    int64_t longest;      /* ids of the longest sample */
    int64_t cut_samples, cut_ids;
    int64_t cut_learned; /* of the ids that are cut */
    int64_t rows, room;  /* room: ids of a row, T + 1 */
    int64_t most;        /* samples of a row */
    /* Of samples with pictures: rows of the image encoder, of all samples and
     * those that a row has room for; 0: as many as its places allow. */
    int64_t patches, patch_room;
    double seconds;      /* to make it */
} loong_pack_info_t;

typedef struct loong_source_info {
    const char *path; /* borrowed */
    int64_t samples;
    uint64_t hash; /* of the contents */
    /* Of sources that cut samples from texts, else 0 and NULL: of the split. */
    int64_t first_document, documents, first_token, tokens;
    const loong_dataset_t *dataset; /* borrowed */
    const loong_pack_info_t *pack;  /* samples are rows; borrowed; or NULL */
    /* Records of its files, those of them that are left out since they cannot
     * be used, and the file that lists these; else 0 and NULL. */
    int64_t records, refused;
    const char *refused_file; /* borrowed */
    int64_t most_frames;      /* of a video; 0: there are none */
} loong_source_info_t;

typedef struct loong_source_class {
    size_t struct_size; /* of who filled it: members behind are NULL */
    const char *name;   /* in recipes */
    bool concurrent;    /* several threads may read at once */
    loong_status_t (*open)(loong_context_t *ctx,
                           const loong_source_params_t *params,
                           void **source_p);
    void (*close)(void *source); /* takes NULL */
    void (*get_info)(const void *source, loong_source_info_t *info);
    /* Sample i, 0 <= i < samples. */
    loong_status_t (*read)(const void *source, int64_t i, loong_items_t *items);
    /* (optional) Asks the system to read it ahead; returns at once. */
    void (*prefetch)(const void *source, int64_t i);
    /* (optional) The items of sample i without contents: sizes, and where
     * pictures stand. Reads no file, unless items->sizes is set. */
    loong_status_t (*peek)(const void *source, int64_t i, loong_items_t *items);
    /* (optional) Samples are single texts of lengths of their own, to be laid
     * into rows; peek tells the lengths. */
    bool packs;
} loong_source_class_t;

/* Enters a class (borrowed; it must outlive the context). A second one of the
 * same name is LOONG_ERR_ARG. */
LOONG_API LOONG_NODISCARD loong_status_t loong_register_source(
    loong_context_t *ctx, const loong_source_class_t *source_class);
/* Errors: LOONG_ERR_CONFIG, which lists the names there are. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_find_source(loong_context_t *ctx, const char *name,
                  const loong_source_class_t **class_p);

#ifdef __cplusplus
}
#endif

#endif
