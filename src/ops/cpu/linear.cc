#include "ops/cpu/linear.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cpu/panel_layout.h"
#include "ops/cpu/panel_weight.h"

namespace tokamak::cpu {
namespace {

// Rows of x that an item takes at most: enough to pay for unpacking its weights.
constexpr int64_t kMaxItemRows = 128;
// Items that share a product well among a few cores.
constexpr int64_t kGoodItems = 16;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t FloatStride(const Tensor& tensor) {
  return tensor.row_stride / static_cast<int64_t>(sizeof(float));
}

// Panels [first, first + count) of a segment times rows [row, row + num_tokens) of x.
struct Item {
  const PanelSegment* segment;
  int64_t first;
  int64_t count;
  int64_t row;
  int64_t num_tokens;

  const std::byte* data() const { return segment->data + first * segment->panel_bytes; }
  int64_t output() const { return segment->first_row + first * kPanelRows; }
  int64_t num_outputs() const {
    return std::min(count * kPanelRows, segment->rows - first * kPanelRows);
  }
};

// Calls body(item, worker) for items of up to `width` panels and `item_rows` rows. How they are cut
// changes no result.
template <typename Body>
void ForItems(const PanelWeight& weight, ThreadPool& pool, int64_t num_tokens, int64_t width,
              int64_t item_rows, Body body) {
  int64_t num_groups = 0;
  for (const PanelSegment& segment : weight.segments()) {
    num_groups += CeilDiv(segment.panels, width);
  }
  pool.ParallelFor(num_groups * CeilDiv(num_tokens, item_rows), [&](int64_t index, int worker) {
    int64_t group = index % num_groups;
    const PanelSegment* segment = weight.segments().data();
    for (; group >= CeilDiv(segment->panels, width); ++segment) {
      group -= CeilDiv(segment->panels, width);
    }
    const int64_t first = group * width;
    const int64_t row = index / num_groups * item_rows;
    body(Item{.segment = segment,
              .first = first,
              .count = std::min(width, segment->panels - first),
              .row = row,
              .num_tokens = std::min(item_rows, num_tokens - row)},
         worker);
  });
}

void RunFloat(const Kernels& kernels, ThreadPool& pool, float* tiles, const Linear& op,
              const PanelWeight& weight, const float* bias) {
  // Small weights are cut finer, to feed all cores.
  const int64_t width = CeilDiv(weight.rows(), kPanelRows) >= 16 * kMaxPanels ? kMaxPanels : 2;
  const int64_t num_tokens = op.x.rows();
  const int64_t item_rows = CeilDiv(num_tokens, CeilDiv(num_tokens, kMaxItemRows));
  ForItems(weight, pool, num_tokens, width, item_rows, [&](const Item& item, int worker) {
    kernels.linear({.dtype = item.segment->dtype,
                    .panels = item.data(),
                    .panel_bytes = item.segment->panel_bytes,
                    .num_panels = static_cast<int>(item.count),
                    .cols = weight.cols(),
                    .x = op.x.Row<float>(item.row),
                    .x_stride = FloatStride(op.x),
                    .num_tokens = item.num_tokens,
                    .bias = bias != nullptr ? bias + item.output() : nullptr,
                    .out = op.out.Row<float>(item.row) + item.output(),
                    .out_stride = FloatStride(op.out),
                    .num_outputs = item.num_outputs(),
                    .tile = tiles + worker * static_cast<int64_t>(kTileFloats)});
  });
}

void RunInt8(const Int8Kernels& kernels, ThreadPool& pool, const Linear& op,
             const PanelWeight& weight, const float* bias) {
  const int64_t num_tokens = op.x.rows();
  const int64_t step = kernels.tokens_at_once;
  const int64_t item_rows = std::max(step, kMaxItemRows / step * step);
  // Wide items share what is prepared for their tokens, narrow ones share the work out evenly.
  const int64_t panels = CeilDiv(weight.rows(), kPanelRows) * CeilDiv(num_tokens, item_rows);
  const int64_t width = std::clamp<int64_t>(panels / kGoodItems, 1, kMaxInt8Panels);
  ForItems(weight, pool, num_tokens, width, item_rows, [&](const Item& item, int) {
    kernels.linear({.dtype = item.segment->dtype,
                    .panels = item.data(),
                    .panel_bytes = item.segment->panel_bytes,
                    .num_panels = static_cast<int>(item.count),
                    .cols = weight.cols(),
                    .x = op.x.RowData(item.row),
                    .x_stride = op.x.row_stride,
                    .num_tokens = item.num_tokens,
                    .bias = bias != nullptr ? bias + item.output() : nullptr,
                    .out = op.out.Row<float>(item.row) + item.output(),
                    .out_stride = FloatStride(op.out),
                    .num_outputs = item.num_outputs()});
  });
}

}  // namespace

void RunLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles, const Linear& op) {
  const auto& weight = static_cast<const PanelWeight&>(*op.weight);
  if (op.x.rows() == 0) return;
  CHECK(op.x.dtype == weight.activation() && op.x.cols() == weight.cols());
  const float* bias = op.bias.empty() ? nullptr : static_cast<const float*>(op.bias.data);
  if (op.x.dtype == DType::kI8Blocks) {
    RunInt8(*isa.int8, pool, op, weight, bias);
  } else {
    RunFloat(*isa.kernels, pool, tiles, op, weight, bias);
  }
}

}  // namespace tokamak::cpu
