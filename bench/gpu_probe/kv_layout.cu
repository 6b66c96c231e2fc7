// What layout and copies of a paged KV cache reach the memory's bandwidth?
//
// Kernels read what decode attention reads in a model with 8 KV heads of 128 dimensions in bf16:
// the K and the V row of every position of every sequence, one launch per layer. Blocks are found
// through a random block table, in a pool that is larger than any cache. Every byte is XORed in,
// and all ways to copy must agree on the result.
//
// Decides: whether one block should hold all layers (block-major) or each layer have an array of
// blocks (layer-major); the order of heads and positions in a block; the block's size; and how
// attention kernels copy.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/gpu_probe/probe.h"
#include "bench/gpu_probe/tensor_map.h"
#include "bench/gpu_probe/tma_ptx.h"

namespace probe {
namespace {

constexpr int kHeads = 8;
constexpr int kRowBytes = 256;  // 128 dimensions of one head
constexpr int kStageRows = 64;
constexpr int kStageBytes = kStageRows * kRowBytes;
constexpr int kConsumers = 128;
constexpr int kLoads = kStageBytes / 16 / kConsumers;
constexpr int kCopyStages = 6;  // of the cp.async kernel

// One layer's reads. A slab is the K or the V rows of one layer in one block.
struct Pattern {
  const uint8_t* pool;
  const int* table;  // [sequences][blocks_per_sequence]
  int sequences, length, blocks_per_sequence;
  int log_block, blocks;
  int layers, layer;
  bool layer_major;  // slabs ordered [layer][block][K|V], otherwise [block][layer][K|V]
  bool head_major;   // rows of a slab ordered [head][position], otherwise [position][head]
  int split;         // positions of a work unit
  int units;         // sequences x splits x groups of heads

  __device__ int64_t Slab(int sequence, int position, int kv) const {
    const int block = __ldg(table + sequence * blocks_per_sequence + (position >> log_block));
    const int64_t pair =
        layer_major ? int64_t{layer} * blocks + block : int64_t{block} * layers + layer;
    return 2 * pair + kv;
  }
  __device__ const uint8_t* Row(int sequence, int position, int kv, int head) const {
    const int in_block = position & ((1 << log_block) - 1);
    const int row = head_major ? (head << log_block) + in_block : in_block * kHeads + head;
    const int64_t slab_bytes = int64_t{kHeads * kRowBytes} << log_block;
    return pool + Slab(sequence, position, kv) * slab_bytes + row * kRowBytes;
  }
};

// Walks through a CTA's stages: 64 rows of K, the same rows of V, the next 64 rows of K. A unit
// covers Group heads, and a stage of it 64 / Group positions.
template <int Group>
struct Cursor {
  static constexpr int kPositions = kStageRows / Group;
  int unit, sequence, head, position, end, kv;

  __device__ explicit Cursor(const Pattern& p) : unit(blockIdx.x) { Start(p); }
  __device__ void Start(const Pattern& p) {
    if (unit >= p.units) return;
    constexpr int kGroups = kHeads / Group;
    const int splits = (p.length + p.split - 1) / p.split;
    head = unit % kGroups * Group;
    sequence = unit / kGroups / splits;
    position = unit / kGroups % splits * p.split;
    end = min(position + p.split, p.length);
    kv = 0;
  }
  __device__ bool Valid(const Pattern& p) const { return unit < p.units; }
  __device__ int Positions() const { return min(kPositions, end - position); }
  __device__ void Next(const Pattern& p) {
    kv ^= 1;
    if (kv == 1) return;
    position += kPositions;
    if (position < end) return;
    unit += gridDim.x;
    Start(p);
  }
  // The address of the stage's row `row`. Rows are positions of one head, or 8 positions of 8 heads
  // in the order of the slab.
  __device__ const uint8_t* Row(const Pattern& p, int row) const {
    if constexpr (Group == 1) return p.Row(sequence, position + row, kv, head);
    const int inner = row % 8, outer = row / 8;
    return p.head_major ? p.Row(sequence, position + inner, kv, outer)
                        : p.Row(sequence, position + outer, kv, inner);
  }
  __device__ bool Holds(int row) const { return Group > 1 || row < Positions(); }
};

__device__ void Finish(uint32_t bits, uint32_t* out) {
  bits = __reduce_xor_sync(~0u, bits);
  if (threadIdx.x % 32 == 0) atomicXor(out, bits);
}

// Plain loads into registers; occupancy hides the latency.
template <int Group>
__global__ void __launch_bounds__(kConsumers, 8) ReadPlain(const Pattern p, uint32_t* out) {
  uint32_t bits = 0;
  for (Cursor<Group> cursor(p); cursor.Valid(p); cursor.Next(p)) {
    uint4 values[kLoads] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int row = i * (kConsumers / 16) + threadIdx.x / 16;
      if (cursor.Holds(row)) values[i] = LoadStream(cursor.Row(p, row) + threadIdx.x % 16 * 16);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) bits ^= Fold(values[i]);
  }
  Finish(bits, out);
}

template <int Group>
__global__ void __launch_bounds__(kConsumers) ReadCopyAsync(const Pattern p, uint32_t* out) {
  extern __shared__ __align__(1024) uint8_t ring[];
  Cursor<Group> ahead(p), cursor(p);
  const auto request = [&](int slot) {
    if (ahead.Valid(p)) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int row = i * (kConsumers / 16) + threadIdx.x / 16;
        if (ahead.Holds(row)) {
          CopyAsync16(ring + slot * kStageBytes + (i * kConsumers + threadIdx.x) * 16,
                      ahead.Row(p, row) + threadIdx.x % 16 * 16);
        }
      }
      ahead.Next(p);
    }
    CommitCopies();
  };
  for (int i = 0; i < kCopyStages - 1; ++i) request(i);
  uint32_t bits = 0;
  for (int slot = 0; cursor.Valid(p); cursor.Next(p)) {
    WaitCopies<kCopyStages - 2>();
    __syncthreads();  // this stage is whole, and everybody has read the one before
    request(slot == 0 ? kCopyStages - 1 : slot - 1);
    const auto* values = reinterpret_cast<const uint4*>(ring + slot * kStageBytes);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      // Reads what another thread has copied, as attention would.
      const int at = i * kConsumers + (threadIdx.x ^ 32);
      if (cursor.Holds(at / 16)) bits ^= Fold(values[at]);
    }
    slot = slot + 1 == kCopyStages ? 0 : slot + 1;
  }
  Finish(bits, out);
}

template <int Group>
__device__ void RequestBulk(const Pattern& p, const Cursor<Group>& c, uint8_t* to,
                            uint64_t* barrier, int lane) {
  const int positions = c.Positions();
  if (lane == 0) ArriveExpect(barrier, positions * Group * kRowBytes);
  __syncwarp();
  if (Group == 1 && p.head_major) {
    const int piece = min(1 << p.log_block, kStageRows);  // rows that lie side by side
    const int from = lane * piece;
    if (from < positions) {
      BulkCopy(to + from * kRowBytes, c.Row(p, from), min(piece, positions - from) * kRowBytes,
               barrier);
    }
  } else if (Group == 1) {
    for (int row = lane; row < positions; row += 32) {
      BulkCopy(to + row * kRowBytes, c.Row(p, row), kRowBytes, barrier);
    }
  } else if (p.head_major) {
    if (lane < 8) BulkCopy(to + lane * 8 * kRowBytes, c.Row(p, lane * 8), 8 * kRowBytes, barrier);
  } else if (lane == 0) {
    BulkCopy(to, c.Row(p, 0), kStageBytes, barrier);
  }
}

// The two halves of rows, 128 bytes each, are separate boxes: the swizzle allows no wider ones.
template <int Group>
__device__ void RequestTensor(const Pattern& p, const CUtensorMap& map, const Cursor<Group>& c,
                              uint8_t* to, uint64_t* barrier, int lane) {
  const int rows = Group == 1 ? 1 << p.log_block : kStageRows;  // of one box
  const int boxes = Group == 1 ? (c.Positions() + rows - 1) / rows : 1;
  if (lane == 0) ArriveExpect(barrier, 2 * boxes * rows * 128);
  __syncwarp();
  if (lane >= 2 * boxes) return;
  const int half = lane & 1, box = lane / 2;
  const int position = c.position + (Group == 1 ? box * rows : 0);
  const int in_block = position & ((1 << p.log_block) - 1);
  const int slab = static_cast<int>(p.Slab(c.sequence, position, c.kv));
  TensorCopy4(to + half * (kStageBytes / 2) + box * rows * 128, &map, half * 64,
              p.head_major ? in_block : c.head, p.head_major ? c.head : in_block, slab, barrier);
}

// Four warps read what a fifth requests.
template <int Group, bool Tensor>
__global__ void __launch_bounds__(kConsumers + 32)
    ReadRing(const Pattern p, const __grid_constant__ CUtensorMap map, int stages, uint32_t* out) {
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ uint64_t full[16], empty[16];
  uint8_t* ring = shared + (1024 - SharedAddress(shared) % 1024) % 1024;
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      InitBarrier(&full[i], 1);
      InitBarrier(&empty[i], kConsumers / 32);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  RingPosition at;
  if (threadIdx.x >= kConsumers) {
    for (Cursor<Group> cursor(p); cursor.Valid(p); cursor.Next(p)) {
      WaitParity(&empty[at.slot], at.parity ^ 1);
      uint8_t* to = ring + at.slot * kStageBytes;
      if constexpr (Tensor) {
        RequestTensor(p, map, cursor, to, &full[at.slot], lane);
      } else {
        RequestBulk(p, cursor, to, &full[at.slot], lane);
      }
      at.Next(stages);
    }
    return;
  }
  uint32_t bits = 0;
  for (Cursor<Group> cursor(p); cursor.Valid(p); cursor.Next(p)) {
    WaitParity(&full[at.slot], at.parity);
    const auto* values = reinterpret_cast<const uint4*>(ring + at.slot * kStageBytes);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int index = i * kConsumers + threadIdx.x;
      const int row = Tensor ? index / 8 % kStageRows : index / 16;
      if (cursor.Holds(row)) bits ^= Fold(values[index]);
    }
    ReleaseStage(&empty[at.slot]);
    at.Next(stages);
  }
  Finish(bits, out);
}

// Host ------------------------------------------------------------------------------------------

enum class Method { kPlain, kCopyAsync, kBulk, kTensor };

struct Batch {
  int sequences, length;
};

class Pool {
 public:
  explicit Pool(Report& report) : report_(report) {
    PROBE_CHECK(cudaStreamCreate(&stream_));
    size_t free = 0, total = 0;
    PROBE_CHECK(cudaMemGetInfo(&free, &total));
    while (layers_ > 1 && Bytes() + (size_t{1} << 30) > free) --layers_;
    pool_ = DeviceMemory(Bytes());
    out_ = DeviceMemory(4);
    FillRandomBits(pool_.As(), pool_.bytes(), 17, stream_);
    const size_t plain = std::min<size_t>(8'000'000'000, pool_.bytes());
    const Timing time = TimePlainRead(pool_.As(), plain, out_.As<uint32_t>(), stream_);
    plain_ = static_cast<double>(plain) / time.median_us / 1e3;
    report.Text("pool of %.1f GB, %d layers; plain read of %.1f GB: %.0f GB/s (%.0f to %.0f)",
                static_cast<double>(pool_.bytes()) / 1e9, layers_, static_cast<double>(plain) / 1e9,
                plain_, static_cast<double>(plain) / time.max_us / 1e3,
                static_cast<double>(plain) / time.min_us / 1e3);
  }

  // Sets the block table: each sequence gets random blocks of the pool.
  void SetBatch(Batch batch, int log_block) {
    batch_ = batch;
    log_block_ = log_block;
    std::vector<int> blocks(kPositions >> log_block);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(7));
    const int per_sequence = (batch.length + (1 << log_block) - 1) >> log_block;
    blocks.resize(size_t(batch.sequences) * per_sequence);
    table_ = DeviceMemory(blocks.size() * sizeof(int));
    PROBE_CHECK(cudaMemcpy(table_.As(), blocks.data(), table_.bytes(), cudaMemcpyHostToDevice));
  }

  // All layers, one launch each. Returns a table cell: GB/s (slowest to fastest), share.
  template <int Group>
  std::string Measure(Method method, bool layer_major, bool head_major, int stages, int ctas) {
    Pattern p = MakePattern<Group>(layer_major, head_major);
    const CUtensorMap map = MakeMap<Group>(head_major);
    const auto layers = [&] {
      for (p.layer = 0; p.layer < layers_; ++p.layer) Launch<Group>(method, p, map, stages, ctas);
    };
    const double bytes = 2.0 * kHeads * kRowBytes * batch_.sequences * batch_.length * layers_;
    const Timing time = Time(stream_, layers, 7);
    PROBE_CHECK(cudaMemsetAsync(out_.As(), 0, 4, stream_));
    layers();
    uint32_t bits = 0;
    PROBE_CHECK(cudaMemcpyAsync(&bits, out_.As(), 4, cudaMemcpyDeviceToHost, stream_));
    PROBE_CHECK(cudaStreamSynchronize(stream_));
    if (method == Method::kPlain) expected_ = bits;
    char cell[128];
    std::snprintf(cell, sizeof(cell), "%.0f (%.0f to %.0f), %.1f %%%s",
                  bytes / time.median_us / 1e3, bytes / time.max_us / 1e3,
                  bytes / time.min_us / 1e3, 100 * bytes / time.median_us / 1e3 / plain_,
                  bits == expected_ ? "" : " WRONG DATA");
    return cell;
  }

 private:
  static constexpr int kPositions = 262'144;
  size_t Bytes() const { return size_t{kPositions} * 2 * kHeads * kRowBytes * layers_; }

  template <int Group>
  Pattern MakePattern(bool layer_major, bool head_major) const {
    Pattern p{};
    p.pool = pool_.As<uint8_t>();
    p.table = table_.As<int>();
    p.sequences = batch_.sequences;
    p.length = batch_.length;
    p.blocks_per_sequence = (batch_.length + (1 << log_block_) - 1) >> log_block_;
    p.log_block = log_block_;
    p.blocks = kPositions >> log_block_;
    p.layers = layers_;
    p.layer_major = layer_major;
    p.head_major = head_major;
    p.split = Group == 1 ? 256 : 64;
    p.units = p.sequences * ((p.length + p.split - 1) / p.split) * (kHeads / Group);
    return p;
  }

  // [slab][position][head][128] or [slab][head][position][128]; a box is half the rows of a stage
  // or of a block.
  template <int Group>
  CUtensorMap MakeMap(bool head_major) const {
    const auto block = static_cast<cuuint64_t>(1 << log_block_);
    const cuuint64_t slab = block * kHeads * kRowBytes;
    const cuuint64_t outer = head_major ? block : kHeads;
    const auto rows = static_cast<cuuint32_t>(Group == 1 ? block : 8);
    const cuuint32_t one = Group == 1 ? 1 : 8;
    return MakeTensorMap(
        pool_.As(), {128, outer, head_major ? kHeads : block, pool_.bytes() / slab},
        {kRowBytes, kRowBytes * outer, slab},
        {64, head_major ? rows : one, head_major ? one : rows, 1}, CU_TENSOR_MAP_L2_PROMOTION_NONE);
  }

  template <int Group>
  void Launch(Method method, const Pattern& p, const CUtensorMap& map, int stages, int ctas) {
    auto* out = out_.As<uint32_t>();
    const int sms = SmCount();
    if (method == Method::kPlain) {
      ReadPlain<Group><<<std::min(p.units, sms * 8), kConsumers, 0, stream_>>>(p, out);
    } else if (method == Method::kCopyAsync) {
      constexpr int kBytes = kCopyStages * kStageBytes;
      AllowSharedMemory(reinterpret_cast<const void*>(ReadCopyAsync<Group>), kBytes);
      ReadCopyAsync<Group><<<std::min(p.units, sms * 2), kConsumers, kBytes, stream_>>>(p, out);
    } else {
      const auto kernel = method == Method::kBulk ? ReadRing<Group, false> : ReadRing<Group, true>;
      const int bytes = stages * kStageBytes + 1024;
      AllowSharedMemory(reinterpret_cast<const void*>(kernel), bytes);
      kernel<<<std::min(p.units, sms * ctas), kConsumers + 32, bytes, stream_>>>(p, map, stages,
                                                                                 out);
    }
    PROBE_CHECK(cudaGetLastError());
  }

  Report& report_;
  cudaStream_t stream_ = nullptr;
  int layers_ = 28;
  DeviceMemory pool_, table_, out_;
  double plain_ = 0;
  Batch batch_{};
  int log_block_ = 4;
  uint32_t expected_ = 0;
};

template <int Group>
void Row(Report& report, Pool& pool, bool layer_major, bool head_major, const char* prefix) {
  if (!report.HasSeconds(3)) return;
  std::string cells;
  for (const Method method : {Method::kPlain, Method::kCopyAsync, Method::kBulk, Method::kTensor}) {
    cells += " | " + pool.Measure<Group>(method, layer_major, head_major, 6, 2);
  }
  report.Row("%s | %s | %s | %d%s", prefix, layer_major ? "layer-major" : "block-major",
             head_major ? "head, position" : "position, head", Group, cells.c_str());
}

}  // namespace

void RunKvLayout(Report& report) {
  Pool pool(report);
  const Batch batches[] = {{256, 1000}, {16, 4000}, {1, 32768}};
  report.Table("GB/s, median (slowest to fastest), share of the plain read; one launch per layer",
               "sequences x positions | block | slabs | rows of a slab | heads of a unit | loads | "
               "cp.async | bulk copies | tensor map, 128-byte swizzle");
  for (const Batch batch : batches) {
    for (const int log_block : {4, 5, 6}) {
      pool.SetBatch(batch, log_block);
      char prefix[64];
      std::snprintf(prefix, sizeof(prefix), "%d x %d | %d", batch.sequences, batch.length,
                    1 << log_block);
      for (const bool head_major : {false, true}) {
        for (const bool layer_major : {false, true}) {
          Row<1>(report, pool, layer_major, head_major, prefix);
          Row<kHeads>(report, pool, layer_major, head_major, prefix);
        }
      }
    }
  }
  report.Table("Stages of 16 KB and CTAs per SM: 256 x 1000, blocks of 16, block-major, one head",
               "rows of a slab | stages | CTAs per SM | bulk copies | tensor map");
  pool.SetBatch(batches[0], 4);
  for (const bool head_major : {false, true}) {
    (void)pool.Measure<1>(Method::kPlain, false, head_major, 6, 2);  // the expected bits
    for (const auto& [stages, ctas] :
         {std::pair{2, 1}, {4, 1}, {6, 1}, {12, 1}, {3, 2}, {6, 2}, {2, 4}, {3, 4}}) {
      if (!report.HasSeconds(3)) return;
      const std::string bulk = pool.Measure<1>(Method::kBulk, false, head_major, stages, ctas);
      const std::string map = pool.Measure<1>(Method::kTensor, false, head_major, stages, ctas);
      report.Row("%s | %d | %d | %s | %s", head_major ? "head, position" : "position, head", stages,
                 ctas, bulk.c_str(), map.c_str());
    }
  }
}

}  // namespace probe
