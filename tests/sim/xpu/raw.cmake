# Raw kernels for XPUs on the host model of their cores: compiled as C++ with
# headers of the vendor's names, every access announced to core_memory.cc.
file(GLOB LOONG_RAW_KERNELS CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/kernels/*/*.xpu)

set(clustersim_checked -O2 -fno-tree-vectorize -fno-tree-slp-vectorize
  -fno-store-merging -fno-exceptions -fno-rtti -Wno-unused-function
  -fsanitize=thread)

function(clustersim_flags target)
  target_include_directories(${target} PRIVATE ${xpusim}/include ${xpusim}
    ${PROJECT_SOURCE_DIR}/tests/sim ${PROJECT_SOURCE_DIR}/kernels
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src/base
    ${PROJECT_SOURCE_DIR}/src/mesh)
  # Contexts are switched by hand: no frame may be assumed.
  target_compile_options(${target} PRIVATE -O2 -Wno-psabi
    -Wno-ignored-attributes -fno-omit-frame-pointer)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# The model, for a library or a program that gives what clustersim.h asks for.
add_library(clustersim OBJECT ${xpusim}/cluster.cc ${xpusim}/core_memory.cc
  ${PROJECT_SOURCE_DIR}/tests/sim/fiber.cc)
clustersim_flags(clustersim)

# Kernels for it.
function(clustersim_kernels target)
  add_library(${target} OBJECT)
  clustersim_flags(${target})
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    set(copy ${PROJECT_BINARY_DIR}/clustersim/${folder}_${name}.cc)
    file(CONFIGURE OUTPUT ${copy} CONTENT "#include \"${source}\"\n")
    target_sources(${target} PRIVATE ${copy})
    set_source_files_properties(${copy} PROPERTIES
      COMPILE_OPTIONS "${clustersim_checked}" OBJECT_DEPENDS ${source})
  endforeach()
endfunction()

# A test of kernels on the model alone, without a runtime.
function(clustersim_test name kernels)
  loong_test(NAME ${name} ${ARGN})
  target_sources(test_${name} PRIVATE $<TARGET_OBJECTS:${kernels}>
    $<TARGET_OBJECTS:clustersim>)
  target_include_directories(test_${name} PRIVATE ${xpusim}
    ${PROJECT_SOURCE_DIR}/kernels)
  set_target_properties(test_${name} PROPERTIES LINKER_LANGUAGE CXX)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT OMP_NUM_THREADS=1)
endfunction()

clustersim_kernels(clustersim_proof ${xpusim}/proof.xpu)
clustersim_test(xpu_cluster clustersim_proof LABELS sim
  SOURCES ${xpusim}/test_cluster.c)
clustersim_kernels(loong_raw_sim ${LOONG_RAW_KERNELS})
clustersim_test(xpu_raw loong_raw_sim LABELS "sim;ops"
  SOURCES ${xpusim}/test_raw.c ${xpusim}/raw_cases.c ${xpusim}/raw_cases_more.c
  ${xpusim}/raw_cases_experts.c ${xpusim}/raw_cases_updates.c
  ${xpusim}/raw_register.c LIBS loong_op_cases_cpu)
add_test(NAME xpu_raw_long COMMAND test_xpu_raw long
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(xpu_raw_long PROPERTIES LABELS "sim;ops;full" TIMEOUT 600
  ENVIRONMENT OMP_NUM_THREADS=1)
# The tests of these ops, with the raw kernels among the others.
set(LOONG_RAW_OP_TESTS optimizer moe in_place softmax_cross_entropy
  attention pointwise router router_sets rms_scale select_rows segment tables
  update muon_ops adamw_bf16 kl_estimate)
foreach(name ${LOONG_RAW_OP_TESTS})
  set(labels "sim;ops")
  if(NOT name MATCHES "^(update|muon_ops|kl_estimate)$") # these take a second
    string(APPEND labels ";full")
  endif()
  clustersim_test(xpu_raw_op_${name} loong_raw_sim LABELS "${labels}"
    TIMEOUT 600 SOURCES ${PROJECT_SOURCE_DIR}/tests/ops/test_${name}.c
    ${xpusim}/raw_register.c LIBS loong_op_cases_cpu)
endforeach()
target_compile_definitions(test_xpu_raw_op_muon_ops PRIVATE OP_LEAST=2)
list(TRANSFORM LOONG_RAW_OP_TESTS PREPEND xpu_raw_op_)
foreach(name xpu_raw ${LOONG_RAW_OP_TESTS})
  target_link_options(test_${name} PRIVATE LINKER:--wrap=loong_register_builtin)
endforeach()

# What the shim of real devices calls of the vendor, and that shim, with its raw
# kernels: executed on simulated devices, beside the same other libraries.
xpusim_library(xpusim_api libxpuapi.so ${xpusim}/xdnn.cc
  $<TARGET_OBJECTS:clustersim>)
target_include_directories(xpusim_api PRIVATE ${xpusim}/include)
set_target_properties(xpusim_api PROPERTIES CXX_VISIBILITY_PRESET default)
xpusim_library(xpusim_card libloong_xpukern.so
  ${PROJECT_SOURCE_DIR}/backends/xpu/shim/xpukern.cc
  ${PROJECT_SOURCE_DIR}/kernels/rope/rope.c
  $<TARGET_OBJECTS:loong_raw_sim>)
target_include_directories(xpusim_card PRIVATE ${xpusim}/include
  ${PROJECT_SOURCE_DIR}/kernels)
target_compile_definitions(xpusim_card PRIVATE LOONG_SHIM_BKCL)
target_link_libraries(xpusim_card PRIVATE xpusim_api)
set_target_properties(xpusim_card PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/xpusim_card
  INSTALL_RPATH "${XPUSIM_DIR}")
add_dependencies(xpusim_all xpusim_card)
# Models of transformers on it, without an op of the host: whole, and where
# products and losses go by chunks of so many elements.
foreach(part 0 2000)
  foreach(name xpu_golden xpu_golden_vision)
    add_test(NAME ${name}_card_${part} COMMAND test_${name})
    set_tests_properties(${name}_card_${part} PROPERTIES
      LABELS "sim;golden;full" TIMEOUT 900 ENVIRONMENT
      "OMP_NUM_THREADS=1;LOONG_XPU_PART=${part};\
LOONG_XPU_PATH=${PROJECT_BINARY_DIR}/xpusim_card:${XPUSIM_DIR}")
  endforeach()
endforeach()
add_test(NAME xpu_presets COMMAND ${xpusim}/presets.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR})
set_tests_properties(xpu_presets PROPERTIES LABELS "sim;full" TIMEOUT 1800)
if(MPI_C_FOUND)
  add_test(NAME xpu_features COMMAND ${xpusim}/features.sh
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  set_tests_properties(xpu_features PROPERTIES LABELS "sim;full" TIMEOUT 300
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endif()
