// Shared by the parts of the conformance program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ops/cuda/launch.h"

namespace tokamak::cuda {

using Words = std::vector<uint32_t>;
using Kernel = void (*)(const uint32_t* in, uint32_t* out);

constexpr unsigned kWarp = 32;
constexpr unsigned kInputWords = 4096;

struct Case {
  std::string name;
  Kernel kernel = nullptr;
  unsigned threads = 0;
  size_t shared_bytes = 0;
  std::function<Words(const Words&)> expect;
  uint32_t in_mask = 0xffffffff;  // bits that input words may have; keeps exponents small
  unsigned ctas = 1;
  CtaGroups groups = {};
  uint32_t (*make_word)(uint32_t random) = nullptr;  // makes an input word; null: takes `random`
  // If set, launched instead of `kernel`.
  std::function<cudaError_t(const uint32_t* in, uint32_t* out, cudaStream_t)> run = nullptr;
};

void AddDependentLaunchCases(std::vector<Case>& cases);
void AddTensorMapCases(std::vector<Case>& cases);
void AddWgmmaCases(std::vector<Case>& cases);

}  // namespace tokamak::cuda
