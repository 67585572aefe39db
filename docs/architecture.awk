# SPDX-License-Identifier: Apache-2.0
#
# Draws the modules of the library on floors, from what each may include:
#   awk -f docs/architecture.awk src/modules.cmake > docs/architecture.svg
# A module stands one floor above the highest that it names. An arrow that
# follows from two others is left out; those of CALLS, which give public headers
# alone, are dashed.

function add(    i, n, word, key, name, k) {
    sub(/.*loong_module\(/, "", call)
    sub(/\).*/, "", call)
    n = split(call, word, " ")
    for (i = 1; i <= n; i++) {
        if (word[i] ~ /^(NAME|DIR|PUBLIC|INSIDE|USES|CALLS|LIBS|INCLUDES|DEFINES|SOURCES)$/) {
            key = word[i]
        } else if (key == "NAME") {
            name = word[i]
            if (name in number) {
                return # another build's
            }
            module[++modules] = name
            number[name] = modules
            floor_of[modules] = 0
        } else if (key == "DIR") {
            dir[modules] = word[i]
        } else if (key == "USES" || key == "CALLS") {
            k = number[word[i]]
            kind[modules, k] = key
            if (floor_of[k] >= floor_of[modules]) {
                floor_of[modules] = floor_of[k] + 1
            }
        }
    }
    if (floor_of[modules] > top) {
        top = floor_of[modules]
    }
    on[floor_of[modules], ++count[floor_of[modules]]] = modules
    call = ""
}

# Is b reached from a over more than one arrow?
function follows(a, b,    m) {
    for (m = b + 1; m < a; m++) {
        if ((a, m) in kind && reaches(m, b)) {
            return 1
        }
    }
    return 0
}

function reaches(a, b,    m) {
    if (!((a, b) in known)) {
        known[a, b] = (a, b) in kind
        for (m = b + 1; m < a && !known[a, b]; m++) {
            known[a, b] = (a, m) in kind && reaches(m, b)
        }
    }
    return known[a, b]
}

# Orders a floor by where what its modules name stands.
function place(f,    i, j, k, m, sum, n, want) {
    for (i = 1; i <= count[f]; i++) {
        m = on[f, i]
        sum = n = 0
        for (k = 1; k < m; k++) {
            if ((m, k) in kind && !follows(m, k)) {
                sum += x[k]
                n++
            }
        }
        want[m] = n > 0 ? sum / n : WIDTH / 2
    }
    for (i = 2; i <= count[f]; i++) {
        m = on[f, i]
        for (j = i - 1; j >= 1 && want[on[f, j]] > want[m]; j--) {
            on[f, j + 1] = on[f, j]
        }
        on[f, j + 1] = m
    }
    for (i = 1; i <= count[f]; i++) {
        x[on[f, i]] = WIDTH * (2 * i - 1) / (2 * count[f])
        y[on[f, i]] = 30 + (top - f) * FLOOR
    }
}

/^ *loong_module\(/ { call = $0; open = 1 }
open && !/^ *loong_module\(/ { call = call " " $0 }
open && /\)[ ]*$/ { open = 0; add() }

END {
    WIDTH = 1120; FLOOR = 84; W = 122; H = 40
    for (f = 0; f <= top; f++) {
        place(f)
    }
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" " \
        "font-family=\"sans-serif\" text-anchor=\"middle\">\n", WIDTH, (top + 1) * FLOOR
    print "<!-- made by docs/architecture.awk of src/modules.cmake -->"
    print "<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" " \
        "markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">" \
        "<path d=\"M0 0L8 4L0 8z\" fill=\"#567\"/></marker></defs>"
    print "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    for (m = 1; m <= modules; m++) {
        for (k = 1; k < m; k++) {
            if ((m, k) in kind && !follows(m, k)) {
                printf "<path d=\"M%d %dC%d %d %d %d %d %d\" fill=\"none\" " \
                    "stroke=\"#89a\"%s marker-end=\"url(#a)\"/>\n",
                    x[m], y[m] + H, x[m], y[m] + H + 30, x[k], y[k] - 30,
                    x[k], y[k],
                    kind[m, k] == "CALLS" ? " stroke-dasharray=\"4 3\"" : ""
            }
        }
    }
    for (m = 1; m <= modules; m++) {
        printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" " \
            "fill=\"%s\" stroke=\"#567\"/>\n", x[m] - W / 2, y[m], W, H,
            dir[m] ~ /^src/ ? "#eef4fa" : "#faf3e4"
        printf "<text x=\"%d\" y=\"%d\" font-size=\"14\">%s</text>\n",
            x[m], y[m] + 17, module[m]
        printf "<text x=\"%d\" y=\"%d\" font-size=\"9\" fill=\"#567\">%s</text>\n",
            x[m], y[m] + 32, dir[m]
    }
    print "</svg>"
}
