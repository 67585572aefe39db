/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and prints moe_layer_freq and the like. Called by decoder_check.c,
 * decoder_config.c, vision_config.c and the Hugging Face configurations. Read
 * layer_kinds.h before. */
#include "layer_kinds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 8 };

typedef struct parser {
    const char *text;
    const char *at;
    int depth;
    int64_t count;
    int64_t layers;
    loong_layer_kinds_t *kinds;
    char *problem;
} parser_t;

static bool fail(parser_t *p, const char *wanted)
{
    snprintf(p->problem, 128, "%s wanted at '%.40s'", wanted,
             *p->at != '\0' ? p->at : "its end");
    return false;
}

static char next(parser_t *p)
{
    p->at += strspn(p->at, " ");
    return *p->at;
}

static bool accept(parser_t *p, char c)
{
    bool found = next(p) == c;
    p->at += found ? 1 : 0;
    return found;
}

static bool number(parser_t *p, int64_t most, int64_t *value_p)
{
    char *end = NULL;
    errno = 0;
    long long value = next(p) >= '0' && *p->at <= '9'
                          ? strtoll(p->at, &end, 10)
                          : -1;
    if (end == NULL || errno != 0 || value > most) {
        return fail(p, most == 1 ? "0 or 1" : "a number of layers");
    }
    p->at = end;
    *value_p = value;
    return true;
}

static bool put(parser_t *p, uint8_t kind)
{
    if (p->count == LOONG_MAX_LAYERS) {
        return fail(p, "at most 10000 layers");
    }
    p->kinds->of[p->count++] = kind;
    return true;
}

static bool list(parser_t *p)
{
    int64_t kind = 0;
    do {
        if (!number(p, 1, &kind) || !put(p, (uint8_t)kind)) {
            return false;
        }
    } while (accept(p, ','));
    return accept(p, ']') || fail(p, ", or ]");
}

/* The layers from `begin` on again and again, to the last layer. */
static bool fill(parser_t *p, int64_t begin)
{
    int64_t length = p->count - begin;
    if (length == 0) {
        return fail(p, "a layer before the last *");
    }
    p->count = LOONG_MIN(p->count, LOONG_MAX(begin, p->layers));
    while (p->count < p->layers) {
        if (!put(p, p->kinds->of[p->count - length])) {
            return false;
        }
    }
    return true;
}

static bool sum(parser_t *p);

/* A list or a sum in parentheses, and how often it comes. */
static bool term(parser_t *p)
{
    int64_t begin = p->count;
    int64_t times = 1;
    if (accept(p, '(')) {
        if (++p->depth > MAX_DEPTH) {
            return fail(p, "fewer parentheses");
        }
        if (!sum(p) || !(accept(p, ')') || fail(p, ")"))) {
            return false;
        }
        p->depth--;
    } else if (!(accept(p, '[') || fail(p, "[ or (")) || !list(p)) {
        return false;
    }
    int64_t end = p->count;
    while (accept(p, '*')) {
        int64_t factor = 0;
        if (p->depth == 0 && next(p) == '\0') {
            return fill(p, begin);
        }
        if (!number(p, LOONG_MAX_LAYERS, &factor)) {
            return false;
        }
        times = LOONG_MIN(times * factor, (int64_t)LOONG_MAX_LAYERS + 1);
    }
    p->count = times == 0 ? begin : end;
    for (int64_t i = 1; i < times; i++) {
        for (int64_t k = begin; k < end; k++) {
            if (!put(p, p->kinds->of[k])) {
                return false;
            }
        }
    }
    return true;
}

static bool sum(parser_t *p)
{
    do {
        if (!term(p)) {
            return false;
        }
    } while (accept(p, '+'));
    return true;
}

static bool every(parser_t *p, int64_t layers)
{
    int64_t step = 0;
    if (!number(p, LOONG_MAX_LAYERS, &step)) {
        return false;
    }
    if (step == 0) {
        return fail(p, "a positive number before");
    }
    for (int64_t i = 0; i < layers; i++) {
        if (!put(p, i % step == 0)) {
            return false;
        }
    }
    return true;
}

bool loongi_layer_kinds_parse(const char *text, int64_t layers,
                              loong_layer_kinds_t *kinds, char problem[128])
{
    parser_t p = {text != NULL ? text : "1", NULL, 0, 0, layers,
                  kinds, problem};
    p.at = p.text;
    char first = next(&p);
    bool good = first >= '0' && first <= '9' ? every(&p, layers) : sum(&p);
    if (!good || (next(&p) != '\0' && !fail(&p, "+, * or the end"))) {
        return false;
    }
    if (p.count != layers) {
        snprintf(problem, 128, "%lld layers, there are %lld",
                 (long long)p.count, (long long)layers);
        return false;
    }
    return true;
}

void loongi_layer_kinds_print(const loong_layer_kinds_t *kinds, int64_t layers,
                              loong_text_t *text)
{
    int64_t begin = 0;
    for (int64_t i = 1; i <= layers; i++) {
        if (i < layers && kinds->of[i] == kinds->of[begin]) {
            continue;
        }
        if (begin == 0 && i == layers && kinds->of[0] == 1) {
            loongi_text_printf(text, "1");
            return;
        }
        loongi_text_printf(text, "%s[%d]*", begin > 0 ? "+" : "",
                           kinds->of[begin]);
        if (i < layers) {
            loongi_text_printf(text, "%lld", (long long)(i - begin));
        }
        begin = i;
    }
}

bool loongi_layer_kinds_list(const loong_layer_kinds_t *kinds, int64_t layers,
                             loong_text_t *text)
{
    bool some = false;
    loongi_text_printf(text, "[");
    for (int64_t i = 0; i < layers; i++) {
        if (!kinds->of[i]) {
            loongi_text_printf(text, "%s%lld", some ? ", " : "", (long long)i);
            some = true;
        }
    }
    loongi_text_printf(text, "]");
    return some;
}
