// The budget of one rendering. Templates come from models and messages from strangers, so every
// loop, copy and allocation of the interpreter is charged here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tokamak::jinja {

// Far above what any known template needs for a full context, and low enough to stop an endless
// template within 100 ms.
struct Limits {
  int64_t steps = 2'000'000;       // evaluated nodes; copying 32 bytes counts as one
  size_t memory_bytes = 32 << 20;  // alive at one time, including the output
  size_t output_bytes = 16 << 20;  // of the rendered text
  int depth = 1000;                // nested expressions, blocks and macro calls
};

// The steps for reading this many bytes; 0 for a few.
constexpr int64_t BytesSteps(size_t bytes) { return static_cast<int64_t>(bytes >> 5); }

// Not thread-safe. Sticky: after the first refusal exhausted() returns its reason, and the
// interpreter unwinds.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), steps_(limits.steps) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Charges time. Each returns false if none is left.
  bool Step(int64_t steps = 1) {
    steps_ -= steps;
    return steps_ >= 0 || Exhaust("it takes too many steps");
  }
  bool StepBytes(size_t bytes) { return Step(1 + BytesSteps(bytes)); }
  // Charges memory, which is released later, and the time to fill it.
  bool Charge(size_t bytes) {
    if (bytes > limits_.memory_bytes - used_bytes_) return Exhaust("it needs too much memory");
    used_bytes_ += bytes;
    return StepBytes(bytes);
  }
  void Release(size_t bytes) { used_bytes_ -= bytes; }
  bool Exhaust(const char* reason) {
    if (exhausted_ == nullptr) exhausted_ = reason;
    return false;
  }

  const Limits& limits() const { return limits_; }
  const char* exhausted() const { return exhausted_; }  // null: nothing was refused
  int64_t steps_left() const { return steps_; }
  size_t used_bytes() const { return used_bytes_; }

 private:
  const Limits limits_;
  int64_t steps_;
  size_t used_bytes_ = 0;
  const char* exhausted_ = nullptr;
};

// A growing text, charged as it grows.
class Text {
 public:
  explicit Text(Budget& budget) : budget_(budget) {}
  ~Text() { budget_.Release(charged_); }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  // False if the budget does not allow it; then nothing is appended.
  bool Append(std::string_view piece) {
    if (!budget_.Charge(piece.size())) return false;
    charged_ += piece.size();
    text_ += piece;
    return true;
  }
  bool Append(char c) { return Append(std::string_view(&c, 1)); }
  // Appends `piece` `count` times; nothing if count is negative.
  bool AppendTimes(std::string_view piece, int64_t count) {
    if (count <= 0 || piece.empty()) return true;
    const size_t room = budget_.limits().memory_bytes;
    if (static_cast<uint64_t>(count) > room / piece.size()) {
      return budget_.Exhaust("it needs too much memory");
    }
    const size_t bytes = piece.size() * static_cast<size_t>(count);
    if (!budget_.Charge(bytes)) return false;
    charged_ += bytes;
    if (piece.size() == 1) {
      text_.append(static_cast<size_t>(count), piece[0]);
    } else {
      for (int64_t i = 0; i < count; ++i) text_ += piece;
    }
    return true;
  }

  size_t size() const { return text_.size(); }
  const std::string& view() const { return text_; }
  Budget& budget() { return budget_; }
  // Returns the text and leaves this empty.
  std::string Take() {
    budget_.Release(charged_);
    charged_ = 0;
    return std::move(text_);
  }

 private:
  Budget& budget_;
  size_t charged_ = 0;
  std::string text_;
};

}  // namespace tokamak::jinja
