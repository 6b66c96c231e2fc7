#include "weights/text_part.h"

#include <algorithm>
#include <utility>

namespace tokamak {
namespace {

// The names in published checkpoints (Google, Mistral, transformers), and transformers' names at
// run time, which other programs save.
constexpr TextPart kPublished = {.model = "language_model.model.",
                                 .output = "language_model.lm_head.",
                                 .left_out = {"vision_tower.", "multi_modal_projector."}};
constexpr TextPart kRunning = {.model = "model.language_model.",
                               .output = "lm_head.",
                               .left_out = {"model.vision_tower.", "model.multi_modal_projector."}};

class TextPartTensors final : public TensorSource {
 public:
  TextPartTensors(std::shared_ptr<TensorSource> whole, const TextPart& part)
      : whole_(std::move(whole)), part_(part) {
    for (const std::string_view prefix : part.left_out) whole_->Skip(prefix);
  }

  bool Has(std::string_view name) const override { return whole_->Has(part_.Stored(name)); }
  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view meaning) override {
    return whole_->Find(part_.Stored(name), expected, meaning);
  }
  void Skip(std::string_view prefix) override { whole_->Skip(part_.Stored(prefix)); }
  Status CheckAllUsed() const override { return whole_->CheckAllUsed(); }

 private:
  const std::shared_ptr<TensorSource> whole_;
  const TextPart part_;
};

}  // namespace

std::string TextPart::Stored(std::string_view name) const {
  for (const auto& [own, stored] : {std::pair{std::string_view("model."), model},
                                    std::pair{std::string_view("lm_head."), output}}) {
    if (name.starts_with(own)) return std::string(stored) + std::string(name.substr(own.size()));
  }
  return std::string(name);
}

bool TextPart::LeavesOut(std::string_view stored_name) const {
  return std::any_of(left_out.begin(), left_out.end(),
                     [&](std::string_view prefix) { return stored_name.starts_with(prefix); });
}

std::optional<TextPart> FindTextPart(const ConfigValue& config, const SafetensorsModel& model) {
  const ConfigValue* text = config.Find("text_config");
  if (text == nullptr || text->is_null()) return std::nullopt;
  for (const StoredTensor& tensor : model.tensors()) {
    if (tensor.name.starts_with(kRunning.model)) return kRunning;
  }
  return kPublished;
}

std::shared_ptr<TensorSource> MakeTextPartTensors(std::shared_ptr<TensorSource> whole,
                                                  const TextPart& part) {
  return std::make_shared<TextPartTensors>(std::move(whole), part);
}

}  // namespace tokamak
