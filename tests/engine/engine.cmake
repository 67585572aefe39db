# The engine: passes on a real model, what a step may do, memory.
loong_test(NAME passes LABELS engine
  SOURCES tests/engine/test_passes.c tests/engine/engine_run.c)
