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

// Maximum outputs per work item.
inline constexpr int kItemOutputs = 128 * 8 * kPanelRows;

// `tiles` has kTileFloats per worker.
void RunLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles, const Linear& op);
// `outputs` has kItemOutputs floats per worker.
void RunLinearArgmax(const IsaKernels& isa, ThreadPool& pool, float* tiles, float* outputs,
                     const LinearArgmax& op);
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
