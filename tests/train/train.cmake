# Small trainings on ranks that are threads of the test.
function(loong_train_test name)
  loong_test(NAME train_${name} SOURCES tests/train/test_${name}.c
    tests/train/train_job.c LABELS train TIMEOUT 120)
endfunction()
loong_train_test(params)
loong_train_test(run)
loong_train_test(report)
