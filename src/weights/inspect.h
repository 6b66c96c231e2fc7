// The contents of a model file, for `tokamak inspect`.
#pragma once

#include <ostream>
#include <string>

#include "tokamak/status.h"
#include "weights/gguf.h"

namespace tokamak {

// Prints files, metadata (long arrays shortened), tensors with type, shape, size and place, and
// totals per type, as tables or as one JSON object. Reads only metadata. Works on architectures and
// tensor types that this build cannot run.
Status PrintInspection(const std::string& path, bool json, std::ostream& out);
// The same for a Hugging Face directory, including config.json and generation_config.json.
Status PrintHfInspection(const std::string& folder, bool json, std::ostream& out);
void PrintInspection(const GgufFile& file, bool json, std::ostream& out);

}  // namespace tokamak
