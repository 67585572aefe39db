# Recipes as they come: encodings, YAML's corners, numbers and sizes at the edge.
if(MPI_C_FOUND)
  add_test(NAME odd_recipes COMMAND
    ${PROJECT_SOURCE_DIR}/tests/cli/odd_recipes.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  set_tests_properties(odd_recipes PROPERTIES LABELS "cli;full" TIMEOUT 300
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endif()
add_test(NAME cli_edges COMMAND ${PROJECT_SOURCE_DIR}/tests/cli/edges.sh
  ${PROJECT_BINARY_DIR})
set_tests_properties(cli_edges PROPERTIES LABELS cli TIMEOUT 120)
