#include "ops/cpu/linear.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cpu/panel_layout.h"
#include "ops/cpu/panel_weight.h"

namespace tokamak::cpu {
namespace {

// Rows of x that an item takes at most: enough to pay for unpacking its weights.
constexpr int64_t kMaxItemRows = 128;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t FloatStride(const Tensor& tensor) {
  return tensor.row_stride / static_cast<int64_t>(sizeof(float));
}

}  // namespace

void RunLinear(const Kernels& kernels, ThreadPool& pool, float* tiles, const Linear& op) {
  const auto& weight = static_cast<const PanelWeight&>(*op.weight);
  const int64_t num_tokens = op.x.rows();
  if (num_tokens == 0) return;
  CHECK(op.x.dtype == DType::kF32 && op.x.cols() == weight.cols());
  // Small weights are cut finer, to feed all cores. How items are cut changes no result.
  const int64_t width = CeilDiv(weight.rows(), kPanelRows) >= 16 * kMaxPanels ? kMaxPanels : 2;
  int64_t num_groups = 0;
  for (const PanelSegment& segment : weight.segments()) {
    num_groups += CeilDiv(segment.panels, width);
  }
  const int64_t item_rows = CeilDiv(num_tokens, CeilDiv(num_tokens, kMaxItemRows));
  const float* bias = op.bias.empty() ? nullptr : static_cast<const float*>(op.bias.data);
  pool.ParallelFor(num_groups * CeilDiv(num_tokens, item_rows), [&](int64_t item, int worker) {
    int64_t group = item % num_groups;
    const PanelSegment* segment = weight.segments().data();
    for (; group >= CeilDiv(segment->panels, width); ++segment) {
      group -= CeilDiv(segment->panels, width);
    }
    const int64_t panel = group * width;
    const int64_t panels = std::min(width, segment->panels - panel);
    const int64_t output = segment->first_row + panel * kPanelRows;
    const int64_t row = item / num_groups * item_rows;
    kernels.linear(
        {.dtype = segment->dtype,
         .panels = segment->data + panel * segment->panel_bytes,
         .panel_bytes = segment->panel_bytes,
         .num_panels = static_cast<int>(panels),
         .cols = weight.cols(),
         .x = op.x.Row<float>(row),
         .x_stride = FloatStride(op.x),
         .num_tokens = std::min(item_rows, num_tokens - row),
         .bias = bias != nullptr ? bias + output : nullptr,
         .out = op.out.Row<float>(row) + output,
         .out_stride = FloatStride(op.out),
         .num_outputs = std::min(panels * kPanelRows, segment->rows - panel * kPanelRows),
         .tile = tiles + worker * static_cast<int64_t>(kTileFloats)});
  });
}

}  // namespace tokamak::cpu
