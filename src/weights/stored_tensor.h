// The place of a tensor in a weight file and how to read it, the same for every format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/weight_source.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tokamak/status.h"
#include "weights/byte_source.h"

namespace tokamak {

struct StoredTensor {
  std::string name;
  std::string type_name;       // the format's name: "Q4_K", "BF16"; "type 77" if unknown
  std::optional<DType> dtype;  // absent: this build cannot read the type
  Shape shape;                 // outermost first: [out features, in features] for a matrix
  int part = 0;                // index of the file
  uint64_t offset = 0;         // of the data in that file
  // Size of the data; absent if the type's layout is unknown.
  std::optional<uint64_t> bytes;
};

// Reads `tensor` from its file. It must have a dtype.
std::shared_ptr<const WeightSource> MakeStoredWeight(std::shared_ptr<const ByteSource> file,
                                                     const StoredTensor& tensor);

// OK if `unused` is empty, else kUnimplemented naming the first tensors. A model that leaves
// tensors unused computes something other than what was trained.
Status CheckNoneUnused(const std::string& path, const std::vector<std::string>& unused);

}  // namespace tokamak
