// The fields of a record, listed once for reading and writing. Used by record.cc and its fuzzer.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/codec.h"
#include "engine/record.h"
#include "step/step_fields.h"

namespace tokamak::codec {

void Field(auto& a, ExecutorLimits& v) {
  Fields(a, v.cache.groups, v.cache.block_bytes, v.cache.num_device_blocks, v.cache.num_host_blocks,
         v.cache.original_context, v.cache.sequence_state, v.max_seqs, v.max_step_tokens,
         v.max_step_drafts, v.max_context, v.vocab_size, v.depth, v.stages, v.has_candidates,
         v.max_encoder_rows, v.max_step_image_rows, v.whole_image_rows);
}
void Field(auto& a, DraftOptions& v) {
  Fields(a, v.most, v.least, v.from_model, v.min_match, v.max_match, v.min_probability, v.always);
}
void Field(auto& a, EngineCoreOptions& v) {
  Fields(a, v.max_seqs, v.max_step_tokens, v.max_context, v.max_queue, v.target_itl_ms, v.quantum,
         v.prefix_cache, v.seed, v.max_failures, v.drafts);
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
  Field(a, v.kind, StructuredOutput::Kind::kTags);
  Fields(a, v.text, v.choices, v.whitespace_pattern, v.tags, v.triggers, v.ends_after_tag, v.calls,
         v.call_separator, v.calls_begin, v.calls_end, v.call_parameters, v.call_marks, v.must_call,
         v.calls_in_text, v.reasoning, v.messages);
}
void Field(auto& a, BeamSearchParams& v) {
  Fields(a, v.width, v.length_penalty);
  Field(a, v.early_stopping, EarlyStopping::kNever);
}
void Field(auto& a, SamplingParams& v) {
  DrawFields(a, v);
  Fields(a, v.dry_sequence_breakers, v.bad_words, v.n, v.max_tokens, v.stop,
         v.include_stop_str_in_output, v.ignore_eos, v.skip_special_tokens, v.shown_special_tokens,
         v.structured_output, v.beam_search, v.thinking_token_budget, v.thinking);
}
void Field(auto& a, Status& v) {
  StatusCode code = v.code();
  std::string message(v.message());
  Field(a, code, StatusCode::kInternal);
  if (code == StatusCode::kOk) {
    v = Status();
    return;
  }
  Field(a, message);
  v = Status(code, std::move(message));
}

// Events.

void Field(auto& a, RecordHeader& v) {
  Fields(a, v.version, v.step_version);
  if (!v.has_known_version()) return;  // the rest may look different
  Fields(a, v.properties, v.options, v.limits);
}
template <typename A>
void Field(A& a, std::shared_ptr<const EncodeImage>& v) {
  if constexpr (A::kReads) {
    auto image = std::make_shared<EncodeImage>();
    Field(a, *image);
    v = std::move(image);
  } else {
    EncodeImage none;  // in an arrival that will be refused
    Field(a, v ? const_cast<EncodeImage&>(*v) : none);
  }
}
// Spans that follow each other may show the same image, whose values are there once.
template <typename A>
void Field(A& a, std::vector<ArrivalImage>& v) {
  std::vector<ImageSpan> spans;
  for (const ArrivalImage& shown : v) spans.push_back(shown.span);
  Field(a, spans);
  if constexpr (A::kReads) v.assign(spans.size(), {});
  for (size_t i = 0; i < v.size(); ++i) {
    v[i].span = spans[i];
    bool same = i > 0 && v[i].image == v[i - 1].image;
    if (i > 0) Field(a, same);
    if (!same) {
      Field(a, v[i].image);
    } else if constexpr (A::kReads) {
      v[i].image = v[i - 1].image;
    }
  }
}
void Field(auto& a, ArrivalEvent& v) {
  Fields(a, v.arrival.id, v.arrival.prompt, v.arrival.images, v.arrival.sampling, v.arrival.eos_ids,
         v.arrival.priority, v.arrival.client, v.arrival.cache_root, v.arrival.speculate,
         v.has_decoders);
}
void Field(auto& a, CancelEvent& v) { Field(a, v.request); }
void Field(auto&, CancelAllEvent&) {}
void Field(auto& a, PauseEvent& v) { Field(a, v.request); }
void Field(auto& a, ResumeEvent& v) { Field(a, v.request); }
void Field(auto& a, LostEvent& v) { Field(a, v.error); }
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

}  // namespace tokamak::codec
