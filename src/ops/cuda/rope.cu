// RopeAndStore: y = rotate(x / rms(x) · norm) per head of q and k; q stays in place, k and v go to
// the paged cache. q [T, num_heads · q_head_dim], k [T, num_kv_heads · head_dim], v [T,
// num_kv_heads · value_dim] (or none, if values lie in the keys), all f32 or all bf16, cache as
// KvLayerView says. Bound by memory: reads q, k, v, writes q and the cache's rows, each once (a
// normalized head of more than 256 dimensions is read twice, the second time from the cache).
// Dimensions of q that are neither normalized nor rotated stay untouched.
//
// A head is cut into parts of two groups of four elements. A part holds whole pairs, so q can be
// rotated in place. 8, 16 or 32 lanes share a head of q, k or v, each with one part, so a warp has
// up to four heads. A group is read and written by one instruction if all addresses allow it, else
// element by element. The result is the same, and depends on that head alone.
#include "base/ceil_div.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPart = 8;  // elements
constexpr int64_t kFewTokens = 64;

// Eight elements of a head, and where they are in it.
struct Part {
  int begin[2];  // of each group of four
  int count[2];  // how many elements of it there are
  float values[2][4];
};

// Returns part `i` of a head without its values. The elements of a half-split pair lie in different
// groups, those of an interleaved pair are neighbours.
__device__ Part PartOf(const RopeArgs& a, int head_dim, int rotary_dim, int i) {
  const int half = rotary_dim / 2;
  const int rotary_parts = CeilDiv(rotary_dim, kPart);
  Part part;
  if (i < rotary_parts && a.half_split) {
    part.begin[0] = i * (kPart / 2);
    part.begin[1] = half + part.begin[0];
    part.count[0] = part.count[1] = min(half - part.begin[0], kPart / 2);
    return part;
  }
  const bool rotates = i < rotary_parts;
  const int end = rotates ? rotary_dim : head_dim;
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    part.begin[g] = rotates ? i * kPart + g * 4 : rotary_dim + (i - rotary_parts) * kPart + g * 4;
    part.count[g] = max(0, min(end - part.begin[g], 4));
  }
  return part;
}

// Rotates (x, y) by an angle.
__device__ void Turn(float& x, float& y, float cosine, float sine) {
  const float turned = x * cosine - y * sine;
  y = x * sine + y * cosine;
  x = turned;
}

// A part is multiplied by these: the norm's weights, and cosine and sine of each pair's angle.
struct Factors {
  float norm[2][4];
  float cosine[4], sine[4];
};

__device__ void RotatePart(bool half_split, const Factors& factors, Part& part) {
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    if (half_split) {
      Turn(part.values[0][p], part.values[1][p], factors.cosine[p], factors.sine[p]);
    } else {
      float(&group)[4] = part.values[p / 2];
      Turn(group[p % 2 * 2], group[p % 2 * 2 + 1], factors.cosine[p], factors.sine[p]);
    }
  }
}

// A head of q, k or v of one token, by kLanes lanes. kEarly: the first parts' factors are read by
// the constructor, and take registers until they are used.
template <typename In, int kLanes, bool kVectors, bool kEarly>
class Head {
 public:
  using Storage = typename In::Storage;

  // `from`, `norm` and `cosines` may be null: nothing is read, normalized or rotated then.
  __device__ Head(const RopeArgs& args, int head_dim, const Storage* from, const float* norm,
                  const float* cosines)
      : a_(args),
        head_dim_(head_dim),
        from_(from),
        norm_(norm),
        cosines_(cosines),
        rotary_dim_(cosines != nullptr ? args.rotary_dim : 0),
        num_parts_(from == nullptr
                       ? 0
                       : CeilDiv(rotary_dim_, kPart) + CeilDiv(head_dim - rotary_dim_, kPart)),
        lane_(static_cast<int>(threadIdx.x) % kLanes) {
    if (lane_ >= num_parts_) return;
    first_ = PartOf(a_, head_dim_, rotary_dim_, lane_);
    if constexpr (kEarly) first_factors_ = LoadFactors(lane_, first_);
  }

  // Comes before the functions below.
  __device__ void Read() {
    if (lane_ < num_parts_) LoadValues(first_);
  }

  // 1 / rms, in every lane of the head. For all lanes of the warp.
  __device__ float InverseRms() const {
    float squares = lane_ < num_parts_ ? SumOfSquares(first_) : 0.0f;
    for (int i = lane_ + kLanes; i < num_parts_; i += kLanes) squares += SumOfSquares(Load(i));
    return 1.0f / sqrtf(WarpSum<kLanes>(squares) / static_cast<float>(head_dim_) + a_.norm_eps);
  }

  // Writes the head, multiplied by `scale` if it is normalized, to `to`, which may be `from`.
  template <typename Out>
  __device__ void Write(float scale, typename Out::Storage* to) const {
    for (int i = lane_; i < num_parts_; i += kLanes) {
      Part part = i == lane_ ? first_ : Load(i);
      const Factors factors = kEarly && i == lane_ ? first_factors_ : LoadFactors(i, part);
      if (norm_ != nullptr) Normalize(scale, factors, part);
      if (i * kPart < rotary_dim_) RotatePart(a_.half_split, factors, part);
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        StoreFour<Out, kVectors>(part.values[g], part.count[g], to + part.begin[g]);
      }
    }
  }

 private:
  __device__ void LoadValues(Part& part) const {
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      LoadFour<In, kVectors>(from_ + part.begin[g], part.count[g], part.values[g]);
    }
  }
  __device__ Part Load(int i) const {
    Part part = PartOf(a_, head_dim_, rotary_dim_, i);
    LoadValues(part);
    return part;
  }
  __device__ Factors LoadFactors(int i, const Part& part) const {
    Factors factors = {};
    if (norm_ != nullptr) {
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        LoadFour<F32, kVectors>(norm_ + part.begin[g], part.count[g], factors.norm[g]);
      }
    }
    if (i * kPart < rotary_dim_) {
      const int half = rotary_dim_ / 2;
      const int first = i * (kPart / 2);
      LoadFour<F32, kVectors>(cosines_ + first, half - first, factors.cosine);
      LoadFour<F32, kVectors>(cosines_ + half + first, half - first, factors.sine);
    }
    return factors;
  }
  __device__ static float SumOfSquares(const Part& part) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      squares = fmaf(part.values[i / 4][i % 4], part.values[i / 4][i % 4], squares);
    }
    return squares;
  }
  __device__ static void Normalize(float scale, const Factors& factors, Part& part) {
#pragma unroll
    for (int g = 0; g < 2; ++g) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        part.values[g][i] = part.values[g][i] * scale * factors.norm[g][i];
      }
    }
  }

  const RopeArgs& a_;
  const int head_dim_;
  const Storage* const from_;
  const float* const norm_;
  const float* const cosines_;
  const int rotary_dim_;
  const int num_parts_;
  const int lane_;
  Part first_ = {};  // this lane's first part
  Factors first_factors_ = {};
};

// The dimensions of a head of q that change.
constexpr int ChangedDims(const RopeArgs& a) {
  if (a.q_norm != nullptr) return a.q_head_dim;
  return a.cos_sin != nullptr ? a.rotary_dim : 0;
}

// Heads of a token: those of q, then of k, then of v. kEarly, for few tokens: what they are
// multiplied by, and where they are stored, is read while the kernel ahead still runs. With many,
// the registers are better used by more CTAs.
template <typename In, typename Cache, int kLanes, bool kVectors, bool kEarly>
__global__ void __launch_bounds__(kThreads) RopeKernel(const __grid_constant__ RopeArgs a) {
  ptx::LaunchDependents();
  if constexpr (!kEarly) ptx::WaitForKernelAhead();
  const KvLayerView& cache = a.cache;
  const int64_t t = blockIdx.x;
  const int h = static_cast<int>((blockIdx.y * kThreads + threadIdx.x) / kLanes);
  const bool is_query = h < a.num_heads;
  const bool is_value = h >= a.num_heads + cache.num_kv_heads;
  const int value_heads = a.v != nullptr ? cache.num_kv_heads : 0;
  const int64_t kv_head = (h - a.num_heads) % cache.num_kv_heads;
  const int64_t slot = a.slot_mapping[t];
  using Storage = typename In::Storage;
  Storage* const query = static_cast<Storage*>(a.q) + t * a.q_stride + int64_t{h} * a.q_head_dim;
  const int head_dim = is_query ? ChangedDims(a) : is_value ? cache.ValueDim() : cache.head_dim;
  const Storage* from = nullptr;
  if (is_query) {
    from = query;
  } else if (h < a.num_heads + cache.num_kv_heads + value_heads && slot >= 0) {
    from = static_cast<const Storage*>(is_value ? a.v : a.k) +
           t * (is_value ? a.v_stride : a.k_stride) + kv_head * head_dim;
  }
  const float* norm = is_query ? a.q_norm : is_value ? nullptr : a.k_norm;
  const bool rotates = a.cos_sin != nullptr && !is_value;
  Head<In, kLanes, kVectors, kEarly> head(
      a, head_dim, from, norm, rotates ? a.cos_sin + a.positions[t] * a.cos_sin_stride : nullptr);
  if constexpr (kEarly) ptx::WaitForKernelAhead();
  head.Read();
  const float scale = a.q_norm != nullptr || a.k_norm != nullptr ? head.InverseRms() : 1.0f;
  if (from == nullptr) return;
  if (is_query) {
    head.template Write<In>(scale, query);
    return;
  }
  const int64_t row = (kv_head * cache.block_size + slot % cache.block_size) * head_dim;
  std::byte* block = cache.base + slot / cache.block_size * cache.block_stride;
  std::byte* heads = block + (is_value ? cache.v_offset : cache.k_offset);
  head.template Write<Cache>(scale, reinterpret_cast<typename Cache::Storage*>(heads) + row);
}

bool FitsVectors(const RopeArgs& a) {
  const auto floats = [](const float* data, int64_t stride) {
    return data == nullptr || FitsFours(data, stride, sizeof(float));
  };
  const auto given = [&](const void* data, int64_t stride) {
    return data == nullptr || FitsFours(data, stride, ElementBytes(a.bf16));
  };
  const KvLayerView& cache = a.cache;
  const auto element = static_cast<int64_t>(RowBytes(cache.dtype, 1));
  const auto in_cache = [&](int64_t offset) {
    return FitsFours(cache.base + offset, cache.block_stride / element,
                     static_cast<size_t>(element)) &&
           cache.block_stride % element == 0;
  };
  return cache.head_dim % kPart == 0 && a.q_head_dim % kPart == 0 &&
         (a.v == nullptr || cache.ValueDim() % kPart == 0) &&
         (a.cos_sin == nullptr || a.rotary_dim % kPart == 0) && given(a.q, a.q_stride) &&
         given(a.k, a.k_stride) && given(a.v, a.v_stride) && floats(a.q_norm, 0) &&
         floats(a.k_norm, 0) && floats(a.cos_sin, a.cos_sin_stride) && in_cache(cache.k_offset) &&
         (a.v == nullptr || in_cache(cache.v_offset));
}

template <typename Cache, int kLanes>
cudaError_t LaunchLanes(const RopeArgs& args, cudaStream_t stream) {
  const int64_t heads =
      args.num_heads + (args.v != nullptr ? 2 : 1) * int64_t{args.cache.num_kv_heads};
  const dim3 grid(Grid(args.num_tokens, 1), Grid(heads * kLanes, kThreads));
  const bool vectors = FitsVectors(args);
  const auto launch = [&]<typename In>() {
    const auto kernel = !vectors ? &RopeKernel<In, Cache, kLanes, false, false>
                        : args.num_tokens <= kFewTokens
                            ? &RopeKernel<In, Cache, kLanes, true, true>
                            : &RopeKernel<In, Cache, kLanes, true, false>;
    return LaunchDependent(kernel, grid, kThreads, stream, args);
  };
  return args.bf16 ? launch.template operator()<BF16>() : launch.template operator()<F32>();
}

// Gives each lane one part if 32 lanes are enough. A latent is longer, but the parts of a query
// that are rotated beside it are few.
template <typename Cache>
cudaError_t Launch(const RopeArgs& args, cudaStream_t stream) {
  if (args.cache.head_dim <= 8 * kPart) return LaunchLanes<Cache, 8>(args, stream);
  if (args.cache.head_dim <= 16 * kPart || args.v == nullptr) {
    return LaunchLanes<Cache, 16>(args, stream);
  }
  return LaunchLanes<Cache, 32>(args, stream);
}

}  // namespace

cudaError_t LaunchRopeAndStore(const RopeArgs& args, cudaStream_t stream) {
  if (args.num_tokens * (args.num_heads + args.cache.num_kv_heads) == 0) return cudaSuccess;
  switch (args.cache.dtype) {
    case DType::kF32:
      return Launch<F32>(args, stream);
    case DType::kF16:
      return Launch<F16>(args, stream);
    case DType::kF8E4M3:
      return Launch<E4M3>(args, stream);
    default:
      return Launch<ExactBF16>(args, stream);
  }
}

}  // namespace tokamak::cuda
