# Context parallel layouts.
loong_test(NAME context LABELS parallel TIMEOUT 600
  SOURCES tests/parallel/test_context.c tests/parallel/layout_run.c
  LIBS loong_layouts)
set_tests_properties(context PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
add_test(NAME context_long COMMAND test_context
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
set_tests_properties(context_long PROPERTIES LABELS "parallel;full" TIMEOUT 3600
  ENVIRONMENT "OMP_NUM_THREADS=1;LOONG_LAYOUT_STEPS=100")
