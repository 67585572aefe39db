/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines, metrics.jsonl, TensorBoard files, progress, own memory. */
#include <dirent.h>
#include <fcntl.h>
#include <float.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crc.h"
#include "file.h"
#include "json.h"
#include "metrics.h"
#include "loong/progress.h"
#include "tensorboard.h"

#include "test.h"
#include "test_dir.h"

TEST_DIR(root)

static loong_metrics_t sample(void)
{
    loong_metrics_t m;
    loongi_metrics_clear(&m);
    m.step = 120;
    m.total_steps = 5000;
    m.tokens = 3932160;
    m.unix_time = 1767225600.125;
    m.loss = 3.21044;
    m.loss_z = -0.42;
    m.grad_norm = 0.7149;
    m.lr = 3e-4;
    m.tokens_per_second = 41234.0;
    m.ms_per_step = 812.4;
    m.data_share = 0.0121;
    m.comm_share = 0.09;
    m.gflops = 310.6;
    m.gemm_share = 0.721;
    m.memory_bytes = 1.5 * 1073741824.0;
    m.memory_limit = 16.0 * 1073741824.0;
    m.seconds_left = 3962.0;
    return m;
}

static void test_line(void **state)
{
    (void)state;
    char line[LOONG_METRICS_LINE];
    loong_metrics_t m = sample();
    loongi_metrics_line(&m, line);
    assert_string_equal(
        line, "step 120/5000 | loss 3.2104 (-0.4z) | gnorm 0.715 | "
              "lr 3.00e-04 | 41.2k tok/s | 812 ms (data 1.2%, comm 9.0%) | "
              "311 GFLOP/s (72.1% of gemm) | mem 1.50/16.0 GiB | eta 1h06m");
    loongi_metrics_clear(&m);
    m.step = 1;
    m.total_steps = 2;
    loongi_metrics_line(&m, line);
    assert_string_equal(line, "step 1/2 | loss nan | gnorm nan");
    m.comm_share = 0.5;
    m.ms_per_step = 9.96;
    m.tokens_per_second = 999.6;
    m.links_ms = 1.25;
    m.links_hidden = 0.8;
    loongi_metrics_line(&m, line);
    assert_non_null(strstr(line, "(comm 50.0%, links 1.25 ms, 80.0% hidden)"));
    assert_non_null(strstr(line, "| 1.00k tok/s | 10.0 ms ("));
    m.tokens_per_second = 12.0e6;
    m.num_losses = 1;
    m.losses[0] = (loong_metrics_loss_t){"router", 0.01234};
    m.expert_load = 1.314;
    m.dropped_tokens = m.overflow_rounds = 0.0;
    loongi_metrics_line(&m, line);
    assert_non_null(strstr(line, "| 12.0M tok/s |"));
    assert_non_null(strstr(line, "| router 0.0123 | expert load 1.31x |"));
    m.dropped_tokens = 41234.0;
    m.overflow_rounds = 7.0;
    loongi_metrics_line(&m, line);
    assert_non_null(strstr(line, "| expert load 1.31x, dropped 41.2k, "
                                 "overflow rounds 7 |"));
}

static void test_eval_line(void **state)
{
    (void)state;
    char line[LOONG_METRICS_LINE];
    loong_metrics_eval_t e = {100, 0.0, "wiki", 3.0, 65536, 62.0, NULL};
    loongi_metrics_eval_line(&e, line);
    assert_string_equal(line, "step 100 | eval wiki | loss 3.0000 | "
                              "ppl 20.086 | 65.5k tokens | 1m02s");
}

static void test_time(void **state)
{
    (void)state;
    char text[LOONG_TIME_SIZE];
    const struct {
        double seconds;
        const char *text;
    } cases[] = {{0.0, "0s"},       {59.4, "59s"},     {59.6, "1m00s"},
                 {725.0, "12m05s"}, {3962.0, "1h06m"}, {183600.0, "2d03h"},
                 {-1.0, "-"},       {NAN, "-"},        {INFINITY, "-"}};
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        assert_string_equal(loongi_metrics_time(cases[i].seconds, text),
                            cases[i].text);
    }
}

static void test_window(void **state)
{
    (void)state;
    static loong_window_t w;
    /* Half at 1, half at 3: mean 2, deviation 1. */
    for (int i = 0; i < LOONG_WINDOW_SIZE; i++) {
        double value = i % 2 == 0 ? 1.0 : 3.0;
        double z = loongi_window_add(&w, value);
        if (i < LOONG_WINDOW_LEAST) {
            assert_true(isnan(z));
        } else if (i % 2 == 0) { /* as many of each before */
            assert_float_equal(z, value - 2.0, 1e-12);
        }
    }
    assert_true(isnan(loongi_window_add(&w, NAN)));
    assert_true(isnan(loongi_window_add(&w, INFINITY)));
    assert_float_equal(loongi_window_add(&w, 5.0), 3.0, 1e-12);
    /* The window moved: a 1 left, a 5 came. */
    assert_float_equal(w.values[0], 5.0, 0.0);
    double mean = 2.0 + 4.0 / LOONG_WINDOW_SIZE;
    double square = (63.0 * 1 + 64.0 * 9 + 25.0) / LOONG_WINDOW_SIZE;
    assert_float_equal(loongi_window_add(&w, 2.0),
                       (2.0 - mean) / sqrt(square - mean * mean), 1e-9);
    /* Read back, it goes on bit for bit. */
    char text[LOONG_WINDOW_TEXT];
    loong_window_t again = {0};
    w.values[7] = 0.1 + 1e-17;
    w.values[9] = -DBL_MIN / 3.0; /* of the longest text */
    loongi_window_print(&w, text);
    assert_true(loongi_window_read(text, &again));
    assert_memory_equal(again.values, w.values, sizeof(w.values));
    for (int i = 0; i < 3; i++) {
        double value = 1.0 + 0.3 * i;
        assert_true(loongi_window_add(&again, value) ==
                    loongi_window_add(&w, value));
    }
    const char *const bad[] = {"", "x", "-1", "1", "2 0x1p+0", "1 nan",
                               "1 0x1p+0 x", "1 0x1p+0 0x1p+0"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(bad); i++) {
        assert_false(loongi_window_read(bad[i], &again));
        assert_int_equal(again.count, w.count);
    }
    loong_window_t flat;
    memset(&flat, 0, sizeof(flat));
    for (int i = 0; i <= LOONG_WINDOW_SIZE; i++) {
        assert_true(isnan(loongi_window_add(&flat, 0.5)));
    }
}

static loong_json_t *parse(loong_context_t *ctx, const char *line)
{
    loong_json_t *json = NULL;
    assert_ok(ctx, loongi_json_parse(ctx, line, strlen(line), "line", &json));
    return json;
}

static void test_json(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char line[LOONG_METRICS_LINE];
    loong_metrics_t m = sample();
    loongi_metrics_json(&m, line);
    loong_json_t *json = parse(ctx, line);
    assert_int_equal(loongi_json_count(json), 19);
    assert_int_equal(loongi_json_int(loongi_json_get(json, "updates")), 0);
    assert_int_equal(loongi_json_int(loongi_json_get(json, "skipped_steps")),
                     0);
    assert_int_equal(loongi_json_int(loongi_json_get(json, "step")), 120);
    assert_int_equal(loongi_json_int(loongi_json_get(json, "tokens")),
                     3932160);
    assert_float_equal(loongi_json_real(loongi_json_get(json, "time")),
                       1767225600.125, 0.0);
    assert_float_equal(loongi_json_real(loongi_json_get(json, "loss")),
                       3.21044, 1e-8);
    assert_float_equal(loongi_json_real(loongi_json_get(json, "memory_bytes")),
                       1.5 * 1073741824.0, 10.0);
    loongi_json_destroy(&json);

    m.loss = NAN;
    m.loss_z = NAN;
    m.grad_norm = INFINITY;
    m.gflops = NAN;
    m.num_losses = 1;
    m.losses[0] = (loong_metrics_loss_t){"router", 0.5};
    loongi_metrics_json(&m, line);
    assert_non_null(strstr(line, "\"router_loss\":0.5"));
    m.num_losses = 0;
    loongi_metrics_json(&m, line);
    json = parse(ctx, line);
    assert_int_equal(loongi_json_kind(loongi_json_get(json, "loss")),
                     LOONG_JSON_NULL);
    assert_int_equal(loongi_json_kind(loongi_json_get(json, "grad_norm")),
                     LOONG_JSON_NULL);
    assert_null(loongi_json_get(json, "loss_z"));
    assert_null(loongi_json_get(json, "router_loss"));
    assert_null(loongi_json_get(json, "gflops"));
    loongi_json_destroy(&json);

    loong_metrics_layer_t l = {7, 1.5, 3, 1.25, NAN, 2.0, NAN};
    loongi_metrics_layer_json(&l, line);
    assert_string_equal(line, "{\"step\":7,\"layer\":3,\"time\":1.500,"
                              "\"expert_load\":1.25,\"overflow_rounds\":2}");

    loong_metrics_eval_t e = {7, 1.5, "a\"b\\\n\xe4\xb8\xad", 2, 10, .25, NULL};
    loongi_metrics_eval_json(&e, line);
    json = parse(ctx, line);
    assert_string_equal(loongi_json_string(loongi_json_get(json, "eval")),
                        e.name);
    assert_float_equal(loongi_json_real(loongi_json_get(json, "perplexity")),
                       exp(2.0), 1e-7);
    loongi_json_destroy(&json);
    test_context_end(&ctx);
}

static void assert_file(loong_context_t *ctx, const char *path,
                        const char *expected)
{
    char *text = NULL;
    size_t length = 0;
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    assert_string_equal(text, expected);
    loongi_free(ctx, text);
}

static int warnings;
static void count_warnings(void *user, loong_log_level_t level,
                           const char *line)
{
    (void)user;
    (void)line;
    warnings += level == LOONG_LOG_WARN;
}

static void test_jsonl(void **state)
{
    (void)state;
    loong_context_params_t params = {count_warnings, NULL, LOONG_LOG_WARN};
    loong_context_t *ctx = NULL;
    loong_jsonl_t *jsonl = NULL;
    char path[64];
    char line[LOONG_METRICS_LINE + 1];
    assert_int_equal(loong_context_create(&params, &ctx), LOONG_OK);
    snprintf(path, sizeof(path), "%s/metrics.jsonl", root);

    assert_ok(ctx, loongi_jsonl_open(ctx, path, 0, &jsonl));
    for (int step = 10; step <= 40; step += 10) {
        snprintf(line, sizeof(line), "{\"step\":%d}", step);
        assert_ok(ctx, loongi_jsonl_add(jsonl, line));
    }
    /* Every line is in the file at once. */
    assert_file(ctx, path,
                "{\"step\":10}\n{\"step\":20}\n{\"step\":30}\n{\"step\":40}\n");
    memset(line, ' ', LOONG_METRICS_LINE);
    line[LOONG_METRICS_LINE] = '\0';
    assert_fails(ctx, loongi_jsonl_add(jsonl, line), LOONG_ERR_ARG, path);
    loongi_jsonl_destroy(&jsonl);

    assert_ok(ctx, loongi_jsonl_open(ctx, path, 30, &jsonl));
    assert_ok(ctx, loongi_jsonl_add(jsonl, "{\"step\":31}"));
    loongi_jsonl_destroy(&jsonl);
    assert_file(ctx, path, "{\"step\":10}\n{\"step\":20}\n{\"step\":31}\n");
    assert_int_equal(warnings, 0);

    static const char torn[] = "{\"step\":1}\nno json\n{\"step\":\"x\"}\n"
                               "{\"step\":2}\n{\"step\":3";
    assert_ok(ctx, loongi_file_write(ctx, path, torn, sizeof(torn) - 1));
    assert_ok(ctx, loongi_jsonl_open(ctx, path, 100, &jsonl));
    loongi_jsonl_destroy(&jsonl);
    assert_file(ctx, path, "{\"step\":1}\n{\"step\":2}\n");
    assert_int_equal(warnings, 3);

    /* A run from the start leaves nothing of the former one. */
    assert_ok(ctx, loongi_jsonl_open(ctx, path, 0, &jsonl));
    loongi_jsonl_destroy(&jsonl);
    assert_file(ctx, path, "");

    assert_fails(ctx, loongi_jsonl_open(ctx, "no/such/x.jsonl", 0, &jsonl),
                 LOONG_ERR_IO, "no/such/x.jsonl");
    assert_null(jsonl);
    if (access("/dev/full", W_OK) == 0) {
        char full[64];
        snprintf(full, sizeof(full), "%s/full.jsonl", root);
        assert_int_equal(symlink("/dev/full", full), 0);
        assert_ok(ctx, loongi_jsonl_open(ctx, full, 0, &jsonl));
        assert_fails(ctx, loongi_jsonl_add(jsonl, "{\"step\":1}"),
                     LOONG_ERR_IO, "No space left");
        loongi_jsonl_destroy(&jsonl);
    }
    test_context_end(&ctx);
}

static void test_crc32c(void **state)
{
    (void)state;
    unsigned char zeros[32] = {0};
    unsigned char rising[32];
    for (int i = 0; i < 32; i++) {
        rising[i] = (unsigned char)i;
    }
    /* RFC 3720, B.4, and the catalogue's check value. */
    assert_int_equal(loongi_crc(LOONG_CRC32C, zeros, 32), 0x8a9136aau);
    assert_int_equal(loongi_crc(LOONG_CRC32C, rising, 32), 0x46dd794eu);
    assert_int_equal(loongi_crc(LOONG_CRC32C, "123456789", 9), 0xe3069283u);
    assert_int_equal(loongi_crc(LOONG_CRC32, "123456789", 9), 0xcbf43926u);
}

/* The only file of a directory. */
static void find_file(const char *dir, char path[512])
{
    DIR *d = opendir(dir);
    assert_non_null(d);
    path[0] = '\0';
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] != '.') {
            assert_string_equal(path, "");
            snprintf(path, 512, "%s/%s", dir, e->d_name);
        }
    }
    closedir(d);
}

static uint64_t little(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        value = value << 8 | at[i];
    }
    return value;
}

/* The payload of a record; checks both sums and steps over it. */
static const unsigned char *next_record(const unsigned char **at,
                                        size_t *length_p)
{
    const unsigned char *data = *at + 12;
    *length_p = (size_t)little(*at, 8);
    uint32_t crc = loongi_crc(LOONG_CRC32C, *at, 8);
    assert_int_equal(little(*at + 8, 4),
                     (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u));
    crc = loongi_crc(LOONG_CRC32C, data, *length_p);
    assert_int_equal(little(data + *length_p, 4),
                     (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u));
    *at = data + *length_p + 4;
    return data;
}

static void test_tensorboard_bytes(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_tensorboard_t *board = NULL;
    char dir[64];
    char path[512];
    char *text = NULL;
    size_t length = 0;
    snprintf(dir, sizeof(dir), "%s/bytes", root);
    assert_ok(ctx, loongi_tensorboard_create(ctx, dir, 300, &board));
    assert_ok(ctx, loongi_tensorboard_scalar(board, 301, 2.0, "a/b", 1.5));
    char tag[300];
    memset(tag, 'x', sizeof(tag) - 1);
    tag[sizeof(tag) - 1] = '\0';
    assert_fails(ctx, loongi_tensorboard_scalar(board, 1, 0.0, tag, 1.0),
                 LOONG_ERR_ARG, "299 bytes");
    assert_fails(ctx, loongi_tensorboard_scalar(board, 1, 0.0, "", 1.0),
                 LOONG_ERR_ARG, "0 bytes");
    tag[200] = '\0';
    assert_ok(ctx, loongi_tensorboard_scalar(board, INT64_MAX, 0.0, tag, 1.0));
    loong_metrics_layer_t layer = {301, 2.0, 3, NAN, 1.5, NAN, NAN};
    assert_ok(ctx, loongi_tensorboard_layer(board, &layer));
    loongi_tensorboard_destroy(&board);

    find_file(dir, path);
    assert_non_null(strstr(path, "/events.out.tfevents."));
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    const unsigned char *at = (const unsigned char *)text;
    size_t n = 0;
    const unsigned char *data = next_record(&at, &n);
    assert_int_equal(n, 9 + 2 + 13);
    assert_memory_equal(data + 9, "\x1a\x0d" "brain.Event:2", 15);
    data = next_record(&at, &n);
    assert_memory_equal(data + 9, "\x10\xac\x02\x3a\x02\x08\x01", 7);
    assert_int_equal(n, 16);
    data = next_record(&at, &n);
    static const unsigned char scalar[] = {
        0x09, 0, 0, 0, 0, 0, 0, 0, 0x40,                /* time 2.0 */
        0x10, 0xad, 0x02,                               /* step 301 */
        0x2a, 12, 0x0a, 10, 0x0a, 3,    'a', '/',  'b', /* tag */
        0x15, 0,    0,    0xc0, 0x3f};                  /* 1.5f */
    assert_int_equal(n, sizeof(scalar));
    assert_memory_equal(data, scalar, sizeof(scalar));
    next_record(&at, &n);
    data = next_record(&at, &n); /* what is not known has no record */
    static const char name[] = "dropped_tokens/layer_3";
    assert_int_equal(n, sizeof(scalar) + sizeof(name) - 1 - 3);
    assert_memory_equal(data + 18, name, sizeof(name) - 1);
    assert_memory_equal(data + n - 5, scalar + sizeof(scalar) - 5, 5);
    assert_int_equal(at - (const unsigned char *)text, length);
    loongi_free(ctx, text);
    test_context_end(&ctx);
}

static void test_tensorboard_files(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_tensorboard_t *a = NULL;
    loong_tensorboard_t *b = NULL;
    char dir[64];
    snprintf(dir, sizeof(dir), "%s/two/deep", root);
    /* Two in one second get two names. */
    assert_ok(ctx, loongi_tensorboard_create(ctx, dir, 0, &a));
    assert_ok(ctx, loongi_tensorboard_create(ctx, dir, 0, &b));
    loongi_tensorboard_destroy(&a);
    loong_metrics_t m = sample();
    m.gflops = NAN;
    loong_metrics_eval_t e = {100, 0.0, "wiki", 3.0, 65536, 62.0, NULL};
    assert_ok(ctx, loongi_tensorboard_metrics(b, &m));
    assert_ok(ctx, loongi_tensorboard_eval(b, &e));
    loongi_tensorboard_destroy(&b);
    assert_fails(ctx, loongi_tensorboard_create(ctx, "/proc/no", 0, &a),
                 LOONG_ERR_CANNOT_WRITE, "/proc/no");
    assert_null(a);
    test_context_end(&ctx);
}

static void test_progress(void **state)
{
    (void)state;
    char text[LOONG_PROGRESS_SIZE];
    loong_progress_t p = {true, false, 60};
    assert_string_equal(
        loong_progress_draw(&p, 120, 480, 3962.0, NULL, text),
        "\r[========>                         ]  25% 120/480 eta 1h06m\033[K");
    /* Never fills the last column. */
    assert_int_equal(strlen(text), 59 + strlen("\r\033[K"));
    assert_non_null(strstr(
        loong_progress_draw(&p, 900, 480, 0.0, "loss 3.2", text), "100%"));
    assert_non_null(strstr(text, " loss 3.2\033[K"));
    assert_string_equal(loong_progress_wipe(&p), "\r\033[K");
    p.colour = true;
    assert_non_null(strstr(loong_progress_draw(&p, 1, 2, 1.0, NULL, text),
                           "\033[32m"));
    p.columns = 20; /* no room for a bar */
    assert_string_equal(
        loong_progress_draw(&p, 1, 2, 1.0, NULL, text),
        "\r 50% 1/2 eta 1s\033[K");
    char note[600];
    memset(note, 'n', sizeof(note) - 1);
    note[sizeof(note) - 1] = '\0';
    p.columns = 100000;
    loong_progress_draw(&p, 1, 0, NAN, note, text);
    assert_int_equal(strlen(text), 239 + strlen("\r\033[K"));
    p.shown = false;
    assert_string_equal(loong_progress_draw(&p, 1, 2, 1.0, NULL, text), "");
    assert_string_equal(loong_progress_wipe(&p), "");
}

static void test_progress_detect(void **state)
{
    (void)state;
    loong_progress_t p;
    setenv("TERM", "xterm", 1);
    unsetenv("CI");
    unsetenv("NO_COLOR");
    int file = open("/dev/null", O_WRONLY);
    loong_progress_detect(file, &p);
    assert_false(p.shown || p.colour);
    close(file);

    int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    if (terminal < 0) {
        skip(); /* no pseudo-terminals here */
    }
    loong_progress_detect(terminal, &p);
    assert_true(p.shown && p.colour);
    setenv("COLUMNS", "97", 1);
    loong_progress_detect(terminal, &p);
    assert_int_equal(p.columns, 97);
    setenv("NO_COLOR", "1", 1);
    loong_progress_detect(terminal, &p);
    assert_true(p.shown && !p.colour);
    setenv("CI", "", 1);
    loong_progress_detect(terminal, &p);
    assert_true(p.shown);
    setenv("CI", "true", 1);
    loong_progress_detect(terminal, &p);
    assert_false(p.shown);
    unsetenv("CI");
    setenv("TERM", "dumb", 1);
    loong_progress_detect(terminal, &p);
    assert_false(p.shown);
    close(terminal);
}

static void test_memory(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    size_t before = 0;
    size_t after = 0;
    size_t size = (size_t)64 << 20;
    assert_ok(ctx, loongi_memory_used(ctx, &before));
    assert_true(before > 0);
    /* Half private, half shared; both count. */
    char *private = mmap(NULL, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *shared = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(private != MAP_FAILED && shared != MAP_FAILED);
    memset(private, 1, size);
    memset(shared, 1, size);
    assert_ok(ctx, loongi_memory_used(ctx, &after));
    /* The kernel keeps these counters per thread: off by some pages. */
    assert_in_range(after - before, 2 * size - (1 << 20),
                    2 * size + (1 << 20));
    munmap(private, size);
    munmap(shared, size);
    test_context_end(&ctx);
}

/* What tests/oracle/tensorboard_read.py reads: a run of 40 steps, then one
 * that resumes after step 20 and so writes step 30 again. */
static void write_run(loong_context_t *ctx, const char *dir, int64_t from,
                      int64_t to, double loss)
{
    char path[512];
    char line[LOONG_METRICS_LINE];
    loong_jsonl_t *jsonl = NULL;
    loong_tensorboard_t *board = NULL;
    loong_metrics_t m = sample();
    snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
    assert_ok(ctx, loongi_dir_make(ctx, dir));
    assert_ok(ctx, loongi_jsonl_open(ctx, path, from, &jsonl));
    assert_ok(ctx, loongi_tensorboard_create(ctx, dir, from, &board));
    for (int64_t step = (from + 9) / 10 * 10; step <= to; step += 10) {
        loong_metrics_eval_t e = {step, m.unix_time, "wiki", loss, 9, 1, NULL};
        m.step = step;
        m.loss = loss / (double)(step + 1);
        loongi_metrics_json(&m, line);
        assert_ok(ctx, loongi_jsonl_add(jsonl, line));
        assert_ok(ctx, loongi_tensorboard_metrics(board, &m));
        loongi_metrics_eval_json(&e, line);
        assert_ok(ctx, loongi_jsonl_add(jsonl, line));
        assert_ok(ctx, loongi_tensorboard_eval(board, &e));
        loong_metrics_layer_t layer = {.step = step,
                                       .layer = 3,
                                       .unix_time = m.unix_time,
                                       .expert_load = 1.0 + loss,
                                       .dropped_tokens = NAN,
                                       .overflow_rounds = 2.0,
                                       .router_z_loss = 1.0 / loss};
        loongi_metrics_layer_json(&layer, line);
        assert_ok(ctx, loongi_jsonl_add(jsonl, line));
        assert_ok(ctx, loongi_tensorboard_layer(board, &layer));
    }
    loongi_jsonl_destroy(&jsonl);
    loongi_tensorboard_destroy(&board);
}

static void write_sample_run(const char *dir)
{
    loong_context_t *ctx = test_context();
    write_run(ctx, dir, 0, 40, 5.0);
    sleep(1); /* TensorBoard orders files by the second in their name */
    write_run(ctx, dir, 21, 60, 4.0);
    test_context_end(&ctx);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        write_sample_run(argv[1]);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_eval_line),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_jsonl),
        cmocka_unit_test(test_crc32c),
        cmocka_unit_test(test_tensorboard_bytes),
        cmocka_unit_test(test_tensorboard_files),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_progress_detect),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
