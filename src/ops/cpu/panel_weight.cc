#include "ops/cpu/panel_weight.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/ceil_div.h"
#include "base/error.h"
#include "base/mutex.h"
#include "ops/cpu/activation.h"
#include "ops/cpu/panel_layout.h"
#include "ops/host/host_ops.h"

namespace tokamak::cpu {
namespace {

constexpr int64_t kSegmentAlignment = 64;
// Bytes that a worker reads at once, to amortize the fixed cost.
constexpr int64_t kReadBytes = 256 << 10;

// Panels [begin, end) of one segment and their destination.
struct PackItem {
  const WeightSource* source;
  const PanelSegment* segment;
  std::byte* destination;
  int64_t begin;
  int64_t end;
};

Status PackPanels(const PackItem& item, int64_t cols, std::vector<std::byte>& rows) {
  const PanelSegment& segment = *item.segment;
  const auto row_bytes = static_cast<int64_t>(RowBytes(segment.dtype, cols));
  const auto needed = static_cast<size_t>((item.end - item.begin) * kPanelRows * row_bytes);
  if (rows.size() < needed) rows.resize(needed);
  const int64_t first = item.begin * kPanelRows;
  const int64_t end = std::min(item.end * kPanelRows, segment.rows);
  RETURN_IF_ERROR(item.source->ReadRows(first, end, rows.data()));
  const auto read = static_cast<size_t>((end - first) * row_bytes);
  std::memset(rows.data() + read, 0, needed - read);  // zero bits are zero weights
  for (int64_t i = 0; i < item.end - item.begin; ++i) {
    PackPanel(segment.dtype, cols, rows.data() + i * kPanelRows * row_bytes,
              item.destination + i * segment.panel_bytes);
  }
  return Status();
}

// The error of the failed item with the lowest index.
class FirstError {
 public:
  void Set(int64_t item, Status status) {
    MutexLock lock(mutex_);
    if (status_.ok() || item < item_) {
      item_ = item;
      status_ = std::move(status);
    }
  }
  Status Get() {
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  Mutex mutex_;
  int64_t item_ GUARDED_BY(mutex_) = 0;
  Status status_ GUARDED_BY(mutex_);
};

}  // namespace

int64_t PanelWeight::Bytes(const WeightSource& part) {
  const int64_t panels = CeilDiv(part.shape().rows(), int64_t{kPanelRows});
  return CeilDiv(panels * PanelBytes(part.dtype(), part.shape().cols()), kSegmentAlignment) *
         kSegmentAlignment;
}

Result<std::unique_ptr<PackedWeight>> PanelWeight::Make(const WeightSpec& spec,
                                                        const IsaKernels& isa, WeightMemory& memory,
                                                        ThreadPool& pool) {
  RETURN_IF_ERROR(CheckWeightSpec(spec));
  const int64_t cols = spec.parts.front()->shape().cols();
  std::vector<PanelSegment> segments;
  int64_t bytes = 0;
  int64_t num_rows = 0;
  for (const auto& part : spec.parts) {
    PanelSegment segment;
    segment.dtype = part->dtype();
    segment.first_row = num_rows;
    segment.rows = part->shape().rows();
    segment.panels = (segment.rows + kPanelRows - 1) / kPanelRows;
    segment.panel_bytes = PanelBytes(part->dtype(), cols);
    num_rows += segment.rows;
    bytes += Bytes(*part);
    segments.push_back(segment);
  }
  ASSIGN_OR_RETURN(Buffer buffer, memory.Allocate(static_cast<size_t>(bytes)));

  std::vector<PackItem> items;
  std::byte* destination = buffer.data();
  for (size_t i = 0; i < segments.size(); ++i) {
    PanelSegment& segment = segments[i];
    segment.data = destination;
    const int64_t step =
        std::max<int64_t>(1, kReadBytes / std::max<int64_t>(1, segment.panel_bytes));
    for (int64_t panel = 0; panel < segment.panels; panel += step) {
      items.push_back({spec.parts[i].get(), &segment, destination + panel * segment.panel_bytes,
                       panel, std::min(panel + step, segment.panels)});
    }
    destination += Bytes(*spec.parts[i]);
  }
  std::vector<std::vector<std::byte>>& rows = memory.Rows(pool.num_threads());
  FirstError error;
  // Workers take items in order, so that the file is read from front to back. ParallelFor alone
  // would give each worker a contiguous run.
  std::atomic<size_t> next = 0;
  pool.ParallelFor(pool.num_threads(), [&](int64_t, int worker) {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < items.size();) {
      Status status = PackPanels(items[i], cols, rows[static_cast<size_t>(worker)]);
      if (!status.ok()) error.Set(static_cast<int64_t>(i), std::move(status));
    }
  });
  RETURN_IF_ERROR(error.Get());
  return std::unique_ptr<PackedWeight>(new PanelWeight(num_rows, cols, ActivationOf(spec, isa),
                                                       std::move(buffer), std::move(segments)));
}

}  // namespace tokamak::cpu
