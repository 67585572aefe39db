/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts of components that others read. Called while a model is planned.
 * Read parallel.h and src/component/model.h before. */
#include "upstream.h"

#include <stdio.h>
#include <string.h>

#include "cell.h"
#include "component_params.h"

static bool is_upstream(const loong_plan_t *plan,
                        const loong_component_params_t *p)
{
    return p->family != plan->parallel.family;
}

/* Do replicas of components that others read compute at different times? */
static bool is_apart(const loong_component_params_t *last)
{
    const loong_join_kind_t *join =
        last->join != NULL ? loongi_join_kind(last->join) : NULL;
    return join != NULL && join->apart;
}

static loong_status_t layout_of(const loong_plan_t *plan,
                                const loong_component_params_t *p,
                                const loong_extent_t *extent,
                                loong_parallel_t *layout_p)
{
    loong_parallel_t layout = plan->parallel;
    layout.component = p->name;
    layout.family = p->family;
    layout.config = p->config;
    layout.extent = *extent;
    *layout_p = layout;
    return loongi_parallel_ranks(layout_p, p->name);
}

loong_status_t loongi_upstream_place(const loong_plan_t *plan, int job_rank,
                                     loong_component_params_t *params)
{
    loong_parallel_t layout = plan->parallel;
    if (is_upstream(plan, params)) {
        static const loong_extent_t any = {1, 1, 1};
        LOONG_TRY(layout_of(plan, params, &any, &layout));
    }
    params->ranks = layout.on;
    return loongi_parallel_place(&layout, job_rank, &params->mesh,
                                 &params->absent);
}

/* Blocks of merge x merge patches become rows: they fill pictures, and the
 * windows of these. */
static loong_status_t check_merge(const loong_plan_t *plan,
                                  const loong_picture_plan_t *p,
                                  const loong_component_params_t *encoder,
                                  const loong_model_facts_t *facts)
{
    long long merge = p->merge;
    long long block = facts->patch_size * merge;
    LOONG_CHECK(plan->ctx, facts->window_size % block == 0, LOONG_ERR_CONFIG,
                "model.%s.window_size: found %lld, multiples of patch_size "
                "%lld x merge_size %lld of the projector are windows",
                encoder->name, (long long)facts->window_size,
                (long long)facts->patch_size, merge);
    LOONG_CHECK(plan->ctx,
                facts->image_size / facts->patch_size % merge == 0,
                LOONG_ERR_CONFIG,
                "model.%s.image_size: found %lld, multiples of patch_size "
                "%lld x merge_size %lld of the projector are sides",
                encoder->name, (long long)facts->image_size,
                (long long)facts->patch_size, merge);
    LOONG_CHECK(plan->ctx, merge == 1 || !facts->sends_class_token,
                LOONG_ERR_CONFIG,
                "model.%s.select_class_token: it goes with merge_size 1 of the "
                "projector, found %lld",
                encoder->name, merge);
    return LOONG_OK;
}

/* Tiles of one size become lines of patches. */
static loong_status_t check_packing(const loong_plan_t *plan,
                                    const loong_picture_plan_t *p,
                                    const loong_component_params_t *encoder,
                                    const loong_model_facts_t *facts)
{
    LOONG_CHECK(plan->ctx,
                p->packed_tiles == 0 ||
                    (facts->image_size > 0 && !facts->sends_class_token &&
                     facts->window_size == 0),
                LOONG_ERR_CONFIG,
                "model: packed_tiles: found %lld; it goes with an encoder of "
                "image_size above 0, without windows and select_class_token, "
                "%s of family %s is another",
                (long long)p->packed_tiles, encoder->name,
                encoder->family->name);
    return LOONG_OK;
}

/* Room for rows of pictures that are no more than the texts which they stand in
 * have rows for: whole blocks, or whole tiles. */
static loong_status_t read_room(const loong_plan_t *plan,
                                const loong_room_t *room, int64_t patches,
                                loong_picture_plan_t *p)
{
    int64_t block = p->merge * p->merge;
    int64_t unit = block * LOONG_MAX(p->merge_frames, 1);
    int64_t text = plan->set->micro_batch_size * plan->set->seq_length;
    int64_t asked = room->patches > 0
                        ? room->patches
                        : plan->set->micro_batch_size * plan->set->row_patches;
    if (p->each == 0) {
        int64_t most = unit * text + p->skip * p->most * LOONG_MAX(p->tiles, 1);
        LOONG_CHECK(plan->ctx, asked > 0 || p->latents == 0, LOONG_ERR_CONFIG,
                    "%s is missing: pictures of sizes of their own have any "
                    "number of patches where each takes %lld rows of a text",
                    room->patches_key, (long long)p->latents);
        p->rows = loongi_round_up(asked > 0 ? asked : most, block);
        p->longest = plan->set->max_image_patches > 0
                         ? LOONG_MIN(plan->set->max_image_patches + p->skip,
                                     p->rows)
                         : p->rows;
        return LOONG_OK;
    }
    int64_t tiles = asked > 0         ? asked / p->each
                    : p->latents > 0 ? text / p->latents
                                     : unit * text / patches;
    if (asked == 0 && p->packed_tiles > 0) { /* one of which all has its rows */
        tiles *= p->tiles;
    }
    p->longest = p->tiles * p->each;
    p->rows = LOONG_MIN(tiles, p->most * p->tiles) * p->each;
    LOONG_CHECK(plan->ctx, tiles > 0, LOONG_ERR_CONFIG,
                "%s: there is room for %lld rows of the image encoder, a tile "
                "has %lld",
                asked > 0 ? room->patches_key : "data.seq_length",
                (long long)(asked > 0 ? asked : unit * text),
                (long long)p->each);
    return LOONG_OK;
}

/* Of those of a micro-batch of texts, what one of the encoder has room for. */
static int64_t part_of(const loong_plan_t *plan,
                       const loong_picture_plan_t *p, int64_t room)
{
    int64_t texts = plan->set->micro_batch_size;
    int64_t samples = LOONG_MIN(p->samples, texts);
    return (room * samples + texts - 1) / texts;
}

/* The samples of a micro-batch of the encoder, and its room. */
static loong_status_t read_samples(const loong_plan_t *plan,
                                   const loong_component_params_t *encoder,
                                   loong_picture_plan_t *p)
{
    int64_t texts = plan->set->micro_batch_size;
    const char *key = loong_recipe_own_path(plan->recipe, encoder->name,
                                            "train.micro_batch_size");
    p->samples = loong_recipe_int(plan->recipe, key);
    LOONG_CHECK(plan->ctx,
                p->samples % texts == 0 || texts % p->samples == 0,
                LOONG_ERR_CONFIG,
                "%s: %s: found %lld; multiples and parts of "
                "train.micro_batch_size %lld are there",
                loong_recipe_where(plan->recipe, key), key,
                (long long)p->samples, (long long)texts);
    p->texts = LOONG_MAX(p->samples / texts, 1);
    p->text_most = LOONG_MAX(part_of(plan, p, p->most), p->tiles);
    p->text_rows =
        p->each > 0
            ? LOONG_MAX(part_of(plan, p, p->rows / p->each), p->tiles) * p->each
            : loongi_round_up(part_of(plan, p, p->rows), p->merge * p->merge);
    p->longest = LOONG_MIN(p->longest, p->text_rows);
    return LOONG_OK;
}

/* Where the rows of a picture are, and how many there can be. */
static loong_status_t read_pictures(loong_plan_t *plan, int number,
                                    const loong_component_params_t *encoder,
                                    bool apart)
{
    loong_picture_plan_t *p = &plan->pictures[number];
    const loong_room_t room = loongi_settings_room(plan->set, number);
    const loong_recipe_t *r = plan->recipe;
    loong_model_facts_t facts = {0};
    encoder->family->facts(encoder->config, &facts);
    p->skip = facts.class_token && !facts.sends_class_token ? 1 : 0;
    p->native = facts.image_size == 0 || p->tiles > 1;
    LOONG_TRY(check_merge(plan, p, encoder, &facts));
    LOONG_TRY(check_packing(plan, p, encoder, &facts));
    p->most =
        room.images > 0
            ? room.images
            : plan->set->micro_batch_size * LOONG_MAX(plan->set->row_images, 1);
    int64_t side = facts.image_size / facts.patch_size;
    p->side = side;
    p->each = side > 0 ? side * side + (facts.class_token ? 1 : 0) : 0;
    p->whole = p->each == 0 || apart;
    LOONG_CHECK(plan->ctx, p->each == 0 || plan->set->max_image_patches == 0,
                LOONG_ERR_CONFIG,
                "%s: data.max_image_patches: pictures and tiles of family %s "
                "are all of one size",
                loong_recipe_where(r, "data.max_image_patches"),
                encoder->family->name);
    if (p->native) {
        LOONG_TRY(read_room(plan, &room, side * side, p));
    } else {
        p->longest = p->each;
        p->rows = p->most * p->longest;
        LOONG_CHECK(plan->ctx, room.patches == 0, LOONG_ERR_CONFIG,
                    "%s: %s: pictures of family %s are all of one size: %s "
                    "says how many there is room for",
                    loong_recipe_where(r, room.patches_key), room.patches_key,
                    encoder->family->name, room.images_key);
    }
    return read_samples(plan, encoder, p);
}

/* ---- joins whose replicas compute apart ---------------------------------- */

/* The stage of the last component that a rank of the cell is of; -1: none. */
static int stage_of(const loong_cell_ranks_t *cell,
                    const loong_component_params_t *last, int component,
                    int32_t rank)
{
    const loong_component_place_t *place = &cell->component[component];
    int stages = last->mesh.size[LOONG_AXIS_PP];
    int i = 0;
    while (i < place->pipelines * stages && place->rank[i] != rank) {
        i++;
    }
    return i < place->pipelines * stages ? i % stages : -1;
}

loong_status_t loongi_upstream_apart(const loong_plan_t *plan, int count,
                                     const loong_component_params_t *params,
                                     const loong_cell_ranks_t *cell,
                                     const char *join)
{
    static const char sharding[] = "parallel.data_parallel_sharding";
    static const char rampup[] = "train.rampup_batch_size";
    const loong_component_params_t *last = &params[count - 1];
    LOONG_CHECK(plan->ctx, last->shards.sharding < LOONG_SHARDING_GRADS,
                LOONG_ERR_CONFIG,
                "%s: %s: found %s: replicas of %s meet in every micro-batch, "
                "which with join %s they compute at different times; none and "
                "optim are there, or another join",
                loong_recipe_where(plan->recipe, sharding), sharding,
                loongi_sharding_name(last->shards.sharding), params[0].name,
                join);
    LOONG_CHECK(plan->ctx, plan->set->rampup.start == 0, LOONG_ERR_CONFIG,
                "%s: %s: join %s places the micro-batches of all steps alike; "
                "without a ramp-up, or another join",
                loong_recipe_where(plan->recipe, rampup), rampup, join);
    for (int c = 0; c < count - 1; c++) {
        const loong_component_place_t *place = &cell->component[c];
        int ranks = loongi_replica_ranks(&params[c]);
        int stages = params[c].mesh.size[LOONG_AXIS_PP];
        loong_model_facts_t facts = {0};
        params[c].family->facts(params[c].config, &facts);
        LOONG_CHECK(plan->ctx, facts.num_experts == 0, LOONG_ERR_CONFIG,
                    "model.%s: %d experts, whose ranks meet in every "
                    "micro-batch, which with join %s compute at different "
                    "times; another join is there",
                    params[c].name, facts.num_experts, join);
        for (int i = 0; i < place->pipelines * stages; i++) {
            int pipeline = i / stages / ranks * ranks; /* the replica's first */
            int32_t first = place->rank[pipeline * stages + i % stages];
            LOONG_CHECK(
                plan->ctx,
                stage_of(cell, last, count - 1, place->rank[i]) ==
                    stage_of(cell, last, count - 1, first),
                LOONG_ERR_CONFIG,
                "model.%s.parallel: found %d ranks (tensor and context "
                "parallel) that share its layers and are of several stages of "
                "%s, which with join %s compute at different times; sizes "
                "whose product divides its tensor x context parallel ranks, "
                "%d, are there, or another join",
                params[c].name, ranks, last->name, join,
                loongi_replica_ranks(last));
        }
    }
    return LOONG_OK;
}

/* ---- extents ------------------------------------------------------------- */

/* What becomes of rows of patches on their way. */
static void read_merges(int count, const loong_component_params_t *params,
                        loong_picture_plan_t *p)
{
    p->merge = p->inner = 1;
    for (int i = 0; i < count; i++) {
        loong_model_facts_t facts = {0};
        params[i].family->facts(params[i].config, &facts);
        int64_t own = LOONG_MAX(facts.merge_size, 1);
        p->merge *= own;
        p->inner *= facts.patch_size > 0 ? own : 1;
        p->packed_tiles = LOONG_MAX(p->packed_tiles, facts.packed_tiles);
        p->latents = LOONG_MAX(p->latents, facts.latents);
        p->merge_frames = LOONG_MAX(p->merge_frames, facts.merge_frames);
    }
}

/* What a projector makes at most: as many of each picture, or of a tile each of
 * its lines and a learned row behind it. */
static int64_t packed_rows(const loong_picture_plan_t *pictures,
                           const loong_component_params_t *p,
                           const loong_extent_t *extent)
{
    loong_model_facts_t facts = {0};
    int64_t side = pictures->side;
    p->family->facts(p->config, &facts);
    int64_t rows = facts.latents > 0 ? extent->segments * facts.latents
                   : facts.merge_frames > 0 /* all may be of pictures */
                       ? extent->rows / (facts.merge_size * facts.merge_size)
                   : facts.packed_tiles > 0
                       ? extent->rows / side * (side + 1)
                       : 0;
    return loongi_round_up(rows, p->mesh.size[LOONG_AXIS_TP]);
}

/* What one of so many replicas of a component has in a micro-batch, where there
 * are `texts` of those of texts in the cell. Tiles are dealt by whole pictures,
 * so that
 * one may be had beside an even share; where all have sizes of their own, the
 * pictures of a text's micro-batch are one replica's. */
static loong_extent_t extent_of(const loong_picture_plan_t *p, bool encoder,
                                int64_t texts, int64_t replicas)
{
    enum { PADDING = LOONG_PADDING_ROWS };
    int64_t pictures = p->text_most * texts;
    int64_t rows = p->text_rows * texts;
    int64_t share = (texts + replicas - 1) / replicas;
    if (p->each > 0) {
        int64_t own = (rows / p->each + replicas - 1) / replicas;
        int64_t each = encoder ? p->each : p->each - p->skip;
        own += p->tiles > 1 && replicas > 1 ? p->tiles : 0;
        own = p->whole ? p->text_rows / p->each * share : own;
        return (loong_extent_t){own * each, each, own};
    }
    rows = p->text_rows * share;
    rows /= encoder ? 1 : p->inner * p->inner;
    return (loong_extent_t){rows,
                            LOONG_MAX(p->longest, LOONG_MIN(rows, PADDING)),
                            pictures * LOONG_MAX(p->tiles, 1) +
                                rows / PADDING};
}

/* Which programs a rank has run, and captures, depends on the pictures that it
 * had; those with collectives are captured on all of their ranks or on none. */
static loong_status_t settle_graphs(const loong_plan_t *plan,
                                    loong_component_params_t *last)
{
    loong_resources_params_t *r = &last->resources;
    int ranks = plan->parallel.ranks;
    if (!r->graphs || ranks == 1) {
        return LOONG_OK;
    }
    LOONG_CHECK(plan->ctx, r->graphs_go_on, LOONG_ERR_UNSUPPORTED,
                "%s: train.cuda_graph_impl: local on %d ranks, which have "
                "pictures in different micro-batches; one rank may, auto and "
                "none go step by step",
                loong_recipe_where(plan->recipe, "train.cuda_graph_impl"),
                ranks);
    if (loong_comm_rank(plan->comm) == 0) {
        loongi_log(plan->ctx, LOONG_LOG_WARN,
                   "train.cuda_graph_impl: auto: %d ranks have pictures in "
                   "different micro-batches: programs run step by step",
                   ranks);
    }
    r->graphs = false;
    return LOONG_OK;
}

/* As the component with the loss has it, but the layout. */
static void copy_settings(loong_component_params_t *p,
                          const loong_component_params_t *last)
{
    loong_component_params_t own = *p;
    *p = *last;
    p->name = own.name;
    p->init = own.init;
    p->family = own.family;
    p->config = own.config;
    p->mesh = own.mesh;
    p->ranks = own.ranks;
    p->absent = own.absent;
    memset(&p->request, 0, sizeof(p->request));
    p->request.rules = own.request.rules;
    p->request.deep_features = own.request.deep_features;
    p->request.encoder = own.request.encoder;
    p->logits_rows = 0;
    p->layers_per_chunk = 0;
    p->layout = NULL;
    p->schedule = p->mesh.size[LOONG_AXIS_PP] > 1 ? "gpipe" : "auto";
    p->pair = false;
    p->shared_globs[LOONG_GLOBS_WATCH] = true;
}

/* Where components compute in different types, their edges carry the wide
 * one, which all have. */
static loong_status_t match_types(const loong_plan_t *plan, int count,
                                  loong_component_params_t *params)
{
    const loong_component_params_t *last = &params[count - 1];
    bool wide = false;
    for (int i = 0; i < count; i++) {
        const loong_precision_t *own = &params[i].precision;
        LOONG_CHECK(plan->ctx, own->wide == last->precision.wide,
                    LOONG_ERR_CONFIG,
                    "model.%s.precision.params_dtype: found %s, %s has %s; "
                    "fp64 goes with fp64 alone",
                    params[i].name, loong_dtype_name(own->compute), last->name,
                    loong_dtype_name(last->precision.compute));
        wide = wide || own->compute != last->precision.compute ||
               params[i].compile.num_wide > 0;
    }
    for (int i = 0; i < count; i++) {
        params[i].compile.wide_edges = wide;
    }
    return LOONG_OK;
}

static loong_status_t complete(const loong_plan_t *plan, loong_arena_t *arena,
                               const loong_picture_plan_t *pictures,
                               const loong_component_params_t *last,
                               const loong_extent_t *extent,
                               loong_component_params_t *p)
{
    loong_parallel_t layout;
    LOONG_TRY(layout_of(plan, p, extent, &layout));
    copy_settings(p, last);
    p->micro_batch_size = pictures->samples;
    p->layers_per_chunk = loongi_parallel_own(
        &layout, "num_layers_per_virtual_pipeline_stage");
    LOONG_TRY(loongi_component_own(plan, arena, p));
    loongi_parallel_request(&layout, &p->mesh, &p->request);
    p->request.packed_rows = packed_rows(pictures, p, extent);
    loong_status_t status = loongi_parallel_accepts(&layout);
    if (status != LOONG_OK) {
        loongi_error_note(plan->ctx, "wanted by model.%s.parallel", p->name);
    }
    return status;
}

/* What the recipe says of an encoder that is not there. */
static loong_status_t check_rooms(const loong_plan_t *plan, int encoders)
{
    const loong_room_t room = loongi_settings_room(plan->set, 1);
    const char *key = room.images > 0 ? room.images_key : room.patches_key;
    LOONG_CHECK(plan->ctx,
                encoders > 1 || (room.images == 0 && room.patches == 0),
                LOONG_ERR_CONFIG,
                "%s: %s: is of a video_encoder beside an image_encoder; of one "
                "encoder data.max_images and data.max_patches are there",
                loong_recipe_where(plan->recipe, key), key);
    return LOONG_OK;
}

loong_status_t loongi_upstream_params(loong_plan_t *plan, loong_arena_t *arena,
                                      int count,
                                      loong_component_params_t *params)
{
    const loong_component_params_t *last = &params[count - 1];
    loong_cell_ranks_t place;
    LOONG_TRY(check_rooms(plan, count / 2));
    if (count == 1) {
        return LOONG_OK;
    }
    plan->num_encoders = count / 2;
    for (int i = 0; i < plan->num_encoders; i++) {
        read_merges(2, &params[2 * i], &plan->pictures[i]);
        LOONG_TRY(read_pictures(plan, i, &params[2 * i], is_apart(last)));
    }
    for (int i = 0; i < count - 1; i++) {
        LOONG_TRY(loongi_upstream_place(plan, loong_comm_rank(plan->comm),
                                        &params[i]));
    }
    LOONG_TRY(settle_graphs(plan, &params[count - 1]));
    LOONG_TRY(loongi_cell_ranks_find(plan->ctx, arena, count, params, &place));
    for (int i = 0; i < count - 1; i++) {
        bool encoder = i % 2 == 0;
        loong_picture_plan_t *p = &plan->pictures[i / 2];
        int64_t texts = p->texts * place.component[count - 1].replicas;
        loong_extent_t extent =
            extent_of(p, encoder, texts, place.component[i].replicas);
        if (encoder) {
            p->encoder =
                p->native ? p->text_most * texts : extent.segments;
        }
        LOONG_TRY(complete(plan, arena, p, last, &extent, &params[i]));
        bool turns = p->whole && texts < place.component[i].replicas;
        params[i].turn = turns ? (int)texts : 0;
    }
    if (is_apart(last)) {
        LOONG_TRY(loongi_upstream_apart(plan, count, params, &place,
                                        last->join));
    }
    return match_types(plan, count, params);
}
