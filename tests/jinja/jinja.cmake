# Chat templates: what jinja2 gave, in tests/fixtures/jinja.
loong_test(NAME jinja SOURCES tests/jinja/test_jinja.c LABELS unit
  ARGS ${PROJECT_SOURCE_DIR}/tests/fixtures/jinja/constructs.json)
loong_test(NAME jinja_limits SOURCES tests/jinja/test_jinja_limits.c
  LABELS unit)
loong_test(NAME jinja_named SOURCES tests/jinja/test_named.c LABELS unit)
loong_fuzz(NAME jinja RUNS 2000)
# With transformers (LOONG_ORACLE, see tests/golden/README.md) the fixture is
# made again; with a directory of published templates as well, all of them are
# rendered over 40 conversations: docs/chat-templates.md has the last table.
set(LOONG_TEMPLATES "" CACHE STRING "directories of published chat templates")
if(LOONG_ORACLE)
  loong_oracle_test(jinja_constructs tests/oracle/jinja_constructs.py --check)
  loong_oracle_test(jinja_unicode tests/oracle/jinja_unicode.py
    ${PROJECT_BINARY_DIR}/test_jinja)
  if(LOONG_TEMPLATES)
    loong_oracle_test(jinja_published tests/oracle/jinja_published.py
      ${PROJECT_BINARY_DIR}/test_jinja ${LOONG_TEMPLATES})
    loong_oracle_test(jinja_named tests/oracle/jinja_named.py --check
      ${LOONG_TEMPLATES})
  endif()
endif()
