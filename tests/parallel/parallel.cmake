# Layouts: meshes, regions, equality of layouts.
loong_test(NAME mesh LABELS parallel SOURCES tests/parallel/test_mesh.c)
loong_test(NAME regions LABELS parallel SOURCES tests/parallel/test_regions.c)
loong_test(NAME shared_logprob LABELS parallel SOURCES tests/parallel/test_token_logprob.c)
loong_test(NAME shards LABELS parallel
  SOURCES tests/parallel/test_shards.c tests/engine/engine_run.c)
target_include_directories(test_shards PRIVATE ${PROJECT_SOURCE_DIR}/tests/engine)
include(tests/parallel/overlap.cmake)
include(tests/parallel/products.cmake)
loong_test(NAME layouts LABELS parallel TIMEOUT 300
  SOURCES tests/parallel/test_layouts.c tests/parallel/layout_run.c
  LIBS loong_layouts)
add_test(NAME layouts_long COMMAND test_layouts
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(layouts_long PROPERTIES LABELS "parallel;full" TIMEOUT 3600
  ENVIRONMENT "OMP_NUM_THREADS=1;LOONG_LAYOUT_STEPS=100")
set_tests_properties(layouts PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
loong_test(NAME ties LABELS parallel TIMEOUT 300
  SOURCES tests/parallel/test_ties.c tests/parallel/layout_run.c
  LIBS loong_layouts)
set_tests_properties(ties PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
if(MPI_C_FOUND)
  add_test(NAME sharded COMMAND
    ${PROJECT_SOURCE_DIR}/tests/parallel/sharded.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  set_tests_properties(sharded PROPERTIES LABELS parallel TIMEOUT 300
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endif()
# The benchmark of two ranks, on a model that is too small for its targets.
find_program(LOONG_PYTHON python3)
if(MPI_C_FOUND AND LOONG_PYTHON)
  set(small num_layers=4 hidden_size=64 ffn_hidden_size=96 vocab_size=300)
  list(TRANSFORM small PREPEND --set=model.foundation.)
  add_test(NAME bench_parallel COMMAND ${LOONG_PYTHON}
    ${PROJECT_SOURCE_DIR}/tests/bench/parallel.py --launches 1 --chunk 1
    --build ${PROJECT_BINARY_DIR} ${small} --set=data.seq_length=64)
  set_tests_properties(bench_parallel PROPERTIES LABELS "parallel;full"
    TIMEOUT 600 PASS_REGULAR_EXPRESSION "grouped .* (reached|MISSED)"
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endif()
loong_test(NAME adapters LABELS parallel TIMEOUT 300
  SOURCES tests/parallel/test_adapters.c tests/parallel/layout_run.c
  LIBS loong_layouts)
set_tests_properties(adapters PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
