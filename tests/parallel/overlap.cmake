# Communication beside computation.
loong_test(NAME overlap LABELS parallel TIMEOUT 300
  SOURCES tests/parallel/test_overlap.c tests/parallel/layout_run.c
  LIBS loong_layouts)
set_tests_properties(overlap PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
loong_test(NAME lane LABELS engine SOURCES tests/engine/test_lane.c)
loong_test(NAME links LABELS engine SOURCES tests/engine/test_links.c)
