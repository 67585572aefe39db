#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: every_key.sh BUILD SOURCE [MPIRUN]: every key of the schema is given by
# a run here, and every run reads all it is given. What excludes each other
# stands in runs of its own.
set -eu
build=$1
source=$2
mpirun=${3:-}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
export OMP_NUM_THREADS=1
"$build/loong-data" index --tokenizer bytes --append-eod --quiet \
    --suffixes .md --output-prefix text "$source/docs" >/dev/null
. "$source/tests/train/conversations.sh"
write_conversations "$source" chat
: >given
failures=0

# run NAME [COMMAND...]: key=value lines on standard input, all of which the
# run reads. Of lists of maps each key counts.
run() {
    local name=$1 code=0 line keys lines=()
    shift
    mapfile -t lines
    for line in "${lines[@]}"; do
        case $line in
        *"=[{"*)
            keys=$(grep -oE '[{,] *[a-z_]+:' <<<"$line" | tr -d '{,: ')
            printf "${line%%=*}[].%s\n" $keys
            ;;
        *) printf '%s\n' "${line%%=*}" ;;
        esac
    done >>given
    echo 'version: 1' >recipe.yaml
    "$@" "$build/loongrun" recipe.yaml --check "${lines[@]/#/++}" \
        >out 2>check.err || code=$?
    "$@" "$build/loongrun" recipe.yaml "${lines[@]/#/++}" >out 2>err || code=$?
    if grep 'nothing in this run reads it' check.err; then
        echo "FAILED: $name: the run reads it, --check does not know"
        failures=$((failures + 1))
    fi
    if [ $code != 0 ] || grep -q 'nothing in this run reads it' err; then
        echo "FAILED: $name, exit $code"
        sed '/^-----/,$ d' err | tail -n 20
        failures=$((failures + 1))
    fi
}

small='version=1
device=cpu
model.foundation.family=qwen3
model.foundation.num_layers=2
model.foundation.hidden_size=32
model.foundation.num_attention_heads=2
model.foundation.vocab_size=257
model.foundation.max_position_embeddings=64
data.seq_length=32
train.global_batch_size=2
optimizer.lr=1e-3'

# All that can stand together.
run all <<KEYS
$small
name=all
seed=7
model.foundation.ffn_hidden_size=64
model.foundation.num_query_groups=1
model.foundation.kv_channels=16
model.foundation.make_vocab_size_divisible_by=8
model.foundation.position_embedding_type=rope
model.foundation.rotary_base=10000
model.foundation.rotary_percent=1
model.foundation.rotary_interleaved=false
model.foundation.rope_scaling.type=yarn
model.foundation.rope_scaling.factor=2
model.foundation.rope_scaling.original_max_position_embeddings=32
model.foundation.rope_scaling.beta_fast=32
model.foundation.rope_scaling.beta_slow=1
model.foundation.rope_scaling.attention_factor=1
model.foundation.rope_scaling.mscale=1
model.foundation.rope_scaling.mscale_all_dim=1
model.foundation.rope_scaling.truncate=true
model.foundation.scale_embeddings=true
model.foundation.normalization=RMSNorm
model.foundation.layernorm_epsilon=1e-6
model.foundation.sandwich_norm=true
model.foundation.qk_layernorm=true
model.foundation.add_bias_linear=false
model.foundation.add_qkv_bias=false
model.foundation.add_attn_proj_bias=false
model.foundation.activation=swiglu
model.foundation.untie_embeddings_and_output_weights=true
model.foundation.window_size=16
model.foundation.max_window_layers=1
model.foundation.softmax_scale=0.25
model.foundation.attention_dropout=0.1
model.foundation.hidden_dropout=0.1
model.foundation.embedding_dropout=0.1
model.foundation.init_method_std=0.02
model.foundation.embedding_init_method_std=0.02
model.foundation.use_scaled_init_method=true
model.freeze=[layers.0.mlp]
model.trainable=[norm]
model.foundation.freeze_first_layers=0
model.foundation.freeze_last_layers=1
training_phase=pretrain
finetune.method=lora
finetune.rank=4
finetune.alpha=8
finetune.dropout=0.1
finetune.target_modules=[q_proj, up_proj]
finetune.exclude_modules=[layers.1.mlp]
finetune.modules_to_save=[norm]
finetune.bias=all
finetune.rank_pattern=[{scope: q_proj, rank: 2}]
finetune.alpha_pattern=[{scope: q_proj, alpha: 3}]
finetune.use_rslora=true
finetune.use_dora=false
finetune.init_lora_weights=gaussian
finetune.loraplus_lr_ratio=2
parallel.tensor_model_parallel_size=1
parallel.sequence_parallel=false
parallel.tp_comm_overlap=false
parallel.pipeline_model_parallel_size=1
parallel.num_layers_per_virtual_pipeline_stage=0
parallel.pipeline_model_parallel_layout=EttL
parallel.context_parallel_size=1
parallel.cp_comm_type=a2a+p2p
parallel.hierarchical_context_parallel_sizes=[1,1]
parallel.expert_model_parallel_size=1
parallel.expert_tensor_parallel_size=1
parallel.moe_token_dispatcher_type=allgather
parallel.moe_capacity_plan=0.5
parallel.data_parallel_sharding=optim
parallel.data_parallel_shares=[1]
parallel.bucket_bytes=1MiB
parallel.grad_reduce_in_bf16=true
parallel.overlap_moe_expert_parallel_comm=true
schedule=auto
precision.params_dtype=auto
precision.fp32_scopes=[norm]
precision.tf32=false
gemm.algorithms_file=algorithms
recompute.granularity=selective
recompute.scopes=[layers.*.mlp]
data.tokenizer=bytes
data.image_token=<image>
data.train=[{path: text, weight: 1, max_epochs: 9}]
data.validation=[{name: docs, path: text}]
data.validation_split=0.1
data.reset_position_ids=true
data.reset_attention_mask=true
data.eod_mask_loss=true
train.micro_batch_size=1
train.rampup_batch_size=[1, 1, 2]
train.train_iters=2
train.exit_interval=0
train.max_wall_time=1h
train.z_loss_coeff=1e-4
train.loss_normalization=square_root
train.kl_loss_coeff=0
train.on_nan=skip
train.host_ops=[rmsnorm]
train.attention_backend=auto
train.cuda_graph_impl=auto
predict.device=auto
predict.tflops=300
predict.products=0.7
predict.copy=1800
predict.link=200
predict.network=20
predict.machine=4
optimizer.name=adamw
optimizer.min_lr=1e-5
optimizer.lr_decay_style=WSD
optimizer.lr_warmup_iters=1
optimizer.lr_decay_iters=2
optimizer.lr_wsd_decay_iters=1
optimizer.lr_wsd_decay_style=linear
optimizer.name=adamw
optimizer.adam_beta1=0.9
optimizer.adam_beta2=0.95
optimizer.adam_eps=1e-8
optimizer.exp_avg_dtype=bf16
optimizer.exp_avg_sq_dtype=bf16
optimizer.stochastic_rounding=true
optimizer.weight_decay=0.1
optimizer.weight_decay_rules=[{scope: layers, factor: 1}]
optimizer.clip_grad=1
init.by_scope=[{scope: layers.1.mlp, method: uniform, std: 0.1}]
checkpoint.save=save
checkpoint.load=auto
checkpoint.save_interval=1
checkpoint.save_interval_seconds=1h
checkpoint.keep_last=1
checkpoint.no_load_optim=false
checkpoint.async=true
resume.override=[data]
eval.interval=1
eval.iters=1
eval.sample.prompts=[The]
eval.sample.max_new_tokens=2
eval.sample.temperature=0.5
eval.sample.top_k=3
log.interval=1
log.dir=log
log.tensors=[layers.0.mlp]
log.tensors_interval=1
log.tensorboard=true
comm.backend=self
comm.device_backend=auto
comm.overlap=true
comm.overlap_work=1MiB
comm.timeout=1m
comm.heartbeat_timeout=1m
comm.overlap=true
comm.overlap_work=64KiB
fault=[{kind: slow, rank: 0, step: 1, seconds: 10ms, attempts: 1}]
KEYS

# Latent attention, experts chosen by groups.
run latent <<KEYS
$small
model.foundation.family=deepseek_v3
model.foundation.ffn_hidden_size=64
model.foundation.q_lora_rank=20
model.foundation.kv_lora_rank=16
model.foundation.qk_head_dim=8
model.foundation.qk_pos_emb_head_dim=4
model.foundation.v_head_dim=12
model.foundation.mla_absorb=true
model.foundation.qk_layernorm_whole=false
model.foundation.num_experts=8
model.foundation.moe_router_topk=2
model.foundation.moe_ffn_hidden_size=16
model.foundation.moe_router_score_function=sigmoid
model.foundation.moe_router_num_groups=4
model.foundation.moe_router_group_topk=2
model.foundation.moe_router_group_scores=2
data.train=[{path: text}]
train.micro_batch_size=1
train.train_iters=1
router_replay.record_file=routing.npy
KEYS
run replay <<KEYS
$small
model.foundation.family=qwen3_moe
model.foundation.num_experts=8
model.foundation.moe_router_topk=2
data.train=[{path: text}]
train.train_iters=1
router_replay.replay_file=routing.npy
KEYS

# Whole documents in rows.
echo '{"rates": {"rows": 1, "text": 2, "encoder": 3, "pictures": 4}}' >costs.json
echo '{"nanoseconds_of_micro_batch": {"cpu": 5}}' >speeds.json
run rows <<KEYS
$small
parallel.data_parallel_speeds=speeds.json
train.epochs=0.1
data.train=[{path: text, source: documents}]
data.packing=best_fit
data.balance=false
data.truncation=left
KEYS

# What excludes some of it: lengths, llama3, an export and a start from it.
run samples <<KEYS
$small
train.train_samples=4
data.train=[{path: text}]
model.foundation.rope_scaling.type=llama3
model.foundation.rope_scaling.factor=2
model.foundation.rope_scaling.low_freq_factor=1
model.foundation.rope_scaling.high_freq_factor=4
checkpoint.save=export
export.hf=hf
export.as=qwen3
export.ema=true
export.merge=true
training_phase=pretrain
finetune.method=lora
optimizer.ema.decay=0.9
optimizer.ema.update_after_step=1
optimizer.ema.use_ema_warmup=true
eval.ema=true
KEYS
"$build/loong-ckpt" export --quiet export adapter || exit 2
run tokens <<KEYS
$small
train.train_iters=1
data.train=[{path: text}]
init.from_hf=hf
init.adapters=[adapter]
KEYS
run tokens <<KEYS
$small
train.train_tokens=128
data.train=[{path: text}]
init.from_hf=hf
finetune.method=qlora
finetune.quantization=int8
finetune.double_quantization=false
finetune.adapter=adapter
training_phase=midtrain
model.from_hf=hf
KEYS
grep -qx 'phase: midtrain, from the weights of hf' out err || {
    echo "FAILED: the report does not tell whose weights a midtrain run has"
    failures=$((failures + 1))
}
run experts <<KEYS
$small
train.train_iters=1
data.train=[{path: text}]
model.foundation.family=qwen2_moe
model.foundation.num_experts=4
model.foundation.moe_layer_freq=1
model.foundation.moe_ffn_hidden_size=32
model.foundation.moe_router_topk=2
model.foundation.moe_router_score_function=sigmoid
model.foundation.moe_router_pre_softmax=false
model.foundation.moe_expert_capacity_factor=1.5
model.foundation.moe_token_drop_policy=position
model.foundation.moe_router_force_load_balancing=true
model.foundation.moe_router_enable_expert_bias=true
model.foundation.moe_router_bias_update_rate=1e-3
model.foundation.moe_router_norm_topk_prob=false
model.foundation.moe_router_num_groups=2
model.foundation.moe_router_group_topk=1
model.foundation.moe_router_topk_scaling_factor=1
model.foundation.moe_router_load_balancing_type=aux_loss
model.foundation.moe_aux_loss_coeff=1e-3
model.foundation.moe_z_loss_coeff=1e-3
model.foundation.moe_shared_expert_intermediate_size=32
model.foundation.moe_shared_expert_gate=true
KEYS

run chat <<KEYS
$small
train.train_iters=1
training_phase=sft
model.foundation.vocab_size=512
model.foundation.max_position_embeddings=256
data.seq_length=256
data.tokenizer=chat/model
data.train=[{path: chat/pairs.jsonl, source: chat}, {path: chat/broken.jsonl}]
data.chat.format=auto
data.chat.template=qwen2.5
data.chat.template_kwargs='{"name": "value"}'
data.chat.date=2026-01-31
data.chat.train_on=all
data.chat.train_on_tool_results=true
data.chat.use_chosen=true
data.chat.tags=[user=human]
data.chat.skip_refused=true
data.chat.decode=true
data.chat.cache=kept
eval.on_start=true
eval.sample.conversations=1
optimizer.lr_warmup_fraction=0.1
KEYS

run images <<KEYS
$small
train.train_iters=1
data.train=[{path: text}]
data.vision_token_ids=[32, 101]
model.foundation.family=ernie4_5_vl_moe
model.foundation.num_experts=4
model.foundation.moe_ffn_hidden_size=32
model.foundation.moe_vision_ffn_hidden_size=16
model.foundation.mrope_section="[3,3,2]"
KEYS

# The other classes of optimizers.
run lion <<KEYS
$small
train.train_iters=1
data.train=[{path: text}]
optimizer.groups=[{scope: layers, name: lion, lr: 1e-4, weight_decay: 0}, {scope: embed_tokens}, {scope: lm_head}, {scope: norm}]
optimizer.lion_beta1=0.9
optimizer.lion_beta2=0.99
KEYS
grep -q '^optimizer group: lion, learning rate 0.0001, weight decay 0, ' \
    out err || {
    echo "FAILED: the report does not tell the groups of the optimizer"
    failures=$((failures + 1))
}
run sgd <<KEYS
$small
train.train_iters=1
data.train=[{path: text}]
optimizer.name=sgd
optimizer.sgd_momentum=0.9
optimizer.sgd_nesterov=true
optimizer.momentum_buffer_dtype=bf16
KEYS

run muon <<KEYS
$small
train.train_iters=1
data.train=[{path: text}]
optimizer.groups=[{scope: layers.*_proj, name: muon}, {scope: embed_tokens}, {scope: lm_head}, {scope: "*norm"}]
optimizer.muon_momentum=0.9
optimizer.muon_use_nesterov=false
optimizer.muon_num_ns_steps=4
optimizer.muon_scale_mode=match_rms_adamw
KEYS

mkdir -p pictures/a
cp "$source"/tests/fixtures/images/{rgb.png,j420.jpg} pictures/a
run vision <<KEYS
version=1
extensions=[]
device=cpu
model.image_encoder.family=vit
model.image_encoder.num_layers=1
model.image_encoder.hidden_size=32
model.image_encoder.ffn_hidden_size=64
model.image_encoder.num_attention_heads=2
model.image_encoder.image_size=32
model.image_encoder.patch_size=16
model.image_encoder.num_channels=3
model.image_encoder.add_class_token=true
model.image_encoder.add_patch_bias=true
model.image_encoder.patch_layernorm=true
model.image_encoder.add_attn_proj_bias=false
model.image_encoder.add_bias_linear=false
model.image_encoder.pre_layernorm=true
model.image_encoder.post_layernorm=true
model.image_encoder.activation=gelu
model.image_encoder.layernorm_epsilon=1e-6
model.image_encoder.init_method_std=0.02
model.image_encoder.num_classes=1
model.image_encoder.pooling=mean
model.image_encoder.add_classifier_bias=false
data.train=[{path: pictures, source: images}]
data.validation=[{name: same, path: pictures, source: images}]
data.image_processor=$source/tests/fixtures/images/vit.json
data.num_workers=1
train.global_batch_size=2
train.train_iters=1
optimizer.lr=1e-3
KEYS

run masked <<KEYS
version=1
device=cpu
model.image_encoder={family: vit, num_layers: 1, hidden_size: 32, num_attention_heads: 2, image_size: 32, patch_size: 16}
model.image_encoder.masked_image_modeling=true
data.train=[{path: pictures, source: images}]
data.mask_ratio=0.5
train.global_batch_size=2
train.train_iters=1
optimizer.lr=1e-3
KEYS

. "$source/tests/train/texts_with_pictures.sh"
write_texts "$source" texts
run image_text <<KEYS
version=1
device=cpu
model.image_encoder.family=clip_vision_model
model.image_encoder.num_layers=2
model.image_encoder.hidden_size=32
model.image_encoder.num_attention_heads=2
model.image_encoder.image_size=32
model.image_encoder.patch_size=16
model.image_encoder.feature_layer=-2
model.image_encoder.select_class_token=true
model.image_encoder.freeze=true
model.image_encoder.freeze_first_layers=1
model.image_encoder.freeze_last_layers=1
model.image_encoder.ranks=0-
model.image_encoder.train.micro_batch_size=1
model.image_encoder.parallel.tensor_model_parallel_size=1
model.image_encoder.parallel.pipeline_model_parallel_size=1
model.image_encoder.parallel.context_parallel_size=1
model.image_encoder.parallel.num_layers_per_virtual_pipeline_stage=0
model.image_encoder.parallel.sequence_parallel=false
model.image_projector.family=mlp_projector
model.image_projector.input_size=32
model.image_projector.hidden_size=32
model.image_projector.init_method_std=0.01
model.image_projector.freeze=false
model.image_projector.ranks=0
model.image_projector.parallel.tensor_model_parallel_size=1
model.image_projector.parallel.sequence_parallel=false
model.foundation.family=llama
model.foundation.num_layers=1
model.foundation.hidden_size=32
model.foundation.num_attention_heads=2
model.foundation.vocab_size=12
model.foundation.max_position_embeddings=32
model.foundation.freeze=true
model.foundation.ranks=0
data.tokenizer=texts
data.image_token=<picture>
data.train=[{path: texts/texts.jsonl, source: image_text}]
data.max_images=4
data.seq_length=16
train.micro_batch_size=2
train.global_batch_size=2
train.train_iters=1
optimizer.lr=1e-3
checkpoint.save=parts
KEYS
for part in image_encoder foundation; do
    "$build/loong-ckpt" export --quiet --component $part parts $part
done
"$build/loong-ckpt" export --quiet parts whole
run native <<KEYS
version=1
device=cpu
model.image_encoder.family=qwen2_vl_vision
model.image_encoder.num_layers=1
model.image_encoder.hidden_size=32
model.image_encoder.num_attention_heads=2
model.image_encoder.patch_size=14
model.image_encoder.temporal_patch_size=2
model.image_encoder.window_size=28
model.image_encoder.tokens_per_second=2
model.image_encoder.full_attention_layers="[0]"
model.image_encoder.num_position_embeddings=25
model.image_encoder.position_interpolation=bicubic
model.image_encoder.position_align_corners=true
model.image_encoder.position_antialias=false
model.image_encoder.patch_channels_last=false
model.image_encoder.deepstack_layers="[0]"
model.image_encoder.merger_layer=-1
model.image_encoder.use_merger=true
model.image_encoder.chunk_frames=1
model.image_encoder.position_embedding_type=rope
model.image_encoder.rotary_base=10000
model.image_encoder.rotary_class_token=false
model.image_encoder.rotary_interleaved=false
model.image_encoder.normalization=LayerNorm
model.image_encoder.add_qkv_bias=true
model.image_encoder.qk_layernorm=true
model.image_encoder.qk_layernorm_whole=true
model.image_encoder.layer_scale_init_value=0.1
model.image_projector.family=patch_merger
model.image_projector.ffn_hidden_size=64
model.image_projector.merge_size=2
model.image_projector.num_deep_features=1
model.image_projector.norm_of_blocks=false
model.image_projector.linear=false
model.image_projector.packed_tiles=0
model.image_projector.num_latents=0
model.image_projector.num_layers=3
model.image_projector.num_attention_heads=16
model.image_projector.num_query_groups=4
model.image_projector.kv_channels=96
model.image_projector.merge_frames=0
model.image_projector.output_layernorm_epsilon=1e-5
model.image_projector.gated_ffn_hidden_size=0
model.image_projector.pre_layernorm=true
model.image_projector.normalization=LayerNorm
model.image_projector.layernorm_epsilon=1e-6
model.foundation.family=qwen2
model.foundation.bidirectional_prefix=true
model.foundation.num_layers=1
model.foundation.hidden_size=32
model.foundation.num_attention_heads=2
model.foundation.vocab_size=12
model.foundation.max_position_embeddings=32
model.foundation.mrope_section="[2,3,3]"
model.foundation.mrope_interleaved=true
model.foundation.num_deep_features=1
data.tokenizer=texts
data.image_root=texts
data.image_token=<picture>
data.video_token=<video>
data.video_processor=$source/tests/fixtures/videos/small.json
data.video_fps=1
data.train=[{path: texts/texts.jsonl, source: image_text}]
data.max_images=4
data.max_patches=256
data.max_image_patches=256
data.packing=greedy
data.row_images=2
data.row_patches=128
data.costs=costs.json
data.max_tiles=1
data.seq_length=32
train.micro_batch_size=2
train.global_batch_size=2
train.train_iters=1
optimizer.lr=1e-3
KEYS
run components <<KEYS
version=1
device=cpu
join=phases
features=device
model.image_encoder.init.from_hf=image_encoder
model.image_projector.init.from_hf=whole
model.foundation.init.from_hf=foundation
model.image_encoder.precision.params_dtype=bf16
model.image_encoder.precision.fp32_scopes=['*']
model.image_encoder.recompute.granularity=selective
model.image_encoder.recompute.scopes=['*']
model.image_encoder.optimizer.lr=1e-4
model.image_encoder.optimizer.weight_decay=0
model.image_projector.precision.params_dtype=bf16
model.image_projector.precision.fp32_scopes=['*']
model.image_projector.recompute.granularity=selective
model.image_projector.recompute.scopes=['*']
model.image_projector.optimizer.lr=1e-4
model.image_projector.optimizer.weight_decay=0
model.foundation.precision.params_dtype=bf16
model.foundation.precision.fp32_scopes=['*']
model.foundation.recompute.granularity=selective
model.foundation.recompute.scopes=['*']
model.foundation.optimizer.lr=1e-4
model.foundation.optimizer.weight_decay=0
data.video_frames=4
data.tokenizer=texts
data.image_token=<picture>
data.train=[{path: texts/texts.jsonl, source: image_text}]
data.max_images=4
data.seq_length=16
train.micro_batch_size=2
train.global_batch_size=2
train.train_iters=1
optimizer.lr=1e-3
KEYS
run towers <<KEYS
version=1
device=cpu
model.image_encoder.family=qwen2_vl_vision
model.image_encoder.num_layers=1
model.image_encoder.hidden_size=16
model.image_encoder.num_attention_heads=2
model.image_encoder.patch_size=14
model.image_projector.family=patch_merger
model.video_encoder.family=qwen2_5_vl_vision
model.video_encoder.num_layers=1
model.video_encoder.hidden_size=8
model.video_encoder.num_attention_heads=2
model.video_encoder.patch_size=14
model.video_encoder.window_size=28
model.video_projector.family=qwen2_5_vl_merger
model.foundation.family=qwen2
model.foundation.num_layers=1
model.foundation.hidden_size=32
model.foundation.num_attention_heads=2
model.foundation.vocab_size=12
model.foundation.max_position_embeddings=32
data.tokenizer=texts
data.image_token=<picture>
data.train=[{path: texts/texts.jsonl, source: image_text}]
data.max_images=4
data.max_patches=256
data.max_videos=2
data.max_video_patches=64
data.seq_length=32
train.micro_batch_size=2
train.global_batch_size=2
train.train_iters=1
optimizer.lr=1e-3
KEYS

# Ranks that do not sample do not complain of it.
if [ -n "$mpirun" ]; then
    run ranks "$mpirun" --oversubscribe -n 2 <<KEYS
${small/device=cpu/devices=[cpu:0, cpu:1-]}
train.train_iters=1
data.train=[{path: text}]
data.tokenizer=bytes
parallel.pipeline_model_parallel_size=2
parallel.num_layers_per_virtual_pipeline_stage=1
eval.sample.prompts=[The]
eval.sample.max_new_tokens=2
eval.sample.temperature=0.5
eval.sample.top_k=3
comm.backend=mpi
KEYS
fi

"$build/loongrun" --help-config | sed -n 's/^\([a-z][^ ]*\) .*/\1/p' |
    sort >schema
missing=$(sort -u given | comm -23 schema -)
if [ -n "$missing" ]; then
    echo "FAILED: keys of the schema that no run here gives:"
    echo "$missing"
    failures=$((failures + 1))
fi
echo "$(wc -l <schema) keys, $failures failures"
[ $failures = 0 ]
