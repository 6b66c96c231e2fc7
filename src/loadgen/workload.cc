#include "loadgen/workload.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json/json_value.h"
#include "base/text.h"

namespace tokamak::loadgen {
namespace {

constexpr const char* kWords[] = {
    "time",   "people", "way",   "water", "day",    "man",    "word",  "thing",   "place",
    "work",   "year",   "name",  "line",  "letter", "boy",    "farm",  "end",     "house",
    "world",  "school", "plant", "food",  "sun",    "state",  "eye",   "city",    "tree",
    "story",  "sea",    "night", "life",  "north",  "book",   "paper", "music",   "river",
    "car",    "feet",   "side",  "cat",   "group",  "town",   "fire",  "problem", "piece",
    "king",   "space",  "hour",  "body",  "dog",    "family", "door",  "product", "wind",
    "ship",   "area",   "rock",  "order", "south",  "table",  "map",   "moon",    "island",
    "foot",   "system", "force", "blue",  "object", "gold",   "plane", "age",     "dry",
    "game",   "heat",   "color", "ball",  "field",  "air",    "land",  "light",   "home",
    "picture"};

// Numbers of random streams; Arrivals uses 1.
constexpr uint64_t kConversations = 2;
constexpr uint64_t kSharedWords = 3;

constexpr int32_t kMaxTurns = 1000;

bool IsLength(double value) {
  return value >= 1 && value <= LengthDistribution::kMax && value == std::floor(value);
}

// Returns a member that is a number in [low, high]; nullopt otherwise.
std::optional<double> Member(const JsonValue& object, const char* name, double low, double high) {
  const JsonValue* found = object.Find(name);
  const std::optional<double> value = found == nullptr ? std::nullopt : found->AsNumber();
  return value && *value >= low && *value <= high ? value : std::nullopt;
}

struct ReplayLine {
  double load = 0;
  ReplayedRequest request;
};

std::optional<ReplayLine> ParseReplayLine(std::string_view line) {
  const std::optional<JsonValue> json = JsonValue::Parse(line, {.distinct_names = true});
  if (!json) return std::nullopt;
  const bool ours = json->Find("time") != nullptr;
  const auto time = Member(*json, ours ? "time" : "timestamp", 0, 1e15);
  const auto input = Member(*json, ours ? "input" : "input_length", 1, LengthDistribution::kMax);
  const auto output = Member(*json, ours ? "output" : "output_length", 1, LengthDistribution::kMax);
  if (!time || !input || !output) return std::nullopt;
  return ReplayLine{.load = Member(*json, "load", 0, 1e15).value_or(0),
                    .request = {.time = ours ? *time : *time / 1e3,
                                .input_words = static_cast<int32_t>(*input),
                                .output_tokens = static_cast<int32_t>(*output)}};
}

}  // namespace

Random::Random(uint64_t seed, uint64_t stream, uint64_t index) : state_(seed) {
  for (const uint64_t part : {stream, index}) state_ = Next() ^ (part * 0xD6E8FEB86659FD93u);
  state_ = Next();
}

uint64_t Random::Next() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double Random::Unit() { return (static_cast<double>(Next() >> 11) + 0.5) * 0x1p-53; }

int32_t Random::InRange(int32_t low, int32_t high) {
  const auto size = static_cast<uint64_t>(int64_t{high} - low + 1);
  return static_cast<int32_t>(low + static_cast<int64_t>(Next() % size));
}

double Random::Exponential() { return -std::log(Unit()); }

// Box and Muller, 1958.
double Random::Normal() {
  const double radius = std::sqrt(-2 * std::log(Unit()));
  return radius * std::cos(2 * M_PI * Unit());
}

// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
double Random::Gamma(double shape) {
  if (shape == 1) return Exponential();
  // A gamma(shape + 1) variate times a power of a uniform one is gamma(shape).
  const double boost = shape < 1 ? std::pow(Unit(), 1 / shape) : 1;
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = Normal();
    const double v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(Unit()) < x * x / 2 + d - d * v + d * std::log(v)) return boost * d * v;
  }
}

LengthDistribution LengthDistribution::Fixed(int32_t length) {
  LengthDistribution made;
  made.a_ = made.b_ = length;
  made.text_ = fmt::format("{}", length);
  return made;
}

Result<LengthDistribution> LengthDistribution::Parse(std::string_view text) {
  std::vector<std::string_view> pieces = Split(text, ':');
  std::string_view kind = "uniform";
  if (!pieces.front().empty() && std::isalpha(static_cast<unsigned char>(pieces.front().front()))) {
    kind = pieces.front();
    pieces.erase(pieces.begin());
  }
  std::vector<double> numbers;
  for (const std::string_view piece : pieces) {
    const auto number = ParseNumber<double>(piece);
    if (number && std::isfinite(*number)) numbers.push_back(*number);
  }
  const bool all = numbers.size() == pieces.size();
  LengthDistribution made;
  made.text_ = text;
  if (all && kind == "uniform" && (numbers.size() == 1 || numbers.size() == 2) &&
      IsLength(numbers.front()) && IsLength(numbers.back()) && numbers.front() <= numbers.back()) {
    made.a_ = numbers.front();
    made.b_ = numbers.back();
    return made;
  }
  if (all && (kind == "normal" || kind == "lognormal") && numbers.size() == 2 && numbers[0] >= 1 &&
      numbers[0] <= kMax && numbers[1] >= 0 && numbers[1] <= kMax) {
    made.kind_ = kind == "normal" ? Kind::kNormal : Kind::kLognormal;
    made.a_ = numbers[0];
    made.b_ = numbers[1];
    if (made.kind_ == Kind::kLognormal) {
      const double variance = std::log1p(numbers[1] * numbers[1] / (numbers[0] * numbers[0]));
      made.a_ = std::log(numbers[0]) - variance / 2;
      made.b_ = std::sqrt(variance);
    }
    return made;
  }
  return InvalidArgument(
      "\"{}\" is not a distribution of lengths in [1, {}]; write 100, 100:1024, uniform:100:1024, "
      "normal:MEAN:SD or lognormal:MEAN:SD",
      text, kMax);
}

int32_t LengthDistribution::Draw(Random& random) const {
  if (kind_ == Kind::kUniform) {
    return random.InRange(static_cast<int32_t>(a_), static_cast<int32_t>(b_));
  }
  const double normal = a_ + b_ * random.Normal();
  const double length = kind_ == Kind::kNormal ? normal : std::exp(normal);
  return static_cast<int32_t>(std::lround(std::clamp(length, 1.0, double{kMax})));
}

Workload::Workload(const WorkloadOptions& options, uint64_t run)
    : options_(options),
      seed_(Random(static_cast<uint64_t>(options.seed), kConversations, run).Next()) {
  for (int32_t group = 0; group < options.prefix_groups; ++group) {
    Random fixed(0, kSharedWords, static_cast<uint64_t>(group));
    shared_.push_back(RandomWords(options.shared_prefix, fixed));
  }
}

const std::string& Workload::SharedWords(Random& random) const {
  return shared_[static_cast<size_t>(random.InRange(0, options_.prefix_groups - 1))];
}

ConversationSpec Workload::Make(int64_t id) const {
  Random random(seed_, kConversations, static_cast<uint64_t>(id));
  ConversationSpec conversation{.id = id, .turns = {}};
  const int32_t turns = std::min(options_.turns.Draw(random), kMaxTurns);
  std::string text = SharedWords(random);
  for (int32_t i = 0; i < turns; ++i) {
    TurnSpec turn;
    turn.input_words = options_.input.Draw(random);
    turn.output_tokens = options_.output.Draw(random);
    if (i > 0) turn.think_seconds = options_.think_seconds * random.Exponential();
    turn.text = std::exchange(text, std::string()) + RandomWords(turn.input_words, random);
    conversation.turns.push_back(std::move(turn));
  }
  return conversation;
}

ConversationSpec Workload::Make(int64_t id, const ReplayedRequest& replayed) const {
  Random random(seed_, kConversations, static_cast<uint64_t>(id));
  TurnSpec turn{.input_words = replayed.input_words,
                .output_tokens = replayed.output_tokens,
                .think_seconds = 0,
                .text = SharedWords(random)};
  turn.text += RandomWords(turn.input_words, random);
  return {.id = id, .turns = {std::move(turn)}};
}

std::string RandomWords(int32_t count, Random& random) {
  std::string text;
  text.reserve(static_cast<size_t>(count) * 6);
  for (int32_t i = 0; i < count; ++i) {
    text += kWords[random.Next() % std::size(kWords)];
    text += ' ';
  }
  return text;
}

Result<std::vector<std::vector<ReplayedRequest>>> ParseReplay(std::string_view text) {
  std::map<double, std::vector<ReplayedRequest>> loads;
  size_t number = 0;
  for (std::string_view line : Split(text, '\n')) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::optional<ReplayLine> parsed = ParseReplayLine(line);
    if (!parsed) {
      return InvalidArgument(
          "line {}: expected an object with \"time\" in seconds, \"input\" and \"output\" in "
          "tokens (or \"timestamp\" in milliseconds, \"input_length\" and \"output_length\")",
          number);
    }
    loads[parsed->load].push_back(parsed->request);
  }
  if (loads.empty()) return InvalidArgument("the file contains no request");
  std::vector<std::vector<ReplayedRequest>> lists;
  for (auto& [load, requests] : loads) {
    std::stable_sort(requests.begin(), requests.end(),
                     [](const auto& a, const auto& b) { return a.time < b.time; });
    const double first = requests.front().time;
    for (ReplayedRequest& request : requests) request.time -= first;
    lists.push_back(std::move(requests));
  }
  return lists;
}

}  // namespace tokamak::loadgen
