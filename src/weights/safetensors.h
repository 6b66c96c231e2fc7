// Safetensors, Hugging Face's weight format: one file, or several with an index.
// Format: https://huggingface.co/docs/safetensors. A file is a 64-bit length, a JSON header of that
// many bytes ({"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...}), and the data.
//
// Headers are read into memory, tensor data by positioned reads. Nothing in a header is trusted:
// every range must lie in the file and match its type and shape, and together they must cover the
// data exactly. Errors are kDataLoss (malformed) or kUnimplemented (not supported) and name the
// file and the tensor.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/weight_source.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tokamak/status.h"
#include "weights/byte_source.h"
#include "weights/stored_tensor.h"

namespace tokamak {

// One file. Its header tells which tensors it has and where; header_hash identifies the header.
struct SafetensorsPart {
  std::shared_ptr<const ByteSource> source;
  uint64_t header_bytes = 0;
  uint64_t header_hash = 0;
  size_t num_tensors = 0;
  std::vector<std::pair<std::string, std::string>> metadata;  // "__metadata__", by name
};

class SafetensorsModel {
 public:
  // Longer headers than the format allows are refused before they are read.
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

  // Opens the weights in a folder: model.safetensors, or model.safetensors.index.json and its
  // files.
  static Result<std::shared_ptr<const SafetensorsModel>> OpenDirectory(const std::string& folder);
  // Opens a model from files in memory. `tensor_files` is the index's "weight_map": the part that
  // must hold each tensor. Empty if there is no index.
  static Result<std::shared_ptr<const SafetensorsModel>> FromParts(
      std::vector<std::shared_ptr<const ByteSource>> parts,
      const std::map<std::string, size_t>& tensor_files = {});

  const std::vector<SafetensorsPart>& parts() const { return parts_; }
  // Ordered by file, then by place in it.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // Null if absent.
  const StoredTensor* Find(std::string_view name) const;
  const std::string& PathOf(const StoredTensor& tensor) const;

  // The tensor's data; thread-safe, and valid without this object. kUnimplemented if this build
  // cannot compute with its type.
  Result<std::shared_ptr<const WeightSource>> Weight(const StoredTensor& tensor) const;

 private:
  Status AddPart(std::shared_ptr<const ByteSource> source);
  Status IndexTensors();
  Status CheckPlaces(const std::map<std::string, size_t>& tensor_files) const;

  std::vector<SafetensorsPart> parts_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// The index of a model in several files: distinct file names, and the file of each tensor.
struct SafetensorsIndex {
  std::vector<std::string> files;
  std::map<std::string, size_t> tensor_files;  // by tensor name: index in `files`
};
// Refuses file names that lead out of the folder. The caller has checked the size.
Result<SafetensorsIndex> ParseSafetensorsIndex(std::string_view json, const std::string& source);

}  // namespace tokamak
