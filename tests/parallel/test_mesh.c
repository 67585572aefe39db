/* SPDX-License-Identifier: Apache-2.0
 *
 * Meshes: groups are partitions, numbering is Megatron's, communicators have
 * the members that the mesh says. */
#include "comm_impl.h"
#include "groups.h"
#include "rng.h"
#include "test.h"

static int draw(uint64_t seed, uint64_t what, int most)
{
    return 1 + (int)(loongi_rng_uniform(seed, what, 0) * most);
}

static loong_mesh_params_t random_params(uint64_t seed)
{
    loong_mesh_params_t p;
    memset(&p, 0, sizeof(p));
    p.tp = draw(seed, 1, 4);
    p.cp = draw(seed, 2, 3);
    p.pp = draw(seed, 3, 4);
    p.etp = draw(seed, 4, 2);
    p.ep = draw(seed, 5, 4);
    p.world = p.tp * p.cp * p.etp * p.ep * p.pp * draw(seed, 6, 2);
    return p;
}

/* Every member sees the same list, and itself at its own place. */
static void check_group(loong_context_t *ctx, const loong_mesh_params_t *p,
                        const loong_mesh_t *m, loong_group_t group)
{
    int size = loong_mesh_group_size(m, group);
    assert_int_equal(loong_mesh_member(m, group,
                                       loong_mesh_group_rank(m, group)),
                     m->rank);
    int before = -1;
    for (int i = 0; i < size; i++) {
        loong_mesh_t other;
        int rank = loong_mesh_member(m, group, i);
        assert_true(rank > before && rank < p->world);
        before = rank;
        assert_ok(ctx, loong_mesh_create(ctx, p, rank, &other));
        assert_int_equal(loong_mesh_group_size(&other, group), size);
        assert_int_equal(loong_mesh_group_rank(&other, group), i);
        assert_int_equal(loong_mesh_member(&other, group, 0),
                         loong_mesh_member(m, group, 0));
    }
}

static void test_groups(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (uint64_t seed = 0; seed < 30; seed++) {
        loong_mesh_params_t p = random_params(seed);
        for (int rank = 0; rank < p.world; rank++) {
            loong_mesh_t m;
            assert_ok(ctx, loong_mesh_create(ctx, &p, rank, &m));
            for (int g = 0; g < LOONG_GROUP_COUNT; g++) {
                check_group(ctx, &p, &m, (loong_group_t)g);
            }
        }
    }
    test_context_end(&ctx);
}

/* 16 ranks as tp 2, cp 2, pp 2, ep 4: the groups that Megatron prints. */
static void test_megatron(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_mesh_params_t p = {.world = 16, .tp = 2, .cp = 2, .pp = 2, .ep = 4,
                             .etp = 1};
    loong_mesh_t m;
    assert_ok(ctx, loong_mesh_create(ctx, &p, 6, &m));
    static const int stages[] = {0, 1};
    m.num_ties = 2;
    m.ties[0] = (loong_tie_ranks_t){2, stages};
    m.ties[1] = (loong_tie_ranks_t){1, &stages[1]};
    static const struct {
        loong_group_t group;
        int size;
        int members[4];
    } want[] = {
        {LOONG_GROUP_TP, 2, {6, 7}},     {LOONG_GROUP_CP, 2, {4, 6}},
        {LOONG_GROUP_DP, 2, {2, 6}},     {LOONG_GROUP_DP_CP, 4, {0, 2, 4, 6}},
        {LOONG_GROUP_PP, 2, {6, 14}},    {LOONG_GROUP_EDP, 2, {2, 6}},
        {LOONG_GROUP_ETP_EP, 4, {4, 5, 6, 7}},
        {LOONG_GROUP_TIE, 2, {6, 14}},   {LOONG_GROUP_CP_A2A, 1, {6}},
        {LOONG_GROUP_TIE_2, 1, {6}},
        {LOONG_GROUP_CP_P2P, 2, {4, 6}},
    };
    for (int i = 0; i < LOONG_COUNT_OF(want); i++) {
        assert_int_equal(loong_mesh_group_size(&m, want[i].group),
                         want[i].size);
        for (int k = 0; k < want[i].size; k++) {
            assert_int_equal(loong_mesh_member(&m, want[i].group, k),
                             want[i].members[k]);
        }
    }
    /* hierarchical_context_parallel_sizes 2 4: neighbours, then every other. */
    loong_mesh_params_t c = {.world = 16, .tp = 2, .cp = 8, .pp = 1, .ep = 1,
                             .etp = 1, .cp_a2a = 2};
    static const int a2a[] = {4, 6};
    static const int p2p[] = {2, 6, 10, 14};
    assert_ok(ctx, loong_mesh_create(ctx, &c, 6, &m));
    assert_int_equal(loong_mesh_group_size(&m, LOONG_GROUP_CP_A2A), 2);
    assert_int_equal(loong_mesh_group_size(&m, LOONG_GROUP_CP_P2P), 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(loong_mesh_member(&m, LOONG_GROUP_CP_A2A, i % 2),
                         a2a[i % 2]);
        assert_int_equal(loong_mesh_member(&m, LOONG_GROUP_CP_P2P, i), p2p[i]);
    }
    c.cp_a2a = 3;
    assert_fails(ctx, loong_mesh_create(ctx, &c, 0, &m), LOONG_ERR_CONFIG,
                 "context_parallel_size 8 is no multiple of the 3 ranks that "
                 "exchange heads");
    p.pp = 3;
    p.cp = 0;
    assert_fails(ctx, loong_mesh_create(ctx, &p, 0, &m), LOONG_ERR_CONFIG,
                 "context_parallel_size: found 0");
    p.cp = 2;
    assert_fails(ctx, loong_mesh_create(ctx, &p, 0, &m), LOONG_ERR_CONFIG,
                 "16 ranks are no multiple of tensor x context x pipeline = "
                 "2 x 2 x 3 = 12");
    test_context_end(&ctx);
}

/* A rank does not come to a call of tensor parallel ranks: the others have lost
 * it, though their world has not failed. */
static loong_status_t lose_one(loong_context_t *ctx, loong_comm_t *comm,
                               void *user)
{
    const loong_mesh_params_t *p = user;
    loong_mesh_t m;
    loong_groups_t groups;
    int rank = loong_comm_rank(comm);
    LOONG_TRY(loong_mesh_create(ctx, p, rank, &m));
    LOONG_TRY(loongi_groups_create(ctx, comm, &m, &groups));
    bool before = loongi_groups_failed(&groups);
    if (rank == 0) { /* rank 1 stays away, 2 and 3 are a group of their own */
        loong_status_t lost =
            loong_comm_barrier(groups.comm[LOONG_GROUP_TP], "alone");
        LOONG_CHECK(ctx, lost == LOONG_ERR_COMM, LOONG_ERR_INTERNAL,
                    "rank 1 came");
        loong_context_clear_error(ctx);
    } else if (rank > 1) {
        LOONG_TRY(loong_comm_barrier(groups.comm[LOONG_GROUP_TP], "both"));
    }
    bool failed = loongi_groups_failed(&groups);
    bool world = comm->failed;
    loongi_groups_destroy(&groups);
    LOONG_CHECK(ctx, !before && !world && failed == (rank == 0),
                LOONG_ERR_INTERNAL,
                "rank %d: failed %d before, %d after, the world %d", rank,
                before, failed, world);
    return LOONG_OK;
}

static void test_failed_group(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_mesh_params_t p = {.world = 4, .tp = 2, .cp = 1, .pp = 1, .ep = 1,
                             .etp = 1};
    loong_threads_params_t params = {.size = 4, .comm = {.timeout = 0.5}};
    assert_ok(ctx, loong_threads_run(ctx, &params, lose_one, &p));
    test_context_end(&ctx);
}

static loong_status_t check_comms(loong_context_t *ctx, loong_comm_t *comm,
                                  void *user)
{
    const loong_mesh_params_t *p = user;
    loong_mesh_t m;
    loong_groups_t groups;
    LOONG_TRY(loong_mesh_create(ctx, p, loong_comm_rank(comm), &m));
    LOONG_TRY(loongi_groups_create(ctx, comm, &m, &groups));
    for (int g = 0; g < LOONG_GROUP_COUNT; g++) {
        loong_group_t group = (loong_group_t)g;
        loong_comm_t *c = groups.comm[g];
        int size = loong_comm_size(c);
        int64_t sum = loong_comm_rank(comm);
        LOONG_CHECK(ctx, size == loong_mesh_group_size(&m, group) &&
                             loong_comm_rank(c) ==
                                 loong_mesh_group_rank(&m, group),
                    LOONG_ERR_INTERNAL, "group %s", loong_group_name(group));
        LOONG_TRY(loong_comm_all_reduce(c, &sum, 1, LOONG_I64,
                                        LOONG_REDUCE_SUM, "test"));
        for (int i = 0; i < size; i++) {
            sum -= loong_mesh_member(&m, group, i);
        }
        LOONG_CHECK(ctx, sum == 0, LOONG_ERR_INTERNAL, "members of %s",
                    loong_group_name(group));
    }
    loongi_groups_destroy(&groups);
    return LOONG_OK;
}

static void test_comms(void **state)
{
    (void)state;
    static const loong_mesh_params_t sizes[] = {
        {1, 1, 1, 1, 1, 1, 0, 0}, {4, 2, 1, 2, 1, 1, 0, 0},
        {8, 2, 2, 2, 2, 1, 0, 2}, {6, 1, 1, 3, 2, 1, 0, 0},
        {8, 2, 1, 1, 2, 2, 0, 0}, {8, 2, 4, 1, 1, 1, 1, 2},
    };
    loong_context_t *ctx = test_context();
    for (int i = 0; i < LOONG_COUNT_OF(sizes); i++) {
        loong_mesh_params_t p = sizes[i];
        loong_threads_params_t params = {
            .size = p.world, .context = {test_log, NULL, LOONG_LOG_WARN}};
        assert_ok(ctx, loong_threads_run(ctx, &params, check_comms, &p));
    }
    test_context_end(&ctx);
}

/* Some stages of a pipeline; the others are alone. */
static void test_ties(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_mesh_params_t p = {.world = 16, .tp = 2, .cp = 1, .pp = 4, .ep = 1,
                             .etp = 1};
    static const int coord[] = {0, 2, 3};
    for (int rank = 0; rank < p.world; rank++) {
        loong_mesh_t m;
        assert_ok(ctx, loong_mesh_create(ctx, &p, rank, &m));
        m.num_ties = 1;
        m.ties[0] = (loong_tie_ranks_t){3, coord};
        int stage = rank / 4;
        int size = loong_mesh_group_size(&m, LOONG_GROUP_TIE);
        int at = loong_mesh_group_rank(&m, LOONG_GROUP_TIE);
        assert_int_equal(size, stage == 1 ? 1 : 3);
        assert_int_equal(loong_mesh_member(&m, LOONG_GROUP_TIE, at), rank);
        for (int i = 0; i < size; i++) {
            assert_int_equal(loong_mesh_member(&m, LOONG_GROUP_TIE, i),
                             stage == 1 ? rank : 4 * coord[i] + rank % 4);
        }
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_megatron),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_comms),
        cmocka_unit_test(test_failed_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
