/* SPDX-License-Identifier: Apache-2.0
 *
 * The second half of training: the pair that stands most often becomes a
 * token, again and again. Counts are corrected where a merge changes a word,
 * never counted anew.
 *
 * The order is that of `tokenizers`: by count, then by the lower ids. A queue
 * entry has the words in which its pair came up in one step; when a text
 * becomes a token by a second way, the pairs with it come up again and have a
 * second entry, and their merge a later rank. Called by train.c. Read train.h
 * before. */
#include <string.h>

#include "train.h"

typedef struct pair {
    uint64_t key; /* left << 32 | right; plus one; 0: an empty slot */
    int64_t count;
    int32_t fresh; /* words with it, of this step; -1: none */
} pair_t;

typedef struct node {
    int32_t word;
    int32_t next;
} node_t;

typedef struct entry {
    int64_t count;
    uint64_t key;
    int32_t words;
} entry_t;

typedef struct state {
    loong_context_t *ctx;
    learning_t *l;
    int32_t *symbols; /* of all words */
    pair_t *pairs;
    uint64_t mask;
    int64_t num_pairs;
    node_t *nodes;
    int64_t num_nodes;
    int64_t node_capacity;
    entry_t *heap;
    int64_t entries;
    int64_t heap_capacity;
    uint64_t *touched; /* pairs with fresh words */
    int64_t num_touched;
    int64_t touched_capacity;
} state_t;

static uint64_t key_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* Keys are stored plus one, so that 0 is free. */
static uint64_t find_slot(const state_t *s, uint64_t key)
{
    uint64_t i = loongi_pair_hash(key) & s->mask;
    while (s->pairs[i].key != 0 && s->pairs[i].key != key + 1) {
        i = (i + 1) & s->mask;
    }
    return i;
}

static loong_status_t widen(state_t *s)
{
    pair_t *old = s->pairs;
    uint64_t old_size = old == NULL ? 0 : s->mask + 1;
    uint64_t size = old == NULL ? 1 << 16 : 2 * old_size;
    LOONG_TRY(
        loongi_calloc(s->ctx, size, sizeof(*s->pairs), "pairs", &s->pairs));
    s->mask = size - 1;
    for (uint64_t i = 0; i < old_size; i++) {
        if (old[i].key != 0) {
            s->pairs[find_slot(s, old[i].key - 1)] = old[i];
        }
    }
    loongi_free(s->ctx, old);
    return LOONG_OK;
}

/* Changes a pair's count; a pair that came up gets the word. */
static loong_status_t change(state_t *s, uint64_t key, int64_t by, int32_t word)
{
    if (s->pairs == NULL || 2 * (uint64_t)s->num_pairs > s->mask) {
        LOONG_TRY(widen(s));
    }
    pair_t *pair = &s->pairs[find_slot(s, key)];
    if (pair->key == 0) {
        pair->key = key + 1;
        pair->fresh = -1;
        s->num_pairs++;
    }
    pair->count += by;
    if (by < 0 || (pair->fresh >= 0 && s->nodes[pair->fresh].word == word)) {
        return LOONG_OK;
    }
    if (pair->fresh < 0) {
        LOONG_TRY(loongi_grow(s->ctx, &s->touched, &s->touched_capacity,
                              s->num_touched + 1, sizeof(*s->touched),
                              "changed pairs"));
        s->touched[s->num_touched++] = key;
    }
    LOONG_CHECK(s->ctx, s->num_nodes < INT32_MAX, LOONG_ERR_UNSUPPORTED,
                "training on %lld different words is not supported: too many "
                "places of pairs",
                (long long)s->l->words->count);
    LOONG_TRY(loongi_grow(s->ctx, &s->nodes, &s->node_capacity,
                          s->num_nodes + 1, sizeof(*s->nodes),
                          "places of pairs"));
    node_t node = {word, pair->fresh};
    pair->fresh = (int32_t)s->num_nodes;
    s->nodes[s->num_nodes++] = node;
    return LOONG_OK;
}

static bool before(const entry_t *a, const entry_t *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static loong_status_t push(state_t *s, entry_t entry)
{
    LOONG_TRY(loongi_grow(s->ctx, &s->heap, &s->heap_capacity, s->entries + 1,
                          sizeof(*s->heap), "queue of pairs"));
    int64_t i = s->entries++;
    while (i > 0 && before(&entry, &s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = entry;
    return LOONG_OK;
}

static void sift_down(state_t *s, entry_t entry)
{
    int64_t i = 0;
    for (int64_t child = 1; child < s->entries; child = 2 * i + 1) {
        child += child + 1 < s->entries &&
                 before(&s->heap[child + 1], &s->heap[child]);
        if (!before(&s->heap[child], &entry)) {
            break;
        }
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = entry;
}

/* The entry with the highest count that is not out of date. */
static bool pop(state_t *s, entry_t *top)
{
    while (s->entries > 0) {
        *top = s->heap[0];
        int64_t now = s->pairs[find_slot(s, top->key)].count;
        if (now == top->count) {
            s->entries--;
            if (s->entries > 0) {
                sift_down(s, s->heap[s->entries]);
            }
            return true;
        }
        entry_t updated = {now, top->key, top->words};
        sift_down(s, updated);
    }
    return false;
}

/* The pairs of this step go into the queue. */
static loong_status_t queue_touched(state_t *s)
{
    for (int64_t i = 0; i < s->num_touched; i++) {
        pair_t *pair = &s->pairs[find_slot(s, s->touched[i])];
        entry_t entry = {pair->count, s->touched[i], pair->fresh};
        pair->fresh = -1;
        if (pair->count > 0) {
            LOONG_TRY(push(s, entry));
        }
    }
    s->num_touched = 0;
    return LOONG_OK;
}

/* Words as symbols, and the pairs in them. */
static loong_status_t begin(state_t *s, const int32_t byte_ids[256])
{
    words_t *w = s->l->words;
    LOONG_CHECK(s->ctx, w->count < INT32_MAX, LOONG_ERR_UNSUPPORTED,
                "training on %lld different words is not supported",
                (long long)w->count);
    LOONG_TRY(loongi_calloc(s->ctx, w->text.length, sizeof(*s->symbols),
                            "symbols of words", &s->symbols));
    for (size_t i = 0; i < w->text.length; i++) {
        s->symbols[i] = byte_ids[(unsigned char)w->text.data[i]];
    }
    for (int64_t i = 0; i < w->count; i++) {
        const int32_t *symbols = s->symbols + w->words[i].begin;
        for (int64_t k = 0; k + 1 < w->words[i].length; k++) {
            LOONG_TRY(change(s, key_of(symbols[k], symbols[k + 1]),
                             w->words[i].count, (int32_t)i));
        }
    }
    return queue_touched(s);
}

static loong_status_t merge_in_word(state_t *s, const learned_t *m,
                                    int32_t index)
{
    word_t *word = &s->l->words->words[index];
    int32_t *symbols = s->symbols + word->begin;
    int64_t n = 0; /* symbols written */
    for (int64_t i = 0; i < word->length; i++) {
        if (symbols[i] != m->left || i + 1 >= word->length ||
            symbols[i + 1] != m->right) {
            symbols[n++] = symbols[i];
            continue;
        }
        if (n > 0) {
            int32_t prev = symbols[n - 1];
            LOONG_TRY(change(s, key_of(prev, m->left), -word->count, index));
            LOONG_TRY(change(s, key_of(prev, m->id), word->count, index));
        }
        i++;
        if (i + 1 < word->length) {
            int32_t next = symbols[i + 1];
            LOONG_TRY(change(s, key_of(m->right, next), -word->count, index));
            LOONG_TRY(change(s, key_of(m->id, next), word->count, index));
        }
        symbols[n++] = m->id;
    }
    word->length = n;
    return LOONG_OK;
}

/* The id of the text of two tokens, a new one when it is not known yet. */
static loong_status_t join(state_t *s, learned_t *m)
{
    loong_tokenizer_t *known = s->l->known;
    const token_t *left = &known->vocab.tokens[m->left];
    const token_t *right = &known->vocab.tokens[m->right];
    loong_buffer_t text = {0};
    loong_status_t status =
        loongi_buffer_add(s->ctx, &text, left->text, left->length);
    if (status == LOONG_OK) {
        status = loongi_buffer_add(s->ctx, &text, right->text, right->length);
    }
    if (status == LOONG_OK) {
        m->id = loongi_vocab_find(&known->vocab, text.data, text.length);
        if (m->id < 0) {
            m->id = (int32_t)known->vocab.size;
            status = loongi_vocab_add(known, m->id, text.data, text.length);
        }
    }
    loongi_free(s->ctx, text.data);
    return status;
}

static loong_status_t learn(state_t *s)
{
    learning_t *l = s->l;
    entry_t top;
    while (l->known->vocab.count < l->wanted && pop(s, &top)) {
        if (top.count < LOONG_MAX(l->min_frequency, 1)) {
            break;
        }
        learned_t m = {(int32_t)(top.key >> 32),
                       (int32_t)(top.key & 0xFFFFFFFF), -1};
        LOONG_TRY(join(s, &m));
        LOONG_TRY(loongi_grow(s->ctx, &l->merges, &l->merge_capacity,
                              l->num_merges + 1, sizeof(*l->merges), "merges"));
        l->merges[l->num_merges++] = m;
        for (int32_t n = top.words; n >= 0; n = s->nodes[n].next) {
            LOONG_TRY(merge_in_word(s, &m, s->nodes[n].word));
        }
        LOONG_TRY(queue_touched(s));
    }
    return LOONG_OK;
}

loong_status_t loongi_learn_merges(loong_context_t *ctx, learning_t *l,
                                   const int32_t byte_ids[256])
{
    state_t s = {0};
    s.ctx = ctx;
    s.l = l;
    loong_status_t status = begin(&s, byte_ids);
    if (status == LOONG_OK) {
        status = learn(&s);
    }
    loongi_free(ctx, s.touched);
    loongi_free(ctx, s.heap);
    loongi_free(ctx, s.nodes);
    loongi_free(ctx, s.pairs);
    loongi_free(ctx, s.symbols);
    return status;
}
