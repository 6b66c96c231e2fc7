// Shared by the fuzz targets of decoders that ExecutorLimits bound. Include it in one file each.
#pragma once

#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstddef>

#include "base/check.h"
#include "step/executor_limits.h"

namespace tokamak {

inline size_t largest_allocation = 0;

// Runs `decode` and checks that it allocates in proportion to the bytes.
template <typename Decode>
auto DecodeWithinMemory(size_t bytes, Decode decode) {
  largest_allocation = 0;
  auto decoded = decode();
  // A vector that grows has room for twice its elements. The largest one is an AdmitSequence.
  CHECK(largest_allocation <= 4096 + 64 * bytes);
  return decoded;
}

// Lists may have 8 elements.
inline ExecutorLimits FuzzLimits() {
  return {.cache = {.groups = {{}}, .num_device_blocks = 8},
          .max_seqs = 8,
          .max_step_tokens = 8,
          .max_step_drafts = 8,
          .max_context = 8,
          .vocab_size = 1 << 16,
          .max_encoder_rows = 8,
          .max_step_image_rows = 8,
          .num_moe_layers = 2,
          .max_experts = 4};
}

}  // namespace tokamak

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, size_t size) {
        tokamak::largest_allocation = std::max(tokamak::largest_allocation, size);
      },
      [](const volatile void*) {});
  return 0;
}
