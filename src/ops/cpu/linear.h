// How the CPU backend cuts products into work items.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/panel_layout.h"
#include "ops/cpu/panel_weight.h"
#include "ops/ops.h"

namespace tokamak::cpu {

// A work item has up to `width` panels times up to `rows` rows of x. Every cut gives the same bits,
// so it may depend on the number of threads.
struct Cut {
  int64_t width = 0;
  int64_t rows = 0;
};

// If x has more rows than an item, several items read the same panels. All rows are multiplied with
// this many bytes of panels before the next panels, so that these stay in a shared cache and memory
// is read once.
inline constexpr int64_t kCachedPanelBytes = int64_t{4} << 20;

// Rows [row, row + num_rows) of x times one weight.
struct Product {
  void (*run)(const LinearTask& task) = nullptr;  // the kernel for x's type
  const PanelWeight* weight = nullptr;
  const float* bias = nullptr;  // or null
  int64_t row = 0;
  int64_t num_rows = 0;
  Cut cut = {};
  int64_t panel_groups = 0;   // work items per cut of the rows
  int64_t cached_groups = 0;  // panel groups that fit into kCachedPanelBytes, at least 1
  int64_t first_item = 0;     // in the loop over all products
  // Columns of x and out before the product's first, in floats.
  int64_t x_first = 0;
  int64_t out_first = 0;
};

// Up to this many rows stay together in one item. If one pass over the weights takes them, they are
// packed once per worker, not once per item.
inline constexpr int64_t kFewRows = 12;

// Knows which worker's tile holds the rows of the current product, packed for its weights' type.
class PackedRows {
 public:
  explicit PackedRows(int num_threads) : tiles_(static_cast<size_t>(num_threads)) {}

  // Begins a product, whose rows no tile holds.
  void Begin() { ++product_; }
  // Returns whether the worker's tile holds the rows, which it will from now on. Called only by
  // that worker.
  bool HoldOn(int worker, DType dtype) {
    Tile& tile = tiles_[static_cast<size_t>(worker)];
    const bool held = tile.product == product_ && tile.dtype == dtype;
    tile = {product_, dtype};
    return held;
  }

 private:
  struct alignas(64) Tile {
    uint64_t product = 0;
    DType dtype = DType::kF32;
  };
  uint64_t product_ = 0;
  std::vector<Tile> tiles_;
};

// Maximum outputs per work item.
inline constexpr int kItemOutputs = 128 * 8 * kPanelRows;

// `tiles` has kTileFloats per worker.
void RunLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles, PackedRows& packed,
               const Linear& op);
// `outputs` has kItemOutputs floats per worker.
void RunLinearArgmax(const IsaKernels& isa, ThreadPool& pool, float* tiles, PackedRows& packed,
                     float* outputs, const LinearArgmax& op);
// A product of f32 rows on the calling thread alone, which reads each panel once. `tile` has
// kTileFloats.
void RunLinearAlone(const IsaKernels& isa, const PackedWeight& weight, const Tensor& x,
                    const Tensor& out, float* tile);
// `products` is working memory for one product per expert.
void RunGroupedLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles,
                      const GroupedLinear& op, std::vector<Product>& products);
// Only the products of HeadLinear, without its copies. `products` has room for one per head.
void RunHeadLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles, const HeadLinear& op,
                   std::vector<Product>& products);

}  // namespace tokamak::cpu
