# Kernels that Triton compiles for GPUs while this is built (docs/triton.md). Sets `triton_kernels`
# to the source of their table. On the emulator the table is always empty.
#
# TOKAMAK_TRITON          default: OFF
# TOKAMAK_TRITON_PYTHON   a Python with triton 3.9 and numpy; default: scripts/fetch-triton
option(TOKAMAK_TRITON "Compile kernels with Triton too (fetches 300 MB)" OFF)
set(triton_kernels triton/no_kernels.cc)
if(NOT TOKAMAK_TRITON)
  return()
endif()

if(NOT TOKAMAK_TRITON_PYTHON)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/fetch-triton
                  OUTPUT_VARIABLE python OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "TOKAMAK_TRITON needs a Python with triton 3.9 and numpy; give one with "
                        "-DTOKAMAK_TRITON_PYTHON=FILE")
  endif()
  set(TOKAMAK_TRITON_PYTHON ${python} CACHE FILEPATH "A Python with triton 3.9 and numpy")
endif()
# Triton's own assembler may be newer than the driver. Where there is nvcc, its assembler is taken,
# so that these kernels need no newer driver than ours.
set(assembler)
if(TOKAMAK_CUDA)
  set(ptxas ${CUDAToolkit_BIN_DIR}/ptxas)
  set(assembler TRITON_PTXAS_PATH=${ptxas} TRITON_PTXAS_BLACKWELL_PATH=${ptxas})
endif()
set(architectures ${TOKAMAK_CUDA_ARCHITECTURES})
list(FILTER architectures INCLUDE REGEX "^sm_")  # not PTX
set(triton_kernels ${CMAKE_CURRENT_BINARY_DIR}/triton_kernels.cc)
add_custom_command(
  OUTPUT ${triton_kernels}
  COMMAND ${CMAKE_COMMAND} -E env ${assembler}
          ${TOKAMAK_TRITON_PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/compile.py ${triton_kernels}
          ${architectures}
  DEPENDS ${CMAKE_CURRENT_LIST_DIR}/add_rms_norm.py ${CMAKE_CURRENT_LIST_DIR}/compile.py
  COMMENT "Compiling kernels with Triton" VERBATIM)
add_custom_target(tokamak_triton_kernels DEPENDS ${triton_kernels})  # to build it without nvcc
if(TOKAMAK_TESTS)
  add_test(NAME triton_add_rms_norm
           COMMAND ${TOKAMAK_TRITON_PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/add_rms_norm_test.py)
endif()
