/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters that a word may begin its merging with, instead of their bytes.
 *
 * Merges are done by rank, so a character c of several bytes becomes its own
 * token before its bytes can meet anything else, if all merges that could
 * tear it apart have a higher rank than the highest, M, of the merges that
 * make it:
 *
 *     (A, B): B is the beginning of a character, cut off, and would take c's
 *             first bytes to what ends before c;
 *     (A, B): A is nothing but continuation bytes, and would take c's last
 *             bytes to what begins behind c;
 *     (A, B): one of the two is c, which would be done too early.
 *
 * The first two depend on the bytes beside c, so two tables have the lowest
 * rank by the two bytes that meet. Where a rank is not above M the word begins
 * with the bytes of c, and nothing is lost but time. Called by tokenizer.c.
 * Read tokenizer_impl.h before. */
#include <string.h>

#include "tokenizer_impl.h"

/* What is asked of the bytes of a token. */
typedef struct shape {
    int first;
    int last;
    bool cut;   /* the beginning of a character, and not all of it */
    bool inner; /* continuation bytes only */
} shape_t;

static int bytes_of(int first)
{
    return first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* False for a token that is not made of bytes: no merge of bytes gives it. */
static bool get_shape(const token_t *token, shape_t *s)
{
    int n = 0;
    int inner = 0;
    for (size_t at = 0; at < token->length; n++) {
        int byte = loongi_point_to_byte(loongi_utf8_get(token->text + at, &at));
        if (byte < 0) {
            return false;
        }
        s->first = n == 0 ? byte : s->first;
        s->last = byte;
        inner += (byte & 0xC0) == 0x80;
    }
    s->inner = inner == n;
    s->cut = n > 0 && s->first >= 0xC0 && inner == n - 1 &&
             n < bytes_of(s->first);
    return n > 0;
}

static void lower(uint32_t *rank, uint32_t by)
{
    *rank = LOONG_MIN(*rank, by);
}

/* Fills the tables of neighbours; first_use: [vocabulary], the lowest rank of
 * a merge that a token is a part of. */
static void read_merges(loong_tokenizer_t *t, uint32_t *first_use)
{
    whole_t *w = &t->whole;
    for (uint64_t i = 0; i <= t->merges.mask; i++) {
        const merge_t *m = &t->merges.slots[i];
        if (m->id < 0) {
            continue;
        }
        int32_t left = (int32_t)(m->pair >> 32);
        int32_t right = (int32_t)(m->pair & 0xFFFFFFFF);
        shape_t a;
        shape_t b;
        lower(&first_use[left], m->rank);
        lower(&first_use[right], m->rank);
        if (!get_shape(&t->vocab.tokens[left], &a) ||
            !get_shape(&t->vocab.tokens[right], &b)) {
            continue;
        }
        if (b.cut) {
            lower(&w->before[a.last << 8 | b.first], m->rank);
        }
        if (a.inner) {
            lower(&w->behind[a.last << 8 | b.first], m->rank);
        }
    }
}

/* Merges the two or three bytes of a character: its token and the highest
 * rank on the way; -1: they do not all merge. */
static int32_t merge_bytes(const loong_tokenizer_t *t, const char *text, int n,
                           uint32_t *rank)
{
    int32_t id[3];
    *rank = 0;
    for (int i = 0; i < n; i++) {
        id[i] = t->byte_ids[(unsigned char)text[i]];
    }
    for (; n > 1; n--) {
        const merge_t *best = loongi_merges_find(&t->merges, id[0], id[1]);
        const merge_t *other =
            n == 3 ? loongi_merges_find(&t->merges, id[1], id[2]) : NULL;
        if (other != NULL && (best == NULL || other->rank < best->rank)) {
            id[1] = other->id;
            best = other;
        } else if (best != NULL) {
            id[0] = best->id;
            id[1] = id[2];
        } else {
            return -1;
        }
        *rank = LOONG_MAX(*rank, best->rank);
    }
    return id[0];
}

static void find_whole_chars(loong_tokenizer_t *t, const uint32_t *first_use)
{
    for (uint32_t c = 0x80; c < LOONG_WHOLE_POINTS; c++) {
        char text[4];
        int n = loongi_utf8_put(c, text);
        whole_char_t *found = &t->whole.chars[c];
        int32_t id = n > 1 ? merge_bytes(t, text, n, &found->rank) : -1;
        found->id = id >= 0 && first_use[id] > found->rank ? id : -1;
    }
}

/* Without bytes every character that is a token begins as that token. */
static void find_char_tokens(loong_tokenizer_t *t)
{
    for (uint32_t c = 0; c < LOONG_WHOLE_POINTS; c++) {
        char text[4];
        int n = loongi_utf8_put(c, text);
        int32_t id =
            n > 0 ? loongi_vocab_find(&t->vocab, text, (size_t)n) : -1;
        bool known = id >= 0 && t->vocab.tokens[id].in_model;
        t->whole.chars[c].id = known ? id : -1;
    }
}

loong_status_t loongi_whole_create(loong_tokenizer_t *t)
{
    enum { PAIRS = 256 * 256 };
    whole_t *w = &t->whole;
    uint32_t *first_use = NULL;
    size_t tokens = (size_t)t->vocab.size;
    for (int b = 0; t->byte_level && b < 256; b++) {
        if (t->byte_ids[b] < 0) {
            return LOONG_OK; /* words with unknown bytes: all by bytes */
        }
    }
    LOONG_TRY(loongi_calloc(t->ctx, LOONG_WHOLE_POINTS, sizeof(*w->chars),
                            "characters", &w->chars));
    if (!t->byte_level) {
        find_char_tokens(t);
        return LOONG_OK;
    }
    LOONG_TRY(loongi_alloc(t->ctx, PAIRS * sizeof(*w->before),
                           "merges at bytes", &w->before));
    LOONG_TRY(loongi_alloc(t->ctx, PAIRS * sizeof(*w->behind),
                           "merges at bytes", &w->behind));
    LOONG_TRY(loongi_alloc(t->ctx, tokens * sizeof(*first_use),
                           "first merges", &first_use));
    memset(w->before, 0xFF, PAIRS * sizeof(*w->before));
    memset(w->behind, 0xFF, PAIRS * sizeof(*w->behind));
    memset(first_use, 0xFF, tokens * sizeof(*first_use));
    read_merges(t, first_use);
    find_whole_chars(t, first_use);
    loongi_free(t->ctx, first_use);
    return LOONG_OK;
}

void loongi_whole_destroy(loong_tokenizer_t *t)
{
    loongi_free(t->ctx, t->whole.chars);
    loongi_free(t->ctx, t->whole.before);
    loongi_free(t->ctx, t->whole.behind);
}
