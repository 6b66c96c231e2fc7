// A safetensors model as a TensorSource. Internal to weights/.
#pragma once

#include <memory>
#include <string>

#include "weights/safetensors.h"
#include "weights/tensor_source.h"

namespace tokamak {

// What config.json says of them.
struct SafetensorsContents {
  bool tied = false;        // embeddings and output matrix are one
  bool fp8_blocks = false;  // matrices in FP8 have scales (weights/fp8_blocks.h)
};

// Names are the model's own. What the reference ignores is ignored here too: the rotary
// frequencies that old checkpoints stored, and, where embeddings are tied, an output matrix that
// equals them (another one is an error: which of the two is meant?).
std::shared_ptr<TensorSource> MakeSafetensorsTensors(std::string folder,
                                                     std::shared_ptr<const SafetensorsModel> model,
                                                     const SafetensorsContents& contents);

}  // namespace tokamak
