// A tensor in a file of weights: where it lies and how it is read, the same for every format.
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
  std::string type_name;       // as the format calls it: "Q4_K", "BF16"; "type 77" when unknown
  std::optional<DType> dtype;  // nothing: this build cannot read the type
  Shape shape;                 // outermost first: [out features, in features] for a matrix
  int part = 0;                // which file of several
  uint64_t offset = 0;         // of the data, from the start of that file
  // Bytes of the data; nothing when the type's layout is unknown.
  std::optional<uint64_t> bytes;
};

// Reads `tensor`, which has a dtype, from the file that it lies in.
std::shared_ptr<const WeightSource> MakeStoredWeight(std::shared_ptr<const ByteSource> file,
                                                     const StoredTensor& tensor);

// OK if `unused` is empty, else kUnimplemented with the first of these tensors' names: what a model
// has no use for means that it would compute something else than was trained.
Status CheckNoneUnused(const std::string& path, const std::vector<std::string>& unused);

}  // namespace tokamak
