// A weight in panels (cpu/panel_layout.h).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/weight_memory.h"
#include "ops/packed_weight.h"
#include "tensor/device.h"
#include "tokamak/status.h"

namespace tokamak::cpu {

// One part of a stacked weight. Its rows are padded with zeros to whole panels.
struct PanelSegment {
  DType dtype = DType::kF32;
  int64_t first_row = 0;  // in the whole weight
  int64_t rows = 0;
  int64_t panels = 0;
  int64_t panel_bytes = 0;
  const std::byte* data = nullptr;
};

class PanelWeight final : public PackedWeight {
 public:
  // Packs `spec` with all threads of the pool, for the ISA's activation type.
  static Result<std::unique_ptr<PackedWeight>> Make(const WeightSpec& spec, const IsaKernels& isa,
                                                    WeightMemory& memory, ThreadPool& pool);

  static int64_t Bytes(const WeightSource& part);

  const std::vector<PanelSegment>& segments() const { return segments_; }
  const std::byte* data() const { return buffer_.data(); }

 private:
  PanelWeight(int64_t rows, int64_t cols, DType activation, Buffer buffer,
              std::vector<PanelSegment> segments)
      : PackedWeight(rows, cols, activation, static_cast<int64_t>(buffer.size())),
        buffer_(std::move(buffer)),
        segments_(std::move(segments)) {}

  Buffer buffer_;
  std::vector<PanelSegment> segments_;
};

}  // namespace tokamak::cpu
