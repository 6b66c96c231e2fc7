// A model of the dot products of Hopper's tensor cores, and inputs that are hard for it.
//
// The model is the one that the package mmasim describes: the products of a block and the
// accumulator are aligned to the largest exponent among them, cut off below `fraction_bits` bits,
// added exactly, and the sum is cut off to f32 (or to 13 fraction bits).
#pragma once

#include <cstdint>
#include <vector>

#include "bench/gpu_probe/element_type.h"

namespace probe {

constexpr int kStepBytes = 32;  // bytes of k that one instruction takes from each row

struct DotModel {
  const char* name;
  int fraction_bits;  // kept below the largest exponent
  int output_bits;    // fraction bits of the result: 23, or 13 for FP8 by wgmma
  enum class Split {
    kWhole,   // one block of 32 bytes
    kHalves,  // bytes 0-15, then 16-31
    // How sm_90 computes mma.sync of e4m3 (SASS: F2FP.F16.E4M3, HMMA.16816, FADD). The operands
    // become f16, where no e4m3 is subnormal. Sums start from zero: first the products of the first
    // two of every 4 bytes, then those of the last two. The accumulator is added at the end,
    // rounded to nearest.
    kPairsAsF16,
  } split;
};

// The accumulator after one instruction: the 32 bytes of k at `a` and `b`, added to `c`.
uint32_t ModelDot(Type type, const DotModel& model, const uint8_t* a, const uint8_t* b, uint32_t c);

enum class Inputs { kNormal, kWide, kCancelling, kSubnormal, kSpecial, kAnyBits };
constexpr Inputs kAllInputs[] = {Inputs::kNormal,    Inputs::kWide,    Inputs::kCancelling,
                                 Inputs::kSubnormal, Inputs::kSpecial, Inputs::kAnyBits};
const char* Name(Inputs inputs);
const char* Name(Type type);

// Rows of `bytes` bytes each. For cancelling products, every second element repeats the one
// before it, and has the other sign in one of the two operands: `negate` is true for that operand.
std::vector<uint8_t> MakeOperand(Type type, Inputs inputs, int rows, int bytes, uint64_t seed,
                                 bool negate);
// Values for the accumulator: of the size of the products, zeros, and special ones among them.
std::vector<float> MakeAccumulators(Type type, Inputs inputs, int count, uint64_t seed);

}  // namespace probe
