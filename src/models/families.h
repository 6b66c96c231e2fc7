// The model families: one function each, in the file of its name. registry.cc lists them.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/error.h"
#include "models/decoder.h"
#include "models/model.h"
#include "models/registry.h"
#include "nn/builder.h"

namespace tokamak {

// Reads a checkpoint's configuration strictly into the decoder's.
using ParseDecoderFamily = Result<DecoderConfig>(ConfigReader config);

ParseDecoderFamily ParseDeepseekV2;         // deepseek.cc
ParseDecoderFamily ParseDeepseekV3;         // deepseek.cc
ParseDecoderFamily ParseExaone4;            // exaone4.cc
ParseDecoderFamily ParseGemma2;             // gemma.cc
ParseDecoderFamily ParseGemma3;             // gemma.cc
ParseDecoderFamily ParseGemma3Multimodal;   // gemma.cc
ParseDecoderFamily ParseGlm4;               // glm4.cc
ParseDecoderFamily ParseGlm4Moe;            // glm4.cc
ParseDecoderFamily ParseGptOss;             // gpt_oss.cc
ParseDecoderFamily ParseLlama;              // llama.cc
ParseDecoderFamily ParseMistral;            // mistral.cc
ParseDecoderFamily ParseMistralMultimodal;  // mistral.cc
ParseDecoderFamily ParseMixtral;            // mistral.cc
ParseDecoderFamily ParseMpt;                // mpt.cc
ParseDecoderFamily ParseOlmo2;              // olmo2.cc
ParseDecoderFamily ParsePhi3;               // phi3.cc
ParseDecoderFamily ParseQwen2;              // qwen2.cc
ParseDecoderFamily ParseQwen2Moe;           // qwen2.cc
ParseDecoderFamily ParseQwen3;              // qwen3.cc
ParseDecoderFamily ParseQwen3Moe;           // qwen3.cc
ParseDecoderFamily ParseSmolLm3;            // smollm3.cc

// Creates a family's model: parses `config` and builds the layers, whose errors stay in
// load.status.
using CreateModel = Result<std::unique_ptr<Model>>(ConfigReader config, nn::WeightLoad& load,
                                                   const LoadOptions& options);

CreateModel CreateBert;  // bert.cc

template <ParseDecoderFamily Parse>
Result<std::unique_ptr<Model>> CreateDecoder(ConfigReader config, nn::WeightLoad& load,
                                             const LoadOptions& options) {
  ASSIGN_OR_RETURN(DecoderConfig c, Parse(std::move(config)));
  return MakeDecoder(std::move(c), load, options);
}

}  // namespace tokamak
