#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: sanitize.sh BUILD SOURCE: the tests of one process under
# AddressSanitizer, with leaks, and UndefinedBehaviorSanitizer.
set -u
build=$1
source=$2
cmake -S "$source" -B "$build" -G Ninja -DLOONG_MPI=OFF \
    -DLOONG_SANITIZE=address,undefined >/dev/null || exit 1
cmake --build "$build" | tail -n 3
[ "${PIPESTATUS[0]}" = 0 ] || exit 1
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
# without those that measure memory, of which a sanitizer takes its own
ctest --test-dir "$build" -L '^(unit|ops|fuzz|planner|engine)$' -LE full \
    -E '^memory_' --output-on-failure
