#include "ops/cpu/linear.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/cpu/panel_layout.h"
#include "ops/cpu/panel_weight.h"

namespace tokamak::cpu {
namespace {

// Rows of x that an item takes at most: enough to pay for unpacking its weights.
constexpr int64_t kMaxItemRows = 128;
// Items that share a product well among a few cores.
constexpr int64_t kGoodItems = 16;

// How a product is cut into items: up to `width` panels times up to `rows` rows of x. It changes no
// result.
struct Cut {
  int64_t width;
  int64_t rows;
};

Cut CutFloat(const PanelWeight& weight, int64_t num_tokens) {
  // Small weights are cut finer, to feed all cores.
  return {.width = CeilDiv(weight.rows(), kPanelRows) >= 16 * kMaxPanels ? kMaxPanels : 2,
          .rows = CeilDiv(num_tokens, CeilDiv(num_tokens, kMaxItemRows))};
}

Cut CutInt8(const PanelWeight& weight, int64_t num_tokens, int64_t tokens_at_once) {
  // An item prepares its tokens once for all its panels: short wide items before long narrow ones,
  // as long as there are enough to share the work out evenly.
  const int64_t panels = CeilDiv(weight.rows(), kPanelRows);
  int64_t rows = std::max(tokens_at_once, kMaxItemRows / tokens_at_once * tokens_at_once);
  const auto width = [&] { return panels * CeilDiv(num_tokens, rows) / kGoodItems; };
  while (rows > tokens_at_once && width() < kMaxInt8Panels) rows -= tokens_at_once;
  return {.width = std::clamp<int64_t>(width(), 1, kMaxInt8Panels), .rows = rows};
}

}  // namespace

void RunLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles, const Linear& op) {
  const auto& weight = static_cast<const PanelWeight&>(*op.weight);
  const int64_t num_tokens = op.x.rows();
  if (num_tokens == 0) return;
  CHECK(op.x.dtype == weight.activation() && op.x.cols() == weight.cols());
  const float* bias = op.bias.empty() ? nullptr : static_cast<const float*>(op.bias.data);
  const bool int8 = op.x.dtype == DType::kI8Blocks;
  const auto run = int8 ? isa.int8->linear : isa.kernels->linear;
  const Cut cut =
      int8 ? CutInt8(weight, num_tokens, isa.int8->tokens_at_once) : CutFloat(weight, num_tokens);
  int64_t num_groups = 0;
  for (const PanelSegment& segment : weight.segments()) {
    num_groups += CeilDiv(segment.panels, cut.width);
  }
  pool.ParallelFor(num_groups * CeilDiv(num_tokens, cut.rows), [&](int64_t item, int worker) {
    int64_t group = item % num_groups;
    const PanelSegment* segment = weight.segments().data();
    for (; group >= CeilDiv(segment->panels, cut.width); ++segment) {
      group -= CeilDiv(segment->panels, cut.width);
    }
    const int64_t panel = group * cut.width;
    const int64_t panels = std::min(cut.width, segment->panels - panel);
    const int64_t output = segment->first_row + panel * kPanelRows;
    const int64_t row = item / num_groups * cut.rows;
    run({.dtype = segment->dtype,
         .panels = segment->data + panel * segment->panel_bytes,
         .panel_bytes = segment->panel_bytes,
         .num_panels = static_cast<int>(panels),
         .cols = weight.cols(),
         .x = op.x.RowData(row),
         .x_stride = op.x.row_stride,
         .num_tokens = std::min(cut.rows, num_tokens - row),
         .bias = bias != nullptr ? bias + output : nullptr,
         .out = op.out.Row<float>(row) + output,
         .out_stride = op.out.float_stride(),
         .num_outputs = std::min(panels * kPanelRows, segment->rows - panel * kPanelRows),
         .tile = tiles + worker * static_cast<int64_t>(kTileFloats)});
  });
}

}  // namespace tokamak::cpu
