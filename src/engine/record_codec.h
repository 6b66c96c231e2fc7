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
void Field(auto& a, bool& value) {
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
void Field(auto& a, std::string& value) { a.String(value); }

// The fields in this order.
template <typename A, typename... T>
void Fields(A& a, T&... values) {
  (Field(a, values), ...);
}

// Containers. Their elements' Field functions are found on instantiation.

template <typename A, typename T, typename U>
void Field(A& a, std::pair<T, U>& value);
template <typename A, typename T>
void Field(A& a, std::optional<T>& value);
template <typename A, typename T>
void Field(A& a, std::vector<T>& value);

void Field(auto& a, CacheGroup& v) {
  Enum(a, v.kind, CacheGroupKind::kWindow);
  Fields(a, v.block_size, v.window);
}
void Field(auto& a, ExecutorLimits& v) {
  Fields(a, v.cache.groups, v.cache.block_bytes, v.cache.num_device_blocks, v.cache.num_host_blocks,
         v.cache.original_context, v.max_seqs, v.max_step_tokens, v.max_step_drafts, v.max_context,
         v.vocab_size, v.depth);
}
void Field(auto& a, DraftOptions& v) { Fields(a, v.most, v.min_match, v.max_match); }
void Field(auto& a, EngineCoreOptions& v) {
  Fields(a, v.max_seqs, v.max_step_tokens, v.max_context, v.max_queue, v.target_itl_ms, v.quantum,
         v.prefix_cache, v.seed, v.max_failures, v.drafts);
}
void DistributionFields(auto& a, SamplingParams& v) {
  Fields(a, v.temperature, v.top_k, v.top_p, v.min_p, v.typical_p, v.repetition_penalty,
         v.presence_penalty, v.frequency_penalty, v.logit_bias);
}
void Field(auto& a, StructuredOutput::Reasoning& v) { Fields(a, v.open, v.close, v.begun); }
void Field(auto& a, StructuredOutput::Messages& v) {
  Fields(a, v.marks, v.start, v.answer, v.free, v.end, v.begun);
}
void Field(auto& a, StructuredOutput::Parameters& v) {
  Fields(a, v.before_name, v.after_name, v.after_value, v.end, v.stops);
}
void Field(auto& a, StructuredOutput::Tag& v) {
  Fields(a, v.begin, v.schema, v.end, v.id, v.text_arguments);
}
void Field(auto& a, StructuredOutput& v) {
  Enum(a, v.kind, StructuredOutput::Kind::kTags);
  Fields(a, v.text, v.choices, v.whitespace_pattern, v.tags, v.triggers, v.ends_after_tag, v.calls,
         v.call_separator, v.calls_begin, v.calls_end, v.call_parameters, v.call_marks, v.must_call,
         v.calls_in_text, v.reasoning, v.messages);
}
void Field(auto& a, SamplingParams& v) {
  DistributionFields(a, v);
  Fields(a, v.seed, v.n, v.max_tokens, v.min_tokens, v.stop, v.stop_token_ids, v.ignore_eos,
         v.shown_special_tokens, v.logprobs, v.prompt_logprobs, v.structured_output);
}
void Field(auto& a, CopyBlock& v) {
  Enum(a, v.source_tier, Tier::kHost);
  Field(a, v.source);
  Enum(a, v.destination_tier, Tier::kHost);
  Field(a, v.destination);
}
// A record holds only a digest of it, so nothing reads it.
inline void Field(Encoder& a, AdmitSequence& v) {
  Fields(a, v.slot, v.tokens, v.num_prompt_tokens, v.num_computed);
  DistributionFields(a, v.sampling);
  uint64_t seed = v.sampling.seed.value_or(0);
  int32_t logprobs = v.sampling.logprobs.value_or(-1);
  int32_t prompt_logprobs = v.sampling.prompt_logprobs.value_or(-1);
  Fields(a, seed, v.choice, v.sampling.min_tokens, v.sampling.stop_token_ids, logprobs,
         prompt_logprobs);
}
void Field(auto& a, AppendBlocks& v) { Fields(a, v.slot, v.group, v.blocks); }
void Field(auto& a, StepRow& v) { Fields(a, v.slot, v.num_tokens, v.sample, v.masked, v.drafts); }
void Field(auto& a, StepInput& v) {
  Fields(a, v.number, v.free, v.copies, v.admit, v.append, v.rows);
}
void Field(auto& a, TokenLogprobs::Entry& v) { Fields(a, v.token_id, v.logprob); }
void Field(auto& a, TokenLogprobs& v) { Fields(a, v.token, v.top); }
void Field(auto& a, RowOutput& v) {
  Field(a, v.slot);
  Enum(a, v.health, RowHealth::kNoCandidate);
  Fields(a, v.tokens, v.logprobs, v.prompt_logprobs);
}
void Field(auto& a, StepOutput& v) { Fields(a, v.number, v.rows); }
void Field(auto& a, Status& v) {
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

void Field(auto& a, RecordHeader& v) {
  Field(a, v.version);
  if (v.version != kRecordVersion) return;  // the rest may look different
  Fields(a, v.properties, v.options, v.limits);
}
void Field(auto& a, ArrivalEvent& v) {
  Fields(a, v.arrival.id, v.arrival.prompt, v.arrival.sampling, v.arrival.eos_ids,
         v.arrival.priority, v.arrival.client, v.arrival.cache_root, v.has_decoders);
}
void Field(auto& a, CancelEvent& v) { Field(a, v.request); }
void Field(auto&, CancelAllEvent&) {}
void Field(auto& a, PauseEvent& v) { Field(a, v.request); }
void Field(auto& a, ResumeEvent& v) { Field(a, v.request); }
void Field(auto&, StepEvent&) {}
void Field(auto& a, ClockEvent& v) { Field(a, v.nanoseconds); }
void Field(auto& a, SubmitEvent& v) { Fields(a, v.number, v.num_rows, v.digest, v.status); }
void Field(auto& a, SampleEvent& v) { Field(a, v.status); }
void Field(auto& a, DoneEvent& v) { Field(a, v.done); }
void Field(auto& a, WaitEvent& v) {
  Field(a, v.status);
  if (v.status.ok()) Field(a, v.output);
}
void Field(auto& a, ResetEvent& v) { Field(a, v.status); }

template <typename A, typename T, typename U>
void Field(A& a, std::pair<T, U>& value) {
  Fields(a, value.first, value.second);
}
template <typename A, typename T>
void Field(A& a, std::optional<T>& value) {
  bool present = value.has_value();
  Field(a, present);
  if constexpr (A::kReads) {
    if (!present) return value.reset();
    value = T();  // clang 14 cannot emplace a nested struct with default values
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
