/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of data:, which fill what blends, sources and loaders are made of.
 * Listed by src/registry/recipe_tables.c. Read run_data.h before. */
#include "loong/chat.h"
#include "run_data.h"
#include "schema.h"

#define SET(member_) FILLS(loong_train_settings_t, member_)
#define BLEND(member_) FILLS(loong_blend_params_t, member_)
#define CHAT(member_) FILLS(loong_chat_options_t, member_)
#define SOURCE(member_) FILLS(loong_blend_source_t, member_)
#define TOKENS(member_) FILLS(loong_token_params_t, member_)

static const loong_recipe_field_t keys[] = {
    TEXT("data.tokenizer", NULL, FREE,
         "tokenizer.json, tiktoken.model or their directory: for texts with "
         "pictures, samples, and what exports bring; data sets are tokens "
         "already"),
    TEXT("data.image_token", "<image>", SAME,
         "token of texts that stands for a picture", BLEND(image_token)),
    TEXT("data.image_root", NULL, FREE,
         "directory of the relative paths of pictures; that of the file which "
         "names them when not given",
         BLEND(image_root)),
    TEXT("data.video_token", "<video>", SAME,
         "token of texts that stands for a video", BLEND(video_token)),
    TEXT("data.video_processor", NULL, SAME,
         "video_preprocessor_config.json of videos; when not given that of the "
         "family of the image encoder, where it reads videos"),
    REAL("data.video_fps", NULL, 1e-6, 1e6, SAME,
         "frames of a video that are read for each of its seconds; as the "
         "video processor says when not given",
         SET(video_fps)),
    INT("data.video_frames", NULL, 1, 1e6, SAME,
        "frames that are read of every video, instead of so many a second",
        SET(video_frames)),
    CHOICE("data.chat.format", "auto",
           "auto openai sharegpt alpaca prompt_completion preference kto vqa "
           "caption text",
           SAME,
           "of the records of conversations; auto: of each file by the keys of "
           "its first record",
           CHAT(format)),
    TEXT("data.chat.template", NULL, SAME,
         "how conversations are written: one of the model's templates or a "
         "built-in one by name, or the path of a .jinja; the model's own when "
         "not given",
         CHAT(template_name)),
    TEXT("data.chat.template_kwargs", NULL, SAME,
         "a JSON object of more variables of the template, as "
         "'{\"enable_thinking\": false}'",
         CHAT(template_kwargs)),
    TEXT("data.chat.date", NULL, FREE,
         "day that a template shows as today's (strftime_now), as 2026-01-31; "
         "when not given that on which the run began, also of a resumed one",
         CHAT(date)),
    CHOICE("data.chat.train_on", "assistant", "assistant all last", SAME,
           "what of a conversation is learned: the assistant's messages, all "
           "(but results of tools), or the last of the assistant's; never a "
           "message whose weight is 0",
           CHAT(train_on)),
    BOOL("data.chat.train_on_tool_results", "false", SAME,
         "results of tools are learned as well", CHAT(train_on_tool_results)),
    BOOL("data.chat.use_chosen", "false", SAME,
         "of preference pairs what was chosen is learned, of labelled answers "
         "(KTO) those labelled true",
         CHAT(use_chosen)),
    TEXTS("data.chat.tags", SAME,
          "names of keys and roles in sharegpt's format, of messages, role, "
          "content, user, assistant, system, tool, function, as [user=human, "
          "assistant=gpt]"),
    BOOL("data.chat.skip_refused", "false", FREE,
         "records that cannot be used are left out; else there is no run "
         "with them",
         CHAT(skip_refused)),
    BOOL("data.chat.decode", "false", FREE,
         "every picture and video is decoded once, when conversations are "
         "prepared, and records with a broken one are refused; else the step "
         "that reads one stops",
         CHAT(decode)),
    TEXT("data.chat.cache", NULL, FREE,
         "directory for texts and ids of conversations, made once; libloong "
         "below $XDG_CACHE_HOME or $HOME/.cache when not given",
         CHAT(cache)),
    /* A checkpoint has the content of each source and its share. */
    TEXT("data.train[].path", NULL, FREE,
         "prefix of an indexed data set, or where pictures or conversations "
         "are, or a metadataset of megatron-energon (.yaml); an item that is "
         "a text is its path; a resumed run wants the same content",
         SOURCE(path)),
    TEXT("data.train[].source", NULL, SAME,
         "class of the source: tokens, an indexed data set; documents, the "
         "same by whole documents; images, labelled pictures in a directory "
         "for each class, or tar files; image_text, a .jsonl of texts with "
         "pictures; chat, conversations, with pictures where the model sees "
         "some; or one that was registered; what the model reads when not "
         "given, and chat in training_phase sft"),
    REAL("data.train[].weight", NULL, 0, 1e9, FREE,
         "share of the blend, above 0; sources are drawn by their size when "
         "none has a weight; a resumed run wants the same shares",
         SOURCE(weight)),
    INT("data.train[].max_epochs", "0", 0, 1e9, SAME, "0: no bound",
        SOURCE(max_epochs)),
    TEXT("data.validation[].name", NULL, FREE, "name in the log"),
    TEXT("data.validation[].path", NULL, FREE, "prefix of a data set",
         SOURCE(path)),
    TEXT("data.validation[].source", NULL, FREE, "as in data.train"),
    TEXT("data.image_processor", NULL, SAME,
         "preprocessor_config.json of pictures; when not given that of the "
         "family, for the model's image_size"),
    REAL("data.mask_ratio", "0.6", 1e-6, 1, SAME,
         "masked image modelling: share of a picture's patches that are "
         "masked, rounded to whole ones; which, is drawn anew each time"),
    INT("data.max_patches", NULL, 1, 1e9, FREE,
        "patches of all pictures of a micro-batch of texts, at most, where "
        "pictures keep sizes of their own; when not given as many as its texts "
        "have rows for",
        SET(max_patches)),
    INT("data.max_image_patches", NULL, 1, 1e9, FREE,
        "patches of a picture, or of a moment of a video, at most, where these "
        "keep sizes of their own: attention in pictures is planned for them; "
        "when not given one may be all of a micro-batch's",
        SET(max_image_patches)),
    INT("data.max_videos", NULL, 1, 1e6, FREE,
        "of a model with a video_encoder beside an image_encoder: the videos "
        "of a micro-batch of texts, which data.max_images does not count then",
        SET(max_videos)),
    INT("data.max_video_patches", NULL, 1, 1e9, FREE,
        "likewise, their patches", SET(max_video_patches)),
    INT("data.max_tiles", NULL, 1, 1024, SAME,
        "tiles of a picture, at most, beside which the whole one stands, where "
        "the image processor cuts pictures into tiles; 1: it does not; as its "
        "file says when not given (max_patches)",
        SET(max_tiles)),
    INT("data.max_images", NULL, 1, 1e6, FREE,
        "pictures of a micro-batch of texts, at most, for which the image "
        "encoder has memory; one a sample when not given",
        SET(max_images)),
    INT("data.row_images", NULL, 1, 63, SAME,
        "pictures of a row that samples share (data.packing), at most; wanted "
        "there; data.max_images follows where it is not given",
        SET(row_images)),
    INT("data.row_patches", NULL, 1, 1e9, SAME,
        "patches of the pictures of a row that samples share, at most; as many "
        "as its places allow when not given; data.max_patches follows where it "
        "is not given",
        SET(row_patches)),
    INT("data.num_workers", "2", 0, 1024, FREE,
        "threads of a rank that read and decode the pictures of the next "
        "step; 0: between the steps",
        FILLS(loong_loader_params_t, num_workers)),
    REAL("data.validation_split", "0", 0, 0.5, SAME,
         "share of each source's documents, at its end, kept for validation",
         SET(validation_split)),
    AMOUNT("data.seq_length", NULL, 1, 1e9, SAME,
           "tokens of a sample; of a model that reads pictures the rows of "
           "one, which need not be given",
           SET(seq_length)),
    CHOICE("data.packing", "none", "none greedy best_fit", SAME,
           "how texts of lengths of their own share rows of seq_length: each "
           "has one of its own, padded; in a drawn order, each where it leaves "
           "the least room; or likewise from the longest on. They do not see "
           "each other, and positions restart",
           SET(packing)),
    BOOL("data.balance", "true", FREE,
         "micro-batches of rows that texts share, and of texts with pictures, "
         "are dealt to data-parallel ranks by their planned cost: places, and "
         "attention among the ids of each text, likewise of pictures; else in "
         "the order they are drawn in"),
    TEXT("data.costs", NULL, FREE,
         "a file that loong-bench costs wrote: what the parts of that cost "
         "take on a machine; by operations alone when not given"),
    CHOICE("data.truncation", "refuse", "refuse left right turn", SAME,
           "of texts of more than seq_length + 1 ids: an error that names "
           "them; their left or right end is cut; or their oldest turns are "
           "dropped",
           BLEND(truncation)),
    BOOL("data.reset_position_ids", "false", SAME,
         "positions restart at each document", TOKENS(reset_position_ids)),
    BOOL("data.reset_attention_mask", "false", SAME,
         "documents do not see each other", TOKENS(reset_attention_mask)),
    BOOL("data.eod_mask_loss", "false", SAME,
         "no loss across the end of a document", TOKENS(eod_mask_loss)),
    INTS("data.vision_token_ids", 0, BIG, SAME,
         "ids that stand for parts of images: their tokens go to the second "
         "set of experts (moe_vision_ffn_hidden_size)"),
};

const loong_recipe_table_t loongi_data_keys = LOONG_KEYS(keys);
