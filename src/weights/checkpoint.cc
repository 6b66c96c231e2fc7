#include "weights/checkpoint.h"

#include "base/error.h"
#include "base/file.h"
#include "weights/dummy_weights.h"
#include "weights/gguf_config.h"
#include "weights/gguf_names.h"
#include "weights/gguf_tensors.h"
#include "weights/printable.h"

namespace tokamak {
namespace {

constexpr std::string_view kDummyPrefix = "dummy:";
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

}  // namespace

Result<Checkpoint> MakeGgufCheckpoint(std::shared_ptr<const GgufFile> file) {
  ASSIGN_OR_RETURN(const std::string name, file->metadata().String("general.architecture"));
  const GgufArchitecture* architecture = FindGgufArchitecture(name);
  if (architecture == nullptr) {
    return Unimplemented("{}: architecture {} is not supported; supported: {}", file->name(),
                         Quoted(name), SupportedGgufArchitectures());
  }
  Checkpoint checkpoint;
  checkpoint.source = file->name();
  checkpoint.architecture = architecture->hf_name;
  ASSIGN_OR_RETURN(checkpoint.config, TranslateGgufConfig(*file, *architecture));
  for (const GgufTensor& tensor : file->tensors()) {
    checkpoint.weight_bytes += static_cast<int64_t>(tensor.bytes.value_or(0));
  }
  checkpoint.tensors = MakeGgufTensors(file, *architecture, checkpoint.config);
  checkpoint.gguf = std::move(file);
  return checkpoint;
}

Result<Checkpoint> MakeDummyCheckpoint(ConfigValue config, const std::string& source,
                                       const CheckpointOptions& options) {
  const ConfigValue* architectures = config.Find("architectures");
  const ConfigValue::Array* list = architectures ? architectures->AsArray() : nullptr;
  const std::string* name = list && list->size() == 1 ? list->front().AsString() : nullptr;
  if (name == nullptr) {
    return InvalidArgument("{}: architectures: expected an array of one class name, got {}", source,
                           architectures ? architectures->ToString() : "nothing");
  }
  Checkpoint checkpoint;
  checkpoint.source = source;
  checkpoint.architecture = *name;
  checkpoint.config = std::move(config);
  checkpoint.tensors = MakeDummyTensors(source, options.dummy_dtype, options.dummy_seed);
  return checkpoint;
}

Result<Checkpoint> OpenCheckpoint(const std::string& path, const CheckpointOptions& options) {
  if (path.starts_with(kDummyPrefix)) {
    const std::string config_path = path.substr(kDummyPrefix.size());
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(config_path, kMaxConfigBytes));
    ASSIGN_OR_RETURN(ConfigValue config, ParseConfigJson(text, config_path));
    return MakeDummyCheckpoint(std::move(config), config_path, options);
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  return MakeGgufCheckpoint(std::move(file));
}

}  // namespace tokamak
