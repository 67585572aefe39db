# Small trainings on ranks that are threads of the test, of one thread each:
# more of them than cores would wait for each other.
function(loong_train_test name)
  loong_test(NAME train_${name} SOURCES tests/train/test_${name}.c
    tests/train/train_job.c LABELS train TIMEOUT 120)
  set_tests_properties(train_${name} PROPERTIES
    ENVIRONMENT "OMP_NUM_THREADS=1")
endfunction()
loong_train_test(params)
loong_train_test(run)
loong_train_test(report)
loong_train_test(start)
loong_train_test(midtrain)
loong_train_test(muon)
loong_train_test(data)
loong_train_test(rows)
foreach(name vision masked_image)
  loong_train_test(${name})
  target_sources(test_train_${name} PRIVATE tests/train/picture_job.c)
endforeach()
loong_train_test(ema)
loong_train_test(new_params)
loong_train_test(reference)
foreach(name lora lora_start lora_upon)
  loong_train_test(${name})
  target_sources(test_train_${name} PRIVATE tests/train/lora_job.c)
endforeach()
loong_train_test(fp8)
target_sources(test_train_fp8 PRIVATE tests/checkpoint/fp8_files.c)
target_include_directories(test_train_fp8 PRIVATE tests/checkpoint)
add_test(NAME cli_loongrun COMMAND
  ${PROJECT_SOURCE_DIR}/tests/train/loongrun.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR})
add_test(NAME cli_earlier_steps COMMAND
  ${PROJECT_SOURCE_DIR}/tests/train/earlier_steps.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR})
set_tests_properties(cli_loongrun cli_earlier_steps PROPERTIES LABELS cli
  TIMEOUT 120)
loong_test(NAME memory_available SOURCES tests/unit/test_memory_available.c LABELS unit)
if(MPI_C_FOUND)
  add_test(NAME cli_key_effects COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/key_effects.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  add_test(NAME too_large COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/too_large.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  set_tests_properties(cli_key_effects too_large PROPERTIES
    LABELS "cli;full" TIMEOUT 600
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endif()
loong_test(NAME layout_suggest SOURCES tests/train/test_layout_suggest.c
  LABELS "train;parallel")
loong_test(NAME timeline SOURCES tests/train/test_timeline.c
  LABELS "train;parallel" LIBS loong_layouts)
loong_test(NAME component_plan SOURCES tests/train/test_component_plan.c
  LABELS "train;parallel")
target_link_options(test_component_plan PRIVATE LINKER:--wrap=loong_device_alloc
  LINKER:--wrap=loong_comm_alloc_shared)
add_test(NAME cli_every_key COMMAND
  ${PROJECT_SOURCE_DIR}/tests/train/every_key.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
add_test(NAME cli_earlier_run COMMAND
  ${PROJECT_SOURCE_DIR}/tests/train/earlier_run.sh ${PROJECT_BINARY_DIR}
  ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
set(train_cli_tests cli_every_key cli_earlier_run)
if(MPI_C_FOUND)
  add_test(NAME llava_train COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/llava_train.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  add_test(NAME llava_train_long COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/llava_train.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE} all)
  set_tests_properties(llava_train_long PROPERTIES LABELS "train;full"
    TIMEOUT 5400
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  add_test(NAME vl_from_hf COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/vl_from_hf.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR})
  add_test(NAME vl_pairs COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/vl_pairs.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR})
  add_test(NAME vl_pairs_all COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/vl_pairs.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} all)
  set_tests_properties(vl_pairs_all PROPERTIES LABELS "train;full"
    TIMEOUT 3600)
  add_test(NAME vl_chat COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/vl_chat.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  add_test(NAME webdataset COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/webdataset.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR})
  add_test(NAME component_keys COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/component_keys.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  add_test(NAME component_ranks COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/component_ranks.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  add_test(NAME chat_train COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/chat_train.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  set_tests_properties(llava_train vl_from_hf vl_pairs vl_chat webdataset
    component_keys
    component_ranks chat_train
    PROPERTIES
    LABELS train TIMEOUT 120
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  add_test(NAME cli_signals COMMAND
    ${PROJECT_SOURCE_DIR}/tests/train/signals.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${MPIEXEC_EXECUTABLE})
  list(APPEND train_cli_tests cli_signals)
endif()
set_tests_properties(${train_cli_tests} PROPERTIES LABELS cli TIMEOUT 180
  PROCESSORS 2
  ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
