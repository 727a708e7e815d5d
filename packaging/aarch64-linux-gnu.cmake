# Debian's cross compiler (gcc-aarch64-linux-gnu, g++-aarch64-linux-gnu). Programs run under the static build of qemu-user: a library
# to preload into a program would be preloaded into a dynamically linked emulator first.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
