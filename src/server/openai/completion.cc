#include "server/openai/completion.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "server/openai/errors.h"

namespace tokamak {
namespace {

// Bytes of a stream that a client may leave unread while its requests go on. Choices run side by
// side, so their pieces come together.
constexpr size_t kChoiceBacklog = 16 << 10;
constexpr size_t kMaxBacklog = 1 << 20;

// Characters, as clients count text_offset.
int32_t CodePoints(std::string_view text) {
  int32_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace

Completion::Completion(Engine& engine, std::shared_ptr<HttpExchange> exchange,
                       PreparedCall prepared, ResponseHead head, const RequestLimits& limits,
                       std::shared_ptr<const TokenSizes> sizes, TextMaker make_text)
    : engine_(engine),
      exchange_(std::move(exchange)),
      call_(std::move(prepared.call)),
      client_(std::move(prepared.client)),
      prompts_(std::move(prepared.prompts)),
      answer_(std::move(prepared.answer)),
      max_bytes_(static_cast<size_t>(limits.max_answer_bytes)),
      sizes_(std::move(sizes)),
      make_text_(std::move(make_text)),
      head_(std::move(head)),
      choices_(prompts_.size() * static_cast<size_t>(call_.sampling.n)),
      open_(choices_.size()),
      kept_(HeadBytes(head_)) {
  exchange_->notes.id = head_.id;
  for (size_t i = 0; i < choices_.size(); ++i) {
    AddBytes(choices_[i], kChoiceBytes);
    choices_[i].part.index = static_cast<int32_t>(i);
    choices_[i].part.with_logprobs = call_.sampling.logprobs.has_value();
    if (call_.return_token_ids) choices_[i].part.token_ids.emplace();
    if (answer_ != nullptr) choices_[i].parser = std::make_unique<AnswerParser>(answer_);
  }
}

Status Completion::Start() {
  for (size_t p = 0; p < prompts_.size(); ++p) {
    Request request;
    request.token_ids = prompts_[p];
    request.sampling = call_.sampling;
    request.priority = call_.priority;
    request.client = client_;
    request.cache_salt = call_.cache_salt;
    request.label = head_.id;
    exchange_->notes.NotePrompt(static_cast<int32_t>(prompts_[p].size()));
    const Result<RequestId> id =
        engine_.Submit(std::move(request), [self = shared_from_this(), p](OutputChunk chunk) {
          self->exchange_->Post([self, p, chunk = std::move(chunk)]() mutable {
            self->OnChunk(p, std::move(chunk));
          });
        });
    if (!id.ok()) {
      ended_ = true;
      CancelAll();
      return id.status();
    }
    requests_.push_back(*id);
  }
  exchange_->OnClientGone([self = shared_from_this()] {
    self->ended_ = true;
    self->CancelAll();
  });
  exchange_->OnBacklog(std::min(kMaxBacklog, choices_.size() * kChoiceBacklog),
                       [self = shared_from_this()](bool full) { self->OnBacklog(full); });
  return Status();
}

// Nobody reads it: others get the slots and the memory meanwhile.
void Completion::OnBacklog(bool full) {
  if (ended_) return;
  for (const RequestId request : requests_) {
    full ? engine_.Pause(request) : engine_.Resume(request);
  }
}

void Completion::OnChunk(size_t prompt, OutputChunk chunk) {
  if (ended_ || failure_) return;
  exchange_->notes.NoteChunk(prompt, chunk);
  if (chunk.finish_reason == FinishReason::kError) {
    // Its queue may have filled up since it took the request.
    return Fail(engine_.health().ok() ? BusyResponse(chunk.error) : ErrorResponse(chunk.error));
  }
  if (chunk.finish_reason == FinishReason::kCancelled) {
    return Fail(ShuttingDownResponse());
  }
  head_.seed = chunk.seed;
  const size_t index = prompt * static_cast<size_t>(call_.sampling.n) + chunk.choice;
  Choice& choice = choices_[index];
  if (!choice.started) AddPrompt(prompt, choice, chunk);
  choice.started = true;
  AddTokens(choice, chunk);
  if (chunk.finish_reason) {
    if (choice.parser != nullptr) AddText(choice, choice.parser->Finish());
    const bool calls = choice.tool_calls > 0 && chunk.finish_reason == FinishReason::kStop;
    // The other two have failed above.
    choice.part.finish_reason = calls ? "tool_calls" : FinishReasonName(*chunk.finish_reason);
    --open_;
  }
  if (kept_ > max_bytes_) return Fail(ErrorResponse(TooLong()));
  if (!call_.stream) {
    if (open_ == 0) Respond();
    return;
  }
  if (making_) return;
  SendPart(choice);
  if (open_ == 0 && !making_) FinishStream();
}

Status Completion::TooLong() const {
  const char* field = call_.sampling.logprobs          ? "logprobs"
                      : call_.sampling.prompt_logprobs ? "prompt_logprobs"
                      : call_.echo                     ? "echo"
                                                       : "max_tokens";
  return InvalidArgument(
      "{}: the answer has grown to {} bytes, more than the {} allowed (--max-answer-bytes); {}ask "
      "for fewer choices, tokens or alternatives",
      field, kept_, max_bytes_, call_.stream ? "" : "stream it, or ");
}

void Completion::AddBytes(Choice& choice, size_t bytes) {
  choice.bytes += bytes;
  kept_ += bytes;
}

size_t Completion::LogprobBytes(const TokenLogprobs& logprobs) const {
  return sizes_->Logprobs(logprobs, call_.chat ? LogprobForm::kChat : LogprobForm::kCompletion);
}

// Adds what stands before the first generated token: the echoed prompt and its logprobs, which the
// engine sends with choice 0 and OpenAI repeats in every choice.
void Completion::AddPrompt(size_t prompt, Choice& choice, const OutputChunk& chunk) {
  if (call_.echo) {
    choice.part.text = engine_.Detokenize(prompts_[prompt]);
    AddBytes(choice, JsonTextBytes(choice.part.text));
    if (call_.return_token_ids) {
      *choice.part.token_ids = prompts_[prompt];
      AddBytes(choice, JsonIdBytes(prompts_[prompt]));
    }
  }
  choice.text_offset = CodePoints(choice.part.text);
  if (!call_.sampling.prompt_logprobs || chunk.choice != 0) return;
  std::vector<LogprobEntry> entries(1);
  entries[0].token.token.token_id = prompts_[prompt][0];
  entries[0].has_logprob = false;
  for (const TokenLogprobs& logprobs : chunk.prompt_logprobs) {
    entries.push_back({.token = logprobs});
  }
  if (call_.echo && call_.sampling.logprobs) {
    // A character of several tokens counts for its first one, which the text's own count need not
    // do.
    choice.text_offset = 0;
    for (LogprobEntry& entry : entries) {
      entry.text_offset = choice.text_offset;
      choice.text_offset += CodePointsOf(entry.token);
      AddBytes(choice, LogprobBytes(entry.token));
    }
    choice.part.logprobs = entries;
  }
  if (!call_.return_prompt_logprobs) return;
  for (const LogprobEntry& entry : entries) {
    AddBytes(choice, sizes_->Logprobs(entry.token, LogprobForm::kPrompt));
  }
  choice.part.prompt_logprobs = std::move(entries);
}

void Completion::AddTokens(Choice& choice, const OutputChunk& chunk) {
  if (choice.parser != nullptr) {
    AddText(choice, choice.parser->Append(chunk.text));
  } else {
    choice.part.text += chunk.text;
    AddBytes(choice, JsonTextBytes(chunk.text));
  }
  if (call_.return_token_ids) {
    AddBytes(choice, JsonIdBytes(chunk.token_ids));
    choice.part.token_ids->insert(choice.part.token_ids->end(), chunk.token_ids.begin(),
                                  chunk.token_ids.end());
  }
  for (const TokenLogprobs& logprobs : chunk.logprobs) {
    AddBytes(choice, LogprobBytes(logprobs));
    choice.held.push_back({.token = logprobs, .text_offset = choice.text_offset});
    choice.text_offset += CodePointsOf(logprobs);
  }
  // The logprobs of a stop string's tokens are held back, like its text.
  const auto held = std::min(choice.held.size(), static_cast<size_t>(chunk.tokens_held));
  const auto end = choice.held.end() - static_cast<std::ptrdiff_t>(held);
  choice.part.logprobs.insert(choice.part.logprobs.end(),
                              std::make_move_iterator(choice.held.begin()),
                              std::make_move_iterator(end));
  choice.held.erase(choice.held.begin(), end);
}

void Completion::AddText(Choice& choice, AnswerPart part) {
  choice.part.text += part.content;
  choice.part.reasoning += part.reasoning;
  AddBytes(choice, JsonTextBytes(part.content) + JsonTextBytes(part.reasoning));
  for (ToolCall& call : part.calls) {
    if (!call_.parallel_tool_calls && choice.tool_calls > 0) return;
    std::string id = call.id.empty() ? CallId(choice) : std::move(call.id);
    choice.part.tool_calls.push_back(
        {choice.tool_calls, std::move(id), std::move(call.name), std::move(call.arguments)});
    AddBytes(choice, ToolCallBytes(choice.part.tool_calls.back()));
    ++choice.tool_calls;
  }
}

// Unlike any other of this server's. Some templates refuse ids but those of nine letters and
// digits.
std::string Completion::CallId(const Choice& choice) const {
  const std::string name = fmt::format("{}/{}/{}", head_.id, choice.part.index, choice.tool_calls);
  uint64_t hash = Hash64(name.data(), name.size());
  if (!answer_->tools->short_ids) return fmt::format("call_{:016x}", hash);
  std::string id;
  for (int i = 0; i < 9; ++i, hash /= 36) id += "0123456789abcdefghijklmnopqrstuvwxyz"[hash % 36];
  return id;
}

bool Completion::HasUnsent(const Choice& choice) const {
  const ChoicePart& part = choice.part;
  return choice.started &&
         (!choice.sent || !part.text.empty() || !part.reasoning.empty() ||
          !part.tool_calls.empty() || !part.logprobs.empty() || part.finish_reason.has_value() ||
          (part.token_ids && !part.token_ids->empty()));
}

// Sends what there is of the choice, if that is anything: in the middle of a character it is not.
// When it is long, the pieces after it wait until it is made.
void Completion::SendPart(Choice& choice) {
  if (!HasUnsent(choice)) return;
  if (!streaming_) {
    streaming_ = true;
    exchange_->StartStream({.content_type = "text/event-stream; charset=utf-8",
                            .body = {},
                            .headers = IgnoredFieldHeaders(call_.unknown_fields)});
  }
  const size_t before = kept_;
  ChoicePart part = TakePart(choice);
  const size_t bytes = before - kept_;
  std::optional<ResponseTail> tail;
  const bool last = open_ == 0 && !call_.include_usage &&
                    std::none_of(choices_.begin(), choices_.end(),
                                 [this](const Choice& other) { return HasUnsent(other); });
  if (last) tail = Tail();
  const auto format = [&engine = engine_, null_usage = call_.include_usage](
                          const ResponseHead& head, const ChoicePart& from,
                          const std::optional<ResponseTail>& end) {
    return FormatChunk(head, from, null_usage, end,
                       [&](int32_t token) { return engine.TokenBytes(token); });
  };
  if (bytes <= kShortText) return exchange_->Write(format(head_, part, tail));
  making_ = true;
  make_text_(
      bytes,
      [format, head = head_, part = std::move(part), tail] { return format(head, part, tail); },
      [self = shared_from_this()](std::string text) { self->OnPieceMade(std::move(text)); });
}

// Sends the piece, then what the engine sent meanwhile.
void Completion::OnPieceMade(std::string text) {
  making_ = false;
  if (ended_) return;
  exchange_->Write(std::move(text));
  for (Choice& choice : choices_) {
    SendPart(choice);
    if (making_) return;
  }
  if (failure_) return FinishWithFailure();
  if (open_ == 0) FinishStream();
}

// What has not been sent, and is no longer kept.
ChoicePart Completion::TakePart(Choice& choice) {
  ChoicePart part;
  part.index = choice.part.index;
  part.with_logprobs = choice.part.with_logprobs;
  if (choice.part.token_ids) part.token_ids.emplace();
  std::swap(part, choice.part);
  size_t held = 0;
  for (const LogprobEntry& entry : choice.held) held += LogprobBytes(entry.token);
  kept_ -= choice.bytes - held;
  choice.bytes = held;
  part.first = !choice.sent;
  choice.sent = true;
  return part;
}

void Completion::FinishStream() {
  ended_ = true;
  if (call_.include_usage) exchange_->Write(FormatUsageChunk(head_, Tail()));
  exchange_->Write(std::string(kDoneEvent));
  exchange_->Finish();
}

void Completion::Respond() {
  ended_ = true;
  std::vector<ChoicePart> parts;
  for (Choice& choice : choices_) parts.push_back(std::move(choice.part));
  const auto format = [&engine = engine_](const ResponseHead& head,
                                          const std::vector<ChoicePart>& from,
                                          const ResponseTail& end) {
    return FormatResponse(head, from, end, [&](int32_t token) { return engine.TokenBytes(token); });
  };
  const ResponseTail tail = Tail();
  const auto send = [exchange = exchange_,
                     ignored = IgnoredFieldHeaders(call_.unknown_fields)](std::string text) {
    exchange->Respond({.body = std::move(text), .headers = ignored});
  };
  if (kept_ <= kShortText) return send(format(head_, parts, tail));
  make_text_(
      kept_,
      [format, head = head_, parts = std::move(parts), tail] { return format(head, parts, tail); },
      send);
}

void Completion::Fail(HttpResponse response) {
  failure_ = std::move(response);
  CancelAll();
  if (!making_) FinishWithFailure();
}

void Completion::FinishWithFailure() {
  ended_ = true;
  if (!streaming_) return exchange_->Respond(*std::move(failure_));
  exchange_->Write(FormatErrorEvent(failure_->body));
  exchange_->Write(std::string(kDoneEvent));
  exchange_->Finish();
}

void Completion::CancelAll() {
  for (const RequestId request : requests_) engine_.Cancel(request);
}

ResponseTail Completion::Tail() const {
  ResponseTail tail = {.usage = exchange_->notes.TotalUsage()};
  if (call_.timings) tail.timings = exchange_->notes.TotalTimings();
  return tail;
}

int32_t Completion::CodePointsOf(const TokenLogprobs& logprobs) const {
  return CodePoints(engine_.TokenBytes(logprobs.token.token_id));
}

}  // namespace tokamak
