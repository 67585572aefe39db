/* SPDX-License-Identifier: Apache-2.0
 *
 * How the tables of the schema say a key with its default. Who fills a struct
 * from it says so behind the help: FILLS(loong_ema_t, decay). */
#ifndef LOONG_SCHEMA_H
#define LOONG_SCHEMA_H

#include "fields.h"

#define BIG 9e15

#define ROW(path_, type_, fallback_, min_, max_, choices_, resume_, help_,    \
            ...)                                                              \
    {.key = {path_, LOONG_RECIPE_##type_, fallback_, min_, max_, choices_,    \
             LOONG_RESUME_##resume_, help_},                                  \
     __VA_ARGS__}

#define INT(path_, fallback_, min_, max_, resume_, ...) \
    ROW(path_, INT, fallback_, min_, max_, NULL, resume_, __VA_ARGS__, )
#define REAL(path_, fallback_, min_, max_, resume_, ...) \
    ROW(path_, REAL, fallback_, min_, max_, NULL, resume_, __VA_ARGS__, )
#define BOOL(path_, fallback_, resume_, ...) \
    ROW(path_, BOOL, fallback_, 0, 0, NULL, resume_, __VA_ARGS__, )
#define TEXT(path_, fallback_, resume_, ...) \
    ROW(path_, TEXT, fallback_, 0, 0, NULL, resume_, __VA_ARGS__, )
#define CHOICE(path_, fallback_, choices_, resume_, ...) \
    ROW(path_, CHOICE, fallback_, 0, 0, choices_, resume_, __VA_ARGS__, )
#define SECONDS(path_, fallback_, min_, resume_, ...) \
    ROW(path_, SECONDS, fallback_, min_, BIG, NULL, resume_, __VA_ARGS__, )
#define AMOUNT(path_, fallback_, min_, max_, resume_, ...) \
    ROW(path_, AMOUNT, fallback_, min_, max_, NULL, resume_, __VA_ARGS__, )
#define BYTES(path_, fallback_, min_, max_, resume_, ...) \
    ROW(path_, BYTES, fallback_, min_, max_, NULL, resume_, __VA_ARGS__, )
#define INTS(path_, min_, max_, resume_, ...) \
    ROW(path_, INTS, NULL, min_, max_, NULL, resume_, __VA_ARGS__, )
#define TEXTS(path_, resume_, ...) \
    ROW(path_, TEXTS, NULL, 0, 0, NULL, resume_, __VA_ARGS__, )

#define KIND(member_)                       \
    _Generic(member_,                       \
        int: LOONG_FIELD_INT,               \
        int64_t: LOONG_FIELD_INT64,         \
        uint64_t: LOONG_FIELD_INT64,        \
        double: LOONG_FIELD_REAL,           \
        bool: LOONG_FIELD_BOOL,             \
        const char *: LOONG_FIELD_STRING,   \
        default: LOONG_FIELD_CHOICE)
#define FILLS(type_, member_)                                  \
    .type = #type_, .kind = KIND(((const type_ *)0)->member_), \
    .offset = offsetof(type_, member_)

#define LOONG_KEYS(rows_) {NULL, rows_, LOONG_COUNT_OF(rows_)}

#endif
