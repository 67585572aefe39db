# Random layouts against one rank, and against others of the same bits: a few
# every day, more in the long tests. Each run draws anew; the first line that it
# prints says how to repeat it.
foreach(model qwen gpt moe latent absorbed minimax vision)
  set(recipe ${PROJECT_SOURCE_DIR}/tests/parallel/parity_${model}.yaml)
  add_test(NAME parity_${model} COMMAND loong-bench parity ${recipe}
    --layouts 1 --steps 3 --ranks 6)
  add_test(NAME bits_${model} COMMAND loong-bench parity ${recipe}
    --bits --layouts 1 --steps 3 --ranks 4)
  set_tests_properties(parity_${model} bits_${model} PROPERTIES
    LABELS parallel TIMEOUT 300)
  add_test(NAME parity_${model}_long COMMAND loong-bench parity ${recipe}
    --layouts 40 --steps 100 --ranks 16)
  add_test(NAME bits_${model}_long COMMAND loong-bench parity ${recipe}
    --bits --layouts 40 --steps 20 --ranks 16)
  set_tests_properties(parity_${model}_long bits_${model}_long PROPERTIES
    LABELS "parallel;full" TIMEOUT 7200)
endforeach()
# Four tensor parallel ranks, in which a product that adds to a sum of gradients
# rounds it once in one layout and twice in the other.
add_test(NAME bits_sums COMMAND loong-bench parity
  ${PROJECT_SOURCE_DIR}/tests/parallel/parity_latent.yaml
  --bits --layouts 1 --steps 3 --ranks 4 --seed 795679497)
set_tests_properties(bits_sums PROPERTIES LABELS parallel TIMEOUT 120)
# Drawn around what a random sample may miss: zero bubbles that recompute, pairs
# with shared experts, experts with little room, whole matrices of muon; and fp32 with
# the experts that one rank chose.
add_test(NAME image_text_layouts COMMAND
  ${PROJECT_SOURCE_DIR}/tests/parallel/image_text.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR} 1 3)
set_tests_properties(image_text_layouts PROPERTIES LABELS parallel TIMEOUT 300)
add_test(NAME image_text_layouts_long COMMAND
  ${PROJECT_SOURCE_DIR}/tests/parallel/image_text.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR} 12 12)
# Sizes of their own in windows, deep features, one norm of all heads.
add_test(NAME image_text_models COMMAND
  ${PROJECT_SOURCE_DIR}/tests/parallel/image_text.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR} 1 3 qwen3_vl)
set_tests_properties(image_text_models PROPERTIES LABELS parallel TIMEOUT 120)
add_test(NAME image_text_models_long COMMAND
  ${PROJECT_SOURCE_DIR}/tests/parallel/image_text.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR} 24 12 qwen2_5_vl qwen3_vl internvl glm4v
  two_encoders)
set_tests_properties(image_text_layouts_long image_text_models_long PROPERTIES
  LABELS "parallel;full" TIMEOUT 2400)

function(parity_around name model)
  add_test(NAME parity_${name} COMMAND loong-bench parity
    ${PROJECT_SOURCE_DIR}/tests/parallel/parity_${model}.yaml ${ARGN})
  set_tests_properties(parity_${name} PROPERTIES LABELS parallel TIMEOUT 300)
endfunction()
parity_around(zero_bubble qwen --layouts 1 --steps 4 --ranks 6
  parallel.pipeline_model_parallel_size=2 schedule=zero_bubble_v
  parallel.num_layers_per_virtual_pipeline_stage=0
  parallel.pipeline_model_parallel_layout=Et|t*2|t|tL
  parallel.overlap_moe_expert_parallel_comm=false recompute.granularity=full)
parity_around(pairs moe --layouts 1 --steps 4 --ranks 8
  parallel.pipeline_model_parallel_size=2 schedule=1f1b
  parallel.expert_model_parallel_size=2 parallel.expert_tensor_parallel_size=2
  parallel.overlap_moe_expert_parallel_comm=true
  parallel.pipeline_model_parallel_layout=null)
parity_around(capacity moe --layouts 2 --steps 4 --ranks 8
  model.foundation.moe_expert_capacity_factor=0.6
  parallel.expert_model_parallel_size=2)
parity_around(muon qwen --layouts 2 --steps 4 --ranks 8
  parallel.tensor_model_parallel_size=2 model.foundation.num_query_groups=2
  "optimizer.groups=[{scope: layers.*_proj.weight, name: muon}, \
{scope: '*.bias'}, {scope: '*norm'}, {scope: embed_tokens}]")
# Samples in rows of several, and losses normalised by them.
parity_around(rows qwen --layouts 2 --steps 3 --ranks 8 data.packing=best_fit
  data.truncation=right train.loss_normalization=square_root)
parity_around(rows_bits qwen --bits --layouts 2 --steps 3 --ranks 6
  data.packing=greedy data.truncation=left train.loss_normalization=sample)
foreach(packing none greedy best_fit)
  parity_around(rows_${packing}_long moe --layouts 20 --steps 20 --ranks 12
    data.packing=${packing} data.truncation=right)
  set_tests_properties(parity_rows_${packing}_long PROPERTIES
    LABELS "parallel;full" TIMEOUT 3600)
endforeach()
parity_around(fp32 moe --dtype fp32 --layouts 1 --steps 8 --ranks 6)
foreach(model qwen gpt moe latent)
  parity_around(${model}_fp32_long ${model} --dtype fp32 --layouts 20
    --steps 100 --ranks 16)
  set_tests_properties(parity_${model}_fp32_long PROPERTIES
    LABELS "parallel;full" TIMEOUT 7200)
endforeach()
