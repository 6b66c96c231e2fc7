# Cross-compiles for 64-bit Arm with Debian's g++-aarch64-linux-gnu, against the libraries that
# scripts/aarch64-sysroot fetches. Programs run under qemu-user; QEMU_CPU (max, for example) selects
# the processor.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# The same folder as in scripts/aarch64-sysroot.
if(DEFINED ENV{TOKAMAK_AARCH64_SYSROOT})
  set(CMAKE_SYSROOT $ENV{TOKAMAK_AARCH64_SYSROOT})
elseif("$ENV{XDG_CACHE_HOME}" MATCHES "^/")
  set(CMAKE_SYSROOT $ENV{XDG_CACHE_HOME}/tokamak/aarch64-sysroot)
else()
  set(CMAKE_SYSROOT $ENV{HOME}/.cache/tokamak/aarch64-sysroot)
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind INCLUDE LIBRARY PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT})
