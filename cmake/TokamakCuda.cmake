# The CUDA backend, libtokamak_cuda.so (src/ops/cuda). The program is the same with or without it;
# it looks for the library at run time.
#
# TOKAMAK_CUDA                 default: ON if an NVIDIA GPU is visible and nvcc is found
# TOKAMAK_CUDA_ARCHITECTURES   e.g. "sm_80;sm_90a;compute_90": machine code for the first two, and PTX,
#                              which newer GPUs compile. Default: for the visible GPUs, else sm_90a

set(visible OFF)
if(NOT DEFINED TOKAMAK_CUDA)
  find_program(TOKAMAK_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  find_program(TOKAMAK_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(TOKAMAK_NVCC TOKAMAK_NVIDIA_SMI)
  if(NOT CMAKE_CROSSCOMPILING AND NOT TOKAMAK_SANITIZE AND TOKAMAK_NVCC AND
     (EXISTS /dev/nvidia0 OR TOKAMAK_NVIDIA_SMI))
    set(visible ON)
  endif()
endif()
option(TOKAMAK_CUDA "Build the CUDA backend (default: where a GPU and nvcc are)" ${visible})

if(TOKAMAK_CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(TOKAMAK_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
    if(NOT TOKAMAK_NVCC)
      message(FATAL_ERROR "TOKAMAK_CUDA needs nvcc: put it on the PATH, or set CUDA_HOME")
    endif()
    set(CMAKE_CUDA_COMPILER ${TOKAMAK_NVCC})
  endif()
  set(architectures "")
  find_program(TOKAMAK_NVIDIA_SMI nvidia-smi)
  if(NOT TOKAMAK_CUDA_ARCHITECTURES AND TOKAMAK_NVIDIA_SMI)
    execute_process(COMMAND ${TOKAMAK_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE capabilities OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${capabilities}")
    list(REMOVE_DUPLICATES capabilities)
    foreach(capability ${capabilities})
      string(REPLACE "." "" number ${capability})
      list(APPEND architectures sm_${number})
    endforeach()
    list(TRANSFORM architectures REPLACE "^sm_90$" "sm_90a")
  endif()
  if(NOT architectures)
    set(architectures sm_90a)
  endif()
  set(TOKAMAK_CUDA_ARCHITECTURES "${architectures}"
    CACHE STRING "GPU architectures of the CUDA backend")
  # The flags below replace CMake's variable, which cannot express "sm_90a, only machine code".
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(TOKAMAK_CUDA_GENCODE "")
  foreach(architecture ${TOKAMAK_CUDA_ARCHITECTURES})
    # Kernels for Hopper are empty in code for sm_90, which lacks wgmma, and would run there.
    if(architecture STREQUAL "sm_90" OR NOT architecture MATCHES "^(sm|compute)_[0-9]+[af]?$")
      message(FATAL_ERROR "TOKAMAK_CUDA_ARCHITECTURES has '${architecture}': name machine code as "
        "sm_80, sm_89 or, for Hopper, sm_90a, and PTX as compute_90")
    endif()
    string(REPLACE "sm_" "compute_" virtual ${architecture})
    list(APPEND TOKAMAK_CUDA_GENCODE "-gencode=arch=${virtual},code=${architecture}")
  endforeach()
  if(NOT TOKAMAK_CUDA_ARCHITECTURES STREQUAL "sm_90a")
    # Code for other GPUs leaves out the bodies of kernels for Hopper, which use these members.
    list(APPEND TOKAMAK_CUDA_GENCODE "-diag-suppress=177")
  endif()
  list(JOIN TOKAMAK_CUDA_GENCODE " " CMAKE_CUDA_FLAGS_INIT)
  enable_language(CUDA)
  # CMake 3.25 does not know CUDA 13's flags.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  if(TOKAMAK_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
endif()

# The same backend without a GPU (src/ops/cuda/emulation), for the tests. TOKAMAK_EMULATOR=ON builds
# it without them too.
if(NOT DEFINED TOKAMAK_EMULATOR)
  set(TOKAMAK_EMULATOR OFF)
  if(TOKAMAK_TESTS AND NOT CMAKE_CROSSCOMPILING)
    set(TOKAMAK_EMULATOR ON)
  endif()
endif()
