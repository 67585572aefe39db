/* SPDX-License-Identifier: Apache-2.0
 *
 * What parameters are called in model code, as data: words with the weight
 * they have for a role, against it when negative. Called by draft_match.c. Read
 * draft.h before. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draft.h"

/* A word of four letters or more is also found within longer ones. */
typedef struct sound {
    const char *role; /* part of the engine's name */
    const char *words; /* "word word:2 word:-3" */
} sound_t;

#define ATTENTION "attn:1 attention:1 self:1 sa:1 mha:1 mlp:-3 ffn:-3 ff:-3 " \
                  "feed:-3 fc:-2 expert:-3 experts:-3 moe:-3 norm:-4 ln:-4 " \
                  "layernorm:-4 rms:-4 "
#define FEED "mlp:1 ffn:1 ff:1 feed:1 fc:1 forward:1 attn:-3 attention:-3 " \
             "self:-2 norm:-4 ln:-4 layernorm:-4 qkv:-4 "
#define NORM "norm:2 ln:2 layernorm:2 rmsnorm:2 layer:1 scale:1 proj:-3 " \
             "linear:-3 "
#define NO_BIAS " bias:-6 beta:-4 b:-3 weight:1 gamma:1 kernel:1"
#define BIAS " bias:6 beta:4 b:3 weight:-6 gamma:-4 kernel:-4 w:-3"

static const sound_t sounds[] = {
    {"embed_tokens.weight",
     "embed:2 embedding:1 emb:2 embedder:2 wte:4 tok:3 token:2 tokens:2 "
     "word:3 words:3 vocab:2 in:1 input:1 shared:1 pos:-4 position:-4 "
     "head:-4 out:-4 output:-4 lm:-3 norm:-4 unembed:-6 logits:-4 decoder:-1"},
    {"position_embeddings.weight",
     "pos:4 position:4 positions:4 positional:4 wpe:4 embed:1 token:-3 "
     "word:-3"},
    {"lm_head.weight",
     "head:4 lm:3 output:3 out:3 unembed:5 logits:4 classifier:3 score:2 "
     "decoder:2 embed:-1 emb:-1 wte:-4 tok:-3 token:-2 in:-2 norm:-4 vocab:1"},
    {".input_layernorm",
     NORM "input:4 in:2 pre:1 1:3 first:3 before:2 attn:3 attention:3 sa:3 "
          "self:2 ln1:4 norm1:4 post:-5 2:-3 second:-3 after:-3 mlp:-4 ffn:-4 "
          "ff:-4 feed:-4 q:-5 k:-5 query:-5 key:-5 kv:-5 final:-5"},
    {".post_attention_layernorm",
     NORM "post:4 2:3 second:3 after:3 mlp:4 ffn:4 ff:4 feed:4 forward:2 "
          "ln2:4 norm2:4 input:-4 1:-3 first:-3 attn:-1 q:-5 k:-5 query:-5 "
          "key:-5 kv:-5 final:-4"},
    {"norm.weight", NORM "final:3 last:3 f:2 out:1 output:1 end:2 post:1"},
    {"norm.bias", NORM "final:3 last:3 f:2 out:1 output:1 end:2 post:1"},
    {".q_norm", NORM "q:5 query:5 k:-5 key:-5 kv:-4"},
    {".k_norm", NORM "k:5 key:5 q:-5 query:-5"},
    {".q_a_layernorm", NORM "q:4 query:4 a:2 kv:-5"},
    {".kv_a_layernorm", NORM "kv:5 a:2 latent:2 q:-5 query:-5"},
    {".q_a_proj", ATTENTION "q:3 query:3 wq:3 wkv:-4 a:3 down:2 compress:2 "
                            "b:-2 kv:-4"},
    {".q_b_proj", ATTENTION "q:3 query:3 wq:3 wkv:-4 b:3 up:2 a:-3 kv:-4"},
    {".kv_a_proj", ATTENTION "kv:4 wkv:4 wq:-4 a:3 down:2 compress:2 "
                             "latent:1 rope:1 b:-2"},
    {".kv_b_proj", ATTENTION "kv:4 wkv:4 wq:-4 b:3 up:2 decompress:2 a:-3"},
    {".q_proj", ATTENTION "q:5 wq:5 query:5 queries:5 toq:5 qproj:5 k:-4 v:-4 "
                          "kv:-4 key:-4 value:-4 qkv:-3 out:-3 o:-4"},
    {".k_proj", ATTENTION "k:5 wk:5 key:5 keys:5 tok:5 kproj:5 q:-4 v:-4 "
                          "query:-4 value:-4 qkv:-3 kv:-2 out:-3 o:-4"},
    {".v_proj", ATTENTION "v:5 wv:5 value:5 values:5 tov:5 vproj:5 q:-4 k:-4 "
                          "query:-4 key:-4 qkv:-3 kv:-2 out:-3 o:-4"},
    {".o_proj", ATTENTION "o:5 wo:5 out:4 output:4 dense:2 oproj:5 proj:1 "
                          "c:1 q:-4 k:-4 v:-4 query:-5 key:-5 value:-5 qkv:-5"},
    {".e_score_correction_bias",
     "correction:5 score:3 bias:3 e:1 router:2 gate:1 weight:-4 norm:-4"},
    {".shared_expert_gate", "shared:4 gate:3 sigmoid:2"},
    {".gate.weight", "gate:4 router:6 route:6 routing:6 gating:6 switch:4 "
                   "expert:1 choose:2 wg:3 proj:-3 norm:-5 attn:-4 up:-4 "
                   "down:-4 shared:-4"},
    {"gate_proj", FEED "gate:5 gated:4 gating:2 w1:5 wg:5 g:3 act:3 silu:3 "
                       "wi0:4 0:1 1:1 up:-4 down:-4 u:-3 d:-3 w3:-5 w2:-4 "
                       "out:-4 2:-1 3:-2 router:-5"},
    {"up_proj", FEED "up:5 w3:5 u:3 wi:2 1:1 3:2 fc1:4 in:2 cfc:4 c:1 expand:4 "
                     "h:1 intermediate:3 linear:1 gate:-5 gated:-4 down:-5 "
                     "d:-3 g:-3 w2:-4 w1:1 2:-2 out:-4 output:-4 proj:-1 "
                     "router:-5"},
    {"down_proj", FEED "down:5 w2:5 d:3 wo:4 out:4 output:4 fc2:4 2:3 c:1 "
                       "shrink:4 contract:4 proj:2 dense:1 gate:-5 up:-5 u:-3 "
                       "g:-3 in:-4 w1:-4 w3:-4 fc1:-4 expand:-4 1:-2 "
                       "router:-5"},
};

/* Several parameters in one tensor. */
static const char fused_qkv[] =
    ATTENTION "qkv:6 wqkv:6 c:1 cattn:4 pack:4 packed:4 in:2 query:2 key:2 "
              "value:2 q:1 k:1 v:1 fused:2 o:-3 out:-4 dense:-2";
static const char fused_kv[] =
    ATTENTION "kv:6 wkv:6 key:3 value:3 k:1 v:1 q:-5 query:-5 out:-4";
static const char fused_gate[] =
    FEED "gate:3 up:3 gateup:5 w13:5 w12:4 fused:2 in:2 wi:3 fc1:3 1:1 h:2 "
         "glu:3 down:-6 out:-5 w2:-4 fc2:-5";

/* Experts for images beside those for texts. */
static const char second_set[] =
    "vision:4 visual:4 image:4 images:4 img:4 vit:4 pixel:4 second:3 1:2 "
    "text:-4 texts:-4 language:-4 0:-2";

enum { MOST_TOKENS = 48, TOKEN_BYTES = 40 };

typedef struct tokens {
    int count;
    char text[MOST_TOKENS][TOKEN_BYTES];
} tokens_t;

static void add_token(tokens_t *t, const char *text, size_t length)
{
    if (length > 0 && length < TOKEN_BYTES && t->count < MOST_TOKENS) {
        memcpy(t->text[t->count], text, length);
        t->text[t->count++][length] = '\0';
    }
}

/* A word as it stands, and without digits at its end, and these. */
static void add_word(tokens_t *t, const char *text, size_t length)
{
    size_t letters = length;
    while (letters > 0 && isdigit((unsigned char)text[letters - 1])) {
        letters--;
    }
    add_token(t, text, length);
    if (letters > 0 && letters < length) {
        add_token(t, text, letters);
        add_token(t, text + letters, length - letters);
    }
}

/* Words end at signs and before a capital ("normAttn"); neighbours are taken
 * together as well ("c_fc" is also "cfc"). */
static void split(const char *name, tokens_t *t)
{
    char last[TOKEN_BYTES] = "";
    t->count = 0;
    while (*name != '\0') {
        char word[TOKEN_BYTES];
        size_t n = 0;
        while (isalnum((unsigned char)name[n]) && n + 1 < TOKEN_BYTES &&
               !(n > 0 && isupper((unsigned char)name[n]) &&
                 islower((unsigned char)name[n - 1]))) {
            word[n] = (char)tolower((unsigned char)name[n]);
            n++;
        }
        word[n] = '\0';
        add_word(t, word, n);
        if (n > 0 && strlen(last) + n < TOKEN_BYTES && strlen(last) < 3) {
            char both[2 * TOKEN_BYTES];
            int length = snprintf(both, sizeof(both), "%s%s", last, word);
            if (last[0] != '\0') {
                add_token(t, both, (size_t)length);
            }
        }
        memcpy(last, word, n + 1);
        name += n;
        while (*name != '\0' && !isalnum((unsigned char)*name)) {
            last[0] = *name == '_' ? last[0] : '\0';
            name++;
        }
    }
}

static bool has_token(const tokens_t *t, const char *word, size_t length)
{
    for (int i = 0; i < t->count; i++) {
        if (strlen(t->text[i]) == length &&
            memcmp(t->text[i], word, length) == 0) {
            return true;
        }
    }
    for (int i = 0; length >= 4 && i < t->count; i++) {
        for (const char *c = t->text[i]; strlen(c) > length; c++) {
            if (memcmp(c, word, length) == 0 ||
                memcmp(c + 1, word, length) == 0) {
                return true;
            }
        }
    }
    return false;
}

static double hear(const tokens_t *t, const char *words)
{
    double score = 0;
    while (*words != '\0') {
        size_t length = strcspn(words, ": ");
        double weight = 1;
        const char *next = words + length;
        if (*next == ':') {
            char *end = NULL;
            weight = (double)strtol(next + 1, &end, 10);
            next = end;
        }
        score += length > 0 && has_token(t, words, length) ? weight : 0;
        words = next + strspn(next, " ");
    }
    return score;
}

static const char *words_of(const char *role)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(sounds); i++) {
        const char *part = sounds[i].role;
        if (part[0] == '.' || strstr(part, "_proj") != NULL
                ? strstr(role, part) != NULL
                : strcmp(role, part) == 0) {
            return sounds[i].words;
        }
    }
    return "";
}

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(end);
    return strlen(text) >= n && strcmp(text + strlen(text) - n, end) == 0;
}

static bool has_number(const tokens_t *t)
{
    bool found = false;
    for (int i = 0; i < t->count; i++) {
        found = found || t->text[i][strspn(t->text[i], "0123456789")] == '\0';
    }
    return found;
}

double loongi_draft_sound(const char *text, const char *const *roles,
                          int count)
{
    tokens_t t;
    split(text, &t);
    bool bias = ends_in(roles[0], "bias");
    double score = hear(&t, bias ? BIAS : NO_BIAS);
    const char *words = count == 3                               ? fused_qkv
                        : count == 2 && strstr(roles[0], "k_proj") ? fused_kv
                        : count == 2                             ? fused_gate
                                                                 : NULL;
    score += hear(&t, words != NULL ? words : words_of(roles[0]));
    bool vision = strstr(roles[0], ".vision_moe.") != NULL;
    if (vision || strstr(roles[0], ".text_moe.") != NULL) {
        score += (vision ? 1 : -1) * hear(&t, second_set);
    }
    if (strchr(roles[0], '#') == NULL) { /* what is counted is not whole */
        score -= has_number(&t) ? 3 : 0;
    }
    bool shared = strstr(roles[0], "shared_expert") != NULL;
    score += has_token(&t, "shared", 6) == shared ? 0 : -4;
    return score;
}
