/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory there is, from files as the kernel writes them. */
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "metrics.h"
#include "test.h"

enum { MIB = 1 << 20 };
static char root[64];

/* A file below the root; its folders are made. */
static void put(loong_context_t *ctx, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", root, path);
    char *slash = strrchr(full, '/');
    *slash = '\0';
    assert_ok(ctx, loongi_dir_make(ctx, full));
    *slash = '/';
    assert_ok(ctx, loongi_file_write(ctx, full, text, strlen(text)));
}

static loong_context_t *begin(void)
{
    loong_context_t *ctx = test_context();
    snprintf(root, sizeof(root), "/tmp/loong-available-XXXXXX");
    assert_non_null(mkdtemp(root));
    put(ctx, "/proc/meminfo",
        "MemTotal:       2097152 kB\nMemFree:          10240 kB\n"
        "MemAvailable:   1048576 kB\nBuffers:             100 kB\n");
    put(ctx, "/proc/sys/kernel/random/boot_id", "a-b-c\n");
    return ctx;
}

static loong_memory_available_t measure(loong_context_t *ctx)
{
    loong_memory_available_t available;
    assert_ok(ctx, loongi_memory_available(ctx, root, &available));
    return available;
}

static void end(loong_context_t *ctx)
{
    assert_ok(ctx, loongi_dir_remove(ctx, root));
    test_context_end(&ctx);
}

static void no_groups(void **state)
{
    (void)state;
    loong_context_t *ctx = begin();
    loong_memory_available_t available = measure(ctx);
    assert_int_equal(available.bytes, 1024 * (int64_t)MIB);
    assert_string_equal(available.what, "MemAvailable");
    put(ctx, "/proc/sys/kernel/random/boot_id", "another\n");
    assert_true(measure(ctx).id != available.id);
    put(ctx, "/proc/meminfo", "MemTotal: 5 kB\n");
    assert_fails(ctx, loongi_memory_available(ctx, root, &available),
                 LOONG_ERR_IO, "no line MemAvailable");
    end(ctx);
}

/* The tightest of a group and those around it; files in the cache are free. */
static void version_2(void **state)
{
    (void)state;
    loong_context_t *ctx = begin();
    put(ctx, "/proc/self/cgroup", "0::/jobs/one\n");
    put(ctx, "/sys/fs/cgroup/memory.max", "max\n");
    put(ctx, "/sys/fs/cgroup/memory.current", "1\n");
    put(ctx, "/sys/fs/cgroup/jobs/memory.max", "524288000\n");
    put(ctx, "/sys/fs/cgroup/jobs/memory.current", "314572800\n");
    put(ctx, "/sys/fs/cgroup/jobs/memory.stat",
        "anon 7\nfile 99\ninactive_file 52428800\nactive_file 10485760\n");
    put(ctx, "/sys/fs/cgroup/jobs/one/memory.max", "max\n");
    put(ctx, "/sys/fs/cgroup/jobs/one/memory.current", "5\n");
    loong_memory_available_t available = measure(ctx);
    assert_int_equal(available.bytes, (500 - 300 + 50 + 10) * (int64_t)MIB);
    assert_non_null(strstr(available.what, "/sys/fs/cgroup/jobs/memory.max"));
    put(ctx, "/sys/fs/cgroup/jobs/one/memory.max", "1048581\n");
    loong_memory_available_t tighter = measure(ctx);
    assert_int_equal(tighter.bytes, MIB);
    assert_true(tighter.id !=
                available.id); /* siblings have available of their own */
    put(ctx, "/sys/fs/cgroup/jobs/one/memory.current", "9000000\n");
    assert_int_equal(measure(ctx).bytes, 0);
    end(ctx);
}

static void version_1(void **state)
{
    (void)state;
    loong_context_t *ctx = begin();
    put(ctx, "/proc/self/cgroup",
        "9:pids:/x\n4:cpuset,memory:/box\n1:name=systemd:/\n0::/\n");
    put(ctx, "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "9223372036854771712\n");
    put(ctx, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "99\n");
    assert_string_equal(measure(ctx).what, "MemAvailable");
    put(ctx, "/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "104857600\n");
    put(ctx, "/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "52428800\n");
    put(ctx, "/sys/fs/cgroup/memory/box/memory.stat",
        "inactive_file 1\ntotal_inactive_file 20971520\n");
    loong_memory_available_t available = measure(ctx);
    assert_int_equal(available.bytes, (100 - 50 + 20) * (int64_t)MIB);
    assert_non_null(strstr(available.what, "/box/memory.limit_in_bytes"));
    end(ctx);
}

/* This machine: what is left is below what there is. */
static void this_machine(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_memory_available_t available;
    assert_ok(ctx, loongi_memory_available(ctx, "", &available));
    assert_true(available.bytes > 0);
    assert_true((double)available.bytes < (double)sysconf(_SC_PHYS_PAGES) *
                                              (double)sysconf(_SC_PAGESIZE));
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_groups),
        cmocka_unit_test(version_2),
        cmocka_unit_test(version_1),
        cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests_name("available", tests, NULL, NULL);
}
