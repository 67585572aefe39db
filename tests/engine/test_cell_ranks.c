/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks are a cell: by hand, and of random components on random ranks:
 * cells part the ranks, no replica is cut, all cells have as many replicas of
 * each component, and number them as their meshes do. */
#include "cell_ranks.h"
#include "test.h"

enum { RANKS = 12, MOST = 4 };

/* Components as asked for: sizes, and the ranks of the job they stand on. */
typedef struct drawn {
    int count;
    int32_t ranks[MOST][RANKS];
    loong_component_params_t params[MOST];
} drawn_t;

static loong_mesh_params_t sizes(int tp, int cp, int pp, int world)
{
    return (loong_mesh_params_t){
        .world = world, .tp = tp, .cp = cp, .pp = pp, .ep = 1, .etp = 1};
}

static void put(loong_context_t *ctx, drawn_t *d, loong_mesh_params_t mesh,
                const int *ranks)
{
    loong_component_params_t *p = &d->params[d->count];
    memset(p, 0, sizeof(*p));
    assert_ok(ctx, loong_mesh_create(ctx, &mesh, 0, &p->mesh));
    for (int i = 0; i < mesh.world; i++) {
        d->ranks[d->count][i] = ranks != NULL ? ranks[i] : i;
    }
    p->ranks = ranks != NULL ? d->ranks[d->count] : NULL;
    d->count++;
}

/* As a rank of the job sees it; false: it has no component. */
static bool find(loong_context_t *ctx, loong_arena_t *arena, const drawn_t *d,
                 int rank, loong_cell_ranks_t *cell)
{
    loong_component_params_t params[MOST];
    bool any = false;
    for (int c = 0; c < d->count; c++) {
        loong_component_params_t *p = &params[c];
        *p = d->params[c];
        int own = loongi_component_rank(p, rank);
        const int *size = p->mesh.size;
        const loong_mesh_params_t mesh =
            sizes(size[LOONG_AXIS_TP], size[LOONG_AXIS_CP],
                  size[LOONG_AXIS_PP], p->mesh.world);
        p->absent = own < 0;
        any = any || own >= 0;
        assert_ok(ctx,
                  loong_mesh_create(ctx, &mesh, LOONG_MAX(own, 0), &p->mesh));
    }
    if (any) {
        assert_ok(ctx,
                  loongi_cell_ranks_find(ctx, arena, d->count, params, cell));
    }
    return any;
}

static void assert_cells(loong_context_t *ctx, const drawn_t *d,
                         const char *want)
{
    loong_arena_t *arena = NULL;
    loong_text_t text = loongi_text_begin(ctx);
    assert_ok(ctx, loongi_arena_create(ctx, "cells", &arena));
    for (int r = 0; r < RANKS; r++) {
        loong_cell_ranks_t cell;
        if (!find(ctx, arena, d, r, &cell) || cell.rank[0] != r) {
            continue;
        }
        loongi_text_printf(&text, "%s", text.length > 0 ? " |" : "");
        for (int i = 0; i < cell.count; i++) {
            loongi_text_printf(&text, " %d", (int)cell.rank[i]);
        }
    }
    assert_string_equal(loongi_text_get(&text), want);
    loongi_text_free(&text);
    loongi_arena_destroy(&arena);
}

static void test_by_hand(void **state)
{
    (void)state;
    static const int low[] = {0, 1};
    static const int high[] = {2, 3, 4, 5};
    static const int odd[] = {1, 3, 5};
    loong_context_t *ctx = test_context();
    drawn_t d = {.count = 0};
    put(ctx, &d, sizes(1, 1, 1, 8), NULL);
    put(ctx, &d, sizes(2, 1, 2, 8), NULL);
    assert_cells(ctx, &d, " 0 1 4 5 | 2 3 6 7");
    d.count = 0;
    put(ctx, &d, sizes(4, 1, 1, 8), NULL);
    put(ctx, &d, sizes(2, 1, 1, 8), NULL);
    assert_cells(ctx, &d, " 0 1 2 3 | 4 5 6 7");
    d.count = 0; /* sizes that do not divide each other */
    put(ctx, &d, sizes(2, 1, 1, 6), NULL);
    put(ctx, &d, sizes(3, 1, 1, 6), NULL);
    assert_cells(ctx, &d, " 0 1 2 3 4 5");
    d.count = 0;
    put(ctx, &d, sizes(1, 1, 1, 2), low);
    put(ctx, &d, sizes(2, 1, 1, 4), high);
    assert_cells(ctx, &d, " 0 2 3 | 1 4 5");
    d.count = 0;
    put(ctx, &d, sizes(2, 1, 1, 2), low);
    put(ctx, &d, sizes(1, 1, 1, 4), high);
    assert_cells(ctx, &d, " 0 1 2 3 4 5");
    d.count = 0; /* an encoder on some of the ranks */
    put(ctx, &d, sizes(1, 1, 1, 3), odd);
    put(ctx, &d, sizes(1, 1, 1, 6), NULL);
    assert_cells(ctx, &d, " 0 1 | 2 3 | 4 5");
    d.count = 0; /* ranks that share a text, in pipelines of two stages */
    put(ctx, &d, sizes(1, 1, 1, 8), NULL);
    put(ctx, &d, sizes(1, 2, 2, 8), NULL);
    assert_cells(ctx, &d, " 0 1 4 5 | 2 3 6 7");
    d.count = 0; /* alone: a pipeline */
    put(ctx, &d, sizes(2, 1, 2, 4), high);
    assert_cells(ctx, &d, " 2 4 | 3 5");
    test_context_end(&ctx);
}

/* ---- random components --------------------------------------------------- */

static int draw(uint64_t *seed, int count)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int)(*seed >> 33) % count;
}

static void draw_components(loong_context_t *ctx, uint64_t seed, drawn_t *d)
{
    d->count = 0;
    for (int c = 2 + draw(&seed, MOST - 1); c > 0; c--) {
        int ranks[RANKS];
        int world = 0;
        int tp = 1 + draw(&seed, 3);
        int cp = 1 + draw(&seed, 2);
        int pp = 1 + draw(&seed, 2);
        int skip = draw(&seed, 4) / 3 * 2;
        for (int r = draw(&seed, 2) * 4; r < RANKS; r++) {
            if (draw(&seed, 3) >= skip) {
                ranks[world++] = r;
            }
        }
        world -= world % (tp * cp * pp);
        if (world > 0) {
            put(ctx, d, sizes(tp, cp, pp, world), ranks);
        }
    }
}

/* What a cell has of a component is whole replicas, numbered as in the mesh. */
static void check_component(const drawn_t *d, int c,
                            const loong_cell_ranks_t *cell)
{
    const loong_component_params_t *p = &d->params[c];
    const loong_component_place_t *place = &cell->component[c];
    int of = loongi_replica_ranks(p);
    int dp = p->mesh.size[LOONG_AXIS_DP];
    int pp = p->mesh.size[LOONG_AXIS_PP];
    assert_int_equal(place->pipelines, place->replicas * of);
    for (int k = 0; k < place->replicas; k++) {
        int replica = place->replica[k];
        assert_true(replica >= 0 && replica < dp);
        assert_true(k == 0 || replica > place->replica[k - 1]);
        for (int i = 0; i < of * pp; i++) {
            int own = i % of + of * (replica + dp * (i / of));
            int at = place->rank[(k * of + i % of) * pp + i / of];
            assert_int_equal(cell->rank[at], p->ranks[own]);
        }
    }
}

static void test_random(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    int several = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        static drawn_t d;
        int replicas[MOST] = {0};
        loong_cell_ranks_t first = {.count = 0};
        loong_arena_t *arena = NULL;
        int cells = 0;
        assert_ok(ctx, loongi_arena_create(ctx, "cells", &arena));
        draw_components(ctx, seed, &d);
        for (int r = 0; r < RANKS && d.count > 1; r++) {
            loong_cell_ranks_t cell;
            loong_cell_ranks_t other;
            if (!find(ctx, arena, &d, r, &cell)) {
                continue;
            }
            assert_int_equal(cell.rank[cell.cell_rank], r);
            assert_true(find(ctx, arena, &d, cell.rank[0], &other));
            assert_int_equal(cell.count, other.count);
            assert_memory_equal(cell.rank, other.rank,
                                (size_t)cell.count * sizeof(*cell.rank));
            first = first.count == 0 ? cell : first;
            for (int c = 0; c < d.count; c++) {
                check_component(&d, c, &cell);
                assert_true(cell.component[c].replicas > 0);
                assert_int_equal(cell.component[c].replicas,
                                 first.component[c].replicas);
                replicas[c] +=
                    cell.rank[0] == r ? cell.component[c].replicas : 0;
            }
            cells += cell.rank[0] == r;
        }
        for (int c = 0; c < d.count && d.count > 1; c++) {
            assert_int_equal(replicas[c], d.params[c].mesh.size[LOONG_AXIS_DP]);
        }
        several += cells > 1;
        loongi_arena_destroy(&arena);
    }
    assert_true(several > 60);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
