// Reads the components around the model of a tokenizer.json. Internal to tokenizer_json.cc.
#pragma once

#include "tokenizer/json_node.h"
#include "tokenizer/pipeline_spec.h"

namespace tokamak {

// Each takes the component's value, which may be null, and records errors in it.
void ReadNormalizers(const JsonNode& node, PipelineSpec& spec);
void ReadPreTokenizers(const JsonNode& node, PipelineSpec& spec);
void ReadPostProcessor(const JsonNode& node, PipelineSpec& spec);
void ReadDecoders(const JsonNode& node, PipelineSpec& spec);

}  // namespace tokamak
