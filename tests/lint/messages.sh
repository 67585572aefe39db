#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: messages.sh SOURCE_DIR [list]: what a user of a GPU can be told stands,
# with cause and cure, in docs/devices/cuda.md: of every message of the backend
# the parts between its values. `list` prints the messages.
set -u
cd "$1" || exit 2
files="backends/cuda/*.c backends/nccl/*.c kernels/cublaslt/*.c
  kernels/cudnn/*.c kernels/attention/attention_cudnn_cuda.c kernels/cuda.cuh"
doc=docs/devices/cuda.md

# One message a line: the strings of a LOONG_FAIL, LOONG_CHECK or of the reason
# why there is no device, those that follow each other as one.
messages() {
  # shellcheck disable=SC2086
  cat $files | awk '
    { sub(/\\$/, ""); text = text " " $0 }
    END {
      while (match(text, /\/\*([^*]|\*+[^*\/])*\*+\//))
        text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
      gsub(/"[ \t]*#name_[ \t]*"/, "NAME", text)
      gsub(/"[ \t]*#name_/, "NAME\"", text)
      gsub(/"[ \t]+"/, "", text)
      while (match(text, /(LOONG_FAIL|LOONG_CHECK|snprintf)[ \t]*\(/)) {
        call = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        end = index(text, ";")
        # a semicolon inside of a string does not end the call
        while (end > 0 && odd(substr(text, 1, end - 1)))
          end += index(substr(text, end + 1), ";")
        piece = substr(text, 1, end - 1)
        text = substr(text, end)
        if (call ~ /snprintf/ && piece !~ /^reason/ ||
            piece ~ /LOONG_ERR_INTERNAL/)
          continue
        while (match(piece, /"[^"]*"/)) {
          print substr(piece, RSTART + 1, RLENGTH - 2)
          piece = substr(piece, RSTART + RLENGTH)
        }
      }
    }
    function odd(s) { return gsub(/"/, "", s) % 2 }'
}

if [ "${2:-}" = list ]; then
  messages
  exit
fi
count=$(messages | wc -l)
if [ "$count" -lt 20 ]; then
  echo "messages.sh: $count messages found: it no longer reads the sources"
  exit 1
fi
missing=$(messages | awk -v doc="$doc" '
  BEGIN {
    while ((getline line < doc) > 0) text = text " " line
    gsub(/[ \t]+/, " ", text)
  }
  {
    message = $0
    gsub(/%[-.*0-9]*(ll|z)?[a-z]/, "\n")
    gsub(/NAME/, "\n")
    count = split($0, part, "\n")
    for (i = 1; i <= count; i++) {
      gsub(/^[ :;,.()]+|[ :;,.()]+$/, "", part[i])
      if (length(part[i]) > 4 && !index(text, part[i])) {
        print "  " message
        break
      }
    }
  }')
if [ -n "$missing" ]; then
  printf '%s lacks messages of the CUDA backend:\n%s\n' "$doc" "$missing"
  exit 1
fi
