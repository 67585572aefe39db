#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is longer or wider than CONTRIBUTING.md allows:
#   function  lines of a function (60; kernels 100)
#   params    parameters of a function (6)
#   file      lines of a file (600; headers 300)
#   columns   lines of a file that are wider than 80 columns (0)
# sizes.allow lists the exceptions, which may only shrink: an entry above what
# is found is as wrong as a finding above its entry.
#   sizes.sh SOURCE_DIR
set -eu
cd "$1"
export LC_ALL=C.UTF-8
allow=tests/lint/sizes.allow
files=$(find src include kernels backends tools tests examples \
  \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) \
  -not -name 'unicode_table.c' | sort)

functions() {
  # shellcheck disable=SC2086
  ctags --kinds-C=f --map-C++=+.cu --map-C++=+.cuh --kinds-C++=f \
    --fields=+neS --output-format=u-ctags -o - $files |
    awk -F'\t' '/^!/ { next } {
      line = end = 0; signature = ""
      for (i = 4; i <= NF; i++) {
        if ($i ~ /^line:/) line = substr($i, 6)
        if ($i ~ /^end:/) end = substr($i, 5)
        if ($i ~ /^signature:/) signature = substr($i, 11)
      }
      limit = $2 ~ /^kernels\// ? 100 : 60
      if (end - line + 1 > limit) print "function", $2 ":" $1, end - line + 1
      # Commas inside the brackets of a parameter do not count.
      signature = substr(signature, 2, length(signature) - 2)
      while (gsub(/\([^()]*\)/, "", signature) > 0) { }
      if (gsub(/,/, ",", signature) + 1 > 6)
        print "params", $2 ":" $1, gsub(/,/, ",", signature) + 1
    }'
}

lengths() {
  for f in $files; do
    limit=600
    case $f in *.h | *.cuh) limit=300 ;; esac
    n=$(wc -l <"$f")
    if [ "$n" -gt $limit ]; then echo "file $f $n"; fi
  done
}

columns() {
  # shellcheck disable=SC2086
  grep -cP '^.{81,}$' $files | awk -F: '$2 > 0 { print "columns", $1, $2 }'
}

{ functions; lengths; columns || true; } >"${TMPDIR:-/tmp}/sizes.$$"
trap 'rm -f "${TMPDIR:-/tmp}/sizes.$$"' EXIT
awk 'FILENAME == ARGV[1] { if ($0 !~ /^#/ && NF == 3) allowed[$1 " " $2] = $3
    next }
  { key = $1 " " $2; seen[key] = 1
    if (!(key in allowed)) { bad++; print key ": found " $3 ", too much" }
    else if ($3 > allowed[key]) {
      bad++; print key ": found " $3 ", was " allowed[key] }
    else if ($3 < allowed[key]) {
      bad++; print key ": found " $3 ", lower its entry " allowed[key] } }
  END { for (key in allowed) if (!(key in seen)) {
      bad++; print key ": within the limits, remove its entry" }
    exit bad > 0 }' "$allow" "${TMPDIR:-/tmp}/sizes.$$"
