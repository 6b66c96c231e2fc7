# FlashInfer's attention kernels (docs/flashinfer.md). Sets `flashinfer_kernels` to the source that
# launches them, or to the one that stands in for it. The emulator always has the latter.
#
# TOKAMAK_FLASHINFER           default: OFF
# TOKAMAK_FLASHINFER_SOURCES   folder with FlashInfer's include/; default: scripts/fetch-flashinfer
option(TOKAMAK_FLASHINFER "Build FlashInfer's attention too (fetches 14 MB)" OFF)
set(flashinfer_kernels flashinfer/no_kernels.cc)
if(NOT TOKAMAK_FLASHINFER OR NOT TOKAMAK_CUDA)
  return()
endif()

if(NOT TOKAMAK_FLASHINFER_SOURCES)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/fetch-flashinfer
                  OUTPUT_VARIABLE sources OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "TOKAMAK_FLASHINFER needs FlashInfer's sources; give the folder `data` of "
                        "its package with -DTOKAMAK_FLASHINFER_SOURCES=FOLDER")
  endif()
  set(TOKAMAK_FLASHINFER_SOURCES ${sources} CACHE PATH "FlashInfer's sources")
endif()
set(flashinfer_kernels flashinfer/kernels.cu)
set(includes)
foreach(folder include cccl/libcudacxx/include cccl/cub cccl/thrust spdlog/include)
  list(APPEND includes -isystem=${TOKAMAK_FLASHINFER_SOURCES}/${folder})
endforeach()
# Only this source sees them: they contain a CCCL other than the toolkit's.
set_source_files_properties(flashinfer/kernels.cu PROPERTIES COMPILE_OPTIONS "${includes}")
