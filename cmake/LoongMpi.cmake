# Finds MPI by LOONG_MPI (AUTO, ON, OFF) and says so.
if(LOONG_MPI STREQUAL "OFF")
  message(STATUS "MPI communicator: off (LOONG_MPI=OFF); one rank, or threads")
else()
  find_package(MPI COMPONENTS C)
  if(MPI_C_FOUND)
    message(STATUS "MPI communicator: ${MPI_C_LIBRARIES}")
    # How ranks learn that mpirun is gone; libopenmpi-dev brings it.
    pkg_check_modules(PMIX QUIET pmix)
    if(PMIX_FOUND)
      set(LOONG_PMIX_DEFINES LOONG_WITH_PMIX)
    endif()
    message(STATUS "PMIx: ${PMIX_LINK_LIBRARIES} ${PMIX_VERSION}")
  elseif(LOONG_MPI STREQUAL "ON")
    message(FATAL_ERROR "LOONG_MPI=ON, but no MPI was found; on Debian: apt-get install libopenmpi-dev")
  else()
    message(STATUS "MPI communicator: skipped, no MPI found (Debian: libopenmpi-dev); one rank, or threads")
  endif()
endif()

# Tests of an MPI job: mpirun -n RANKS PROGRAM ARGS; skipped without MPI.
function(loong_mpi_test)
  cmake_parse_arguments(T "" "NAME;RANKS;PROGRAM" "ARGS;LABELS" ${ARGN})
  if(MPI_C_FOUND)
    add_test(NAME ${T_NAME} COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe
      -n ${T_RANKS} $<TARGET_FILE:${T_PROGRAM}> ${T_ARGS})
  else()
    add_test(NAME ${T_NAME} COMMAND ${CMAKE_COMMAND} -E echo
      "SKIPPED: built without MPI (Debian: libopenmpi-dev)")
  endif()
  set_tests_properties(${T_NAME} PROPERTIES TIMEOUT 180 LABELS "${T_LABELS}"
    SKIP_REGULAR_EXPRESSION "SKIPPED: " PROCESSORS 2
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endfunction()
