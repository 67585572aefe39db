# Devices of three kinds in one program: those of CUDA are simulated as well.
loong_cuda_sim_test(NAME xpu_train LABELS sim SOURCES ${xpusim}/test_train.c
  ${cudasim}/train_run.c LIBS xpusim)
target_include_directories(test_xpu_train PRIVATE ${cudasim})
xpusim_environment(xpu_train)
add_test(NAME xpu_doctor COMMAND ${xpusim}/doctor.sh ${PROJECT_BINARY_DIR})
set_tests_properties(xpu_doctor PROPERTIES LABELS "sim;cli" TIMEOUT 60)
