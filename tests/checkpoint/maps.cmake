# Maps of names as they are printed.
loong_test(NAME map SOURCES tests/checkpoint/test_map.c LABELS unit)

# Proposed maps where all modules, and a sixth of the other words, mean
# nothing.
add_test(NAME draft_meaningless COMMAND test_draft 12 100)
set_tests_properties(draft_meaningless PROPERTIES LABELS "unit;full"
  TIMEOUT 300)
