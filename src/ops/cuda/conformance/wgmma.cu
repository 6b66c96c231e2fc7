// wgmma in all its forms: element types, widths, layouts of the operands, a in registers.
#include <cstring>
#include <string>

#include "ops/cuda/conformance/conformance.h"
#include "ops/cuda/emulation/tensor_core_arithmetic.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

using emulation::ElementType;

constexpr unsigned kThreads = 4 * kWarp;
constexpr unsigned kM = 64;
constexpr unsigned kTiles = 3;  // along k
constexpr unsigned kProductBytes = 32;

enum class B { kAlongK, kAlongN };
enum class A { kShared, kRegisters };
enum class Start { kZero, kSums };

// A product [64, k] times [k, kN], in tiles along k, which take turns in two buffers.
template <ElementType kElement, unsigned kWidth, int kSwizzle, B kOrder = B::kAlongK,
          A kPlace = A::kShared, Start kFrom = Start::kSums>
struct Form {
  static constexpr ElementType kType = kElement;
  static constexpr unsigned kN = kWidth;
  static constexpr int kSpan = kSwizzle;
  static constexpr bool kTransposedB = kOrder == B::kAlongN;
  static constexpr bool kFromRegisters = kPlace == A::kRegisters;
  static constexpr bool kFromZero = kFrom == Start::kZero;
  static constexpr unsigned kPerWord = emulation::Is8Bit(kType) ? 4 : 2;
  static constexpr unsigned kDepth = kSpan == 0 ? 64 : kSpan;  // bytes along k of a tile
  static constexpr unsigned kProducts = kDepth / kProductBytes;
  static constexpr unsigned kRowWords = kTiles * kDepth / 4;  // of a whole operand
};

template <typename F>
struct Buffers {
  uint8_t a[2][kM * F::kDepth];
  uint8_t b[2][F::kN * F::kDepth];
};

// Returns word `word` along k of a row of a (matrix 0) or of a column of b (matrix 1).
__host__ __device__ inline uint32_t OperandWord(const uint32_t* in, unsigned matrix, unsigned row,
                                                unsigned word) {
  return in[(97 * row + word + 1543 * matrix) % kInputWords];
}
__host__ __device__ inline float FirstSum(const uint32_t* in, unsigned row, unsigned column) {
  return static_cast<float>((in[(131 * row + column) % kInputWords] >> 8) % 64);
}

// Returns where byte `at` of a row lies in a tile of `row_groups` groups of 8 rows, each row of
// `row_pieces` pieces of 16 bytes. Written from the figures in the PTX manual, independently of the
// emulator.
template <typename F>
__device__ unsigned PlaceOf(unsigned row, unsigned at, unsigned row_groups, unsigned row_pieces,
                            bool is_along_k) {
  const unsigned chunk = at / 16, in_chunk = at % 16;
  if constexpr (F::kSpan == 0) {
    // Pieces that are neighbours along k are neighbours in memory.
    const unsigned piece = is_along_k ? row / 8 * row_pieces + chunk : chunk * row_groups + row / 8;
    return piece * 128 + row % 8 * 16 + in_chunk;
  } else {
    constexpr unsigned kChunks = F::kSpan / 16;
    const unsigned moved = (chunk % kChunks) ^ (row % 8 / (8 / kChunks));
    const unsigned strip = at / F::kSpan;
    return (strip * row_groups * 8 + row) * F::kSpan + moved * 16 + in_chunk;
  }
}

// Stores a tile of both operands with plain stores.
template <typename F>
__device__ void StoreTile(const uint32_t* in, unsigned tile, uint8_t* a, uint8_t* b) {
  constexpr unsigned kWords = F::kDepth / 4;
  for (unsigned i = threadIdx.x; i < kM * kWords; i += kThreads) {
    const unsigned row = i / kWords, word = i % kWords;
    const uint32_t value = OperandWord(in, 0, row, tile * kWords + word);
    std::memcpy(a + PlaceOf<F>(row, word * 4, kM / 8, F::kDepth / 16, true), &value, 4);
  }
  for (unsigned i = threadIdx.x; i < F::kN * kWords; i += kThreads) {
    const unsigned column = i / kWords, word = i % kWords;
    const uint32_t value = OperandWord(in, 1, column, tile * kWords + word);
    if constexpr (F::kTransposedB) {
      for (unsigned half = 0; half < 2; ++half) {
        const auto element = static_cast<uint16_t>(value >> 16 * half);
        std::memcpy(b + PlaceOf<F>(word * 2 + half, column * 2, kWords / 4, F::kN / 8, false),
                    &element, 2);
      }
    } else {
      std::memcpy(b + PlaceOf<F>(column, word * 4, F::kN / 8, F::kDepth / 16, true), &value, 4);
    }
  }
}

// Returns the descriptor of the part of a tile that one product multiplies.
template <typename F>
__device__ uint64_t Describe(const uint8_t* tile, unsigned product, bool transposed) {
  constexpr int kDepth = F::kDepth, kSpan = F::kSpan;
  const int i = static_cast<int>(product);
  if (transposed) {  // kDepth / 2 rows along k, of which a product takes 16
    return kSpan == 0
               ? ptx::DescribeTile(tile + i * 256, 0, 128, kDepth / 16 * 128)
               : ptx::DescribeTile(tile + i * 16 * kSpan, kSpan, kDepth / 2 * kSpan, 8 * kSpan);
  }
  return kSpan == 0 ? ptx::DescribeTile(tile + i * 256, 0, 128, kDepth / 16 * 128)
                    : ptx::DescribeTile(tile + i * 32, kSpan, 16, 8 * kSpan);
}

template <typename F, typename OperandA>
__device__ void Multiply(float (&sums)[F::kN / 2], const OperandA& a, uint64_t b, bool accumulate) {
  if constexpr (F::kType == ElementType::kBf16) {
    ptx::WarpgroupMultiplyBf16<F::kTransposedB>(sums, a, b, accumulate);
  } else if constexpr (F::kType == ElementType::kF16) {
    ptx::WarpgroupMultiplyF16<F::kTransposedB>(sums, a, b, accumulate);
  } else {
    ptx::WarpgroupMultiplyE4m3(sums, a, b, accumulate);
  }
}

template <typename F>
__global__ void __launch_bounds__(kThreads) WgmmaKernel(const uint32_t* in, uint32_t* out) {
  DYNAMIC_SHARED(aligned, SwizzleAligned);
  auto* const memory = reinterpret_cast<Buffers<F>*>(aligned);
  const unsigned g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const unsigned first_row = threadIdx.x / kWarp * 16;
  float sums[F::kN / 2];
#pragma unroll
  for (unsigned i = 0; i < F::kN / 2; ++i) {
    sums[i] = FirstSum(in, first_row + g + i / 2 % 2 * 8, i / 4 * 8 + 2 * t + i % 2);
  }
  uint32_t fragments[kTiles * F::kProducts][4];
#pragma unroll
  for (unsigned p = 0; F::kFromRegisters && p < kTiles * F::kProducts; ++p) {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      fragments[p][i] = OperandWord(in, 0, first_row + g + i % 2 * 8, p * 8 + i / 2 * 4 + t);
    }
    ptx::PinRegisters(fragments[p]);
  }
#pragma unroll
  for (unsigned tile = 0; tile < kTiles; ++tile) {
    const uint8_t *a = memory->a[tile % 2], *b = memory->b[tile % 2];
    StoreTile<F>(in, tile, memory->a[tile % 2], memory->b[tile % 2]);
    ptx::FenceAsyncProxy();
    __syncthreads();
    if (tile == 0) ptx::PinRegisters(sums);
    ptx::FenceRegisters();
#pragma unroll
    for (unsigned i = 0; i < F::kProducts; ++i) {
      const uint64_t b_descriptor = Describe<F>(b, i, F::kTransposedB);
      const bool accumulate = !F::kFromZero || tile > 0 || i > 0;
      if constexpr (F::kFromRegisters) {
        Multiply<F>(sums, fragments[tile * F::kProducts + i], b_descriptor, accumulate);
      } else {
        Multiply<F>(sums, Describe<F>(a, i, false), b_descriptor, accumulate);
      }
    }
    ptx::CommitProducts();
    ptx::WaitForProducts<1>();  // the next tile overwrites the one before this
    __syncthreads();
  }
  ptx::WaitForProducts<0>();
  ptx::PinRegisters(sums);
#pragma unroll
  for (unsigned i = 0; i < F::kN / 2; ++i)
    out[i * kThreads + threadIdx.x] = __float_as_uint(sums[i]);
}

// Sums [64, kN] as the kernel leaves them.
template <typename F>
Words InOrderOfThreads(const std::vector<float>& sums) {
  Words out(sums.size());
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    for (unsigned i = 0; i < F::kN / 2; ++i) {
      const unsigned row = thread / kWarp * 16 + thread % kWarp / 4 + i / 2 % 2 * 8;
      const unsigned column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      std::memcpy(&out[i * kThreads + thread], &sums[row * F::kN + column], 4);
    }
  }
  return out;
}

struct Operands {
  Words a, b;  // rows of a and columns of b, along k
  std::vector<float> sums;
};
template <typename F>
Operands MakeOperands(const Words& in) {
  Operands made;
  for (unsigned row = 0; row < kM; ++row) {
    for (unsigned w = 0; w < F::kRowWords; ++w) made.a.push_back(OperandWord(in.data(), 0, row, w));
    for (unsigned column = 0; column < F::kN; ++column) {
      made.sums.push_back(F::kFromZero ? 0 : FirstSum(in.data(), row, column));
    }
  }
  for (unsigned n = 0; n < F::kN; ++n) {
    for (unsigned w = 0; w < F::kRowWords; ++w) made.b.push_back(OperandWord(in.data(), 1, n, w));
  }
  return made;
}

// Returns the expected sums, computed from whole matrices with the model of the tensor cores'
// arithmetic.
template <typename F>
Words ExpectWgmma(const Words& in) {
  Operands given = MakeOperands<F>(in);
  const ptrdiff_t row_elements = F::kRowWords * F::kPerWord;
  for (unsigned word = 0; word < F::kRowWords; word += 8) {
    emulation::MultiplyAccumulate(
        emulation::Instruction::kWgmma, emulation::Arithmetic::kHopper,
        {kM, F::kN, 8 * F::kPerWord},
        {.elements = &given.a[word], .type = F::kType, .row_stride = row_elements},
        {.elements = &given.b[word],
         .type = F::kType,
         .row_stride = 1,
         .column_stride = row_elements},
        given.sums.data());
  }
  return InOrderOfThreads<F>(given.sums);
}

// The same for elements whose products and sums are exact (0, ±1, ±2 and ±3), computed in double
// from a table of their values.
constexpr double kExact[] = {0, 1, 2, 3, -0.0, -1, -2, -3};
template <typename F>
uint32_t ExactElement(unsigned i) {
  constexpr uint32_t kBf16[] = {0, 0x3f80, 0x4000, 0x4040};
  constexpr uint32_t kF16[] = {0, 0x3c00, 0x4000, 0x4200};
  constexpr uint32_t kE4m3[] = {0, 0x38, 0x40, 0x44};
  const uint32_t* const table = F::kType == ElementType::kBf16  ? kBf16
                                : F::kType == ElementType::kF16 ? kF16
                                                                : kE4m3;
  return table[i % 4] | (i >= 4 ? 1u << (32 / F::kPerWord - 1) : 0);
}
template <typename F>
uint32_t ExactWord(uint32_t random) {
  uint32_t word = 0;
  for (unsigned i = 0; i < F::kPerWord; ++i) {
    word |= ExactElement<F>(random >> (3 * i) & 7) << (32 / F::kPerWord * i);
  }
  return word;
}
template <typename F>
double ExactValue(const Words& words, unsigned index) {
  constexpr unsigned kBits = 32 / F::kPerWord;
  const uint32_t element =
      words[index / F::kPerWord] >> (index % F::kPerWord * kBits) & ((1u << kBits) - 1);
  unsigned i = 0;
  while (ExactElement<F>(i) != element) ++i;
  return kExact[i];
}
template <typename F>
Words ExpectExact(const Words& in) {
  Operands given = MakeOperands<F>(in);
  constexpr unsigned kK = F::kRowWords * F::kPerWord;
  for (unsigned row = 0; row < kM; ++row) {
    for (unsigned column = 0; column < F::kN; ++column) {
      float& result = given.sums[row * F::kN + column];
      double sum = result;
      for (unsigned k = 0; k < kK; ++k) {
        sum += ExactValue<F>(given.a, row * kK + k) * ExactValue<F>(given.b, column * kK + k);
      }
      result = static_cast<float>(sum);
    }
  }
  return InOrderOfThreads<F>(given.sums);
}

template <typename F>
void Add(std::vector<Case>& cases) {
  std::string name = "wgmma ";
  name += F::kType == ElementType::kBf16 ? "bf16" : F::kType == ElementType::kF16 ? "f16" : "e4m3";
  name += " n " + std::to_string(F::kN) + ", swizzle " + std::to_string(F::kSpan);
  if (F::kTransposedB) name += ", b along n";
  if (F::kFromRegisters) name += ", a in registers";
  Case added = {name, WgmmaKernel<F>, kThreads, sizeof(Buffers<F>), ExpectWgmma<F>};
  added.in_mask = emulation::Is8Bit(F::kType) ? 0xbfbfbfbf : 0xbfffbfff;
  cases.push_back(added);
  added.name += ", exact";
  added.expect = ExpectExact<F>;
  added.in_mask = 0xffffffff;
  added.make_word = ExactWord<F>;
  cases.push_back(added);
}

}  // namespace

void AddWgmmaCases(std::vector<Case>& cases) {
  constexpr auto kBf16 = ElementType::kBf16;
  constexpr auto kF16 = ElementType::kF16;
  constexpr auto kE4m3 = ElementType::kE4m3;
  Add<Form<kBf16, 16, 0>>(cases);
  Add<Form<kBf16, 8, 32>>(cases);
  Add<Form<kBf16, 256, 64>>(cases);
  Add<Form<kF16, 128, 128, B::kAlongK, A::kShared, Start::kZero>>(cases);
  Add<Form<kE4m3, 64, 0>>(cases);
  Add<Form<kE4m3, 16, 32>>(cases);
  Add<Form<kE4m3, 256, 64>>(cases);
  Add<Form<kE4m3, 32, 128, B::kAlongK, A::kShared, Start::kZero>>(cases);
  Add<Form<kF16, 32, 0, B::kAlongN>>(cases);
  Add<Form<kF16, 64, 32, B::kAlongN, A::kShared, Start::kZero>>(cases);
  Add<Form<kBf16, 64, 64, B::kAlongN>>(cases);
  Add<Form<kBf16, 128, 128, B::kAlongN>>(cases);
  Add<Form<kBf16, 64, 128, B::kAlongK, A::kRegisters>>(cases);
  Add<Form<kF16, 128, 128, B::kAlongN, A::kRegisters>>(cases);
  Add<Form<kE4m3, 8, 128, B::kAlongK, A::kRegisters>>(cases);
}

}  // namespace tokamak::cuda
