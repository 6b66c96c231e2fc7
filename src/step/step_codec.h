// The bytes in which a step goes to another process and comes back: a version, then the fields
// (step_fields.h).
//
// Decoding trusts nobody. It accepts exactly the bytes that encoding writes, and bounds the length
// of every list: by the limits, or by the bytes if none applies (the tokens of one bad word and of
// one sequence breaker, and the values of an image). It checks enums, and the token ids of
// logprobs, which nobody checks later. What slots, blocks and tokens may be, and that none is named
// twice, is for the receiver to check, who knows its state: SequenceSlots::Apply,
// Runner::SampleMasked and, for outputs, EngineCore.
//
// Fields of SamplingParams that do not decide what is drawn are not sent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "step/executor_limits.h"
#include "step/step_input.h"
#include "step/step_output.h"
#include "tokamak/status.h"

namespace tokamak {

// Changes whenever the bytes of a value do.
inline constexpr uint64_t kStepVersion = 6;

std::string Encode(const StepInput& step);
std::string Encode(const std::vector<TokenMask>& masks);
std::string Encode(const StepOutput& output);

// kUnimplemented with both numbers if the version is another one; otherwise kDataLoss with the
// field and the offset: "step input: rows[2].drafts: byte 17: has 9 elements, but ...".
Result<StepInput> DecodeStepInput(std::string_view bytes, const ExecutorLimits& limits);
Result<std::vector<TokenMask>> DecodeTokenMasks(std::string_view bytes,
                                                const ExecutorLimits& limits);
Result<StepOutput> DecodeStepOutput(std::string_view bytes, const ExecutorLimits& limits);

}  // namespace tokamak
