// Checkpoints of text and image models, of which only the text model is served. Internal to
// weights/.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "weights/config.h"
#include "weights/safetensors.h"
#include "weights/tensor_source.h"

namespace tokamak {

// Name prefixes in such a checkpoint: those that replace the text model's own "model." and
// "lm_head.", and those of the tensors that are left out.
struct TextModelNames {
  std::string_view model, output;
  std::array<std::string_view, 2> left_out;  // the vision encoder and the projector

  // The checkpoint's name of a text model's tensor (or of a name prefix).
  std::string Stored(std::string_view name) const;
  // Whether the tensor is one of those left out.
  bool LeavesOut(std::string_view stored_name) const;
};

// Absent if the configuration has no "text_config".
std::optional<TextModelNames> FindTextModel(const JsonValue& config, const SafetensorsModel& model);

// The text model's tensors by its own names, taken from `whole`.
std::shared_ptr<TensorSource> MakeTextModelTensors(std::shared_ptr<TensorSource> whole,
                                                   const TextModelNames& names);

}  // namespace tokamak
