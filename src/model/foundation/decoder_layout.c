/* SPDX-License-Identifier: Apache-2.0
 *
 * Which meshes a decoder can be laid out on. */
#include "decoder.h"
#include "problems.h"

static void want_share(loong_problems_t *problems, const char *what,
                       int64_t size, int tp)
{
    if (size < tp) {
        loongi_problems_add(problems,
                            "tensor_model_parallel_size %d: %s is %lld, each "
                            "rank needs one", tp, what, (long long)size);
    }
}

/* Context parallel ranks exchange whole heads of a tensor parallel rank. */
static void want_heads(loong_problems_t *problems, const char *what,
                       int64_t heads, const loong_mesh_t *mesh)
{
    int cp = mesh->size[LOONG_AXIS_CP];
    if (heads % cp != 0) {
        loongi_problems_add(problems,
                            "cp_comm_type a2a: %lld %s heads of tensor "
                            "parallel rank %d are no multiple of "
                            "context_parallel_size %d; all_gather wants none",
                            (long long)heads, what,
                            mesh->coord[LOONG_AXIS_TP], cp);
    }
}

loong_status_t loongi_decoder_check_mesh(loong_context_t *ctx,
                                         const void *config,
                                         const loong_model_request_t *request,
                                         const loong_mesh_t *mesh)
{
    const loong_decoder_config_t *c = config;
    int tp = mesh->size[LOONG_AXIS_TP];
    loong_problems_t problems = loongi_problems_begin(ctx);
    want_share(&problems, "num_attention_heads", c->num_attention_heads,
               tp);
    want_share(&problems, "ffn_hidden_size", c->ffn_hidden_size, tp);
    want_share(&problems, "vocab_size", c->vocab_size, tp);
    if (request->sequence_parallel && request->tokens % tp != 0) {
        loongi_problems_add(&problems,
                            "sequence_parallel: %lld tokens of a micro-batch "
                            "are no multiple of tensor_model_parallel_size %d",
                            (long long)request->tokens, tp);
    }
    if (request->cp_comm == LOONG_CP_A2A) {
        loong_nn_heads_t heads = loong_nn_heads(mesh, c->num_attention_heads,
                                                c->num_query_groups);
        want_heads(&problems, "query", heads.q.count, mesh);
        want_heads(&problems, "key", heads.kv.count, mesh);
    }
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG, "parallel");
}
