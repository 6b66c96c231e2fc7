# Cross-compiling for 64-bit Arm with Debian's g++-aarch64-linux-gnu. It is a check that the sources
# compile, with TOKAMAK_HEADERS_ONLY: the dependencies' headers are the same files on every Debian
# architecture (/usr/include, which the cross compiler searches too), their libraries are not here.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
