# Habits that a script can check. Each test prints what it found.
find_program(LOONG_CTAGS ctags)
find_program(LOONG_CXX NAMES c++ g++ clang++)
set(lint ${PROJECT_SOURCE_DIR}/tests/lint)
add_test(NAME lint_text COMMAND ${lint}/text.sh ${PROJECT_SOURCE_DIR})
add_test(NAME lint_messages COMMAND ${lint}/messages.sh ${PROJECT_SOURCE_DIR})
add_test(NAME lint_layers COMMAND ${lint}/layers.sh ${PROJECT_SOURCE_DIR}
  ${PROJECT_BINARY_DIR})
add_test(NAME lint_words COMMAND ${lint}/words.sh ${PROJECT_SOURCE_DIR})
set(lint_tests lint_text lint_messages lint_layers lint_words)
if(LOONG_CTAGS)
  add_test(NAME lint_sizes COMMAND ${lint}/sizes.sh ${PROJECT_SOURCE_DIR})
  add_test(NAME lint_symbols COMMAND ${lint}/symbols.sh ${PROJECT_SOURCE_DIR}
    $<TARGET_FILE:loong>)
  list(APPEND lint_tests lint_sizes lint_symbols)
else()
  message(STATUS "lint: no ctags (universal-ctags), sizes not checked")
endif()
if(LOONG_CXX)
  foreach(name lint_headers lint_headers_alone)
    add_test(NAME ${name} COMMAND ${lint}/headers.sh ${PROJECT_SOURCE_DIR}
      ${CMAKE_C_COMPILER} ${LOONG_CXX}
      "$<JOIN:$<REMOVE_DUPLICATES:$<TARGET_PROPERTY:loong_all,INTERFACE_INCLUDE_DIRECTORIES>>,:>"
      "$<JOIN:${HDF5_INCLUDE_DIRS};${MPI_C_INCLUDE_DIRS},:>")
  endforeach()
  list(APPEND lint_tests lint_headers)
  set_tests_properties(lint_headers_alone PROPERTIES LABELS full TIMEOUT 120
    ENVIRONMENT HEADERS_ALONE=1)
else()
  message(STATUS "lint: no C++ compiler, headers not checked")
endif()
set_tests_properties(${lint_tests} PROPERTIES LABELS lint TIMEOUT 120)
