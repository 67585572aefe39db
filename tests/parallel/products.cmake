# Products beside the collectives of tensor parallel ranks.
loong_test(NAME products LABELS parallel TIMEOUT 300
  SOURCES tests/parallel/test_products.c tests/parallel/layout_run.c
  LIBS loong_layouts)
set_tests_properties(products PROPERTIES
  ENVIRONMENT "OMP_NUM_THREADS=1")
loong_test(NAME product_graphs LABELS parallel
  SOURCES tests/parallel/test_product_graphs.c)
if(MPI_C_FOUND)
  add_test(NAME products_mpi COMMAND
    ${PROJECT_SOURCE_DIR}/tests/parallel/products_mpi.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  set_tests_properties(products_mpi PROPERTIES LABELS parallel TIMEOUT 300
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endif()
