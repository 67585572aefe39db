# The engine: passes on a real model, what a step may do, memory.
loong_test(NAME passes LABELS engine
  SOURCES tests/engine/test_passes.c tests/engine/engine_run.c)
loong_test(NAME quiet_step LABELS engine
  SOURCES tests/engine/test_quiet_step.c tests/engine/engine_run.c)
foreach(wrapped malloc calloc realloc aligned_alloc posix_memalign mmap strdup
    fopen open strcmp strncmp strcasecmp strstr getenv)
  target_link_options(test_quiet_step PRIVATE LINKER:--wrap=${wrapped})
endforeach()
