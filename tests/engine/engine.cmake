# The engine: passes on a real model, what a step may do, memory.
loong_test(NAME edges LABELS engine SOURCES tests/engine/test_edges.c)
loong_test(NAME cell_ranks LABELS engine SOURCES tests/engine/test_cell_ranks.c)
loong_test(NAME picture_rows LABELS engine
  SOURCES tests/engine/test_picture_rows.c)
loong_test(NAME shared_params LABELS engine
  SOURCES tests/engine/test_shared_params.c)
loong_test(NAME compile LABELS engine SOURCES tests/engine/test_compile.c)
loong_test(NAME passes LABELS engine
  SOURCES tests/engine/test_passes.c tests/engine/engine_run.c)
loong_test(NAME quiet_step LABELS engine
  SOURCES tests/engine/test_quiet_step.c tests/engine/engine_run.c)
foreach(wrapped malloc calloc realloc aligned_alloc posix_memalign mmap strdup
    fopen open strcmp strncmp strcasecmp strstr getenv)
  target_link_options(test_quiet_step PRIVATE LINKER:--wrap=${wrapped})
endforeach()
add_executable(worker_memory tests/engine/worker_memory.c
  tests/engine/engine_run.c)
target_link_libraries(worker_memory PRIVATE loong_all cmocka)
target_include_directories(worker_memory PRIVATE ${PROJECT_SOURCE_DIR}/tests)
loong_test(NAME memory LABELS engine
  SOURCES tests/engine/test_memory.c tests/engine/engine_run.c)
target_link_options(test_memory PRIVATE LINKER:--wrap=loong_device_alloc
  LINKER:--wrap=loong_comm_alloc_shared)
foreach(dtype fp32 bf16)
  set(directory ${CMAKE_CURRENT_BINARY_DIR}/memory_${dtype})
  file(MAKE_DIRECTORY ${directory}_1 ${directory}_2)
  add_test(NAME memory_${dtype}_1
    COMMAND worker_memory ${directory}_1 ${dtype} optim)
  set_tests_properties(memory_${dtype}_1 PROPERTIES TIMEOUT 120 LABELS engine
    ENVIRONMENT "OMP_NUM_THREADS=4")
  loong_mpi_test(NAME memory_${dtype}_2 RANKS 2 PROGRAM worker_memory
    ARGS ${directory}_2 ${dtype} optim LABELS engine)
  set_property(TEST memory_${dtype}_2 APPEND PROPERTY ENVIRONMENT
    OMP_NUM_THREADS=1)
  foreach(sharding optim_grads optim_grads_params)
    set(name memory_${dtype}_${sharding})
    file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${name})
    loong_mpi_test(NAME ${name} RANKS 2 PROGRAM worker_memory
      ARGS ${CMAKE_CURRENT_BINARY_DIR}/${name} ${dtype} ${sharding}
      LABELS engine)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT OMP_NUM_THREADS=1)
  endforeach()
endforeach()
loong_test(NAME log LABELS engine
  SOURCES tests/engine/test_log.c tests/engine/engine_run.c)
# Up to four ranks of one thread each.
set_tests_properties(log PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
