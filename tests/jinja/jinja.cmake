# Chat templates: what jinja2 gave, in tests/fixtures/jinja.
loong_test(NAME jinja SOURCES tests/jinja/test_jinja.c LABELS unit
  ARGS ${PROJECT_SOURCE_DIR}/tests/fixtures/jinja/constructs.json)
