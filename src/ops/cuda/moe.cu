// RouteTokens and CombineExperts (ops/moe.h), and the router's product.
//
// A warp chooses a token's experts, in double like ops/host/route.cc, so that scores tie where they
// tie there. Its order of experts is total: NaN below all numbers, and of equal ones the lower
// first. A CTA per expert then finds the expert's rows of the grouped order: it counts the pairs of
// lower experts and its own, and writes down its own in order of tokens. No CTA needs another
// one's count, so no atomics are needed. All pairs are read once per expert, from the L2: 4 bytes
// for each of T · top_k.
//
// Bound: CombineExperts by memory, top_k rows of f32 read and one written per token. The router's
// product by loads: its weights are small, and with few tokens its warps are few.
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

namespace tokamak::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kChooseWarps = 4;
constexpr int kRouterWarps = 8;  // at most

__device__ int Lane() { return static_cast<int>(threadIdx.x % kWarp); }

struct Candidate {
  double value;
  int index;
  int unused;  // for ShuffleXor
};

__device__ Candidate Better(const Candidate& a, const Candidate& b) {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan != b_nan) return a_nan ? b : a;
  if (a_nan || a.value == b.value) return a.index < b.index ? a : b;
  return a.value > b.value ? a : b;
}

// Calls take(j, index) in all lanes for the `count` best of n values, at most 1024, best first.
template <typename Take>
__device__ void ForBest(const double* values, int n, int count, const Take& take) {
  uint32_t taken = 0;  // bit b: this lane's b-th value
  for (int j = 0; j < count; ++j) {
    Candidate best = {std::numeric_limits<double>::quiet_NaN(), n, 0};
    for (int i = Lane(), b = 0; i < n; i += kWarp, ++b) {
      if ((taken >> b & 1) == 0) best = Better(best, {values[i], i, 0});
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      best = Better(best, ShuffleXor(best, distance));
    }
    if (best.index % kWarp == Lane()) taken |= 1u << best.index / kWarp;
    take(j, best.index);
  }
}

// out[i] = e^values[i] / Σ_j e^values[j], by a warp. `out` may be `values`.
__device__ void Softmax(const double* values, int n, double* out) {
  double highest = -std::numeric_limits<double>::infinity();
  for (int i = Lane(); i < n; i += kWarp) highest = fmax(highest, values[i]);
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    highest = fmax(highest, ShuffleXor(highest, distance));
  }
  double sum = 0;
  for (int i = Lane(); i < n; i += kWarp) sum += out[i] = exp(values[i] - highest);
  for (int distance = kWarp / 2; distance > 0; distance /= 2) sum += ShuffleXor(sum, distance);
  for (int i = Lane(); i < n; i += kWarp) out[i] /= sum;
}

// The warp's memory for a token.
struct TokenScores {
  double* scores;  // [num_experts]
  double* choice;  // [num_experts]
  double* other;   // [num_experts]: scores of groups, then of the chosen experts
};

__device__ void Score(const RouteArgs& a, const float* logits, const TokenScores& token) {
  const RouterConfig& router = a.router;
  for (int e = Lane(); e < router.num_experts; e += kWarp) {
    const auto logit = static_cast<double>(logits[e]);
    token.scores[e] = router.score == RouterConfig::Score::kSigmoid ? 1 / (1 + exp(-logit)) : logit;
  }
  __syncwarp();
  if (router.score == RouterConfig::Score::kSoftmax) {
    Softmax(token.scores, router.num_experts, token.scores);
    __syncwarp();
  }
  for (int e = Lane(); e < router.num_experts; e += kWarp) {
    token.choice[e] = token.scores[e] + static_cast<double>(a.bias != nullptr ? a.bias[e] : 0.0f);
  }
  __syncwarp();
}

// Gives the experts outside of the best groups a choice that comes last.
__device__ void KeepBestGroups(const RouterConfig& router, const TokenScores& token) {
  const int size = router.num_experts / router.num_groups;
  const double infinity = std::numeric_limits<double>::infinity();
  for (int g = Lane(); g < router.num_groups; g += kWarp) {
    double first = -infinity, second = -infinity;
    for (int i = 0; i < size; ++i) {
      const double value = token.choice[g * size + i];
      const double lower = value < first ? value : first;  // with NaN, as the host's std::min
      second = second < lower ? lower : second;
      first = first < value ? value : first;
    }
    const bool best = router.group_score == RouterConfig::GroupScore::kBest || size == 1;
    token.other[g] = best ? first : first + second;
  }
  __syncwarp();
  uint32_t kept = 0;  // bit b: this lane's b-th group
  ForBest(token.other, router.num_groups, router.top_groups, [&](int, int g) {
    if (g % kWarp == Lane()) kept |= 1u << g / kWarp;
  });
  const double masked = router.score == RouterConfig::Score::kSoftmax ? 0.0 : -infinity;
  for (int g = Lane(), b = 0; g < router.num_groups; g += kWarp, ++b) {
    if ((kept >> b & 1) != 0) continue;
    for (int i = 0; i < size; ++i) token.choice[g * size + i] = masked;
  }
  __syncwarp();
}

__global__ void __launch_bounds__(kChooseWarps* kWarp) ChooseKernel(const RouteArgs a) {
  DYNAMIC_SHARED(memory, double);
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int64_t t = blockIdx.x * int64_t{kChooseWarps} + warp;
  if (t >= a.num_tokens) return;
  const RouterConfig& router = a.router;
  const int n = router.num_experts, top_k = router.top_k;
  double* const mine = memory + int64_t{warp} * 3 * n;
  const TokenScores token = {mine, mine + n, mine + 2 * n};
  Score(a, a.logits + t * a.logits_stride, token);
  if (router.num_groups > 1) KeepBestGroups(router, token);
  ForBest(token.choice, n, top_k, [&](int j, int expert) {
    if (Lane() != 0) return;
    a.experts[t * top_k + j] = expert;
    token.other[j] = token.scores[expert];
  });
  __syncwarp();
  if (router.score == RouterConfig::Score::kChosenSoftmax) {
    Softmax(token.other, top_k, token.other);
    __syncwarp();
  }
  double divisor = 1;
  if (router.normalize) {
    divisor = 1e-20;  // as in the reference implementations: all sigmoids may be 0
    for (int j = 0; j < top_k; ++j) divisor += token.other[j];
  }
  const auto scale = static_cast<double>(router.scale);
  for (int j = Lane(); j < top_k; j += kWarp) {
    a.weights[t * top_k + j] = static_cast<float>(token.other[j] / divisor * scale);
  }
}

// A CTA per expert. Each warp has a part of the pairs.
__global__ void __launch_bounds__(kThreads) GroupKernel(const RouteArgs a) {
  SHARED(counts, int[kWarps][2]);  // of each warp's pairs: those of lower experts, and of this one
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int expert = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int warps = static_cast<int>(blockDim.x / kWarp);
  const int top_k = a.router.top_k, pairs = static_cast<int>(a.num_tokens) * top_k;
  const int part = CeilDiv(pairs, warps * kWarp) * kWarp;
  const int begin = min(pairs, warp * part), end = min(pairs, begin + part);
  const auto expert_of = [&](int pair) {
    return pair < end ? a.experts[pair] : std::numeric_limits<int>::max();
  };
  int lower = 0, mine = 0;
  for (int i = begin; i < end; i += kWarp) {
    const int e = expert_of(i + Lane());
    lower += __popc(__ballot_sync(kAllLanes, e < expert));
    mine += __popc(__ballot_sync(kAllLanes, e == expert));
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
  for (int i = begin; i < end; i += kWarp) {
    const int pair = i + Lane();
    const bool is_mine = expert_of(pair) == expert;
    const unsigned ours = __ballot_sync(kAllLanes, is_mine);
    if (is_mine) {
      const int at = row + __popc(ours & lanes_before);
      a.tokens[at] = pair / top_k;
      a.rows[pair] = at;
    }
    row += __popc(ours);
  }
}

// A CTA per token, four columns of a thread at a time.
template <typename Shared, bool kVectors>
__global__ void __launch_bounds__(kThreads) CombineKernel(const CombineArgs a) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int64_t t = blockIdx.x;
  const int32_t* rows = a.rows + t * a.top_k;
  const float* weights = a.weights + t * a.top_k;
  const float gate = a.shared_gate == nullptr
                         ? 1.0f
                         : 1.0f / (1.0f + expf(-a.shared_gate[t * a.shared_gate_stride]));
  for (int64_t i = threadIdx.x * 4; i < a.cols; i += kThreads * 4) {
    float sums[4] = {};
#pragma unroll 4
    for (int j = 0; j < a.top_k; ++j) {
      float x[4];
      LoadFour<F32, kVectors>(a.x + rows[j] * a.x_stride + i, a.cols - i, x);
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[c] = fmaf(weights[j], x[c], sums[c]);
    }
    if (a.shared != nullptr) {
      float x[4];
      const auto* const shared = static_cast<const typename Shared::Storage*>(a.shared);
      LoadFour<Shared, kVectors>(shared + t * a.shared_stride + i, a.cols - i, x);
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[c] = fmaf(gate, x[c], sums[c]);
    }
    StoreFour<F32, kVectors>(sums, a.cols - i, a.out + t * a.out_stride + i);
  }
}

// A warp has a tile of outputs. A lane adds the products of columns 4 · lane + 128 · i up to four
// further ones; then the lanes' sums are added as WarpSum does. So the tile changes no bits. A lane
// requests kSteps such groups of columns at a time, and the first of the weights before the kernel
// ahead has ended.
template <int kTokens, int kRows, int kSteps, bool kVectors>
__global__ void __launch_bounds__(kRouterWarps* kWarp)
    RouterLinearKernel(const RouterLinearArgs a) {
  const int64_t warp = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / kWarp;
  const int64_t first_row = warp * kRows, first_token = blockIdx.y * int64_t{kTokens};
  const float* x[kTokens];
  const float* w[kRows];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    x[t] = a.x + min(first_token + t, a.num_tokens - 1) * a.x_stride;
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) w[r] = a.weight + min(first_row + r, a.rows - 1) * a.cols;
  float factors[kSteps][kRows][4];
  const auto load_weights = [&](int64_t first) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int64_t k = first + s * kWarp * 4;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (k < a.cols) LoadFour<F32, kVectors>(w[r] + k, a.cols - k, factors[s][r]);
      }
    }
  };
  ptx::LaunchDependents();
  load_weights(Lane() * 4);
  ptx::WaitForKernelAhead();
  if (first_row >= a.rows) return;
  float sums[kTokens][kRows] = {};
  for (int64_t first = Lane() * 4; first < a.cols; first += kSteps * kWarp * 4) {
    if (first >= kSteps * kWarp * 4) load_weights(first);
    float values[kSteps][kTokens][4];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int64_t k = first + s * kWarp * 4;
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        if (k < a.cols) LoadFour<F32, kVectors>(x[t] + k, a.cols - k, values[s][t]);
      }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (first + s * kWarp * 4 >= a.cols) break;
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            sums[t][r] = fmaf(values[s][t][c], factors[s][r][c], sums[t][r]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t token = first_token + t, row = first_row + r;
      float sum = WarpSum(sums[t][r]);
      if (Lane() != 0 || token >= a.num_tokens || row >= a.rows) continue;
      if (a.bias != nullptr) sum = __fadd_rn(sum, a.bias[row]);
      a.out[token * a.out_stride + row] = sum;
    }
  }
}

template <int kTokens, int kRows, int kSteps>
cudaError_t LaunchRouterTiles(const RouterLinearArgs& args, int warps, bool vectors,
                              cudaStream_t stream) {
  const dim3 grid(Grid(args.rows, warps * kRows), Grid(args.num_tokens, kTokens));
  const auto kernel = vectors ? &RouterLinearKernel<kTokens, kRows, kSteps, true>
                              : &RouterLinearKernel<kTokens, kRows, kSteps, false>;
  return LaunchDependent(kernel, grid, static_cast<unsigned>(warps) * kWarp, stream, args);
}

}  // namespace

cudaError_t LaunchRoute(const RouteArgs& args, cudaStream_t stream) {
  const auto experts = static_cast<unsigned>(args.router.num_experts);
  if (args.num_tokens > 0) {
    const size_t bytes = size_t{kChooseWarps} * 3 * experts * sizeof(double);
    const cudaError_t allowed = AllowSharedMemory(ChooseKernel, bytes);
    if (allowed != cudaSuccess) return allowed;
    const cudaError_t error = LaunchGroups({.dependent = HasDependents()}, ChooseKernel,
                                           Grid(args.num_tokens, kChooseWarps),
                                           kChooseWarps * kWarp, bytes, stream, args);
    if (error != cudaSuccess) return error;
  }
  constexpr int64_t kPairs = 128;  // of a warp, if there are few
  const int64_t warps = CeilDiv(args.num_tokens * args.router.top_k, kPairs);
  return LaunchDependent(GroupKernel, experts,
                         static_cast<unsigned>(std::clamp<int64_t>(warps, 1, kWarps)) * kWarp,
                         stream, args);
}

cudaError_t LaunchCombine(const CombineArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.cols == 0) return cudaSuccess;
  const bool vectors = FitsFours(args.x, args.x_stride, sizeof(float)) &&
                       (args.shared == nullptr || FitsFours(args.shared, args.shared_stride,
                                                            ElementBytes(args.shared_bf16))) &&
                       FitsFours(args.out, args.out_stride, sizeof(float)) && args.cols % 4 == 0;
  return LaunchAs(args.shared_bf16, vectors, [&]<typename Shared, bool kVectors>() {
    return LaunchDependent(&CombineKernel<Shared, kVectors>, Grid(args.num_tokens, 1), kThreads,
                           stream, args);
  });
}

cudaError_t LaunchRouterLinear(const RouterLinearArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.rows == 0) return cudaSuccess;
  const bool vectors = args.cols % 4 == 0 && FitsFours(args.x, args.x_stride, sizeof(float)) &&
                       FitsFours(args.weight, args.cols, sizeof(float));
  // With few tokens, larger tiles or CTAs would leave SMs idle.
  if (args.num_tokens <= 4) return LaunchRouterTiles<1, 1, 16>(args, 1, vectors, stream);
  if (args.num_tokens <= 64) return LaunchRouterTiles<4, 2, 4>(args, 1, vectors, stream);
  return LaunchRouterTiles<4, 4, 2>(args, kRouterWarps, vectors, stream);
}

}  // namespace tokamak::cuda
