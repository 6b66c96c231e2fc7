#include "local/fingerprint.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/option_names.h"
#include "base/version.h"

namespace tokamak {
namespace {

// Samples bytes from the middle of each tensor: training changes nearly all of them. Reading every
// byte would cost as much as loading, and there may be 100,000 tensors.
template <typename Parts>
Status AddWeights(const Parts& parts, const std::vector<StoredTensor>& tensors, uint64_t& hash) {
  std::array<std::byte, 256> sample;
  for (const StoredTensor& tensor : tensors) {
    const uint64_t bytes = tensor.bytes.value_or(0);
    const size_t size = std::min<uint64_t>(bytes, sample.size());
    RETURN_IF_ERROR(parts[static_cast<size_t>(tensor.part)].source->ReadAt(
        tensor.offset + (bytes - size) / 2, sample.data(), size));
    hash = Hash64(sample.data(), size, hash + 1);
  }
  return Status();
}

Status AddGguf(const GgufFile& file, uint64_t& hash) {
  for (const GgufPart& part : file.parts()) {
    std::vector<std::byte> metadata(part.data_offset);  // a few MB
    RETURN_IF_ERROR(part.source->ReadAt(0, metadata.data(), metadata.size()));
    hash = Hash64(metadata.data(), metadata.size(), hash + 1);
    const std::string size = fmt::format("{}", part.source->size());
    hash = Hash64(size.data(), size.size(), hash + 1);
  }
  return AddWeights(file.parts(), file.tensors(), hash);
}

void AddText(std::string_view text, uint64_t& hash) {
  hash = Hash64(text.data(), text.size(), hash + 1);
}

}  // namespace

Result<uint64_t> CheckpointHash(const Checkpoint& checkpoint) {
  uint64_t hash = 0;
  if (checkpoint.gguf != nullptr) {
    RETURN_IF_ERROR(AddGguf(*checkpoint.gguf, hash));
    if (checkpoint.mmproj) RETURN_IF_ERROR(AddGguf(*checkpoint.mmproj, hash));
  } else if (checkpoint.safetensors != nullptr) {
    for (const SafetensorsPart& part : checkpoint.safetensors->parts()) {
      AddText(fmt::format("{} {} {}", part.header_hash, part.header_bytes, part.source->size()),
              hash);
    }
    RETURN_IF_ERROR(
        AddWeights(checkpoint.safetensors->parts(), checkpoint.safetensors->tensors(), hash));
    AddText(checkpoint.config.ToString(size_t{1} << 20), hash);
  } else {
    AddText(checkpoint.source, hash);
  }
  return hash;
}

Result<std::string> SystemFingerprint(const Checkpoint& checkpoint, const EngineOptions& options,
                                      const ModelInfo& model) {
  ASSIGN_OR_RETURN(uint64_t hash, CheckpointHash(checkpoint));
  const auto add = [&hash](std::string_view text) { AddText(text, hash); };
  add(VersionText());
  add(model.backend);
  if (model.task == Task::kEmbed) {
    add(fmt::format("{} {}", Name(model.embedding.pooling), model.embedding.normalized));
  }
  add(fmt::format("{} {} {}", Name(options.kv_cache_dtype), options.block_size, model.max_context));
  add(Name(options.mla));
  // A pipeline changes no bits.
  if (options.tensor_parallel > 1) add(fmt::format("tensor parallel {}", options.tensor_parallel));
  if (options.uniform_routing) add("uniform routing");
  return fmt::format("fp_{:016x}", hash);
}

}  // namespace tokamak
