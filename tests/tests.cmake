# Tests by folder. Everyday tests carry no label "full"; `make check` runs
# ctest without them, `make check-full` runs all.
loong_test(NAME base SOURCES tests/unit/test_base.c LABELS unit)
loong_test(NAME rng SOURCES tests/unit/test_rng.c LABELS unit)
loong_test(NAME exact_sum SOURCES tests/unit/test_exact_sum.c LABELS unit)
loong_test(NAME base_io SOURCES tests/unit/test_base_io.c LABELS unit)
loong_test(NAME dataset SOURCES tests/unit/test_dataset.c LABELS unit)
loong_test(NAME index_digest LABELS unit
  SOURCES tests/unit/test_index_digest.c)
loong_test(NAME blend SOURCES tests/unit/test_blend.c LABELS unit)
loong_test(NAME loader SOURCES tests/unit/test_loader.c LABELS unit)
loong_test(NAME loader_epochs SOURCES tests/unit/test_loader_epochs.c LABELS unit)
loong_test(NAME packing SOURCES tests/unit/test_packing.c LABELS unit)
loong_test(NAME balance SOURCES tests/unit/test_balance.c LABELS unit)
loong_test(NAME safetensors SOURCES tests/unit/test_safetensors.c LABELS unit)
loong_test(NAME hf SOURCES tests/unit/test_hf.c LABELS unit)
loong_test(NAME corpus SOURCES tests/unit/test_corpus.c LABELS unit)
include(tests/checkpoint/checkpoint.cmake)
include(tests/checkpoint/maps.cmake)
include(tests/parallel/moments.cmake)
include(tests/parallel/comm.cmake)
include(tests/parallel/parallel.cmake)
include(tests/parallel/reshard.cmake)
include(tests/parallel/experts.cmake)
include(tests/parallel/parity.cmake)
include(tests/parallel/context.cmake)
include(tests/fault/fault.cmake)
include(tests/fault/supervise.cmake)
loong_test(NAME loong_ckpt SOURCES tests/cli/test_loong_ckpt.c LABELS cli
  ARGS $<TARGET_FILE:loong-ckpt>)
loong_test(NAME ckpt_adapters SOURCES tests/cli/test_ckpt_adapters.c LABELS cli
  ARGS $<TARGET_FILE:loong-ckpt>)
add_test(NAME convert_doc COMMAND
  ${PROJECT_SOURCE_DIR}/tests/cli/convert_doc.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR})
set_tests_properties(convert_doc PROPERTIES LABELS cli TIMEOUT 120)
add_test(NAME cli_check COMMAND ${PROJECT_SOURCE_DIR}/tests/cli/check.sh
  ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
set_tests_properties(cli_check PROPERTIES LABELS cli TIMEOUT 60)
include(tests/fuzz/fuzz.cmake)
loong_fuzz(NAME safetensors)
loong_fuzz(NAME map)
include(tests/cli/odd_recipes.cmake)
include(tests/setup/setup.cmake)
add_test(NAME cli_data COMMAND ${PROJECT_SOURCE_DIR}/tests/cli/data.sh
  $<TARGET_FILE:loong-data>)
set_tests_properties(cli_data PROPERTIES LABELS cli TIMEOUT 60)
loong_fuzz(NAME idx)
loong_fuzz(NAME config)
loong_fuzz(NAME checkpoint)
# Ops: each also on processors without bf16 and, in the long tests, without AVX2.
# Where this processor has no more than such a level, the plain test is that one
# already, and it belongs to the long tests as well.
file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
set(LOONG_LEVELS_BELOW "")
if(flags MATCHES " avx512_(bf16|vnni)")
  list(APPEND LOONG_LEVELS_BELOW AVX512_CORE)
endif()
if(flags MATCHES " (avx512f|avx_vnni)")
  list(APPEND LOONG_LEVELS_BELOW AVX2)
endif()
function(loong_test_level name isa labels)
  if(NOT isa IN_LIST LOONG_LEVELS_BELOW)
    list(APPEND labels full)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" ENVIRONMENT
    "OMP_NUM_THREADS=2;ONEDNN_MAX_CPU_ISA=${isa}")
endfunction()
# What all tests of ops share is built once for each device.
function(loong_op_cases name)
  set(sources op_case.c op_draw.c op_launch.c op_device.c)
  list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/tests/ops/)
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC loong_all cmocka)
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/tests
    ${PROJECT_SOURCE_DIR}/tests/ops)
  target_compile_definitions(${name} PUBLIC ${ARGN})
endfunction()
loong_op_cases(loong_op_cases_cpu)
function(loong_op_test name)
  loong_test(NAME op_${name} SOURCES tests/ops/test_${name}.c
    LIBS loong_op_cases_cpu LABELS ops TIMEOUT 600)
  foreach(isa AVX2 SSE41)
    add_test(NAME op_${name}_${isa} COMMAND test_op_${name}
      WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
    set_tests_properties(op_${name}_${isa} PROPERTIES TIMEOUT 600)
    loong_test_level(op_${name}_${isa} ${isa} ops)
  endforeach()
endfunction()
loong_op_test(linear)
loong_op_test(cross_entropy)
include(tests/golden/golden.cmake)
include(tests/sim/sim.cmake)
include(tests/gemm/gemm.cmake)
include(tests/cudnn/cudnn.cmake)
include(tests/gpu/gpu.cmake)
include(tests/gpu/architectures.cmake)
loong_op_test(attention)
foreach(name pointwise gradients in_place optimizer adamw_bf16 update muon_ops moe moe_rows
    router router_sets head_linear rms_scale segment select_rows token_logprob
    softmax_cross_entropy kl_estimate quantize)
  loong_op_test(${name})
endforeach()
# Its kernels are those of cross_entropy, which is tried on that processor.
set_property(TEST op_token_logprob_AVX2 APPEND PROPERTY LABELS full)
loong_test(NAME op_graph_gradients SOURCES tests/ops/test_graph_gradients.c
  examples/extension/rings.c LABELS ops)
# The example as a user builds it, against what the shared library exports.
add_library(rings_extension MODULE examples/extension/rings.c)
target_include_directories(rings_extension PRIVATE include)
target_link_libraries(rings_extension PRIVATE loong m)
add_test(NAME cli_extension COMMAND
  ${PROJECT_SOURCE_DIR}/tests/cli/extension.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR} $<TARGET_FILE:rings_extension> ${MPIEXEC_EXECUTABLE})
set_tests_properties(cli_extension PROPERTIES LABELS cli TIMEOUT 120
  ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
loong_test(NAME op_rules SOURCES tests/ops/test_rules.c LABELS ops)
loong_test(NAME op_tables LABELS ops
  SOURCES tests/ops/test_tables.c LIBS loong_op_cases_cpu)
loong_test(NAME metrics SOURCES tests/unit/test_metrics.c LABELS unit)
loong_test(NAME trainer SOURCES tests/parallel/test_trainer.c LABELS parallel
  TIMEOUT 300)
# Up to four ranks of one thread each.
set_tests_properties(trainer PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
add_test(NAME trainer_long COMMAND test_trainer
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(trainer_long PROPERTIES LABELS "parallel;full"
  TIMEOUT 1200 ENVIRONMENT
  "OMP_NUM_THREADS=1;LOONG_LAYOUT_STEPS=100")
include(tests/train/train.cmake)
loong_test(NAME schedule SOURCES tests/planner/test_schedule.c LABELS planner)
loong_test(NAME cell LABELS planner SOURCES tests/planner/test_cell.c
  tests/planner/fake_cell.c)
loong_test(NAME cell_gaps LABELS planner SOURCES tests/planner/test_cell_gaps.c
  tests/planner/fake_cell.c)
loong_test(NAME cell_memory LABELS planner
  SOURCES tests/planner/test_cell_memory.c tests/planner/fake_components.c
  tests/planner/fake_cell_replay.c tests/planner/fake_cell_messages.c
  tests/planner/fake_cell_reference.c tests/planner/fake_cell.c
  tests/planner/fake_ops.c tests/planner/fake_kernels.c
  tests/planner/fake_world.c tests/planner/fake_model.c
  tests/planner/fake_reference.c)
loong_test(NAME pair_order SOURCES tests/planner/test_pair_order.c LABELS planner)
include(tests/planner/plot.cmake)
loong_test(NAME pipeline_split SOURCES tests/planner/test_pipeline_split.c LABELS planner)
include(tests/engine/engine.cmake)
loong_test(NAME recipe SOURCES tests/unit/test_recipe.c LABELS unit)
loong_test(NAME recipe_resume SOURCES tests/unit/test_recipe_resume.c
  LABELS unit)
loong_test(NAME recipe_print SOURCES tests/unit/test_recipe_print.c LABELS unit)
loong_test(NAME recipe_fill SOURCES tests/unit/test_recipe_fill.c LABELS unit)
loong_test(NAME recipe_together SOURCES tests/unit/test_recipe_together.c
  LABELS unit)
loong_fuzz(NAME recipe)
add_executable(recipe_reference tests/docs/recipe_reference.c)
target_link_libraries(recipe_reference PRIVATE loong)
add_test(NAME recipe_reference COMMAND sh -c
  "$<TARGET_FILE:recipe_reference> | diff ${PROJECT_SOURCE_DIR}/docs/recipe-reference.md -")
add_test(NAME docs_architecture COMMAND
  ${PROJECT_SOURCE_DIR}/tests/docs/architecture.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(recipe_reference docs_architecture PROPERTIES LABELS docs)
add_test(NAME install COMMAND ${PROJECT_SOURCE_DIR}/tests/cli/install.sh
  ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${LOONG_CUDA_FOUND})
set_tests_properties(install PROPERTIES LABELS cli TIMEOUT 60)
loong_test(NAME configs SOURCES tests/unit/test_configs.c LABELS unit)
include(tests/models/models.cmake)
include(tests/lint/lint.cmake)
loong_test(NAME tokenizer SOURCES tests/unit/test_tokenizer.c LABELS unit)
include(tests/data/tokenizer.cmake)
include(tests/jinja/jinja.cmake)
include(tests/data/images.cmake)
include(tests/data/chat.cmake)
loong_test(NAME planner LABELS planner SOURCES tests/planner/test_planner.c
  tests/planner/fake_ops.c tests/planner/fake_kernels.c
  tests/planner/fake_world.c tests/planner/fake_model.c
  tests/planner/fake_reference.c tests/planner/fake_replay.c
  tests/planner/fake_plan.c
  tests/planner/plant.c)
add_test(NAME planner_long COMMAND test_planner
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(planner_long PROPERTIES LABELS "planner;full" TIMEOUT 600
  ENVIRONMENT LOONG_PLANNER_SEEDS=20000)
add_test(NAME cell_gaps_long COMMAND test_cell_gaps 20000
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(cell_gaps_long PROPERTIES LABELS "planner;full" TIMEOUT 600)
add_test(NAME cell_memory_long COMMAND test_cell_memory
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(cell_memory_long PROPERTIES LABELS "planner;full" TIMEOUT 600
  ENVIRONMENT LOONG_PLANNER_SEEDS=10000)
foreach(planted pass_memory place_intervals schedule_colour pass_split pass_gather
    pass_accumulate pass_dense pass_assemble pass_recompute graph_remove_dead
    pair_run program_run)
  target_link_options(test_planner PRIVATE LINKER:--wrap=loongi_${planted})
endforeach()
loong_tests_first(layouts experts context reshard trainer router_replay overlap
  cuda_dispatch cuda_op_attention cuda_experts cuda_op_moe golden families comm
  convert draft_recipes)
loong_tests_order()
