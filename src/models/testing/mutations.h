// Whether configuration fields count: a model of random weights, whose logits must change with
// them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/registry.h"

namespace tokamak::testing {

// The logits at the last of 100 fixed tokens (ids below 50), on the reference backend. The
// checkpoint has any tensor that the model asks for; those it asks `Has` for, when it is
// `optional_tensor`.
std::vector<float> LastLogits(const std::string& config_json, const char* optional_tensor = nullptr,
                              const LoadOptions& options = {});

// Fails the test when two configurations give the same logits.
void ExpectDifferent(const std::string& base_json, const std::string& mutant_json,
                     const std::string& what);

// For each pair of a field (a dot goes inside an object) and a value in JSON: setting it must
// change the logits.
void ExpectFieldsCount(const std::string& base_json,
                       const std::vector<std::pair<std::string, std::string>>& mutations);

}  // namespace tokamak::testing
