// Runs each primitive of ops/cuda/ptx.h on fixed inputs, in the emulator or on a GPU: the same
// source is compiled for both. Prints a line for each with a digest of the bits that came out, so
// that the lines of two machines can be compared, and exits 1 if any differ from what the host
// expects.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "ops/cuda/conformance/conformance.h"
#include "ops/cuda/emulation/tensor_core_arithmetic.h"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

using emulation::ElementType;

// Two pairs of warps, each with a barrier of its own: every thread reads what its partner in the
// other warp of the pair wrote, round after round.
constexpr unsigned kNamedThreads = 4 * kWarp;
constexpr unsigned kRounds = 5;
__global__ void NamedBarrierKernel(const uint32_t* in, uint32_t* out) {
  SHARED(values, uint32_t[kNamedThreads]);
  const unsigned t = threadIdx.x;
  const int barrier = 1 + static_cast<int>(t / (2 * kWarp));
  uint32_t value = in[t];
  for (unsigned round = 0; round < kRounds; ++round) {
    values[t] = value + round;
    ptx::SyncNamed(barrier, 2 * kWarp);
    value = value * 3 + values[t ^ kWarp];
    ptx::SyncNamed(barrier, 2 * kWarp);
  }
  out[t] = value;
}
Words ExpectNamedBarrier(const Words& in) {
  Words values(in.begin(), in.begin() + kNamedThreads);
  for (unsigned round = 0; round < kRounds; ++round) {
    const Words before = values;
    for (size_t t = 0; t < values.size(); ++t) {
      values[t] = before[t] * 3 + before[t ^ kWarp] + round;
    }
  }
  return values;
}

// A pipeline of three stages by cp.async; every fifth copy has zeros at its end. Each thread sums
// the words that its neighbour brought.
constexpr unsigned kCopyThreads = 64;
constexpr unsigned kStages = 3;
constexpr unsigned kSteps = 8;
__host__ __device__ inline unsigned ValidBytes(unsigned item) {
  return item % 5 == 0 ? item % 16 : 16;
}
__global__ void CopyAsyncKernel(const uint32_t* in, uint32_t* out) {
  SHARED(stages, uint4[kStages][kCopyThreads]);
  const unsigned t = threadIdx.x;
  const auto fetch = [&](unsigned step) {
    const unsigned item = step * kCopyThreads + t;
    if (step < kSteps) {
      ptx::CopyAsync16(&stages[step % kStages][t], in + item * 4,
                       static_cast<int>(ValidBytes(item)));
    }
    ptx::CommitCopies();
  };
  for (unsigned step = 0; step + 1 < kStages; ++step) fetch(step);
  uint32_t sum = 0;
  for (unsigned step = 0; step < kSteps; ++step) {
    ptx::WaitForCopies<kStages - 2>();
    __syncthreads();  // this stage is complete, and all threads have read the one before
    fetch(step + kStages - 1);
    const uint4 value = stages[step % kStages][t ^ 1];
    sum = sum * 31 + value.x + 3 * value.y + 5 * value.z + 7 * value.w;
  }
  out[t] = sum;
}
Words ExpectCopyAsync(const Words& in) {
  Words sums(kCopyThreads);
  for (unsigned step = 0; step < kSteps; ++step) {
    for (unsigned t = 0; t < kCopyThreads; ++t) {
      const unsigned item = step * kCopyThreads + (t ^ 1);
      uint32_t value[4] = {};
      std::memcpy(value, &in[item * 4], ValidBytes(item));
      sums[t] = sums[t] * 31 + value[0] + 3 * value[1] + 5 * value[2] + 7 * value[3];
    }
  }
  return sums;
}

// One warp brings chunks by TMA into two buffers; three warps read them. A full barrier says that a
// chunk is there, an empty one that it has been read.
constexpr unsigned kChunkWords = 96;
constexpr unsigned kReaders = 96;
struct alignas(16) BulkMemory {
  uint32_t data[2][kChunkWords];
  uint64_t full[2];
  uint64_t empty[2];
};
__global__ void BulkKernel(const uint32_t* in, uint32_t* out) {
  DYNAMIC_SHARED(memory, BulkMemory);
  const unsigned t = threadIdx.x;
  if (t == 0) {
    for (int b = 0; b < 2; ++b) {
      ptx::InitBarrier(&memory->full[b], 1);
      ptx::InitBarrier(&memory->empty[b], kReaders);
    }
  }
  __syncthreads();
  if (t >= kReaders) {
    if (t == kReaders) {
      for (unsigned step = 0; step < kSteps; ++step) {
        const unsigned b = step % 2;
        if (step >= 2) ptx::WaitForPhase(&memory->empty[b], (step / 2 - 1) % 2);
        ptx::ArriveAndExpect(&memory->full[b], sizeof(memory->data[b]));
        ptx::CopyBulk(memory->data[b], in + step * kChunkWords, sizeof(memory->data[b]),
                      &memory->full[b]);
      }
    }
    return;
  }
  uint32_t sum = 0;
  for (unsigned step = 0; step < kSteps; ++step) {
    const unsigned b = step % 2;
    ptx::WaitForPhase(&memory->full[b], step / 2 % 2);
    sum = sum * 31 + memory->data[b][kChunkWords - 1 - t];
    ptx::FenceAsyncProxy();
    ptx::Arrive(&memory->empty[b]);
  }
  out[t] = sum;
}
Words ExpectBulk(const Words& in) {
  Words sums(kReaders);
  for (unsigned step = 0; step < kSteps; ++step) {
    for (unsigned t = 0; t < kReaders; ++t) {
      sums[t] = sums[t] * 31 + in[(step + 1) * kChunkWords - 1 - t];
    }
  }
  return sums;
}

// One warp brings chunks by cp.async into two buffers, two copies per lane, and three warps read
// them. As above, but each lane arrives at the full barrier for its own copies; the first two
// chunks are requested before any of these arrivals.
constexpr unsigned kLaneWords = 8;  // that a lane copies
struct alignas(16) LaneCopies {
  uint32_t data[2][kWarp * kLaneWords];
  uint64_t full[2];
  uint64_t empty[2];
};
__global__ void ArriveWhenCopiedKernel(const uint32_t* in, uint32_t* out) {
  DYNAMIC_SHARED(copies, LaneCopies);
  const unsigned t = threadIdx.x, lane = t % kWarp;
  if (t == 0) {
    for (int b = 0; b < 2; ++b) {
      ptx::InitBarrier(&copies->full[b], kWarp);
      ptx::InitBarrier(&copies->empty[b], kReaders);
    }
  }
  __syncthreads();
  if (t >= kReaders) {
    const auto copy = [&](unsigned step, unsigned half) {
      const unsigned at = (half * kWarp + lane) * 4;
      ptx::CopyAsync16(&copies->data[step % 2][at], in + step * kWarp * kLaneWords + at,
                       static_cast<int>(ValidBytes(step * kWarp + lane)));
    };
    copy(0, 0);
    copy(1, 0);
    for (unsigned step = 0; step < kSteps; ++step) {
      if (step >= 2) {
        ptx::WaitForPhase(&copies->empty[step % 2], (step / 2 - 1) % 2);
        copy(step, 0);
      }
      copy(step, 1);
      ptx::ArriveWhenCopied(&copies->full[step % 2]);
    }
    return;
  }
  uint32_t sum = 0;
  for (unsigned step = 0; step < kSteps; ++step) {
    ptx::WaitForPhase(&copies->full[step % 2], step / 2 % 2);
    for (unsigned word = t; word < kWarp * kLaneWords; word += kReaders) {
      sum = sum * 31 + copies->data[step % 2][word];
    }
    ptx::Arrive(&copies->empty[step % 2]);
  }
  out[t] = sum;
}
Words ExpectArriveWhenCopied(const Words& in) {
  Words sums(kReaders);
  for (unsigned step = 0; step < kSteps; ++step) {
    for (unsigned t = 0; t < kReaders; ++t) {
      for (unsigned word = t; word < kWarp * kLaneWords; word += kReaders) {
        const bool valid = word % 4 * 4 < ValidBytes(step * kWarp + word / 4 % kWarp);
        uint32_t value = valid ? in[step * kWarp * kLaneWords + word] : 0;
        const unsigned left = ValidBytes(step * kWarp + word / 4 % kWarp) - word % 4 * 4;
        if (valid && left < 4) value &= (1u << (8 * left)) - 1;
        sums[t] = sums[t] * 31 + value;
      }
    }
  }
  return sums;
}

// Four 8 x 8 matrices of 16 bits, loaded, loaded transposed, and stored again at other rows.
constexpr unsigned kPitch = 12;  // words from row to row; the first 4 are elements
__global__ void MatrixKernel(const uint32_t* in, uint32_t* out) {
  SHARED(rows, uint4[kWarp * kPitch / 4]);
  const unsigned lane = threadIdx.x;
  auto* words = reinterpret_cast<uint32_t*>(rows);
  for (unsigned i = 0; i < 4; ++i) words[lane * kPitch + i] = in[lane * 4 + i];
  __syncwarp();
  uint32_t plain[4], transposed[4];
  ptx::LoadMatrices(plain, &words[lane * kPitch]);
  ptx::LoadMatricesTransposed(transposed, &words[lane * kPitch]);
  __syncwarp();
  ptx::StoreMatrices(transposed, &words[(lane ^ 5) * kPitch]);
  __syncwarp();
  for (unsigned i = 0; i < 4; ++i) {
    out[lane * 12 + i] = plain[i];
    out[lane * 12 + 4 + i] = transposed[i];
    out[lane * 12 + 8 + i] = words[lane * kPitch + i];
  }
}
Words ExpectMatrix(const Words& in) {
  Words out(kWarp * 12);
  const auto element = [&](unsigned matrix, unsigned row, unsigned column) {
    return in[(matrix * 8 + row) * 4 + column / 2] >> (column % 2 * 16) & 0xffff;
  };
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    for (unsigned m = 0; m < 4; ++m) {
      const unsigned g = lane / 4, c = lane % 4 * 2;
      out[lane * 12 + m] = element(m, g, c) | element(m, g, c + 1) << 16;
      out[lane * 12 + 4 + m] = element(m, c, g) | element(m, c + 1, g) << 16;
      // Row g of transposed matrix m was stored where lane (m * 8 + g) ^ 5 reads.
      out[((m * 8 + g) ^ 5) * 12 + 8 + lane % 4] = out[lane * 12 + 4 + m];
    }
  }
  return out;
}

template <ElementType kType>
__global__ void MultiplyKernel(const uint32_t* in, uint32_t* out) {
  const unsigned lane = threadIdx.x;
  uint32_t a[4], b[2];
  float sums[4];
  for (unsigned i = 0; i < 4; ++i) a[i] = in[i * kWarp + lane];
  for (unsigned i = 0; i < 2; ++i) b[i] = in[(4 + i) * kWarp + lane];
  for (unsigned i = 0; i < 4; ++i) {
    sums[i] = static_cast<float>(static_cast<int>(in[(6 + i) * kWarp + lane] >> 8)) * 0x1p-20f;
  }
  for (int repeat = 0; repeat < 2; ++repeat) {
    if constexpr (kType == ElementType::kBf16) ptx::MultiplyBf16(sums, a, b);
    if constexpr (kType == ElementType::kF16) ptx::MultiplyF16(sums, a, b);
    if constexpr (kType == ElementType::kE4m3) ptx::MultiplyE4m3(sums, a, b);
  }
  for (unsigned i = 0; i < 4; ++i) out[i * kWarp + lane] = __float_as_uint(sums[i]);
}
// The expected sums, computed from whole matrices.
template <ElementType kType>
Words ExpectMultiply(const Words& in) {
  constexpr unsigned kPerWord = emulation::Is8Bit(kType) ? 4 : 2;
  constexpr int kK = 8 * kPerWord;
  uint32_t a[16][8], b[8][8];  // rows of a and columns of b, along k
  float sums[16][8];
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; ++i) {
      a[g + i % 2 * 8][t + i / 2 * 4] = in[i * kWarp + lane];
      sums[g + i / 2 * 8][t * 2 + i % 2] =
          static_cast<float>(static_cast<int>(in[(6 + i) * kWarp + lane] >> 8)) * 0x1p-20f;
    }
    for (unsigned i = 0; i < 2; ++i) b[g][t + i * 4] = in[(4 + i) * kWarp + lane];
  }
  for (int repeat = 0; repeat < 2; ++repeat) {
    emulation::MultiplyAccumulate(
        emulation::Instruction::kMma, emulation::Arithmetic::kHopper, {16, 8, kK},
        {.elements = a, .type = kType, .row_stride = kK},
        {.elements = b, .type = kType, .row_stride = 1, .column_stride = kK}, &sums[0][0]);
  }
  Words out(4 * kWarp);
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      std::memcpy(&out[i * kWarp + lane], &sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2], 4);
    }
  }
  return out;
}

// Each CTA of a cluster of two reads the shared memory of both: dynamic memory and a variable.
constexpr unsigned kCtas = 4;
__global__ void ClusterKernel(const uint32_t* in, uint32_t* out) {
  DYNAMIC_SHARED(dynamic, uint32_t);
  SHARED(variable, uint32_t[kWarp]);
  const unsigned t = threadIdx.x;
  const int rank = ptx::ClusterRank();
  dynamic[t] = in[blockIdx.x * kWarp + t];
  variable[t] = dynamic[t] * 3;
  ptx::SyncCluster();
  uint32_t sum = 0;
  for (int other = 0; other < 2; ++other) {
    sum = sum * 31 + *ptx::MapShared(&dynamic[t ^ 1], rank ^ other);
    sum = sum * 31 + *ptx::MapShared(&variable[t], rank ^ other);
  }
  out[blockIdx.x * kWarp + t] = sum;
  ptx::SyncCluster();  // nobody ends while others read
}
Words ExpectCluster(const Words& in) {
  Words out(kCtas * kWarp);
  for (unsigned cta = 0; cta < kCtas; ++cta) {
    for (unsigned t = 0; t < kWarp; ++t) {
      for (unsigned other = 0; other < 2; ++other) {
        const uint32_t* const from = &in[(cta ^ other) * kWarp];
        out[cta * kWarp + t] = out[cta * kWarp + t] * 31 + from[t ^ 1];
        out[cta * kWarp + t] = out[cta * kWarp + t] * 31 + from[t] * 3;
      }
    }
  }
  return out;
}

// CTAs read what their neighbours wrote before a barrier of the grid. `out` has the values of the
// even rounds (kCtas · kWarp words), then those of the odd rounds, then the counter.
__global__ void GridKernel(const uint32_t* in, uint32_t* out) {
  const unsigned i = blockIdx.x * kWarp + threadIdx.x, count = gridDim.x * kWarp;
  uint32_t* const values[2] = {out, out + count};
  uint32_t* const counter = out + 2 * count;
  values[0][i] = in[i];
  for (unsigned round = 1; round <= kRounds; ++round) {
    ptx::SyncGrid(counter, round);
    values[round % 2][i] = values[(round + 1) % 2][(i + kWarp) % count] * 3 + round;
  }
}
Words ExpectGrid(const Words& in) {
  constexpr unsigned kCount = kCtas * kWarp;
  Words out(2 * kCount + 1);
  std::copy_n(in.begin(), kCount, out.begin());
  for (unsigned round = 1; round <= kRounds; ++round) {
    for (unsigned i = 0; i < kCount; ++i) {
      out[round % 2 * kCount + i] =
          out[(round + 1) % 2 * kCount + (i + kWarp) % kCount] * 3 + round;
    }
  }
  out[2 * kCount] = kRounds * kCtas;
  return out;
}

// The last CTA to count itself sums up what all of them wrote. Words [0, kCtas) of `out` are
// theirs, then comes the counter, then the sum.
__global__ void CounterKernel(const uint32_t* in, uint32_t* out) {
  SHARED(is_last, bool);
  const unsigned t = threadIdx.x;
  if (t == kWarp - 1) out[blockIdx.x] = in[blockIdx.x] * 3;
  __syncthreads();
  if (t == 0) is_last = ptx::AddToCounter(out + kCtas, 2) == 2 * (kCtas - 1);
  __syncthreads();
  if (!is_last || t != 1) return;
  uint32_t sum = 0;
  for (unsigned cta = 0; cta < kCtas; ++cta) sum = sum * 31 + out[cta];
  out[kCtas + 1] = sum;
}
Words ExpectCounter(const Words& in) {
  Words out(kCtas + 2);
  for (unsigned cta = 0; cta < kCtas; ++cta) {
    out[cta] = in[cta] * 3;
    out[kCtas + 1] = out[kCtas + 1] * 31 + out[cta];
  }
  out[kCtas] = 2 * kCtas;
  return out;
}

// Every E4M3 code, and random words.
constexpr unsigned kCodeThreads = 4 * kWarp;
__host__ __device__ inline uint32_t CodesOf(unsigned thread, const uint32_t* in) {
  return thread < 64 ? 0x03020100 + thread * 0x04040404 : in[thread];
}
__global__ void E4m3Kernel(const uint32_t* in, uint32_t* out) {
  uint32_t halves[2];
  ptx::E4m3ToHalves(halves, CodesOf(threadIdx.x, in));
  out[2 * threadIdx.x] = halves[0];
  out[2 * threadIdx.x + 1] = halves[1];
}
uint32_t ExpectHalf(uint32_t code) {
  const uint32_t sign = (code & 0x80) << 8, exponent = code >> 3 & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return 0x7fff;
  if (exponent > 0) return sign | (exponent + 15 - 7) << 10 | mantissa << 7;
  if (mantissa == 0) return sign;
  const auto top = static_cast<uint32_t>(std::bit_width(mantissa)) - 1;  // of units of 2^-9
  return sign | (15 - 9 + top) << 10 | ((mantissa << (10 - top)) & 0x3ff);
}
Words ExpectE4m3(const Words& in) {
  Words out(2 * kCodeThreads);
  for (unsigned i = 0; i < 4 * kCodeThreads; ++i) {
    const uint32_t code = CodesOf(i / 4, in.data()) >> i % 4 * 8 & 0xff;
    out[i / 2] |= ExpectHalf(code) << i % 2 * 16;
  }
  return out;
}

// Two warpgroups take the registers that a third one gives back, and use them.
constexpr unsigned kRegisterThreads = 3 * 4 * kWarp;
constexpr unsigned kTakers = 2 * 4 * kWarp;
constexpr unsigned kHeld = 200;
template <typename Load>
__host__ __device__ uint32_t MixHeld(Load load) {
  uint32_t held[kHeld];
#pragma unroll
  for (unsigned i = 0; i < kHeld; ++i) held[i] = load(i);
#pragma unroll
  for (unsigned round = 0; round < 2; ++round) {
#pragma unroll
    for (unsigned i = 0; i < kHeld; ++i) held[i] = held[i] * 3 + held[(i + 37) % kHeld];
  }
  uint32_t sum = 0;
#pragma unroll
  for (unsigned i = 0; i < kHeld; ++i) sum = sum * 5 + held[i];
  return sum;
}
__global__ void __launch_bounds__(kRegisterThreads, 1)
    RegistersKernel(const uint32_t* in, uint32_t* out) {
  const unsigned thread = threadIdx.x;
  if (thread >= kTakers) {
    ptx::GiveRegistersBack<24>();
    out[thread] = in[thread] + 1;
  } else {
    ptx::TakeRegisters<240>();
    out[thread] = MixHeld([&](unsigned i) { return in[thread + i * 8]; });
  }
}
Words ExpectRegisters(const Words& in) {
  Words out(kRegisterThreads);
  for (unsigned thread = 0; thread < kRegisterThreads; ++thread) {
    out[thread] = thread >= kTakers ? in[thread] + 1
                                    : MixHeld([&](unsigned i) { return in[thread + i * 8]; });
  }
  return out;
}

std::vector<Case> Cases() {
  return {
      {"setmaxnreg", RegistersKernel, kRegisterThreads, 0, ExpectRegisters},
      {"cvt of e4m3 to f16", E4m3Kernel, kCodeThreads, 0, ExpectE4m3},
      {"bar.sync of a part", NamedBarrierKernel, kNamedThreads, 0, ExpectNamedBarrier},
      {"cp.async", CopyAsyncKernel, kCopyThreads, 0, ExpectCopyAsync},
      {"mbarrier, cp.async.bulk", BulkKernel, kReaders + kWarp, sizeof(BulkMemory), ExpectBulk},
      {"ldmatrix, stmatrix", MatrixKernel, kWarp, 0, ExpectMatrix},
      {"mma.sync bf16", MultiplyKernel<ElementType::kBf16>, kWarp, 0,
       ExpectMultiply<ElementType::kBf16>, 0xbfffbfff},
      {"mma.sync f16", MultiplyKernel<ElementType::kF16>, kWarp, 0,
       ExpectMultiply<ElementType::kF16>, 0xbfffbfff},
      {"mma.sync e4m3", MultiplyKernel<ElementType::kE4m3>, kWarp, 0,
       ExpectMultiply<ElementType::kE4m3>, 0xbfbfbfbf},
      {"clusters",
       ClusterKernel,
       kWarp,
       kWarp * sizeof(uint32_t),
       ExpectCluster,
       0xffffffff,
       kCtas,
       {.cluster = 2}},
      {"a barrier of the grid",
       GridKernel,
       kWarp,
       0,
       ExpectGrid,
       0xffffffff,
       kCtas,
       {.cooperative = true}},
  };
}

cudaError_t Run(const Case& test, const Words& in, Words& out, cudaStream_t stream) {
  void *device_in = nullptr, *device_out = nullptr;
  const size_t in_bytes = in.size() * sizeof(uint32_t), out_bytes = out.size() * sizeof(uint32_t);
  cudaError_t error = cudaMalloc(&device_in, in_bytes);
  if (error == cudaSuccess) error = cudaMalloc(&device_out, out_bytes);
  if (error == cudaSuccess) error = cudaMemsetAsync(device_out, 0, out_bytes, stream);
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(device_in, in.data(), in_bytes, cudaMemcpyHostToDevice, stream);
  }
  if (error == cudaSuccess) {
    const auto* const from = static_cast<const uint32_t*>(device_in);
    auto* const to = static_cast<uint32_t*>(device_out);
    error = test.run != nullptr ? test.run(from, to, stream)
                                : LaunchGroups(test.groups, test.kernel, test.ctas, test.threads,
                                               test.shared_bytes, stream, from, to);
  }
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(out.data(), device_out, out_bytes, cudaMemcpyDeviceToHost, stream);
  }
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  (void)cudaFree(device_in);
  (void)cudaFree(device_out);
  return error;
}

// FNV-1a.
uint64_t Digest(const Words& words) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const uint32_t word : words) digest = (digest ^ word) * 0x100000001b3;
  return digest;
}

int RunAll() {
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
    std::printf("no GPU: %s\n", cudaGetErrorString(cudaGetLastError()));
    return 1;
  }
  std::vector<Case> cases = Cases();
  AddTensorMapCases(cases);
  AddDependentLaunchCases(cases);
  AddWgmmaCases(cases);
  cases.push_back({.name = "a counter tells the last CTA",
                   .kernel = CounterKernel,
                   .threads = kWarp,
                   .expect = ExpectCounter,
                   .ctas = kCtas});
  cases.push_back({.name = "mbarrier, cp.async",
                   .kernel = ArriveWhenCopiedKernel,
                   .threads = kReaders + kWarp,
                   .shared_bytes = sizeof(LaneCopies),
                   .expect = ExpectArriveWhenCopied});
  std::mt19937 random(1);
  int failures = 0;
  for (const Case& test : cases) {
    Words in(kInputWords);
    for (uint32_t& word : in) {
      word = static_cast<uint32_t>(random()) & test.in_mask;
      if (test.make_word != nullptr) word = test.make_word(word);
    }
    const Words expected = test.expect(in);
    Words out(expected.size());
    const cudaError_t error = Run(test, in, out, stream);
    size_t wrong = 0;
    for (size_t i = 0; i < out.size(); ++i) wrong += out[i] != expected[i];
    const bool ok = error == cudaSuccess && wrong == 0;
    failures += ok ? 0 : 1;
    std::printf("%-62s %016llx %s", test.name.c_str(), static_cast<unsigned long long>(Digest(out)),
                ok ? "ok\n" : "");
    if (!ok) {
      std::printf("WRONG: %s, %zu of %zu words\n", cudaGetErrorString(error), wrong, out.size());
    }
  }
  (void)cudaStreamDestroy(stream);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tokamak::cuda

int main() { return tokamak::cuda::RunAll(); }
