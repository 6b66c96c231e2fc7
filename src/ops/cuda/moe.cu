// RouteTokens and CombineExperts (ops/moe.h).
//
// A warp chooses a token's experts, in double like ops/host/route.cc, so that scores tie where they
// tie there. Its order of experts is total: NaN below all numbers, and of equal ones the lower
// first. Lanes have the scores in registers and find the next expert by integers. A CTA per expert
// then finds the expert's rows of the grouped order: it counts the pairs of lower experts and its
// own, and writes down its own in order of tokens. No CTA needs another one's count, so no atomics
// are needed. All pairs are read once per expert, from the L2: 4 bytes for each of T · top_k.
//
// Bound: CombineExperts by memory, top_k rows of f32 read and one written per token.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/ceil_div.h"
#include "ops/cuda/cta.cuh"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/ptx.h"
#include "ops/uniform_routing.h"

namespace tokamak::cuda {
namespace {

constexpr int kThreads = 256;  // of CombineKernel, at most
constexpr int kChooseWarps = 4;
constexpr int kGroupWarps = 32;  // at most

__device__ int Lane() { return static_cast<int>(threadIdx.x % kWarp); }

// A warp has n values in registers: value 32 · b + l is the b-th of lane l.
__device__ int IndexOf(int b) { return b * kWarp + Lane(); }

// An integer that orders values: NaN below all numbers, and -0 equal to 0. None is 0.
__device__ uint64_t Rank(double value) {
  if (value != value) return 1;
  const auto bits = static_cast<uint64_t>(__double_as_longlong(value + 0.0));  // -0 + 0 is 0
  const uint64_t sign = uint64_t{1} << 63;
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

// Calls take(j, index, b) for the `count` highest ranks, best first, of equal ones the lower index
// first. `b` is kValues except in the lane whose b-th value it is. Ranks that were taken become 0,
// as are those of values that do not exist.
template <int kValues, typename Take>
__device__ void ForBest(uint64_t (&ranks)[kValues], int count, const Take& take) {
  for (int j = 0; j < count; ++j) {
    uint64_t best[kValues];  // of this lane, in best[0] at last
    int at[kValues];
#pragma unroll
    for (int b = 0; b < kValues; ++b) {
      best[b] = ranks[b];
      at[b] = b;
    }
#pragma unroll
    for (int distance = 1; distance < kValues; distance *= 2) {
#pragma unroll
      for (int b = 0; b + distance < kValues; b += 2 * distance) {
        if (best[b + distance] <= best[b]) continue;
        best[b] = best[b + distance];
        at[b] = at[b + distance];
      }
    }
    const auto high = static_cast<uint32_t>(best[0] >> 32);
    const auto low = static_cast<uint32_t>(best[0]);
    const uint32_t highest = __reduce_max_sync(kAllLanes, high);
    const uint32_t low_of_highest = __reduce_max_sync(kAllLanes, high == highest ? low : 0);
    const bool equal = high == highest && low == low_of_highest;
    const auto index = static_cast<uint32_t>(IndexOf(at[0]));
    const uint32_t first = ~__reduce_max_sync(kAllLanes, equal ? ~index : 0);
    const bool is_mine = equal && first == index;
#pragma unroll
    for (int b = 0; b < kValues; ++b) {
      if (is_mine && b == at[0]) ranks[b] = 0;
    }
    take(j, static_cast<int>(first), is_mine ? at[0] : kValues);
  }
}

// values[i] = e^values[i] / Σ_j e^values[j] of n values, each of which is a float.
template <int kValues>
__device__ void Softmax(int n, double (&values)[kValues]) {
  float highest = -std::numeric_limits<float>::infinity();
#pragma unroll
  for (int b = 0; b < kValues; ++b) {
    if (IndexOf(b) < n) highest = fmaxf(highest, static_cast<float>(values[b]));
  }
  highest = WarpMax(highest);
  double sum = 0;
#pragma unroll
  for (int b = 0; b < kValues; ++b) {
    if (IndexOf(b) < n) sum += values[b] = exp(values[b] - static_cast<double>(highest));
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) sum += ShuffleXor(sum, distance);
#pragma unroll
  for (int b = 0; b < kValues; ++b) {
    if (IndexOf(b) < n) values[b] /= sum;
  }
}

template <int kValues>
__device__ void Score(const RouterConfig& router, const float* logits, double (&scores)[kValues]) {
#pragma unroll
  for (int b = 0; b < kValues; ++b) {
    scores[b] = IndexOf(b) < router.num_experts ? static_cast<double>(logits[IndexOf(b)]) : 0;
  }
  if (router.score == RouterConfig::Score::kSoftmax) Softmax(router.num_experts, scores);
  if (router.score == RouterConfig::Score::kSigmoid) {
#pragma unroll
    for (int b = 0; b < kValues; ++b) {
      if (IndexOf(b) < router.num_experts) scores[b] = 1 / (1 + exp(-scores[b]));
    }
  }
  if (router.score != RouterConfig::Score::kUniform) return;
#pragma unroll
  for (int b = 0; b < kValues; ++b) {
    scores[b] = UniformScore(IndexOf(b), __float_as_uint(static_cast<float>(scores[b])));
  }
}

// Gives the experts outside of the best groups a choice that comes last. A warp calls it;
// choice [num_experts] and groups [num_groups] are in shared memory.
template <int kValues>
__device__ void KeepBestGroups(const RouterConfig& router, double* choice, double* groups) {
  const int size = router.num_experts / router.num_groups;
  const double infinity = std::numeric_limits<double>::infinity();
  for (int g = Lane(); g < router.num_groups; g += kWarp) {
    double first = -infinity, second = -infinity;
    for (int i = 0; i < size; ++i) {
      const double value = choice[g * size + i];
      const double lower = value < first ? value : first;  // with NaN, as the host's std::min
      second = second < lower ? lower : second;
      first = first < value ? value : first;
    }
    const bool best = router.group_score == RouterConfig::GroupScore::kBest || size == 1;
    groups[g] = best ? first : first + second;
  }
  __syncwarp();
  uint64_t ranks[kValues];
#pragma unroll
  for (int b = 0; b < kValues; ++b) {
    ranks[b] = IndexOf(b) < router.num_groups ? Rank(groups[IndexOf(b)]) : 0;
  }
  uint32_t kept = 0;  // bit b: this lane's b-th group
  ForBest(ranks, router.top_groups, [&](int, int, int b) {
    if (b < kValues) kept |= 1u << b;
  });
  const double masked = router.score == RouterConfig::Score::kSoftmax ? 0.0 : -infinity;
  for (int g = Lane(), b = 0; g < router.num_groups; g += kWarp, ++b) {
    if ((kept >> b & 1) != 0) continue;
    for (int i = 0; i < size; ++i) choice[g * size + i] = masked;
  }
  __syncwarp();
}

// The doubles of a warp in shared memory: the scores of the chosen experts, then KeepBestGroups'.
__host__ __device__ constexpr int ChooseDoubles(const RouterConfig& router) {
  return router.top_k + (router.num_groups > 1 ? router.num_experts + router.num_groups : 0);
}

// The ranks of the experts' choice. `memory` is KeepBestGroups'.
template <int kValues>
__device__ void RankChoice(const RouteArgs& a, const double (&scores)[kValues], double* memory,
                           uint64_t (&ranks)[kValues]) {
  const int n = a.router.num_experts;
  const bool has_groups = a.router.num_groups > 1;
#pragma unroll
  for (int b = 0; b < kValues; ++b) {
    const int e = IndexOf(b);
    ranks[b] = 0;
    if (e >= n) continue;
    const double choice = scores[b] + static_cast<double>(a.bias != nullptr ? a.bias[e] : 0.0f);
    if (has_groups) memory[e] = choice;
    ranks[b] = Rank(choice);
  }
  if (!has_groups) return;
  __syncwarp();
  KeepBestGroups<kValues>(a.router, memory, memory + n);
#pragma unroll
  for (int b = 0; b < kValues; ++b) {
    if (IndexOf(b) < n) ranks[b] = Rank(memory[IndexOf(b)]);
  }
}

// A warp per token. kValues: of a lane, for up to 32 times as many experts.
template <int kValues>
__global__ void __launch_bounds__(kChooseWarps* kWarp, kValues <= 8 ? 4 : 1)
    ChooseKernel(const RouteArgs a) {
  DYNAMIC_SHARED(memory, double);
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int64_t t = blockIdx.x * int64_t{blockDim.x / kWarp} + warp;
  if (t >= a.num_tokens) return;
  const RouterConfig& router = a.router;
  const int top_k = router.top_k;
  const bool is_uniform = router.score == RouterConfig::Score::kUniform;
  double* const chosen = memory + warp * ChooseDoubles(router);
  double scores[kValues];
  uint64_t ranks[kValues];
  Score(router, a.logits + t * a.logits_stride, scores);
  RankChoice(a, scores, chosen + top_k, ranks);
  ForBest(ranks, top_k, [&](int j, int expert, int at) {
#pragma unroll
    for (int b = 0; b < kValues; ++b) {
      if (b == at) chosen[j] = is_uniform ? 1.0 / top_k : scores[b];
    }
    if (at < kValues) a.experts[t * top_k + j] = expert;
  });
  __syncwarp();
  if (router.score == RouterConfig::Score::kChosenSoftmax) {
#pragma unroll
    for (int b = 0; b < kValues; ++b) scores[b] = IndexOf(b) < top_k ? chosen[IndexOf(b)] : 0;
    Softmax(top_k, scores);
#pragma unroll
    for (int b = 0; b < kValues; ++b) {
      if (IndexOf(b) < top_k) chosen[IndexOf(b)] = scores[b];
    }
    __syncwarp();
  }
  double divisor = 1;
  if (router.normalize) {
    divisor = 1e-20;  // as in the reference implementations: all sigmoids may be 0
    for (int j = 0; j < top_k; ++j) divisor += chosen[j];
  }
  const auto scale = static_cast<double>(router.scale);
  for (int j = Lane(); j < top_k; j += kWarp) {
    a.weights[t * top_k + j] = static_cast<float>(chosen[j] / divisor * scale);
  }
}

template <int kValues>
cudaError_t LaunchChoose(const RouteArgs& args, cudaStream_t stream) {
  constexpr int64_t kFewTokens = 512;  // for which there are SMs enough for a CTA each
  const int warps = args.num_tokens <= kFewTokens ? 1 : kChooseWarps;
  const size_t bytes = static_cast<size_t>(warps * ChooseDoubles(args.router)) * sizeof(double);
  const auto kernel = &ChooseKernel<kValues>;
  const cudaError_t allowed = AllowSharedMemory(kernel, bytes);
  if (allowed != cudaSuccess) return allowed;
  return LaunchGroups({.dependent = HasDependents()}, kernel, Grid(args.num_tokens, warps),
                      static_cast<unsigned>(warps) * kWarp, bytes, stream, args);
}

// A CTA per expert. Each warp has a part of the pairs, and requests those of kAhead ballots at a
// time.
__global__ void __launch_bounds__(kGroupWarps* kWarp) GroupKernel(const RouteArgs a) {
  constexpr int kAhead = 4;
  SHARED(counts,
         int[kGroupWarps][2]);  // of each warp's pairs: those of lower experts, and of this one
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int expert = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int warps = static_cast<int>(blockDim.x / kWarp);
  const int top_k = a.router.top_k, pairs = static_cast<int>(a.num_tokens) * top_k;
  const int part = CeilDiv(pairs, warps * kWarp) * kWarp;
  const int begin = min(pairs, warp * part), end = min(pairs, begin + part);
  int experts[kAhead];
  const auto load_experts = [&](int first) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int pair = first + IndexOf(u);
      experts[u] = pair < end ? a.experts[pair] : std::numeric_limits<int>::max();
    }
  };
  int lower = 0, mine = 0;
  for (int i = begin; i < end; i += kAhead * kWarp) {
    load_experts(i);
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      lower += __popc(__ballot_sync(kAllLanes, experts[u] < expert));
      mine += __popc(__ballot_sync(kAllLanes, experts[u] == expert));
    }
  }
  if (Lane() == 0) {
    counts[warp][0] = lower;
    counts[warp][1] = mine;
  }
  __syncthreads();
  int offset = 0, row = 0, all = 0;
  for (int w = 0; w < warps; ++w) {
    offset += counts[w][0];
    if (w < warp) row += counts[w][1];
    all += counts[w][1];
  }
  row += offset;
  if (threadIdx.x == 0) {
    a.offsets[expert] = offset;
    if (expert + 1 == a.router.num_experts) a.offsets[expert + 1] = offset + all;
  }
  const unsigned lanes_before = (1u << Lane()) - 1;
  for (int i = begin; i < end; i += kAhead * kWarp) {
    load_experts(i);
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const bool is_mine = experts[u] == expert;
      const unsigned ours = __ballot_sync(kAllLanes, is_mine);
      if (is_mine) {
        const int pair = i + IndexOf(u);
        const int at = row + __popc(ours & lanes_before);
        a.tokens[at] = pair / top_k;
        a.rows[pair] = at;
      }
      row += __popc(ours);
    }
  }
}

// CTAs (t, ...) have a token, and each thread four of its columns at a time. A thread requests
// those of kAhead experts before it adds them.
template <typename Shared, bool kVectors>
__global__ void __launch_bounds__(kThreads) CombineKernel(const CombineArgs a) {
  constexpr int kAhead = 8;
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int64_t t = blockIdx.x;
  const int32_t* rows = a.rows + t * a.top_k;
  const float* weights = a.weights + t * a.top_k;
  const int64_t step = int64_t{gridDim.y} * blockDim.x * 4;
  for (int64_t i = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * 4; i < a.cols; i += step) {
    float shared[4] = {};
    float gate = 1;
    if (a.shared != nullptr) {
      const auto* const from = static_cast<const typename Shared::Storage*>(a.shared);
      LoadFour<Shared, kVectors>(from + t * a.shared_stride + i, a.cols - i, shared);
      if (a.shared_gate != nullptr) {
        gate = 1.0f / (1.0f + expf(-a.shared_gate[t * a.shared_gate_stride]));
      }
    }
    float sums[4] = {};
    for (int first = 0; first < a.top_k; first += kAhead) {
      float x[kAhead][4], factors[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        if (first + u >= a.top_k) break;
        factors[u] = weights[first + u];
        LoadFour<F32, kVectors>(a.x + rows[first + u] * a.x_stride + i, a.cols - i, x[u]);
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        if (first + u >= a.top_k) break;
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[c] = fmaf(factors[u], x[u][c], sums[c]);
      }
    }
    if (a.shared != nullptr) {
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[c] = fmaf(gate, shared[c], sums[c]);
    }
    StoreFour<F32, kVectors>(sums, a.cols - i, a.out + t * a.out_stride + i);
  }
}

}  // namespace

cudaError_t LaunchRoute(const RouteArgs& args, cudaStream_t stream) {
  const auto experts = static_cast<unsigned>(args.router.num_experts);
  if (args.num_tokens > 0) {
    const auto choose = experts <= 4 * kWarp    ? &LaunchChoose<4>
                        : experts <= 8 * kWarp  ? &LaunchChoose<8>
                        : experts <= 16 * kWarp ? &LaunchChoose<16>
                                                : &LaunchChoose<32>;
    const cudaError_t error = choose(args, stream);
    if (error != cudaSuccess) return error;
  }
  constexpr int64_t kPairs = 128;  // of a warp, if there are few
  const int64_t warps = CeilDiv(args.num_tokens * args.router.top_k, kPairs);
  return LaunchDependent(GroupKernel, experts,
                         static_cast<unsigned>(std::clamp<int64_t>(warps, 1, kGroupWarps)) * kWarp,
                         stream, args);
}

cudaError_t LaunchCombine(const CombineArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.cols == 0) return cudaSuccess;
  const bool vectors = FitsFours(args.x, args.x_stride, sizeof(float)) &&
                       (args.shared == nullptr || FitsFours(args.shared, args.shared_stride,
                                                            ElementBytes(args.shared_bf16))) &&
                       FitsFours(args.out, args.out_stride, sizeof(float)) && args.cols % 4 == 0;
  // Few tokens are divided among many CTAs; with many, a CTA has a whole one.
  constexpr int64_t kFewTokens = 512;
  const bool few = args.num_tokens <= kFewTokens;
  const unsigned threads = few ? 2 * kWarp : kThreads;
  const dim3 grid(Grid(args.num_tokens, 1), few ? Grid(args.cols, threads * 4) : 1);
  return LaunchAs(args.shared_bf16, vectors, [&]<typename Shared, bool kVectors>() {
    return LaunchDependent(&CombineKernel<Shared, kVectors>, grid, threads, stream, args);
  });
}

}  // namespace tokamak::cuda
