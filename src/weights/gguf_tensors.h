// The tensors of a GGUF file under their Hugging Face names. Internal to weights/.
#pragma once

#include <memory>

#include "weights/config.h"
#include "weights/gguf.h"
#include "weights/gguf_names.h"
#include "weights/tensor_source.h"

namespace tokamak {

// `config` is the translated configuration of the file; its head counts tell how rows are permuted.
std::shared_ptr<TensorSource> MakeGgufTensors(std::shared_ptr<const GgufFile> file,
                                              const GgufArchitecture& architecture,
                                              const ConfigValue& config);

}  // namespace tokamak
