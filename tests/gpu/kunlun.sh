#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: kunlun.sh BUILD CC: on a host of Kunlun XPUs the driver's libraries are
# called libcuda and libcudart too. They must be left alone there: such ones,
# which tell when they are loaded, lie in front of others, and the host has the
# XPUs' devices or has them not.
set -u
build=$1
cc=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 1

fail() {
  printf 'FAILED: %s\n' "$1"
  cat said
  exit 1
}

cat > fake.c <<'C'
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void loaded(void)
{
    FILE *f = fopen(getenv("LOADED"), "a");
    fputs("loaded\n", f);
    fclose(f);
}
int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
C
# What /dev holds, for access().
cat > devices.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
int access(const char *path, int mode)
{
    int (*real)(const char *, int) =
        (int (*)(const char *, int))dlsym(RTLD_NEXT, "access");
    const char *device = getenv("XPU_DEVICE");
    return device != NULL && strcmp(path, device) == 0 ? 0 : real(path, mode);
}
C
mkdir lib
for name in libcuda.so.1 libcudart.so.12 libcudart.so.13; do
  "$cc" -shared -fPIC -o lib/$name fake.c || exit 1
done
"$cc" -shared -fPIC -o devices.so devices.c -ldl || exit 1

# doctor [DEVICE]: what it says of CUDA, on a host that has the device.
doctor() {
  LOADED=$place/loaded LD_LIBRARY_PATH=$place/lib LD_PRELOAD=$place/devices.so \
    XPU_DEVICE=${1:-} OMP_NUM_THREADS=1 "$build/loongrun" --doctor > said 2>&1
  grep -q 'cuda: ' said || fail "the doctor says nothing of CUDA"
}

doctor
[ -s loaded ] || fail "the made-up driver was not tried: nothing is shown"
grep -q 'Kunlun' said && fail "Kunlun XPUs where there are none"
for device in /dev/xpu0 /dev/xpuctrl; do
  rm -f loaded
  doctor $device
  [ ! -e loaded ] || fail "$device: a library of CUDA's name was loaded"
  grep -q 'libraries of this machine are those of its Kunlun XPUs' said ||
    fail "$device: the reason does not name the Kunlun XPUs"
done

# Where only the name of the device tells (the simulated device has any name).
simulated=$build/loongrun_cudasim
if [ -x "$simulated" ]; then
  CUDASIM_NAME="KUNLUN P800" "$simulated" --doctor > said 2>&1
  grep -q 'KUNLUN P800 is a Kunlun XPU' said || fail "the name of the device"
fi
