// GGUF metadata as a Hugging Face config. Internal to weights/.
#pragma once

#include "tokamak/status.h"
#include "weights/config.h"
#include "weights/gguf.h"
#include "weights/gguf_names.h"

namespace tokamak {

// Returns the config.json that the file was converted from, as far as it matters for the forward
// pass. Unknown keys under "<architecture>." are errors that name the key.
Result<JsonValue> TranslateGgufConfig(const GgufFile& file, const GgufArchitecture& architecture);

}  // namespace tokamak
