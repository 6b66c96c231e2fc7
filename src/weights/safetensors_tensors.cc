#include "weights/safetensors_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "quant/quantize.h"
#include "weights/fp8_blocks.h"
#include "weights/mxfp4_pair.h"

namespace tokamak {
namespace {

constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
constexpr std::string_view kOutput = "lm_head.weight";
constexpr std::string_view kRotaryBuffer = ".rotary_emb.inv_freq";

// Whether two weights of the same type and shape hold the same bytes.
Result<bool> SameBytes(const WeightSource& a, const WeightSource& b) {
  const size_t row_bytes = RowBytes(a.dtype(), a.shape().cols());
  const int64_t rows = a.shape().rows();
  const auto step = static_cast<int64_t>((size_t{1} << 22) / std::max<size_t>(row_bytes, 1)) + 1;
  std::vector<std::byte> first, second;
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t end = std::min(rows, begin + step);
    first.resize(static_cast<size_t>(end - begin) * row_bytes);
    second.resize(first.size());
    RETURN_IF_ERROR(a.ReadRows(begin, end, first.data()));
    RETURN_IF_ERROR(b.ReadRows(begin, end, second.data()));
    if (first != second) return false;
  }
  return true;
}

class SafetensorsTensors final : public TensorSource {
 public:
  SafetensorsTensors(std::string folder, std::shared_ptr<const SafetensorsModel> model,
                     const SafetensorsContents& contents)
      : folder_(std::move(folder)),
        model_(std::move(model)),
        contents_(contents),
        used_(model_->tensors().size()) {}

  bool Has(std::string_view name) const override { return model_->Find(name) != nullptr; }

  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view meaning) override {
    const StoredTensor* tensor = model_->Find(name);
    if (tensor == nullptr) {
      return NotFound("{}: there is no tensor {}, which the model needs", folder_, Quoted(name));
    }
    if (const StoredTensor* scales = ScalesOf(name)) {
      ASSIGN_OR_RETURN(auto weight, MakeMxfp4Weight(*model_, *tensor, *scales));
      RETURN_IF_ERROR(CheckShape(*tensor, weight->shape(), expected, meaning));
      Use(*tensor);
      Use(*scales);
      return weight;
    }
    RETURN_IF_ERROR(CheckShape(*tensor, tensor->shape, expected, meaning));
    Use(*tensor);
    if (tensor->type_name == kFp8TypeName) return Fp8Weight(*tensor);
    return model_->Weight(*tensor);
  }

  void Skip(std::string_view prefix) override {
    for (size_t i = 0; i < used_.size(); ++i) {
      if (model_->tensors()[i].name.starts_with(prefix)) used_[i] = true;
    }
  }

  Status CheckAllUsed() const override {
    std::vector<std::string> unused;
    for (size_t i = 0; i < used_.size(); ++i) {
      const StoredTensor& tensor = model_->tensors()[i];
      if (used_[i] || tensor.name.ends_with(kRotaryBuffer)) continue;
      if (contents_.tied && tensor.name == kOutput) {
        RETURN_IF_ERROR(CheckTied(tensor));
        continue;
      }
      unused.push_back(tensor.name);
    }
    return CheckNoneUnused(folder_, unused);
  }

 private:
  // The scales of a weight stored as "<weight>_blocks" and "<weight>_scales"; null for other
  // weights.
  const StoredTensor* ScalesOf(std::string_view name) const {
    constexpr std::string_view kBlocks = "_blocks";
    if (!name.ends_with(kBlocks)) return nullptr;
    return model_->Find(std::string(name.substr(0, name.size() - kBlocks.size())) + "_scales");
  }

  Status CheckShape(const StoredTensor& tensor, const Shape& shape, const Shape& expected,
                    std::string_view meaning) const {
    if (shape == expected) return Status();
    return DataLoss(
        "{}: tensor {} has shape {}, expected {}{}. The weights do not match config.json; "
        "download both again or report it to their author.",
        model_->PathOf(tensor), Quoted(tensor.name), shape.ToString(), expected.ToString(),
        meaning.empty() ? "" : fmt::format(" ({})", meaning));
  }

  void Use(const StoredTensor& tensor) {
    used_[static_cast<size_t>(&tensor - model_->tensors().data())] = true;
  }

  // If the configuration does not announce scales, they stay unused, which is an error.
  Result<std::shared_ptr<const WeightSource>> Fp8Weight(const StoredTensor& tensor) {
    const auto& file = model_->parts()[static_cast<size_t>(tensor.part)].source;
    if (!contents_.fp8_blocks || tensor.shape.rank() != 2) return MakeFp8Weight(file, tensor, {});
    const std::string name = tensor.name + kFp8ScaleSuffix;
    const StoredTensor* scale = model_->Find(name);
    if (scale == nullptr) {
      return DataLoss("{}: tensor {} has type {}, but the tensor of its scales, {}, does not exist",
                      model_->PathOf(tensor), Quoted(tensor.name), tensor.type_name, Quoted(name));
    }
    const auto blocks = [](int64_t size) { return (size + kFp8Block - 1) / kFp8Block; };
    const Shape expected{blocks(tensor.shape.rows()), blocks(tensor.shape.cols())};
    if (scale->shape != expected) {
      return DataLoss(
          "{}: tensor {} has shape {}, expected {} (one scale for each {} x {} block of {})",
          model_->PathOf(*scale), Quoted(name), scale->shape.ToString(), expected.ToString(),
          kFp8Block, kFp8Block, tensor.shape.ToString());
    }
    Use(*scale);
    ASSIGN_OR_RETURN(const auto source, model_->Weight(*scale));
    std::vector<std::byte> stored(RowBytes(source->dtype(), expected.elements()));
    RETURN_IF_ERROR(source->ReadRows(0, expected.rows(), stored.data()));
    std::vector<float> scales(static_cast<size_t>(expected.elements()));
    DequantizeRow(source->dtype(), stored.data(), expected.elements(), scales.data());
    for (const float value : scales) {
      if (std::isfinite(value) && value > 0) continue;
      return DataLoss("{}: tensor {} has a scale of {}; the file is damaged",
                      model_->PathOf(*scale), Quoted(name), value);
    }
    return MakeFp8Weight(file, tensor, std::move(scales));
  }

  Status CheckTied(const StoredTensor& output) const {
    const StoredTensor* embedding = model_->Find(kEmbedding);
    bool same = embedding != nullptr && embedding->shape == output.shape &&
                embedding->type_name == output.type_name;
    if (same) {
      ASSIGN_OR_RETURN(const auto a, model_->Weight(*embedding));
      ASSIGN_OR_RETURN(const auto b, model_->Weight(output));
      ASSIGN_OR_RETURN(same, SameBytes(*a, *b));
    }
    if (same) return Status();
    return DataLoss(
        "{}: config.json sets tie_word_embeddings to true, but tensor {} differs from {}. If the "
        "model has its own output matrix, tie_word_embeddings must be false.",
        model_->PathOf(output), Quoted(kOutput), Quoted(kEmbedding));
  }

  const std::string folder_;
  const std::shared_ptr<const SafetensorsModel> model_;
  const SafetensorsContents contents_;
  std::vector<bool> used_;  // by index in model_->tensors()
};

}  // namespace

std::shared_ptr<TensorSource> MakeSafetensorsTensors(std::string folder,
                                                     std::shared_ptr<const SafetensorsModel> model,
                                                     const SafetensorsContents& contents) {
  return std::make_shared<SafetensorsTensors>(std::move(folder), std::move(model), contents);
}

}  // namespace tokamak
