/* SPDX-License-Identifier: Apache-2.0
 *
 * Recorded routing: what a run chose, replayed in other layouts. In fp32, where
 * routers of equal layouts soon choose differently; records themselves in f64.
 */
#include "file.h"
#include "json.h"
#include "layout_run.h"

#define MODEL(more_)                                                          \
    "{family: qwen3_moe, hidden_size: 24, ffn_hidden_size: 40, "              \
    "num_attention_heads: 4, num_query_groups: 2, kv_channels: 8, "           \
    "vocab_size: 61, max_position_embeddings: 64, moe_ffn_hidden_size: 20, "  \
    "num_layers: 4, moe_layer_freq: '[0,1,1,1]', hidden_dropout: 0.1, "       \
    "moe_aux_loss_coeff: 0.05, moe_z_loss_coeff: 0.01, " more_ "}"
#define EXPERTS MODEL("num_experts: 8, moe_router_topk: 3")
#define DROPPING                                                              \
    MODEL("num_experts: 8, moe_router_topk: 3, "                              \
          "moe_expert_capacity_factor: 1.25")

enum { STEPS = 6, LAYERS = 4, TOPK = 3, TOKENS = 16, BATCH = 24 };

/* A run with its key of router_replay. */
static layout_run_t make_run(const char *save, int ranks, const char *parallel,
                             const char *more)
{
    layout_run_t run = {.save = save, .model = EXPERTS, .parallel = parallel,
                        .more = more, .dtype = "fp32", .ranks = ranks,
                        .micro_batch_size = 2, .steps = STEPS};
    return run;
}

static const char *key_text(const layout_place_t *place, const char *key,
                            const char *file, char text[200])
{
    snprintf(text, 200, "router_replay: {%s: %s/%s}", key, place->dir, file);
    return text;
}

static char *file_of(const layout_place_t *place, const char *name,
                     size_t *size_p)
{
    char path[200];
    char *bytes = NULL;
    snprintf(path, sizeof(path), "%s/%s", place->dir, name);
    assert_ok(place->ctx, loongi_file_read(place->ctx, path, &bytes, size_p));
    return bytes;
}

static void write_file(const layout_place_t *place, const char *name,
                       const char *bytes, size_t size)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", place->dir, name);
    assert_ok(place->ctx, loongi_file_write(place->ctx, path, bytes, size));
}

#define TP "tensor_model_parallel_size: "
#define SP "sequence_parallel: true"
#define EP "expert_model_parallel_size: "
#define ETP "expert_tensor_parallel_size: "
#define PP "pipeline_model_parallel_size: "
#define CP "context_parallel_size: "
#define A2A "moe_token_dispatcher_type: alltoall"
#define AGAIN "\nrecompute: {granularity: full}"
#define PLAN "moe_capacity_plan: "

static const struct {
    int ranks;
    const char *parallel;
} layouts[] = {
    {1, "{}" AGAIN},
    {4, "{" EP "2, " A2A ", data_parallel_sharding: optim_grads_params}"},
    {4, "{" TP "2, " SP ", " EP "2, " ETP "2}"},
    {4, "{" CP "2, " PP "2, " EP "2, cp_comm_type: p2p}\n"
        "schedule: zero_bubble_h1" AGAIN},
    {4, "{" PP "2, " EP "2, overlap_moe_expert_parallel_comm: true, "
        "num_layers_per_virtual_pipeline_stage: 1}"},
    {4, "{" TP "2, " SP ", " CP "2, " EP "4, " A2A "}"},
    {4, "{" PP "2, " EP "2, num_layers_per_virtual_pipeline_stage: 1}\n"
        "schedule: zero_bubble_v"},
};

/* 1e-5 over 5 steps, 1e-4 over all, as dense models hold. */
static void layouts_follow(void **state)
{
    (void)state;
    layout_place_t place = layout_begin();
    char more[200];
    double want[STEPS];
    double got[STEPS];
    double worst = 0.0;
    layout_run_t one = make_run(
        "one", 1, "{}", key_text(&place, "record_file", "routing.npy", more));
    one.losses = want;
    layout_run(&place, &one);
    key_text(&place, "replay_file", "routing.npy", more);
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        char save[16];
        snprintf(save, sizeof(save), "layout%d", i);
        layout_run_t run = make_run(save, layouts[i].ranks,
                                    layouts[i].parallel, more);
        run.losses = got;
        layout_run(&place, &run);
        for (int s = 0; s < STEPS; s++) {
            double apart = fabs(got[s] - want[s]) / want[s];
            worst = fmax(worst, apart);
            if (!(apart <= (s < 5 ? 1e-5 : 1e-4))) {
                fail_msg("%s: step %d, loss %.9g, one rank has %.9g",
                         run.parallel, s + 1, got[s], want[s]);
            }
        }
    }
    print_message("largest difference of losses %.1e\n", worst);
    layout_end(&place);
}

/* Every layout writes the same file, and a run that goes on its end of it. */
static void records_are_equal(void **state)
{
    (void)state;
    layout_place_t place = layout_begin();
    char more[200];
    size_t size = 0;
    size_t other = 0;
    layout_run_t one = make_run(
        "one", 1, "{}", key_text(&place, "record_file", "one.npy", more));
    one.dtype = "fp64";
    layout_run(&place, &one);
    char *want = file_of(&place, "one.npy", &size);
    assert_int_equal(size, 256 + STEPS * BATCH *
                                     (4 + LAYERS * TOKENS * TOPK * 2));
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i += 2) {
        char file[24];
        char save[16];
        snprintf(file, sizeof(file), "layout%d.npy", i);
        snprintf(save, sizeof(save), "layout%d", i);
        layout_run_t run = make_run(
            save, layouts[i].ranks, layouts[i].parallel,
            key_text(&place, "record_file", file, more));
        run.dtype = "fp64";
        run.stop_at = i % 4 == 0 ? 5 : 0;
        layout_run(&place, &run);
        if (run.stop_at > 0) {
            char dir[100];
            snprintf(dir, sizeof(dir), "%s/%s", place.dir, save);
            run.stop_at = 0;
            run.load = dir;
            layout_run(&place, &run);
        }
        char *got = file_of(&place, file, &other);
        assert_int_equal(other, size);
        if (memcmp(got, want, size) != 0) {
            fail_msg("%s records another routing", run.parallel);
        }
        loongi_free(place.ctx, got);
    }
    loongi_free(place.ctx, want);
    layout_end(&place);
}

/* The run is bit for bit that of its record; with other experts it is further
 * away than any layout may be. */
static void records_decide(void **state)
{
    (void)state;
    layout_place_t place = layout_begin();
    char more[200];
    size_t size = 0;
    layout_run_t one = make_run(
        "one", 1, "{}", key_text(&place, "record_file", "one.npy", more));
    layout_run(&place, &one);
    key_text(&place, "replay_file", "one.npy", more);
    layout_run_t same = make_run("same", 1, "{}", more);
    layout_run(&place, &same);
    layout_compare(&place, &same, &one, 0.0);
    char *bytes = file_of(&place, "one.npy", &size);
    for (size_t at = 256; at < size; at += 2) {
        size_t cell = (at - 256) % (4 + LAYERS * TOKENS * TOPK * 2);
        if (cell >= 4 && bytes[at] != 0) {
            bytes[at] = (char)(bytes[at] % 8 + 1);
        }
    }
    write_file(&place, "other.npy", bytes, size);
    loongi_free(place.ctx, bytes);
    key_text(&place, "replay_file", "other.npy", more);
    layout_run_t other = make_run("other", 1, "{}", more);
    layout_run(&place, &other);
    assert_true(fabs(other.loss - one.loss) > 1e-4 * one.loss);
    layout_end(&place);
}

/* All tokens to the same experts, and none to the others: the fullest rank has
 * more rows than are laid out, most have none. */
static void all_to_the_same(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *parallel;
    } ways[] = {
        {1, "{moe_capacity_plan: 0.3}"},
        {4, "{" EP "4}"},
        {4, "{" EP "4, " A2A "}"},
        {8, "{" TP "2, " SP ", " EP "8, " A2A "}" AGAIN},
        {8, "{" PP "2, " EP "4, " A2A "}\nschedule: zero_bubble_h1"},
        {8, "{" CP "2, " EP "8, " A2A
            ", data_parallel_sharding: optim_grads_params}"},
        {16, "{" TP "2, " SP ", " CP "2, " EP "8, " ETP "2, " A2A "}"},
    };
    layout_place_t place = layout_begin();
    char more[200];
    size_t size = 0;
    layout_run_t one = make_run(
        "one", 1, "{}", key_text(&place, "record_file", "one.npy", more));
    one.dtype = "fp64";
    layout_run(&place, &one);
    char *bytes = file_of(&place, "one.npy", &size);
    for (size_t at = 256; at < size; at += 2) {
        size_t cell = (at - 256) % (4 + LAYERS * TOKENS * TOPK * 2);
        if (cell >= 4 && bytes[at] != 0) {
            bytes[at] = (char)((cell - 4) / 2 % TOPK + 1);
        }
    }
    write_file(&place, "same.npy", bytes, size);
    loongi_free(place.ctx, bytes);
    key_text(&place, "replay_file", "same.npy", more);
    layout_run_t same = make_run("same", 1, "{}", more);
    same.dtype = "fp64";
    layout_run(&place, &same);
    for (int i = 0; i < LOONG_COUNT_OF(ways) - (layout_long() ? 0 : 2); i++) {
        char save[16];
        snprintf(save, sizeof(save), "way%d", i);
        layout_run_t run =
            make_run(save, ways[i].ranks, ways[i].parallel, more);
        run.dtype = "fp64";
        layout_run(&place, &run);
        layout_compare(&place, &run, &same, 1e-9);
    }
    layout_end(&place);
}

/* ---- metrics ------------------------------------------------------------- */

enum { EXPERT_COUNT = 8 };

/* A run whose metrics are compared with what its record says. A group of ranks
 * that hold the experts together has `group` samples of a micro-batch, of which
 * `own` are one rank's. */
typedef struct metrics_case {
    int ranks, ep;
    const char *parallel;
    int group, own;
    double plan; /* moe_capacity_plan */
    int stop_at;
} metrics_case_t;

static const metrics_case_t metrics_cases[] = {
    {1, 1, PLAN "0.3}", 2, 2, 0.3, 0},
    {2, 2, EP "2, " PLAN "1.1}", 4, 2, 1.1, 5},
    {4, 2, EP "2, " A2A ", " PLAN "0.4}" AGAIN, 4, 2, 0.4, 0},
    {4, 2, PP "2, " EP "2, " PLAN "0.6}\nschedule: zero_bubble_h1", 4, 2, 0.6,
     0},
    {4, 2, TP "2, " SP ", " EP "2, " PLAN "1}", 2, 1, 1.0, 0},
    {4, 2, PP "2, " EP "2, num_layers_per_virtual_pipeline_stage: 1, " PLAN
     "0}", 4, 2, 0.0, 0},
    {4, 4, CP "2, " EP "4, " A2A ", " PLAN "0.5}", 4, 0, 0.5, 0},
};

typedef struct figures {
    double load, dropped, rounds;
} figures_t;

/* Choices of the experts in samples [first, first + n) of a layer. */
static void count(const char *record, int64_t first, int n, int layer,
                  int64_t counts[EXPERT_COUNT])
{
    const int64_t sample = 4 + LAYERS * TOKENS * TOPK * 2;
    memset(counts, 0, EXPERT_COUNT * sizeof(*counts));
    for (int64_t s = first; s < first + n; s++) {
        const char *cell = record + 256 + s * sample + 4 +
                           (int64_t)layer * TOKENS * TOPK * 2;
        for (int i = 0; i < TOKENS * TOPK; i++) {
            counts[cell[2 * i] - 1]++;
        }
    }
}

/* Samples [first, first + n), a group's of a micro-batch. */
static void add_group(const metrics_case_t *c, double factor,
                      const char *record, int64_t first, int layer,
                      figures_t *f)
{
    int64_t rows[EXPERT_COUNT] = {0};
    int64_t most = 0;
    int each = EXPERT_COUNT / c->ep;
    double even = (double)(c->group * TOKENS * TOPK) / c->ep;
    int64_t slots = (int64_t)ceil(c->plan * even);
    int own = c->own > 0 ? c->own : c->group;
    for (int s = 0; s < c->group; s += own) {
        int64_t counts[EXPERT_COUNT];
        count(record, first + s, own, layer, counts);
        for (int e = 0; e < EXPERT_COUNT; e++) {
            int64_t room = factor > 0.0
                               ? (int64_t)ceil((double)(own * TOKENS * TOPK) /
                                               EXPERT_COUNT * factor)
                               : INT64_MAX;
            int64_t kept = counts[e] < room ? counts[e] : room;
            f->dropped += (double)(counts[e] - kept);
            rows[e / each] += kept;
        }
    }
    for (int r = 0; r < c->ep; r++) {
        most = rows[r] > most ? rows[r] : most;
    }
    if (slots > 0 && most > slots) {
        f->rounds += (double)((most - 1) / slots);
    }
}

static figures_t figures_of(const metrics_case_t *c, double factor,
                            const char *record, int from, int to, int layer)
{
    figures_t f = {0.0, 0.0, 0.0};
    int64_t counts[EXPERT_COUNT];
    int64_t most = 0;
    count(record, (int64_t)from * BATCH, (to - from) * BATCH, layer, counts);
    for (int e = 0; e < EXPERT_COUNT; e++) {
        most = counts[e] > most ? counts[e] : most;
    }
    f.load = (double)most * EXPERT_COUNT /
             (double)((to - from) * BATCH * TOKENS * TOPK);
    for (int64_t s = (int64_t)from * BATCH; s < (int64_t)to * BATCH;
         s += c->group) {
        add_group(c, factor, record, s, layer, &f);
    }
    return f;
}

/* A number of a line; `none` where there is none. */
static double number(const loong_json_t *line, const char *key, double none)
{
    const loong_json_t *value = loongi_json_get(line, key);
    return value != NULL ? loongi_json_real(value) : none;
}

static void same_number(const metrics_case_t *c, const loong_json_t *line,
                        const char *key, double want)
{
    double got = number(line, key, -1.0);
    if (!(fabs(got - want) <= 1e-8 * fabs(want))) {
        fail_msg("%s: step %g, layer %g: %s is %.9g, the record says %.9g",
                 c->parallel, number(line, "step", -1.0),
                 number(line, "layer", -1.0), key, got, want);
    }
}

/* Lines of layers of steps (from, to] and the line of all. */
static void check_line(const metrics_case_t *c, double factor,
                       const char *record, const loong_json_t *line, int from)
{
    int to = (int)number(line, "step", -1.0);
    int layer = (int)number(line, "layer", -1.0);
    figures_t want = {0.0, 0.0, 0.0};
    for (int i = layer >= 0 ? layer : 1; i < (layer >= 0 ? layer + 1 : LAYERS);
         i++) {
        figures_t f = figures_of(c, factor, record, from, to, i);
        want.load = fmax(want.load, f.load);
        want.dropped += f.dropped;
        want.rounds += f.rounds;
    }
    assert_int_not_equal(layer, 0); /* which has no experts */
    same_number(c, line, "expert_load", want.load);
    same_number(c, line, "dropped_tokens", factor > 0.0 ? want.dropped : -1.0);
    same_number(c, line, "overflow_rounds", c->plan > 0.0 ? want.rounds
                                                          : -1.0);
    assert_true(number(line, "router_z_loss", 0.0) > 0.0);
}

/* The lines of two intervals, or three; adds up the z-losses. */
static void check_metrics(const layout_place_t *place, const metrics_case_t *c,
                          double factor, const char *record, const char *dir,
                          double *z_p)
{
    char name[80];
    size_t size = 0;
    int lines = 0;
    int layers = 0;
    int step = 0;
    int before = 0;
    snprintf(name, sizeof(name), "%s/metrics.jsonl", dir);
    char *text = file_of(place, name, &size);
    for (char *p = text; p < text + size; p = strchr(p, '\n') + 1) {
        loong_json_t *line = NULL;
        assert_ok(place->ctx, loongi_json_parse(place->ctx, p, strcspn(p, "\n"),
                                                "line", &line));
        if ((int)number(line, "step", -1.0) != step) {
            before = step;
            step = (int)number(line, "step", -1.0);
        }
        if (loongi_json_get(line, "save_bytes") == NULL) {
            check_line(c, factor, record, line, before);
            lines++;
            layers += loongi_json_get(line, "layer") != NULL;
            *z_p += number(line, "router_z_loss", 0.0) * (step - before) *
                    (loongi_json_get(line, "layer") == NULL);
        }
        loongi_json_destroy(&line);
    }
    assert_int_equal(step, STEPS);
    assert_int_equal(lines, LAYERS * (c->stop_at > 0 ? 3 : 2));
    assert_int_equal(layers, (LAYERS - 1) * (c->stop_at > 0 ? 3 : 2));
    loongi_free(place->ctx, text);
}

/* Load, dropped tokens and rounds of each layer are those that follow from what
 * was recorded. */
static void metrics_follow(const layout_place_t *place, int i, double factor,
                           double *z_p)
{
    const metrics_case_t *c = &metrics_cases[i];
    char more[400];
    char save[24];
    char parallel[300];
    char record[48];
    size_t size = 0;
    snprintf(save, sizeof(save), "run%d_%g", i, factor);
    snprintf(record, sizeof(record), "%s.npy", save);
    snprintf(parallel, sizeof(parallel), "{%s", c->parallel);
    snprintf(more, sizeof(more),
             "router_replay: {record_file: %s/%s}\n"
             "log: {dir: %s/log_%s, interval: 4}",
             place->dir, record, place->dir, save);
    layout_run_t run = make_run(save, c->ranks, parallel, more);
    run.dtype = "fp64";
    run.model = factor > 0.0 ? DROPPING : EXPERTS;
    run.stop_at = c->stop_at;
    layout_run(place, &run);
    if (c->stop_at > 0) {
        char dir[100];
        snprintf(dir, sizeof(dir), "%s/%s", place->dir, save);
        run.stop_at = 0;
        run.load = dir;
        layout_run(place, &run);
    }
    char *bytes = file_of(place, record, &size);
    snprintf(record, sizeof(record), "log_%s", save);
    check_metrics(place, c, factor, bytes, record, z_p);
    loongi_free(place->ctx, bytes);
}

static void metrics_are_counted(void **state)
{
    (void)state;
    layout_place_t place = layout_begin();
    double first = 0.0;
    for (int i = 0; i < LOONG_COUNT_OF(metrics_cases); i++) {
        double z = 0.0;
        metrics_follow(&place, i, 0.0, &z);
        first = i == 0 ? z : first;
        assert_true(fabs(z - first) <= 1e-7 * first);
        if (i % 2 == 0 && metrics_cases[i].own > 0) {
            metrics_follow(&place, i, 1.25, &z);
        }
    }
    layout_end(&place);
}

/* ---- what does not fit --------------------------------------------------- */

/* What does not fit is refused with its reason, and before any step. */
static const struct {
    const char *model; /* NULL: that of the record */
    const char *keys;  /* behind replay_file */
    int steps, seq_length;
    size_t cut;    /* bytes that are left */
    size_t at;     /* a byte that becomes `byte` */
    char byte;
    const char *text;
} cases[] = {
    {MODEL("num_experts: 8, moe_router_topk: 2"), "", 4, 0, 0, 0, 0,
     "3 experts a token; this run has 4 layers, data.seq_length 16 and "
     "moe_router_topk 2"},
    {NULL, "", 4, 8, 0, 0, 0, "samples of 16 tokens"},
    {NULL, "", 5, 0, 0, 0, 0,
     "has the routing of 96 samples, this run takes 120"},
    {NULL, "", 4, 0, 5000, 0, 0, "is cut off: 5000 bytes"},
    {NULL, "", 4, 0, 5, 0, 0, "ends at byte 5"},
    {NULL, "", 4, 0, 0, 3, 'x', "is no record of routing: found no NumPy"},
    {NULL, "", 4, 0, 0, 22, 'x', "is no record of routing: found a NumPy"},
    {NULL, "", 4, 0, 0, 256, 0x55, "sample 0 is other data than was"},
    {NULL, "", 4, 0, 0, 260 + 96, 0,
     "sample 0, layer 1, token 0: nothing recorded"},
    {NULL, "", 4, 0, 0, 260 + 96 + 2, 77,
     "layer 1, token 0: expert 77, other numbers 1 to 8 are wanted"},
    {NULL, ", record_file: other.npy", 4, 0, 0, 0, 0,
     "beside router_replay.record_file"},
    {MODEL("num_experts: 8, moe_router_topk: 3, "
           "moe_router_force_load_balancing: true"), "", 4, 0, 0, 0, 0,
     "beside moe_router_force_load_balancing"},
    {"{family: qwen3, num_layers: 2, hidden_size: 24, num_attention_heads: "
     "4, vocab_size: 61, max_position_embeddings: 64}", "", 4, 0, 0, 0, 0,
     "the model has 0 experts a layer"},
};

static void misfit(const layout_place_t *place, char *bytes, size_t size,
                   int index)
{
    char keys[250];
    char save[16];
    size_t at = cases[index].at;
    size_t cut = cases[index].cut;
    char kept = bytes[at];
    bytes[at] = at > 0 ? cases[index].byte : kept;
    write_file(place, "case.npy", bytes, cut > 0 ? cut : size);
    bytes[at] = kept;
    snprintf(keys, sizeof(keys), "router_replay: {replay_file: %s/case.npy%s}",
             place->dir, cases[index].keys);
    snprintf(save, sizeof(save), "case%d", index);
    layout_run_t run = make_run(save, 2, "{" EP "2}", keys);
    run.model = cases[index].model != NULL ? cases[index].model : EXPERTS;
    run.parallel = strstr(run.model, "num_experts") != NULL ? run.parallel
                                                            : "{}";
    run.steps = cases[index].steps;
    run.seq_length = cases[index].seq_length;
    run.failure = cases[index].text;
    layout_run(place, &run);
}

static void misfits(void **state)
{
    (void)state;
    layout_place_t place = layout_begin();
    char more[200];
    size_t size = 0;
    layout_run_t one = make_run(
        "one", 1, "{}", key_text(&place, "record_file", "one.npy", more));
    one.steps = 4;
    layout_run(&place, &one);
    char *bytes = file_of(&place, "one.npy", &size);
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        misfit(&place, bytes, size, i);
    }
    layout_run_t none = make_run(
        "none", 2, "{" EP "2}",
        key_text(&place, "replay_file", "nowhere.npy", more));
    none.failure = "nowhere.npy: No such file or directory";
    layout_run(&place, &none);
    assert_int_equal(none.status, LOONG_ERR_NOT_FOUND);
    layout_run_t again = make_run(
        "again", 1, "{}", key_text(&place, "record_file", "one.npy", more));
    again.failure = "one.npy is there: remove it or choose another name";
    layout_run(&place, &again);
    loongi_free(place.ctx, bytes);
    layout_end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_follow),
        cmocka_unit_test(records_are_equal),
        cmocka_unit_test(records_decide),
        cmocka_unit_test(all_to_the_same),
        cmocka_unit_test(metrics_are_counted),
        cmocka_unit_test(misfits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
