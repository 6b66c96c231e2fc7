// The fields of a record, listed once for reading and writing. Used by record.cc and its fuzzer.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/record.h"

namespace tokamak::record {

class Encoder {
 public:
  explicit Encoder(std::string* out) : out_(out) {}
  static constexpr bool kReads = false;

  void Unsigned(uint64_t& value) {
    uint64_t rest = value;
    for (; rest >= 0x80; rest >>= 7) out_->push_back(static_cast<char>(rest | 0x80));
    out_->push_back(static_cast<char>(rest));
  }
  void Bytes(void* data, size_t size) { out_->append(static_cast<const char*>(data), size); }
  void String(std::string& value) {
    uint64_t size = value.size();
    Unsigned(size);
    *out_ += value;
  }
  bool Count(size_t& count) {
    uint64_t size = count;
    Unsigned(size);
    return true;
  }
  bool ok() const { return true; }
  void Fail() {}

 private:
  std::string* const out_;
};

// After the first error everything reads as zero and ok() is false.
class Decoder {
 public:
  explicit Decoder(std::string_view in) : in_(in) {}
  static constexpr bool kReads = true;

  void Unsigned(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (in_.empty()) return Fail();
      const auto byte = static_cast<uint8_t>(in_.front());
      in_.remove_prefix(1);
      if (shift == 63 && byte > 1) return Fail();
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      // Accepts only the shortest form, so that each value has one encoding.
      if (byte < 0x80) return byte == 0 && shift > 0 ? Fail() : void();
    }
    Fail();
  }
  void Bytes(void* data, size_t size) {
    std::memset(data, 0, size);
    if (size > in_.size()) return Fail();
    std::memcpy(data, in_.data(), size);
    in_.remove_prefix(size);
  }
  void String(std::string& value) {
    size_t size = 0;
    if (!Count(size)) return;
    value.assign(in_.substr(0, size));
    in_.remove_prefix(size);
  }
  // Every element takes at least one byte, so a count beyond the remaining bytes is wrong.
  bool Count(size_t& count) {
    uint64_t size = 0;
    Unsigned(size);
    if (size > in_.size()) Fail();
    count = ok_ ? static_cast<size_t>(size) : 0;
    return ok_;
  }
  bool ok() const { return ok_; }
  void Fail() {
    ok_ = false;
    in_ = {};
  }
  bool AtEnd() const { return in_.empty(); }

 private:
  std::string_view in_;
  bool ok_ = true;
};

// Scalars.

template <typename A, typename T>
requires(std::is_unsigned_v<T> && !std::is_same_v<T, bool>) void Field(A& a, T& value) {
  uint64_t wide = value;
  a.Unsigned(wide);
  value = static_cast<T>(wide);
  if (value != wide) a.Fail();
}
template <typename A>
void Field(A& a, bool& value) {
  uint64_t wide = value ? 1 : 0;
  a.Unsigned(wide);
  if (wide > 1) a.Fail();
  value = wide == 1;
}
template <typename A, typename T>
requires std::is_signed_v<T> && std::is_integral_v<T>
void Field(A& a, T& value) {
  const auto in = static_cast<int64_t>(value);
  uint64_t zigzag = (static_cast<uint64_t>(in) << 1) ^ static_cast<uint64_t>(in >> 63);
  a.Unsigned(zigzag);
  const auto wide = static_cast<int64_t>((zigzag >> 1) ^ (~(zigzag & 1) + 1));
  value = static_cast<T>(wide);
  if (value != wide) a.Fail();
}
template <typename A, typename T>
requires std::is_floating_point_v<T>
void Field(A& a, T& value) {
  static_assert(std::endian::native == std::endian::little);
  a.Bytes(&value, sizeof(value));
}
template <typename A, typename T>
requires std::is_enum_v<T>
void Enum(A& a, T& value, T last) {
  auto number = static_cast<uint64_t>(value);
  a.Unsigned(number);
  if (number > static_cast<uint64_t>(last)) {
    a.Fail();
    number = 0;
  }
  value = static_cast<T>(number);
}
template <typename A>
void Field(A& a, std::string& value) {
  a.String(value);
}

// Containers. Their elements' Field functions are found on instantiation.

template <typename A, typename T, typename U>
void Field(A& a, std::pair<T, U>& value);
template <typename A, typename T>
void Field(A& a, std::optional<T>& value);
template <typename A, typename T>
void Field(A& a, std::vector<T>& value);

template <typename A>
void Field(A& a, CacheGroup& v) {
  Enum(a, v.kind, CacheGroupKind::kWindow);
  Field(a, v.block_size);
  Field(a, v.window);
}
template <typename A>
void Field(A& a, ExecutorLimits& v) {
  Field(a, v.cache.groups);
  Field(a, v.cache.block_bytes);
  Field(a, v.cache.num_device_blocks);
  Field(a, v.cache.num_host_blocks);
  Field(a, v.cache.original_context);
  Field(a, v.max_seqs);
  Field(a, v.max_step_tokens);
  Field(a, v.max_context);
  Field(a, v.vocab_size);
  Field(a, v.depth);
}
template <typename A>
void Field(A& a, EngineCoreOptions& v) {
  Field(a, v.max_seqs);
  Field(a, v.max_step_tokens);
  Field(a, v.max_context);
  Field(a, v.max_queue);
  Field(a, v.target_itl_ms);
  Field(a, v.quantum);
  Field(a, v.prefix_cache);
  Field(a, v.seed);
  Field(a, v.max_failures);
}
template <typename A>
void DistributionFields(A& a, SamplingParams& v) {
  Field(a, v.temperature);
  Field(a, v.top_k);
  Field(a, v.top_p);
  Field(a, v.min_p);
  Field(a, v.typical_p);
  Field(a, v.repetition_penalty);
  Field(a, v.presence_penalty);
  Field(a, v.frequency_penalty);
  Field(a, v.logit_bias);
}
template <typename A>
void Field(A& a, SamplingParams& v) {
  DistributionFields(a, v);
  Field(a, v.seed);
  Field(a, v.n);
  Field(a, v.max_tokens);
  Field(a, v.min_tokens);
  Field(a, v.stop);
  Field(a, v.stop_token_ids);
  Field(a, v.ignore_eos);
  Field(a, v.shown_special_tokens);
  Field(a, v.logprobs);
  Field(a, v.prompt_logprobs);
}
template <typename A>
void Field(A& a, CopyBlock& v) {
  Enum(a, v.source_tier, Tier::kHost);
  Field(a, v.source);
  Enum(a, v.destination_tier, Tier::kHost);
  Field(a, v.destination);
}
// A record holds only a digest of it, so nothing reads it.
inline void Field(Encoder& a, AdmitSequence& v) {
  Field(a, v.slot);
  Field(a, v.tokens);
  Field(a, v.num_prompt_tokens);
  Field(a, v.num_computed);
  DistributionFields(a, v.sampling);
  uint64_t seed = v.sampling.seed.value_or(0);
  int32_t logprobs = v.sampling.logprobs.value_or(-1);
  int32_t prompt_logprobs = v.sampling.prompt_logprobs.value_or(-1);
  Field(a, seed);
  Field(a, v.choice);
  Field(a, v.sampling.min_tokens);
  Field(a, v.sampling.stop_token_ids);
  Field(a, logprobs);
  Field(a, prompt_logprobs);
}
template <typename A>
void Field(A& a, AppendBlocks& v) {
  Field(a, v.slot);
  Field(a, v.group);
  Field(a, v.blocks);
}
template <typename A>
void Field(A& a, StepRow& v) {
  Field(a, v.slot);
  Field(a, v.num_tokens);
  Field(a, v.sample);
}
template <typename A>
void Field(A& a, StepInput& v) {
  Field(a, v.number);
  Field(a, v.free);
  Field(a, v.copies);
  Field(a, v.admit);
  Field(a, v.append);
  Field(a, v.rows);
}
template <typename A>
void Field(A& a, TokenLogprobs::Entry& v) {
  Field(a, v.token_id);
  Field(a, v.logprob);
}
template <typename A>
void Field(A& a, TokenLogprobs& v) {
  Field(a, v.token);
  Field(a, v.top);
}
template <typename A>
void Field(A& a, RowOutput& v) {
  Field(a, v.slot);
  Enum(a, v.health, RowHealth::kNoCandidate);
  Field(a, v.tokens);
  Field(a, v.logprobs);
  Field(a, v.prompt_logprobs);
}
template <typename A>
void Field(A& a, StepOutput& v) {
  Field(a, v.number);
  Field(a, v.rows);
}
template <typename A>
void Field(A& a, Status& v) {
  StatusCode code = v.code();
  std::string message(v.message());
  Enum(a, code, StatusCode::kInternal);
  if (code == StatusCode::kOk) {
    v = Status();
    return;
  }
  Field(a, message);
  v = Status(code, std::move(message));
}

// Events.

template <typename A>
void Field(A& a, RecordHeader& v) {
  Field(a, v.version);
  if (v.version != kRecordVersion) return;  // the rest may look different
  Field(a, v.properties);
  Field(a, v.options);
  Field(a, v.limits);
}
template <typename A>
void Field(A& a, ArrivalEvent& v) {
  Field(a, v.arrival.id);
  Field(a, v.arrival.prompt);
  Field(a, v.arrival.sampling);
  Field(a, v.arrival.eos_ids);
  Field(a, v.arrival.priority);
  Field(a, v.arrival.client);
  Field(a, v.arrival.cache_root);
  Field(a, v.has_decoders);
}
template <typename A>
void Field(A& a, CancelEvent& v) {
  Field(a, v.request);
}
template <typename A>
void Field(A&, CancelAllEvent&) {}
template <typename A>
void Field(A& a, PauseEvent& v) {
  Field(a, v.request);
}
template <typename A>
void Field(A& a, ResumeEvent& v) {
  Field(a, v.request);
}
template <typename A>
void Field(A&, StepEvent&) {}
template <typename A>
void Field(A& a, ClockEvent& v) {
  Field(a, v.nanoseconds);
}
template <typename A>
void Field(A& a, SubmitEvent& v) {
  Field(a, v.number);
  Field(a, v.num_rows);
  Field(a, v.digest);
  Field(a, v.status);
}
template <typename A>
void Field(A& a, SampleEvent& v) {
  Field(a, v.status);
}
template <typename A>
void Field(A& a, DoneEvent& v) {
  Field(a, v.done);
}
template <typename A>
void Field(A& a, WaitEvent& v) {
  Field(a, v.status);
  if (v.status.ok()) Field(a, v.output);
}
template <typename A>
void Field(A& a, ResetEvent& v) {
  Field(a, v.status);
}

template <typename A, typename T, typename U>
void Field(A& a, std::pair<T, U>& value) {
  Field(a, value.first);
  Field(a, value.second);
}
template <typename A, typename T>
void Field(A& a, std::optional<T>& value) {
  bool present = value.has_value();
  Field(a, present);
  if constexpr (A::kReads) {
    if (!present) return value.reset();
    value.emplace();
  }
  if (present) Field(a, *value);
}
template <typename A, typename T>
void Field(A& a, std::vector<T>& value) {
  size_t count = value.size();
  if (!a.Count(count)) return value.clear();
  if constexpr (A::kReads) {
    // Grows one by one: an element may take far more memory than the byte that encodes it.
    value.clear();
    for (size_t i = 0; i < count && a.ok(); ++i) Field(a, value.emplace_back());
  } else {
    for (T& element : value) Field(a, element);
  }
}

}  // namespace tokamak::record
