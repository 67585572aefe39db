#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Outside of families, data and hub files no identifier and no text says
# foundation, token or lm where a component, a row, an item or a loss is meant.
# words.allow has the exceptions; one that nothing needs is an error as well.
#   words.sh SOURCE_DIR
set -u
cd "$1" || exit 2
find src include kernels backends tools \
  -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort |
  grep -vE '^src/(model|data|checkpoint/huggingface)/|/tokenizer' |
  xargs awk '
    FILENAME == ARGV[1] { # word, files, reason
        if ($0 ~ /^#|^$/) {
            next
        }
        if (NF < 4) {
            print FILENAME ":" FNR ": an entry without reason"
            bad = 1
        }
        word[++n] = "^(" $1 ")$"
        file[n] = "^(" $2 ")"
        line[n] = FNR
        next
    }
    FNR == 1 {
        comment = 0
    }
    {
        text = $0
        if (comment) {
            if (!sub(/^.*\*\//, "", text)) {
                next
            }
            comment = 0
        }
        gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", text)
        comment = sub(/\/\*.*/, "", text)
        sub(/(^|[^:])\/\/.*/, "", text)
        while (match(text, /[A-Za-z0-9_]+/)) {
            check(tolower(substr(text, RSTART, RLENGTH)))
            text = substr(text, RSTART + RLENGTH)
        }
    }
    function check(w,    i, known) {
        if (w !~ /foundation|token/ && w !~ /(^|_)lm(_|$)/) {
            return
        }
        for (i = 1; i <= n; i++) {
            if (w ~ word[i] && FILENAME ~ file[i]) {
                used[i] = known = 1
            }
        }
        if (!known) {
            print FILENAME ":" FNR ": " w
            bad = 1
        }
    }
    END {
        for (i = 1; i <= n; i++) {
            if (!used[i]) {
                print "tests/lint/words.allow:" line[i] ": nothing needs it"
                bad = 1
            }
        }
        exit bad
    }' tests/lint/words.allow
