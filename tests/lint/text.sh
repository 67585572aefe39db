#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Rules that one expression can check; each prints its findings.
#   text.sh SOURCE_DIR
set -u
cd "$1" || exit 2
export LC_ALL=C.UTF-8
bad=0
library="src backends kernels"
code="src include backends kernels tools tests examples"

# rule MEANING: shows what stands on its input and counts it as a failure.
rule() {
  local found
  found=$(cat)
  if [ -n "$found" ]; then
    printf '%s:\n%s\n' "$1" "$found"
    bad=1
  fi
}
sources() { # expression, folders ...: in C files
  local expression=$1
  shift
  grep -rnE --include='*.[ch]' --include='*.cu' --include='*.cuh' -e "$expression" "$@"
}

sources '#include "\.\./' $code |
  rule "an include that leaves the include path"

# Kinds of devices are those that are registered.
sources '"(cuda|xpu|nccl|bkcl)"' src | grep -v '^src/registry/' |
  rule "a vendor's device by its name, outside of the registry"

# Which module wraps which library.
vendor() {
  local header=$1 where=$2
  sources "#include <$header" $code | grep -vE "^($where)" |
    rule "<$header> is included outside of ($where)"
}
vendor 'mpi\.h' 'backends/mpi/'
vendor '(oneapi/)?dnnl' 'kernels/|tools/loong_bench_floor|backends/cpu/|src/isa/isa\.c'
vendor 'hdf5' 'src/checkpoint/native/native_h5\.c'
vendor 'jansson' 'src/base/json\.c'
vendor 'yaml' 'src/recipe/tree_parse\.c'
vendor 'pcre2' 'src/data/tokenizer/'
vendor 'utf8proc' 'src/(data/tokenizer|jinja)/'
vendor '(zlib|zstd|lzma)' 'src/data/|tests/(unit/test_corpus|data/test_chat)'
vendor 'xxhash' 'src/(data|checkpoint)/'
vendor '(cuda|nccl|cublas|cudnn)' 'backends/(cuda|nccl)/|kernels/'
vendor '(immintrin|[a-z]mmintrin|arm_neon)' 'kernels/|src/base/'
vendor 'cmocka' 'tests/'

# The library reports; it does not print and does not end the process. The
# per-rank parent and the child after fork may use _exit.
sources '(^|[^_[:alnum:]>.])(exit|abort|printf|fprintf|puts|putchar|perror)\(' \
  $library | grep -vE '^src/launch/parent|^src/launch/signals' |
  rule "the library neither prints nor exits"

sources '^[[:space:]]*#[[:space:]]*(if|ifdef|ifndef|elif)' src include |
  grep -vE '^src/(base|isa)/|ifndef [A-Z0-9_]+_H$|ifdef __cplusplus' |
  grep -vE '^include/loong/status\.h:[0-9]+:#if defined\(__GNUC__\)' |
  rule "#if outside of backends/, kernels/, src/base/ and src/isa/"

sources '\<(TODO|FIXME|XXX)\>' $code | rule "unfinished work"

# Paths of somebody's machine, and addresses other than the licence's.
grep -rnIE '(^|[^[:alnum:]_.}])/(home|root|work|mnt|Users)/[[:alnum:]]' \
  --exclude=text.sh $code configs docs cmake \
  CMakeLists.txt Makefile README.md CONTRIBUTING.md 2>/dev/null |
  rule "the path of a machine"

for folder in $code; do
  if [ -d "$folder" ]; then
    find "$folder" -name '*.[ch]' -o -name '*.sh' -o -name '*.py' \
      -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh'
  fi
done | while read -r file; do
  head -3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
    echo "$file"
done | rule "no SPDX line in the first lines"

# A .c file opens with what it is for, what calls it, what to read before it.
find src kernels backends tools -name '*.c' | sort |
  xargs awk 'FNR == 2 { second = $0 }
    FNR == 3 && (second != " *" || !/^ \* [A-Za-z0-9]/) { print FILENAME }' |
  rule "no head that says what the file is for"

# Reserved in C++, and headers are C++ too.
grep -rnE --include='*.h' '\<[[:alpha:]][[:alnum:]]*__[[:alnum:]]' $code |
  rule "two underscores in a row"

exit $bad
