// The load generator's requests and their times: lengths, words, conversations and arrivals. All of
// it follows from a seed, separately for each conversation, so the n-th conversation does not
// depend on the server's speed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"

namespace tokamak::loadgen {

// splitmix64 (Steele, Lea, Flood, OOPSLA 2014) and distributions. Gives the same numbers on every
// machine and with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // An independent stream for each (seed, stream, index).
  Random(uint64_t seed, uint64_t stream, uint64_t index);

  uint64_t Next();
  double Unit();                               // uniform in (0, 1)
  int32_t InRange(int32_t low, int32_t high);  // uniform, both included
  double Exponential();                        // mean 1
  double Normal();                             // mean 0, standard deviation 1
  double Gamma(double shape);                  // shape > 0, scale 1: mean and variance are `shape`

 private:
  uint64_t state_;
};

// A distribution of prompt or answer lengths: "N", "LOW:HIGH" (also "uniform:LOW:HIGH"),
// "normal:MEAN:SD" or "lognormal:MEAN:SD"; mean and standard deviation are those of the lengths
// themselves.
class LengthDistribution {
 public:
  static constexpr int32_t kMax = 1'000'000;

  // kInvalidArgument for any other text, and for lengths outside [1, kMax].
  static Result<LengthDistribution> Parse(std::string_view text);
  static LengthDistribution Fixed(int32_t length);

  // Clamped to [1, kMax].
  int32_t Draw(Random& random) const;
  const std::string& text() const { return text_; }

 private:
  enum class Kind { kUniform, kNormal, kLognormal };
  Kind kind_ = Kind::kUniform;
  double a_ = 1, b_ = 1;  // low and high, mean and sd, or mu and sigma of the logarithm
  std::string text_ = "1";
};

// Gamma-distributed times between arrivals at `rate` per second, with shape `burstiness`: 1 is a
// Poisson process, below it is burstier, above it more even.
class Arrivals {
 public:
  Arrivals(double rate, double burstiness, uint64_t seed, uint64_t run)
      : random_(seed, /*stream=*/1, run), rate_(rate), burstiness_(burstiness) {}
  double NextGap() { return random_.Gamma(burstiness_) / (burstiness_ * rate_); }  // seconds

 private:
  Random random_;
  double rate_;
  double burstiness_;
};

// One request of a conversation.
struct TurnSpec {
  int32_t input_words = 0;    // of the user, without the shared words
  int32_t output_tokens = 0;  // asked for
  double think_seconds = 0;   // after the previous answer
  std::string text;           // what the user says; the first turn begins with the shared words
};

struct ConversationSpec {
  int64_t id = 0;
  std::vector<TurnSpec> turns;
};

struct WorkloadOptions {
  LengthDistribution input = LengthDistribution::Fixed(100);   // words
  LengthDistribution output = LengthDistribution::Fixed(128);  // tokens
  LengthDistribution turns = LengthDistribution::Fixed(1);
  double think_seconds = 0;   // mean of an exponential distribution
  int32_t shared_prefix = 0;  // words with which all conversations of a group begin
  int32_t prefix_groups = 1;
  int32_t seed = 0;  // does not affect the shared words
};

struct ReplayedRequest {
  double time = 0;  // seconds since the first one
  int32_t input_words = 0;
  int32_t output_tokens = 0;
};

// How requests arrive: by concurrency, by rate, or as in a trace.
struct LoadPattern {
  int32_t concurrency = 0;  // conversations at a time; a new one begins when one ends
  double rate = 0;          // conversations per second, however many run; average of a replay
  double burstiness = 1;    // see Arrivals
  const std::vector<ReplayedRequest>* replayed = nullptr;  // arrival times and lengths
};

class Workload {
 public:
  // `run` numbers the loads of one command. Each has its own words; otherwise a server's prefix
  // cache would help all but the first.
  Workload(const WorkloadOptions& options, uint64_t run);

  ConversationSpec Make(int64_t id) const;
  ConversationSpec Make(int64_t id, const ReplayedRequest& replayed) const;

 private:
  const std::string& SharedWords(Random& random) const;

  WorkloadOptions options_;
  uint64_t seed_;
  std::vector<std::string> shared_;  // one per group
};

// Returns `count` words, each followed by a space; most are one token in vocabularies for English.
std::string RandomWords(int32_t count, Random& random);

// Parses a trace with a JSON object per line: "time" (seconds), "input" and "output" (tokens), as
// --trace writes them; or "timestamp" (milliseconds), "input_length" and "output_length", as in
// public traces of servers. Returns one list per value of "load" (0 if absent), in ascending order;
// other members are ignored. Each list is sorted by time, starting at 0. kInvalidArgument names the
// bad line.
Result<std::vector<std::vector<ReplayedRequest>>> ParseReplay(std::string_view text);

}  // namespace tokamak::loadgen
