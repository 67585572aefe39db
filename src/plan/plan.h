/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of a run: layout, device and component of this rank, what the other
 * ranks of its pipeline hold, what all of it takes. Nothing of it is allocated
 * yet. */
#ifndef LOONG_PLAN_H
#define LOONG_PLAN_H

#include "loong/processor.h"
#include "metrics.h"
#include "model.h"
#include "parallel.h"
#include "schedule.h"
#include "settings.h"

#ifdef __cplusplus
extern "C" {
#endif

/* See timeline.h. */
typedef struct loong_timeline {
    loong_stage_cost_t *costs; /* of the cell's stages; NULL: not known */
    loong_span_t *own; /* of this rank's entries, last step; NULL: not kept */
    int64_t room;      /* entries of any rank of the cell, at most */
    double start;
} loong_timeline_t;

/* What makes the data inputs of a component. */
typedef struct loong_reader {
    const loong_processor_t *processor; /* NULL: it has none */
    const void *config;                 /* borrowed */
    int64_t rows; /* samples, or pictures, of a micro-batch */
} loong_reader_t;

/* Pictures that one encoder has of a model that reads texts with pictures. */
typedef struct loong_picture_plan {
    int64_t most; /* of a micro-batch of texts; 0: there are none */
    /* Rows of the encoder: for those; of the largest picture; of one or its
     * tiles where all are equal, else 0; of each in front of those that others
     * read. */
    int64_t rows, longest, each, skip;
    /* Samples whose pictures a micro-batch of the encoder has: of so many
     * micro-batches of texts, or of a part of one, and what there is room for
     * in each. */
    int64_t samples, texts, text_most, text_rows;
    /* Of a picture, or moments of a video, at most, set before; 0: 1. */
    int64_t tiles;
    /* m: m x m rows become one row of a text; n: of which n x n do in the
     * encoder. */
    int64_t merge, inner;
    /* As loong_model_facts_t has them. */
    int64_t packed_tiles, latents, merge_frames;
    int64_t side;         /* patches of one of each's rows */
    bool native;     /* pictures have numbers of rows of their own */
    bool whole;      /* those of a text's micro-batch go to one replica */
    int64_t encoder; /* pictures of a micro-batch of a replica of the encoder */
} loong_picture_plan_t;

/* What is borrowed outlives the plan. */
typedef struct loong_plan {
    loong_context_t *ctx;              /* borrowed */
    loong_comm_t *comm;                /* world; borrowed */
    loong_recipe_t *recipe;            /* borrowed */
    const loong_train_settings_t *set; /* borrowed */
    bool evaluate_only;
    bool plan_only;            /* nothing will run */
    bool unknown_model; /* it could not be read: what follows is not judged */
    bool judge;                /* a plan for this machine and what is on it */
    bool reads_data;           /* a run, or a plan whose data is here */
    bool decode;               /* and every picture is decoded */
    loong_parallel_t parallel; /* that the recipe asks for */
    loong_mesh_t mesh; /* of the component with the loss, seen by this rank */
    bool absent; /* which is none of its ranks: as the first one sees it */
    struct { /* set by plan_shares.c */
        const int64_t *weights; /* of data-parallel ranks; NULL: equal ones */
        const int64_t *nanoseconds; /* of each's micro-batch; NULL: unknown */
        int64_t *of; /* room for what each has of a step */
    } shares;
    const char *auto_kind; /* the processor's, where device: auto is that */
    loong_device_t *device;                       /* opened by devices.c */
    loong_component_t *component;                 /* of this rank; borrowed */
    int num_pipelines;                            /* see stage_plans.h */
    int num_stage_plans;
    loong_component_t **stage_plans;              /* NULL: not planned */
    loong_reader_t readers[LOONG_MAX_COMPONENTS]; /* of the model's */
    /* Of each encoder; components 2 e and 2 e + 1 are encoder e and its
     * projector. */
    loong_picture_plan_t pictures[LOONG_MAX_ENCODERS];
    int num_encoders; /* of a model that reads texts with pictures, else 0 */
    loong_picture_reader_t picture_reader; /* set when data is opened */
    struct {
        int64_t rank;    /* bytes that this rank needs */
        int64_t machine; /* and all that share its memory */
        int ranks;       /* so many */
        loong_memory_available_t available;
    } memory;
    loong_timeline_t timeline;
    loong_text_t text; /* that was told of it last */
} loong_plan_t;

/* Of the encoder that a component is, or reads. */
static inline const loong_picture_plan_t *
loongi_plan_pictures(const loong_plan_t *plan, int component)
{
    return &plan->pictures[component / 2];
}

/* Has it rows of pictures alone? */
static inline bool loongi_plan_is_upstream(const loong_plan_t *plan,
                                           int component)
{
    return component < 2 * plan->num_encoders;
}

/* Of the component with the loss; NULL: it could not be planned. */
static inline const loong_reader_t *loongi_plan_reader(const loong_plan_t *plan)
{
    const loong_component_t *c = plan->component;
    return c != NULL && plan->readers[c->index].processor != NULL
               ? &plan->readers[c->index]
               : NULL;
}

#ifdef __cplusplus
}
#endif

#endif
