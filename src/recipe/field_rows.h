/* SPDX-License-Identifier: Apache-2.0
 *
 * Short names for the rows of a table of fields. Who includes this defines
 * LOONG_FIELD_PREFIX, with its last point, and LOONG_FIELD_STRUCT. */
#ifndef LOONG_FIELD_ROWS_H
#define LOONG_FIELD_ROWS_H

#include "fields.h"

#define KEY(name_, type_, min_, max_, choices_, resume_, help_) \
    .key = {LOONG_FIELD_PREFIX name_,                           \
            LOONG_RECIPE_##type_,                               \
            NULL,                                               \
            min_,                                               \
            max_,                                               \
            choices_,                                           \
            LOONG_RESUME_##resume_,                             \
            help_}
#define MEMBER(kind_, member_) \
    .kind = LOONG_FIELD_##kind_, .offset = offsetof(LOONG_FIELD_STRUCT, member_)

#define TEXT(name_, resume_, help_) KEY(name_, TEXT, 0, 0, NULL, resume_, help_)
#define INT(name_, member_, min_, max_, resume_, help_) \
    KEY(name_, INT, min_, max_, NULL, resume_, help_), MEMBER(INT, member_)
#define INT64(name_, member_, min_, max_, resume_, help_) \
    KEY(name_, INT, min_, max_, NULL, resume_, help_), MEMBER(INT64, member_)
#define REAL(name_, member_, min_, max_, resume_, help_) \
    KEY(name_, REAL, min_, max_, NULL, resume_, help_), MEMBER(REAL, member_)
#define WHOLE(name_, member_, min_, max_, resume_, help_) \
    KEY(name_, REAL, min_, max_, NULL, resume_, help_), MEMBER(WHOLE, member_)
#define BOOL(name_, member_, resume_, help_) \
    KEY(name_, BOOL, 0, 0, NULL, resume_, help_), MEMBER(BOOL, member_)
#define NOT(name_, member_, resume_, help_) \
    KEY(name_, BOOL, 0, 0, NULL, resume_, help_), MEMBER(NOT, member_)
/* words_: "a b c"; values_: theirs. */
#define CHOICE(name_, member_, words_, values_, resume_, help_)                \
    KEY(name_, CHOICE, 0, 0, words_, resume_, help_), MEMBER(CHOICE, member_), \
        .values = values_
/* The second of two words makes a bool true. */
#define FLAG(name_, member_, words_, resume_, help_) \
    KEY(name_, CHOICE, 0, 0, words_, resume_, help_), MEMBER(BOOL, member_)

#endif
