/* SPDX-License-Identifier: Apache-2.0 */
#include "preset.h"

#include <dirent.h>
#include <math.h>

#include "decoder_config.h"
#include "graph_impl.h"
#include "loong/recipe.h"
#include "test.h"

#define MODELS LOONG_SOURCE_DIR "/configs/models"

/* Names in a directory, without those that begin with a dot. */
static int list(const char *path, struct dirent ***names_p)
{
    int count = scandir(path, names_p, NULL, alphasort);
    assert_true(count > 0);
    return count;
}

/* Names its components. */
static bool is_whole(const char *name)
{
    char path[1024];
    char line[256];
    bool found = false;
    snprintf(path, sizeof(path), MODELS "/%s.yaml", name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        found = strncmp(line, "foundation:", 11) == 0;
    }
    fclose(file);
    return found;
}

static int each(bool whole, void (*visit)(void *user, const char *name),
                void *user)
{
    struct dirent **families = NULL;
    int seen = 0;
    int num_families = list(MODELS, &families);
    for (int i = 0; i < num_families; i++) {
        struct dirent **files = NULL;
        char path[512];
        if (families[i]->d_name[0] == '.') {
            free(families[i]);
            continue;
        }
        snprintf(path, sizeof(path), MODELS "/%s", families[i]->d_name);
        int num_files = list(path, &files);
        for (int k = 0; k < num_files; k++) {
            char name[512];
            int n = snprintf(name, sizeof(name), "%.100s/%.100s",
                             families[i]->d_name, files[k]->d_name);
            if (files[k]->d_name[0] != '.') {
                assert_string_equal(name + n - 5, ".yaml");
                name[n - 5] = '\0';
                if (is_whole(name) == whole) {
                    visit(user, name);
                    seen++;
                }
            }
            free(files[k]);
        }
        free(files);
        free(families[i]);
    }
    free(families);
    return seen;
}

int preset_each(void (*visit)(void *user, const char *name), void *user)
{
    return each(false, visit, user);
}

int preset_each_whole(void (*visit)(void *user, const char *name), void *user)
{
    return each(true, visit, user);
}

static loong_status_t collect(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

loong_pairs_t *preset_load(loong_context_t *ctx, const char *name)
{
    return preset_load_role(ctx, name, "foundation");
}

loong_pairs_t *preset_load_role(loong_context_t *ctx, const char *name,
                                const char *role)
{
    char text[256];
    char prefix[64];
    loong_recipe_t *recipe = NULL;
    loong_pairs_t *pairs = NULL;
    loong_recipe_params_t params = {LOONG_SOURCE_DIR "/configs", 0, NULL, 0,
                                    NULL};
    snprintf(text, sizeof(text), "model: %s\n", name);
    assert_ok(ctx, loong_recipe_parse(ctx, name, text, &params, &recipe));
    assert_ok(ctx, loongi_pairs_create(ctx, &pairs));
    snprintf(prefix, sizeof(prefix), "model.%s", role);
    assert_ok(ctx, loong_recipe_each(recipe, prefix, collect, pairs));
    loong_recipe_destroy(&recipe);
    return pairs;
}

/* The model's own count against its graph: query by query. */
static void count_attention(const loong_graph_t *graph,
                            const loong_decoder_config_t *config)
{
    enum { LENGTH = 5000 };
    double flops = 0.0;
    for (int64_t i = 0; i < graph->num_nodes; i++) {
        const loong_attention_attr_t *a = graph->nodes[i].attr;
        double keys = 0.0;
        if (strcmp(graph->nodes[i].op->name, "attention") != 0) {
            continue;
        }
        for (int64_t t = 1; t <= LENGTH; t++) {
            keys += (double)(a->window > 0 && t > a->window ? a->window : t);
        }
        int values = a->v_head_dim > 0 ? a->v_head_dim : a->head_dim;
        flops += 3.0 * 2.0 * keys / LENGTH * a->heads *
                 (a->head_dim + values);
    }
    double own = loongi_decoder_attention_flops(config, LENGTH);
    assert_true(flops > 0.0 && fabs(own - flops) <= 1e-9 * flops);
}

int64_t preset_count(const loong_graph_t *graph, const char *part)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < graph->num_params; i++) {
        const loong_shape_t *shape = &graph->params[i].params.shape;
        int64_t elements = 1;
        for (int d = 0; d < shape->rank; d++) {
            elements *= shape->dim[d];
        }
        sum += strstr(graph->params[i].params.name, part) != NULL ? elements
                                                                   : 0;
    }
    return sum;
}

void preset_measure(loong_context_t *ctx, const loong_pairs_t *pairs,
                    preset_size_t *size)
{
    loong_decoder_config_t config;
    loong_model_facts_t facts;
    loong_precision_t precision = {LOONG_F32, LOONG_F32};
    loong_graph_t *graph = NULL;
    assert_ok(ctx, loongi_decoder_configure(ctx, pairs, &config));
    loong_model_request_t request = {.rows = 16,
                                     .max_seqlen = 16,
                                     .max_segments = 1,
                                     .train = true,
                                     .begins = true,
                                     .ends = true,
                                     .num_layers = config.num_layers};
    assert_ok(ctx, loong_graph_create(ctx, precision, &graph));
    assert_ok(ctx, loongi_decoder_build(graph, &config, &request));
    size->parameters = preset_count(graph, "");
    size->experts = preset_count(graph, ".experts.");
    memset(&size->rope, 0, sizeof(size->rope));
    for (int64_t i = 0; i < graph->num_nodes; i++) {
        if (strcmp(graph->nodes[i].op->name, "rope_table") == 0) {
            size->rope =
                *(const loong_rope_table_attr_t *)graph->nodes[i].attr;
        }
    }
    count_attention(graph, &config);
    loongi_decoder_facts(&config, &facts);
    size->active = size->parameters - facts.idle_parameters;
    loong_graph_destroy(&graph);
}
