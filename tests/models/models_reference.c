/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints docs/models.md from the presets and from the files that the proofs
 * leave or read; with --families the table of families alone, and the exit
 * code 1 when a proof of one is missing. The test models_reference compares;
 * `build/models_reference > docs/models.md` renews. */
#include <dirent.h>

#include "decoder_config.h"
#include "families.h"
#include "file.h"
#include "json.h"
#include "loong/register.h"
#include "plans.h"
#include "preset.h"
#include "test.h"

#define GOLDEN LOONG_SOURCE_DIR "/tests/golden"

enum { MAX_TYPES = 64, MAX_FAMILIES = 64 };

/* What is shown of one type of config.json. */
typedef struct type {
    char name[40];
    int golden;   /* configurations compared with transformers */
    int bf16;     /* of these, in bf16 as well */
    int exported; /* of these, read back by transformers */
    int fields;   /* changes of config.json that were tried */
    int losses;   /* configurations with losses of routers */
    bool experts; /* a preset has some */
    const family_case_t *layout;
} type_t;

typedef struct family {
    char folder[40];
    int type;
    int sizes;
    int planned; /* of these, with a layout of several ranks */
} family_t;

typedef struct report {
    loong_context_t *ctx;
    loong_json_t *published, *published_vl, *fields, *exported, *sources;
    type_t types[MAX_TYPES];
    int num_types;
    family_t families[MAX_FAMILIES];
    int num_families;
} report_t;

/* ---- what there is ------------------------------------------------------ */

static int find_type(report_t *r, const char *name)
{
    for (int i = 0; i < r->num_types; i++) {
        if (strcmp(r->types[i].name, name) == 0) {
            return i;
        }
    }
    assert_true(r->num_types < MAX_TYPES);
    snprintf(r->types[r->num_types].name, sizeof(r->types[0].name), "%s",
             name);
    return r->num_types++;
}

static bool has_file(const char *fixture, const char *file)
{
    char path[600];
    snprintf(path, sizeof(path), GOLDEN "/fixtures/%s/%s", fixture, file);
    return loongi_file_exists(path);
}

static void count_fixture(report_t *r, const char *name)
{
    char path[600];
    loong_json_t *config = NULL;
    const loong_json_t *all = loongi_json_get(r->exported, "fixtures");
    snprintf(path, sizeof(path), GOLDEN "/fixtures/%s/config.json", name);
    assert_ok(r->ctx, loongi_json_load(r->ctx, path, &config));
    const char *type =
        loongi_json_string(loongi_json_get(config, "model_type"));
    type_t *t = &r->types[find_type(r, type)];
    const loong_json_t *exported = loongi_json_get(all, name);
    t->golden += has_file(name, "golden.safetensors");
    t->bf16 += has_file(name, "bf16.json");
    t->losses += has_file(name, "router_losses.safetensors");
    t->exported += exported != NULL &&
                   strcmp(loongi_json_string(loongi_json_get(
                              exported, "model_type")), type) == 0;
    loongi_json_destroy(&config);
}

static void count_fixtures(report_t *r)
{
    struct dirent **names = NULL;
    int count = scandir(GOLDEN "/fixtures", &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.') {
            count_fixture(r, names[i]->d_name);
        }
        free(names[i]);
    }
    free(names);
}

static void count_fields(report_t *r)
{
    for (int64_t i = 0; i < loongi_json_count(r->fields); i++) {
        const loong_json_t *f = loongi_json_at(r->fields, i);
        const char *name = loongi_json_string(loongi_json_get(f,
                                                              "model_type"));
        r->types[find_type(r, name)].fields +=
            (int)loongi_json_count(loongi_json_get(f, "cases"));
    }
}

static void count_preset(void *user, const char *name)
{
    report_t *r = user;
    char folder[40];
    loong_pairs_t *pairs = preset_load(r->ctx, name);
    int type = find_type(r, loongi_pairs_get(pairs, "family"));
    snprintf(folder, sizeof(folder), "%.*s", (int)strcspn(name, "/"), name);
    int i = 0;
    while (i < r->num_families &&
           (r->families[i].type != type ||
            strcmp(r->families[i].folder, folder) != 0)) {
        i++;
    }
    if (i == r->num_families) {
        assert_true(r->num_families < MAX_FAMILIES);
        r->num_families++;
        r->families[i].type = type;
        memcpy(r->families[i].folder, folder, sizeof(folder));
    }
    r->families[i].sizes++;
    r->types[type].experts |= loongi_pairs_get(pairs, "num_experts") != NULL;
    for (int64_t k = 0; k < LOONG_COUNT_OF(plans); k++) {
        r->families[i].planned += strcmp(plans[k].model, name) == 0;
    }
    loongi_pairs_destroy(&pairs);
}

static void collect(report_t *r)
{
    count_fixtures(r);
    count_fields(r);
    for (int64_t i = 0; i < LOONG_COUNT_OF(family_cases); i++) {
        int type = find_type(r, family_cases[i].model_type);
        r->types[type].layout = &family_cases[i];
    }
    (void)preset_each(count_preset, r);
}

/* ---- the table of families ---------------------------------------------- */

static const char *size_of(const family_case_t *f, const char *key, char *text)
{
    const char *at = f != NULL ? strstr(f->parallel, key) : NULL;
    text[0] = '\0';
    if (at != NULL) {
        snprintf(text, 8, "%d", atoi(at + strlen(key)));
    }
    return text;
}

static void print_layout(const family_case_t *f)
{
    static const char *const keys[][2] = {
        {TP, "tensor"}, {CP, "context"}, {PP, "pipeline"}, {EP, "expert"},
        {ETP, "expert tensor"}};
    char text[8];
    bool some = false;
    printf(" ");
    if (f != NULL) {
        printf("✓ %d ranks:", f->ranks);
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        if (size_of(f, keys[i][0], text)[0] != '\0' && text[0] != '1') {
            printf("%s %s %s", some ? "," : "", keys[i][1], text);
            some = true;
        }
    }
    printf("%s |", f != NULL ? "" : "✗");
}

/* "✓ 4"; what transformers has no class for has no fields to try. */
static bool print_count(int count, int wanted, bool can_be)
{
    if (count >= wanted) {
        printf(" ✓ %d |", count);
    } else {
        printf(can_be ? " ✗ %d |" : " – |", count);
    }
    return count >= wanted || !can_be;
}

/* Types that transformers computes under another name: tests/golden/disguise.py
 * renames their files. */
static bool is_native(const type_t *t)
{
    static const char *const others[] = {"internlm2", "qwen", "mimo",
                                         "kimi_k2"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(others); i++) {
        if (strcmp(others[i], t->name) == 0) {
            return false;
        }
    }
    return true;
}

/* All of them by themselves, and large ones in layouts. */
static void print_planned(const family_t *f)
{
    printf(" ✓ %d", f->sizes);
    if (f->planned > 0) {
        printf(", %d on many ranks", f->planned);
    }
    printf(" |");
}

static bool print_family(const report_t *r, const family_t *f)
{
    const type_t *t = &r->types[f->type];
    printf("| `%s` | `%s` |", f->folder, t->name);
    bool good = print_count(t->golden, 2, true);
    good = print_count(t->bf16, 2, true) && good;
    good = print_count(t->exported, t->golden, true) && good;
    good = print_count(t->losses, 2, t->experts) && good;
    good = print_count(t->fields, 1, is_native(t)) && good;
    /* A row of families.h is read in fp8 and trained in its layout. */
    printf(t->layout != NULL ? " ✓ |" : " ✗ |");
    print_layout(t->layout);
    good = print_count(f->sizes, 1, true) && good && t->layout != NULL;
    print_planned(f);
    printf("\n");
    return good;
}

static bool print_families(const report_t *r)
{
    bool good = true;
    printf("| presets | model_type | golden | bf16 | exported | aux loss | "
           "fields | fp8 | 20 steps | sizes | dry run |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < r->num_families; i++) {
        good = print_family(r, &r->families[i]) && good;
    }
    return good;
}

/* ---- sizes -------------------------------------------------------------- */

static void print_grouped(int64_t value)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%lld", (long long)value);
    for (int i = 0; i < n; i++) {
        printf("%s%c", i > 0 && (n - i) % 3 == 0 ? " " : "", text[i]);
    }
}

static void print_attention(const loong_decoder_config_t *c)
{
    if (c->kv_lora_rank > 0) {
        printf(" | %d x %d + %d, latent %lld", (int)c->num_attention_heads,
               c->qk_head_dim, c->qk_pos_emb_head_dim,
               (long long)c->kv_lora_rank);
    } else {
        printf(" | %d / %d x %d", (int)c->num_attention_heads,
               (int)c->num_query_groups, (int)c->kv_channels);
    }
}

static void print_preset(void *user, const char *name)
{
    report_t *r = user;
    preset_size_t size;
    loong_decoder_config_t c;
    const loong_json_t *entry = loongi_json_get(r->published, name);
    loong_pairs_t *pairs = preset_load(r->ctx, name);
    preset_measure(r->ctx, pairs, &size);
    assert_ok(r->ctx, loongi_decoder_configure(r->ctx, pairs, &c));
    printf("| `%s` | ", name);
    print_grouped(size.parameters);
    printf(" | ");
    print_grouped(size.active);
    printf(" | %d x %lld", c.num_layers, (long long)c.hidden_size);
    print_attention(&c);
    if (c.num_experts > 0) {
        printf(" | %d of %d%s%s", c.router.topk, c.num_experts,
               c.vision_ffn > 0 ? ", as many for images" : "",
               c.shared_expert_ffn > 0 ? " + shared" : "");
    } else {
        printf(" |");
    }
    printf(" | %lld | %s%s |\n", (long long)c.max_position_embeddings,
           loongi_json_string(loongi_json_get(entry, "counted_by")),
           loongi_json_bool(loongi_json_get(entry, "published"))
               ? ""
               : ", of a size without published weights");
    loongi_pairs_destroy(&pairs);
}

/* ---- models of several components ---------------------------------------- */

static const char whole_head[] =
    "\n"
    "## Models that see\n"
    "\n"
    "Presets of several components "
    "([image-text-families.md](image-text-families.md) tells\n"
    "what is proved of them).\n"
    "Parameters are those of transformers' own class "
    "(`tests/models/published_vl.py`); `ctest -R\n"
    "whole_presets` compares them and all keys, and plans the largest. "
    "Settings are written down\n"
    "from what is publicly known.\n"
    "\n"
    "| `model:` | encoder | projector | language model | all | counted by |\n"
    "|---|---|---|---|---|---|\n";

static void print_whole(void *user, const char *name)
{
    static const char *const roles[] = {"image_encoder", "image_projector",
                                        "foundation"};
    const report_t *r = user;
    const loong_json_t *entry = loongi_json_get(r->published_vl, name);
    const loong_json_t *n = loongi_json_get(entry, "parameters");
    int64_t all = 0;
    printf("| `%s` | ", name);
    for (int64_t i = 0; i < LOONG_COUNT_OF(roles); i++) {
        int64_t own = loongi_json_int(loongi_json_get(n, roles[i]));
        print_grouped(own);
        printf(" | ");
        all += own;
    }
    print_grouped(all);
    printf(" | %s |\n",
           loongi_json_string(loongi_json_get(entry, "counted_by")));
}

/* ---- sources of settings ------------------------------------------------- */

/* Settings that no source confirms; the sources are those of the others. */
static void print_sources_of(const char *name, const loong_json_t *settings)
{
    int open = 0;
    int all = (int)loongi_json_count(settings);
    printf("| `%s` |", name);
    for (const loong_json_member_t *m = loongi_json_first(settings); m != NULL;
         m = loongi_json_next(settings, m)) {
        open += loongi_json_count(loongi_json_member_value(m)) == 0;
    }
    printf(" %d of %d |", all - open, all);
    bool some = false;
    for (const loong_json_member_t *m = loongi_json_first(settings);
         m != NULL && open < all; m = loongi_json_next(settings, m)) {
        if (loongi_json_count(loongi_json_member_value(m)) == 0) {
            printf("%s %s", some ? "," : "", loongi_json_member_key(m));
            some = true;
        }
    }
    printf("%s |\n", open == all ? " all" : "");
}

/* What a source says otherwise, and whose value that is. */
static void print_differences(const report_t *r)
{
    const loong_json_t *list = loongi_json_get(r->sources, "otherwise");
    printf("\nWhere a source says otherwise, it means another model:\n\n"
           "| `model:` | setting | here | there | whose |\n"
           "|---|---|---|---|---|\n");
    for (int64_t i = 0; i < loongi_json_count(list); i++) {
        const loong_json_t *row = loongi_json_at(list, i);
        printf("| `%s` | %s | %.10g | %.10g (%s) | %s |\n",
               loongi_json_string(loongi_json_at(row, 0)),
               loongi_json_string(loongi_json_at(row, 1)),
               loongi_json_real(loongi_json_at(row, 2)),
               loongi_json_real(loongi_json_at(row, 4)),
               loongi_json_string(loongi_json_at(row, 3)),
               loongi_json_string(loongi_json_at(row, 5)));
    }
}

static void print_sources(const report_t *r)
{
    const loong_json_t *all = loongi_json_get(r->sources, "presets");
    const loong_json_t *names = loongi_json_get(r->sources, "sources");
    printf("\n## Settings and who confirms them\n\n"
           "`published.py` and the presets are of one hand. "
           "tests/models/sources.py compares every\n"
           "setting with what others wrote: ");
    for (int64_t i = 0; i < loongi_json_count(names); i++) {
        printf("%s%s", i > 0 ? ", " : "",
               loongi_json_string(loongi_json_at(names, i)));
    }
    printf(" (of transformers the defaults of\n"
           "classes that are written after a published model; `mlc`: MLC LLM's "
           "copies of config.json;\n"
           "`pai`: Alibaba's scripts for Megatron; `table`: public recipes; "
           "`config.json`: the publisher's\n"
           "own). What is listed here nobody else says, so compare it with "
           "the\n"
           "publisher's file, or take that by `from_hf`.\n\n"
           "| `model:` | confirmed | not confirmed |\n|---|---|---|\n");
    for (const loong_json_member_t *m = loongi_json_first(all); m != NULL;
         m = loongi_json_next(all, m)) {
        print_sources_of(loongi_json_member_key(m),
                         loongi_json_member_value(m));
    }
    print_differences(r);
}

/* ---- the document ------------------------------------------------------- */

static const char head[] =
    "# Models\n"
    "\n"
    "Made by `models_reference` from the presets and the proofs; do not "
    "edit.\n"
    "\n"
    "A recipe names a preset, and changes parts of it:\n"
    "\n"
    "    model: qwen3/qwen3_8b\n"
    "    foundation: {num_layers: 4}\n"
    "\n"
    "or takes what the config.json of a Hugging Face directory says, "
    "`model: {from_hf: DIR}`;\n"
    "`init: {from_hf: DIR}` takes the weights as well. `loongrun RECIPE "
    "--check --elsewhere`\n"
    "tells parameters and memory, also of a recipe that has nothing else "
    "(`--ranks N` and\n"
    "`parallel.*` for a layout).\n"
    "\n"
    "## Families\n"
    "\n";

static const char proofs[] =
    "\n"
    "`make families` runs what the ticks stand for and prints this table; "
    "with\n"
    "`PYTHON=VENV/bin/python` (tests/golden/README.md) also what needs "
    "transformers %s.\n"
    "\n"
    "| column | what is shown | command |\n"
    "|---|---|---|\n"
    "| golden | small random configurations: logits, losses and the gradient "
    "of every parameter equal transformers' in f64 (1e-9) and fp32 (1e-5, "
    "gradients 1e-4) | `ctest -R '^golden$'` |\n"
    "| bf16 | of these, logits, losses and gradients inside the envelope that "
    "bf16 itself gives; where a rounding could send a token to another expert, "
    "all take those of the exact model | `ctest -R golden_bf16` |\n"
    "| exported | of these, imported and exported in several files: the "
    "tensors bit for bit, a config.json of the same meaning, and "
    "transformers loads every tensor and gives the same logits | `ctest -R "
    "'^hf$'`, `tests/golden/check_families.py` |\n"
    "| aux loss | small random configurations: the routers' losses, of "
    "micro-batches, of sequences and of all layers together, and the z-loss, "
    "and the gradient of every parameter equal the formulas in f64 (1e-9) and "
    "fp32 (1e-5, gradients 1e-4); that of all layers is what transformers "
    "adds, where its class adds one | `ctest -R router_losses` |\n"
    "| fields | changes of config.json: what changes the model is mapped or "
    "refused by its name | `ctest -R hf_fields`, `tests/golden/fields.py` |\n"
    "| fp8 | e4m3 weights in blocks, in one file and in several, are read and "
    "imported to the bits of their products; scales that lack or do not fit "
    "are refused by name; transformers multiplies out the same bits (11 of "
    "the types) | `ctest -R fp8_families`, `tests/golden/check_fp8.py` |\n"
    "| 20 steps | of training on this many ranks and on one: "
    "loss, gradient norm, parameters and moments agree in f64 (1e-9) | "
    "`ctest -R families` |\n"
    "| sizes | presets with the parameters that transformers' own class "
    "counts, in all and for a token, and the settings that published.py wrote "
    "down (not from the publishers' files) | `ctest -R presets`, "
    "`tests/models/published.py` |\n"
    "| dry run | built and planned by `loongrun --dry-run`; with 4 layers also "
    "with other widths, vocabularies, experts, rope and tying, or refused by "
    "name; from 60e9 parameters on in a layout of up to 1024 ranks, with the "
    "memory of each stage, within 2 s of one core | `ctest -V -R dry_run`, "
    "`ctest -R overrides` |\n"
    "\n"
    "Every family is also planned from `model: {from_hf: DIR}` alone (`ctest "
    "-R from_hf`).\n"
    "docs/performance.md has the seconds of the large presets.\n"
    "\n"
    "transformers has no class for `internlm2`, `qwen`, `mimo` and "
    "`kimi_k2`: the class that\n"
    "computes the same does it (Llama, Qwen2, Qwen2, DeepSeek-V3), on files "
    "in the\n"
    "publishers' layout (tests/golden/disguise.py). Their exports are loaded "
    "in both ways that\n"
    "docs/checkpoints.md describes: by Python files that came with the "
    "weights, and `--as` one\n"
    "of these classes. Layers that predict further tokens (DeepSeek-V3, "
    "Kimi-K2, MiMo, ERNIE 4.5\n"
    "with experts, MiniMax-M2) are left out of imports, with a warning "
    "(`ctest -R predictors`).\n"
    "Where the choice of experts has a bias (DeepSeek-V3, Kimi-K2, "
    "MiniMax-M2, ERNIE 4.5), training\n"
    "moves it by 1e-3 a step, also after an import, as Megatron does;\n"
    "`foundation.moe_router_bias_update_rate=0` keeps it.\n"
    "\n"
    "ERNIE 4.5 VL has a set of experts for texts and one for images in each "
    "layer\n"
    "(`foundation.moe_vision_ffn_hidden_size`): all tokens are text but those "
    "whose ids\n"
    "`data.vision_token_ids` names. A directory of it is a whole model "
    "([image-text.md](image-text.md));\n"
    "`model.foundation.init.from_hf` takes its language model alone. The "
    "parameters for a token\n"
    "are those of a text's.\n"
    "\n"
    "Models that are trained further keep the sizes of the first: "
    "DeepSeek-V3.1, V3-0324 and R1 are\n"
    "`deepseek_v3/deepseek_v3_671b`, MiniMax-M2.1 and M2.5 "
    "`minimax_m2/minimax_m2_230b`, Llama 3.3\n"
    "`llama3.1/llama3.1_70b`; Kimi-K2-0905 and Qwen3-2507 differ in "
    "`max_position_embeddings` and rope,\n"
    "so take these by `from_hf`. `mistral` (fixtures `mistral_window`, "
    "`mistral_wide`) is family `llama`\n"
    "with `window_size`. `phi3` (fixtures `phi3_window`, `phi3_tied`) has no "
    "preset; its LongRoPE is\n"
    "refused. Refused by name, though transformers takes them: "
    "windows of Qwen2-MoE, which\n"
    "are in every other layer, mixtures without a layer with experts, and "
    "an odd number of rotated\n"
    "channels.\n"
    "\n"
    "## What could not be had\n"
    "\n"
    "- Weights as they are published, but one model's: SmolLM2-135M\n"
    "  (docs/continue-pretraining.md). All else above is shown on small random "
    "models in the\n"
    "  publishers' layout, and on shapes alone in the real sizes: no other "
    "published model was read,\n"
    "  asked or trained.\n"
    "- The publishers' config.json, but that model's. Presets come from "
    "other sources, and what these\n"
    "  do not say is listed below as not confirmed.\n"
    "- The publishers' Python files of `internlm2`, `qwen`, `mimo` and "
    "`kimi_k2`: tests/golden/own_code\n"
    "  stands in for them.\n"
    "- Layers that predict further tokens: their names are those that the "
    "publishers' loaders leave\n"
    "  out; MiniMax-M2's are assumed to be numbered behind the model's own. A "
    "layer behind the last\n"
    "  without `eh_proj` is none: `num_hidden_layers` is too small, and it is "
    "refused.\n"
    "- An oracle in transformers for losses of the routers of `deepseek_v2`, "
    "`deepseek_v3` and\n"
    "  `kimi_k2`, and for `seq_aux_loss`: it has none, so formulas stand in "
    "(tests/golden/router_losses.py).\n"
    "- An oracle for fp8 blocks of `gpt2`, `qwen`, `internlm2`, `mimo`, "
    "`kimi_k2` and\n"
    "  `ernie4_5_vl_moe`: transformers does not read theirs.\n"
    "\n"
    "## Sizes\n"
    "\n"
    "| `model:` | parameters | for a token | layers x width | heads / key "
    "heads x width | experts | context | counted by |\n"
    "|---|---|---|---|---|---|---|---|\n";

static void load(report_t *r, const char *path, loong_json_t **json_p)
{
    assert_ok(r->ctx, loongi_json_load(r->ctx, path, json_p));
}

int main(int argc, char **argv)
{
    static report_t r;
    r.ctx = test_context();
    assert_ok(r.ctx, loong_register_builtin(r.ctx));
    load(&r, LOONG_SOURCE_DIR "/tests/models/published.json", &r.published);
    load(&r, LOONG_SOURCE_DIR "/tests/models/published_vl.json",
         &r.published_vl);
    load(&r, LOONG_SOURCE_DIR "/tests/models/sources.json", &r.sources);
    load(&r, GOLDEN "/fields.json", &r.fields);
    load(&r, GOLDEN "/exported.json", &r.exported);
    collect(&r);
    bool alone = argc == 2 && strcmp(argv[1], "--families") == 0;
    printf("%s", alone ? "" : head);
    bool good = print_families(&r);
    if (!alone) {
        printf(proofs, loongi_json_string(
                           loongi_json_get(r.exported, "transformers")));
        (void)preset_each(print_preset, &r);
        printf("%s", whole_head);
        (void)preset_each_whole(print_whole, &r);
        print_sources(&r);
    }
    loongi_json_destroy(&r.published);
    loongi_json_destroy(&r.published_vl);
    loongi_json_destroy(&r.sources);
    loongi_json_destroy(&r.fields);
    loongi_json_destroy(&r.exported);
    loong_context_destroy(&r.ctx);
    return good ? 0 : 1;
}
