// The engine and the embedder of this process share this: a model, its tokenizer and threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tokamak/engine_options.h"
#include "tokamak/loaded_model.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {

// The parts that loading assembles for any model.
struct LoadedParts {
  EngineOptions options;  // with "auto" and 0 replaced by actual values
  ModelInfo model;
  std::string system_fingerprint;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: the checkpoint has none, accepts only ids
  std::function<Profile()> take_profile;       // empty: profiling is off
};

// The methods that need no engine thread, for `Interface` Engine or Embedder.
template <typename Interface>
class LoadedEngine : public Interface {
 public:
  size_t LeastTokens(std::string_view text) const override;
  Result<std::vector<int32_t>> Tokenize(std::string_view text, bool add_special,
                                        bool parse_special) const override;
  std::string Detokenize(const std::vector<int32_t>& ids) const override;
  std::string TokenBytes(int32_t id) const override;
  const ModelInfo& model() const override { return parts().model; }
  Profile TakeProfile() override;
  const std::string& system_fingerprint() const override { return parts().system_fingerprint; }

 protected:
  virtual const LoadedParts& parts() const = 0;
};

}  // namespace tokamak
