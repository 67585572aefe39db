# The built-in chat templates, src/jinja/named/*.jinja by names.txt, as rows of
# a table in C: named_texts.inc of the build folder, which named.c includes.
set(folder ${PROJECT_SOURCE_DIR}/src/jinja/named)
file(GLOB texts CONFIGURE_DEPENDS ${folder}/*.jinja)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${texts} ${folder}/names.txt)
file(STRINGS ${folder}/names.txt lines REGEX "^[^#]" ENCODING UTF-8)
set(rows "")
foreach(line IN LISTS lines)
  string(REGEX MATCH "^([^ ]+) ([^ ]+) ?(.*)$" match "${line}")
  set(name ${CMAKE_MATCH_1})
  set(before "${CMAKE_MATCH_3}")
  file(READ ${folder}/${CMAKE_MATCH_2}.jinja text)
  string(PREPEND text "${before}")
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
  string(APPEND rows "    {\"${name}\",\n     \"${text}\"},\n")
endforeach()
file(WRITE ${PROJECT_BINARY_DIR}/jinja_named/named_texts.new "${rows}")
configure_file(${PROJECT_BINARY_DIR}/jinja_named/named_texts.new
  ${PROJECT_BINARY_DIR}/jinja_named/named_texts.inc COPYONLY)
