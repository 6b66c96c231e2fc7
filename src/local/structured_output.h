// Turns structured outputs into the engine core's constraints, with src/grammar and a tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/mutex.h"
#include "engine/token_constraint.h"
#include "tokamak/sampling_params.h"
#include "tokamak/status.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {

class Grammar;
class Vocabulary;
struct MessageMarks;

// A tokenizer's tokens, as constraints need them. Immutable, made when a model is loaded.
struct ConstraintTokens {
  std::vector<std::string> bytes;                // by id, special tokens by name
  std::vector<int32_t> newlines;                 // tokens that consist of one or two line breaks
  std::vector<int32_t> special;                  // special tokens that have a name
  std::shared_ptr<const Vocabulary> vocabulary;  // special tokens are marks, which are not text
  std::shared_ptr<const Tokenizer> tokenizer;    // may be null
  double seconds = 0;                            // that making all this took
  int64_t memory = 0;                            // bytes
};
std::shared_ptr<const ConstraintTokens> MakeConstraintTokens(
    std::shared_ptr<const Tokenizer> tokenizer);
// The same for the tokens `bytes`, without a tokenizer.
std::shared_ptr<const ConstraintTokens> MakeConstraintTokens(std::vector<std::string> bytes,
                                                             FunctionRef<bool(int32_t)> is_special);

// Compiles structured outputs and remembers the latest. Thread-safe. Make takes little time after
// Prepare of the same output.
class ConstraintMaker {
 public:
  // The latest are kept, however large they are, so that Make finds what Prepare has compiled: a
  // server prepares two requests at a time.
  static constexpr size_t kAlwaysKept = 4;
  // The bounds on all that are kept.
  struct Limits {
    size_t grammars = 256;
    size_t bytes = size_t{64} << 20;
  };
  // Null: the model has no tokenizer, so everything is kUnimplemented.
  explicit ConstraintMaker(std::shared_ptr<const ConstraintTokens> tokens)
      : ConstraintMaker(std::move(tokens), Limits{}) {}
  ConstraintMaker(std::shared_ptr<const ConstraintTokens> tokens, const Limits& limits);
  ~ConstraintMaker();

  // See Engine::PrepareStructuredOutput.
  Status Prepare(const StructuredOutput& output) EXCLUDES(mutex_, scan_mutex_);
  // Returns constraints for n choices. Errors as above.
  Result<std::vector<std::unique_ptr<TokenConstraint>>> Make(const StructuredOutput& output,
                                                             int32_t n)
      EXCLUDES(mutex_, scan_mutex_);

  // Returns constraints for all choices of a request, which keep to its structured output and its
  // thinking_token_budget; none if it has neither.
  Result<std::vector<std::unique_ptr<TokenConstraint>>> MakeFor(const SamplingParams& sampling)
      EXCLUDES(mutex_, scan_mutex_);

  size_t num_grammars() const EXCLUDES(mutex_);
  // Returns whether Make would find everything that it shares with other requests.
  bool prepared(const StructuredOutput& output) EXCLUDES(mutex_, scan_mutex_);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Grammar> grammar;
    size_t bytes = 0;
  };

  // Which text of an output.
  enum class Part { kAnswer, kCalls };
  struct Grammars {
    std::shared_ptr<const Grammar> answer, calls;  // null: it may not be that
  };

  static std::string KeyOf(const StructuredOutput& output, Part part);
  Result<Grammars> CompileAll(const StructuredOutput& output) EXCLUDES(mutex_);
  Result<std::shared_ptr<const Grammar>> Compile(const StructuredOutput& output, Part part)
      EXCLUDES(mutex_);
  std::shared_ptr<const Grammar> Find(const std::string& key) EXCLUDES(mutex_);
  void Keep(Entry entry) EXCLUDES(mutex_);
  // Return TokensAcross of a marker, and FindMarks.
  std::shared_ptr<const std::vector<TokenId>> Across(const std::string& close)
      EXCLUDES(scan_mutex_);
  Result<std::shared_ptr<const MessageMarks>> Marks(const std::vector<std::string>& names)
      EXCLUDES(scan_mutex_);

  const std::shared_ptr<const ConstraintTokens> tokens_;
  const Limits limits_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);  // the latest used first
  std::map<std::string_view, std::list<Entry>::iterator> by_key_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;

  // The latest scans of the vocabulary. Null: not needed yet.
  Mutex scan_mutex_;
  std::shared_ptr<const std::vector<TokenId>> across_ GUARDED_BY(scan_mutex_);
  std::string across_close_ GUARDED_BY(scan_mutex_);  // the marker of across_
  std::shared_ptr<const MessageMarks> marks_ GUARDED_BY(scan_mutex_);
  std::vector<std::string> mark_names_ GUARDED_BY(scan_mutex_);
};

}  // namespace tokamak
