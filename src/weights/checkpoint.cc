#include "weights/checkpoint.h"

#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "weights/dummy_weights.h"
#include "weights/fp8_blocks.h"
#include "weights/gguf_config.h"
#include "weights/gguf_mmproj.h"
#include "weights/gguf_names.h"
#include "weights/gguf_tensors.h"
#include "weights/hf_checkpoint.h"

namespace tokamak {
namespace {

constexpr std::string_view kDummyPrefix = "dummy:";
constexpr std::string_view kNone = "none";  // no mmproj file

bool IsDirectory(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Whether experts are stored in MXFP4, as in gpt-oss.
bool HasMxfp4Experts(const JsonValue& config) {
  const JsonValue* quantization = config.Find("quantization_config");
  const JsonValue* method = quantization ? quantization->Find("quant_method") : nullptr;
  const std::string* name = method ? method->AsString() : nullptr;
  return name != nullptr && *name == "mxfp4";
}

// Adds the image encoder that the options name, or that is beside the model.
Status AddImageEncoder(const std::string& path, const std::string& mmproj, Checkpoint& model) {
  if (mmproj == kNone || (mmproj.empty() && !MayHaveMmproj(*model.gguf))) return Status();
  std::string file = mmproj;
  if (file.empty()) {
    ASSIGN_OR_RETURN(file, FindMmproj(path));
    if (file.empty()) return Status();
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> encoder, GgufFile::Open(file));
  const Status added = AddMmproj(std::move(encoder), model);
  if (mmproj.empty() && added.code() == StatusCode::kInvalidArgument) {
    LogWarning("images are refused: {}", added.message());
    return Status();
  }
  if (added.ok() && mmproj.empty()) LogInfo("images are encoded with {}", file);
  return added;
}

}  // namespace

Result<Checkpoint> MakeGgufCheckpoint(std::shared_ptr<const GgufFile> file) {
  ASSIGN_OR_RETURN(const std::string name, file->metadata().String("general.architecture"));
  const auto value = [&](const char* key) {
    const GgufValue* found = file->metadata().Find(name + key);
    return found != nullptr ? found->Int().value_or(0) : 0;
  };
  const GgufArchitecture* architecture = FindGgufArchitecture(
      name, value(".expert_count") > 0, value(".expert_gating_func") == kGgufSigmoidGate);
  if (architecture == nullptr) {
    return Unimplemented("{}: architecture {} is not supported; supported: {}", file->name(),
                         Quoted(name), SupportedGgufArchitectures());
  }
  Checkpoint checkpoint;
  checkpoint.source = file->name();
  checkpoint.architecture = architecture->hf_name;
  ASSIGN_OR_RETURN(checkpoint.config, TranslateGgufConfig(*file, *architecture));
  ASSIGN_OR_RETURN(checkpoint.embedding, ReadGgufEmbeddingSpec(*file, name));
  for (const StoredTensor& tensor : file->tensors()) {
    checkpoint.weight_bytes += static_cast<int64_t>(tensor.bytes.value_or(0));
  }
  checkpoint.tensors = MakeGgufTensors(file, *architecture, checkpoint.config);
  checkpoint.gguf = std::move(file);
  return checkpoint;
}

Result<std::string> ArchitectureOf(const JsonValue& config, const std::string& source) {
  const JsonValue* architectures = config.Find("architectures");
  const JsonValue::Array* list = architectures ? architectures->AsArray() : nullptr;
  const std::string* name = list && list->size() == 1 ? list->front().AsString() : nullptr;
  if (name == nullptr) {
    return InvalidArgument("{}: architectures: expected an array of one class name, got {}", source,
                           architectures ? architectures->ToString() : "nothing");
  }
  return *name;
}

Result<Checkpoint> MakeDummyCheckpoint(JsonValue config, const std::string& source,
                                       const CheckpointOptions& options) {
  Checkpoint checkpoint;
  checkpoint.source = source;
  RETURN_IF_ERROR(HasFp8Blocks(config, source).status());
  ASSIGN_OR_RETURN(checkpoint.architecture, ArchitectureOf(config, source));
  checkpoint.config = std::move(config);
  const bool mxfp4 = options.dummy_dtype == DType::kBF16 && HasMxfp4Experts(checkpoint.config);
  checkpoint.tensors = MakeDummyTensors(
      source, options.dummy_dtype, mxfp4 ? DType::kMXFP4 : options.dummy_dtype, options.dummy_seed);
  return checkpoint;
}

Result<Checkpoint> OpenCheckpoint(const std::string& path, const CheckpointOptions& options) {
  const bool is_gguf = !path.starts_with(kDummyPrefix) && !IsDirectory(path);
  if (!is_gguf && !options.mmproj.empty() && options.mmproj != kNone) {
    return InvalidArgument("mmproj: {} is no GGUF file, so it has its image encoder itself", path);
  }
  if (path.starts_with(kDummyPrefix)) {
    const std::string config_path = path.substr(kDummyPrefix.size());
    ASSIGN_OR_RETURN(JsonValue config, ReadConfigFile(config_path));
    return MakeDummyCheckpoint(std::move(config), config_path, options);
  }
  if (!is_gguf) {
    const size_t end = path.find_last_not_of('/');  // "model/" becomes "model"
    return OpenHfCheckpoint(end == std::string::npos ? path : path.substr(0, end + 1));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  ASSIGN_OR_RETURN(Checkpoint checkpoint, MakeGgufCheckpoint(std::move(file)));
  RETURN_IF_ERROR(AddImageEncoder(path, options.mmproj, checkpoint));
  return checkpoint;
}

}  // namespace tokamak
