#include "weights/gguf_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "weights/permuted_rows.h"
#include "weights/reordered.h"
#include "weights/row_range.h"

namespace tokamak {
namespace {

class GgufTensors final : public TensorSource {
 public:
  GgufTensors(std::shared_ptr<const GgufFile> file, const GgufArchitecture& architecture,
              int64_t query_heads, int64_t key_heads, int64_t num_experts)
      : file_(std::move(file)),
        architecture_(architecture),
        query_heads_(query_heads),
        key_heads_(key_heads),
        num_experts_(num_experts),
        used_(file_->tensors().size()) {}

  bool Has(std::string_view name) const override {
    const GgufTensorPlace place = FindGgufTensorPlace(architecture_, name);
    return !place.name.empty() && file_->FindTensor(place.name) != nullptr;
  }

  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view meaning) override {
    const GgufTensorPlace place = FindGgufTensorPlace(architecture_, name);
    const StoredTensor* tensor = place.name.empty() ? nullptr : file_->FindTensor(place.name);
    if (tensor == nullptr) {
      return NotFound("{}: there is no tensor {}, which the model needs as {}", file_->name(),
                      place.name.empty() ? "" : Quoted(place.name), name);
    }
    const std::string& path = file_->parts()[static_cast<size_t>(tensor->part)].source->name();
    Shape stored = expected;
    if (place.expert) {
      stored = expected.rank() == 1 ? Shape{num_experts_, expected.cols()}
                                    : Shape{num_experts_, expected.rows(), expected.cols()};
    }
    // A matrix of one row may be stored as a vector.
    if (tensor->shape != stored &&
        !(stored.rank() == 2 && stored[0] == 1 && tensor->shape == Shape{stored.cols()})) {
      return DataLoss(
          "{}: tensor {} has shape {}, expected {}{}. The file does not match its own "
          "metadata; download it again or report it to its author.",
          path, Quoted(tensor->name), tensor->shape.ToString(), stored.ToString(),
          meaning.empty() ? "" : fmt::format(" ({})", meaning));
    }
    ASSIGN_OR_RETURN(std::shared_ptr<const WeightSource> weight, file_->Weight(*tensor));
    if (!HoldsWeights(weight->dtype())) {
      return DataLoss("{}: tensor {} has type {}, but weights cannot be integers", path,
                      Quoted(tensor->name), tensor->type_name);
    }
    used_[static_cast<size_t>(tensor - file_->tensors().data())] = true;
    if (place.expert) {
      const int64_t begin = *place.expert * expected.rows();
      return RowRange(std::move(weight), begin, begin + expected.rows());
    }
    switch (place.rows) {
      case GgufRows::kAsIs:
        return weight;
      case GgufRows::kInterleavedQueryHeads:
        return DeinterleaveHeads(std::move(weight), query_heads_);
      case GgufRows::kInterleavedKeyHeads:
        return DeinterleaveHeads(std::move(weight), key_heads_);
      case GgufRows::kPlusOne:
        return MinusOne(std::move(weight));
    }
    return weight;
  }

  void Skip(std::string_view prefix) override {
    constexpr std::string_view kLayers = "model.layers.";
    std::string stored;
    if (prefix.starts_with(kLayers)) {
      stored = "blk." + std::string(prefix.substr(kLayers.size()));
    } else if (prefix == "lm_head.") {
      stored = "output.";
    } else {
      return;
    }
    for (size_t i = 0; i < used_.size(); ++i) {
      if (file_->tensors()[i].name.starts_with(stored)) used_[i] = true;
    }
  }

  Status CheckAllUsed() const override {
    std::vector<std::string> unused;
    for (size_t i = 0; i < used_.size(); ++i) {
      const std::string& name = file_->tensors()[i].name;
      if (!used_[i] && !IsInConfig(name)) unused.push_back(name);
    }
    return CheckNoneUnused(file_->name(), unused);
  }

 private:
  // LongRoPE's factors are part of the configuration (gguf_config.cc).
  bool IsInConfig(std::string_view name) const {
    return std::string_view(architecture_.name) == "phi3" && name.starts_with("rope_factors_");
  }

  const std::shared_ptr<const GgufFile> file_;
  const GgufArchitecture& architecture_;
  const int64_t query_heads_, key_heads_, num_experts_;
  std::vector<bool> used_;  // by index in file_->tensors()
};

int64_t IntOrZero(const JsonValue& config, std::string_view name) {
  const JsonValue* value = config.Find(name);
  return value ? value->AsInt().value_or(0) : 0;
}

// The field's name differs between families.
int64_t NumExperts(const JsonValue& config) {
  return std::max({IntOrZero(config, "num_experts"), IntOrZero(config, "num_local_experts"),
                   IntOrZero(config, "n_routed_experts")});
}

}  // namespace

std::shared_ptr<TensorSource> MakeGgufTensors(std::shared_ptr<const GgufFile> file,
                                              const GgufArchitecture& architecture,
                                              const JsonValue& config) {
  return std::make_shared<GgufTensors>(
      std::move(file), architecture, IntOrZero(config, "num_attention_heads"),
      IntOrZero(config, "num_key_value_heads"), NumExperts(config));
}

}  // namespace tokamak
