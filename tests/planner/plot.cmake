# What a schedule looks like.
loong_test(NAME schedule_plot LABELS planner
  SOURCES tests/planner/test_schedule_plot.c tests/planner/fake_cell.c)
