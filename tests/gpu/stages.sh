#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# One stage of tests/gpu/run.sh, which has set the variables of the next line.
# Exit code 77: not run, the last line says why.
set -uo pipefail
: "${source:?}" "${build:?}" "${out:?}" "${architecture:?}" "${cores:?}"
: "${again:?}" "${rpath?}"
gpu=$source/tests/gpu

not_run() {
  echo "not run: $1"
  exit 77
}

run_build() {
  command -v nvcc >/dev/null || not_run "nvcc was not found"
  command -v cmake >/dev/null || not_run "cmake was not found"
  # An RPATH, unlike a RUNPATH, also holds for what a library loads.
  cmake -S "$source" -B "$build" -G Ninja -DLOONG_CUDA=ON -DLOONG_MPI=OFF \
    -DLOONG_CUDA_ARCHITECTURES="$architecture" -DLOONG_TEST_GPU=ON \
    -DCMAKE_BUILD_RPATH="$rpath" \
    -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
    -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags &&
    cmake --build "$build" --target gpu
}

# once KEY COMMAND...: what it prints, which is kept until the next build, so
# that a stage that was ended goes on where it was.
once() {
  local kept=$out/kept/$1 code=0
  shift
  if [ "$again" = 0 ] && [ -s "$kept" ] &&
    [ ! "$build/loong-bench" -nt "$kept" ]; then
    cat "$kept"
    return 0
  fi
  mkdir -p "$out/kept"
  "$@" | tee "$kept.new" || code=$?
  [ $code != 0 ] || grep -q '"not_run"' "$kept.new" || mv "$kept.new" "$kept"
  return $code
}

# Versions and places of what is used, one product, one attention by either
# kernel, a few steps as graphs: what else would be found out one by one.
run_doctor() {
  local code=0
  built loong-bench loongrun
  "$build/loongrun" --doctor || code=1
  python3 "$gpu/doctor.py" libraries "$build" || code=1
  "$build/loong-bench" step --json --floor-seconds 0 --steps 3 \
    "$gpu/recipes/curve.yaml" device=cuda precision.params_dtype=bf16 \
    train.cuda_graph_impl=local || code=1
  return "$code"
}

# built FILE...: else the stage is not run.
built() {
  local file
  for file; do
    [ -e "$build/$file" ] || not_run "$file is not built: run stage build"
  done
}

# The op tests compute their references on the processor, so several at once.
# Of what they draw (tests/ops/op_draw.h) more than every day, and other cases;
# OP_CASES=200 for many more.
run_ops() {
  built CTestTestfile.cmake
  export OP_SEED=${OP_SEED:-$RANDOM$RANDOM} OP_CASES=${OP_CASES:-20}
  echo "OP_SEED=$OP_SEED OP_CASES=$OP_CASES"
  ctest --test-dir "$build" -L gpu_ops --output-on-failure \
    --no-tests=error -j $((cores / 4 + 1))
}

run_golden() {
  built CTestTestfile.cmake
  ctest --test-dir "$build" -L gpu_golden --output-on-failure \
    --no-tests=error -j 2
}

# A model of 135 M parameters: fp32 as far as the curve of the processor goes,
# bf16 to the end of the corpus; its first steps as graphs and without.
run_training() {
  local code=0 dtype
  built loongrun loong-ckpt
  for dtype in fp32 bf16; do
    python3 "$gpu/loss_curve.py" graphs --device cuda --build "$build" \
      --dtype $dtype --work "$out/training" || code=1
  done
  python3 "$gpu/loss_curve.py" check --device cuda --build "$build" \
    --dtype fp32 --work "$out/training" || code=1
  python3 "$gpu/loss_curve.py" check --device cuda --build "$build" \
    --dtype bf16 --whole --work "$out/training" || code=1
  return "$code"
}

# The kernels at the sizes of an 8B Llama's training, larger than the caches,
# and what PyTorch does with the same: a copy and a large product are the roofs.
run_kernels() {
  local code=0 op shape
  built loong-bench
  while read -r op shape; do
    case $op in '' | \#*) continue ;; esac
    once "$op-$shape" "$build/loong-bench" op --device cuda --op "$op" \
      --shape "$shape" --seconds 0.5 --json || code=1
  done < "$gpu/kernels.txt"
  once torch-kernels python3 "$gpu/peers.py" kernels || code=1
  return "$code"
}

# ours RECIPE [KEY=VALUE...]: steps of it, what nvidia-smi saw of memory, and
# what --dry-run says of it.
ours() {
  local recipe=$gpu/recipes/$1.yaml name=$1 key
  key=$(echo "$*" | tr ' /' '__')
  shift
  once "$key" python3 "$gpu/step.py" --build "$build" --name "$name" \
    "$recipe" "$@"
}

# peer MODEL [OPTION...]
peer() { once "torch-$(echo "$*" | tr -d ' ')" python3 "$gpu/peers.py" model "$@"; }

# fits KEY=VALUE...: layers of llama.yaml that fit.
fits() {
  python3 "$gpu/step.py" --build "$build" --layers-that-fit \
    "$gpu/recipes/llama.yaml" "$@"
}

# 32k tokens a step in samples of several lengths; beside PyTorch, which needs
# more memory than we do, with 16 layers; at last with all that fit.
run_llama() {
  local code=0 layers most length samples backend attention
  built loong-bench loongrun
  most=$(fits) || return 1
  echo "layers that fit: $most"
  attention=train.attention_backend
  for backend in auto:4096:2 auto:8192:1 auto:32768:1 local:4096:2; do
    IFS=: read -r backend length samples <<< "$backend"
    set -- "$attention=$backend" "data.seq_length=$length" \
      "train.micro_batch_size=$samples" \
      "train.global_batch_size=$((32768 / length))" \
      model.foundation.max_position_embeddings=32768
    layers=$(fits "$@") || { code=1; continue; }
    ours llama "$@" \
      "model.foundation.num_layers=$((layers < 16 ? layers : 16))" || code=1
    [ "$backend$length" != auto4096 ] ||
      peer llama --layers $((layers < 16 ? layers : 16)) || code=1
  done
  ours llama "$attention=auto" "model.foundation.num_layers=$most" || code=1
  return "$code"
}

# train_gpt2.cu on random tokens and weights; its own count of the operations
# is in report.py.
llmc_step() { # MODEL DEPTH SAMPLES STEPS
  [ -n "$llmc" ] || {
    echo "{\"step\": \"$1\", \"by\": \"llm.c\", \"not_run\": \"no --llmc\"}"
    return 0
  }
  (cd "$llmc" && { [ -x train_gpt2cu ] ||
    make train_gpt2cu NO_MULTI_GPU=1 NO_USE_MPI=1 PRECISION=BF16; } &&
    once "llmc_$1" python3 "$gpu/llmc.py" "$1" "$2" "$3" "$4")
}

run_gpt2() {
  local code=0
  built loong-bench loongrun
  ours gpt2_124m || code=1
  peer gpt2_124m || code=1
  llmc_step gpt2_124m 12 64 20 || code=1
  ours gpt2_1.5b || code=1
  peer gpt2_1.5b || code=1
  llmc_step gpt2_1.5b 48 16 10 || code=1
  ours gpt2_124m precision.params_dtype=fp32 train.micro_batch_size=16 \
    train.global_batch_size=16 || code=1
  peer gpt2_124m --dtype fp32 --samples 16 || code=1
  return "$code"
}

# What share of a step nothing runs on the GPU.
run_gaps() {
  local code=0 name layers
  built loong-bench
  for name in gpt2_124m gpt2_1.5b; do
    gaps "$name" || code=1
  done
  layers=$(sed -n 's/^layers that fit: //p' "$out/llama.log" 2>/dev/null)
  if [ -n "$layers" ]; then
    gaps llama "model.foundation.num_layers=$layers" || code=1
  else
    echo '{"gaps": "llama", "not_run": "stage llama comes before"}'
  fi
  return "$code"
}

gaps() { # RECIPE [KEY=VALUE...]
  local recipe=$gpu/recipes/$1.yaml name=$1
  shift
  once "gaps_$name" python3 "$gpu/gaps.py" --build "$build" --name "$name" \
    "$recipe" "$@"
}

# Every op test again, its accesses and its barriers watched. One that passed
# since the last build is not repeated.
run_sanitizer() {
  local code=0 tool test name done=$out/sanitized
  command -v compute-sanitizer >/dev/null ||
    not_run "compute-sanitizer was not found"
  touch "$done"
  for tool in memcheck racecheck; do
    for test in "$build"/test_gpu_op_*; do
      [ -x "$test" ] || not_run "no op test is built: run stage build"
      name="$tool $(basename "$test")"
      if [ "$done" -nt "$test" ] && grep -qx "$name" "$done"; then
        echo "== $name: passed before"
        continue
      fi
      sed -i "/^$name\$/d" "$done"
      echo "== $name"
      if (cd "$build" && compute-sanitizer --tool "$tool" \
        --error-exitcode 3 "$test"); then
        echo "$name" >> "$done"
      else
        code=1
      fi
    done
  done
  return "$code"
}

case $1 in
build) run_build ;;
doctor) run_doctor ;;
ops) run_ops ;;
golden) run_golden ;;
training) run_training ;;
kernels) run_kernels ;;
llama) run_llama ;;
gpt2) run_gpt2 ;;
gaps) run_gaps ;;
sanitizer) run_sanitizer ;;
*)
  echo "stages.sh: $1: no such stage" >&2
  exit 2
  ;;
esac
