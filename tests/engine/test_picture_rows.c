/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of pictures on their way between ranks, by thousands of drawn sizes:
 * texts whose places context and tensor parallel ranks share, several of them
 * in a micro-batch, pictures in one run or in parts with tokens between, an
 * encoder with a class token's row in each grid, of frames of which the first
 * has what is read, or a projector, of several
 * replicas, shares and ranks. Each rank gets each row that it has exactly once,
 * from where it is, forth and back. */
#include "picture_rows.h"
#include "test.h"
#include "zigzag.h"

enum { MOST = 8, ROWS = 4096, SEGMENTS = 2 * MOST * 4, NONE = -1 };

/* One end: its ranks, and the rows of all replicas by what they are: picture
 * x ROWS + row, or NONE. */
typedef struct side {
    loong_picture_end_t end;
    int replicas, tp;
    bool split;
    int64_t all; /* rows of a replica */
    int32_t row[2][ROWS];
} side_t;

typedef struct drawn {
    int count;
    loong_planned_image_t image[MOST];
    int32_t between[MOST][4];
    side_t texts, maker;
} drawn_t;

static int draw(uint64_t *seed, int count)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int)(*seed >> 33) % count;
}

static void draw_side(uint64_t *seed, side_t *s, loong_picture_place_t place,
                      int most_cp)
{
    memset(s, 0, sizeof(*s));
    memset(s->row, 0xff, sizeof(s->row));
    s->end.place = place;
    s->end.cp_size = 1 + draw(seed, most_cp);
    s->replicas = 1 + draw(seed, 2);
    s->tp = 1 + draw(seed, 3);
    s->split = draw(seed, 2) != 0;
}

/* Rows of a grid of a picture stand in a text and at the maker. */
static void put(drawn_t *d, int i, int64_t grid, int64_t in_text,
                int64_t in_maker)
{
    const loong_planned_image_t *image = &d->image[i];
    int64_t rows = image->rows.text / image->rows.grids;
    for (int64_t r = 0; r < rows; r++) {
        int32_t id = (int32_t)(i * ROWS + grid * rows + r);
        d->texts.row[image->replica][in_text + r] = id;
        d->maker.row[image->at[0].replica][in_maker + r] = id;
    }
}

/* Pictures follow one another in the texts of a micro-batch. */
static void draw_images(uint64_t *seed, drawn_t *d, int64_t length, int texts)
{
    int64_t class_rows = d->maker.end.place == LOONG_IN_ENCODER;
    int64_t used[2] = {0};
    for (int replica = 0; replica < d->texts.replicas; replica++) {
        int64_t at = 0;
        while (d->count < MOST && draw(seed, 6) > 0) {
            int i = d->count;
            int64_t grids = 1 + draw(seed, 3);
            int64_t each = 1 + draw(seed, 12);
            bool apart = draw(seed, 2) != 0;
            int64_t takes = grids * each + (apart ? 2 * grids : 0);
            at += draw(seed, 7);
            if (at % length + takes > length) { /* to the next text */
                at = (at / length + 1) * length;
            }
            if (takes > length || at + takes > texts * length) {
                break;
            }
            loong_planned_image_t *image = &d->image[d->count++];
            memset(image, 0, sizeof(*image));
            image->rows.grids = grids;
            image->rows.text = image->rows.sent = grids * each;
            int64_t frames = class_rows > 0 ? 1 + draw(seed, 3) : 1;
            int64_t last = 1 + draw(seed, (int)frames); /* of the last grid */
            image->rows.lead = class_rows;
            image->rows.stride = class_rows + each * frames;
            image->rows.made =
                grids * image->rows.stride - each * (frames - last);
            image->replica = replica;
            image->row = at;
            int to = draw(seed, d->maker.replicas);
            image->at[0].replica = to;
            image->at[0].row = image->at[0].text_row = used[to];
            for (int64_t g = 0; g < grids; g++) {
                int64_t skip = apart ? 2 * g : 0;
                d->between[i][g] = (int32_t)(g + skip);
                put(d, i, g, at + g * each + skip,
                    used[to] + g * image->rows.stride + class_rows);
            }
            image->part_at = apart ? d->between[i] : NULL;
            used[to] += image->rows.made;
            at += takes;
        }
    }
}

static void settle(side_t *s, int64_t all)
{
    int64_t unit = (int64_t)s->end.cp_size * s->tp;
    s->all = loongi_round_up(all, unit);
    s->end.rows = s->all / s->end.cp_size;
}

/* The end at a rank, and what its rows are. */
static int64_t rank_of(const side_t *s, int replica, int cp_rank, int tp_rank,
                       loong_picture_end_t *end, int32_t *row)
{
    *end = s->end;
    end->replica = replica;
    end->cp_rank = cp_rank;
    int64_t count = s->split ? end->rows / s->tp : end->rows;
    end->begin = s->split ? count * tp_rank : 0;
    end->limit = end->begin + count;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = end->begin + i;
        int64_t own = s->end.length / s->end.cp_size;
        int64_t from = own == 0 ? end->rows * cp_rank + at
                                : at / own * s->end.length +
                                      loongi_zigzag_place(
                                          cp_rank, s->end.cp_size,
                                          s->end.length, at % own);
        row[i] = s->row[replica][from];
    }
    return count;
}

/* Of ranks that have equal rows the first sends. */
static void receive(loong_context_t *ctx, const drawn_t *d, const side_t *from,
                    const loong_picture_end_t *to, int32_t *got)
{
    int senders = from->split ? from->tp : 1;
    for (int n = 0; n < from->replicas * from->end.cp_size * senders; n++) {
        loong_picture_end_t end;
        static int32_t row[ROWS];
        loong_segment_t segments[SEGMENTS];
        loong_segment_list_t list = {segments, 0, SEGMENTS};
        rank_of(from, n / senders / from->end.cp_size,
                n / senders % from->end.cp_size, n % senders, &end, row);
        for (int i = 0; i < d->count; i++) {
            assert_ok(ctx, loongi_picture_segments(ctx, &d->image[i], &end, to,
                                                   &list));
        }
        for (int64_t i = 0; i < list.count; i++) {
            const loong_segment_t *g = &segments[i];
            for (int64_t r = 0; r < g->rows; r++) {
                assert_int_equal(got[g->to_row + r], NONE);
                got[g->to_row + r] = row[g->from_row + r];
            }
        }
    }
}

static void check_way(loong_context_t *ctx, const drawn_t *d,
                      const side_t *from, const side_t *to)
{
    for (int n = 0; n < to->replicas * to->end.cp_size * to->tp; n++) {
        loong_picture_end_t end;
        static int32_t want[ROWS];
        static int32_t got[ROWS];
        int64_t count =
            rank_of(to, n / to->tp / to->end.cp_size,
                    n / to->tp % to->end.cp_size, n % to->tp, &end, want);
        memset(got, 0xff, sizeof(got));
        receive(ctx, d, from, &end, got);
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(got[i], want[i]);
        }
    }
}

static void test_random(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    int64_t pictures = 0;
    for (uint64_t n = 0; n < 4000; n++) {
        static drawn_t d;
        uint64_t seed = n;
        int texts = 1 + draw(&seed, 3);
        d.count = 0;
        draw_side(&seed, &d.texts, LOONG_IN_TEXTS, 4);
        draw_side(&seed, &d.maker,
                  draw(&seed, 2) ? LOONG_BEHIND : LOONG_IN_ENCODER, 3);
        int64_t unit = 2 * (int64_t)d.texts.end.cp_size * d.texts.tp;
        int64_t length = unit * (1 + draw(&seed, 8));
        d.texts.end.length = d.texts.end.cp_size > 1 ? length : 0;
        draw_images(&seed, &d, length, texts);
        settle(&d.texts, texts * length);
        settle(&d.maker, MOST * 3 * 13 + draw(&seed, 9));
        check_way(ctx, &d, &d.maker, &d.texts);
        check_way(ctx, &d, &d.texts, &d.maker);
        pictures += d.count;
    }
    assert_true(pictures > 4000);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
