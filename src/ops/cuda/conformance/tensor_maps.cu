// TMA with tensor maps: boxes of every rank, every swizzle and several element sizes, which cover a
// tensor and extend past its edges.
#include <algorithm>
#include <string>
#include <vector>

#include "ops/cuda/conformance/conformance.h"
#include "ops/cuda/ptx.h"
#include "ops/cuda/tensor_map.h"

namespace tokamak::cuda {
namespace {

constexpr unsigned kThreads = 2 * kWarp;
constexpr size_t kMaxBoxes = 20;
constexpr size_t kMaxBoxWords = 512;

struct alignas(1024) BoxMemory {
  uint32_t data[2][kMaxBoxWords];
  uint64_t full[2];
};

// The coordinates at which the boxes begin.
template <size_t kRank>
struct Plan {
  unsigned num_boxes;
  unsigned box_words;
  int at[kMaxBoxes][kRank];
};

// One thread loads boxes into two buffers in turn; all threads copy them to `out` as they lie
// there.
template <size_t kRank>
__global__ void LoadKernel(const __grid_constant__ CUtensorMap map,
                           const __grid_constant__ Plan<kRank> plan, uint32_t* out) {
  DYNAMIC_SHARED(memory, BoxMemory);
  const auto fetch = [&](unsigned i) {
    if (threadIdx.x != 0 || i >= plan.num_boxes) return;
    ptx::ArriveAndExpect(&memory->full[i % 2], static_cast<int>(plan.box_words * 4));
    ptx::LoadBox(memory->data[i % 2], &map, plan.at[i], &memory->full[i % 2]);
  };
  if (threadIdx.x == 0) {
    ptx::PrefetchMap(&map);
    for (uint64_t& barrier : memory->full) ptx::InitBarrier(&barrier, 1);
  }
  __syncthreads();
  fetch(0);
  for (unsigned i = 0; i < plan.num_boxes; ++i) {
    fetch(i + 1);
    ptx::WaitForPhase(&memory->full[i % 2], i / 2 % 2);
    for (unsigned w = threadIdx.x; w < plan.box_words; w += kThreads) {
      out[i * plan.box_words + w] = memory->data[i % 2][w];
    }
    ptx::FenceAsyncProxy();
    __syncthreads();  // the buffer has been read
  }
}

// Two CTAs load a box each, and each gets both.
__global__ void MulticastKernel(const __grid_constant__ CUtensorMap map,
                                const __grid_constant__ Plan<2> plan, uint32_t* out) {
  DYNAMIC_SHARED(memory, BoxMemory);
  const int rank = ptx::ClusterRank();
  if (threadIdx.x == 0) {
    ptx::InitBarrier(&memory->full[0], 1);
    ptx::ArriveAndExpect(&memory->full[0], static_cast<int>(2 * plan.box_words * 4));
  }
  ptx::SyncCluster();
  if (threadIdx.x == 0) {
    ptx::LoadBoxToCtas(memory->data[rank], &map, plan.at[rank], &memory->full[0], 3);
  }
  ptx::WaitForPhase(&memory->full[0], 0);
  for (unsigned i = 0; i < 2; ++i) {
    for (unsigned w = threadIdx.x; w < plan.box_words; w += kThreads) {
      out[(static_cast<unsigned>(rank) * 2 + i) * plan.box_words + w] = memory->data[i][w];
    }
  }
  ptx::SyncCluster();  // nobody ends while others copy to it
}

// All threads fill two buffers in turn, and one thread stores them as boxes of `stored`. Afterwards
// all threads read what has been stored.
template <size_t kRank>
__global__ void StoreKernel(const __grid_constant__ CUtensorMap map,
                            const __grid_constant__ Plan<kRank> plan, const uint32_t* in,
                            const uint32_t* stored, unsigned stored_words, uint32_t* out) {
  DYNAMIC_SHARED(memory, BoxMemory);
  for (unsigned i = 0; i < plan.num_boxes; ++i) {
    if (threadIdx.x == 0) ptx::WaitForStoreReads<1>();
    __syncthreads();  // the buffer has been read
    for (unsigned w = threadIdx.x; w < plan.box_words; w += kThreads) {
      memory->data[i % 2][w] = in[i * plan.box_words + w];
    }
    ptx::FenceAsyncProxy();
    __syncthreads();
    if (threadIdx.x == 0) {
      ptx::StoreBox(&map, plan.at[i], memory->data[i % 2]);
      ptx::CommitStores();
    }
  }
  if (threadIdx.x == 0) ptx::WaitForStores<0>();
  __syncthreads();
  for (unsigned w = threadIdx.x; w < stored_words; w += kThreads) out[w] = stored[w] * 3 + 1;
}

struct Shape {
  std::string name;
  BoxedTensor tensor;
  std::vector<int> first;  // coordinates of the first box that is loaded; stores begin at 0

  size_t BoxWords() const {
    size_t bytes = static_cast<size_t>(tensor.element_bytes);
    for (const uint32_t size : tensor.box) bytes *= size;
    return bytes / 4;
  }
  size_t TensorWords() const {
    const size_t row = tensor.sizes[0] * static_cast<size_t>(tensor.element_bytes);
    return (tensor.strides.empty() ? row : tensor.sizes.back() * tensor.strides.back()) / 4;
  }
};

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {"1d of 4 bytes", {nullptr, 4, {200}, {}, {64}, 0}, {-8}},
      {"2d of 2 bytes, swizzle 128", {nullptr, 2, {72, 30}, {160}, {64, 12}, 128}, {-8, -4}},
      {"2d of 1 byte, swizzle 64", {nullptr, 1, {100, 20}, {112}, {64, 16}, 64}, {-16, -3}},
      {"3d of 4 bytes, swizzle 32",
       {nullptr, 4, {12, 6, 7}, {64, 448}, {8, 4, 5}, 32},
       {-4, -1, -1}},
      // In memory, the second dimension is outside of the third: its stride is larger.
      {"4d of 2 bytes, swizzle 128",
       {nullptr, 2, {64, 3, 5, 3}, {640, 128, 1984}, {64, 2, 3, 2}, 128},
       {0, 0, -1, -1}},
      {"5d of 1 byte",
       {nullptr, 1, {20, 2, 3, 3, 3}, {32, 64, 192, 592}, {16, 2, 2, 2, 2}, 0},
       {0, 0, 0, -1, 0}}};
  return shapes;
}

// Plans boxes side by side that cover the tensor, and one outside of it.
template <size_t kRank>
Plan<kRank> MakePlan(const Shape& shape, const std::vector<int>& first) {
  Plan<kRank> plan = {.num_boxes = 0, .box_words = static_cast<unsigned>(shape.BoxWords()), .at{}};
  const auto step = [&](size_t d) { return static_cast<int>(shape.tensor.box[d]); };
  int at[kRank];
  std::copy_n(first.begin(), kRank, at);
  for (bool more = true; more;) {
    std::copy_n(at, kRank, plan.at[plan.num_boxes++]);
    more = false;
    for (size_t d = 0; d < kRank && !more; ++d) {
      at[d] += step(d);
      more = at[d] < static_cast<int>(shape.tensor.sizes[d]);
      if (!more) at[d] = first[d];
    }
  }
  at[kRank - 1] = static_cast<int>(shape.tensor.sizes[kRank - 1]) + 4;
  std::copy_n(at, kRank, plan.at[plan.num_boxes++]);
  return plan;
}

// Calls visit(offset in the tensor, or -1 outside of it; offset in shared memory) for each byte of
// a box. The sizes of `tensor` include the padding of rows that is copied.
template <size_t kRank, typename Visit>
void ForEachByte(const BoxedTensor& tensor, const int (&at)[kRank], size_t box_bytes,
                 const Visit& visit) {
  const auto element_bytes = static_cast<size_t>(tensor.element_bytes);
  const size_t columns = std::max<size_t>(static_cast<size_t>(tensor.swizzle) / 16, 1);
  for (size_t byte = 0; byte < box_bytes; ++byte) {
    size_t rest = byte / element_bytes;
    auto place = static_cast<int64_t>(byte % element_bytes);
    bool inside = true;
    for (size_t d = 0; d < kRank; ++d) {
      const int64_t x = at[d] + static_cast<int64_t>(rest % tensor.box[d]);
      rest /= tensor.box[d];
      inside = inside && x >= 0 && x < static_cast<int64_t>(tensor.sizes[d]);
      place += x * static_cast<int64_t>(d == 0 ? element_bytes : tensor.strides[d - 1]);
    }
    const size_t line = byte / 128, chunk = byte / 16, column = chunk % columns;
    const size_t swizzled = (chunk - column + (column ^ line % columns)) * 16 + byte % 16;
    visit(inside ? place : -1, swizzled);
  }
}

template <size_t kRank>
void ExpectLoad(const Shape& shape, const Plan<kRank>& plan, size_t box, const Words& in,
                Words& out) {
  const auto* const from = reinterpret_cast<const uint8_t*>(in.data());
  Words loaded(plan.box_words);
  auto* const to = reinterpret_cast<uint8_t*>(loaded.data());
  ForEachByte(shape.tensor, plan.at[box], plan.box_words * 4, [&](int64_t global, size_t shared) {
    if (global >= 0) to[shared] = from[global];
  });
  out.insert(out.end(), loaded.begin(), loaded.end());
}

template <size_t kRank>
Words ExpectStore(const Shape& shape, const Plan<kRank>& plan, const Words& in) {
  BoxedTensor padded = shape.tensor;  // stores are cut off at multiples of 16 bytes
  const uint64_t per_chunk = 16 / static_cast<uint64_t>(padded.element_bytes);
  padded.sizes[0] = (padded.sizes[0] + per_chunk - 1) / per_chunk * per_chunk;
  const size_t words = shape.TensorWords();
  Words out(2 * words);
  auto* const to = reinterpret_cast<uint8_t*>(out.data());
  for (size_t i = 0; i < plan.num_boxes; ++i) {
    const auto* const from = reinterpret_cast<const uint8_t*>(&in[i * plan.box_words]);
    ForEachByte(padded, plan.at[i], plan.box_words * 4, [&](int64_t global, size_t shared) {
      if (global >= 0) to[global] = from[shared];
    });
  }
  for (size_t w = 0; w < words; ++w) out[words + w] = out[w] * 3 + 1;
  return out;
}

// Launches the kernel on a map of the shape's tensor at `data`.
template <typename... Params, typename... Args>
cudaError_t Launch(const CtaGroups& groups, void (*kernel)(CUtensorMap, Params...),
                   const Shape& shape, const void* data, cudaStream_t stream, const Args&... args) {
  BoxedTensor tensor = shape.tensor;
  tensor.data = const_cast<void*>(data);
  CUtensorMap map = {};
  if (MakeTensorMap(tensor, &map) != CUDA_SUCCESS) return cudaErrorInvalidValue;
  return LaunchGroups(groups, kernel, groups.cluster, kThreads, sizeof(BoxMemory), stream, map,
                      args...);
}

template <size_t kRank>
void AddCases(const Shape& shape, std::vector<Case>& cases) {
  const Plan<kRank> plan = MakePlan<kRank>(shape, shape.first);
  const Plan<kRank> stores = MakePlan<kRank>(shape, std::vector<int>(kRank, 0));
  cases.push_back({.name = "TMA load, " + shape.name,
                   .expect =
                       [=](const Words& in) {
                         Words out;
                         for (size_t i = 0; i < plan.num_boxes; ++i)
                           ExpectLoad(shape, plan, i, in, out);
                         return out;
                       },
                   .run =
                       [=](const uint32_t* in, uint32_t* out, cudaStream_t stream) {
                         return Launch({}, LoadKernel<kRank>, shape, in, stream, plan, out);
                       }});
  cases.push_back({.name = "TMA store, " + shape.name,
                   .expect = [=](const Words& in) { return ExpectStore(shape, stores, in); },
                   .run =
                       [=](const uint32_t* in, uint32_t* out, cudaStream_t stream) {
                         const size_t words = shape.TensorWords();
                         return Launch({}, StoreKernel<kRank>, shape, out, stream, stores, in, out,
                                       static_cast<unsigned>(words), out + words);
                       }});
}

void AddMulticastCase(const Shape& shape, std::vector<Case>& cases) {
  const Plan<2> plan = MakePlan<2>(shape, shape.first);
  cases.push_back({.name = "TMA load to a cluster",
                   .expect =
                       [=](const Words& in) {
                         Words out;
                         for (size_t i = 0; i < 4; ++i) ExpectLoad(shape, plan, i % 2, in, out);
                         return out;
                       },
                   .run =
                       [=](const uint32_t* in, uint32_t* out, cudaStream_t stream) {
                         return Launch({.cluster = 2}, MulticastKernel, shape, in, stream, plan,
                                       out);
                       }});
}

}  // namespace

void AddTensorMapCases(std::vector<Case>& cases) {
  const std::vector<Shape>& shapes = Shapes();
  AddCases<1>(shapes[0], cases);
  AddCases<2>(shapes[1], cases);
  AddCases<2>(shapes[2], cases);
  AddCases<3>(shapes[3], cases);
  AddCases<4>(shapes[4], cases);
  AddCases<5>(shapes[5], cases);
  AddMulticastCase(shapes[1], cases);
}

}  // namespace tokamak::cuda
