#include "weights/text_model.h"

#include <algorithm>
#include <utility>

namespace tokamak {
namespace {

// kPublished has the names in published checkpoints (Google, Mistral, transformers), kRunning those
// that transformers uses at run time and other programs save.
constexpr TextModelNames kPublished = {
    .model = "language_model.model.", .output = "language_model.lm_head.", .others = ""};
constexpr TextModelNames kRunning = {
    .model = "model.language_model.", .output = "lm_head.", .others = "model."};
// Published checkpoints whose text model has its own class's names, as Qwen2-VL's.
constexpr TextModelNames kPlain = {.model = "model.", .output = "lm_head.", .others = ""};

class TextModelTensors final : public TensorSource {
 public:
  TextModelTensors(std::shared_ptr<TensorSource> whole, const TextModelNames& names)
      : whole_(std::move(whole)), names_(names) {}

  bool Has(std::string_view name) const override { return whole_->Has(names_.Stored(name)); }
  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view meaning) override {
    return whole_->Find(names_.Stored(name), expected, meaning);
  }
  void Skip(std::string_view prefix) override { whole_->Skip(names_.Stored(prefix)); }
  Status CheckAllUsed() const override { return whole_->CheckAllUsed(); }

 private:
  const std::shared_ptr<TensorSource> whole_;
  const TextModelNames names_;
};

}  // namespace

std::string TextModelNames::Stored(std::string_view name) const {
  for (const auto& [own, stored] :
       {std::pair{std::string_view("model."), model},
        std::pair{std::string_view("lm_head."), output},
        // Qwen3.5's layers that draft tokens.
        std::pair{std::string_view("mtp."), std::string_view("mtp.")}}) {
    if (name.starts_with(own)) return std::string(stored) + std::string(name.substr(own.size()));
  }
  return std::string(others) + std::string(name);
}

std::optional<TextModelNames> FindTextModel(const JsonValue& config,
                                            const SafetensorsModel& model) {
  const auto has_part = [&](const char* name) {
    const JsonValue* part = config.Find(name);
    return part != nullptr && !part->is_null();
  };
  if (!has_part("text_config") && !has_part("vision_config")) return std::nullopt;
  const auto has_tensor = [&](std::string_view prefix) {
    const auto& tensors = model.tensors();
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const StoredTensor& tensor) { return tensor.name.starts_with(prefix); });
  };
  return has_tensor(kRunning.model) ? kRunning : has_tensor("model.layers.") ? kPlain : kPublished;
}

std::shared_ptr<TensorSource> MakeTextModelTensors(std::shared_ptr<TensorSource> whole,
                                                   const TextModelNames& names) {
  return std::make_shared<TextModelTensors>(std::move(whole), names);
}

}  // namespace tokamak
