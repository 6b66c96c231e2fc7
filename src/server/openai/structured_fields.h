// The form that a request demands of its answers, under the names of OpenAI, vLLM and llama.cpp.
#pragma once

#include "base/json/json_reader.h"
#include "server/openai/other_fields.h"
#include "tokamak/sampling_params.h"

namespace tokamak {

// Reads the fields that ask for a structured output: `response_format`, `structured_outputs`,
// `guided_*`, `grammar`, `json_schema`. At most one of them may be given. Adds to `spellings` where
// the engine's "structured_output" was.
void ReadStructuredOutput(const JsonReader& fields, SamplingParams& sampling,
                          FieldSpellings& spellings);

}  // namespace tokamak
