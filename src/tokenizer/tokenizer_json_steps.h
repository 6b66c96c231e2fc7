// The components of a tokenizer.json around its model. Internal to tokenizer_json.cc.
#pragma once

#include "tokenizer/json_node.h"
#include "tokenizer/pipeline_spec.h"

namespace tokamak {

// Each takes the component's value, which may be null (there is none), and notes errors in it.
void ReadNormalizers(const JsonNode& node, PipelineSpec& spec);
void ReadPreTokenizers(const JsonNode& node, PipelineSpec& spec);
void ReadPostProcessor(const JsonNode& node, PipelineSpec& spec);
void ReadDecoders(const JsonNode& node, PipelineSpec& spec);

}  // namespace tokamak
