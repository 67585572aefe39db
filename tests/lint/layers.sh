#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A file of a module compiles with the headers of the modules that it may use,
# internal and public ones, and with no other (cmake/LoongModules.cmake).
#   layers.sh SOURCE_DIR BUILD_DIR
set -u
cd "$1" || exit 2
build=$2
bad=0
check() { # yes or no, a source file, headers ...
  local want=$1 file=$2 header command says
  shift 2
  command=$(sed -n "s|^ *\"command\": \"\(.*\) -o .*/$file\",*$|\1|p" \
    "$build/compile_commands.json" | head -n 1)
  if [ -z "$command" ]; then
    echo "$file: not compiled"
    bad=1
  fi
  for header; do
    says=no
    echo "#include \"$header\"" |
      $command -fsyntax-only -x c - >/dev/null 2>&1 && says=yes
    if [ $says != "$want" ]; then
      echo "$file includes $header: $says, not $want"
      bad=1
    fi
    [ -n "$(find include src kernels -path "*/$header")" ] ||
      { echo "$header: there is none"; bad=1; }
  done
}
check yes src/base/text.c base.h loong/context.h
check no src/base/text.c zigzag.h loong/comm.h
check yes src/run/executor.c comm_run.h program.h loong/device.h
check no src/run/executor.c comm_impl.h loong/trainer.h
check yes src/graph/graph.c loong/op.h loong/mesh.h
check no src/graph/graph.c loong/ops.h loong/nn.h loong/loader.h program.h
check yes src/data/loader.c loong/dtype.h
check no src/data/loader.c loong/ops.h loong/graph.h
check yes kernels/linear/linear_ref.c loong/ops.h loong/kernel.h
check no kernels/linear/linear_ref.c loong/nn.h graph_impl.h
check yes src/op/norm.c loong/op.h base.h
check no src/op/norm.c graph_impl.h
check yes src/nn/nn.c loong/graph.h
check no src/nn/nn.c graph_impl.h
check yes src/model/vision/vision.c loong/nn.h
check no src/model/vision/vision.c nn_impl.h graph_impl.h decoder.h
check no src/recipe/recipe.c loong/kernel.h
check no src/checkpoint/native/native_dir.c loong/checkpoint.h hf_files.h
check yes src/checkpoint/huggingface/hf_names.c layer_kinds.h
check no src/checkpoint/huggingface/hf_names.c decoder.h vision.h loong/nn.h
check no src/checkpoint/training/resume_check.c decoder_config.h
check no src/report/report.c loong/trainer.h trainer_impl.h
check no src/plan/choices.c fast.h loong/trainer.h
exit $bad
