#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone, as C11 and as C++17; public ones with nothing but
# include/ in the path.
#   headers.sh SOURCE_DIR CC CXX INCLUDE_DIR:INCLUDE_DIR... SYSTEM_DIR:...
set -u
cd "$1" || exit 2
cc=$2
cxx=$3
internal=()
IFS=: read -ra dirs <<<"$4"
for dir in "${dirs[@]}"; do internal+=(-I "$dir"); done
IFS=: read -ra dirs <<<"$5"
for dir in "${dirs[@]}"; do
  if [ -n "$dir" ]; then internal+=(-isystem "$dir"); fi
done
flags=(-fsyntax-only -Wall -Wextra -Werror -fopenmp
  -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE)
# A static inline helper that nobody calls is no fault of a header; C++ wants
# every member of a static table spelled out.
# Kernel headers are compiled once for each level of instructions.
flags+=(-DLOONG_ISA=base)
flags+=(-Wno-unused-function -Wno-unused-const-variable -Wno-unused-variable)
bad=0
read=$(mktemp)
trap 'rm -f "$read"' EXIT
headers=() # of a folder, so far
check() { # header, include flags ...
  local header=$1
  shift
  echo "#include \"$header\"" |
    "$cc" -std=c11 "${flags[@]}" "$@" -MD -MF "$read" -x c - 2>&1 ||
    { echo "$header does not compile alone as C11"; return 1; }
  # Bodies of kernels, compiled for each level of instructions, are C only;
  # all of them are written with kernels/vec.h.
  grep -q 'kernels/vec\.h' "$read" || headers+=("$header")
}
# That each has what it needs in C is known by then: those of a folder are
# compiled together, and one by one where they do not go together or, in the
# long list, HEADERS_ALONE is set.
check_cxx() { # include flags ...
  local header all=("${headers[@]}")
  headers=()
  [ ${#all[@]} -gt 0 ] || return 0
  if [ -z "${HEADERS_ALONE:-}" ] && printf '#include "%s"\n' "${all[@]}" |
    "$cxx" -std=c++17 "${flags[@]}" "$@" -x c++ - >/dev/null 2>&1; then
    return 0
  fi
  local failed=0
  for header in "${all[@]}"; do
    echo "#include \"$header\"" |
      "$cxx" -std=c++17 "${flags[@]}" "$@" -x c++ - 2>&1 ||
      { echo "$header does not compile alone as C++17"; failed=1; }
  done
  return $failed
}
for header in include/loong/*.h; do
  check "$PWD/$header" -I include || bad=1
done
check_cxx -I include || bad=1
while read -r folder; do
  for header in "$folder"/*.h; do
    check "$PWD/$header" "${internal[@]}" || bad=1
  done
  check_cxx "${internal[@]}" || bad=1
done < <(find src kernels backends -name '*.h' -printf '%h\n' | sort -u)
exit $bad
