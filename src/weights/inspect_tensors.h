// The part of an inspection that all formats share: the list of tensors, and totals by type.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <vector>

#include "weights/stored_tensor.h"

namespace tokamak {

// As tables. `num_parts`: files of the model; a tensor's is shown if there are several.
void PrintTensors(const std::vector<StoredTensor>& tensors, size_t num_parts, std::ostream& out);

// Adds "tensors" and "totals".
void AddTensors(const std::vector<StoredTensor>& tensors, nlohmann::ordered_json& root);

}  // namespace tokamak
