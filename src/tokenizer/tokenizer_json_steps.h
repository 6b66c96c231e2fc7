// Reads the components around the model of a tokenizer.json. Internal to tokenizer_json.cc.
#pragma once

#include "tokenizer/pipeline_spec.h"
#include "tokenizer/tokenizer_reader.h"

namespace tokamak {

// Each takes the component's value, which may be null, and records errors in it.
void ReadNormalizers(const JsonReader& node, PipelineSpec& spec);
void ReadPreTokenizers(const JsonReader& node, PipelineSpec& spec);
void ReadPostProcessor(const JsonReader& node, PipelineSpec& spec);
void ReadDecoders(const JsonReader& node, PipelineSpec& spec);

}  // namespace tokamak
