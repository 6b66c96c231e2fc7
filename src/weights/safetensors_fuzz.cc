// Parses bytes as a safetensors file, reads all its tensors, and parses them as an index.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tokamak;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  (void)ParseSafetensorsIndex(bytes, "index.json");
  const auto model = SafetensorsModel::FromParts({MakeMemoryBytes("model.safetensors", bytes)});
  if (!model.ok()) return 0;
  uint64_t total = 0;
  for (const StoredTensor& tensor : (*model)->tensors()) {
    total += tensor.bytes.value_or(0);
    const auto weight = (*model)->Weight(tensor);
    if (!weight.ok() || (*weight)->shape().elements() == 0) continue;
    std::vector<std::byte> values(tensor.bytes.value());
    // Accepted tensors can be read completely.
    if (!(*weight)->ReadRows(0, (*weight)->shape().rows(), values.data()).ok()) std::abort();
  }
  if (total > size) std::abort();
  return 0;
}
