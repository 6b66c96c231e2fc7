// A safetensors model as a TensorSource. Internal to weights/.
#pragma once

#include <memory>
#include <string>

#include "weights/safetensors.h"
#include "weights/tensor_source.h"

namespace tokamak {

// Facts about the tensors from config.json.
struct SafetensorsContents {
  bool tied = false;        // embeddings and output matrix are the same
  bool fp8_blocks = false;  // FP8 matrices have scales (weights/fp8_blocks.h)
};

// Tensors keep their names. Ignores what the reference ignores: rotary frequencies stored by old
// checkpoints and, with tied embeddings, an output matrix equal to them. One that differs is an
// error, because it is unclear which is meant.
std::shared_ptr<TensorSource> MakeSafetensorsTensors(std::string folder,
                                                     std::shared_ptr<const SafetensorsModel> model,
                                                     const SafetensorsContents& contents);

}  // namespace tokamak
