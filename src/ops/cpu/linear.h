// Linear and its kin on the CPU: how products are cut into work items.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/panel_layout.h"
#include "ops/cpu/panel_weight.h"
#include "ops/ops.h"

namespace tokamak::cpu {

// How a product is cut into items: up to `width` panels times up to `rows` rows of x. An output is
// computed the same way in any item, so that the cut may depend on the number of threads.
struct Cut {
  int64_t width = 0;
  int64_t rows = 0;
};

// A product with more rows of x than an item has reads its panels again for each cut of the rows.
// From memory it reads them once: so many bytes of panels meet all rows before the next ones do,
// and stay in a cache that the cores share.
inline constexpr int64_t kCachedPanelBytes = int64_t{4} << 20;

// Rows [row, row + num_rows) of x times one weight.
struct Product {
  void (*run)(const LinearTask& task) = nullptr;  // what multiplies rows of x's type
  const PanelWeight* weight = nullptr;
  const float* bias = nullptr;  // or null
  int64_t row = 0;
  int64_t num_rows = 0;
  Cut cut = {};
  int64_t panel_groups = 0;   // items for each cut of rows
  int64_t cached_groups = 0;  // of which so many are at most kCachedPanelBytes, or one
  int64_t first_item = 0;     // in the loop over all products
  // Columns of x and out that come before the product's, in floats.
  int64_t x_first = 0;
  int64_t out_first = 0;
};

// Outputs that one work item makes at most.
inline constexpr int kItemOutputs = 128 * 8 * kPanelRows;

// `tiles` is kTileFloats per worker.
void RunLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles, const Linear& op);
// `outputs` is kItemOutputs floats per worker.
void RunLinearArgmax(const IsaKernels& isa, ThreadPool& pool, float* tiles, float* outputs,
                     const LinearArgmax& op);
// A product of f32 rows by the calling thread alone, which reads each panel once. `tile` is
// kTileFloats.
void RunLinearAlone(const IsaKernels& isa, const PackedWeight& weight, const Tensor& x,
                    const Tensor& out, float* tile);
// `products` is working memory, with room for one per expert.
void RunGroupedLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles,
                      const GroupedLinear& op, std::vector<Product>& products);
// The products of HeadLinear, with room for one per head; copies nothing.
void RunHeadLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles, const HeadLinear& op,
                   std::vector<Product>& products);

}  // namespace tokamak::cpu
