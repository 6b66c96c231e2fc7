// RopeAndStore: y = rotate(x / rms(x) · norm) per head of q and k; q stays in place, k and v go to
// the paged cache. q [T, num_heads · head_dim] f32, k and v [T, num_kv_heads · head_dim] f32, cache
// as KvLayerView says. Bound by memory: reads q, k, v, writes q and the cache's rows, each once (a
// normalized head is read twice, the second time from the cache).
//
// One warp per token and head, lanes on neighbouring elements; a lane rotates whole pairs, so that
// q can be rotated in place. A head's result depends on that head alone.
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"

namespace tokamak::cuda {
namespace {

constexpr int kThreads = 128;

// 1 / rms of a head of f32, in every lane.
__device__ float InverseRms(const float* head, int head_dim, float eps, int lane) {
  float squares = 0;
  for (int i = lane; i < head_dim; i += kWarp) squares = fmaf(head[i], head[i], squares);
  return 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(head_dim) + eps);
}

// Writes normalize-and-rotate(head) as `Out` to `out`, which may be `head`.
template <typename Out>
__device__ void Rotate(const RopeArgs& a, const float* head, const float* norm, int64_t t, int lane,
                       typename Out::Storage* out) {
  const int head_dim = a.cache.head_dim;
  const float scale = norm != nullptr ? InverseRms(head, head_dim, a.norm_eps, lane) : 1.0f;
  const auto normalized = [&](int i) {
    return norm != nullptr ? head[i] * scale * norm[i] : head[i];
  };
  const int rotary_dim = a.cos_sin != nullptr ? a.rotary_dim : 0;
  const int half = rotary_dim / 2;
  const float* cosines = rotary_dim > 0 ? a.cos_sin + a.positions[t] * a.cos_sin_stride : nullptr;
  for (int i = lane; i < half; i += kWarp) {
    const int first = a.half_split ? i : 2 * i;
    const int second = a.half_split ? i + half : 2 * i + 1;
    const float x = normalized(first);
    const float y = normalized(second);
    const float cosine = cosines[i];
    const float sine = cosines[half + i];
    out[first] = Out::Store(x * cosine - y * sine);
    out[second] = Out::Store(x * sine + y * cosine);
  }
  for (int i = rotary_dim + lane; i < head_dim; i += kWarp) out[i] = Out::Store(normalized(i));
}

template <typename Cache>
__global__ void __launch_bounds__(kThreads) RopeKernel(const __grid_constant__ RopeArgs a) {
  const int64_t warp = (blockIdx.x * int64_t{kThreads} + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const KvLayerView& cache = a.cache;
  const int heads = a.num_heads + cache.num_kv_heads;
  const int64_t t = warp / heads;
  const int h = static_cast<int>(warp % heads);
  if (t >= a.num_tokens) return;
  if (h < a.num_heads) {
    float* q = a.q + t * a.q_stride + int64_t{h} * cache.head_dim;
    Rotate<F32>(a, q, a.q_norm, t, lane, q);
    return;
  }
  const int64_t slot = a.slot_mapping[t];
  if (slot < 0) return;
  const int64_t kv_head = h - a.num_heads;
  const int64_t row = (kv_head * cache.block_size + slot % cache.block_size) * cache.head_dim;
  std::byte* block = cache.base + slot / cache.block_size * cache.block_stride;
  using Storage = typename Cache::Storage;
  Rotate<Cache>(a, a.k + t * a.k_stride + kv_head * cache.head_dim, a.k_norm, t, lane,
                reinterpret_cast<Storage*>(block + cache.k_offset) + row);
  const float* v = a.v + t * a.v_stride + kv_head * cache.head_dim;
  Storage* values = reinterpret_cast<Storage*>(block + cache.v_offset) + row;
  for (int i = lane; i < cache.head_dim; i += kWarp) values[i] = Cache::Store(v[i]);
}

}  // namespace

cudaError_t LaunchRopeAndStore(const RopeArgs& args, cudaStream_t stream) {
  const int64_t warps = args.num_tokens * (args.num_heads + args.cache.num_kv_heads);
  if (warps == 0) return cudaSuccess;
  const auto kernel = args.cache.dtype == DType::kF32   ? &RopeKernel<F32>
                      : args.cache.dtype == DType::kF16 ? &RopeKernel<F16>
                                                        : &RopeKernel<ExactBF16>;
  constexpr int64_t kWarpsPerCta = kThreads / kWarp;
  return LaunchKernel(kernel, static_cast<unsigned>((warps + kWarpsPerCta - 1) / kWarpsPerCta),
                      kThreads, 0, stream, args);
}

}  // namespace tokamak::cuda
