#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: features.sh BUILD SOURCE MPIRUN: what a training may have beside its model,
# three steps by the shim of real cards, without an op of the host: the losses of the
# processor. In bf16 both round what they multiply: 4 x 2^-8 of a loss. By SGD
# where nothing else is asked for: it leaves what rounding makes of a gradient as
# small as it is, which others divide by its own size, and experts drop others.
set -u
build=$1
source=$2
mpirun=$3
ranks=1
. "$source/tests/in_place.sh"
. "$source/tests/sim/small_training.sh"
export LOONG_XPU_PATH=$build/xpusim_card:$build/xpusim SIM_XPU_COUNT=2

# both NAME ARGUMENTS...: on the processor and on a card
both() {
  local name=$1 device
  shift
  for device in cpu xpu; do
    timeout 60 "$mpirun" --oversubscribe -n $ranks "$build/loongrun" \
      recipe.yaml device=$device log.dir="$name.$device" "$@" >out 2>err ||
      fail "$name on $device"
  done
  [ $ranks = 2 ] || ! cmp -s <(losses "$name.cpu") <(losses plain.cpu) ||
    fail "$name changes no loss"
  [ "$name" = bf16 ] || alike "$name.cpu" "$name.xpu" 3
  paste <(losses "$name.cpu") <(losses "$name.xpu") | awk -v name="$name" '
    { d = ($1 - $2) / $1; d = d < 0 ? -d : d; most = d > most ? d : most }
    END { printf "%-22s %.1e\n", name, most; exit NR != 3 || most > 4 / 256 }' ||
    fail "losses of $name"
}

write_training "$build" "$source" 2
sed -i 's/hidden_size: 16/hidden_size: 64/;s/ffn_hidden_size: 24/ffn_hidden_size: 128/
  s/lr: 1e-3/lr: 0.1, name: sgd/' recipe.yaml
"$build/loongrun" recipe.yaml device=cpu log.dir=plain.cpu export.hf=hf \
  checkpoint.save=ck >out 2>err || fail 'a training that is exported'
moe='foundation.family=qwen3_moe foundation.num_experts=4
  foundation.moe_router_topk=2 foundation.moe_ffn_hidden_size=16
  foundation.moe_expert_capacity_factor=0.6'
# shellcheck disable=SC2086
both capacity $moe
# shellcheck disable=SC2086
both capacity_by_position $moe foundation.moe_token_drop_policy=position
both kl_loss train.kl_loss_coeff=0.5
chance='optimizer.stochastic_rounding=true'
both adamw_by_chance $chance optimizer.name=adamw optimizer.lr=1e-3 \
  optimizer.exp_avg_dtype=bf16 optimizer.exp_avg_sq_dtype=bf16
both lion_by_chance $chance optimizer.name=lion optimizer.lr=1e-3 \
  optimizer.exp_avg_dtype=bf16
both averages optimizer.ema.decay=0.9 eval.ema=true optimizer.name=lion \
  optimizer.lr=1e-3
both muon optimizer.name=muon optimizer.lr=1e-2 \
  'optimizer.groups=[{scope: "*norm*", name: adamw}, {scope: "*proj*"},
  {scope: "embed*", name: adamw}]'
both sgd_by_chance $chance optimizer.momentum_buffer_dtype=bf16
tune='training_phase=midtrain model.from_hf=hf init.from_hf=hf finetune.rank=4'
# shellcheck disable=SC2086
{
  both lora $tune finetune.method=lora
  both dora $tune finetune.method=lora finetune.use_dora=true
  both qlora $tune finetune.method=qlora
  both qlora_int8 $tune finetune.method=qlora finetune.quantization=int8
  both qlora_dora $tune finetune.method=qlora finetune.use_dora=true
  both lora_kl $tune finetune.method=lora train.kl_loss_coeff=0.5
  both bf16 $tune finetune.method=lora precision.params_dtype=bf16
}
ranks=2
both ring_attention parallel.context_parallel_size=2 parallel.cp_comm_type=p2p
# shellcheck disable=SC2086
both tokens_that_travel ${moe%foundation.moe_expert*} \
  parallel.moe_token_dispatcher_type=alltoall \
  parallel.expert_model_parallel_size=2
both columns_and_rows parallel.tensor_model_parallel_size=2 \
  parallel.sequence_parallel=true
both shards parallel.data_parallel_sharding=optim_grads_params
both stages parallel.pipeline_model_parallel_size=2
