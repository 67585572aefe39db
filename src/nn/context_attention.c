/* SPDX-License-Identifier: Apache-2.0
 *
 * Each rank of CP has its rows of every sample (zigzag.h). Three ways to bring
 * queries and keys together:
 *   all_gather  keys and values of all ranks come to each, whose queries know
 *               their place among them;
 *   a2a         every rank gives its rows away and gets all rows of its share
 *               of the heads (Jacobs et al. 2023), and back behind attention.
 *   p2p         keys and values go around the ranks (loong_ring_attention).
 * Positions have entered q and k before. */
#include "context_attention.h"

#include "loong/collective.h"

static int ranks_of(const loong_nn_t *nn)
{
    return loong_mesh_group_size(loong_graph_mesh(nn->graph),
                                 LOONG_GROUP_CP);
}

static int rank_of(const loong_nn_t *nn)
{
    return loong_mesh_group_rank(loong_graph_mesh(nn->graph),
                                 LOONG_GROUP_CP);
}

/* Where the rows of each rank stand among all, rank after rank. */
static loong_val_t places(loong_nn_t *nn, int64_t rows)
{
    return loong_graph_input(nn->graph, "places", LOONG_I32,
                             loong_shape_1d(rows * ranks_of(nn)));
}

/* The rows of all ranks, one below the other, in the order of the samples. */
static loong_val_t in_order(loong_nn_t *nn, loong_val_t x)
{
    return loong_zigzag(nn->graph, x, ranks_of(nn), nn->seq_length, false);
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
    loong_val_t all = loong_all_gather(g, loong_concat(g, 2, both),
                                       LOONG_GROUP_CP);
    all = in_order(nn, all);
    x.k = loong_slice(g, all, 0, width);
    x.v = loong_slice(g, all, width, width);
    x.rows = loong_slice(g, places(nn, queries), rank_of(nn) * queries,
                         queries);
    return loong_attention(g, &x, attr);
}

/* All rows of this rank's share of the heads. */
static loong_val_t own_heads(loong_nn_t *nn, loong_val_t x)
{
    return in_order(nn, loong_all_to_all_rows(nn->graph, x, LOONG_GROUP_CP));
}

static loong_val_t exchanged(loong_nn_t *nn,
                             const loong_attention_operands_t *operands,
                             const loong_attention_attr_t *attr)
{
    loong_graph_t *g = nn->graph;
    int ranks = ranks_of(nn);
    int64_t rows = loong_value_shape(g, operands->q).dim[0] * ranks;
    loong_attention_operands_t x = *operands;
    loong_attention_attr_t own = *attr;
    own.heads = attr->heads / ranks;
    own.kv_heads = attr->kv_heads / ranks;
    own.first_head = attr->first_head + rank_of(nn) * own.heads;
    x.q = own_heads(nn, x.q);
    x.k = own_heads(nn, x.k);
    x.v = own_heads(nn, x.v);
    if (x.token_key != LOONG_NONE) {
        x.token_key = loong_graph_input(g, "all_token_keys", LOONG_I64,
                                        loong_shape_1d(rows));
    }
    loong_val_t o = loong_attention(g, &x, &own);
    o = loong_zigzag(g, o, ranks, nn->seq_length, true);
    return loong_all_to_all_columns(g, o, LOONG_GROUP_CP);
}

loong_val_t
loongi_context_attention(loong_nn_t *nn,
                         const loong_attention_operands_t *operands,
                         const loong_attention_attr_t *attr)
{
    if (ranks_of(nn) == 1) {
        return loong_attention(nn->graph, operands, attr);
    }
    switch (nn->cp_comm) {
    case LOONG_CP_A2A:
        return exchanged(nn, operands, attr);
    case LOONG_CP_P2P:
        return loong_ring_attention(
            nn->graph, operands,
            places(nn, loong_value_shape(nn->graph, operands->q).dim[0]),
            LOONG_GROUP_CP, attr);
    case LOONG_CP_ALL_GATHER:
        break;
    }
    return gathered(nn, operands, attr);
}
