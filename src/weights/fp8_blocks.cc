#include "weights/fp8_blocks.h"

#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "quant/e4m3.h"
#include "quant/half.h"
#include "weights/checkpoint.h"
#include "weights/config_reader.h"

namespace tokamak {
namespace {

// The only family with MXFP4 checkpoints; its layout of experts is its own.
constexpr std::string_view kMxfp4Architecture = "GptOssForCausalLM";

class Fp8Weight final : public WeightSource {
 public:
  Fp8Weight(std::shared_ptr<const ByteSource> file, const StoredTensor& tensor,
            std::vector<float> scales)
      : file_(std::move(file)),
        name_(fmt::format("{}: {}", file_->name(), Quoted(tensor.name))),
        shape_(tensor.shape),
        offset_(tensor.offset),
        scales_(std::move(scales)) {}

  const std::string& name() const override { return name_; }
  DType dtype() const override { return DType::kBF16; }
  const Shape& shape() const override { return shape_; }

  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape_.rows());
    const int64_t cols = shape_.cols();
    const int64_t blocks = (cols + kFp8Block - 1) / kFp8Block;
    std::vector<uint8_t> stored(static_cast<size_t>((end - begin) * cols));
    const Status status = file_->ReadOn(offset_ + static_cast<uint64_t>(begin * cols),
                                        reinterpret_cast<std::byte*>(stored.data()), stored.size());
    if (!status.ok()) return status.WithContext(name_);
    const uint8_t* from = stored.data();
    for (int64_t row = begin; row < end; ++row) {
      const float* scales = scales_.empty() ? nullptr : scales_.data() + row / kFp8Block * blocks;
      for (int64_t col = 0; col < cols; ++col, ++from, destination += sizeof(uint16_t)) {
        const float scale = scales != nullptr ? scales[col / kFp8Block] : 1;
        const uint16_t bits = FloatToBFloat16(E4m3ToFloat(*from) * scale);
        std::memcpy(destination, &bits, sizeof(bits));
      }
    }
    return Status();
  }

 private:
  const std::shared_ptr<const ByteSource> file_;
  const std::string name_;
  const Shape shape_;
  const uint64_t offset_;
  const std::vector<float> scales_;
};

}  // namespace

Result<bool> HasFp8Blocks(const JsonValue& config, const std::string& source) {
  constexpr const char* kField = "quantization_config";
  const JsonValue* quantization = config.Find(kField);
  if (quantization == nullptr || quantization->is_null()) return false;
  ConfigReader reader(*quantization, fmt::format("{}: {}", source, kField));
  const std::string method = reader.String("quant_method");
  if (method == "mxfp4") {
    ASSIGN_OR_RETURN(const std::string architecture, ArchitectureOf(config, source));
    if (architecture == kMxfp4Architecture) return false;  // gpt-oss reads the field itself
    return Unimplemented("{}: {}.quant_method: \"mxfp4\" is supported only for {}, not for {}",
                         source, kField, kMxfp4Architecture, Quoted(architecture));
  }
  if (reader.ok() && method != "fp8") {
    return Unimplemented(
        "{}: {}.quant_method: \"{}\" is not supported; supported are checkpoints in F32, F16 and "
        "BF16, \"fp8\" with blocks of {} x {}, and \"mxfp4\"",
        source, kField, method, kFp8Block, kFp8Block);
  }
  reader.ExpectOrAbsent("fmt", "e4m3");
  // Activation scales are computed at run time by engines that multiply in FP8. This one does not.
  reader.ExpectOrAbsent("activation_scheme", "dynamic");
  const std::vector<int32_t> block = reader.Ints("weight_block_size");
  if (reader.ok() && block != std::vector<int32_t>{kFp8Block, kFp8Block}) {
    reader.Fail("weight_block_size",
                fmt::format("only [{}, {}] is supported", kFp8Block, kFp8Block));
  }
  // The tensors' own types show which modules were not converted.
  reader.Ignore({"modules_to_not_convert", "ignored_layers", "dequantize"});
  return reader.Finish(true);
}

std::shared_ptr<const WeightSource> MakeFp8Weight(std::shared_ptr<const ByteSource> file,
                                                  const StoredTensor& tensor,
                                                  std::vector<float> scales) {
  return std::make_shared<Fp8Weight>(std::move(file), tensor, std::move(scales));
}

}  // namespace tokamak
