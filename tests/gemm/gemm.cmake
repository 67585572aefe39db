# Matrix products: how a device's are chosen and remembered.
loong_test(NAME algorithms SOURCES tests/gemm/test_algorithms.c LABELS unit)
if(COMMAND loong_cuda_sim_test)
  loong_cuda_sim_test(NAME cuda_gemm LABELS sim
    SOURCES ${PROJECT_SOURCE_DIR}/tests/gemm/test_cuda_gemm.c)
  target_compile_definitions(test_cuda_gemm PRIVATE
    LOONG_CUBLASLT_WORKSPACE=4096) # as the kernels have it there
  target_link_options(test_cuda_gemm PRIVATE LINKER:--wrap=dlopen)
  loong_cuda_sim_test(NAME cuda_fuse_products LABELS sim
    SOURCES ${PROJECT_SOURCE_DIR}/tests/gemm/test_fuse_products.c)
  loong_cuda_sim_test(NAME cuda_gemm_train LABELS sim
    SOURCES ${PROJECT_SOURCE_DIR}/tests/gemm/test_gemm_train.c
    ${cudasim}/train_run.c)
endif()
