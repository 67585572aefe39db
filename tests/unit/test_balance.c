/* SPDX-License-Identifier: Apache-2.0
 *
 * Micro-batches by weights of ranks. Micro-batches dealt to ranks by cost: each
 * one once, as many a rank; and how even it is on lengths as conversations have
 * them, on up to 512 ranks. */
#include <math.h>
#include <string.h>

#include "balance.h"
#include "packing.h"
#include "shares.h"
#include "test.h"

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void check_order(const loong_balance_t *b)
{
    uint8_t *seen = calloc((size_t)b->count, 1);
    for (int64_t i = 0; i < b->count; i++) {
        assert_in_range(b->order[i], 0, b->count - 1);
        assert_int_equal(seen[b->order[i]]++, 0);
    }
    free(seen);
}

static void each_micro_batch_once(void **state)
{
    static const int sizes[][2] = {{1, 1}, {4, 1}, {4, 3}, {7, 8}, {512, 2}};
    loong_context_t *ctx = test_context();
    uint32_t seed = 3;
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(sizes); i++) {
        loong_balance_t b[2];
        int64_t count = (int64_t)sizes[i][0] * sizes[i][1];
        assert_ok(ctx, loongi_balance_create(ctx, count, sizes[i][0], &b[0]));
        assert_ok(ctx, loongi_balance_create(ctx, count, sizes[i][0], &b[1]));
        for (int repeat = 0; repeat < 3; repeat++) {
            for (int64_t m = 0; m < count; m++) { /* some are equal */
                b[0].micro[m].cost = draw(&seed) % 50;
                b[1].micro[m].cost = b[0].micro[m].cost;
            }
            loongi_balance_deal(&b[0]);
            loongi_balance_deal(&b[1]);
            check_order(&b[0]);
            assert_memory_equal(b[0].order, b[1].order,
                                (size_t)count * sizeof(int32_t));
            assert_true(b[0].dealt >= 1.0 && b[0].drawn >= 1.0);
        }
        for (int k = 0; k < 2; k++) {
            loongi_balance_destroy(ctx, &b[k]);
        }
    }
    test_context_end(&ctx);
}

/* Costs 1 to 8 on two ranks: 18 each, where they were drawn as 16 and 20. */
static void a_step_by_hand(void **state)
{
    loong_context_t *ctx = test_context();
    loong_balance_t b;
    (void)state;
    assert_ok(ctx, loongi_balance_create(ctx, 8, 2, &b));
    for (int i = 0; i < 8; i++) {
        b.micro[i].cost = i + 1;
    }
    loongi_balance_deal(&b);
    assert_true(b.drawn == 20.0 / 18.0 && b.dealt == 1.0);
    /* rank 0: 8 7 | 5 6 ...; rounds are about as dear */
    for (int k = 0; k < 4; k++) {
        int sum = b.order[2 * k] + b.order[2 * k + 1];
        assert_int_equal(sum, 13 - 4 * k);
    }
    loongi_balance_destroy(ctx, &b);
    test_context_end(&ctx);
}

/* ---- simulated ----------------------------------------------------------- */

/* A decoder of 32 layers, 4096 wide, 6.7 thousand million parameters: thousands
 * of operations of a place, and of n ids that attend. */
static int64_t attention_of(int64_t n)
{
    double d = (double)n;
    return (int64_t)(1e-3 * 6.0 * 32 * 2 * 4096 * d * (d + 1.0) / 2.0);
}
static const double PLACE = 1e-3 * 6.0 * 6.7e9;
enum { SIMULATED = 20 };

static int32_t draw_length(uint32_t *state, int32_t room)
{
    double u = ((double)draw(state) + 1.0) / (double)(1 << 24);
    double v = (double)draw(state) / (double)(1 << 24);
    double n = sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
    double tail = draw(state) % 20 == 0 ? 8.0 : 1.0;
    return (int32_t)fmin(fmax(350.0 * exp(n) * tail, 8.0), (double)room);
}

/* The worst and the mean step of some, in a drawn order of rows. */
typedef struct result {
    double dealt, drawn; /* the mean */
    double worst;
    double floor;        /* the mean of what no deal of these rows is below, */
    double packed_floor; /* and none of other rows of the same samples */
} result_t;

static int by_cost(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* A rank has the dearest micro-batch, and beside it the cheapest ones at best.
 * However samples are put into rows, all places of a row are computed, and some
 * row has the longest sample. */
static void add_floors(const loong_balance_t *b, int each, int64_t places,
                       int64_t longest, result_t *r)
{
    int64_t *costs = calloc((size_t)LOONG_MAX(b->count, 1), sizeof(*costs));
    double all = 0.0;
    for (int64_t m = 0; m < b->count; m++) {
        costs[m] = b->micro[m].cost;
        all += (double)costs[m];
    }
    qsort(costs, (size_t)b->count, sizeof(*costs), by_cost);
    double least = (double)costs[b->count - 1];
    for (int k = 0; k < each - 1; k++) {
        least += (double)costs[k];
    }
    double mean = all / (double)b->count * each;
    double packed = (double)attention_of(longest) + (double)places * each;
    r->floor += fmax(1.0, least / mean) / SIMULATED;
    r->packed_floor += fmax(1.0, packed / mean) / SIMULATED;
    free(costs);
}

static result_t simulate(loong_context_t *ctx, const loong_pack_table_t *t,
                         int ranks, int each)
{
    loong_balance_t b;
    result_t r = {0};
    int64_t places = (int64_t)(PLACE * (t->room - 1));
    uint32_t seed = 77;
    assert_ok(ctx,
              loongi_balance_create(ctx, (int64_t)ranks * each, ranks, &b));
    for (int step = 0; step < SIMULATED; step++) {
        int64_t longest = 0;
        for (int64_t m = 0; m < b.count; m++) {
            int64_t row = draw(&seed) % t->rows;
            b.micro[m].cost = places;
            for (int64_t i = 0; i < loongi_pack_count(t, row); i++) {
                int64_t length = loongi_pack_length(t, row, i);
                b.micro[m].cost += attention_of(length);
                longest = LOONG_MAX(longest, length);
            }
        }
        add_floors(&b, each, places, longest, &r);
        loongi_balance_deal(&b);
        r.dealt += b.dealt / SIMULATED;
        r.drawn += b.drawn / SIMULATED;
        r.worst = fmax(r.worst, b.dealt);
    }
    loongi_balance_destroy(ctx, &b);
    return r;
}

static loong_pack_table_t pack(loong_context_t *ctx, int32_t room,
                               loong_packing_t packing)
{
    enum { SAMPLES = 200000 };
    loong_pack_table_t t;
    uint32_t seed = 5;
    assert_ok(ctx, loongi_pack_begin(ctx, SAMPLES, room, &t));
    for (int64_t i = 0; i < SAMPLES; i++) {
        t.length[i] = draw_length(&seed, room);
    }
    assert_ok(ctx, loongi_pack_make(&t, packing, 1));
    return t;
}

/* The figures of docs/performance.md. */
static void up_to_512_ranks(void **state)
{
    static const int32_t rooms[] = {8193, 32769};
    static const int counts[] = {8, 64, 512};
    static const int each[] = {1, 2, 4, 8, 16};
    loong_context_t *ctx = test_context();
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(rooms); i++) {
        loong_pack_table_t t = pack(ctx, rooms[i], LOONG_PACK_BEST_FIT);
        for (int r = 0; r < LOONG_COUNT_OF(counts); r++) {
            for (int k = 0; k < LOONG_COUNT_OF(each); k++) {
                result_t got = simulate(ctx, &t, counts[r], each[k]);
                print_message("rows of %5d, %3d ranks, %2d micro-batches each: "
                              "drawn %.3f, dealt %.3f, worst step %.3f; "
                              "floor %.3f, of any rows %.3f\n",
                              rooms[i], counts[r], each[k], got.drawn,
                              got.dealt, got.worst, got.floor,
                              got.packed_floor);
                assert_true(got.dealt <= got.drawn + 1e-12);
                assert_true(got.dealt <= 1.01 * got.floor);
                /* a longest row is as dear as 1.6 others: eight can have it */
                assert_true(each[k] < 4 * (i + 1) || got.worst <= 1.05);
            }
        }
        loongi_pack_destroy(&t);
    }
    test_context_end(&ctx);
}

/* ---- pictures ------------------------------------------------------------ */

static double draw_normal(uint32_t *state)
{
    double u = ((double)draw(state) + 1.0) / (double)(1 << 24);
    double v = (double)draw(state) / (double)(1 << 24);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* Thousands of operations of attention in a picture of n patches: of 32 layers,
 * 1280 wide, 4 see it all, the others windows of 64 (Qwen2.5-VL). */
static int64_t attention_in_picture(int64_t n)
{
    return (int64_t)(1e-3 * 12.0 * 1280 * (double)n *
                     (4.0 * (double)n + 28.0 * 64.0));
}

/* Rows of 16384 places and 41600 patches, filled from texts of about 200 ids
 * with none to four pictures of about a thousand patches; costs of attention
 * in them. */
static int64_t *draw_rows(loong_context_t *ctx, loong_pack_table_t *t)
{
    enum { SAMPLES = 40000 };
    static const int32_t has[] = {16384, 41600, 63};
    int64_t *cost = calloc(SAMPLES, sizeof(*cost));
    uint32_t seed = 9;
    assert_ok(ctx, loongi_pack_begin(ctx, SAMPLES, has[0], t));
    assert_ok(ctx, loongi_pack_limit(t, has));
    for (int64_t i = 0; i < SAMPLES; i++) {
        int32_t *of = t->sizes[i];
        of[LOONG_PACK_IMAGES] = (int32_t)(i % 10 < 7   ? 1
                                          : i % 10 < 9 ? 2 + i / 10 % 3
                                                       : 0);
        for (int k = 0; k < of[LOONG_PACK_IMAGES]; k++) {
            double patches = 1000.0 * exp(0.8 * draw_normal(&seed));
            int32_t n = 4 * (int32_t)fmin(fmax(patches / 4.0, 16.0), 2500.0);
            of[LOONG_PACK_PATCHES] += n;
            cost[i] += attention_in_picture(n);
        }
        double ids = 200.0 * exp(0.7 * draw_normal(&seed));
        of[LOONG_PACK_IDS] =
            (int32_t)fmin(fmax(ids, 8.0), 2000.0) + of[LOONG_PACK_PATCHES] / 4;
        t->length[i] = of[LOONG_PACK_IDS];
        cost[i] += attention_of(t->length[i]);
    }
    assert_ok(ctx, loongi_pack_make(t, LOONG_PACK_GREEDY, 1));
    return cost;
}

/* The figures of docs/image-text-data.md. */
static void pictures_up_to_512_ranks(void **state)
{
    static const int counts[] = {8, 64, 512};
    static const int each[] = {1, 2, 4, 8};
    loong_context_t *ctx = test_context();
    loong_pack_table_t t;
    int64_t *cost = draw_rows(ctx, &t);
    /* of an encoder's patch: 32 layers of 19.7e6 operations */
    int64_t places =
        (int64_t)(PLACE * 16384 + 1e-3 * 6.0 * 32 * 19.7e6 * 41600);
    (void)state;
    for (int c = 0; c < LOONG_COUNT_OF(counts); c++) {
        for (int k = 0; k < LOONG_COUNT_OF(each); k++) {
            loong_balance_t b;
            double dealt = 0.0, drawn = 0.0;
            uint32_t seed = 77;
            assert_ok(ctx,
                      loongi_balance_create(ctx, (int64_t)counts[c] * each[k],
                                            counts[c], &b));
            for (int step = 0; step < SIMULATED; step++) {
                for (int64_t m = 0; m < b.count; m++) {
                    int64_t row = draw(&seed) % t.rows;
                    b.micro[m].cost = places;
                    for (int64_t i = 0; i < loongi_pack_count(&t, row); i++) {
                        b.micro[m].cost +=
                            cost[loongi_pack_sample(&t, row, i, 0)];
                    }
                }
                loongi_balance_deal(&b);
                dealt += b.dealt / SIMULATED;
                drawn += b.drawn / SIMULATED;
            }
            print_message("%3d ranks, %d rows with pictures each: drawn %.3f, "
                          "dealt %.3f, %.3f times\n",
                          counts[c], each[k], drawn, dealt, drawn / dealt);
            assert_true(dealt <= drawn + 1e-12);
            loongi_balance_destroy(ctx, &b);
        }
    }
    free(cost);
    loongi_pack_destroy(&t);
    test_context_end(&ctx);
}

/* The longest rank of any way to share out, by trying all. */
static double least_longest(int n, const int64_t *weight, int64_t count)
{
    double least = HUGE_VAL;
    for (int64_t own = 0; own <= count; own++) {
        double time = (double)own / (double)weight[0];
        double rest = n > 1 ? least_longest(n - 1, weight + 1, count - own)
                      : own == count ? 0.0
                                     : HUGE_VAL;
        least = fmin(least, fmax(time, rest));
    }
    return least;
}

static void shares_by_weights(void **state)
{
    static const int64_t weights[][4] = {
        {1, 1, 1, 1}, {3, 1, 1, 1}, {1000000000, 333333333, 1, 90000000}};
    (void)state;
    for (int k = 0; k < 3; k++) {
        int64_t before[4] = {0};
        for (int64_t count = 1; count < 24; count++) {
            int64_t of[4];
            int64_t sum = 0;
            double longest = 0.0;
            loongi_shares(4, weights[k], count, of);
            for (int r = 0; r < 4; r++) {
                double time = (double)of[r] / (double)weights[k][r];
                longest = fmax(longest, time);
                sum += of[r];
                assert_true(of[r] >= before[r]);
                before[r] = of[r];
            }
            assert_int_equal(sum, count);
            assert_true(longest == least_longest(4, weights[k], count));
        }
    }
    int64_t of[4];
    loongi_shares(4, weights[1], 12, of);
    assert_true(of[0] == 6 && of[1] == 2 && of[2] == 2 && of[3] == 2);
    loongi_shares(4, weights[2], 1000000000, of);
    assert_int_equal(of[0] + of[1] + of[2] + of[3], 1000000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_by_weights),
        cmocka_unit_test(each_micro_batch_once),
        cmocka_unit_test(a_step_by_hand),
        cmocka_unit_test(up_to_512_ranks),
        cmocka_unit_test(pictures_up_to_512_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
