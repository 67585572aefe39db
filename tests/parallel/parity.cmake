# Random layouts against one rank: a few every day, more in the long tests.
foreach(model qwen gpt moe latent absorbed minimax)
  set(recipe ${PROJECT_SOURCE_DIR}/tests/parallel/parity_${model}.yaml)
  add_test(NAME parity_${model} COMMAND loong-bench parity ${recipe}
    --layouts 2 --steps 4 --ranks 6 --seed 1)
  set_tests_properties(parity_${model} PROPERTIES LABELS parallel TIMEOUT 300)
  add_test(NAME parity_${model}_long COMMAND loong-bench parity ${recipe}
    --layouts 40 --steps 100 --ranks 16 --seed 2)
  set_tests_properties(parity_${model}_long PROPERTIES
    LABELS "parallel;full" TIMEOUT 7200)
endforeach()
