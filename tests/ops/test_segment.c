/* SPDX-License-Identifier: Apache-2.0
 *
 * segment_sum and segment_repeat: the reference against sums by hand, every
 * kernel against the reference, offsets that are refused. Gradients:
 * test_gradients.c. */
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

enum { MOST = 300 };

static const char *const names[] = {"segment_sum", "segment_repeat"};

/* offset [segments + 1], over `rows` rows. */
static op_case_t make(int op, loong_dtype_t wide, int64_t segments,
                      const int32_t *offset, const loong_segment_attr_t *attr)
{
    op_case_t c = {.op = names[op],
                   .attr = attr,
                   .num_in = 2,
                   .num_out = 1,
                   .arg = {op_vec(wide, op == 0 ? attr->rows : segments),
                           op_vec(LOONG_I32, segments + 1),
                           op_vec(wide, op == 0 ? segments : attr->rows)}};
    c.arg[1].values = offset;
    c.bound.terms = attr->rows;
    return c;
}

/* Rows 0, 8 and 9 are in no segment, the second one has none. */
static const int32_t offsets[] = {1, 4, 4, 8};
static const loong_segment_attr_t ten = {10};

static void test_by_hand(void **state)
{
    (void)state;
    static const double in[][10] = {{1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
                                    {3, 5, 7}};
    static const double wanted[][10] = {{14, 0, 240},
                                        {0, 3, 3, 3, 7, 7, 7, 7, 0, 0}};
    for (int op = 0; op < 2; op++) {
        double *out[LOONG_MAX_OPERANDS] = {NULL};
        op_case_t c = make(op, LOONG_F32, 3, offsets, &ten);
        c.arg[0].wide_values = in[op];
        op_case_outputs(&c, NULL, out);
        for (int64_t i = 0; i < c.arg[2].dim[0]; i++) {
            assert_true(out[0][i] == wanted[op][i]);
        }
        free(out[0]);
    }
}

static void test_kernels(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 7, 255, 257, 3000};
    bool host = strcmp(OP_DEVICE, "cpu") == 0;
    op_draw_t d = op_draw_begin(20);
    while (op_draw_next(&d)) {
        for (int i = 0; i < LOONG_COUNT_OF(rows); i++) {
            int32_t offset[MOST + 1];
            loong_segment_attr_t attr = {rows[i]};
            int64_t segments = op_draw_size(&d, MOST);
            int64_t at = 0;
            for (int64_t s = 0; s <= segments; s++) {
                int64_t rest = rows[i] - at;
                offset[s] = (int32_t)at;
                at += op_draw_below(&d, 3) == 0
                          ? 0
                          : op_draw_below(&d, (int)(rest / 4 + 2));
                at = LOONG_MIN(at, rows[i]);
            }
            for (int op = 0; op < 2; op++) {
                op_case_t c = make(op, LOONG_F32, segments, offset, &attr);
                c.seed = d.seed;
                assert_true(op_case_reference(&c) > 0 || host);
                op_case_threads(&c);
            }
        }
    }
}

static void test_bad_offsets(void **state)
{
    (void)state;
    static const struct {
        int32_t offset[4];
        const char *told;
    } bad[] = {{{-1, 4, 4, 8}, "offset 0 is -1 after 0, there are 10 rows"},
               {{1, 4, 3, 8}, "offset 2 is 3 after 4, there are 10 rows"},
               {{1, 4, 4, 11}, "offset 3 is 11 after 4, there are 10 rows"}};
    for (int i = 0; i < LOONG_COUNT_OF(bad); i++) {
        for (int op = 0; op < 2; op++) {
            char text[512];
            op_case_t c = make(op, LOONG_F32, 3, bad[i].offset, &ten);
            assert_int_equal(op_case_status(&c, NULL, text), LOONG_ERR_ARG);
            if (strstr(text, bad[i].told) == NULL) {
                fail_msg("%s: '%s' is not '%s'", c.op, text, bad[i].told);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_bad_offsets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
