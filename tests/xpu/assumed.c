/* SPDX-License-Identifier: Apache-2.0
 *
 * What the XPU backend assumes of the vendor's libraries (docs/devices/xpu.md),
 * asked of those that are found: LOONG_XPU_PATH, as always. Every claim is a
 * row of four columns, parted by tabs: same, DEVIATES or measured, the claim,
 * what is assumed, what was found. A claim is tried in a process of its own, so
 * that a library that crashes or hangs is a row like any other.
 *   assumed [PART]...  of values, runtime, products, speed, ranks-N; the first
 *                      three and ranks-2 when none is named
 * Exit code: 0, 1 where anything deviates. Called by run.sh. */
#include "assumed.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 20 };

loong_xpu_library_t lib;

void found(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    text[strcspn(text, "\n")] = '\0';
    printf("%s", text);
    fflush(stdout);
}

/* In the child: what it prints is what was found. */
static int try_claim(const claim_t *claim, bool loads)
{
    char why[LOONG_XPU_REASON] = "";
    alarm(SECONDS);
    if (!loads) {
        return claim->probe(claim->number) ? 0 : 1;
    }
    if (!loongi_xpu_load(&lib, why, sizeof(why))) {
        found("%s", why);
        return 1;
    }
    return claim->probe(claim->number) ? 0 : 1;
}

/* Reads all that the child says; the last words of a library are no column. */
static void read_text(int from, char *text, size_t size)
{
    size_t used = 0;
    ssize_t n = 0;
    char more[512];
    while ((n = read(from, more, sizeof(more))) > 0) {
        for (ssize_t i = 0; i < n && used + 1 < size; i++) {
            text[used++] = more[i] == '\t' || more[i] == '\n' ? ' ' : more[i];
        }
    }
    text[used] = '\0';
}

static bool tell(const claim_t *claim, bool loads, const char *verdict)
{
    char text[1024] = "";
    int ends[2];
    int status = 0;
    fflush(NULL);
    if (pipe(ends) != 0) {
        return false;
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        _exit(try_claim(claim, loads));
    }
    close(ends[1]);
    read_text(ends[0], text, sizeof(text));
    close(ends[0]);
    waitpid(child, &status, 0);
    bool same = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    size_t used = strlen(text);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
        snprintf(text + used, sizeof(text) - used,
                 "%snothing within %d s", used > 0 ? "; " : "", (int)SECONDS);
    } else if (WIFSIGNALED(status)) {
        snprintf(text + used, sizeof(text) - used, "%sended by signal %d (%s)",
                 used > 0 ? "; " : "", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else if (!same && text[0] == '\0') {
        snprintf(text, sizeof(text), "exit %d", WEXITSTATUS(status));
    }
    printf("%s\t%s\t%s\t%s\n", same ? verdict : "DEVIATES", claim->name,
           claim->assumed, text);
    return same;
}

bool tell_claim(const claim_t *claim, bool loads)
{
    return tell(claim, loads, "same");
}

bool tell_measured(const claim_t *claim)
{
    return tell(claim, true, "measured");
}

static bool run_part(const char *name)
{
    static const struct {
        const char *name;
        bool (*run)(void);
    } parts[] = {{"values", claims_of_values},
                 {"runtime", claims_of_runtime},
                 {"products", claims_of_products},
                 {"speed", claims_of_speed}};
    int ranks = 0;
    for (int i = 0; i < LOONG_COUNT_OF(parts); i++) {
        if (strcmp(parts[i].name, name) == 0) {
            return parts[i].run();
        }
    }
    if (sscanf(name, "ranks-%d", &ranks) == 1 && ranks > 1) {
        return claims_of_ranks(ranks);
    }
    fprintf(stderr, "assumed: no part '%s'\n", name);
    return false;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"", "values", "runtime", "products",
                                        "ranks-2"};
    bool same = true;
    const char *const *names =
        argc > 1 ? (const char *const *)argv : usual;
    int count = argc > 1 ? argc : (int)LOONG_COUNT_OF(usual);
    for (int i = 1; i < count; i++) {
        same = run_part(names[i]) && same;
    }
    return same ? 0 : 1;
}
