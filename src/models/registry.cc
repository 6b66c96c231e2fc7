#include "models/registry.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "models/families.h"

namespace tokamak {
namespace {

struct Family {
  KnownModel known;
  CreateModel* create;
};

constexpr Family kFamilies[] = {
    {{"BertModel",
      {"bert"},
      "BERT and MiniLM: embeddings",
      "bert_odd, bert_64, all-MiniLM-L6-v2",
      /*encoder=*/true},
     &CreateBert},
    {{"DeepseekV2ForCausalLM",
      {"deepseek_v2"},
      "DeepSeek-V2 and V2-Lite",
      "deepseek_v2_odd, deepseek_v2_256"},
     &CreateDecoder<ParseDeepseekV2>},
    {{"DeepseekV3ForCausalLM",
      {"deepseek_v3", "kimi_k2"},
      "DeepSeek-V3, R1 and Kimi-K2",
      "deepseek_v3_odd, deepseek_v3_256, deepseek_v3_fp8"},
     &CreateDecoder<ParseDeepseekV3>},
    {{"Ernie4_5ForCausalLM", {"ernie4_5"}, "ERNIE 4.5, dense", "ernie4_5_odd, ernie4_5_128"},
     &CreateDecoder<ParseErnie45>},
    {{"Ernie4_5_ForCausalLM",
      {"ernie4_5"},
      "ERNIE 4.5, dense, as first published",
      "ernie4_5_odd, ernie4_5_128"},
     &CreateDecoder<ParseErnie45>},
    {{"Exaone4ForCausalLM", {"exaone4"}, "EXAONE 4.0", "exaone4_odd, exaone4_128"},
     &CreateDecoder<ParseExaone4>},
    {{"Gemma2ForCausalLM", {"gemma2"}, "Gemma 2", "gemma2_odd, gemma2_256"},
     &CreateDecoder<ParseGemma2>},
    {{"Gemma3ForCausalLM", {"gemma3_text"}, "Gemma 3, text only", "gemma3_odd, gemma3_256"},
     &CreateDecoder<ParseGemma3>},
    {{"Gemma3ForConditionalGeneration",
      {"gemma3"},
      "Gemma 3 with its vision tower",
      "gemma3_vision_odd, gemma3_vision_256, gemma3_images_odd, gemma3_images_256"},
     &CreateGemma3Vision},
    {{"Glm4ForCausalLM", {"glm4"}, "GLM-4 (0414)", "glm4_odd, glm4_128"},
     &CreateDecoder<ParseGlm4>},
    {{"Glm4MoeForCausalLM", {"glm4_moe"}, "GLM-4.5 and 4.6", "glm4_moe_odd, glm4_moe_128"},
     &CreateDecoder<ParseGlm4Moe>},
    {{"Glm4vForConditionalGeneration", {"glm4v"}, "GLM-4.1V", "glm4v_odd, glm4v_128"},
     &CreateGlm4v},
    {{"Glm4vMoeForConditionalGeneration",
      {"glm4v_moe"},
      "GLM-4.5V",
      "glm4v_moe_odd, glm4v_moe_128"},
     &CreateGlm4vMoe},
    {{"GptOssForCausalLM", {"gpt_oss"}, "gpt-oss", "gpt_oss_odd, gpt_oss_64"},
     &CreateDecoder<ParseGptOss>},
    {{"LlamaForCausalLM",
      {"llama"},
      "Llama 2 and 3, SmolLM2, and others with this architecture",
      "llama_odd, llama_tied, llama_yarn, llama_dynamic, SmolLM2-135M-Instruct"},
     &CreateDecoder<ParseLlama>},
    {{"LlavaForConditionalGeneration",
      {"llava"},
      "LLaVA 1 and 1.5, with a CLIP or SigLIP tower and Llama, Mistral or Qwen2; Pixtral 12B",
      "llava_odd, llava_64, llava_siglip, llava_linear, pixtral_odd"},
     &CreateLlava},
    {{"LlavaNextForConditionalGeneration",
      {"llava_next"},
      "LLaVA 1.6 (NeXT), with the same towers and text models",
      "llava_next_odd, llava_next_siglip"},
     &CreateLlavaNext},
    {{"MiniCPMV4_6ForConditionalGeneration",
      {"minicpmv4_6"},
      "MiniCPM-V 4.6, with a Qwen3.5 or Qwen3 text model",
      "minicpm_v_odd, minicpm_v_4x, minicpm_v_35"},
     &CreateMiniCpmV},
    {{"MistralForCausalLM", {"mistral"}, "Mistral", "mistral_odd, mistral_128"},
     &CreateDecoder<ParseMistral>},
    {{"Mistral3ForConditionalGeneration",
      {"mistral3"},
      "Mistral Small 3.1 and 3.2",
      "mistral3_odd, mistral3_64"},
     &CreateMistral3},
    {{"MixtralForCausalLM", {"mixtral"}, "Mixtral", "mixtral_odd, mixtral_128"},
     &CreateDecoder<ParseMixtral>},
    {{"MPTForCausalLM", {"mpt"}, "MPT, as saved by MosaicML", "mpt_odd, mpt_128"},
     &CreateDecoder<ParseMpt>},
    {{"MptForCausalLM", {"mpt"}, "MPT, as saved by transformers", "mpt_odd, mpt_128"},
     &CreateDecoder<ParseMpt>},
    {{"Olmo2ForCausalLM", {"olmo2"}, "OLMo 2", "olmo2_odd, olmo2_128"}, &CreateDecoder<ParseOlmo2>},
    {{"Phi3ForCausalLM", {"phi3"}, "Phi-3, Phi-3.5 and Phi-4", "phi3_odd, phi3_long"},
     &CreateDecoder<ParsePhi3>},
    {{"Qwen2ForCausalLM", {"qwen2"}, "Qwen2 and Qwen2.5", "qwen2_odd, qwen2_128"},
     &CreateDecoder<ParseQwen2>},
    {{"Qwen2VLForConditionalGeneration", {"qwen2_vl"}, "Qwen2-VL", "qwen2_vl_odd, qwen2_vl_80"},
     &CreateQwen2Vl},
    {{"Qwen2_5_VLForConditionalGeneration",
      {"qwen2_5_vl"},
      "Qwen2.5-VL",
      "qwen2_5_vl_odd, qwen2_5_vl_80"},
     &CreateQwen25Vl},
    {{"Qwen2MoeForCausalLM",
      {"qwen2_moe"},
      "Qwen1.5-MoE and Qwen2-MoE",
      "qwen2_moe_odd, qwen2_moe_128"},
     &CreateDecoder<ParseQwen2Moe>},
    {{"Qwen3ForCausalLM",
      {"qwen3"},
      "Qwen3, Qwen3-Embedding",
      "qwen3_odd, qwen3_tied, qwen3_embedding"},
     &CreateDecoder<ParseQwen3>},
    {{"Qwen3VLForConditionalGeneration", {"qwen3_vl"}, "Qwen3-VL", "qwen3_vl_odd, qwen3_vl_64"},
     &CreateQwen3Vl},
    {{"Qwen3VLMoeForConditionalGeneration",
      {"qwen3_vl_moe"},
      "Qwen3-VL-MoE",
      "qwen3_vl_moe_odd, qwen3_vl_moe_128"},
     &CreateQwen3VlMoe},
    {{"Qwen3MoeForCausalLM", {"qwen3_moe"}, "Qwen3-MoE", "qwen3_moe_odd, qwen3_moe_128"},
     &CreateDecoder<ParseQwen3Moe>},
    {{"Qwen3_5ForCausalLM",
      {"qwen3_5_text"},
      "Qwen3.5, dense, text only",
      "qwen35_odd, qwen35_128"},
     &CreateQwen35},
    {{"Qwen3_5ForConditionalGeneration",
      {"qwen3_5"},
      "Qwen3.5, dense",
      "qwen35_vl_odd, qwen35_vl_64"},
     &CreateQwen35Vl},
    {{"SmolLM3ForCausalLM", {"smollm3"}, "SmolLM3", "smollm3_odd, smollm3_128"},
     &CreateDecoder<ParseSmolLm3>},
};

// transformers selects the model by this field, other Hugging Face readers by the class, so both
// must agree. GGUF has no such field.
Status CheckModelType(ConfigReader& reader, const KnownModel& known) {
  constexpr const char* kField = "model_type";
  if (!reader.Has(kField)) return Status();
  const std::string type = reader.String(kField);
  std::vector<std::string> supported;
  for (std::string_view name : known.model_types) {
    if (name.empty()) continue;
    if (name == type) return Status();
    supported.push_back(fmt::format("\"{}\"", name));
  }
  reader.Fail(kField, fmt::format("{} does not belong to {}, which \"architectures\" names; "
                                  "supported with it: {}",
                                  Quoted(type), known.architecture, fmt::join(supported, ", ")));
  return reader.Finish();
}

const Family* FindFamily(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.known.architecture == architecture) return &family;
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint, Ops& ops,
                                         const LoadOptions& options) {
  return LoadModel(checkpoint, checkpoint.Reader(), ops, options);
}

Result<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint, ConfigReader reader,
                                         Ops& ops, const LoadOptions& options) {
  const Family* family = FindFamily(checkpoint.architecture);
  if (family == nullptr) {
    std::vector<std::string_view> known;
    for (const KnownModel& model : KnownModels()) known.push_back(model.architecture);
    return Unimplemented("{}: architecture \"{}\" is not supported; known: {}", checkpoint.source,
                         checkpoint.architecture, fmt::join(known, ", "));
  }
  if (family->known.encoder && options.task == Task::kGenerate) {
    return Unimplemented("{}: {} is an encoder: it embeds texts and cannot generate any",
                         checkpoint.source, checkpoint.architecture);
  }
  nn::WeightLoad load{.tensors = *checkpoint.tensors,
                      .ops = &ops,
                      .parallel = {ops.rank().size, ops.rank().rank},
                      .stages = ops.rank().stages,
                      .stage = ops.rank().stage,
                      .uniform_routing = options.uniform_routing,
                      .progress = options.progress,
                      .status = {},
                      .spec = {}};
  load.spec.architecture = checkpoint.architecture;
  RETURN_IF_ERROR(CheckModelType(reader, family->known));
  Result<std::unique_ptr<Model>> model = family->create(reader, load, options);
  RETURN_IF_ERROR(model.status());
  RETURN_IF_ERROR(load.status);
  if (load.spec.stage.count != load.stages) {
    return Unimplemented("{}: {} cannot be divided among the stages of a pipeline",
                         checkpoint.source, checkpoint.architecture);
  }
  if (const Capabilities missing = load.needs - ops.capabilities(); !missing.empty()) {
    return Unimplemented("{}: needs {}, which the {} backend does not have", checkpoint.source,
                         Describe(missing), ops.name());
  }
  RETURN_IF_ERROR(checkpoint.tensors->CheckAllUsed());
  (*model)->set_spec(std::move(load.spec));
  return model;
}

std::vector<KnownModel> KnownModels() {
  std::vector<KnownModel> models;
  for (const Family& family : kFamilies) models.push_back(family.known);
  return models;
}

bool IsEncoder(std::string_view architecture) {
  const Family* family = FindFamily(architecture);
  return family != nullptr && family->known.encoder;
}

Result<int32_t> ServedContext(const LoadOptions& options, int32_t model_context) {
  if (options.max_context == 0) return model_context;
  if (options.max_context < 0 || options.max_context > model_context) {
    return InvalidArgument("the requested context of {} positions is longer than the model's {}",
                           options.max_context, model_context);
  }
  return options.max_context;
}

}  // namespace tokamak
