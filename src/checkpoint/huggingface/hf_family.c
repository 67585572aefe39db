/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields of config.json that no kind of models has for itself. Called by
 * hf_config_read.c; read hf_family.h before. */
#include <stddef.h>

#include "hf_rows.h"

const loong_hf_field_t loongi_hf_common_fields[] = {
    NEUTRAL_FIELD("attention_bias", "false"),
    NEUTRAL_FIELD("mlp_bias", "false"),
    NEUTRAL_FIELD("partial_rotary_factor", "1|1.0"),
    NEUTRAL_FIELD("rope_interleaved", "false"),
    NEUTRAL_FIELD("router_jitter_noise", "0|0.0"),
    NEUTRAL_FIELD("add_cross_attention", "false"),
    NEUTRAL_FIELD("is_encoder_decoder", "false"),
    NEUTRAL_FIELD("is_causal", "true"),
    CODE_FIELD("quantization_config"),
    NEUTRAL_FIELD("auto_map", "null"),
    FIELDS_END};

const char *const loongi_hf_ignored_fields[] = {
    "architectures", "model_type", "transformers_version", "dtype",
    "torch_dtype", "use_cache", "_name_or_path", "_attn_implementation",
    "attn_implementation", "_attn_implementation_autoset", "bos_token_id",
    "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id",
    "unk_token_id", "decoder_start_token_id", "tokenizer_class", "prefix",
    "is_decoder", "gradient_checkpointing", "output_attentions",
    "output_hidden_states", "return_dict", "torchscript", "use_bfloat16",
    "keys_to_ignore_at_inference", "chunk_size_feed_forward",
    /* other heads than the language model's */
    "id2label", "label2id", "num_labels", "problem_type", "finetuning_task",
    "task_specific_params", "summary_type", "summary_use_proj",
    "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "classifier_dropout",
    /* generation */
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams",
    "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p",
    "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
    "output_scores", "return_dict_in_generate", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens",
    "begin_suppress_tokens",
    /* losses of routers are the recipe's */
    "router_aux_loss_coef", "output_router_logits",
    /* how the same product is cut, an old name of n_positions, notes */
    "pretraining_tp", "n_ctx", "output_past", "is_llama_config",
    "unsloth_version", "unsloth_fixed", "transformers.js_config", NULL};
