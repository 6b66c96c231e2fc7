#include "models/registry.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "models/families.h"

namespace tokamak {
namespace {

struct Family {
  std::string_view architecture;  // Hugging Face class name
  CreateModel* create;
};

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", &CreateLlama},
    {"Qwen3ForCausalLM", &CreateQwen3},
    {"Qwen3MoeForCausalLM", &CreateQwen3Moe},
};

const Family* FindFamily(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint, Ops& ops,
                                         const LoadOptions& options) {
  const Family* family = FindFamily(checkpoint.architecture);
  if (family == nullptr) {
    return Unimplemented("{}: architecture \"{}\" is not supported; known: {}", checkpoint.source,
                         checkpoint.architecture, fmt::join(KnownArchitectures(), ", "));
  }
  nn::WeightLoad load{.tensors = *checkpoint.tensors,
                      .ops = ops,
                      .parallel = {},
                      .progress = options.progress,
                      .status = {},
                      .cache = {}};
  Result<std::unique_ptr<Model>> model = family->create(checkpoint.Reader(), load, options);
  RETURN_IF_ERROR(model.status());
  RETURN_IF_ERROR(load.status);
  RETURN_IF_ERROR(checkpoint.tensors->CheckAllUsed());
  return model;
}

std::vector<std::string_view> KnownArchitectures() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.architecture);
  return names;
}

Result<int32_t> ServedContext(const LoadOptions& options, int32_t model_context) {
  if (options.max_context == 0) return model_context;
  if (options.max_context < 0 || options.max_context > model_context) {
    return InvalidArgument("a context of {} positions was asked for; the model has {}",
                           options.max_context, model_context);
  }
  return options.max_context;
}

}  // namespace tokamak
