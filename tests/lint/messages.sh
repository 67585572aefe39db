#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: messages.sh SOURCE_DIR [list]: what a user of a GPU can be told stands,
# with cause and cure, in docs/devices/cuda.md: of every message of the backends
# and kernels, and of those of src that speak of devices, the parts between its
# values. `list` prints the messages.
set -u
cd "$1" || exit 2
own="backends/cuda/*.c backends/nccl/*.c backends/staged/*.c
  src/device/device_error.c src/plan/devices.c kernels/cublaslt/algorithms.c
  kernels/*.cuh kernels/*/*.cuh kernels/*/*_cuda.c kernels/*/*_cuda.cu"
devices="[Dd]evice|GPU|CUDA|cuda|NCCL|cuDNN|tf32|captured|no graphs"
doc=docs/devices/cuda.md

# One message a line: the strings of an error, of a note to one, of a warning, of
# what a kernel refuses, of an error in data or of the reason why there is no
# device; those that follow each other as one, a name between them is a value.
messages() { # FILE...
  awk '
    FNR == 1 { scan(); text = "" }
    { sub(/\\$/, ""); text = text " " $0 }
    END { scan() }
    function scan(    call, end, piece) {
      while (match(text, /\/\*([^*]|\*+[^*\/])*\*+\//))
        text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
      gsub(/"[ \t]*#name_[ \t]*"/, "NAME", text)
      gsub(/"[ \t]*#name_/, "NAME\"", text)
      gsub(/"[ \t]+[A-Z_][A-Z_0-9a-z]*[ \t]+"/, "NAME", text)
      gsub(/"[ \t]+"/, "", text)
      while (match(text,
          /(LOONG_FAIL|LOONG_CHECK|loongi_error_note|loongi_log|refuse|snprintf)[ \t]*\(/)) {
        call = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        end = index(text, ";")
        # a semicolon inside of a string does not end the call
        while (end > 0 && odd(substr(text, 1, end - 1)))
          end += index(substr(text, end + 1), ";")
        piece = substr(text, 1, end - 1)
        text = substr(text, end)
        if (call ~ /snprintf/ && !is_told(piece) ||
            call ~ /loongi_log/ && piece !~ /LOONG_LOG_WARN/ ||
            piece ~ /LOONG_ERR_INTERNAL/)
          continue
        while (match(piece, /"[^"]*"/)) {
          print substr(piece, RSTART + 1, RLENGTH - 2)
          piece = substr(piece, RSTART + RLENGTH)
        }
      }
    }
    function is_told(piece) {
      return piece ~ /^(reason|s->why)/ ||
        FILENAME ~ /device_error/ && piece ~ /^text/
    }
    function odd(s) { return gsub(/"/, "", s) % 2 }' "$@"
}
all() {
  # shellcheck disable=SC2086
  messages $own
  messages src/*/*.c src/*/*/*.c | grep -E "$devices"
}

if [ "${2:-}" = list ]; then
  all
  exit
fi
count=$(all | wc -l)
if [ "$count" -lt 120 ]; then
  echo "messages.sh: $count messages found: it no longer reads the sources"
  exit 1
fi
missing=$(all | awk -v doc="$doc" '
  BEGIN {
    while ((getline line < doc) > 0) text = text " " line
    gsub(/[ \t]+/, " ", text)
  }
  {
    message = $0
    gsub(/%[-.*0-9]*(ll|z)?[a-z]|%?NAME/, "\n")
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
  printf '%s lacks messages of GPUs:\n%s\n' "$doc" "$missing"
  exit 1
fi
