// Models of texts and images, of which the text model alone is served. Internal to weights/.
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

// Where such a checkpoint keeps what the text model's own class calls "model." and "lm_head.", and
// what is beside it.
struct TextPart {
  std::string_view model, output;
  std::array<std::string_view, 2> left_out;  // what sees, and what tells it to the text model

  // What the checkpoint calls a tensor (or the beginning of names) of the text model.
  std::string Stored(std::string_view name) const;
  // Whether the tensor is not the text model's.
  bool LeavesOut(std::string_view stored_name) const;
};

// Nothing where the configuration has no part for texts ("text_config").
std::optional<TextPart> FindTextPart(const ConfigValue& config, const SafetensorsModel& model);

// The text model's tensors, by the names of its own class; `whole` has all.
std::shared_ptr<TensorSource> MakeTextPartTensors(std::shared_ptr<TensorSource> whole,
                                                  const TextPart& part);

}  // namespace tokamak
