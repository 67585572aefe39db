# One module of the library = one object library. Its include path holds its
# own folder, the folders of the modules in USES, and the public headers
# (PUBLIC, of include/loong) of those and of the modules in CALLS; so does
# what these may include. Nothing else compiles, and a module stands behind
# those that it names. Folders INSIDE are in its own path alone.
#
#   loong_module(NAME nn DIR src/nn PUBLIC nn family USES base graph CALLS op)
#
# All *.c of DIR are taken. What is linked (LIBS) reaches the final library.
define_property(GLOBAL PROPERTY LOONG_MODULES)
define_property(GLOBAL PROPERTY LOONG_LIBS)
# Folders of links to the public headers of a module and of those below it.
define_property(TARGET PROPERTY LOONG_API)

function(loong_module)
  cmake_parse_arguments(M "" "NAME;DIR"
    "PUBLIC;INSIDE;USES;CALLS;LIBS;INCLUDES;DEFINES;SOURCES" ${ARGN})
  if(NOT M_SOURCES)
    file(GLOB M_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${M_DIR}/*.c)
  endif()
  add_library(loong_${M_NAME} OBJECT ${M_SOURCES})
  set(dirs ${PROJECT_SOURCE_DIR}/${M_DIR})
  set(api "")
  if(M_PUBLIC)
    set(links ${PROJECT_BINARY_DIR}/include/${M_NAME})
    list(APPEND api ${links})
    file(REMOVE_RECURSE ${links})
    file(MAKE_DIRECTORY ${links}/loong)
    foreach(header ${M_PUBLIC})
      file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include/loong/${header}.h
        ${links}/loong/${header}.h SYMBOLIC)
    endforeach()
  endif()
  foreach(used ${M_USES})
    get_target_property(used_dirs loong_${used} INTERFACE_INCLUDE_DIRECTORIES)
    list(APPEND dirs ${used_dirs})
  endforeach()
  foreach(called ${M_USES} ${M_CALLS})
    get_target_property(called_api loong_${called} LOONG_API)
    list(APPEND api ${called_api})
  endforeach()
  list(APPEND dirs ${api})
  list(REMOVE_DUPLICATES dirs)
  list(REMOVE_DUPLICATES api)
  target_include_directories(loong_${M_NAME} PUBLIC ${dirs}
    PRIVATE ${M_INSIDE})
  set_target_properties(loong_${M_NAME} PROPERTIES LOONG_API "${api}")
  target_link_libraries(loong_${M_NAME} PRIVATE OpenMP::OpenMP_C)
  target_include_directories(loong_${M_NAME} SYSTEM PRIVATE ${M_INCLUDES})
  target_compile_definitions(loong_${M_NAME} PRIVATE ${M_DEFINES})
  set_property(GLOBAL APPEND PROPERTY LOONG_MODULES loong_${M_NAME})
  set_property(GLOBAL APPEND PROPERTY LOONG_LIBS ${M_LIBS})
endfunction()

# One test executable, linked with the whole library (internal symbols
# included), run by ctest under the given labels.
#
#   loong_test(NAME base SOURCES tests/unit/test_base.c LABELS unit)
function(loong_test)
  cmake_parse_arguments(T "" "NAME;TIMEOUT" "SOURCES;LABELS;ARGS;LIBS" ${ARGN})
  add_executable(test_${T_NAME} ${T_SOURCES})
  target_link_libraries(test_${T_NAME} PRIVATE loong_all cmocka ${T_LIBS})
  target_include_directories(test_${T_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(test_${T_NAME} PRIVATE
    LOONG_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${T_NAME} COMMAND test_${T_NAME} ${T_ARGS}
           WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  set_tests_properties(${T_NAME} PROPERTIES TIMEOUT ${T_TIMEOUT}
    LABELS "${T_LABELS}" ENVIRONMENT "OMP_NUM_THREADS=2")
endfunction()

# Tests that take long begin first, so that none of them ends alone.
function(loong_tests_first)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(name ${ARGV})
    if(name IN_LIST tests)
      set_tests_properties(${name} PROPERTIES COST 100)
    endif()
  endforeach()
endfunction()

# Tests that mostly wait for time limits of their own, which work beside them
# would disturb: they come last, beside each other (loong_tests_order), those
# of half a minute and more first (COST), so that none is left alone behind.
function(loong_test_waits)
  set_property(GLOBAL APPEND PROPERTY LOONG_WAITING ${ARGV})
endfunction()

# Threads of a test share the cores with those of others: who waits for a
# moment sleeps, as libgomp has it for more threads than cores.
function(loong_tests_order)
  get_property(waiting GLOBAL PROPERTY LOONG_WAITING)
  get_property(others DIRECTORY PROPERTY TESTS)
  set_property(TEST ${others} APPEND PROPERTY ENVIRONMENT GOMP_SPINCOUNT=1000)
  if(waiting)
    list(REMOVE_ITEM others ${waiting})
    set_tests_properties(${waiting} PROPERTIES DEPENDS "${others}")
  endif()
endfunction()
