#include "ops/cpu/linear.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <limits>
#include <span>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/cpu/panel_layout.h"
#include "ops/sampling/logits_row.h"

namespace tokamak::cpu {
namespace {

// Maximum rows of x per item: enough to pay for unpacking its weights.
constexpr int64_t kMaxItemRows = 128;
static_assert(kMaxItemRows * std::max({kMaxPanels, kMaxInt8Panels, kMaxBf16Panels}) * kPanelRows <=
              kItemOutputs);
// kGoodItems items per core, and at least kMinGoodItems in all, balance a product well.
constexpr int64_t kGoodItems = 4;
constexpr int64_t kMinGoodItems = 16;

Cut CutFloat(const PanelWeight& weight, int64_t num_tokens) {
  // Small weights are cut finer, to feed all cores.
  return {.width = CeilDiv(weight.rows(), kPanelRows) >= 16 * kMaxPanels ? kMaxPanels : 2,
          .rows = CeilDiv(num_tokens, CeilDiv(num_tokens, kMaxItemRows))};
}

Cut CutPacked(const PanelWeight& weight, int64_t num_tokens, int64_t tokens_at_once,
              int64_t max_panels, int num_threads) {
  const int64_t good_items = std::max(kMinGoodItems, kGoodItems * num_threads);
  tokens_at_once = std::max(tokens_at_once, std::min(num_tokens, kFewRows));
  // An item prepares its tokens once for all its panels: prefer short wide items as long as there
  // are enough to balance the work.
  const int64_t panels = CeilDiv(weight.rows(), kPanelRows);
  int64_t rows = std::max(tokens_at_once, kMaxItemRows / tokens_at_once * tokens_at_once);
  const auto width = [&] { return panels * CeilDiv(num_tokens, rows) / good_items; };
  while (rows > tokens_at_once && width() < max_panels) rows -= tokens_at_once;
  return {.width = std::clamp<int64_t>(width(), 1, max_panels), .rows = rows};
}

Product MakeProduct(const IsaKernels& isa, int num_threads, const Tensor& x,
                    const PackedWeight& packed, const float* bias, int64_t row, int64_t num_rows,
                    int64_t first_item) {
  const auto& weight = static_cast<const PanelWeight&>(packed);
  CHECK(x.dtype == weight.activation() && x.cols() >= weight.cols());
  Product product = {
      .weight = &weight, .bias = bias, .row = row, .num_rows = num_rows, .first_item = first_item};
  switch (weight.activation()) {
    case DType::kI8Blocks:
      product.run = isa.int8->linear;
      product.cut =
          CutPacked(weight, num_rows, isa.int8->tokens_at_once, kMaxInt8Panels, num_threads);
      break;
    case DType::kBF16:
      product.run = isa.bf16->linear;
      product.cut =
          CutPacked(weight, num_rows, isa.bf16->tokens_at_once, kMaxBf16Panels, num_threads);
      break;
    default:
      product.run = isa.kernels->linear;
      product.cut = CutFloat(weight, num_rows);
  }
  int64_t widest = 1;  // bytes of a group of panels
  for (const PanelSegment& segment : weight.segments()) {
    product.panel_groups += CeilDiv(segment.panels, product.cut.width);
    widest = std::max(widest, std::min(segment.panels, product.cut.width) * segment.panel_bytes);
  }
  product.cached_groups = std::clamp<int64_t>(kCachedPanelBytes / widest, 1, product.panel_groups);
  return product;
}

int64_t EndItem(const Product& product) {
  return product.first_item + product.panel_groups * CeilDiv(product.num_rows, product.cut.rows);
}

// Panels [panel, panel + panels) of a segment times rows [row, row + num_rows) of x.
struct Piece {
  const PanelSegment* segment = nullptr;
  int64_t panel = 0;
  int64_t panels = 0;
  int64_t row = 0;
  int64_t num_rows = 0;

  int64_t first_output() const { return segment->first_row + panel * kPanelRows; }
  int64_t num_outputs() const {
    return std::min(panels * kPanelRows, segment->rows - panel * kPanelRows);
  }
};

// `out` is the first row and output.
void RunPiece(const Product& product, const Piece& piece, const Tensor& x, float* out,
              int64_t out_stride, float* tile, bool tokens_packed) {
  const PanelSegment& segment = *piece.segment;
  product.run({.dtype = segment.dtype,
               .panels = segment.data + piece.panel * segment.panel_bytes,
               .panel_bytes = segment.panel_bytes,
               .num_panels = static_cast<int>(piece.panels),
               .cols = product.weight->cols(),
               .x = x.RowData(piece.row) + product.x_first * static_cast<int64_t>(sizeof(float)),
               .x_stride = x.row_stride,
               .num_tokens = piece.num_rows,
               .bias = product.bias != nullptr ? product.bias + piece.first_output() : nullptr,
               .out = out,
               .out_stride = out_stride,
               .num_outputs = piece.num_outputs(),
               .tile = tile,
               .tokens_packed = tokens_packed});
}

void RunPiece(const Product& product, const Piece& piece, const Tensor& x, const Tensor& out,
              float* tile, bool tokens_packed = false) {
  RunPiece(product, piece, x, out.Row<float>(piece.row) + product.out_first + piece.first_output(),
           out.float_stride(), tile, tokens_packed);
}

// Returns whether the worker's tile holds the piece's rows, packed by its previous piece.
bool HoldsRows(PackedRows& packed, const Product& product, const Piece& piece, int worker) {
  return product.num_rows <= kFewRows && packed.HoldOn(worker, piece.segment->dtype);
}

// Items are ordered by sets of cached_groups panel groups: all cuts of the rows are multiplied with
// one set before the next set begins.
Piece PieceOf(const Product& product, int64_t item) {
  const Cut& cut = product.cut;
  const int64_t row_cuts = CeilDiv(product.num_rows, cut.rows);
  const int64_t first = item / (product.cached_groups * row_cuts) * product.cached_groups;
  const int64_t groups = std::min(product.cached_groups, product.panel_groups - first);
  item -= first * row_cuts;
  int64_t group = first + item % groups;
  const PanelSegment* segment = product.weight->segments().data();
  for (; group >= CeilDiv(segment->panels, cut.width); ++segment) {
    group -= CeilDiv(segment->panels, cut.width);
  }
  const int64_t panel = group * cut.width;
  const int64_t row = item / groups * cut.rows;
  return {.segment = segment,
          .panel = panel,
          .panels = std::min(cut.width, segment->panels - panel),
          .row = product.row + row,
          .num_rows = std::min(cut.rows, product.num_rows - row)};
}

const float* DataOf(const Tensor& bias) {
  return bias.empty() ? nullptr : static_cast<const float*>(bias.data);
}

float* TileOf(float* tiles, int worker) {  // null if the kernel needs none
  return tiles == nullptr ? nullptr : tiles + worker * static_cast<int64_t>(kTileFloats);
}

// The rank of an output: a larger value has a larger rank. Of equal values, 0 and -0 included, the
// lower index has the larger rank. NaN and +Inf have the largest.
constexpr uint64_t kUnusable = ~uint64_t{0};

uint64_t RankOf(float value, int64_t index) {
  const auto bits = std::bit_cast<uint32_t>(value + 0.0f);  // no -0
  const uint32_t order = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{order} << 32 | ~static_cast<uint32_t>(index);
}
float ValueOf(uint64_t rank) {
  if (rank == kUnusable) return std::numeric_limits<float>::quiet_NaN();
  const auto order = static_cast<uint32_t>(rank >> 32);
  return std::bit_cast<float>((order >> 31) != 0 ? order & 0x7fffffffu : ~order);
}
int32_t IndexOf(uint64_t rank) { return static_cast<int32_t>(~static_cast<uint32_t>(rank)); }

// Raises `best` to the rank of the largest output in [first, first + values.size()).
void RaiseToLargest(std::span<const float> values, int64_t first, std::atomic<uint64_t>& best) {
  const sampling::RowScan scan = sampling::Scan(values);
  uint64_t seen = best.load(std::memory_order_relaxed);
  uint64_t rank = scan.usable ? RankOf(scan.max, first) : kUnusable;  // an upper bound
  if (rank <= seen) return;
  if (scan.usable) rank = RankOf(scan.max, first + sampling::FirstOf(values, scan.max));
  while (rank > seen && !best.compare_exchange_weak(seen, rank, std::memory_order_relaxed)) {
  }
}

void RunProducts(ThreadPool& pool, float* tiles, const std::vector<Product>& products,
                 int64_t items, const Tensor& x, const Tensor& out) {
  pool.ParallelFor(items, [&](int64_t item, int worker) {
    const auto after = std::upper_bound(
        products.begin(), products.end(), item,
        [](int64_t value, const Product& product) { return value < product.first_item; });
    const Product& product = *(after - 1);
    RunPiece(product, PieceOf(product, item - product.first_item), x, out, TileOf(tiles, worker));
  });
}

}  // namespace

void RunLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles, PackedRows& packed,
               const Linear& op) {
  if (op.x.rows() == 0) return;
  CHECK(op.x.cols() == op.weight->cols());
  const Product product =
      MakeProduct(isa, pool.num_threads(), op.x, *op.weight, DataOf(op.bias), 0, op.x.rows(), 0);
  packed.Begin();
  pool.ParallelFor(EndItem(product), [&](int64_t item, int worker) {
    const Piece piece = PieceOf(product, item);
    RunPiece(product, piece, op.x, op.out, TileOf(tiles, worker),
             HoldsRows(packed, product, piece, worker));
  });
}

void RunLinearArgmax(const IsaKernels& isa, ThreadPool& pool, float* tiles, PackedRows& packed,
                     float* outputs, const LinearArgmax& op) {
  CHECK(op.x.cols() == op.weight->cols());
  std::array<std::atomic<uint64_t>, kMaxItemRows> best;
  for (int64_t first = 0; first < op.x.rows(); first += kMaxItemRows) {
    const int64_t rows = std::min(kMaxItemRows, op.x.rows() - first);
    for (auto& rank : best) rank.store(0, std::memory_order_relaxed);
    const Product product =
        MakeProduct(isa, pool.num_threads(), op.x, *op.weight, DataOf(op.bias), first, rows, 0);
    packed.Begin();
    pool.ParallelFor(EndItem(product), [&](int64_t item, int worker) {
      const Piece piece = PieceOf(product, item);
      float* const out = outputs + worker * static_cast<int64_t>(kItemOutputs);
      const int64_t stride = piece.panels * kPanelRows;
      RunPiece(product, piece, op.x, out, stride, TileOf(tiles, worker),
               HoldsRows(packed, product, piece, worker));
      for (int64_t row = 0; row < piece.num_rows; ++row) {
        const std::span<const float> values(out + row * stride,
                                            static_cast<size_t>(piece.num_outputs()));
        RaiseToLargest(values, piece.first_output(),
                       best[static_cast<size_t>(piece.row - first + row)]);
      }
    });
    for (int64_t row = 0; row < rows; ++row) {
      const uint64_t rank = best[static_cast<size_t>(row)].load(std::memory_order_relaxed);
      op.out.values.Row<float>(0)[first + row] = ValueOf(rank);
      op.out.ids.Row<int32_t>(0)[first + row] = IndexOf(rank);
    }
  }
}

void RunLinearAlone(const IsaKernels& isa, const PackedWeight& weight, const Tensor& x,
                    const Tensor& out, float* tile) {
  CHECK(weight.activation() == DType::kF32 && x.cols() == weight.cols());
  const Product product = MakeProduct(isa, /*num_threads=*/1, x, weight, nullptr, 0, x.rows(), 0);
  for (const PanelSegment& segment : product.weight->segments()) {
    for (int64_t panel = 0; panel < segment.panels; panel += kMaxPanels) {
      RunPiece(product,
               {.segment = &segment,
                .panel = panel,
                .panels = std::min<int64_t>(kMaxPanels, segment.panels - panel),
                .num_rows = x.rows()},
               x, out, tile);
    }
  }
}

void RunGroupedLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles,
                      const GroupedLinear& op, std::vector<Product>& products) {
  const auto* offsets = static_cast<const int32_t*>(op.offsets.data);
  const float* bias = DataOf(op.bias);
  products.clear();
  int64_t items = 0;
  const auto members = op.weights->members();
  for (size_t e = 0; e < members.size(); ++e) {
    if (offsets[e] == offsets[e + 1]) continue;
    const PackedWeight& weight = *members[e];
    products.push_back(
        MakeProduct(isa, pool.num_threads(), op.x, weight,
                    bias != nullptr ? bias + static_cast<int64_t>(e) * weight.rows() : nullptr,
                    offsets[e], offsets[e + 1] - offsets[e], items));
    items = EndItem(products.back());
  }
  for (const Product& product : products) CHECK(op.x.cols() == product.weight->cols());
  RunProducts(pool, tiles, products, items, op.x, op.out);
}

void RunHeadLinear(const IsaKernels& isa, ThreadPool& pool, float* tiles, const HeadLinear& op,
                   std::vector<Product>& products) {
  const Tensor& x = op.x.tensor;
  products.clear();
  int64_t items = 0;
  const auto members = op.weights->members();
  for (size_t head = 0; head < members.size() && x.rows() > 0; ++head) {
    const auto h = static_cast<int64_t>(head);
    const PackedWeight& weight = *members[head];
    CHECK(weight.cols() == op.x.cols && weight.activation() == DType::kF32);
    Product product = MakeProduct(isa, pool.num_threads(), x, weight, nullptr, 0, x.rows(), items);
    product.x_first = op.x.first + h * op.x.step;
    product.out_first = h * (op.copied.cols + weight.rows()) + op.copied.cols;
    items = EndItem(product);
    products.push_back(product);
  }
  RunProducts(pool, tiles, products, items, x, op.out);
}

}  // namespace tokamak::cpu
