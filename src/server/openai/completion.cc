#include "server/openai/completion.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "server/openai/status_response.h"

namespace tokamak {
namespace {

// Bytes of a stream that may be unread before its requests are paused. Choices run side by side, so
// their chunks come together.
constexpr size_t kChoiceBacklog = 16 << 10;
constexpr size_t kMaxBacklog = 1 << 20;

// Counts characters in the way of text_offset.
int32_t CodePoints(std::string_view text) {
  int32_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace

Completion::Completion(Engine& engine, ResponseWriter& writer, PreparedCompletion prepared,
                       ResponseHead head, const RequestLimits& limits, const TokenSizes& sizes,
                       TextMaker& text_maker)
    : engine_(engine),
      writer_(writer),
      request_(std::move(prepared.request)),
      client_(std::move(prepared.client)),
      prompts_(std::move(prepared.prompts)),
      images_(std::move(prepared.images)),
      answer_format_(std::move(prepared.answer_format)),
      max_bytes_(static_cast<size_t>(limits.max_answer_bytes)),
      sizes_(sizes),
      text_maker_(text_maker),
      head_(std::move(head)),
      choices_(prompts_.size() * static_cast<size_t>(request_.sampling.n)),
      open_(choices_.size()),
      kept_(HeadBytes(head_)),
      mail_(writer) {
  writer_.notes.id = head_.id;
  for (size_t i = 0; i < choices_.size(); ++i) {
    AddBytes(choices_[i], kChoiceBytes);
    choices_[i].part.index = static_cast<int32_t>(i);
    choices_[i].part.with_logprobs = request_.sampling.logprobs.has_value();
    if (request_.return_token_ids) choices_[i].part.token_ids.emplace();
    if (answer_format_ != nullptr)
      choices_[i].parser = std::make_unique<AnswerParser>(answer_format_);
  }
}

Completion::~Completion() {
  if (open_ == 0) return;
  for (const RequestId request : requests_) engine_.Cancel(request);
}

Status Completion::Submit() {
  for (size_t p = 0; p < prompts_.size(); ++p) {
    Request request;
    request.token_ids = prompts_[p];
    request.images = images_;
    request.sampling = request_.sampling;
    request.priority = request_.priority;
    request.client = client_;
    request.cache_salt = request_.cache_salt;
    request.speculate = request_.speculate;
    request.label = head_.id;
    size_t num_tokens = prompts_[p].size();
    for (const ImageData& image : images_) num_tokens += image.tokens.size() - 1;
    writer_.notes.NotePrompt(static_cast<int32_t>(num_tokens));
    const Result<RequestId> id =
        engine_.Submit(std::move(request), [sender = mail_.sender(), p](OutputChunk chunk) {
          sender.Put({p, std::move(chunk)});
        });
    if (!id.ok()) return id.status();
    requests_.push_back(*id);
  }
  writer_.LimitBacklog(std::min(kMaxBacklog, choices_.size() * kChoiceBacklog));
  return Status();
}

Awaitable<> Completion::Respond() {
  // Formatting a long chunk takes time. What the engine sends meanwhile goes into one chunk.
  bool together = false;
  while (open_ > 0 && !failure_) {
    if (!together && arrived_.empty()) {
      const bool here = co_await WaitForChunks();
      if (!here) co_return;
      continue;
    }
    if (!together) {
      Choice* const choice = Add(arrived_.front());
      arrived_.pop_front();
      if (choice != nullptr && request_.stream) together = co_await SendPart(*choice);
      continue;
    }
    together = false;
    for (Arrival& arrival : mail_.Take()) arrived_.push_back(std::move(arrival));
    for (; !arrived_.empty() && !failure_; arrived_.pop_front()) Add(arrived_.front());
    for (Choice& choice : choices_) {
      const bool took_long = co_await SendPart(choice);
      together = together || took_long;
    }
  }
  if (request_.stream || failure_) co_return Finish();
  co_await RespondWhole();
}

// Waits for chunks, and pauses the requests while the client does not read. Returns false if the
// client has left.
Awaitable<bool> Completion::WaitForChunks() {
  while (!writer_.gone()) {
    // This comes first, because a wait for a long text may have used up the notification.
    PauseOrResume();
    for (Arrival& arrival : mail_.Take()) arrived_.push_back(std::move(arrival));
    if (!arrived_.empty()) co_return true;
    co_await writer_.Wait();
  }
  co_return false;
}

// While the client does not read, other requests get the slots and the memory.
void Completion::PauseOrResume() {
  if (paused_ == writer_.backlogged()) return;
  paused_ = writer_.backlogged();
  for (const RequestId request : requests_) {
    paused_ ? engine_.Pause(request) : engine_.Resume(request);
  }
}

// Returns null after a failure.
Completion::Choice* Completion::Add(const Arrival& arrival) {
  const OutputChunk& chunk = arrival.chunk;
  writer_.notes.NoteChunk(arrival.prompt, chunk);
  if (chunk.finish_reason == FinishReason::kError) {
    failure_ = ErrorResponse(request_.spellings.Apply(chunk.error));
    return nullptr;
  }
  if (chunk.finish_reason == FinishReason::kCancelled) {
    failure_ = ShuttingDownResponse();
    return nullptr;
  }
  head_.seed = chunk.seed;
  const size_t index = arrival.prompt * static_cast<size_t>(request_.sampling.n) + chunk.choice;
  Choice& choice = choices_[index];
  if (!choice.started) AddPrompt(arrival.prompt, choice, chunk);
  choice.started = true;
  AddTokens(choice, chunk);
  if (chunk.finish_reason) {
    if (choice.parser != nullptr) AddText(choice, choice.parser->Finish());
    const bool calls = choice.tool_calls > 0 && chunk.finish_reason == FinishReason::kStop;
    // kError and kCancelled have failed above.
    choice.part.finish_reason = calls ? "tool_calls" : FinishReasonName(*chunk.finish_reason);
    --open_;
  }
  if (kept_ <= max_bytes_) return &choice;
  failure_ = ErrorResponse(TooLong());
  return nullptr;
}

Status Completion::TooLong() const {
  const char* field = request_.sampling.logprobs          ? "logprobs"
                      : request_.sampling.prompt_logprobs ? "prompt_logprobs"
                      : request_.echo                     ? "echo"
                                                          : "max_tokens";
  return InvalidArgument(
      "{}: the answer has grown to {} bytes, more than the {} allowed (--max-answer-bytes); {}ask "
      "for fewer choices, tokens or alternatives",
      field, kept_, max_bytes_, request_.stream ? "" : "stream it, or ");
}

void Completion::AddBytes(Choice& choice, size_t bytes) {
  choice.bytes += bytes;
  kept_ += bytes;
}

size_t Completion::LogprobBytes(const TokenLogprobs& logprobs) const {
  return sizes_.Logprobs(logprobs, request_.chat ? LogprobForm::kChat : LogprobForm::kCompletion);
}

// Adds what precedes the first generated token: the echoed prompt and its logprobs. The engine
// sends the logprobs with choice 0, and OpenAI repeats them in every choice.
void Completion::AddPrompt(size_t prompt, Choice& choice, const OutputChunk& chunk) {
  if (request_.echo) {
    choice.part.text = engine_.Detokenize(prompts_[prompt]);
    AddBytes(choice, JsonTextBytes(choice.part.text));
    if (request_.return_token_ids) {
      *choice.part.token_ids = prompts_[prompt];
      AddBytes(choice, JsonIdBytes(prompts_[prompt]));
    }
  }
  choice.text_offset = CodePoints(choice.part.text);
  if (!request_.sampling.prompt_logprobs || chunk.choice != 0) return;
  std::vector<LogprobEntry> entries(1);
  entries[0].token.token.token_id = prompts_[prompt][0];
  entries[0].has_logprob = false;
  for (const TokenLogprobs& logprobs : chunk.prompt_logprobs) {
    entries.push_back({.token = logprobs});
  }
  if (request_.echo && request_.sampling.logprobs) {
    // A character of several tokens counts for the first of them, so the sum may differ from the
    // count of the text.
    choice.text_offset = 0;
    for (LogprobEntry& entry : entries) {
      entry.text_offset = choice.text_offset;
      choice.text_offset += CodePointsOf(entry.token);
      AddBytes(choice, LogprobBytes(entry.token));
    }
    choice.part.logprobs = entries;
  }
  if (!request_.return_prompt_logprobs) return;
  for (const LogprobEntry& entry : entries) {
    AddBytes(choice, sizes_.Logprobs(entry.token, LogprobForm::kPrompt));
  }
  choice.part.prompt_logprobs = std::move(entries);
}

void Completion::AddTokens(Choice& choice, const OutputChunk& chunk) {
  if (choice.parser != nullptr) {
    AddText(choice, choice.parser->Append(chunk.text, chunk.special_at));
  } else {
    choice.part.text += chunk.text;
    AddBytes(choice, JsonTextBytes(chunk.text));
  }
  if (request_.return_token_ids) {
    AddBytes(choice, JsonIdBytes(chunk.token_ids));
    choice.part.token_ids->insert(choice.part.token_ids->end(), chunk.token_ids.begin(),
                                  chunk.token_ids.end());
  }
  for (const TokenLogprobs& logprobs : chunk.logprobs) {
    AddBytes(choice, LogprobBytes(logprobs));
    choice.held.push_back({.token = logprobs, .text_offset = choice.text_offset});
    choice.text_offset += CodePointsOf(logprobs);
  }
  // Logprobs of a possible stop string's tokens are held back with its text.
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
    const bool begins = !call.name.empty();
    if (begins) ++choice.tool_calls;
    if (!request_.parallel_tool_calls && choice.tool_calls > 1) continue;
    AddCall(choice, std::move(call));
  }
}

void Completion::AddCall(Choice& choice, ToolCall call) {
  std::vector<ToolCallPart>& parts = choice.part.tool_calls;
  const int32_t index = choice.tool_calls - 1;
  if (call.name.empty() && !parts.empty()) {
    parts.back().arguments += call.arguments;
    return AddBytes(choice, JsonTextBytes(call.arguments));
  }
  std::string id;
  if (!call.name.empty()) id = call.id.empty() ? CallId(choice, index) : std::move(call.id);
  parts.push_back({index, std::move(id), std::move(call.name), std::move(call.arguments)});
  AddBytes(choice, ToolCallBytes(parts.back()));
  // In a stream the arguments get a chunk of their own.
  if (request_.stream) AddBytes(choice, HeadBytes(head_) + kChoiceBytes);
}

// Returns an id that no other tool call of this server has. Some templates only accept ids of nine
// letters and digits.
std::string Completion::CallId(const Choice& choice, int32_t call) const {
  const std::string name = fmt::format("{}/{}/{}", head_.id, choice.part.index, call);
  uint64_t hash = Hash64(name.data(), name.size());
  if (!answer_format_->tools->short_ids) return fmt::format("call_{:016x}", hash);
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

// Sends the unsent part of a choice, if there is any: there is none in the middle of a character.
// Returns whether it was long and took time to format.
Awaitable<bool> Completion::SendPart(Choice& choice) {
  if (!HasUnsent(choice)) co_return false;
  if (writer_.status() == 0) {
    writer_.StartStream({.content_type = "text/event-stream; charset=utf-8",
                         .body = {},
                         .headers = IgnoredFieldHeaders(request_.unknown_fields)});
  }
  const size_t before = kept_;
  ChoicePart part = TakePart(choice);
  const size_t bytes = before - kept_;
  std::optional<ResponseTail> tail;
  const bool last = open_ == 0 && !request_.include_usage &&
                    std::none_of(choices_.begin(), choices_.end(),
                                 [this](const Choice& other) { return HasUnsent(other); });
  if (last) tail = Tail();
  const auto format = [&engine = engine_, null_usage = request_.include_usage](
                          const ResponseHead& head, const ChoicePart& from,
                          const std::optional<ResponseTail>& end) {
    return FormatChunk(head, from, null_usage, end,
                       [&](int32_t token) { return engine.TokenBytes(token); });
  };
  if (bytes <= kShortText) {
    writer_.Write(format(head_, part, tail));
    co_return false;
  }
  std::function<std::string()> make = [format, head = head_, part = std::move(part), tail] {
    return format(head, part, tail);
  };
  std::optional<std::string> text = co_await text_maker_.Make(writer_, bytes, std::move(make));
  if (text) writer_.Write(*std::move(text));
  co_return true;
}

// Removes the unsent part from a choice and returns it.
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

Awaitable<> Completion::RespondWhole() {
  std::vector<ChoicePart> parts;
  for (Choice& choice : choices_) parts.push_back(std::move(choice.part));
  std::function<std::string()> make = [&engine = engine_, head = head_, parts = std::move(parts),
                                       tail = Tail()] {
    return FormatResponse(head, parts, tail,
                          [&](int32_t token) { return engine.TokenBytes(token); });
  };
  std::optional<std::string> text;
  if (kept_ <= kShortText) {
    text = make();
  } else {
    text = co_await text_maker_.Make(writer_, kept_, std::move(make));
  }
  if (!text) co_return;
  writer_.Respond(
      {.body = *std::move(text), .headers = IgnoredFieldHeaders(request_.unknown_fields)});
}

// Ends a stream, or responds with the failure.
void Completion::Finish() {
  if (failure_ && writer_.status() == 0) return writer_.Respond(*std::move(failure_));
  if (failure_) {
    writer_.Write(FormatErrorEvent(failure_->body));
  } else if (request_.include_usage) {
    writer_.Write(FormatUsageChunk(head_, Tail()));
  }
  writer_.Write(std::string(kDoneEvent));
  writer_.Finish();
}

ResponseTail Completion::Tail() const {
  ResponseTail tail = {.usage = writer_.notes.TotalUsage()};
  if (request_.timings) tail.timings = writer_.notes.TotalTimings();
  return tail;
}

int32_t Completion::CodePointsOf(const TokenLogprobs& logprobs) const {
  return CodePoints(engine_.TokenBytes(logprobs.token.token_id));
}

}  // namespace tokamak
