// Opens bytes as a GGUF model and uses all of it: metadata, rows, configuration, inspection. If
// "GGUF" occurs again later, splits the bytes there: into the parts of a split model, and into a
// model and its image encoder.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "quant/quantize.h"
#include "weights/checkpoint.h"
#include "weights/gguf.h"
#include "weights/gguf_mmproj.h"
#include "weights/inspect.h"

namespace tokamak {
namespace {

// A larger limit would only slow fuzzing down.
constexpr int64_t kMaxElements = 4096;

void Visit(const GgufValue& value) {
  value.Bool();
  value.Int();
  value.Uint();
  value.Number();
  if (const auto text = value.String(); text && !text->empty()) {
    volatile char last = text->back();
    (void)last;
  }
  if (!value.is_array()) return;
  for (uint64_t i = 0; i < value.size(); ++i) Visit(value.Element(i));
}

void ReadWeight(const WeightSource& weight) {
  const int64_t cols = weight.shape().cols();
  if (cols > kMaxElements) return;
  const int64_t rows = std::min(weight.shape().rows(), std::max<int64_t>(1, kMaxElements / cols));
  std::vector<std::byte> data(RowBytes(weight.dtype(), cols) * static_cast<size_t>(rows));
  // The file's size was checked on opening, so the rows exist.
  CHECK(weight.ReadRows(0, rows, data.data()).ok());
  CHECK(weight.ReadRows(weight.shape().rows() - rows, weight.shape().rows(), data.data()).ok());
  if (weight.dtype() == DType::kI8 || weight.dtype() == DType::kI32 ||
      weight.dtype() == DType::kI64) {
    return;
  }
  std::vector<float> values(static_cast<size_t>(cols * rows));
  DequantizeRow(weight.dtype(), data.data(), cols * rows, values.data());
}

void UseMmproj(Checkpoint& checkpoint, const std::shared_ptr<const GgufFile>& mmproj) {
  const Status added = AddMmproj(mmproj, checkpoint);
  if (!added.ok()) {
    CHECK(!added.message().empty() && checkpoint.mmproj == nullptr);
    return;
  }
  TensorSource& tensors = *checkpoint.tensors;
  ConfigReader reader = checkpoint.Reader();
  ConfigReader vision = reader.Part("vision_config");
  const int64_t hidden = vision.IntOr("hidden_size", 4), patch = vision.IntOr("patch_size", 4);
  const std::pair<const char*, Shape> kWeights[] = {
      {"visual.blocks.0.attn.qkv.weight", {3 * hidden, hidden}},
      {"visual.blocks.0.attn.qkv.bias", {3 * hidden}},
      {"visual.patch_embed.proj.weight", {hidden, 3, 2, patch, patch}},
      {"vision_tower.embeddings.patch_embedding.weight", {hidden, 3, patch, patch}},
      {"vision_tower.encoder.layers.0.mlp.fc1.weight", {hidden, hidden}}};
  for (const auto& [name, shape] : kWeights) {
    const auto weight = tensors.Find(name, shape);
    if (weight.ok()) ReadWeight(**weight);
  }
  tensors.Skip("visual.");
  (void)tensors.CheckAllUsed();
}

// `mmproj`: null, or the file of an image encoder.
void UseCheckpoint(const std::shared_ptr<const GgufFile>& file,
                   const std::shared_ptr<const GgufFile>& mmproj) {
  Result<Checkpoint> checkpoint = MakeGgufCheckpoint(file);
  if (!checkpoint.ok()) return;
  if (mmproj != nullptr) return UseMmproj(*checkpoint, mmproj);
  ConfigReader reader = checkpoint->Reader();
  const int64_t hidden = reader.Int("hidden_size");
  const int64_t heads = reader.Int("num_attention_heads");
  for (const char* name : {"model.layers.0.self_attn.q_proj.weight", "model.norm.weight",
                           "model.layers.0.self_attn.q_proj.bias"}) {
    const Shape shape =
        std::string_view(name).ends_with("proj.weight") ? Shape{heads * 2, hidden} : Shape{hidden};
    const auto weight = checkpoint->tensors->Find(name, shape);
    if (weight.ok()) ReadWeight(**weight);
  }
  (void)checkpoint->tensors->CheckAllUsed();
  (void)reader.Finish();
}

}  // namespace
}  // namespace tokamak

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tokamak;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::vector<std::shared_ptr<const ByteSource>> parts;
  const size_t second = bytes.find("GGUF", 4);
  parts.push_back(MakeMemoryBytes("a", bytes.substr(0, second)));
  if (second != std::string::npos) {  // also as a model and its image encoder
    const auto model = GgufFile::FromParts(parts);
    const auto mmproj = GgufFile::FromParts({MakeMemoryBytes("b", bytes.substr(second))});
    if (model.ok() && mmproj.ok()) UseCheckpoint(*model, *mmproj);
  }
  if (second != std::string::npos) parts.push_back(MakeMemoryBytes("b", bytes.substr(second)));
  const auto file = GgufFile::FromParts(std::move(parts));
  if (!file.ok()) return 0;
  for (const auto& entry : (*file)->metadata().entries()) Visit(entry.value);
  for (const StoredTensor& tensor : (*file)->tensors()) {
    const auto weight = (*file)->Weight(tensor);
    if (weight.ok()) ReadWeight(**weight);
  }
  UseCheckpoint(*file, nullptr);
  std::ostringstream out;
  if (size % 64 < 2) PrintInspection(**file, /*json=*/size % 64 == 1, out);
  return 0;
}
