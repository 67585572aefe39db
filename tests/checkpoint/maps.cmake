# Maps of names as they are printed.
loong_test(NAME map SOURCES tests/checkpoint/test_map.c LABELS unit)
loong_test(NAME vision SOURCES tests/checkpoint/test_vision.c LABELS unit)
loong_test(NAME vision_files LABELS unit
  SOURCES tests/checkpoint/test_vision_files.c)

# Proposed maps where all modules, and a sixth of the other words, mean
# nothing.
add_test(NAME draft_meaningless COMMAND test_draft 12 100)
add_test(NAME draft_guesses COMMAND test_draft 12 600)
set_tests_properties(draft_meaningless draft_guesses PROPERTIES
  LABELS "unit;full" TIMEOUT 300)

# What is proposed is used; what a directory brings beside its weights stays.
add_test(NAME draft_recipes COMMAND
  ${PROJECT_SOURCE_DIR}/tests/cli/draft_recipes.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR})
add_test(NAME kept_files COMMAND
  ${PROJECT_SOURCE_DIR}/tests/train/kept_files.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR})
set_tests_properties(kept_files PROPERTIES LABELS cli
  TIMEOUT 120)
set_tests_properties(draft_recipes PROPERTIES LABELS "cli;full"
  TIMEOUT 120)
