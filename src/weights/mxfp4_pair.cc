#include "weights/mxfp4_pair.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "quant/blocks.h"

namespace tokamak {
namespace {

constexpr int64_t kBlockElements = 32, kElementBytes = kBlockElements / 2;

// Element i of a block's 16 bytes, in stored order.
uint8_t StoredElement(const uint8_t* bytes, int i) {
  return static_cast<uint8_t>(bytes[i / 2] >> (i % 2 * 4) & 0x0f);
}

class Mxfp4Source final : public WeightSource {
 public:
  Mxfp4Source(const SafetensorsModel& model, const StoredTensor& blocks, const StoredTensor& scales)
      : name_(fmt::format("{}: {}", model.PathOf(blocks), Quoted(blocks.name))),
        elements_(model.parts()[static_cast<size_t>(blocks.part)].source),
        scales_(model.parts()[static_cast<size_t>(scales.part)].source),
        elements_offset_(blocks.offset),
        scales_offset_(scales.offset),
        groups_(scales.shape.cols()),
        shape_{scales.shape[0], scales.shape[1], groups_ * kBlockElements} {}

  const std::string& name() const override { return name_; }
  DType dtype() const override { return DType::kMXFP4; }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape_.rows());
    const auto count = static_cast<size_t>((end - begin) * groups_);
    const auto first = static_cast<uint64_t>(begin * groups_);
    std::vector<uint8_t> elements(count * kElementBytes), scales(count);
    RETURN_IF_ERROR(
        elements_
            ->ReadOn(elements_offset_ + first * kElementBytes, elements.data(), elements.size())
            .WithContext(name_));
    RETURN_IF_ERROR(
        scales_->ReadAt(scales_offset_ + first, scales.data(), scales.size()).WithContext(name_));
    for (size_t i = 0; i < count; ++i, destination += sizeof(BlockMXFP4)) {
      const uint8_t* bytes = elements.data() + i * kElementBytes;
      BlockMXFP4 block;
      block.e = scales[i];
      for (int j = 0; j < kElementBytes; ++j) {
        block.qs[j] = static_cast<uint8_t>(StoredElement(bytes, j) |
                                           StoredElement(bytes, j + kElementBytes) << 4);
      }
      std::memcpy(destination, &block, sizeof(block));
    }
    return Status();
  }

 private:
  const std::string name_;
  const std::shared_ptr<const ByteSource> elements_, scales_;
  const uint64_t elements_offset_, scales_offset_;
  const int64_t groups_;
  const Shape shape_;
};

}  // namespace

Result<std::shared_ptr<const WeightSource>> MakeMxfp4Weight(const SafetensorsModel& model,
                                                            const StoredTensor& blocks,
                                                            const StoredTensor& scales) {
  const Shape &b = blocks.shape, &s = scales.shape;
  const bool fit = blocks.type_name == "U8" && scales.type_name == "U8" && b.rank() == 4 &&
                   s.rank() == 3 && b[0] == s[0] && b[1] == s[1] && b[2] == s[2] &&
                   b[3] == kElementBytes;
  if (!fit) {
    return DataLoss(
        "{}: tensors {} ({} {}) and {} ({} {}) do not form an MXFP4 weight: expected U8 [experts, "
        "rows, groups, 16] and U8 [experts, rows, groups]",
        model.PathOf(blocks), Quoted(blocks.name), blocks.type_name, b.ToString(),
        Quoted(scales.name), scales.type_name, s.ToString());
  }
  return std::shared_ptr<const WeightSource>(std::make_shared<Mxfp4Source>(model, blocks, scales));
}

}  // namespace tokamak
