/* SPDX-License-Identifier: Apache-2.0
 *
 * How the tables of the schema say a key. */
#ifndef LOONG_SCHEMA_H
#define LOONG_SCHEMA_H

#include "fields.h"
#include "recipe_impl.h"

#define BIG 9e15

#define INT(path_, fallback_, min_, max_, resume_, help_)                     \
    {path_, LOONG_RECIPE_INT, fallback_, min_, max_, NULL,                    \
     LOONG_RESUME_##resume_, help_}
#define REAL(path_, fallback_, min_, max_, resume_, help_)                    \
    {path_, LOONG_RECIPE_REAL, fallback_, min_, max_, NULL,                   \
     LOONG_RESUME_##resume_, help_}
#define BOOL(path_, fallback_, resume_, help_)                                \
    {path_, LOONG_RECIPE_BOOL, fallback_, 0, 0, NULL,                         \
     LOONG_RESUME_##resume_, help_}
#define TEXT(path_, fallback_, resume_, help_)                                \
    {path_, LOONG_RECIPE_TEXT, fallback_, 0, 0, NULL,                         \
     LOONG_RESUME_##resume_, help_}
#define CHOICE(path_, fallback_, choices_, resume_, help_)                    \
    {path_, LOONG_RECIPE_CHOICE, fallback_, 0, 0, choices_,                   \
     LOONG_RESUME_##resume_, help_}
#define SECONDS(path_, fallback_, resume_, help_)                             \
    {path_, LOONG_RECIPE_SECONDS, fallback_, 0, BIG, NULL,                    \
     LOONG_RESUME_##resume_, help_}
#define AMOUNT(path_, fallback_, min_, max_, resume_, help_)                  \
    {path_, LOONG_RECIPE_AMOUNT, fallback_, min_, max_, NULL,                 \
     LOONG_RESUME_##resume_, help_}
#define BYTES(path_, fallback_, min_, max_, resume_, help_)                   \
    {path_, LOONG_RECIPE_BYTES, fallback_, min_, max_, NULL,                  \
     LOONG_RESUME_##resume_, help_}
#define TEXTS(path_, resume_, help_)                                          \
    {path_, LOONG_RECIPE_TEXTS, NULL, 0, 0, NULL, LOONG_RESUME_##resume_,     \
     help_}

#endif
