/* SPDX-License-Identifier: Apache-2.0
 *
 * Published models of several components (transformers: composite
 * configurations), as data: which section of config.json describes which
 * component, and what the names of its tensors begin with. A component's own
 * fields and names are those of its kind (hf_kind.h); a further model of known
 * components is listed in src/model/composite/hf_composites.c. */
#ifndef LOONG_HF_COMPOSITE_H
#define LOONG_HF_COMPOSITE_H

#include "hf_config.h"
#include "hf_config_read.h"
#include "hf_config_write.h"
#include "hf_weights.h"
#include "safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_HF_PARTS = 3, LOONG_HF_PART_LOSS = LOONG_HF_PARTS - 1 };

/* A component of the model. */
typedef struct loong_hf_part {
    const char *role;
    /* Of config.json, where its fields stand; NULL: it has none, and `family`
     * says what it is. */
    const char *section;
    bool flat;        /* files of before sections have its fields at the top */
    const char *type; /* of a section that states none of its own */
    const char *family; /* it must be of; NULL: any of its role's */
    const char *names;  /* hf_names.h; NULL: those of its family */
    /* Keys of every such component that its kind would leave otherwise; ends
     * with a NULL key. NULL: none. */
    const loong_hf_fixed_t *keys;
    /* How the name of a tensor ends without which files do not mean these keys;
     * NULL: they always do. */
    const char *spare;
    /* What fields of the section mean that its class' files always state, and
     * this model's do not; ends with a NULL key. NULL: none. */
    const loong_hf_fixed_t *absent;
} loong_hf_part_t;

/* A field beside those of the components' kinds, at the top or in a section.
 * Its key has the role in front, "image_projector.merge_size"; one of CODE is
 * kept as it is and written again. */
typedef struct loong_hf_shared_field {
    const char *section; /* NULL: the top */
    loong_hf_field_t field;
} loong_hf_shared_field_t;

/* What names in files begin with: those that have the prefix of a base model,
 * by part, and those that have none; NULL: the same. */
typedef struct loong_hf_layout {
    const char *prefix[LOONG_HF_PARTS];
    const char *bare[LOONG_HF_PARTS];
} loong_hf_layout_t;

typedef struct loong_hf_composite {
    const char *model_type;
    const char *architecture;
    loong_hf_part_t parts[LOONG_HF_PARTS]; /* the one with the loss last */
    const loong_hf_shared_field_t *fields; /* ends with a NULL field.name */
    /* First what is written where no file says otherwise, last the names of
     * the modules in transformers, which adapters have. */
    int num_layouts;
    const loong_hf_layout_t *layouts;
    /* The token where pictures stand: its text, and the field of its id. */
    const char *image_token;
    const char *video_token; /* NULL: it reads none */
    const char *image_token_id; /* which no field need be: it is kept */
    /* A type of the last part that its class takes, of which transformers has
     * none alone; NULL: none. */
    const char *takes;
    /* Where the top says tie_word_embeddings false, text_config's true ties. */
    bool text_ties;
    bool foreign; /* transformers has no class for it: directories bring one */
    /* config.json says how pictures are processed, whatever stands beside. */
    bool states_processor;
    /* Fields at the top that name tokens which experts for pictures take
     * (data.vision_token_ids), and their ids where they are not there; ends
     * with a NULL key. NULL: there are no such experts. */
    const loong_hf_fixed_t *vision_ids;
    /* Exports are of this type, whose tensors are called the same; NULL: of its
     * own. */
    const char *written_as;
    /* Another one of the same model_type, and a field of the first part's
     * section that its files have; NULL: there is none. */
    const struct loong_hf_composite *other;
    const char *other_has;
} loong_hf_composite_t;

/* src/model/composite/hf_composites.c; ends with NULL. */
extern const loong_hf_composite_t *const loongi_hf_composites[];

/* NULL: no model of several components. */
const loong_hf_composite_t *loongi_hf_composite_find(const char *model_type);
/* That of a config.json; NULL as well where it has none but the language model,
 * of a type that is such a one's own too. */
const loong_hf_composite_t *
loongi_hf_composite_of_json(const loong_context_t *ctx,
                            const loong_json_t *config);
/* Of DIR/config.json; NULL in it when it is none, or there is none. Errors:
 * those of reading. */
LOONG_NODISCARD loong_status_t
loongi_hf_composite_of(loong_context_t *ctx, const char *dir,
                       const loong_hf_composite_t **composite_p);
/* The id that DIR/config.json gives the token where pictures stand; -1: it does
 * not say. Errors: those of reading. */
LOONG_NODISCARD loong_status_t loongi_hf_composite_image_id(
    loong_context_t *ctx, const loong_hf_composite_t *composite,
    const char *dir, int64_t *id_p);
/* Appends the ids of its vision_ids, as "[1, 4]", nothing without such. Errors:
 * those of reading. */
LOONG_NODISCARD loong_status_t loongi_hf_composite_vision_ids(
    loong_context_t *ctx, const loong_hf_composite_t *composite,
    const char *dir, loong_text_t *ids);
/* Of the directory that `kept` is of; NULL: it is none of several. */
const loong_hf_composite_t *
loongi_hf_composite_kept_type(const loong_pairs_t *kept);
/* The model of components of these families: that of the directory they were
 * read from, as `kept` says, or the first; `as` (NULL: none)
 * asks for that type. NULL: there is none. */
const loong_hf_composite_t *
loongi_hf_composite_of_families(const char *const family[LOONG_HF_PARTS],
                                const loong_pairs_t *kept, const char *as);
/* The part of that role, NULL: the one with the loss; -1: none. */
int loongi_hf_composite_part(const loong_hf_composite_t *composite,
                             const char *role);

/* ---- reading ---- */

/* Turns the reader of a whole file to the fields of a part: its json, section
 * and type, which is NULL when the name that is returned is no type. Problems
 * are added. NULL: its section is missing. */
const char *loongi_hf_composite_enter(loong_hf_reader_t *r, int part);
/* Adds the keys of the part that other fields say. */
LOONG_NODISCARD loong_status_t loongi_hf_composite_map(loong_hf_reader_t *r,
                                                       int part);
/* A field of the section that is no business of the component's kind. */
bool loongi_hf_composite_has(const loong_hf_composite_t *composite,
                             const char *section, const char *name);
/* Keeps what an export needs of the directory: fields of CODE and how its
 * tensors are named. */
LOONG_NODISCARD loong_status_t loongi_hf_composite_keep(loong_context_t *ctx,
                                                        const char *dir,
                                                        loong_pairs_t *pairs);
/* The JSON of a field of CODE; NULL: none. */
const char *loongi_hf_composite_kept(const loong_pairs_t *pairs,
                                     const loong_hf_shared_field_t *field);
/* Keeps the id of the token for pictures where no directory has said it.
 * Errors: LOONG_ERR_CONFIG, one has said another. */
LOONG_NODISCARD loong_status_t loongi_hf_composite_keep_id(
    loong_context_t *ctx, const loong_hf_composite_t *composite, int64_t id,
    loong_pairs_t *pairs);
/* From one list to another. */
LOONG_NODISCARD loong_status_t
loongi_hf_composite_take(const loong_pairs_t *from, loong_pairs_t *pairs);

/* ---- writing ---- */

/* The whole config.json into the writer of the component with the loss, which
 * is filled on the way; problems are added, also of keys that the file would
 * not say again. */
LOONG_NODISCARD loong_status_t loongi_hf_composite_write(
    loong_hf_writer_t *w, const loong_hf_config_params_t *params);

/* ---- names ---- */

/* Names as the tensors of the set are called; as layout 0 when none fits, and
 * stacked experts as they lie. A map from a file keeps its names but for what
 * they begin with. Errors: LOONG_ERR_UNSUPPORTED, transformers would take the
 * experts to lie otherwise. */
LOONG_NODISCARD loong_status_t loongi_hf_composite_place(
    const loong_hf_composite_t *composite, int part,
    const loong_safetensors_set_t *set, loong_hf_map_t *map);
/* As kept, else as layout 0; experts as transformers reads them. */
LOONG_NODISCARD loong_status_t
loongi_hf_composite_place_as(const loong_hf_composite_t *composite, int part,
                             const loong_pairs_t *kept, loong_hf_map_t *map);
/* That of a parameter as transformers calls its modules, whatever the files
 * do: in adapters. */
const char *loongi_hf_module_prefix(const loong_hf_map_t *map,
                                    const loong_hf_param_t *param);
/* The same of a module that has been called as in any of the layouts; false:
 * it is called so. */
bool loongi_hf_composite_module(const loong_hf_composite_t *composite,
                                const char *name, char *module, size_t room);
/* The part that a tensor is of. */
int loongi_hf_composite_owner(const loong_hf_composite_t *composite,
                              const char *name);
/* Keeps how the names of each part's tensors begin, and how stacked experts
 * lie. */
LOONG_NODISCARD loong_status_t
loongi_hf_composite_keep_names(const loong_hf_composite_t *composite,
                               const loong_safetensors_set_t *set,
                               loong_pairs_t *pairs);
/* A tensor of another part than the map's, where it is of several. */
bool loongi_hf_composite_is_other(const loong_hf_map_t *map, const char *name);

#ifdef __cplusplus
}
#endif

#endif
