/* SPDX-License-Identifier: Apache-2.0
 *
 * How the tables of model types and of names are written. */
#ifndef LOONG_HF_ROWS_H
#define LOONG_HF_ROWS_H

#include "hf_family.h"
#include "hf_names.h"

/* Fields of config.json. */
#define INT_FIELD(name_, key_, fallback_)    \
    {                                        \
        name_, LOONG_HF_INT, key_, fallback_ \
    }
#define SQUARE_FIELD(name_, key_, fallback_)    \
    {                                           \
        name_, LOONG_HF_SQUARE, key_, fallback_ \
    }
#define REAL_FIELD(name_, key_, fallback_)    \
    {                                         \
        name_, LOONG_HF_REAL, key_, fallback_ \
    }
#define ALSO_FIELD(name_, key_, fallback_)    \
    {                                         \
        name_, LOONG_HF_ALSO, key_, fallback_ \
    }
#define BOOL_FIELD(name_, key_, fallback_)    \
    {                                         \
        name_, LOONG_HF_BOOL, key_, fallback_ \
    }
#define LIST_FIELD(name_, key_, fallback_)    \
    {                                         \
        name_, LOONG_HF_LIST, key_, fallback_ \
    }
#define COUNT_FIELD(name_, key_, fallback_)    \
    {                                          \
        name_, LOONG_HF_COUNT, key_, fallback_ \
    }
#define NEUTRAL_FIELD(name_, allowed_)          \
    {                                           \
        name_, LOONG_HF_NEUTRAL, NULL, allowed_ \
    }
#define STATED_FIELD(name_, allowed_)          \
    {                                          \
        name_, LOONG_HF_STATED, NULL, allowed_ \
    }
#define WORD_FIELD(name_, key_, words_)    \
    {                                      \
        name_, LOONG_HF_WORD, key_, words_ \
    }
#define CODE_FIELD(name_)                \
    {                                    \
        name_, LOONG_HF_CODE, NULL, NULL \
    }
/* Whose code takes the fallback where the file says nothing. */
#define CODE_FIELD_OR(name_, fallback_)       \
    {                                         \
        name_, LOONG_HF_CODE, NULL, fallback_ \
    }
#define FIELDS_END                      \
    {                                   \
        NULL, LOONG_HF_CODE, NULL, NULL \
    }

/* Tensors: our name and theirs, NULL where it is the same. */
#define ROW(name_, hf_, rows_, columns_, condition_, how_)        \
    {                                                             \
        name_, hf_, rows_, columns_, condition_, how_, 0, 1, NULL \
    }
#define NAMED(name_, hf_, rows_, columns_) \
    ROW(name_, hf_, rows_, columns_, HF_ALWAYS, 0)
#define ROWS_END ROW(NULL, NULL, HF_NONE, HF_NONE, HF_ALWAYS, 0)
#define ATTN "layers.#.self_attn."
#define MLP "layers.#.mlp."

#endif
