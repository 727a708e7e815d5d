#!/bin/sh
# mimalloc.sh v2|v3 - builds mimalloc's release library with its own CMake files, in the current directory.
#
# The crate lacks mimalloc's cmake/: the version is taken from the header, and files that only serve installation can be empty.
set -eu
cp -r "$crate/c_src/mimalloc/$1/." .
mkdir cmake
sed -n 's/^#define MI_MALLOC_VERSION  *\(.\)\(..\)\(..\)\b.*/\1 \2 \3/p' include/mimalloc.h | {
  read -r major minor patch
  echo "set(mi_version_major $major)"
  echo "set(mi_version $major.${minor#0})"
  echo "set(mi_version_patch ${patch#0})"
} >cmake/mimalloc-config-version.cmake
: >cmake/mimalloc-config.cmake
printf 'function(join_paths)\nendfunction()\n' >cmake/JoinPaths.cmake
cmake . -DCMAKE_BUILD_TYPE=Release -DMI_BUILD_STATIC=OFF -DMI_BUILD_OBJECT=OFF -DMI_BUILD_TESTS=OFF
cmake --build . -j "$jobs"
