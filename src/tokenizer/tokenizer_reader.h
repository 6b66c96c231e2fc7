// Reads the JSON of tokenizer files.
#pragma once

#include <string>
#include <string_view>

#include "base/json/json_reader.h"
#include "tokamak/status.h"

namespace tokamak {

// Refuses text that is not a well-formed object, too long or nested too deeply. `source` starts the
// message.
Result<JsonValue> ParseTokenizerObject(std::string_view text, const std::string& source);

// `source` starts each place in messages.
JsonReader ReadTokenizerObject(const JsonValue& file, const std::string& source);

// Records that a value of the file is not supported.
void Unsupported(const JsonReader& node, std::string_view what);

}  // namespace tokamak
