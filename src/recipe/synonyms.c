/* SPDX-License-Identifier: Apache-2.0
 *
 * What other programs call the keys of a recipe. Called by check.c and
 * loongrun. Read loong/recipe.h before. */
#include <string.h>

#include "recipe_impl.h"

#define MODEL "model.foundation."
#define PARALLEL "parallel."

/* The last name of a path, and the key that is meant by it. */
static const struct {
    const char *name;
    const char *key;
} synonyms[] = {
    {"adapter_name_or_path", "finetune.adapter"},
    {"activation_checkpointing", "recompute.granularity"},
    {"attention_bias", MODEL "add_qkv_bias"},
    {"batch_size", "train.global_batch_size"},
    {"beta1", "optimizer.adam_beta1"},
    {"beta2", "optimizer.adam_beta2"},
    {"betas", "optimizer.adam_beta1"},
    {"bf16", "precision.params_dtype"},
    {"context_length", "data.seq_length"},
    {"cp", PARALLEL "context_parallel_size"},
    {"cutoff_len", "data.seq_length"},
    {"dropout", MODEL "hidden_dropout"},
    {"dtype", "precision.params_dtype"},
    {"ep", PARALLEL "expert_model_parallel_size"},
    {"eps", "optimizer.adam_eps"},
    {"etp", PARALLEL "expert_tensor_parallel_size"},
    {"eval_steps", "eval.interval"},
    {"finetuning_type", "finetune.method"},
    {"fp16", "precision.params_dtype"},
    {"fsdp", PARALLEL "data_parallel_sharding"},
    {"grad_clip", "optimizer.clip_grad"},
    {"gradient_accumulation_steps", "train.global_batch_size"},
    {"gradient_checkpointing", "recompute.granularity"},
    {"gradient_clipping", "optimizer.clip_grad"},
    {"head_dim", MODEL "kv_channels"},
    {"hidden_act", MODEL "activation"},
    {"intermediate_size", MODEL "ffn_hidden_size"},
    {"learning_rate", "optimizer.lr"},
    {"log_interval", "log.interval"},
    {"logging_steps", "log.interval"},
    {"load_in_4bit", "finetune.quantization"},
    {"load_in_8bit", "finetune.quantization"},
    {"lora_alpha", "finetune.alpha"},
    {"lora_dropout", "finetune.dropout"},
    {"lora_r", "finetune.rank"},
    {"lora_rank", "finetune.rank"},
    {"lora_target", "finetune.target_modules"},
    {"lora_target_modules", "finetune.target_modules"},
    {"lr", "optimizer.lr"},
    {"lr_scheduler", "optimizer.lr_decay_style"},
    {"lr_scheduler_type", "optimizer.lr_decay_style"},
    {"max_grad_norm", "optimizer.clip_grad"},
    {"max_length", "data.seq_length"},
    {"max_seq_len", "data.seq_length"},
    {"max_seq_length", "data.seq_length"},
    {"max_steps", "train.train_iters"},
    {"mbs", "train.micro_batch_size"},
    {"n_head", MODEL "num_attention_heads"},
    {"n_layer", MODEL "num_layers"},
    {"num_epochs", "train.epochs"},
    {"num_heads", MODEL "num_attention_heads"},
    {"num_hidden_layers", MODEL "num_layers"},
    {"num_key_value_heads", MODEL "num_query_groups"},
    {"num_train_epochs", "train.epochs"},
    {"output_dir", "checkpoint.save"},
    {"per_device_train_batch_size", "train.micro_batch_size"},
    {"pp", PARALLEL "pipeline_model_parallel_size"},
    {"precision", "precision.params_dtype"},
    {"quantization_bit", "finetune.quantization"},
    {"resume", "checkpoint.load"},
    {"resume_from_checkpoint", "checkpoint.load"},
    {"rms_norm_eps", MODEL "layernorm_epsilon"},
    {"rope_theta", MODEL "rotary_base"},
    {"sample_packing", "data.packing"},
    {"save_interval", "checkpoint.save_interval"},
    {"save_steps", "checkpoint.save_interval"},
    {"scheduler", "optimizer.lr_decay_style"},
    {"seq_len", "data.seq_length"},
    {"sequence_length", "data.seq_length"},
    {"sliding_window", MODEL "window_size"},
    {"split", "data.validation_split"},
    {"steps", "train.train_iters"},
    {"tensor_parallel", PARALLEL "tensor_model_parallel_size"},
    {"tie_word_embeddings", MODEL "untie_embeddings_and_output_weights"},
    {"torch_dtype", "precision.params_dtype"},
    {"tp", PARALLEL "tensor_model_parallel_size"},
    {"train_on_inputs", "data.chat.train_on"},
    {"use_distributed_optimizer", PARALLEL "data_parallel_sharding"},
    {"vpp", PARALLEL "num_layers_per_virtual_pipeline_stage"},
    {"warmup", "optimizer.lr_warmup_iters"},
    {"warmup_iters", "optimizer.lr_warmup_iters"},
    {"warmup_ratio", "optimizer.lr_warmup_fraction"},
    {"warmup_steps", "optimizer.lr_warmup_iters"},
    {"zero", PARALLEL "data_parallel_sharding"},
    {"zero_stage", PARALLEL "data_parallel_sharding"},
};

const loong_recipe_key_t *loong_recipe_meant(const char *path)
{
    const char *name = strrchr(path, '.');
    const char *key = NULL;
    name = name != NULL ? name + 1 : path;
    for (int64_t i = 0; i < LOONG_COUNT_OF(synonyms); i++) {
        key = strcmp(synonyms[i].name, name) == 0 ? synonyms[i].key : key;
    }
    for (int64_t i = 0; key != NULL && i < loong_recipe_num_keys(); i++) {
        if (strcmp(loong_recipe_key(i)->path, key) == 0) {
            return loong_recipe_key(i);
        }
    }
    return NULL;
}
