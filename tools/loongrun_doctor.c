/* SPDX-License-Identifier: Apache-2.0
 *
 * loongrun --doctor: what was found, one line each, then advice. Under a
 * launcher the first process tells of the machine, every one of its binding.
 * Called by loongrun. Read loong/device.h before. */
#define _GNU_SOURCE
#include "loongrun_doctor.h"

#include <limits.h>
#include <link.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "loong/device.h"
#include "loong/exit_code.h"
#include "loong/launch.h"
#include "loong/register.h"
#include "loong/video.h"
#include "loongrun_banner.h"

static void line(const char *what, const char *value)
{
    printf("%-16s %s\n", what, value);
}

/* First line of a file, without its end; "" when there is none. */
static const char *first_line(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    text[0] = '\0';
    if (f != NULL) {
        if (fgets(text, (int)size, f) != NULL) {
            text[strcspn(text, "\n")] = '\0';
        }
        fclose(f);
    }
    return text;
}

/* ---- libraries ----------------------------------------------------------- */

/* The file behind a loaded library has its version in the name. */
static int tell_library(struct dl_phdr_info *info, size_t size, void *user)
{
    static const char *const names[] = {
        "libloong", "libdnnl", "libmpi", "libhdf5", "libgomp", "libpcre2-8",
        "libyaml", "libjansson", "libzstd", "libutf8proc", "libz", "liblzma",
        "libxxhash"};
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *base = slash != NULL ? slash + 1 : info->dlpi_name;
    char path[PATH_MAX];
    (void)size, (void)user;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t n = strlen(names[i]);
        bool named = strncmp(base, names[i], n) == 0 &&
                     (base[n] == '.' || base[n] == '_');
        if (named && realpath(info->dlpi_name, path) != NULL) {
            line("library", strrchr(path, '/') + 1);
        }
    }
    return 0;
}

/* ---- processor and memory ------------------------------------------------ */

static void tell_isa(const loong_context_t *ctx)
{
    static const char *const flags[] = {"avx2", "avx512f", "avx512_bf16",
                                        "amx_bf16"};
    char buffer[8192] = "";
    char have[256] = "";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f != NULL && fgets(buffer, sizeof(buffer), f) != NULL &&
           strncmp(buffer, "flags", 5) != 0) {
    }
    if (f != NULL) {
        fclose(f);
    }
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        char word[32];
        snprintf(word, sizeof(word), " %s ", flags[i]);
        buffer[strcspn(buffer, "\n")] = ' ';
        if (strstr(buffer, word) != NULL) {
            strcat(have, flags[i]);
            strcat(have, " ");
        }
    }
    line("processor has", have[0] != '\0' ? have : "none of avx2, avx512");
    const char *limit = getenv("ONEDNN_MAX_CPU_ISA");
    line("limited to",
         limit != NULL ? limit : "everything (ONEDNN_MAX_CPU_ISA not set)");
    const char *const ops[] = {"linear", "attention", "cross_entropy",
                               "adamw"};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        char text[1024] = "";
        const loong_kernel_t *k = NULL;
        for (int n = 0; (k = loong_find_kernel(ctx, ops[i], "cpu", n)) != NULL;
             n++) {
            size_t used = strlen(text);
            snprintf(text + used, sizeof(text) - used, "%s%s",
                     n > 0 ? " " : "", k->name);
        }
        printf("kernels          of %s: %s\n", ops[i], text);
    }
}

static void tell_memory(void)
{
    char text[256];
    char limit[64];
    struct statvfs shm;
    line("memory", first_line("/proc/meminfo", text, sizeof(text)));
    first_line("/sys/fs/cgroup/memory.max", limit, sizeof(limit));
    if (limit[0] != '\0') {
        line("memory limit", limit);
    }
    if (statvfs("/dev/shm", &shm) == 0) {
        snprintf(text, sizeof(text), "%.1f GiB free of %.1f",
                 (double)shm.f_bavail * (double)shm.f_frsize / 0x1p30,
                 (double)shm.f_blocks * (double)shm.f_frsize / 0x1p30);
        line("/dev/shm", text);
    }
    line("huge pages",
         first_line("/sys/kernel/mm/transparent_hugepage/enabled", text,
                    sizeof(text)));
    if (strstr(text, "[never]") != NULL) {
        line("advice", "transparent huge pages are off: arenas will page in "
                       "slowly; set madvise");
    }
}

/* ---- launch -------------------------------------------------------------- */

static void tell_launch(const loong_launch_t *launch)
{
    char text[1024];
    cpu_set_t set;
    snprintf(text, sizeof(text), "%s, rank %d of %d",
             launch->launcher != NULL ? launch->launcher : "none",
             launch->rank, launch->size);
    line("launcher", text);
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        int used = snprintf(text, sizeof(text), "rank %d may use cores",
                            launch->rank);
        for (int c = 0; c < CPU_SETSIZE && used < 1000; c++) {
            if (CPU_ISSET(c, &set)) {
                used += snprintf(text + used, sizeof(text) - (size_t)used,
                                 " %d", c);
            }
        }
        line("binding", text);
    }
    snprintf(text, sizeof(text),
             "%d ranks here x %d threads, %ld cores on the machine",
             launch->local_size > 0 ? launch->local_size : 1,
             omp_get_max_threads(), sysconf(_SC_NPROCESSORS_ONLN));
    line("work", text);
}

static void tell_settings(void)
{
    static const char *const names[] = {"OMP_NUM_THREADS", "OMP_PROC_BIND",
                                        "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"};
    char text[256];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        line(names[i], value != NULL ? value : "not set");
    }
    const char *policy = getenv("OMP_WAIT_POLICY");
    if (policy != NULL && strcasecmp(policy, "passive") == 0) {
        line("advice", "OMP_WAIT_POLICY=passive makes every parallel region "
                       "wait tens of microseconds: unset it");
    }
    first_line("/sys/fs/cgroup/cpu.max", text, sizeof(text));
    if (text[0] != '\0' && strncmp(text, "max", 3) != 0) {
        line("processor limit", text);
    }
}

/* Its lines, each behind the kind. */
static void tell_device(const char *kind, char *text)
{
    for (char *at = strtok(text, "\n"); at != NULL; at = strtok(NULL, "\n")) {
        printf("device           %s: %s\n", kind, at);
    }
}

/* Appends what it multiplies, what it has and what it wants. */
static void tell_caps(const loong_device_caps_t *caps, char *text, size_t size)
{
#define TEXT(name_, text_) text_,
    static const char *const features[] = {LOONG_DEVICE_FEATURES(TEXT)};
#undef TEXT
    static const char *const classes[] = {"not", "slowly", "", "by matrices"};
    const char *between = "";
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, size - used, "\nmultiplies: ");
    for (int t = 0; t < LOONG_DTYPE_COUNT && used < size; t++) {
        if (caps->rate[t] != LOONG_RATE_NONE) {
            const char *class = classes[caps->rate[t]];
            used += (size_t)snprintf(text + used, size - used, "%s%s%s%s",
                                     between, loong_dtype_name(t),
                                     class[0] != '\0' ? " " : "", class);
            between = ", ";
        }
    }
    if (between[0] == '\0' && used < size) {
        used += (size_t)snprintf(text + used, size - used, "nothing");
    }
    between = "\nhas: ";
    for (int f = 0; f < LOONG_FEATURE_COUNT && used < size; f++) {
        if (loong_caps_have(caps, f)) {
            used += (size_t)snprintf(text + used, size - used, "%s%s",
                                     between, features[f]);
            between = ", ";
        }
    }
    if (caps->align > 1 && used < size) {
        snprintf(text + used, size - used,
                 "\noperands at multiples of %zu bytes", caps->align);
    }
}

static void tell_driver(const loong_device_ops_t *ops)
{
    char text[256];
    if (ops->driver != NULL && access(ops->driver, F_OK) == 0) {
        snprintf(text, sizeof(text),
                 "a driver of %s is here (%s), but no device can be used: "
                 "docs/devices/%s.md says why and what helps",
                 ops->name, ops->driver, ops->name);
        line("advice", text);
    }
}

static void tell_devices(loong_context_t *ctx)
{
    char text[8192];
    const char *kind = NULL;
    for (int i = 0; (kind = loong_device_kind(ctx, i)) != NULL; i++) {
        loong_device_t *device = NULL;
        fflush(stdout); /* a vendor's library may end the process */
        bool found = loong_device_create(ctx, kind, 0, &device) == LOONG_OK;
        if (found) {
            loong_device_describe(device, text, sizeof(text));
            tell_caps(loong_device_caps(device), text, sizeof(text));
            loong_device_destroy(&device);
        } else {
            const char *why = strstr(loong_context_error(ctx), "no device");
            snprintf(text, sizeof(text), "%s",
                     why != NULL ? why : loong_context_error(ctx));
            text[strcspn(text, "\n")] = '\0';
            loong_context_clear_error(ctx);
        }
        tell_device(kind, text);
        if (!found) {
            tell_driver(loong_device_find_kind(ctx, kind));
        }
    }
}

int doctor(loong_context_t *ctx)
{
    loong_launch_t launch;
    char text[1024];
    loong_launch_detect(&launch);
    if (launch.rank == 0) {
        banner(stdout);
        dl_iterate_phdr(tell_library, NULL);
        line("videos", loong_video_loads()
                           ? "by libloong_video.so"
                           : "none: no libloong_video.so, docs/install.md");
        tell_isa(ctx);
        tell_memory();
        tell_devices(ctx);
        tell_settings();
    }
    tell_launch(&launch);
    loong_launch_advice(&launch, omp_get_max_threads(), text, sizeof(text));
    for (char *at = strtok(text, "\n"); at != NULL; at = strtok(NULL, "\n")) {
        line("advice", at);
    }
    return LOONG_EXIT_OK;
}
