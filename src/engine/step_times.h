// StepTimes: how long steps without prompts take, by their decode rows and drafts.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

namespace tokamak {

// CostModel's straight line fits prompts, whose tokens are cheap in large numbers. Steps of a few
// tokens do not lie on it: a second token may be free, a ninth may start another tile. So this
// keeps the time lately measured for each number of tokens, one table for steps without drafts and
// one for steps with drafts. Deterministic. Engine thread only.
class StepTimes {
 public:
  // Larger steps count as this large.
  static constexpr int32_t kMaxTokens = 512;

  // A step of `num_decodes` sequences, each with one token, and `num_drafts` drafts took `seconds`.
  void Observe(int32_t num_decodes, int32_t num_drafts, double seconds);

  // Predicts the time of such a step; 0 if nothing like it has been measured. `token_seconds`: what
  // a token of a prompt costs, the guess for drafts that have not been tried. A measurement with
  // drafts loses its weight over time, so that a choice against drafts is revised.
  double Predict(int32_t num_decodes, int32_t num_drafts, double token_seconds) const;

  // Whether steps of about so many sequences should run without drafts once, because how long that
  // takes has not been measured lately.
  bool NeedsPlainStep(int32_t num_decodes) const;

  // By what part of it a measurement differs from its prediction, on average.
  double noise() const { return noise_; }

 private:
  struct Entry {
    double seconds = 0;  // divided by scale_
    int64_t last = 0;    // the step when it was measured; 0: never
    int64_t count = 0;
  };
  struct Table {
    // The measured entries nearest to `tokens` from below and above, itself included; 0: none.
    std::pair<int32_t, int32_t> Around(int32_t tokens) const;

    std::array<Entry, kMaxTokens + 1> entries;  // by number of tokens
    int32_t largest = 0;                        // that has been measured
  };

  // The time of a step without drafts, divided by scale_.
  double Plain(int32_t tokens, double token_seconds) const;

  Table plain_;
  Table with_drafts_;
  int64_t num_steps_ = 0;
  double noise_ = 0;
  double scale_ = 1;  // follows what changes all steps, such as clock speeds and longer texts
};

}  // namespace tokamak
