/* SPDX-License-Identifier: Apache-2.0
 *
 * What builders tell tensor logging; pass/label.c reads it. Read graph_impl.h
 * before. */
#include "graph_impl.h"

loong_val_t loong_value_moved(loong_graph_t *g, loong_val_t v)
{
    if (v >= 0) {
        g->values[v].logged.moved = true;
    }
    return v;
}

loong_val_t loong_value_instead(loong_graph_t *g, loong_val_t v,
                                loong_val_t part)
{
    if (v >= 0 && part >= 0) {
        g->values[v].logged.instead = part + 1;
    }
    return v;
}

loong_val_t loong_value_continues(loong_graph_t *g, loong_val_t v)
{
    if (v >= 0) {
        g->values[v].logged.continues = true;
    }
    return v;
}

loong_val_t loong_value_apart(loong_graph_t *g, loong_val_t v,
                              loong_group_t group)
{
    if (v >= 0) {
        g->values[v].logged.apart = loong_same_group(group);
    }
    return v;
}

uint32_t loong_same_group(loong_group_t group)
{
    switch (group) {
    case LOONG_GROUP_TP:
        return LOONG_SAME_TP | LOONG_SAME_KV;
    case LOONG_GROUP_KV:
        return LOONG_SAME_KV;
    case LOONG_GROUP_CP:
    case LOONG_GROUP_CP_A2A:
    case LOONG_GROUP_CP_P2P:
    case LOONG_GROUP_DP_CP:
        return LOONG_SAME_CP;
    case LOONG_GROUP_ETP:
        return LOONG_SAME_ETP;
    case LOONG_GROUP_ETP_EP:
        return LOONG_SAME_ETP | LOONG_SAME_EP;
    case LOONG_GROUP_WORLD:
    case LOONG_GROUP_DP:
    case LOONG_GROUP_PP:
    case LOONG_GROUP_EDP:
    case LOONG_GROUP_TIE:
    case LOONG_GROUP_TIE_2:
    case LOONG_GROUP_TIE_3:
    case LOONG_GROUP_TIE_4:
    case LOONG_GROUP_COUNT:
        break;
    }
    return 0;
}
