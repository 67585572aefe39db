/* SPDX-License-Identifier: Apache-2.0
 *
 * Each rank of CP has its rows of every sample (zigzag.h); where these are of
 * any length, its share of all rows one after another, which a2a alone takes.
 * Ways to bring queries and keys together:
 *   all_gather  keys and values of all ranks come to each, whose queries know
 *               their place among them;
 *   a2a         every rank gives its rows away and gets all rows of its share
 *               of the heads (Jacobs et al. 2023), and back behind attention;
 *   p2p         keys and values go around the ranks (loong_ring_attention);
 *   a2a+p2p     neighbours exchange heads, and what they have together is what
 *               one rank of a ring has: chunks r a .. r a + a - 1 and their
 *               mirror images are the two chunks of rank r of a ring of n / a.
 * The last three are one: groups CP_A2A and CP_P2P of which one may be a single
 * rank. Positions have entered q and k before. Called by nn.c and latent.c.
 * Read context_attention.h before. */
#include "context_attention.h"

#include "loong/collective.h"
#include "loong/op.h"

static int size_of(const loong_nn_t *nn, loong_group_t group)
{
    return loong_mesh_group_size(loong_graph_mesh(nn->graph), group);
}

static int rank_of(const loong_nn_t *nn, loong_group_t group)
{
    return loong_mesh_group_rank(loong_graph_mesh(nn->graph), group);
}

/* Where the rows of each rank of the ring stand among all, rank after rank. */
static loong_val_t places(loong_nn_t *nn, int64_t rows)
{
    return loong_graph_input(nn->graph, "places", LOONG_I32,
                             loong_shape_1d(rows *
                                            size_of(nn, LOONG_GROUP_CP_P2P)));
}

static int64_t value_width(const loong_attention_attr_t *attr)
{
    int each = attr->v_head_dim > 0 ? attr->v_head_dim : attr->head_dim;
    return (int64_t)attr->kv_heads * each;
}

/* Attention whose values may be channels of its keys. */
static loong_val_t attend(loong_graph_t *g,
                          const loong_attention_operands_t *operands,
                          const loong_attention_attr_t *attr)
{
    loong_attention_operands_t x = *operands;
    if (x.v == LOONG_NONE) {
        x.v = loong_slice(g, x.k, 0, value_width(attr));
    }
    return loong_attention(g, &x, attr);
}

static loong_val_t gathered(loong_nn_t *nn,
                            const loong_attention_operands_t *operands,
                            const loong_attention_attr_t *attr)
{
    loong_graph_t *g = nn->graph;
    loong_attention_operands_t x = *operands;
    loong_val_t both[2] = {x.k, x.v};
    int64_t queries = loong_value_shape(g, x.q).dim[0];
    int64_t width = loong_value_shape(g, x.k).dim[1];
    loong_val_t all =
        x.v == LOONG_NONE ? x.k
                          : loong_value_moved(g, loong_concat(g, 2, both));
    all = loong_all_gather(g, all, LOONG_GROUP_CP);
    all = loong_zigzag(g, all, size_of(nn, LOONG_GROUP_CP), nn->seq_length,
                       false);
    x.k = x.v == LOONG_NONE ? all : loong_slice(g, all, 0, width);
    x.v = x.v == LOONG_NONE
              ? LOONG_NONE
              : loong_slice(g, all, width, value_width(attr));
    x.rows = loong_slice(g, places(nn, queries),
                         rank_of(nn, LOONG_GROUP_CP) * queries, queries);
    return attend(g, &x, attr);
}

/* ---- a2a and p2p --------------------------------------------------------- */

/* The rows of the neighbours one below the other, to the order of the samples
 * or back from it. */
static loong_val_t in_order(loong_nn_t *nn, loong_val_t x, bool inverse)
{
    int a2a = size_of(nn, LOONG_GROUP_CP_A2A);
    int64_t length = nn->seq_length / size_of(nn, LOONG_GROUP_CP_P2P);
    return a2a > 1 && nn->seq_length > 0
               ? loong_zigzag(nn->graph, x, a2a, length, inverse)
               : x;
}

/* All rows of this rank's share of the heads. */
static loong_val_t own_heads(loong_nn_t *nn, loong_val_t x)
{
    return in_order(nn,
                    loong_all_to_all_rows(nn->graph, x, LOONG_GROUP_CP_A2A),
                    false);
}

static int common_divisor(int a, int b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* Key heads that stand for fewer query heads each: so many times as the ranks
 * need to have equal shares. */
static loong_val_t own_keys(loong_nn_t *nn, loong_val_t x, int head_dim,
                            int times)
{
    return own_heads(nn, loong_repeat_heads(nn->graph, x, head_dim, times));
}

static loong_val_t exchanged(loong_nn_t *nn,
                             const loong_attention_operands_t *operands,
                             const loong_attention_attr_t *attr)
{
    loong_graph_t *g = nn->graph;
    int a2a = size_of(nn, LOONG_GROUP_CP_A2A);
    int times = a2a / common_divisor(attr->kv_heads, a2a);
    int64_t rows = loong_value_shape(g, operands->q).dim[0] * a2a;
    loong_attention_operands_t x = *operands;
    loong_attention_attr_t own = *attr;
    own.heads = attr->heads / a2a;
    own.kv_heads = attr->kv_heads * times / a2a;
    own.first_head += rank_of(nn, LOONG_GROUP_CP_A2A) * own.heads;
    x.q = own_heads(nn, x.q);
    x.k = own_keys(nn, x.k, attr->head_dim, times);
    if (x.v != LOONG_NONE) {
        x.v = own_keys(nn, x.v, (int)(value_width(attr) / attr->kv_heads),
                       times);
    }
    if (x.token_key != LOONG_NONE) {
        x.token_key = loong_graph_input(g, "all_token_keys", LOONG_I64,
                                        loong_shape_1d(rows));
    }
    loong_val_t o =
        size_of(nn, LOONG_GROUP_CP_P2P) > 1
            ? loong_ring_attention(g, &x, places(nn, rows),
                                   LOONG_GROUP_CP_P2P, &own)
            : attend(g, &x, &own);
    return loong_all_to_all_columns(g, in_order(nn, o, true),
                                    LOONG_GROUP_CP_A2A);
}

loong_val_t
loongi_context_attention(loong_nn_t *nn,
                         const loong_attention_operands_t *operands,
                         const loong_attention_attr_t *attr)
{
    if (size_of(nn, LOONG_GROUP_CP) == 1) {
        return attend(nn->graph, operands, attr);
    }
    return nn->cp_comm == LOONG_CP_ALL_GATHER ? gathered(nn, operands, attr)
                                              : exchanged(nn, operands, attr);
}
