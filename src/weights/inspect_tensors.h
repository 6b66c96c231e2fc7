// The part of an inspection shared by all formats: list of tensors and totals by type.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <vector>

#include "weights/stored_tensor.h"

namespace tokamak {

// Prints tables. With several files (`num_parts`), shows the file of each tensor.
void PrintTensors(const std::vector<StoredTensor>& tensors, size_t num_parts, std::ostream& out);

// Adds "tensors" and "totals" to `root`.
void AddTensors(const std::vector<StoredTensor>& tensors, nlohmann::ordered_json& root);

}  // namespace tokamak
