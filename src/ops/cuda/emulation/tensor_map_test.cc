// Which tensor maps the emulated driver refuses, as the driver's documentation has it.
#include "ops/cuda/emulation/tensor_map.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace tokamak::cuda::emulation {
namespace {

// Arguments of cuTensorMapEncodeTiled that are right.
struct Arguments {
  CUtensorMap map = {};
  CUtensorMap* made = &map;
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  uint32_t rank = 3;
  alignas(64) std::byte memory[64] = {};
  void* address = memory;
  uint64_t sizes[6] = {64, 5, 7, 1, 1, 1};
  uint64_t strides[5] = {128, 640, 16, 16, 16};
  uint32_t box[6] = {64, 4, 2, 1, 1, 1};
  uint32_t steps[6] = {1, 1, 1, 1, 1, 1};
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
};

CUresult Encode(const std::function<void(Arguments&)>& change) {
  Arguments a;
  change(a);
  return cuTensorMapEncodeTiled(a.made, a.type, a.rank, a.address, a.sizes, a.strides, a.box,
                                a.steps, a.interleave, a.swizzle, a.promotion, a.fill);
}

TEST(TensorMap, ArgumentsAtTheirLimitsAreTaken) {
  const std::vector<std::function<void(Arguments&)>> changes = {
      [](Arguments&) {},
      [](Arguments& a) { a.rank = 1; },
      [](Arguments& a) { a.rank = 5; },
      [](Arguments& a) { a.sizes[1] = uint64_t{1} << 32; },
      [](Arguments& a) { a.strides[1] = (uint64_t{1} << 40) - 16; },
      [](Arguments& a) { a.box[1] = 256; },
      [](Arguments& a) { a.address = a.memory + 16; },
      [](Arguments& a) {
        a.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
        a.box[0] = 8;
      },
      [](Arguments& a) {
        a.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
        a.box[0] = 16;
      },
      [](Arguments& a) {
        a.swizzle = CU_TENSOR_MAP_SWIZZLE_64B;
        a.box[0] = 32;
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) EXPECT_EQ(Encode(changes[i]), CUDA_SUCCESS) << i;
}

TEST(TensorMap, ArgumentsThatNoGpuTakesAreErrors) {
  const std::vector<std::function<void(Arguments&)>> changes = {
      [](Arguments& a) { a.made = nullptr; },
      [](Arguments& a) { a.made = reinterpret_cast<CUtensorMap*>(a.map.opaque + 4); },
      [](Arguments& a) { a.rank = 0; },
      [](Arguments& a) { a.rank = 6; },
      [](Arguments& a) { a.type = static_cast<CUtensorMapDataType>(16); },
      [](Arguments& a) { a.address = nullptr; },
      [](Arguments& a) { a.address = a.memory + 8; },
      [](Arguments& a) { a.sizes[2] = 0; },
      [](Arguments& a) { a.sizes[0] = (uint64_t{1} << 32) + 1; },
      [](Arguments& a) { a.strides[0] = 136; },
      [](Arguments& a) { a.strides[1] = uint64_t{1} << 40; },
      [](Arguments& a) { a.box[1] = 0; },
      [](Arguments& a) { a.box[2] = 257; },
      [](Arguments& a) { a.steps[1] = 0; },
      [](Arguments& a) { a.steps[2] = 9; },
      // Rows of boxes: 2 x 60 bytes are no multiple of 16, 2 x 72 are wider than the swizzle.
      [](Arguments& a) { a.box[0] = 60; },
      [](Arguments& a) { a.box[0] = 72; },
      [](Arguments& a) { a.swizzle = CU_TENSOR_MAP_SWIZZLE_64B; },
      [](Arguments& a) { a.swizzle = CU_TENSOR_MAP_SWIZZLE_32B; },
      [](Arguments& a) { a.swizzle = static_cast<CUtensorMapSwizzle>(7); },
      [](Arguments& a) { a.interleave = static_cast<CUtensorMapInterleave>(3); },
      [](Arguments& a) { a.promotion = static_cast<CUtensorMapL2promotion>(4); },
      [](Arguments& a) { a.fill = static_cast<CUtensorMapFloatOOBfill>(2); },
      [](Arguments& a) {
        a.type = CU_TENSOR_MAP_DATA_TYPE_UINT16;  // NaN is for floats
        a.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_EQ(Encode(changes[i]), CUDA_ERROR_INVALID_VALUE) << i;
  }
}

TEST(TensorMap, WhatOnlyAGpuCanDoIsNotSupported) {
  const std::vector<std::function<void(Arguments&)>> changes = {
      [](Arguments& a) { a.steps[1] = 2; },
      [](Arguments& a) { a.interleave = CU_TENSOR_MAP_INTERLEAVE_16B; },
      [](Arguments& a) { a.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B; },
      [](Arguments& a) { a.type = CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B; },
      [](Arguments& a) { a.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA; },
      [](Arguments& a) { a.box[0] = 32; },  // narrower than the swizzle
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_EQ(Encode(changes[i]), CUDA_ERROR_NOT_SUPPORTED) << i;
  }
}

}  // namespace
}  // namespace tokamak::cuda::emulation
