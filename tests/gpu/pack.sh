#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Packs the host libraries that the build needs, with their headers and what
# they load, into one archive, for a machine with a GPU that lacks them and has
# no network: tests/gpu/run.sh --libraries FILE.
#
#   tests/gpu/pack.sh FILE.tar.xz
#
# To be run where `make deps` did its work; the other machine's C library must
# be at least as new. MPI stays behind: run.sh uses one GPU.
set -euo pipefail
out=${1:?usage: tests/gpu/pack.sh FILE.tar.xz}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/include" "$work/lib/pkgconfig" "$work/bin"

packages="libdnnl-dev libyaml-dev libjansson-dev libpcre2-dev libutf8proc-dev
  libzstd-dev zlib1g-dev liblzma-dev libxxhash-dev libcmocka-dev libhdf5-dev
  libjpeg62-turbo-dev libpng-dev libwebp-dev libarchive-dev"
lib=$(gcc -print-multiarch)
for package in $packages; do
  dpkg -L "$package" | while read -r file; do
    case $file in
    /usr/include/hdf5/serial/*.h) cp "$file" "$work/include/" ;;
    /usr/include/hdf5/*) ;;
    /usr/include/*.h | /usr/include/*.hpp)
      to=$work/include/${file#/usr/include/}
      to=${to/$lib\//}
      mkdir -p "${to%/*}"
      cp "$file" "$to" ;;
    esac
  done
done

# A library under the name that a linker asks for, and all that it loads but
# the C library and the compiler's own.
take() { # NAME PATH
  cp -L "$2" "$work/lib/$1"
  ldd "$2" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' |
    while read -r name path; do
      case $name in
      libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | \
      libresolv.so.* | libgcc_s.so.* | libstdc++.so.* | libgomp.so.* | \
      ld-linux*) ;;
      *) test -e "$work/lib/$name" || cp -L "$path" "$work/lib/$name" ;;
      esac
    done
}
for name in dnnl yaml jansson pcre2-8 utf8proc zstd z lzma xxhash cmocka hdf5 \
  jpeg png16 webp; do
  path=/usr/lib/$lib/lib$name.so
  test "$name" != hdf5 || path=/usr/lib/$lib/hdf5/serial/libhdf5.so
  soname=$(objdump -p "$path" | awk '$1 == "SONAME" {print $2}')
  take "$soname" "$path"
  ln -sf "$soname" "$work/lib/lib$name.so"
done

describe() { # MODULE LIBRARY
  cat > "$work/lib/pkgconfig/$1.pc" << PC
Name: $1
Description: $1
Version: $(pkg-config --modversion "$1")
Libs: -L\${pcfiledir}/.. -l$2
Cflags: -I\${pcfiledir}/../../include
PC
}
describe hdf5 hdf5
describe libjpeg jpeg
describe libpng png16
describe libwebp webp
describe libarchive archive # its headers: the library is loaded when used

# Tools that a bare machine may lack.
for tool in ninja pkgconf; do
  path=$(command -v $tool) || { echo "pack.sh: $tool is not installed" >&2
    exit 1; }
  cp -L "$path" "$work/bin/"
  ldd "$path" | awk '$1 ~ /^libpkgconf/ {print $1, $3}' |
    while read -r name from; do cp -L "$from" "$work/lib/$name"; done
done
# It alone wants a library of these: they shall not stand in front of others'.
cat > "$work/bin/pkg-config" <<'TOOL'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH=$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
  exec "$here/pkgconf" "$@"
TOOL
chmod +x "$work/bin/pkg-config"
tar -C "$work" -cJf "$out" include lib bin
echo "$out: $(du -h "$out" | cut -f1)"
