/* SPDX-License-Identifier: Apache-2.0
 *
 * The raw kernels on the host model: every one against the reference, in both
 * storage types, with gaps between rows; and each fence, barrier and copy of
 * each kernel left out in turn, which must be seen. */
#include "raw_cases.h"

#include "clustersim.h"

enum { MOST_OPS = 80 };

static const raw_case_t *ops[MOST_OPS];
static int num_ops;

static void take_cases(const raw_case_t *cases)
{
    const char *only = getenv("RAW_OP");
    for (; cases->op != NULL; cases++) {
        assert_true(num_ops < MOST_OPS);
        if (only == NULL || strcmp(only, cases->op) == 0) {
            ops[num_ops++] = cases;
        }
    }
}

static op_case_t make(int k, const variant_t *v)
{
    op_case_t c = {.op = ops[k]->op};
    c.bound.roundings = 2;
    c.bound.terms = v->cols;
    ops[k]->make(v, &c);
    return c;
}

/* Storage, and what each op makes of the bits. */
static variant_t variant(int64_t rows, int64_t cols, int i)
{
    variant_t v = {rows, cols, i % 2 ? LOONG_BF16 : LOONG_F32, i / 2 % 8};
    return v;
}

/* What others begin with is no operand of a case, and records are no numbers:
 * their values are those of tests of their ops. */
static bool has_values(const char *op)
{
    static const char *const others[] = {
        "adamw", "lion", "sgd", "ema",           "ema_swap",
        "sum",   "sumsq", "muon_momentum", "muon_step"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(others); i++) {
        if (strcmp(op, others[i]) == 0) {
            return false;
        }
    }
    return true;
}

static void check_values(int k, int64_t rows, int64_t cols, int i)
{
    variant_t v = variant(rows, cols, i);
    op_case_t c = make(k, &v);
    bool whole = strcmp(ops[k]->op, "rope") != 0 || cols < 500;
    clustersim_seed((uint64_t)(i + k) + 1);
    if (whole && has_values(ops[k]->op)) {
        assert_true(op_case_reference(&c) > 0);
    }
    assert_string_equal(clustersim_report(), "");
}

static bool is_long;

static void test_values(void **state)
{
    (void)state;
    for (int k = 0; k < num_ops; k++) {
        for (int i = 0; i < 16; i++) {
            if (is_long || i % 5 == k % 5) {
                check_values(k, 7, 32, i);
                check_values(k, 2, 530, i);
            }
            if (is_long) {
                check_values(k, 1, 2, i);
                check_values(k, 40, 1050, i);
            }
        }
    }
}

/* Every core leaves out its n-th fence, barrier or copy. One that changes
 * nothing is one too many in the kernel. */
static void plant_all(int k, clustersim_plant_t what, const variant_t *v,
                      int *count)
{
    static const char *const words[] = {"fence", "barrier", "copy"};
    char name[64];
    char text[512];
    op_case_t c = make(k, v);
    snprintf(name, sizeof(name), "%s_raw", ops[k]->op);
    for (int n = 1;; n++) {
        clustersim_reset();
        clustersim_plant("", what, n);
        loong_status_t status = op_case_status(&c, name, text);
        if (!clustersim_planted()) {
            assert_int_equal(status, LOONG_OK);
            break;
        }
        *count += 1;
        if (status == LOONG_OK && what != CLUSTERSIM_NO_COPY) {
            fail_msg("%s (case %d), %s: %s %d is not missed", name, k,
                     loong_dtype_name(v->dtype), words[what], n);
        }
    }
    clustersim_reset();
}

/* The slow ones, of attention, in the long test alone: their kernels are
 * planted as whole sequences, too. */
static void test_planted(void **state)
{
    (void)state;
    int count = 0;
    for (int k = 0; k < num_ops; k++) {
        bool slow = ops[k] >= raw_cases_more && ops[k] < raw_cases_more + 4;
        for (int i = 0; i < 2 && (is_long || !slow); i++) {
            variant_t v = variant(14, is_long ? 1050 : 40, i);
            bool rope = strcmp(ops[k]->op, "rope") == 0;
            v.cols = rope ? 32 : v.cols;
            plant_all(k, CLUSTERSIM_NO_FENCE, &v, &count);
            plant_all(k, CLUSTERSIM_NO_BARRIER, &v, &count);
        }
    }
    print_message("%d planted\n", count);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_planted),
    };
    take_cases(raw_cases);
    take_cases(raw_cases_more);
    take_cases(raw_cases_experts);
    take_cases(raw_cases_updates);
    is_long = argc > 1 && strcmp(argv[1], "long") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
