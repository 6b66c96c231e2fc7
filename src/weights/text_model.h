// Checkpoints of text and image models: the text model's tensors have its own class's names.
// Internal to weights/.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "weights/config.h"
#include "weights/safetensors.h"
#include "weights/tensor_source.h"

namespace tokamak {

// Name prefixes in such a checkpoint: those that replace the text model's own "model." and
// "lm_head.", and that of all other tensors.
struct TextModelNames {
  std::string_view model, output, others;

  // The checkpoint's name of a text model's tensor, or of another one by its published name (or of
  // a name prefix).
  std::string Stored(std::string_view name) const;
};

// Absent if the configuration has neither a "text_config" nor a "vision_config".
std::optional<TextModelNames> FindTextModel(const JsonValue& config, const SafetensorsModel& model);

// The tensors by these names, taken from `whole`.
std::shared_ptr<TensorSource> MakeTextModelTensors(std::shared_ptr<TensorSource> whole,
                                                   const TextModelNames& names);

}  // namespace tokamak
