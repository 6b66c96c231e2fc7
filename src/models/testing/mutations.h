// Tests that configuration fields have an effect: changing them must change the logits of a model
// with random weights.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "models/registry.h"

namespace tokamak::testing {

// A config.json of this class: `own`, on top of common fields unless `own` is complete (has a
// vocab_size or a text_config). Null in `own` removes a field.
std::string Config(const std::string& architecture, const std::string& own);

// The error of loading a configuration; empty if there is none.
std::string ErrorOf(const std::string& config_json);

// Returns the logits (an encoder's hidden state) at the last of 100 fixed tokens with ids below 50,
// on the reference backend. The checkpoint has every required tensor; of the optional ones it has
// only `optional_tensor`.
std::vector<float> LastLogits(const std::string& config_json, const char* optional_tensor = nullptr,
                              const LoadOptions& options = {});

// Fails the test if two configurations give the same logits.
void ExpectDifferent(const std::string& base_json, const std::string& mutant_json,
                     const std::string& what);

// Fails the test unless every field that the family reads or expects in one of these configurations
// has an effect:
// - another value, from those in mutations.cc, changes the logits of one of the configurations;
// - if it must have one value, others are errors that name the field.
// Skips fields whose last names are in `without_effect`.
void ExpectEveryFieldCounts(const std::vector<std::string>& configs,
                            const std::set<std::string>& without_effect);

}  // namespace tokamak::testing
