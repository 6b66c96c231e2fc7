// Whether configuration fields count: a model of random weights, whose logits must change with
// them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "models/registry.h"

namespace tokamak::testing {

// The logits at the last of 100 fixed tokens (ids below 50), on the reference backend; of an
// encoder, the hidden state. The checkpoint has any tensor that the model asks for; those it asks
// `Has` for, when it is `optional_tensor`.
std::vector<float> LastLogits(const std::string& config_json, const char* optional_tensor = nullptr,
                              const LoadOptions& options = {});

// Fails the test when two configurations give the same logits.
void ExpectDifferent(const std::string& base_json, const std::string& mutant_json,
                     const std::string& what);

// Fails the test unless every field that the family reads, or asks for, in one of these
// configurations counts:
// - another value of it, of those that mutations.cc knows, changes the logits of one of them;
// - where it must have one value, others are errors that name it.
// But not the fields `without_effect`, by their last names.
void ExpectEveryFieldCounts(const std::vector<std::string>& configs,
                            const std::set<std::string>& without_effect);

}  // namespace tokamak::testing
