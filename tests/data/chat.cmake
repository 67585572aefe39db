# Conversations: formats, files, templates, samples, and arbitrary records.
loong_test(NAME chat_formats SOURCES tests/data/test_chat_formats.c LABELS unit)
loong_test(NAME chat_source SOURCES tests/data/test_chat_source.c LABELS unit)
loong_test(NAME chat_masks SOURCES tests/data/test_chat_masks.c LABELS unit)
loong_test(NAME chat_arrow SOURCES tests/data/test_chat_arrow.c LABELS unit)
set_tests_properties(chat_arrow PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED: ")
loong_fuzz(NAME chat RUNS 3000)
# The commands of the guide.
add_test(NAME docs_fine_tuning COMMAND
  ${PROJECT_SOURCE_DIR}/tests/docs/fine_tuning.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR})
add_test(NAME docs_tutorials COMMAND
  ${PROJECT_SOURCE_DIR}/tests/docs/tutorials.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR})
set_tests_properties(docs_fine_tuning docs_tutorials PROPERTIES LABELS docs
  TIMEOUT 60)
add_test(NAME chat_million COMMAND
  ${PROJECT_SOURCE_DIR}/tests/data/chat_million.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR})
set_tests_properties(chat_million PROPERTIES LABELS "unit;full" TIMEOUT 600)
add_test(NAME cli_data_chat COMMAND ${PROJECT_SOURCE_DIR}/tests/cli/data_chat.sh
  $<TARGET_FILE:loong-data> ${PROJECT_SOURCE_DIR})
set_tests_properties(cli_data_chat PROPERTIES LABELS cli TIMEOUT 60)
